// SPDX-License-Identifier: Apache-2.0
#include "transport/cma/process_copier.h"

#include <atomic>
#include <mutex>
#include <vector>

#include "base/byte_units.h"
#include "base/deadline.h"

namespace hixl_rma {
namespace {

// What one core asks the kernel for at a time: the call costs little beside it, and waiting for the
// last one does, too.
constexpr std::size_t kUnitBytes = std::size_t{256} * 1024;
// Smaller pieces than this cost more to look up than to copy, wherever that is done.
constexpr std::size_t kSmallPiece = 1024;

bool is_large(std::span<const Piece> pieces, std::size_t total) {
  return total >= 2 * kUnitBytes && total / pieces.size() >= kSmallPiece;
}

}  // namespace

std::shared_ptr<ProcessCopier> ProcessCopier::of_process() {
  static std::mutex mutex;
  static std::weak_ptr<ProcessCopier> known;
  std::lock_guard lock(mutex);
  std::shared_ptr<ProcessCopier> copier = known.lock();
  if (!copier) known = copier = std::make_shared<ProcessCopier>();
  return copier;
}

Status ProcessCopier::copy(pid_t pid, CopyDirection direction, std::uint64_t base,
                           std::span<const Piece> pieces) {
  std::size_t total = 0;
  for (const Piece& piece : pieces) total += piece.nbytes;
  if (!is_large(pieces, total)) return copy_across(pid, direction, base, pieces);
  const std::size_t way = tuner_.choose(total);
  const auto start = Clock::now();
  Status status = copy(pid, direction, base, pieces, static_cast<ProcessCopyWay>(way));
  if (status.ok()) {
    tuner_.learn(total, way, static_cast<double>(Nanoseconds(Clock::now() - start).count()));
  }
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
