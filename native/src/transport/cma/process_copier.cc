// SPDX-License-Identifier: Apache-2.0
#include "transport/cma/process_copier.h"

#include <atomic>
#include <mutex>
#include <vector>

#include "base/byte_units.h"
#include "base/of_process.h"

namespace hixl_rma {
namespace {

// What one core asks the kernel for at a time: the call costs little beside it, and waiting for the
// last one does, too.
constexpr std::size_t kUnitBytes = std::size_t{256} * 1024;

}  // namespace

std::shared_ptr<ProcessCopier> ProcessCopier::of_process() {
  return hixl_rma::of_process<ProcessCopier>([] { return std::make_shared<ProcessCopier>(); });
}

Status ProcessCopier::copy(pid_t pid, CopyDirection direction, std::uint64_t base,
                           std::span<const Piece> pieces) {
  if (!worth_cutting(pieces, 2 * kUnitBytes)) return copy_across(pid, direction, base, pieces);
  Status status;
  tuner_.run(total_bytes(pieces), [&](std::size_t way) {
    status = copy(pid, direction, base, pieces, static_cast<ProcessCopyWay>(way));
    return status.ok();
  });
  return status;
}

Status ProcessCopier::copy(pid_t pid, CopyDirection direction, std::uint64_t base,
                           std::span<const Piece> pieces, ProcessCopyWay way) {
  return way == ProcessCopyWay::kAlone ? copy_across(pid, direction, base, pieces)
                                       : copy_helped(pid, direction, base, pieces);
}

// After a failure the units that are left are not begun.
Status ProcessCopier::copy_helped(pid_t pid, CopyDirection direction, std::uint64_t base,
                                  std::span<const Piece> pieces) {
  const ByteUnits<Piece> units(pieces, kUnitBytes);
  std::mutex mutex;
  Status failure;
  std::atomic<bool> failed{false};
  helper_->run(units.count(), [&](std::size_t unit) {
    if (failed.load(std::memory_order_relaxed)) return;
    std::vector<Piece> parts;
    units.visit(unit, [&](const Piece& piece, std::size_t within, std::size_t n) {
      parts.push_back({piece.local + within, piece.offset + within, n});
    });
    Status status = copy_across(pid, direction, base, parts);
    if (status.ok()) return;
    std::lock_guard lock(mutex);
    if (!failed.exchange(true)) failure = std::move(status);
  });
  return failure;
}

}  // namespace hixl_rma
