// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/idle_helper.h"
#include "base/tuner.h"

namespace hixl_rma {

/// One contiguous run to copy; its two ranges do not overlap.
struct CopyBlock {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t nbytes = 0;
};

/// From here on it pays to ask how to copy.
inline constexpr std::size_t kLargeCopy = std::size_t{256} * 1024;

/// The ways a large copy can go. Streaming stores spare the reading of what is overwritten and keep
/// the cache for others; where the destination fits the cache they are slower. A second core pays
/// above the cost of waking it.
enum class CopyWay : std::size_t { kPlain, kStreaming, kPlainHelped, kStreamingHelped };
inline constexpr std::size_t kCopyWays = 4;

/// Copies within the memory that this process has mapped, the fastest way known for the size.
class Copier {
 public:
  /// The one of this process, alive while somebody holds it.
  static std::shared_ptr<Copier> of_process();

  /// The bytes are ordered before whatever this thread stores afterwards, whoever copied them.
  void copy(std::span<const CopyBlock> blocks);
  /// The same, one given way.
  void copy(std::span<const CopyBlock> blocks, CopyWay way);

 private:
  std::shared_ptr<IdleHelper> helper_ = IdleHelper::of_process();
  Tuner<kCopyWays> tuner_;
};

}  // namespace hixl_rma
