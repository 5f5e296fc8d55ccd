// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include "base/patience.h"
#include "hixl_rma/status.h"

namespace hixl_rma {

/// One lock of a window's table, in control memory. Whoever executes an operation of the accumulate
/// family holds the lock of the stripe it touches, one at a time, so that owner, shm origin, cma
/// origin and progress thread are atomic against each other.
/// The word names its holder (0 = free), so that whoever needs the lock of a dead one takes it
/// over. What the dead one was doing under it is half done: bytes of unfinished operations are
/// undefined.
struct alignas(64) StripeLock {
  std::atomic<std::uint32_t> holder;
};

inline constexpr std::uint64_t kStripeBytes = 4096;
inline constexpr std::size_t kStripeCount = 128;

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

/// Holds the lock, or the two locks, that [offset, offset + nbytes) needs; nbytes <= kStripeBytes.
/// Check locked() before touching what they guard.
class StripeGuard {
 public:
  StripeGuard(const StripeUser& user, std::uint64_t offset, std::size_t nbytes) {
    if (user.table == nullptr) return;
    const auto [first, last] = stripes_of(offset, nbytes);
    if (lock(user, first, &first_) && last != first) (void)lock(user, last, &second_);
  }
  /// The same without waiting long.
  StripeGuard(const StripeUser& user, std::uint64_t offset, std::size_t nbytes,
              std::try_to_lock_t) {
    if (user.table == nullptr) return;
    const auto [first, last] = stripes_of(offset, nbytes);
    if (try_lock(user, first, &first_) && last != first) (void)try_lock(user, last, &second_);
  }
  StripeGuard(const StripeGuard&) = delete;
  StripeGuard& operator=(const StripeGuard&) = delete;
  ~StripeGuard() {
    if (second_ != nullptr) unlock_stripe(*second_);
    if (first_ != nullptr) unlock_stripe(*first_);
  }
  [[nodiscard]] bool locked() const { return locked_; }
  /// Why it is not locked; Ok where it was only tried.
  [[nodiscard]] const Status& failure() const { return failure_; }

 private:
  bool lock(const StripeUser& user, std::size_t index, StripeLock** kept) {
    failure_ = lock_stripe(user.table[index], user.holder, user.patience);
    locked_ = failure_.ok();
    if (locked_) *kept = &user.table[index];
    return locked_;
  }
  bool try_lock(const StripeUser& user, std::size_t index, StripeLock** kept) {
    locked_ = try_lock_stripe(user.table[index], user.holder, user.patience);
    if (locked_) *kept = &user.table[index];
    return locked_;
  }
  // Ascending by table index: no deadlock.
  static std::pair<std::size_t, std::size_t> stripes_of(std::uint64_t offset, std::size_t nbytes) {
    const std::size_t first = stripe_of(offset);
    const std::size_t last = nbytes == 0 ? first : stripe_of(offset + nbytes - 1);
    return {first < last ? first : last, first < last ? last : first};
  }

  StripeLock* first_ = nullptr;
  StripeLock* second_ = nullptr;
  bool locked_ = true;
  Status failure_;
};

/// Elements of `element` bytes from `offset` on that can be done under one StripeGuard: up to the
/// end of the stripe, or one that crosses it.
constexpr std::size_t elements_in_stripe(std::uint64_t offset, std::size_t element,
                                         std::size_t count) {
  const std::uint64_t room = kStripeBytes - offset % kStripeBytes;
  const auto whole = static_cast<std::size_t>(room / element);
  if (whole == 0) return 1;
  return whole < count ? whole : count;
}

}  // namespace hixl_rma
