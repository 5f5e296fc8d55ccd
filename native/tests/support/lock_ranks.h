// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "hixl_rma/engine.h"
#include "support/control_memory.h"
#include "support/impatience.h"
#include "support/patience.h"
#include "window/window_lock.h"

namespace hixl_rma::testing {

/// Reaches mapped words as ever, until its rank dies: from then on it does nothing.
class MortalEndpoint final : public Endpoint {
 public:
  /// The rank dies after so many more operations.
  void die_after(int operations) { left_ = operations; }
  [[nodiscard]] bool dead() const { return left_ < 0; }

  PostResult notify(RemoteRegion& region, std::span<const RecordWrite> records,
                    Completion* completion) override {
    return spend() ? verbs_.notify(region, records, completion) : died();
  }
  PostResult fetch_add(RemoteRegion& region, std::uint64_t offset, std::uint64_t value,
                       std::uint64_t* previous, Completion* completion) override {
    return spend() ? verbs_.fetch_add(region, offset, value, previous, completion) : died();
  }
  PostResult compare_swap(RemoteRegion& region, std::uint64_t offset, std::uint64_t expected,
                          std::uint64_t desired, std::uint64_t* previous,
                          Completion* completion) override {
    return spend() ? verbs_.compare_swap(region, offset, expected, desired, previous, completion)
                   : died();
  }
  PostResult put(RemoteRegion&, const Piece&, Completion*) override { return died(); }
  PostResult get(RemoteRegion&, const Piece&, Completion*) override { return died(); }
  PostResult put_v(RemoteRegion&, std::span<const Piece>, Completion*) override { return died(); }
  PostResult get_v(RemoteRegion&, std::span<const Piece>, Completion*) override { return died(); }
  PostResult flush(FlushScope, Completion*) override { return died(); }
  void close(const Status&) override {}

 private:
  bool spend() {
    if (left_ == kForever) return true;
    --left_;
    return left_ >= 0;
  }
  static PostResult died() { return Status::error(StatusCode::kInternal, "this rank is dead"); }

  static constexpr int kForever = 1 << 30;
  MappedEndpoint verbs_;
  int left_ = kForever;
};

/// Control memory and lock of several ranks, all reached by load and store.
class LockRanks {
 public:
  explicit LockRanks(std::size_t size) : endpoints_(size), links_(size) {
    EngineOptions options;
    options.registry = transport_registry().first(1);
    engine_ = Engine::create(options).take();
    for (std::size_t rank = 0; rank < size; ++rank) {
      memory_.emplace_back(size, 0);
      regions_.emplace_back(memory_.back().data(), memory_.back().layout().nbytes(), nullptr);
      regions_.back().bind({.doorbell = &memory_.back().view().header().doorbell});
    }
    for (std::size_t rank = 0; rank < size; ++rank) {
      for (MappedRegion& region : regions_) {
        links_[rank].emplace_back(*engine_, endpoints_[rank], region, true);
      }
      locks_.emplace_back(links_[rank], memory_[rank].view(), memory_[rank].layout(),
                          static_cast<int>(rank), mourner_);
    }
  }

  Status acquire(std::size_t rank, std::size_t target, bool exclusive,
                 const Deadline& deadline = soon()) {
    return acquire(rank, target, exclusive, deadline,
                   [&](const std::function<bool()>& ready) { return wait(ready, deadline); });
  }
  Status acquire(std::size_t rank, std::size_t target, bool exclusive, const Deadline& deadline,
                 const WindowLock::Wait& wait) {
    return locks_[rank].acquire(target, exclusive, deadline, wait);
  }
  Status release(std::size_t rank, std::size_t target, bool exclusive) {
    return locks_[rank].release(target, exclusive);
  }
  WindowLock& lock(std::size_t rank) { return locks_[rank]; }
  MortalEndpoint& endpoint(std::size_t rank) { return endpoints_[rank]; }
  ControlHeader& header(std::size_t target) { return memory_[target].view().header(); }
  /// From now on the others know that the rank is dead.
  void bury(std::size_t rank) { mourner_.bury(rank + 1); }
  [[nodiscard]] bool buried(std::size_t rank) { return mourner_.ended(rank + 1); }

  /// Holders and waiters.
  [[nodiscard]] std::uint64_t state(std::size_t target) const {
    return memory_[target].view().header().lock_state.load() & 0xffff'ffff'ffffU;
  }
  [[nodiscard]] std::uint64_t waiters(std::size_t target) const { return state(target) >> 32; }
  [[nodiscard]] std::uint64_t shared_word(std::size_t target, std::size_t rank) const {
    return memory_[target].view().peer(rank).lock_shared.load();
  }

 private:
  static Status wait(const std::function<bool()>& ready, const Deadline& deadline) {
    while (!ready()) {
      if (deadline.expired()) return Status::error(StatusCode::kTimeout, "no lock in time");
      std::this_thread::yield();
    }
    return {};
  }

  std::shared_ptr<Engine> engine_;
  Mourner mourner_;
  std::deque<MortalEndpoint> endpoints_;
  std::deque<ControlMemory> memory_;
  std::deque<MappedRegion> regions_;
  std::deque<std::vector<ControlLink>> links_;
  std::deque<WindowLock> locks_;
};

}  // namespace hixl_rma::testing
