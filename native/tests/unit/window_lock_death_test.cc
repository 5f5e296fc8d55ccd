// SPDX-License-Identifier: Apache-2.0
//
// Ranks that die or stand still in the middle of the passive-target lock. A rank's death is swept
// over every word it reads or writes: whatever it had done by then, the others go on.
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "support/lock_ranks.h"
#include "support/status_assert.h"

namespace hixl_rma::testing {
namespace {

constexpr std::size_t kTarget = 0;
constexpr std::size_t kVictim = 1;

/// Takes the lock as a window does: deals with a death once, is told of a dead holder.
Status acquire_among_mortals(LockRanks& ranks, std::size_t rank, bool exclusive) {
  const Deadline deadline = soon();
  bool recovered = false;
  return ranks.acquire(
      rank, kTarget, exclusive, deadline, [&](const std::function<bool()>& ready) -> Status {
        for (;;) {
          if (ranks.buried(kVictim) && !recovered) {
            recovered = true;
            if (Status status = ranks.lock(rank).recover(kTarget, deadline); !status.ok()) {
              return status;
            }
          }
          if (ready()) return {};
          bool holds = false;
          if (recovered) {
            Status status = ranks.lock(rank).holds(kTarget, kVictim, exclusive, &holds);
            if (!status.ok()) return status;
          }
          if (holds) return Status::error(StatusCode::kPeerLost, "the victim holds it");
          if (deadline.expired()) return Status::error(StatusCode::kTimeout, "nobody grants it");
          std::this_thread::yield();
        }
      });
}

/// What is true of the lock once nobody who lives has anything to do with it.
void expect_settled(LockRanks& ranks) {
  EXPECT_EQ(ranks.waiters(kTarget), 0U);
  EXPECT_EQ(ranks.header(kTarget).lock_guard.load(), 0U);
  const std::uint64_t exclusive = ranks.state(kTarget) & 0xffff;
  const std::uint64_t shared = ranks.state(kTarget) >> 16 & 0xffff;
  EXPECT_TRUE(exclusive == 0 || exclusive == kVictim + 1) << exclusive;
  EXPECT_LE(shared, ranks.shared_word(kTarget, kVictim));
}

/// How a rank waits in a sweep.
struct Waiter {
  std::size_t rank;
  bool exclusive;
};

/// Runs what the victim does with its death after 0, 1, 2 ... operations until it survives it.
/// `before` it somebody may take the lock; then the waiters queue up.
struct Sweep {
  std::function<void(LockRanks&)> before = [](LockRanks&) {};
  std::vector<Waiter> waiters = {};
  std::function<void(LockRanks&)> victim;
  std::function<void(LockRanks&)> after = [](LockRanks&) {};
};

void run(const Sweep& sweep) {
  bool survived = false;
  for (int operations = 0; !survived && !::testing::Test::HasFailure(); ++operations) {
    SCOPED_TRACE("dies after operation " + std::to_string(operations));
    LockRanks ranks(5);
    sweep.before(ranks);
    std::vector<std::thread> threads;
    for (const Waiter waiter : sweep.waiters) {
      const std::uint64_t queued = ranks.waiters(kTarget);
      threads.emplace_back([&ranks, waiter] {
        const Status status = acquire_among_mortals(ranks, waiter.rank, waiter.exclusive);
        if (status.code() == StatusCode::kPeerLost) return;
        EXPECT_OK(status);
        EXPECT_OK(ranks.release(waiter.rank, kTarget, waiter.exclusive));
      });
      while (ranks.waiters(kTarget) == queued) std::this_thread::yield();
    }
    ranks.endpoint(kVictim).die_after(operations);
    sweep.victim(ranks);
    survived = !ranks.endpoint(kVictim).dead();
    ranks.bury(kVictim);
    sweep.after(ranks);
    for (std::thread& thread : threads) thread.join();
    // One who comes later.
    const Status later = acquire_among_mortals(ranks, 4, true);
    if (later.code() != StatusCode::kPeerLost) {
      EXPECT_OK(later);
      EXPECT_OK(ranks.release(4, kTarget, true));
    }
    expect_settled(ranks);
  }
}

TEST(WindowLockDeath, of_one_that_gives_an_exclusive_lock_back_stops_nobody) {
  run({.before = [](LockRanks& ranks) { ASSERT_OK(ranks.acquire(kVictim, kTarget, true)); },
       .waiters = {{2, true}, {3, false}, {0, false}},
       .victim = [](LockRanks& ranks) { (void)ranks.release(kVictim, kTarget, true); }});
}

TEST(WindowLockDeath, of_one_that_lets_shared_holders_in_stops_nobody) {
  run({.before = [](LockRanks& ranks) { ASSERT_OK(ranks.acquire(kVictim, kTarget, true)); },
       .waiters = {{2, false}, {3, false}, {0, true}},
       .victim = [](LockRanks& ranks) { (void)ranks.release(kVictim, kTarget, true); }});
}

TEST(WindowLockDeath, of_one_that_gives_a_shared_lock_back_stops_nobody) {
  run({.before = [](LockRanks& ranks) { ASSERT_OK(ranks.acquire(kVictim, kTarget, false)); },
       .waiters = {{2, true}, {3, false}},
       .victim = [](LockRanks& ranks) { (void)ranks.release(kVictim, kTarget, false); }});
}

TEST(WindowLockDeath, of_one_that_takes_a_free_lock_stops_nobody_who_need_not_wait_for_it) {
  for (const bool exclusive : {true, false}) {
    run({.victim = [exclusive](LockRanks& ranks) {
      if (ranks.acquire(kVictim, kTarget, exclusive).ok()) {
        (void)ranks.release(kVictim, kTarget, exclusive);
      }
    }});
  }
}

TEST(WindowLockDeath, of_one_that_queues_up_or_withdraws_stops_nobody) {
  for (const bool exclusive : {true, false}) {
    run({.before = [](LockRanks& ranks) { ASSERT_OK(ranks.acquire(0, kTarget, true)); },
         .waiters = {{2, true}, {3, false}},
         .victim =
             [exclusive](LockRanks& ranks) {
               (void)ranks.acquire(kVictim, kTarget, exclusive, at_once());
             },
         .after = [](LockRanks& ranks) { EXPECT_OK(ranks.release(0, kTarget, true)); }});
  }
}

TEST(WindowLockDeath, of_one_that_waits_passes_its_place_to_the_next) {
  LockRanks ranks(4);
  ASSERT_OK(ranks.acquire(0, kTarget, true));
  std::thread victim([&] {
    (void)ranks.acquire(kVictim, kTarget, true, soon(), [&](const std::function<bool()>&) {
      while (!ranks.buried(kVictim)) std::this_thread::yield();
      ranks.endpoint(kVictim).die_after(0);  // it withdraws no more
      return Status::error(StatusCode::kCanceled, "killed");
    });
  });
  while (ranks.waiters(kTarget) < 1) std::this_thread::yield();
  std::thread next([&] {
    EXPECT_OK(ranks.acquire(2, kTarget, true));
    EXPECT_OK(ranks.release(2, kTarget, true));
  });
  while (ranks.waiters(kTarget) < 2) std::this_thread::yield();
  ranks.bury(kVictim);
  victim.join();
  EXPECT_OK(ranks.release(0, kTarget, true));
  next.join();
  EXPECT_EQ(ranks.state(kTarget), 0U);
}

// ------------------------------------------------------------------------------------------------
// a rank that was stopped inside the guard

class WindowLockStopped : public ::testing::Test {
 protected:
  // As the one that stands still left it.
  void enter(std::size_t rank) { ranks_.header(kTarget).lock_guard.store(rank + 1); }
  // It goes on, and leaves as a rank does.
  void go_on(std::size_t rank) {
    std::uint64_t inside = rank + 1;
    if (!ranks_.header(kTarget).lock_guard.compare_exchange_strong(inside, 0)) {
      ranks_.header(kTarget).lock_guard.store(0);
      EXPECT_OK(ranks_.lock(rank).recover(kTarget, soon()));  // it was left a word
    }
  }

