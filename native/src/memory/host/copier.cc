// SPDX-License-Identifier: Apache-2.0
#include "memory/host/copier.h"

#include <cstring>

#include "base/byte_units.h"
#include "base/of_process.h"
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

}  // namespace

std::shared_ptr<Copier> Copier::of_process() {
  return hixl_rma::of_process<Copier>([] { return std::make_shared<Copier>(); });
}

void Copier::copy(std::span<const CopyBlock> blocks) {
  const std::size_t total = total_bytes(blocks);
  if (total < kLargeCopy) {
    copy(blocks, CopyWay::kPlain);
    return;
  }
  tuner_.run(total, [&](std::size_t way) {
    copy(blocks, static_cast<CopyWay>(way));
    return true;
  });
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
