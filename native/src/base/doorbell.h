// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "base/deadline.h"

namespace hixl_rma {

/// Wakes sleepers of another process: lies in control memory, one for each rank of a window.
///
/// NOTE [no wake-up is lost]
/// The sleeper announces itself in `sleepers`, issues a full fence and only then looks at the
/// condition once more; the ringer stores the condition, issues a full fence and only then loads
/// `sleepers`. Of the two loads at least one sees the other side's store. A release or acquire
/// alone allows both to miss (store buffers), and then the sleeper sleeps to its next time-out.
/// `sequence` closes the last gap: it is read before the condition is looked at, so a ring between
/// that look and the futex call makes the kernel refuse to sleep.
struct alignas(64) Doorbell {
  std::atomic<std::uint32_t> sequence;
  std::atomic<std::uint32_t> sleepers;
};

enum class SleepEnd : std::uint8_t { kWoken, kTimedOut, kSignal };

/// Called after the condition was stored. Costs one full fence and one load when nobody sleeps.
inline void ring(Doorbell& doorbell);

/// Sleeps while the sequence is still `seen`, at most `span`.
/// The caller is announced: see Sleeper.
SleepEnd sleep_on(Doorbell& doorbell, std::uint32_t seen, Nanoseconds span);

/// Wakes everybody who sleeps on the doorbell.
void wake_all(Doorbell& doorbell);

inline void ring(Doorbell& doorbell) {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // NOTE [no wake-up is lost]
  if (doorbell.sleepers.load(std::memory_order_relaxed) != 0) wake_all(doorbell);
}

/// Announces a sleeper for the lifetime of the object.
class Sleeper {
 public:
  explicit Sleeper(Doorbell& doorbell)
      : doorbell_(doorbell), seen_(doorbell.sequence.load(std::memory_order_acquire)) {
    doorbell_.sleepers.fetch_add(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // NOTE [no wake-up is lost]
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  ~Sleeper() { doorbell_.sleepers.fetch_sub(1, std::memory_order_relaxed); }

  SleepEnd sleep(Nanoseconds span) { return sleep_on(doorbell_, seen_, span); }

 private:
  Doorbell& doorbell_;
  std::uint32_t seen_;
};

}  // namespace hixl_rma
