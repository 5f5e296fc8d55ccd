// SPDX-License-Identifier: Apache-2.0
#include "memory/host/copier.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

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

// Cuts blocks of any sizes into units of equal bytes.
class Units {
 public:
  Units(std::span<const CopyBlock> blocks, bool streaming)
      : blocks_(blocks), streaming_(streaming) {
    ends_.reserve(blocks.size());
    for (const CopyBlock& block : blocks) ends_.push_back(total_ += block.nbytes);
  }

  [[nodiscard]] std::size_t count() const { return (total_ + kUnitBytes - 1) / kUnitBytes; }

  void copy(std::size_t unit) const {
    std::size_t at = unit * kUnitBytes;
    const std::size_t end = std::min(total_, at + kUnitBytes);
    auto i = static_cast<std::size_t>(std::ranges::upper_bound(ends_, at) - ends_.begin());
    while (at < end) {
      const CopyBlock& block = blocks_[i];
      const std::size_t within = at - (ends_[i] - block.nbytes);
      const std::size_t n = std::min(end, ends_[i]) - at;
      copy_run(block.to + within, block.from + within, n, streaming_);
      at += n;
      ++i;
    }
  }

 private:
  std::span<const CopyBlock> blocks_;
  bool streaming_;
  std::vector<std::size_t> ends_;
  std::size_t total_ = 0;
};

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
  const Units units(blocks, streaming);
  helper_->run(units.count(), [&](std::size_t unit) { units.copy(unit); });
}

}  // namespace hixl_rma
