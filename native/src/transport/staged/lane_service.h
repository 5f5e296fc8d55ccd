// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/own_thread.h"
#include "base/random.h"
#include "memory/host/shared_segment.h"
#include "transport/common/mapped_endpoint.h"
#include "transport/staged/staging_layout.h"

namespace hixl_rma {

/// The owner's side of a staging buffer: a thread that does to the region what origins ask for in
/// their lanes, fairly between lanes and in ring order within one.
///
/// Shared memory is not trusted: every request is read once and checked against the region, so that
/// no slot, whatever it says, makes the thread touch memory beside it.
/// Thread: start() and stop() from any thread; bind() before the first start().
class LaneService {
 public:
  /// Errors: ResourceExhausted.
  static Result<std::shared_ptr<LaneService>> create(const MemoryView& view, Access access);
  LaneService(const LaneService&) = delete;
  LaneService& operator=(const LaneService&) = delete;
  ~LaneService() { stop(); }

  void bind(const RegionSync& sync) {
    std::lock_guard lock(mutex_);  // whoever starts the thread knows of it
    region_.bind(sync);
  }
  /// Starts the thread unless it runs. Errors: ResourceExhausted; Closed after stop().
  Status start();
  [[nodiscard]] bool started() const;
  /// Ends the thread. After this no byte of the region is touched, and origins find the lane
  /// closed.
  void stop();
  [[nodiscard]] const std::shared_ptr<SharedSegment>& segment() const { return segment_; }

 private:
  enum class Turn : std::uint8_t { kNothing, kServed, kStalled };
  /// A request that waits for a stripe lock: others are served meanwhile.
  struct Stalled {
    SlotRequest request;
    std::size_t done = 0;
  };
  using Bits = std::array<std::uint64_t, kLanes / 64>;

  LaneService(const MemoryView& view, Access access, std::shared_ptr<SharedSegment> segment)
      : segment_(std::move(segment)), access_(access), region_(view.addr, view.nbytes, nullptr) {}

  [[nodiscard]] StagingHeader& header() const {
    return *reinterpret_cast<StagingHeader*>(segment_->data());
  }
  void serve();
  void rest(bool stalled);
  bool collect(Bits& pending);
  [[nodiscard]] bool anything_ready() const;
  std::size_t serve_round(Bits& pending);
  Turn serve_lane(std::size_t lane);

  /// False when a stripe lock is taken: `done` says how far it came.
  bool execute(const SlotRequest& request, std::byte* payload, std::size_t* done,
               SlotAnswer* answer);
  SlotAnswer move(const SlotRequest& request, std::byte* payload);
  SlotAnswer move_run(SlotVerb verb, std::byte* bytes, std::uint64_t offset, std::uint64_t nbytes);
  bool accumulate(const SlotRequest& request, std::byte* payload, std::size_t* done,
                  SlotAnswer* answer);
  bool swap(const SlotRequest& request, std::byte* payload, SlotAnswer* answer);

  std::shared_ptr<SharedSegment> segment_;
  const Access access_;
  MappedRegion region_;
  MappedEndpoint verbs_;
  mutable std::mutex mutex_;  // of the thread's begin and end
  OwnThread thread_;
  std::atomic<bool> stopping_{false};
  std::vector<std::uint8_t> cursors_;       // by lane: the slot that is next
  std::map<std::size_t, Stalled> stalled_;  // by lane
};

/// Services of this process by the token of their region. An origin in the owner's own process uses
/// the owner's mapping: both sides then name one word by one address, and a thread sanitizer sees
/// what orders them.
void publish_service(const Token& token, const std::shared_ptr<LaneService>& service);
void forget_service(const Token& token);
std::shared_ptr<LaneService> find_service(const Token& token);

}  // namespace hixl_rma
