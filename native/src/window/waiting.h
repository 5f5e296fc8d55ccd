// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/cpu.h"
#include "base/deadline.h"
#include "base/doorbell.h"
#include "hixl_rma/engine.h"
#include "window/peer_watch.h"

namespace hixl_rma {

/// How this process waits.
struct WaitPolicy {
  /// How long to spin before sleeping. Spinning pays only while every rank has a core.
  Nanoseconds spin{0};
  /// Asked at least every 100 ms and after every signal, on the waiting thread; true ends the wait.
  bool (*interrupted)() = nullptr;
  /// Asked at least every 100 ms: notices peers that died.
  PeerWatch* peers = nullptr;
};

/// Looks of a spinning waiter between two of the clock.
inline constexpr int kLooksPerClock = 16;
inline constexpr Nanoseconds kLongestSleep = std::chrono::milliseconds(100);
/// While a transport has work outstanding a waiter is also the one who makes it move.
inline constexpr Nanoseconds kLongestSleepInProgress = std::chrono::microseconds(100);

enum class WaitEnd : std::uint8_t { kReady, kTimedOut, kInterrupted };

/// Spins, then sleeps on the doorbell, until ready() holds.
template <class Ready>
WaitEnd wait_on(Doorbell& doorbell, Engine& engine, const WaitPolicy& policy,
                const Deadline& deadline, Ready ready) {
  if (ready()) return WaitEnd::kReady;
  const auto spin_until = Clock::now() + policy.spin;
  do {
    for (int look = 0; look < kLooksPerClock; ++look) {
      cpu_relax();
      if (ready()) return WaitEnd::kReady;
    }
    engine.progress();
  } while (Clock::now() < spin_until && !deadline.expired());
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
    engine.progress();
    if (policy.peers != nullptr) policy.peers->look();
    if (ready()) return WaitEnd::kReady;
    if (end != SleepEnd::kWoken && policy.interrupted != nullptr && policy.interrupted()) {
      return WaitEnd::kInterrupted;
    }
  }
}

}  // namespace hixl_rma
