// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

namespace hixl_rma {

/// One lock of a window's table, in control memory. Whoever executes an operation of the accumulate
/// family holds the lock of the stripe it touches, one at a time, so that owner, shm origin, cma
/// origin and progress thread are atomic against each other.
/// The word names its holder (0 = free), so that the lock of a dead one can be told.
struct alignas(64) StripeLock {
  std::atomic<std::uint32_t> holder;
};

inline constexpr std::uint64_t kStripeBytes = 4096;
inline constexpr std::size_t kStripeCount = 128;

constexpr std::size_t stripe_of(std::uint64_t offset) {
  return static_cast<std::size_t>(offset / kStripeBytes) % kStripeCount;
}

/// Spins, then yields, then sleeps 50 us at a time: the holder may have lost its core.
void lock_stripe_slow(StripeLock& stripe, std::uint32_t holder);

inline void lock_stripe(StripeLock& stripe, std::uint32_t holder) {
  std::uint32_t free = 0;
  if (!stripe.holder.compare_exchange_strong(free, holder, std::memory_order_acquire,
                                             std::memory_order_relaxed)) {
    lock_stripe_slow(stripe, holder);
  }
}

inline void unlock_stripe(StripeLock& stripe) {
  stripe.holder.store(0, std::memory_order_release);  // pairs with the acquire in lock_stripe
}

/// Spins for a moment and gives up: for threads that have others to serve meanwhile.
bool try_lock_stripe(StripeLock& stripe, std::uint32_t holder);

/// Holds the lock, or the two locks, that [offset, offset + nbytes) needs; nbytes <= kStripeBytes.
class StripeGuard {
 public:
  StripeGuard(StripeLock* table, std::uint32_t holder, std::uint64_t offset, std::size_t nbytes) {
    if (table == nullptr) return;
    const auto [first, last] = stripes_of(offset, nbytes);
    first_ = &table[first];
    lock_stripe(*first_, holder);
    if (last != first) {
      second_ = &table[last];
      lock_stripe(*second_, holder);
    }
  }
  /// The same without waiting long: see locked().
  StripeGuard(StripeLock* table, std::uint32_t holder, std::uint64_t offset, std::size_t nbytes,
              std::try_to_lock_t) {
    if (table == nullptr) return;
    const auto [first, last] = stripes_of(offset, nbytes);
    locked_ = try_lock_stripe(table[first], holder);
    if (!locked_) return;
    first_ = &table[first];
    if (last == first) return;
    locked_ = try_lock_stripe(table[last], holder);
    if (locked_) second_ = &table[last];
  }
  StripeGuard(const StripeGuard&) = delete;
  StripeGuard& operator=(const StripeGuard&) = delete;
  ~StripeGuard() {
    if (second_ != nullptr) unlock_stripe(*second_);
    if (first_ != nullptr) unlock_stripe(*first_);
  }
  [[nodiscard]] bool locked() const { return locked_; }

 private:
  // Ascending by table index: no deadlock.
  static std::pair<std::size_t, std::size_t> stripes_of(std::uint64_t offset, std::size_t nbytes) {
    const std::size_t first = stripe_of(offset);
    const std::size_t last = nbytes == 0 ? first : stripe_of(offset + nbytes - 1);
    return {first < last ? first : last, first < last ? last : first};
  }

  StripeLock* first_ = nullptr;
  StripeLock* second_ = nullptr;
  bool locked_ = true;
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
