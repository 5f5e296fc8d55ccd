// SPDX-License-Identifier: Apache-2.0
//
// The passive-target lock, with ranks as threads of this process.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "support/lock_ranks.h"
#include "support/patience.h"
#include "support/status_assert.h"

namespace hixl_rma {
namespace {

using Ranks = testing::LockRanks;
using testing::rounds;

TEST(WindowLock, an_exclusive_holder_keeps_everybody_else_out) {
  Ranks ranks(3);
  ASSERT_OK(ranks.acquire(0, 2, true));
  EXPECT_CODE(ranks.acquire(1, 2, true, testing::at_once()), StatusCode::kTimeout);
  EXPECT_CODE(ranks.acquire(1, 2, false, testing::at_once()), StatusCode::kTimeout);
  EXPECT_OK(ranks.acquire(1, 1, true));  // another target's lock is another lock
  ASSERT_OK(ranks.release(0, 2, true));
  EXPECT_OK(ranks.acquire(1, 2, true));
  ASSERT_OK(ranks.release(1, 2, true));
  EXPECT_EQ(ranks.state(2), 0U);
}

TEST(WindowLock, shared_holders_share_and_keep_an_exclusive_one_out) {
  Ranks ranks(3);
  ASSERT_OK(ranks.acquire(0, 0, false));
  ASSERT_OK(ranks.acquire(1, 0, false));
  EXPECT_EQ(ranks.shared_word(0, 0), 1U);
  EXPECT_EQ(ranks.shared_word(0, 1), 1U);
  EXPECT_CODE(ranks.acquire(2, 0, true, testing::at_once()), StatusCode::kTimeout);
  ASSERT_OK(ranks.release(0, 0, false));
  EXPECT_CODE(ranks.acquire(2, 0, true, testing::at_once()), StatusCode::kTimeout);
  ASSERT_OK(ranks.release(1, 0, false));
  EXPECT_OK(ranks.acquire(2, 0, true));
  ASSERT_OK(ranks.release(2, 0, true));
  EXPECT_EQ(ranks.state(0), 0U);
  EXPECT_EQ(ranks.shared_word(0, 0), 0U);
}

TEST(WindowLock, a_request_that_timed_out_is_withdrawn) {
  Ranks ranks(2);
  ASSERT_OK(ranks.acquire(0, 0, true));
  for (int i = 0; i < 3; ++i) {
    EXPECT_CODE(ranks.acquire(1, 0, i % 2 == 0, testing::at_once()), StatusCode::kTimeout);
  }
  EXPECT_EQ(ranks.waiters(0), 0U);
  ASSERT_OK(ranks.release(0, 0, true));
  EXPECT_EQ(ranks.state(0), 0U);
  EXPECT_OK(ranks.acquire(1, 0, true));
}

TEST(WindowLock, those_behind_a_withdrawn_request_go_on) {
  Ranks ranks(3);
  ASSERT_OK(ranks.acquire(0, 0, false));
  std::thread exclusive([&] {
    // In front of the shared one below, until it gives up.
    EXPECT_CODE(ranks.acquire(1, 0, true, Deadline::after(std::chrono::milliseconds(200))),
                StatusCode::kTimeout);
  });
  while (ranks.waiters(0) < 1) std::this_thread::yield();
  EXPECT_CODE(ranks.acquire(2, 0, false, testing::at_once()), StatusCode::kTimeout);
  EXPECT_OK(ranks.acquire(2, 0, false));  // joins the other shared holder after the withdrawal
  exclusive.join();
  ASSERT_OK(ranks.release(0, 0, false));
  ASSERT_OK(ranks.release(2, 0, false));
  EXPECT_EQ(ranks.state(0), 0U);
}

TEST(WindowLock, waiters_are_served_in_the_order_they_came) {
  constexpr std::size_t kRanks = 6;
  Ranks ranks(kRanks);
  ASSERT_OK(ranks.acquire(0, 0, true));
  std::mutex mutex;
  std::vector<std::size_t> order;
  std::vector<std::thread> threads;
  for (std::size_t rank = 1; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      EXPECT_OK(ranks.acquire(rank, 0, true));
      {
        std::lock_guard lock(mutex);
        order.push_back(rank);
      }
      EXPECT_OK(ranks.release(rank, 0, true));
    });
    while (ranks.waiters(0) < rank) std::this_thread::yield();
  }
  ASSERT_OK(ranks.release(0, 0, true));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order, (std::vector<std::size_t>{1, 2, 3, 4, 5}));
}

