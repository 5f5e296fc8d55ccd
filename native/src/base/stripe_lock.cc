// SPDX-License-Identifier: Apache-2.0
#include "base/stripe_lock.h"

#include <sched.h>

#include <chrono>
#include <thread>

#include "base/cpu.h"

namespace hixl_rma {

void lock_stripe_slow(StripeLock& stripe, std::uint32_t holder) {
  constexpr int kSpins = 200;
  constexpr int kYields = 1000;
  for (int attempt = 0;; ++attempt) {
    if (attempt < kSpins) {
      cpu_relax();
    } else if (attempt < kSpins + kYields) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    std::uint32_t free = 0;
    if (stripe.holder.load(std::memory_order_relaxed) == 0 &&
        stripe.holder.compare_exchange_weak(free, holder, std::memory_order_acquire,
                                            std::memory_order_relaxed)) {
      return;
    }
  }
}

bool try_lock_stripe(StripeLock& stripe, std::uint32_t holder) {
  constexpr int kSpins = 200;  // longer than anybody holds one without losing the core
  for (int attempt = 0; attempt < kSpins; ++attempt) {
    std::uint32_t free = 0;
    if (stripe.holder.load(std::memory_order_relaxed) == 0 &&
        stripe.holder.compare_exchange_strong(free, holder, std::memory_order_acquire,
                                              std::memory_order_relaxed)) {
      return true;
    }
    cpu_relax();
  }
  return false;
}

}  // namespace hixl_rma
