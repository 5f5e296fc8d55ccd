// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/fork.h"
#include "hixl_rma/transport.h"
#include "memory/host/shared_segment.h"
#include "transport/staged/staging_layout.h"

namespace hixl_rma {

class Lane;

/// The lanes of a transport that have something outstanding.
/// Thread: any.
class BusyLanes {
 public:
  void add(std::shared_ptr<Lane> lane);
  void remove(const Lane* lane);
  [[nodiscard]] bool any() const { return count_.load(std::memory_order_acquire) != 0; }
  std::size_t progress();

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<Lane>> lanes_;
  std::atomic<std::size_t> count_{0};
};

/// Something posted to a lane, and how far it came.
struct LaneOperation {
  enum class Kind : std::uint8_t { kPut, kGet, kAccumulate, kSwap, kFlush };

  Kind kind = Kind::kPut;
  FlushScope scope = FlushScope::kRemote;
  Completion* completion = nullptr;
  const void* poster = nullptr;  ///< whose close() cancels it
  Piece single;                  ///< of a put or get of one piece
  std::vector<Piece> list;       ///< of one of several
  Accumulate accumulate{};
  ElementSwap swap{};

  std::size_t piece = 0;   ///< the piece that is next
  std::size_t done = 0;    ///< bytes of it, or elements of an accumulate, that are in slots
  std::size_t left = 0;    ///< bytes that are not in slots yet
  unsigned in_flight = 0;  ///< slots with parts of it
  bool filled = false;     ///< everything is in slots, or nothing more will be
  Status outcome;

  [[nodiscard]] std::span<const Piece> pieces() const {
    return list.empty() ? std::span(&single, 1) : std::span(list);
  }
  /// The caller's memory may not be touched yet.
  [[nodiscard]] bool uses_memory() const;
};

/// The origin's side of one lane: a queue of operations that are cut into slots, in order. Whoever
/// posts or makes progress puts in what fits and takes out what was answered.
/// Thread: any. Completions fire from progress() and close() alone.
class Lane : public std::enable_shared_from_this<Lane> {
 public:
  /// Claims a lane of the staging buffer behind a descriptor, or of one that is mapped already.
  /// Errors: ResourceExhausted when all lanes are taken; ProtocolMismatch.
  static Result<std::shared_ptr<Lane>> claim(int fd, std::shared_ptr<BusyLanes> busy);
  static Result<std::shared_ptr<Lane>> claim(const std::shared_ptr<SharedSegment>& whole,
                                             std::shared_ptr<BusyLanes> busy);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane() = default;

  /// The answer of a post. Errors: Stale when the owner has withdrawn the memory.
  PostResult post(LaneOperation operation);
  /// Done when nothing is outstanding that the scope asks for.
  PostResult flush(FlushScope scope, Completion* completion, const void* poster);
  /// Whether a flush would have to wait.
  [[nodiscard]] bool holds_up(FlushScope scope) const;
  /// How many slots were answered and operations completed.
  std::size_t progress();
  /// Cancels what the poster has outstanding; null cancels all. What the owner is just serving is
  /// waited for, for a moment: afterwards it takes nothing of it up.
  void close(const void* poster, const Status& reason);
  /// Gives the lane back, once nothing of it is in flight.
  void leave();

 private:
  /// What lies in a slot: whose it is, and where its answer goes.
  struct Use {
    LaneOperation* operation = nullptr;
    std::vector<Piece> returns;  // offset: in the payload
  };
  using Operations = std::list<LaneOperation>;

  Lane(std::shared_ptr<SharedSegment> first, std::shared_ptr<SharedSegment> second,
       StagingHeader* header, LaneView view, std::size_t index, std::shared_ptr<BusyLanes> busy);

  [[nodiscard]] SlotHeader& slot(std::size_t i) const { return view_.control().slots[i]; }
  [[nodiscard]] bool closed_by_owner() const;
  [[nodiscard]] PostResult refuse() const;

  // All with the mutex held.
  void fill();
  void fill_slot(LaneOperation& operation);
  void fill_runs(LaneOperation& operation, Use& use, std::byte* payload, SlotRequest& request);
  void fill_table(LaneOperation& operation, Use& use, std::byte* payload, SlotRequest& request);
  void fill_accumulate(LaneOperation& operation, Use& use, std::byte* payload,
                       SlotRequest& request);
  void fill_swap(LaneOperation& operation, Use& use, std::byte* payload, SlotRequest& request);
  void post_slot(std::size_t i, const SlotRequest& request);
  std::size_t reap();
  void take_answer(std::size_t i);
  void fail_all();
  std::size_t fire();
  std::size_t fire_local_flushes();
  void recycle(Operations::iterator operation);
  void withdraw_slots(const void* poster);
  void set_busy(bool busy);

  std::shared_ptr<SharedSegment> first_;  // the mappings; the second may be the first
  std::shared_ptr<SharedSegment> second_;
  StagingHeader* header_;
  LaneView view_;
  const std::size_t index_;
  std::shared_ptr<BusyLanes> busy_lanes_;
  const int fork_generation_ = fork_generation();

  mutable std::mutex mutex_;
  Operations operations_;      // outstanding, in order
  Operations spare_;           // to be used again
  Operations::iterator next_;  // the first that is not filled
  std::array<Use, kSlots> uses_;
  std::size_t oldest_ = 0;         // slot that will be answered next
  std::size_t in_flight_ = 0;      // slots from there on that are posted
  std::size_t local_flushes_ = 0;  // local flushes outstanding
  bool busy_ = false;
  bool left_ = false;
};

}  // namespace hixl_rma
