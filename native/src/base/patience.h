// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>

#include "base/cpu.h"
#include "base/deadline.h"
#include "hixl_rma/status.h"

namespace hixl_rma {

/// What bounds the wait for a short lock in shared memory. Whoever holds one lets go of it within
/// microseconds, unless it was killed or stopped in that very moment.
///
/// Holders are named by their rank + 1, as the lock words name them.
/// Thread: any.
class Patience {
 public:
  Patience() = default;
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;
  virtual ~Patience() = default;

  /// When a wait that begins now, and was given no time-out, is to end.
  [[nodiscard]] virtual Deadline limit() const = 0;
  /// Whether the process of the holder has ended: what it held may be taken from it.
  virtual bool ended(std::uint64_t holder) = 0;
  /// Lets others run for a moment; `times` counts the pauses of one wait. Not Ok: give up.
  virtual Status pause(const Deadline& limit, unsigned times) = 0;
};

inline constexpr int kShortSpins = 200;

/// Locks a mutex of this process that may be held through a wait with a Patience: its holder may
/// need what the caller of this has, the interpreter for instance. No time-out: the holder has one,
/// or copies and comes to its end.
inline Status lock_with(Patience* patience, std::unique_lock<std::mutex>& lock) {
  if (patience == nullptr) {
    lock.lock();
    return {};
  }
  if (lock.try_lock()) return {};
  for (unsigned times = 0;; ++times) {
    for (int spin = 0; spin < kShortSpins; ++spin) {
      if (lock.try_lock()) return {};
      cpu_relax();
    }
    if (Status status = patience->pause(Deadline(), times); !status.ok()) return status;
  }
}

}  // namespace hixl_rma
