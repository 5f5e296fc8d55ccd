// SPDX-License-Identifier: Apache-2.0
#include "transport/common/mapped_endpoint.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/byte_units.h"
#include "base/doorbell.h"
#include "transport/common/staged_operand.h"
#include "transport/common/stripes.h"

namespace hixl_rma {
namespace {

template <class T>
bool copy_whole(std::byte* to, const std::byte* from) {
  const auto misaligned =
      (reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % sizeof(T);
  if (misaligned != 0) return false;
  const T value = std::atomic_ref<T>(*reinterpret_cast<T*>(const_cast<std::byte*>(from)))
                      .load(std::memory_order_relaxed);
  std::atomic_ref<T>(*reinterpret_cast<T*>(to)).store(value, std::memory_order_relaxed);
  return true;
}

// An aligned element of 4 or 8 bytes is read and written whole, so that a target that polls it (or
// another origin) never meets half of it.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t nbytes) {
  if (nbytes == 8 && copy_whole<std::uint64_t>(to, from)) return;
  if (nbytes == 4 && copy_whole<std::uint32_t>(to, from)) return;
  if (nbytes != 0) std::memmove(to, from, nbytes);  // memmove: origin and target may overlap
}

// From here on a copy may meet enough absent pages to be worth the question.
constexpr std::size_t kPages = std::size_t{16} * 1024;

inline std::byte* place(RemoteRegion& region, std::uint64_t offset, std::size_t nbytes) {
  if (nbytes >= kPages) region.prepare_pages(offset, nbytes);
  return region.mapped() + offset;
}

bool overlaps(const CopyBlock& block) {
  return block.to < block.from + block.nbytes && block.from < block.to + block.nbytes;
}

std::atomic_ref<std::uint64_t> word_at(RemoteRegion& region, std::uint64_t offset) {
  return std::atomic_ref<std::uint64_t>(
      *reinterpret_cast<std::uint64_t*>(region.mapped() + offset));
}

}  // namespace

void MappedEndpoint::copy(std::span<const CopyBlock> blocks) {
  if (std::ranges::none_of(blocks, overlaps)) {
    copier_->copy(blocks);
    return;
  }
  for (const CopyBlock& block : blocks) copy_bytes(block.to, block.from, block.nbytes);
}

PostResult MappedEndpoint::put(RemoteRegion& region, const Piece& piece, Completion*) {
  const CopyBlock block{place(region, piece.offset, piece.nbytes), piece.local, piece.nbytes};
  if (block.nbytes < kLargeCopy) {
    copy_bytes(block.to, block.from, block.nbytes);
  } else {
    copy(std::span(&block, 1));
  }
  return Post::kDone;
}

PostResult MappedEndpoint::get(RemoteRegion& region, const Piece& piece, Completion*) {
  const CopyBlock block{piece.local, place(region, piece.offset, piece.nbytes), piece.nbytes};
  if (block.nbytes < kLargeCopy) {
    copy_bytes(block.to, block.from, block.nbytes);
  } else {
    copy(std::span(&block, 1));
  }
  return Post::kDone;
}

PostResult MappedEndpoint::put_v(RemoteRegion& region, std::span<const Piece> pieces, Completion*) {
  std::byte* base = region.mapped();
  if (!worth_cutting(pieces, kLargeCopy)) {
    for (const Piece& piece : pieces) copy_bytes(base + piece.offset, piece.local, piece.nbytes);
    return Post::kDone;
  }
  std::vector<CopyBlock> blocks;
  blocks.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    blocks.push_back({place(region, piece.offset, piece.nbytes), piece.local, piece.nbytes});
  }
  copy(blocks);
  return Post::kDone;
}

PostResult MappedEndpoint::get_v(RemoteRegion& region, std::span<const Piece> pieces, Completion*) {
  const std::byte* base = region.mapped();
  if (!worth_cutting(pieces, kLargeCopy)) {
    for (const Piece& piece : pieces) copy_bytes(piece.local, base + piece.offset, piece.nbytes);
    return Post::kDone;
  }
  std::vector<CopyBlock> blocks;
  blocks.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    blocks.push_back({piece.local, place(region, piece.offset, piece.nbytes), piece.nbytes});
  }
  copy(blocks);
  return Post::kDone;
}

PostResult MappedEndpoint::flush(FlushScope scope, Completion*) {
  // Everything is placed already; the fence makes later loads of this thread come after it too.
  if (scope == FlushScope::kRemote) std::atomic_thread_fence(std::memory_order_seq_cst);
  return Post::kDone;
}

void MappedEndpoint::close(const Status&) {}

PostResult MappedEndpoint::notify(RemoteRegion& region, std::span<const RecordWrite> records,
                                  Completion*) {
  for (const RecordWrite& record : records) {
    for (std::size_t i = record.words; i-- > 1;) {
      word_at(region, record.offset + 8 * i).store(record.value[i], std::memory_order_relaxed);
    }
    // release; pairs with the acquire load of whoever reads the record
    word_at(region, record.offset).store(record.value[0], std::memory_order_release);
  }
  if (Doorbell* doorbell = region.sync().doorbell) ring(*doorbell);
  return Post::kDone;
}

PostResult MappedEndpoint::fetch_add(RemoteRegion& region, std::uint64_t offset,
                                     std::uint64_t value, std::uint64_t* previous, Completion*) {
  *previous = word_at(region, offset).fetch_add(value, std::memory_order_acq_rel);
  return Post::kDone;
}

PostResult MappedEndpoint::compare_swap(RemoteRegion& region, std::uint64_t offset,
                                        std::uint64_t expected, std::uint64_t desired,
                                        std::uint64_t* previous, Completion*) {
  word_at(region, offset)
      .compare_exchange_strong(expected, desired, std::memory_order_acq_rel,
                               std::memory_order_acquire);
  *previous = expected;
  return Post::kDone;
}

PostResult MappedEndpoint::accumulate(RemoteRegion& region, const Accumulate& operation,
                                      Completion*) {
  const std::size_t element = size_of(operation.type);
  const ReduceFunction apply =
      reduce_function(operation.type, operation.op, operation.count * element);
  if (apply == nullptr) return Status::error(StatusCode::kInvalidType, "no such reduction");
  std::uint64_t offset = operation.offset;
  std::size_t done = 0;
  StagedOperand operand(operation);
  const StripeUser user = stripe_user(region.sync());
  while (done < operation.count) {
    const std::size_t n = elements_in_group(offset, element, operation.count - done);
    std::byte* target = region.mapped() + offset;
    const std::byte* values = operand.at(done * element, n * element);
    {
      const StripeGuard guard(user, offset, n * element);
      if (!guard.locked()) [[unlikely]] {
        return guard.failure();
      }
      if (done + n < operation.count) prefetch_group(user, offset + n * element);
      if (operation.result != nullptr)
        copy_bytes(operation.result + done * element, target, n * element);
      if (operation.op != ReduceOp::kNoOp) apply(target, values, n);
    }
    done += n;
    offset += n * element;
  }
  return Post::kDone;
}

PostResult MappedEndpoint::swap_element(RemoteRegion& region, const ElementSwap& operation,
                                        Completion*) {
  const StripeGuard guard(stripe_user(region.sync()), operation.offset, size_of(operation.type));
  if (!guard.locked()) return guard.failure();
  compare_and_swap(operation.type, region.mapped() + operation.offset, operation.compare,
                   operation.desired, operation.result);
  return Post::kDone;
}

}  // namespace hixl_rma
