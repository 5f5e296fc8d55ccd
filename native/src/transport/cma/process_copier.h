// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/idle_helper.h"
#include "base/tuner.h"
#include "transport/cma/process_copy.h"

namespace hixl_rma {

/// The ways a large cross-process copy can go: the kernel copies on the core that asks it, so a
/// second core that asks for a part of the pieces copies that part at the same time.
enum class ProcessCopyWay : std::size_t { kAlone, kHelped };
inline constexpr std::size_t kProcessCopyWays = 2;

/// Copies between this process and others, the fastest way known for the size.
/// Thread: any.
class ProcessCopier {
 public:
  /// The one of this process, alive while somebody holds it.
  static std::shared_ptr<ProcessCopier> of_process();

  /// As copy_across: every piece is done when this returns, or one of them failed.
  Status copy(pid_t pid, CopyDirection direction, std::uint64_t base,
              std::span<const Piece> pieces);
  /// The same, one given way.
  Status copy(pid_t pid, CopyDirection direction, std::uint64_t base, std::span<const Piece> pieces,
              ProcessCopyWay way);

 private:
  Status copy_helped(pid_t pid, CopyDirection direction, std::uint64_t base,
                     std::span<const Piece> pieces);

  std::shared_ptr<IdleHelper> helper_ = IdleHelper::of_process();
  Tuner<kProcessCopyWays> tuner_;
};

}  // namespace hixl_rma
