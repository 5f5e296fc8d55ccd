// SPDX-License-Identifier: Apache-2.0
//
// The staging buffer of a region: what an origin and the owner's service thread share.
//
//   header     doorbell, closed word, ready bits, one claim word a lane
//   lane 0..   control (cursor, slot headers), then the payload of each slot
//
// A lane belongs to one origin at a time. It is a ring of slots that origin and owner go round in
// the same order. A slot is empty, posted (by the origin), being served (by the owner), answered
// (by the owner), empty again (by the origin). Pages come when they are first touched.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/doorbell.h"
#include "hixl_rma/reduce.h"

namespace hixl_rma {

inline constexpr std::size_t kLanes = 1024;
inline constexpr std::size_t kSlots = 4;
inline constexpr std::size_t kSlotBytes = std::size_t{128} << 10;
/// Parts begin at multiples of this, so that an origin can map its lane alone whatever the page
/// size.
inline constexpr std::size_t kLargestPage = std::size_t{64} << 10;

enum class SlotState : std::uint32_t { kEmpty, kPosted, kServing, kAnswered };
enum class SlotVerb : std::uint32_t { kPut, kGet, kAccumulate, kSwap };
enum class SlotAnswer : std::uint32_t { kDone, kOutOfRange, kReadOnly, kMalformed };

/// What a slot asks for, as one side sees it: read once, then looked at.
struct SlotRequest {
  SlotVerb verb = SlotVerb::kPut;
  DataType type = DataType::kUint8;
  ReduceOp op = ReduceOp::kNoOp;
  bool has_operand = false;
  bool wants_result = false;
  /// 0: one run, named here, its bytes at the payload's begin. Else a table of runs lies there.
  std::uint32_t runs = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;  ///< bytes; elements of an accumulate
};

/// The same in shared memory. The other side may change any word at any time.
struct alignas(64) SlotHeader {
  std::atomic<SlotState> state;
  std::atomic<SlotAnswer> answer;
  std::atomic<std::uint32_t> verb;
  std::atomic<std::uint32_t> type;
  std::atomic<std::uint32_t> op;
  std::atomic<std::uint32_t> flags;
  std::atomic<std::uint32_t> runs;
  std::atomic<std::uint64_t> offset;
  std::atomic<std::uint64_t> length;
};
static_assert(sizeof(SlotHeader) == 64);

struct LaneControl {
  /// The slot that the owner serves next: where the next origin of the lane begins.
  alignas(64) std::atomic<std::uint32_t> served;
  std::array<SlotHeader, kSlots> slots;
};
static_assert(sizeof(LaneControl) <= 4096);

struct StagingHeader {
  Doorbell doorbell;  ///< the service thread sleeps here
  /// Set when the owner has ended its service: nothing more is answered.
  alignas(64) std::atomic<std::uint32_t> closed;
  alignas(64) std::array<std::atomic<std::uint64_t>, kLanes / 64> ready;  ///< a bit a lane
  alignas(64) std::array<std::atomic<std::uint32_t>, kLanes> claimed;     ///< 1 = an origin's
};
static_assert(sizeof(StagingHeader) <= kLargestPage);

inline constexpr std::size_t kLaneBytes = kLargestPage + kSlots * kSlotBytes;
inline constexpr std::size_t kStagingBytes = kLargestPage + kLanes * kLaneBytes;

constexpr std::size_t lane_offset(std::size_t lane) { return kLargestPage + lane * kLaneBytes; }

/// A lane in a mapping of this process.
class LaneView {
 public:
  LaneView() = default;
  explicit LaneView(std::byte* base) : base_(base) {}
  [[nodiscard]] LaneControl& control() const { return *reinterpret_cast<LaneControl*>(base_); }
  [[nodiscard]] std::byte* payload(std::size_t slot) const {
    return base_ + kLargestPage + slot * kSlotBytes;
  }

 private:
  std::byte* base_ = nullptr;
};

/// Bytes of one entry of a table of runs: offset and length in the region.
inline constexpr std::size_t kRunBytes = 16;

/// Runs follow each other at multiples of 8, so that an aligned word is copied whole.
constexpr std::size_t align_run(std::size_t nbytes) { return (nbytes + 7) / 8 * 8; }

/// Word i of a payload, read or written once: it is shared.
inline std::atomic_ref<std::uint64_t> payload_word(std::byte* payload, std::size_t i) {
  return std::atomic_ref<std::uint64_t>(reinterpret_cast<std::uint64_t*>(payload)[i]);
}

/// Where the operands of a compare-and-swap lie in the payload.
inline constexpr std::size_t kSwapCompare = 0;
inline constexpr std::size_t kSwapDesired = 16;
inline constexpr std::size_t kSwapResult = 32;

}  // namespace hixl_rma
