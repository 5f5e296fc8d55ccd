// SPDX-License-Identifier: Apache-2.0
//
// Epochs that more than one rank takes part in: fence, post/start/complete/wait, locks.
#include <cstring>
#include <thread>
#include <vector>

#include "support/pattern.h"
#include "window/ranks.h"

namespace hixl_rma::testing {
namespace {

class WindowSync : public WindowTest {};
INSTANTIATE_WINDOW_SUITE(WindowSync);

constexpr unsigned kNoSucceed = 8;
const Bytes kZeros(8);

TEST_P(WindowSync, a_fence_separates_what_comes_before_from_what_comes_after) {
  const int total = rounds(200, 30);
  run(4, 4 * 64, [&](Rank& rank) {
    ASSERT_OK(rank.fence());
    for (int round = 0; round < total; ++round) {
      const auto seed = static_cast<std::uint64_t>(round * 10 + rank.me);
      const Bytes payload = make_pattern(64, seed);
      for (int target = 0; target < rank.size; ++target) {
        EXPECT_OK(rank.put(payload, target, 64 * static_cast<std::uint64_t>(rank.me)));
      }
      ASSERT_OK(rank.fence());
      for (int origin = 0; origin < rank.size; ++origin) {
        ASSERT_EQ(first_mismatch(rank.local().data() + 64 * origin, 64,
                                 static_cast<std::uint64_t>(round * 10 + origin)),
                  64U);
      }
      ASSERT_OK(rank.fence());
    }
  });
}

TEST_P(WindowSync, a_fence_that_timed_out_is_resumed_by_the_next) {
  run(2, 64, [](Rank& rank) {
    ASSERT_OK(rank.fence());
    if (rank.me == 1) {
      for (int i = 0; i < 2; ++i)
        EXPECT_CODE(rank.window.fence(0, at_once()), StatusCode::kTimeout);
      EXPECT_CODE(rank.put(kZeros, 0, 0), StatusCode::kWrongEpoch);
      EXPECT_CODE(rank.window.lock(0, true, soon()), StatusCode::kWrongEpoch);
      EXPECT_CODE(rank.window.free(soon()), StatusCode::kWrongEpoch);
    }
    rank.meet();
    ASSERT_OK(rank.fence());
    EXPECT_OK(rank.put(kZeros, rank.right(), 0));
    ASSERT_OK(rank.fence());
  });
}

TEST_P(WindowSync, assertions_say_what_follows_and_unknown_ones_are_refused) {
  run(2, 64, [](Rank& rank) {
    EXPECT_CODE(rank.window.fence(32, soon()), StatusCode::kInvalidArgument);
    ASSERT_OK(rank.window.fence(kNoSucceed, soon()));
    EXPECT_CODE(rank.put(kZeros, rank.right(), 0), StatusCode::kWrongEpoch);
    ASSERT_OK(rank.window.fence(31 - kNoSucceed, soon()));
    EXPECT_OK(rank.put(kZeros, rank.right(), 0));
    ASSERT_OK(rank.window.fence(kNoSucceed, soon()));
  });
}

TEST_P(WindowSync, post_start_complete_wait_hand_memory_round_a_ring) {
  const int total = rounds(200, 30);
  run(3, 4000, [&](Rank& rank) {
    for (int round = 0; round < total; ++round) {
      const auto seed = static_cast<std::uint64_t>(round * 10 + rank.me);
      ASSERT_OK(rank.window.post({rank.left()}));
      ASSERT_OK(rank.window.start({rank.right()}, soon()));
      const Bytes payload = make_pattern(4000, seed);
      EXPECT_OK(rank.put(payload, rank.right(), 0));
      EXPECT_CODE(rank.put(payload, rank.left(), 0), StatusCode::kWrongEpoch);
      ASSERT_OK(rank.window.complete(soon()));
      ASSERT_OK(rank.window.wait_exposure(soon()));
      ASSERT_EQ(first_mismatch(rank.local().data(), 4000,
                               static_cast<std::uint64_t>(round * 10 + rank.left())),
                4000U);
    }
  });
}

TEST_P(WindowSync, one_exposure_epoch_takes_many_origins) {
  run(4, 4 * 64, [](Rank& rank) {
    if (rank.me == 0) {
      ASSERT_OK(rank.window.post({1, 2, 3}));
      ASSERT_OK(rank.window.wait_exposure(soon()));
      for (int origin = 1; origin < 4; ++origin) {
        EXPECT_EQ(first_mismatch(rank.local().data() + 64 * origin, 64,
                                 static_cast<std::uint64_t>(origin)),
                  64U);
      }
      return;
    }
    ASSERT_OK(rank.window.start({0}, soon()));
    const Bytes payload = make_pattern(64, static_cast<std::uint64_t>(rank.me));
    EXPECT_OK(rank.put(payload, 0, 64 * static_cast<std::uint64_t>(rank.me)));
    ASSERT_OK(rank.window.complete(soon()));
  });
}

TEST_P(WindowSync, a_start_that_timed_out_is_resumed) {
  run(2, 64, [](Rank& rank) {
    if (rank.me == 1) {
      EXPECT_CODE(rank.window.start({0}, at_once()), StatusCode::kTimeout);
      EXPECT_CODE(rank.put(kZeros, 0, 0), StatusCode::kWrongEpoch);
      EXPECT_CODE(rank.fence(), StatusCode::kWrongEpoch);
      rank.meet();
      ASSERT_OK(rank.window.start({0}, soon()));
      EXPECT_OK(rank.put(kZeros, 0, 0));
      ASSERT_OK(rank.window.complete(soon()));
    } else {
      rank.meet();
      ASSERT_OK(rank.window.post({1}));
      ASSERT_OK(rank.window.wait_exposure(soon()));
    }
  });
}

TEST_P(WindowSync, a_test_says_whether_the_exposure_epoch_is_over) {
  run(2, 64, [](Rank& rank) {
    if (rank.me == 0) {
      ASSERT_OK(rank.window.post({1}));
      bool over = true;
      ASSERT_OK(rank.window.test_exposure(&over));
      EXPECT_FALSE(over);
      EXPECT_CODE(rank.window.wait_exposure(at_once()), StatusCode::kTimeout);
      rank.meet();
      const Deadline deadline = soon();
      while (!over && !deadline.expired()) ASSERT_OK(rank.window.test_exposure(&over));
      EXPECT_TRUE(over);
      EXPECT_CODE(rank.window.test_exposure(&over), StatusCode::kWrongEpoch);
    } else {
      rank.meet();
      ASSERT_OK(rank.window.start({0}, soon()));
      ASSERT_OK(rank.window.complete(soon()));
    }
  });
}

TEST_P(WindowSync, groups_are_checked) {
  run(2, 64, [](Rank& rank) {
    EXPECT_CODE(rank.window.start({2}, soon()), StatusCode::kOutOfRange);
    EXPECT_CODE(rank.window.start({-1}, soon()), StatusCode::kOutOfRange);
    EXPECT_CODE(rank.window.post({1, 0, 1}), StatusCode::kInvalidArgument);
    EXPECT_OK(rank.window.start({}, soon()));
    EXPECT_OK(rank.window.complete(soon()));
  });
}

TEST_P(WindowSync, an_exclusive_lock_makes_read_and_write_one_step) {
  const int times = rounds(150, 25);
  constexpr int kRanks = 4;
  run(kRanks, 64, [&](Rank& rank) {
    for (int i = 0; i < times; ++i) {
      std::uint64_t value = 0;
      const auto bytes = std::as_writable_bytes(std::span(&value, 1));
      ASSERT_OK(rank.window.lock(0, true, soon()));
      EXPECT_OK(rank.get(bytes, 0, 8));
      EXPECT_OK(rank.flush(0));
      ++value;
      EXPECT_OK(rank.put(bytes, 0, 8));
      ASSERT_OK(rank.window.unlock(0, soon()));
    }
    rank.meet();
    std::uint64_t sum = 0;
    std::memcpy(&sum, rank.window.local_memory() + 8, 8);
    EXPECT_EQ(sum, rank.me == 0 ? static_cast<std::uint64_t>(kRanks * times) : 0U);
    rank.meet();
  });
}

TEST_P(WindowSync, shared_locks_are_held_together_and_exclude_an_exclusive_one) {
  run(3, 64, [](Rank& rank) {
    ASSERT_OK(rank.window.lock(0, false, soon()));
    rank.meet();  // all three are inside
    ASSERT_OK(rank.window.unlock(0, soon()));
    rank.meet();
    if (rank.me == 0) {
      ASSERT_OK(rank.window.lock(0, false, soon()));
    }
    rank.meet();
    if (rank.me == 1) {
      EXPECT_CODE(rank.window.lock(0, true, at_once()), StatusCode::kTimeout);
    }
    rank.meet();
    if (rank.me == 0) {
      ASSERT_OK(rank.window.unlock(0, soon()));
    }
    if (rank.me != 0) {
      ASSERT_OK(rank.window.lock(0, true, soon()));
      ASSERT_OK(rank.window.unlock(0, soon()));
    }
  });
}

TEST_P(WindowSync, lock_all_waits_for_every_exclusive_holder_and_gives_back_what_it_took) {
  run(3, 64, [](Rank& rank) {
    if (rank.me == 0) {
      ASSERT_OK(rank.window.lock(2, true, soon()));
    }
    rank.meet();
    if (rank.me == 1) {
      EXPECT_CODE(rank.window.lock_all(at_once()), StatusCode::kTimeout);
      EXPECT_CODE(rank.put(kZeros, 0, 0), StatusCode::kWrongEpoch);
    }
    rank.meet();
    // Nothing of the one that timed out is left at the ranks it had already.
    if (rank.me == 2) {
      for (const int target : {0, 1}) {
        ASSERT_OK(rank.window.lock(target, true, soon()));
        ASSERT_OK(rank.window.unlock(target, soon()));
      }
    }
    rank.meet();
    if (rank.me == 0) {
      ASSERT_OK(rank.window.unlock(2, soon()));
    }
    ASSERT_OK(rank.window.lock_all(soon()));
    EXPECT_OK(rank.put(kZeros, rank.right(), 0));
    ASSERT_OK(rank.window.unlock_all(soon()));
  });
}

TEST_P(WindowSync, a_lock_is_taken_while_its_owner_does_nothing) {
  run(2, 64, [](Rank& rank) {
    if (rank.me == 1) {
      ASSERT_OK(rank.window.lock(0, true, soon()));
      const Bytes payload = make_pattern(64, 4);
      EXPECT_OK(rank.put(payload, 0, 0));
      ASSERT_OK(rank.window.unlock(0, soon()));
    }
    rank.meet();
    if (rank.me == 0) {
      EXPECT_EQ(first_mismatch(rank.local().data(), 64, 4), 64U);
    }
    rank.meet();
  });
}

TEST_P(WindowSync, a_second_thread_inside_a_collective_call_is_told) {
  run(2, 64, [](Rank& rank) {
    if (rank.me == 0) {
      std::thread first([&] {
        Status fenced;
        do {
          fenced = rank.fence();
        } while (fenced.code() == StatusCode::kBusy);  // the tests below may be inside, too
        EXPECT_OK(fenced);
      });
      Status status;
      const Deadline deadline = soon();
      while (status.code() != StatusCode::kBusy && !deadline.expired()) {
        bool over = false;
        status = rank.window.test_exposure(&over);
      }
      EXPECT_CODE(status, StatusCode::kBusy);
      rank.meet();
      first.join();
    } else {
      rank.meet();
      ASSERT_OK(rank.fence());
    }
  });
}

TEST_P(WindowSync, a_single_rank_needs_nobody) {
  run(1, 64, [](Rank& rank) {
    ASSERT_OK(rank.fence());
    const Bytes payload = make_pattern(8, 1);
    EXPECT_OK(rank.put(payload, 0, 0));
    ASSERT_OK(rank.fence());
    ASSERT_OK(rank.window.post({0}));
    ASSERT_OK(rank.window.start({0}, soon()));
    ASSERT_OK(rank.window.complete(soon()));
    ASSERT_OK(rank.window.wait_exposure(soon()));
    ASSERT_OK(rank.window.lock(0, true, soon()));
    ASSERT_OK(rank.window.unlock(0, soon()));
    ASSERT_OK(rank.window.lock_all(soon()));
    ASSERT_OK(rank.window.unlock_all(soon()));
  });
}

}  // namespace
}  // namespace hixl_rma::testing
