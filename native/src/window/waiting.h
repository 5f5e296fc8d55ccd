// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/cpu.h"
#include "base/deadline.h"
#include "base/doorbell.h"
#include "hixl_rma/engine.h"
#include "window/peer_watch.h"
#include "window/statistics.h"

namespace hixl_rma {

/// How this process waits.
struct WaitPolicy {
  /// How long to look often before sleeping. That pays only while every rank has a core.
  Nanoseconds spin{0};
  /// Asked at least every 100 ms and after every signal, on the waiting thread; true ends the wait.
  bool (*interrupted)() = nullptr;
  /// Asked at least every 100 ms: notices peers that died.
  PeerWatch* peers = nullptr;
  /// A lock of the caller's that is dearer to give away and take back than a short wait is (the
  /// GIL): the wait keeps it for a glance. give_lock returns null where the caller holds none.
  void* (*give_lock)() = nullptr;
  void (*take_lock)(void*) = nullptr;
  /// Bounds waits that were given no time-out [s]; negative: nothing does.
  double seconds = -1;
  /// Sleeps so long and lets other threads of the program run meanwhile, whatever locks of the
  /// language the caller has; null: just sleeps.
  void (*pause)(Nanoseconds span) = nullptr;
};

/// The caller's lock is given away for the lifetime of the object.
class WithoutCallersLock {
 public:
  explicit WithoutCallersLock(const WaitPolicy& policy)
      : policy_(policy), state_(policy.give_lock == nullptr ? nullptr : policy.give_lock()) {}
  WithoutCallersLock(const WithoutCallersLock&) = delete;
  WithoutCallersLock& operator=(const WithoutCallersLock&) = delete;
  ~WithoutCallersLock() {
    if (state_ != nullptr) policy_.take_lock(state_);
  }

 private:
  const WaitPolicy& policy_;
  void* state_;
};

/// Looks of a spinning waiter between two of the clock.
inline constexpr int kLooksPerClock = 16;
/// How long a waiter gives its core away, at least, before it sleeps.
inline constexpr Nanoseconds kYield = std::chrono::microseconds(600);
/// Most time a waiter keeps the caller's lock; a thread that wants it waits no longer than that.
inline constexpr Nanoseconds kGlance = std::chrono::microseconds(5);
inline constexpr Nanoseconds kLongestSleep = std::chrono::milliseconds(100);
/// While a transport has work outstanding a waiter is also the one who makes it move.
inline constexpr Nanoseconds kLongestSleepInProgress = std::chrono::microseconds(100);

/// While a transport has work outstanding its answer is near: a waiter gives its core away for so
/// long since something last moved, before it sleeps.
inline constexpr Nanoseconds kYieldInProgress = std::chrono::microseconds(200);

enum class WaitEnd : std::uint8_t { kReady, kTimedOut, kInterrupted };

/// Looks again and again, as long as that pays, and gives the core away in between: who is to make
/// ready() hold may need it. A turn of all who want the core is through sooner than a sleeper is
/// woken. True when ready() held.
template <class Ready>
bool look_for(Engine& engine, const WaitPolicy& policy, const Deadline& deadline, Ready& ready) {
  const int looks = policy.spin > Nanoseconds(0) ? kLooksPerClock : 1;
  const Nanoseconds span = std::max(policy.spin, kYield);
  const auto begin = Clock::now();
  auto moved_at = begin;
  for (;;) {
    sched_yield();
    for (int look = 0; look < looks; ++look) {
      if (ready()) return true;
      cpu_relax();
    }
    const bool moved = engine.progress() != 0;
    const auto now = Clock::now();
    if (deadline.expired() || now - begin >= kLongestSleep) return false;  // signals are due
    if (moved) moved_at = now;
    if (now - begin < span) continue;
    if (!engine.needs_progress() || now - moved_at >= kYieldInProgress) return false;
  }
}

/// Looks for so short a time that the caller's lock may be kept; true when ready() held.
template <class Ready>
bool glance_for(const WaitPolicy& policy, Ready& ready) {
  if (ready()) return true;
  const Nanoseconds span = std::min(policy.spin, kGlance);
  if (span <= Nanoseconds(0)) return false;
  const auto until = Clock::now() + span;
  do {
    for (int look = 0; look < kLooksPerClock; ++look) {
      cpu_relax();
      if (ready()) return true;
    }
  } while (Clock::now() < until);
  return false;
}

/// Spins, then sleeps on the doorbell, until ready() holds. The timer, where there is one, is begun
/// when a glance was in vain.
template <class Ready>
WaitEnd wait_on(Doorbell& doorbell, Engine& engine, const WaitPolicy& policy,
                const Deadline& deadline, Ready ready, WaitTimer* timer = nullptr) {
  if (glance_for(policy, ready)) return WaitEnd::kReady;
  if (timer != nullptr) timer->begin();
  const WithoutCallersLock without(policy);
  if (look_for(engine, policy, deadline, ready)) return WaitEnd::kReady;
  for (;;) {
    SleepEnd end = SleepEnd::kTimedOut;
    {
      Sleeper sleeper(doorbell);
      if (ready()) return WaitEnd::kReady;
      if (deadline.expired()) return WaitEnd::kTimedOut;
      const bool busy = engine.needs_progress();
      // Another thread may have made the last progress between the look and the question.
      if (!busy && ready()) return WaitEnd::kReady;
      end = sleeper.sleep(deadline.remaining(busy ? kLongestSleepInProgress : kLongestSleep));
    }
    const bool moved = engine.progress() != 0;
    if (policy.peers != nullptr) policy.peers->look();
    if (ready()) return WaitEnd::kReady;
    if (end != SleepEnd::kWoken && policy.interrupted != nullptr && policy.interrupted()) {
      return WaitEnd::kInterrupted;
    }
    if (moved && look_for(engine, policy, deadline, ready)) return WaitEnd::kReady;
  }
}

}  // namespace hixl_rma
