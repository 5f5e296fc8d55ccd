// SPDX-License-Identifier: Apache-2.0
#include "base/stripe_lock.h"

#include <sched.h>

#include <chrono>
#include <thread>

#include "base/cpu.h"

namespace hixl_rma {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

bool take(StripeLock& stripe, std::uint32_t from, std::uint32_t holder) {
  return stripe.holder.load(kRelaxed) == from &&
         stripe.holder.compare_exchange_strong(from, holder, std::memory_order_acquire, kRelaxed);
}

// Nobody else comes by the word of a dead holder: the ranks of a window are never given out again.
bool take_over(StripeLock& stripe, std::uint32_t holder, Patience* patience) {
  const std::uint32_t seen = stripe.holder.load(kRelaxed);
  return patience != nullptr && seen != 0 && patience->ended(seen) && take(stripe, seen, holder);
}

}  // namespace

Status lock_stripe_slow(StripeLock& stripe, std::uint32_t holder, Patience* patience) {
  constexpr int kYields = 1000;
  for (int attempt = 0; attempt < kShortSpins + kYields; ++attempt) {
    if (take(stripe, 0, holder)) return {};
    if (attempt < kShortSpins) {
      cpu_relax();
    } else {
      sched_yield();
    }
  }
  const Deadline limit = patience == nullptr ? Deadline() : patience->limit();
  for (unsigned times = 0; !take(stripe, 0, holder); ++times) {
    if (take_over(stripe, holder, patience)) return {};
    if (patience == nullptr) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    } else if (Status status = patience->pause(limit, times); !status.ok()) {
      return status;
    }
  }
  return {};
}

bool try_lock_stripe(StripeLock& stripe, std::uint32_t holder, Patience* patience) {
  // Longer than anybody holds one without losing the core.
  for (int attempt = 0; attempt < kShortSpins; ++attempt) {
    if (take(stripe, 0, holder)) return true;
    cpu_relax();
  }
  return take_over(stripe, holder, patience);
}

}  // namespace hixl_rma