  LockRanks ranks_{4};
};

TEST_F(WindowLockStopped, a_request_ends_in_time_and_leaves_nothing) {
  ASSERT_OK(ranks_.acquire(0, kTarget, true));
  enter(kVictim);
  EXPECT_CODE(ranks_.acquire(2, kTarget, true, at_once()), StatusCode::kTimeout);
  EXPECT_EQ(ranks_.waiters(kTarget), 0U);
  go_on(kVictim);
  ASSERT_OK(ranks_.release(0, kTarget, true));
  EXPECT_OK(ranks_.acquire(2, kTarget, true));
}

TEST_F(WindowLockStopped, a_release_does_not_wait_and_the_next_gets_the_lock) {
  ASSERT_OK(ranks_.acquire(0, kTarget, true));
  std::thread next([&] { EXPECT_OK(ranks_.acquire(2, kTarget, true)); });
  while (ranks_.waiters(kTarget) < 1) std::this_thread::yield();
  while (ranks_.header(kTarget).lock_guard.load() != 0) std::this_thread::yield();
  enter(kVictim);
  ASSERT_OK(ranks_.release(0, kTarget, true));
  EXPECT_EQ(ranks_.waiters(kTarget), 1U);
  go_on(kVictim);
  next.join();
  EXPECT_EQ(ranks_.state(kTarget), 3U);  // rank 2, exclusively
}

TEST_F(WindowLockStopped, a_request_is_withdrawn_in_time_and_takes_nothing_later) {
  ASSERT_OK(ranks_.acquire(0, kTarget, true));
  EXPECT_CODE(ranks_.acquire(2, kTarget, true, soon(),
                             [&](const std::function<bool()>&) {
                               enter(kVictim);
                               return Status::error(StatusCode::kTimeout, "out of time");
                             }),
              StatusCode::kTimeout);
  ASSERT_OK(ranks_.release(0, kTarget, true));
  go_on(kVictim);
  EXPECT_EQ(ranks_.state(kTarget), 0U);
  EXPECT_OK(ranks_.acquire(2, kTarget, true));
}

}  // namespace
}  // namespace hixl_rma::testing
