// SPDX-License-Identifier: Apache-2.0
#include "base/stripe_lock.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "support/impatience.h"
#include "support/patience.h"
#include "support/status_assert.h"

namespace hixl_rma {
namespace {

using Table = std::array<StripeLock, kStripeCount>;

constexpr std::uint32_t kThreads = 4;

/// Runs the body in as many threads at once, each with the name it takes locks by.
void in_threads(const std::function<void(std::uint32_t name)>& body) {
  std::vector<std::thread> threads;
  for (std::uint32_t name = 1; name <= kThreads; ++name) threads.emplace_back(body, name);
  for (std::thread& thread : threads) thread.join();
}

TEST(StripeLock, only_one_holder_is_inside) {
  Table table{};
  std::uint64_t plain = 0;  // TSan sees a second one at once
  const int times = testing::rounds(20000, 2000);
  in_threads([&](std::uint32_t t) {
    for (int i = 0; i < times; ++i) {
      const StripeGuard guard({table.data(), t}, 64, 8);
      EXPECT_EQ(table[0].holder.load(), t);
      ++plain;
    }
  });
  EXPECT_EQ(plain, kThreads * static_cast<std::uint64_t>(times));
  EXPECT_EQ(table[0].holder.load(), 0U);
}

TEST(StripeLock, an_element_across_stripes_holds_both_locks) {
  Table table{};
  {
    const StripeGuard guard({table.data(), 7}, kStripeBytes - 4, 8);
    EXPECT_EQ(table[0].holder.load(), 7U);
    EXPECT_EQ(table[1].holder.load(), 7U);
    EXPECT_EQ(table[2].holder.load(), 0U);
  }
  EXPECT_EQ(table[0].holder.load(), 0U);
  EXPECT_EQ(table[1].holder.load(), 0U);
}

TEST(StripeLock, a_range_holds_the_locks_of_all_its_stripes_and_of_no_other) {
  Table table{};
  constexpr std::uint64_t kFrom = kGroupBytes + kStripeBytes;
  const auto held = [&](std::size_t index) { return table[index].holder.load() == 5; };
  {
    const StripeGuard guard({table.data(), 5}, kFrom + 100, 14 * kStripeBytes);
    ASSERT_TRUE(guard.locked());
    for (std::size_t i = 0; i < kStripeCount; ++i) EXPECT_EQ(held(i), i >= 17 && i < 32) << i;
  }
  for (std::size_t i = 0; i < kStripeCount; ++i) EXPECT_FALSE(held(i)) << i;
}

TEST(StripeLock, a_range_that_is_not_had_whole_is_given_back) {
  Table table{};
  ASSERT_OK(lock_stripe(table[9], 7));
  const StripeGuard guard({table.data(), 5}, 4 * kStripeBytes, 8 * kStripeBytes, std::try_to_lock);
  EXPECT_FALSE(guard.locked());
  EXPECT_OK(guard.failure());
  std::thread([&] {
    const StripeGuard other({table.data(), 6}, 10 * kStripeBytes, 8);
    EXPECT_TRUE(other.locked());
  }).join();
}

TEST(StripeLock, ranges_of_many_holders_are_atomic_against_each_other) {
  Table table{};
  std::array<std::uint64_t, 16> plain{};  // one word a stripe; TSan sees two holders at once
  const int times = testing::rounds(3000, 300);
  in_threads([&](std::uint32_t t) {
    for (int i = 0; i < times; ++i) {
      const std::size_t first = (t * 3 + static_cast<std::size_t>(i)) % 12;
      const StripeGuard guard({table.data(), t}, first * kStripeBytes, 4 * kStripeBytes);
      for (std::size_t stripe = first; stripe < first + 4; ++stripe) ++plain[stripe];
    }
  });
  std::uint64_t sum = 0;
  for (const std::uint64_t words : plain) sum += words;
  EXPECT_EQ(sum, 4U * kThreads * static_cast<std::uint64_t>(times));
}

TEST(StripeLock, nothing_is_locked_without_a_table) {
  const StripeGuard guard({nullptr, 1}, 0, 8);
  SUCCEED();
}

TEST(StripeLock, no_bytes_hold_the_lock_of_their_place) {
  Table table{};
  const StripeGuard guard({table.data(), 3}, kStripeBytes, 0);
  EXPECT_EQ(table[0].holder.load(), 0U);
  EXPECT_EQ(table[1].holder.load(), 3U);
}

TEST(StripeLock, two_locks_are_taken_in_the_order_of_the_table) {
  Table table{};
  ASSERT_OK(lock_stripe(table[0], 1));
  std::thread other([&] {
    // Across the end of the table: its last stripe and the first one again.
    const StripeGuard guard({table.data(), 2}, kStripeBytes * kStripeCount - 4, 8);
    EXPECT_EQ(table[kStripeCount - 1].holder.load(), 2U);
  });
  const Deadline deadline = Deadline::after(std::chrono::milliseconds(20));
  while (!deadline.expired()) EXPECT_EQ(table[kStripeCount - 1].holder.load(), 0U);
  unlock_stripe(table[0]);
  other.join();
  EXPECT_EQ(table[0].holder.load(), 0U);
}

TEST(StripeLock, the_lock_of_a_dead_holder_is_taken_over) {
  Table table{};
  testing::Mourner patience;
  ASSERT_OK(lock_stripe(table[0], 7));
  ASSERT_OK(lock_stripe(table[1], 7));
  patience.bury(7);
  {
    const StripeGuard guard({table.data(), 2, &patience}, kStripeBytes - 4, 8);
    ASSERT_TRUE(guard.locked());
    EXPECT_EQ(table[0].holder.load(), 2U);
    EXPECT_EQ(table[1].holder.load(), 2U);
  }
  EXPECT_EQ(table[0].holder.load(), 0U);
  EXPECT_EQ(table[1].holder.load(), 0U);
}

TEST(StripeLock, who_must_not_wait_takes_over_the_lock_of_a_dead_holder_too) {
  Table table{};
  testing::Mourner patience;
  ASSERT_OK(lock_stripe(table[0], 7));
  EXPECT_FALSE(StripeGuard({table.data(), 2, &patience}, 0, 8, std::try_to_lock).locked());
  patience.bury(7);
  EXPECT_TRUE(StripeGuard({table.data(), 2, &patience}, 0, 8, std::try_to_lock).locked());
}

TEST(StripeLock, the_lock_of_a_dead_holder_is_taken_over_by_one_alone) {
  Table table{};
  testing::Mourner patience;
  patience.bury(7);
  std::uint64_t plain = 0;  // TSan sees a second one at once
  const int times = testing::rounds(300, 50);
  in_threads([&](std::uint32_t t) {
    for (int i = 0; i < times; ++i) {
      ASSERT_OK(lock_stripe(table[0], t, &patience));
      ++plain;
      table[0].holder.store(i % 10 == 0 ? 7 : 0, std::memory_order_release);  // 7: died inside
    }
  });
  EXPECT_EQ(plain, kThreads * static_cast<std::uint64_t>(times));
}

TEST(StripeLock, a_holder_that_stands_still_is_waited_for_as_long_as_the_patience_lasts) {
  Table table{};
  testing::Mourner patience{std::chrono::milliseconds(20)};
  ASSERT_OK(lock_stripe(table[1], 7));
  const auto begin = Clock::now();
  {
    const StripeGuard guard({table.data(), 2, &patience}, kStripeBytes - 4, 8);
    EXPECT_FALSE(guard.locked());
    EXPECT_CODE(guard.failure(), StatusCode::kTimeout);
  }
  EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(20));
  EXPECT_EQ(table[0].holder.load(), 0U);  // the first of the two was given back
  EXPECT_EQ(table[1].holder.load(), 7U);
  unlock_stripe(table[1]);
  EXPECT_TRUE(StripeGuard({table.data(), 2, &patience}, kStripeBytes - 4, 8).locked());
}

TEST(StripeLock, stripes_repeat_after_the_table) {
  EXPECT_EQ(stripe_of(0), 0U);
  EXPECT_EQ(stripe_of(kStripeBytes - 1), 0U);
  EXPECT_EQ(stripe_of(kStripeBytes), 1U);
  EXPECT_EQ(stripe_of(kStripeBytes * kStripeCount), 0U);
}

TEST(StripeLock, elements_of_one_guard_end_with_the_stripe_or_cross_it_alone) {
  EXPECT_EQ(elements_in_stripe(0, 8, 10000), 512U);
  EXPECT_EQ(elements_in_stripe(0, 8, 3), 3U);
  EXPECT_EQ(elements_in_stripe(kStripeBytes - 8, 8, 10), 1U);
  EXPECT_EQ(elements_in_stripe(kStripeBytes - 4, 8, 10), 1U);
  EXPECT_EQ(elements_in_stripe(kStripeBytes - 20, 8, 10), 2U);
  EXPECT_EQ(elements_in_stripe(kStripeBytes + 4, 16, 1000), 255U);
  EXPECT_EQ(elements_in_group(0, 8, 100000), kGroupBytes / 8);
  EXPECT_EQ(elements_in_group(kGroupBytes - 8, 8, 100000), 1U);
  EXPECT_EQ(elements_in_group(kGroupBytes - 4, 8, 100000), 1U);
  for (std::uint64_t offset = 0; offset < 2 * kStripeBytes; ++offset) {
    for (const std::size_t element : {1U, 2U, 4U, 8U, 16U, 32U}) {
      const std::size_t n = elements_in_stripe(offset, element, 10000);
      ASSERT_GE(n, 1U);
      const std::uint64_t last = offset + n * element - 1;
      ASSERT_TRUE(n == 1 || offset / kStripeBytes == last / kStripeBytes)
          << offset << " " << element;
    }
  }
}

}  // namespace
}  // namespace hixl_rma