TEST(WindowLock, a_shared_request_does_not_overtake_an_exclusive_one_that_waits) {
  Ranks ranks(3);
  ASSERT_OK(ranks.acquire(0, 0, false));
  std::atomic<bool> exclusive_had_it{false};
  std::thread exclusive([&] {
    EXPECT_OK(ranks.acquire(1, 0, true));
    exclusive_had_it = true;
    EXPECT_OK(ranks.release(1, 0, true));
  });
  while (ranks.waiters(0) < 1) std::this_thread::yield();
  std::thread shared([&] {
    EXPECT_OK(ranks.acquire(2, 0, false));
    EXPECT_TRUE(exclusive_had_it.load());
    EXPECT_OK(ranks.release(2, 0, false));
  });
  while (ranks.waiters(0) < 2) std::this_thread::yield();
  ASSERT_OK(ranks.release(0, 0, false));
  exclusive.join();
  shared.join();
}

TEST(WindowLock, shared_waiters_are_let_in_together) {
  Ranks ranks(4);
  ASSERT_OK(ranks.acquire(0, 0, true));
  std::atomic<int> inside{0};
  std::vector<std::thread> threads;
  for (std::size_t rank = 1; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      EXPECT_OK(ranks.acquire(rank, 0, false));
      inside.fetch_add(1);
      const Deadline deadline = testing::soon();
      while (inside.load() < 3 && !deadline.expired()) std::this_thread::yield();
      EXPECT_EQ(inside.load(), 3);
      EXPECT_OK(ranks.release(rank, 0, false));
    });
  }
  while (ranks.waiters(0) < 3) std::this_thread::yield();
  ASSERT_OK(ranks.release(0, 0, true));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ranks.state(0), 0U);
}

TEST(WindowLock, a_grant_that_came_with_the_time_out_counts) {
  // A wait that gives up only after the lock was granted: the caller has it.
  Ranks ranks(2);
  ASSERT_OK(ranks.acquire(0, 0, true));
  std::atomic<bool> waiting{false};
  std::thread releaser([&] {
    while (ranks.waiters(0) < 1) std::this_thread::yield();
    EXPECT_OK(ranks.release(0, 0, true));
    waiting = true;
  });
  // The releaser has granted before the wait ends with its time-out.
  Status status = ranks.acquire(1, 0, true, Deadline::after(std::chrono::milliseconds(50)));
  releaser.join();
  EXPECT_OK(status);
  EXPECT_EQ(ranks.state(0), 2U);  // rank 1, exclusively
  ASSERT_OK(ranks.release(1, 0, true));
}

TEST(WindowLock, random_holders_never_overlap_where_they_must_not) {
  constexpr std::size_t kRanks = 4;
  const int times = rounds(2000, 150);
  Ranks ranks(kRanks);
  std::uint64_t plain = 0;  // TSan: written under the exclusive lock, read under any
  std::atomic<int> exclusive_now{0};
  std::atomic<int> shared_now{0};
  std::atomic<std::uint64_t> taken{0};
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      std::minstd_rand random(static_cast<unsigned>(rank) + 1);
      for (int i = 0; i < times; ++i) {
        const bool exclusive = random() % 3 == 0;
        const Deadline deadline = random() % 4 == 0
                                      ? Deadline::after(std::chrono::microseconds(random() % 50))
                                      : testing::soon();
        Status status = ranks.acquire(rank, 1, exclusive, deadline);
        if (!status.ok()) {
          EXPECT_CODE(status, StatusCode::kTimeout);
          continue;
        }
        if (exclusive) {
          EXPECT_EQ(exclusive_now.fetch_add(1), 0);
          EXPECT_EQ(shared_now.load(), 0);
          ++plain;
          taken.fetch_add(1);
          exclusive_now.fetch_sub(1);
        } else {
          shared_now.fetch_add(1);
          EXPECT_EQ(exclusive_now.load(), 0);
          EXPECT_LE(plain, taken.load());
          shared_now.fetch_sub(1);
        }
        EXPECT_OK(ranks.release(rank, 1, exclusive));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(plain, taken.load());
  EXPECT_EQ(ranks.state(1), 0U);
}

TEST(WindowLock, says_who_holds_it) {
  Ranks ranks(2);
  EXPECT_EQ(ranks.state(0) & 0xffff, 0U);
  ASSERT_OK(ranks.acquire(1, 0, true));
  EXPECT_EQ(ranks.state(0) & 0xffff, 2U);
  ASSERT_OK(ranks.release(1, 0, true));
}

}  // namespace
}  // namespace hixl_rma
