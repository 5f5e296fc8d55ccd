// SPDX-License-Identifier: Apache-2.0
//
// How operations are cut into slots.
#include <algorithm>
#include <cstring>

#include "transport/staged/lane.h"

namespace hixl_rma {
namespace {

/// Pieces below this share a slot with their neighbours.
constexpr std::size_t kSmallPiece = kSlotBytes / 4;
/// A transfer is cut so that origin and owner copy at the same time, but not below this.
constexpr std::size_t kLeastCut = std::size_t{16} << 10;

std::size_t cut_of(std::size_t left) {
  return std::clamp(left / kSlots / 64 * 64, kLeastCut, kSlotBytes);
}

}  // namespace

void Lane::fill() {
  while (next_ != operations_.end()) {
    if (next_->filled) {
      ++next_;
      continue;
    }
    if (in_flight_ == kSlots) return;
    fill_slot(*next_);
  }
}

void Lane::fill_slot(LaneOperation& operation) {
  const std::size_t i = (oldest_ + in_flight_) % kSlots;
  Use& use = uses_[i];
  use.operation = &operation;
  use.returns.clear();
  std::byte* payload = view_.payload(i);
  SlotRequest request;
  switch (operation.kind) {
    case LaneOperation::Kind::kPut:
    case LaneOperation::Kind::kGet:
      fill_runs(operation, use, payload, request);
      break;
    case LaneOperation::Kind::kAccumulate:
      fill_accumulate(operation, use, payload, request);
      break;
    case LaneOperation::Kind::kSwap:
      fill_swap(operation, use, payload, request);
      break;
    case LaneOperation::Kind::kFlush:
      return;
  }
  ++operation.in_flight;
  ++in_flight_;
  post_slot(i, request);
}

void Lane::fill_runs(LaneOperation& operation, Use& use, std::byte* payload, SlotRequest& request) {
  const bool put = operation.kind == LaneOperation::Kind::kPut;
  const std::span<const Piece> pieces = operation.pieces();
  const Piece& piece = pieces[operation.piece];
  const std::size_t left = piece.nbytes - operation.done;
  request.verb = put ? SlotVerb::kPut : SlotVerb::kGet;
  if (left < kSmallPiece && operation.piece + 1 < pieces.size()) {
    fill_table(operation, use, payload, request);
    return;
  }
  const std::size_t n = std::min(left, cut_of(operation.left));
  request.offset = piece.offset + operation.done;
  request.length = n;
  if (put) {
    std::memcpy(payload, piece.local + operation.done, n);
  } else {
    use.returns.push_back({piece.local + operation.done, 0, n});
  }
  operation.done += n;
  operation.left -= n;
  if (operation.done == piece.nbytes) {
    operation.done = 0;
    ++operation.piece;
  }
  operation.filled = operation.piece == pieces.size();
}

// As many of the next pieces as fit, whole, behind a table that says where they belong.
void Lane::fill_table(LaneOperation& operation, Use& use, std::byte* payload,
                      SlotRequest& request) {
  const bool put = operation.kind == LaneOperation::Kind::kPut;
  const std::span<const Piece> pieces = operation.pieces();
  std::size_t count = 0;
  std::size_t used = 0;
  for (std::size_t i = operation.piece; i < pieces.size(); ++i, ++count) {
    const std::size_t left = pieces[i].nbytes - (count == 0 ? operation.done : 0);
    used += kRunBytes + align_run(left);
    if (used > kSlotBytes) break;
  }
  std::size_t at = count * kRunBytes;
  for (std::size_t i = 0; i < count; ++i) {
    const Piece& piece = pieces[operation.piece++];
    const std::size_t n = piece.nbytes - operation.done;
    std::byte* local = piece.local + operation.done;
    payload_word(payload, 2 * i).store(piece.offset + operation.done, std::memory_order_relaxed);
    payload_word(payload, 2 * i + 1).store(n, std::memory_order_relaxed);
    if (put) {
      std::memcpy(payload + at, local, n);
    } else {
      use.returns.push_back({local, at, n});
    }
    at += align_run(n);
    operation.left -= n;
    operation.done = 0;
  }
  request.runs = static_cast<std::uint32_t>(count);
  operation.filled = operation.piece == pieces.size();
}

void Lane::fill_accumulate(LaneOperation& operation, Use& use, std::byte* payload,
                           SlotRequest& request) {
  const Accumulate& whole = operation.accumulate;
  const std::size_t element = size_of(whole.type);
  const std::size_t n = std::min(whole.count - operation.done, cut_of(operation.left) / element);
  request.verb = SlotVerb::kAccumulate;
  request.type = whole.type;
  request.op = whole.op;
  request.has_operand = whole.operand != nullptr;
  request.wants_result = whole.result != nullptr;
  request.offset = whole.offset + operation.done * element;
  request.length = n;
  if (whole.operand != nullptr) {
    std::memcpy(payload, whole.operand + operation.done * element, n * element);
  }
  if (whole.result != nullptr) {
    use.returns.push_back({whole.result + operation.done * element, 0, n * element});
  }
  operation.done += n;
  operation.left -= n * element;
  operation.filled = operation.done == whole.count;
}

void Lane::fill_swap(LaneOperation& operation, Use& use, std::byte* payload, SlotRequest& request) {
  const ElementSwap& swap = operation.swap;
  const std::size_t element = size_of(swap.type);
  request.verb = SlotVerb::kSwap;
  request.type = swap.type;
  request.offset = swap.offset;
  std::memcpy(payload + kSwapCompare, swap.compare, element);
  std::memcpy(payload + kSwapDesired, swap.desired, element);
  use.returns.push_back({swap.result, kSwapResult, element});
  operation.filled = true;
}

void Lane::post_slot(std::size_t i, const SlotRequest& request) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  SlotHeader& shared = slot(i);
  shared.verb.store(static_cast<std::uint32_t>(request.verb), kRelaxed);
  shared.type.store(static_cast<std::uint32_t>(request.type), kRelaxed);
  shared.op.store(static_cast<std::uint32_t>(request.op), kRelaxed);
  shared.flags.store((request.has_operand ? 1U : 0U) | (request.wants_result ? 2U : 0U), kRelaxed);
  shared.runs.store(request.runs, kRelaxed);
  shared.offset.store(request.offset, kRelaxed);
  shared.length.store(request.length, kRelaxed);
  // release; pairs with the acquire in LaneService::serve_lane()
  shared.state.store(SlotState::kPosted, std::memory_order_release);
  header_->ready[index_ / 64].fetch_or(std::uint64_t{1} << (index_ % 64),
                                       std::memory_order_release);
  ring(header_->doorbell);
}

}  // namespace hixl_rma
