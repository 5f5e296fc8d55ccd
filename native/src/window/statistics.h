// SPDX-License-Identifier: Apache-2.0
//
// What a window counts, always: cheap enough that nobody has to switch it on.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/deadline.h"

namespace hixl_rma {

/// Operations of one kind to one target. Read by whoever asks, while they are counted.
struct OperationCounts {
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;
  std::uint64_t nanoseconds = 0;  ///< in the calls and in the engine's thread
};

/// NOTE [what counting costs]
/// A count is a load, an addition and a store of a line that the operation has at hand: threads
/// that issue to one target at the same moment may lose one of two, which no reader of a rate
/// notices, while a locked addition would cost as much as a small put. Reading the clock twice
/// would cost a quarter of one; so of operations below kTimedBytes one in kSample is timed and
/// stands for all.
class OperationCounter {
 public:
  /// Counts one operation and returns whether, and how often, its time counts.
  std::uint64_t count(std::uint64_t nbytes) {
    const std::uint64_t calls = calls_.load(std::memory_order_relaxed);
    calls_.store(calls + 1, std::memory_order_relaxed);
    bytes_.store(bytes_.load(std::memory_order_relaxed) + nbytes, std::memory_order_relaxed);
    if (nbytes >= kTimedBytes) return 1;
    return calls % kSample == 0 ? kSample : 0;
  }
  void spent(std::uint64_t nanoseconds) {
    nanoseconds_.fetch_add(nanoseconds, std::memory_order_relaxed);
  }
  [[nodiscard]] OperationCounts counts() const {
    return {calls_.load(std::memory_order_relaxed), bytes_.load(std::memory_order_relaxed),
            nanoseconds_.load(std::memory_order_relaxed)};
  }

 private:
  static constexpr std::uint64_t kTimedBytes = 4096;
  static constexpr std::uint64_t kSample = 64;

  std::atomic<std::uint64_t> calls_{0};
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> nanoseconds_{0};
};

/// What a thread waited for.
enum class WaitKind : std::uint8_t {
  kFence,
  kStart,
  kExposure,
  kLock,
  kFlush,
  kRequest,
  kNotification,
  kFree
};
inline constexpr std::size_t kWaitKinds = 8;
/// By WaitKind: the method that waits.
inline constexpr std::array<std::string_view, kWaitKinds> kWaitNames = {
    "fence", "start", "wait", "lock", "flush", "request", "notification", "free"};

/// Waits that took longer than a glance.
struct WaitCounts {
  std::uint64_t waits = 0;
  std::uint64_t nanoseconds = 0;
};

class WaitCounter {
 public:
  void waited(std::uint64_t nanoseconds) {
    waits_.fetch_add(1, std::memory_order_relaxed);
    nanoseconds_.fetch_add(nanoseconds, std::memory_order_relaxed);
  }
  [[nodiscard]] WaitCounts counts() const {
    return {waits_.load(std::memory_order_relaxed), nanoseconds_.load(std::memory_order_relaxed)};
  }

 private:
  std::atomic<std::uint64_t> waits_{0};
  std::atomic<std::uint64_t> nanoseconds_{0};
};

/// Times one wait from begin() to the end of the scope; without begin() nothing is counted.
class WaitTimer {
 public:
  /// `peer` is null where no one rank is waited for.
  WaitTimer(WaitCounter& kind, WaitCounter* peer) : kind_(kind), peer_(peer) {}
  WaitTimer(const WaitTimer&) = delete;
  WaitTimer& operator=(const WaitTimer&) = delete;
  ~WaitTimer() {
    if (begin_ == Clock::time_point{}) return;
    const std::uint64_t span = nanoseconds_since(begin_);
    kind_.waited(span);
    if (peer_ != nullptr) peer_->waited(span);
  }
  void begin() { begin_ = Clock::now(); }

 private:
  WaitCounter& kind_;
  WaitCounter* peer_;
  Clock::time_point begin_{};
};

/// Counts one operation, and its time until the end of the scope.
class OperationTimer {
 public:
  OperationTimer(OperationCounter& counter, std::uint64_t nbytes)
      : counter_(counter), weight_(counter.count(nbytes)) {
    if (weight_ != 0) [[unlikely]]
      begin_ = Clock::now();
  }
  OperationTimer(const OperationTimer&) = delete;
  OperationTimer& operator=(const OperationTimer&) = delete;
  ~OperationTimer() {
    if (weight_ == 0) [[likely]]
      return;
    counter_.spent(weight_ * nanoseconds_since(begin_));
  }

 private:
  OperationCounter& counter_;
  std::uint64_t weight_;
  Clock::time_point begin_{};
};

}  // namespace hixl_rma
