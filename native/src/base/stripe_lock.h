// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/patience.h"
#include "hixl_rma/status.h"

namespace hixl_rma {

/// One lock of a window's table, in control memory. Whoever executes an operation of the accumulate
/// family holds the locks of the stripes it touches, a few at a time, so that owner, shm origin,
/// cma origin and progress thread are atomic against each other. The word names its holder (0 =
/// free), so that whoever needs the lock of a dead one takes it over. What the dead one was doing
/// under it is half done: bytes of unfinished operations are undefined.
struct alignas(64) StripeLock {
  std::atomic<std::uint32_t> holder;
};

inline constexpr std::uint64_t kStripeBytes = 4096;
inline constexpr std::size_t kStripeCount = 128;
/// What is held at most at once: as much as combines in a few microseconds. A locked instruction
/// waits for all stores before it, and over cma each holding costs two system calls.
inline constexpr std::uint64_t kGroupBytes = 16 * kStripeBytes;
static_assert(kStripeBytes * kStripeCount % kGroupBytes == 0, "a group does not wrap around");

constexpr std::size_t stripe_of(std::uint64_t offset) {
  return static_cast<std::size_t>(offset / kStripeBytes) % kStripeCount;
}

/// Spins, then yields, then pauses: the holder may have lost its core. Errors: of the patience.
Status lock_stripe_slow(StripeLock& stripe, std::uint32_t holder, Patience* patience);

inline Status lock_stripe(StripeLock& stripe, std::uint32_t holder, Patience* patience = nullptr) {
  std::uint32_t free = 0;
  if (!stripe.holder.compare_exchange_strong(free, holder, std::memory_order_acquire,
                                             std::memory_order_relaxed)) [[unlikely]] {
    return lock_stripe_slow(stripe, holder, patience);
  }
  return {};
}

inline void unlock_stripe(StripeLock& stripe) {
  stripe.holder.store(0, std::memory_order_release);  // pairs with the acquire in lock_stripe
}

/// Spins for a moment and gives up: for threads that have others to serve meanwhile.
bool try_lock_stripe(StripeLock& stripe, std::uint32_t holder, Patience* patience = nullptr);

/// A lock table, and who takes locks of it with how much patience (null: without end).
struct StripeUser {
  StripeLock* table = nullptr;
  std::uint32_t holder = 0;
  Patience* patience = nullptr;
};

/// Holds the locks that [offset, offset + nbytes) needs: a range within one group of stripes, or
/// one element that crosses its end. Check locked() before touching what they guard.
///
/// Always ascending by table index, whoever takes them: no deadlock.
class StripeGuard {
 public:
  StripeGuard(const StripeUser& user, std::uint64_t offset, std::size_t nbytes) {
    take(user, offset, nbytes, [&](StripeLock& stripe) {
      failure_ = lock_stripe(stripe, user.holder, user.patience);
      return failure_.ok();
    });
  }
  /// The same without waiting long.
  StripeGuard(const StripeUser& user, std::uint64_t offset, std::size_t nbytes,
              std::try_to_lock_t) {
    take(user, offset, nbytes,
         [&](StripeLock& stripe) { return try_lock_stripe(stripe, user.holder, user.patience); });
  }
  StripeGuard(const StripeGuard&) = delete;
  StripeGuard& operator=(const StripeGuard&) = delete;
  ~StripeGuard() {
    if (last_ != nullptr) unlock_stripe(*last_);
    while (held_ > 0) unlock_stripe(first_[--held_]);
  }
  [[nodiscard]] bool locked() const { return locked_; }
  /// Why it is not locked; Ok where it was only tried.
  [[nodiscard]] const Status& failure() const { return failure_; }

 private:
  template <class Lock>
  void take(const StripeUser& user, std::uint64_t offset, std::size_t nbytes, const Lock& lock) {
    if (user.table == nullptr) return;
    const std::size_t first = stripe_of(offset);
    const std::size_t last = nbytes == 0 ? first : stripe_of(offset + nbytes - 1);
    // Where the table ends, the second half of an element comes first.
    const bool wraps = last < first;
    const std::size_t run = wraps ? 1 : last - first + 1;
    first_ = &user.table[wraps ? last : first];
    while (locked_ && held_ < run) {
      locked_ = lock(first_[held_]);
      if (locked_) ++held_;
    }
    if (!wraps || !locked_) return;
    locked_ = lock(user.table[first]);
    if (locked_) last_ = &user.table[first];
  }

  StripeLock* first_ = nullptr;  // held: this one and those behind it, held_ in all
  std::size_t held_ = 0;
  StripeLock* last_ = nullptr;
  bool locked_ = true;
  Status failure_;
};

/// Has the locks of the group at `offset` at hand by the time they are taken: streaming operands
/// push them out of the nearest cache.
inline void prefetch_group(const StripeUser& user, std::uint64_t offset) {
  if (user.table == nullptr) return;
  const std::size_t first = stripe_of(offset);
  const std::size_t last = std::min<std::size_t>(first + kGroupBytes / kStripeBytes, kStripeCount);
  for (std::size_t i = first; i < last; ++i) __builtin_prefetch(&user.table[i], 1);
}

/// Elements of `element` bytes from `offset` on that lie within one span of so many bytes, or the
/// one that crosses its end.
constexpr std::size_t elements_within(std::uint64_t span, std::uint64_t offset, std::size_t element,
                                      std::size_t count) {
  const std::uint64_t room = span - offset % span;
  const auto whole = static_cast<std::size_t>(room / element);
  if (whole == 0) return 1;
  return whole < count ? whole : count;
}

/// Elements that can be done under the lock of one stripe, and under one StripeGuard.
constexpr std::size_t elements_in_stripe(std::uint64_t offset, std::size_t element,
                                         std::size_t count) {
  return elements_within(kStripeBytes, offset, element, count);
}
constexpr std::size_t elements_in_group(std::uint64_t offset, std::size_t element,
                                        std::size_t count) {
  return elements_within(kGroupBytes, offset, element, count);
}

}  // namespace hixl_rma
