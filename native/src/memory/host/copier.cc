// SPDX-License-Identifier: Apache-2.0
#include "memory/host/copier.h"

#include <cstring>
#include <mutex>

#include "base/byte_units.h"
#include "base/deadline.h"
#include "memory/host/stream_copy.h"

namespace hixl_rma {
namespace {

// What one core takes at a time: long enough to stream, short enough that waiting for the last one
// costs little.
constexpr std::size_t kUnitBytes = std::size_t{128} * 1024;

void copy_run(std::byte* to, const std::byte* from, std::size_t nbytes, bool streaming) {
  if (streaming) {
    stream_copy(to, from, nbytes);
  } else {
    std::memcpy(to, from, nbytes);
  }
}

std::size_t total_of(std::span<const CopyBlock> blocks) {
  std::size_t total = 0;
  for (const CopyBlock& block : blocks) total += block.nbytes;
  return total;
}

}  // namespace

std::shared_ptr<Copier> Copier::of_process() {
  static std::mutex mutex;
  static std::weak_ptr<Copier> known;
  std::lock_guard lock(mutex);
  std::shared_ptr<Copier> copier = known.lock();
  if (!copier) known = copier = std::make_shared<Copier>();
  return copier;
}

void Copier::copy(std::span<const CopyBlock> blocks) {
  const std::size_t total = total_of(blocks);
  if (total < kLargeCopy) {
    copy(blocks, CopyWay::kPlain);
    return;
  }
  const std::size_t way = tuner_.choose(total);
  const auto start = Clock::now();
  copy(blocks, static_cast<CopyWay>(way));
  tuner_.learn(total, way, static_cast<double>(Nanoseconds(Clock::now() - start).count()));
}

void Copier::copy(std::span<const CopyBlock> blocks, CopyWay way) {
  const bool streaming = way == CopyWay::kStreaming || way == CopyWay::kStreamingHelped;
  if (way == CopyWay::kPlain || way == CopyWay::kStreaming) {
    for (const CopyBlock& block : blocks) copy_run(block.to, block.from, block.nbytes, streaming);
    return;
  }
  const ByteUnits<CopyBlock> units(blocks, kUnitBytes);
  helper_->run(units.count(), [&](std::size_t unit) {
    units.visit(unit, [&](const CopyBlock& block, std::size_t within, std::size_t n) {
      copy_run(block.to + within, block.from + within, n, streaming);
    });
  });
}

}  // namespace hixl_rma
