// SPDX-License-Identifier: Apache-2.0
//
// A rank whose operation failed, and those who wait for it: they are met or released all the same,
// its own call reports the failure, once, and the window goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <string>

#include "base/log.h"
#include "support/pattern.h"
#include "window/ranks.h"

namespace hixl_rma::testing {
namespace {

using fakes::FakeSession;
using fakes::FakeVerb;

class WindowFailures : public ::testing::TestWithParam<World> {
 protected:
  void run(int size, const Body& body) { run_ranks(GetParam(), size, 4096, body); }

  /// Rank 0 puts to rank 1 what will fail, then to rank 2 what will not.
  void put_and_fail(const Rank& rank) {
    session_.fail_completion(FakeVerb::kPut, 1);
    EXPECT_OK(rank.put(lost_, 1, 0));
    EXPECT_OK(rank.put(kept_, 2, 0));
  }
  void expect_kept(const Rank& rank) {
    EXPECT_EQ(first_mismatch(rank.local().data(), kept_.size(), 2), kept_.size());
  }
  static void expect_failed(const Status& status) {
    EXPECT_CODE(status, StatusCode::kTransferFailed);
    if (!status.ok()) {
      EXPECT_EQ(status.detail().peer_rank, 1);
    }
  }
  /// A whole fence epoch of every rank to its neighbour.
  static void expect_usable(const Rank& rank) {
    const Bytes payload = make_pattern(100, static_cast<std::uint64_t>(10 + rank.me));
    ASSERT_OK(rank.fence());
    EXPECT_OK(rank.put(payload, rank.right(), 3000));
    ASSERT_OK(rank.window.fence(8, soon()));
    EXPECT_EQ(first_mismatch(rank.local().data() + 3000, 100,
                             static_cast<std::uint64_t>(10 + rank.left())),
              100U);
  }

  const Bytes lost_ = make_pattern(2000, 1);
  const Bytes kept_ = make_pattern(2000, 2);
  FakeSession session_{GetParam().fake};
};

INSTANTIATE_TEST_SUITE_P(
    By, WindowFailures,
    ::testing::Values(
        World{.label = "fake", .registry = {"fake"}, .data = "fake"},
        World{.label = "fake_by_progress",
              .registry = {"fake"},
              .data = "fake",
              .fake = {.target_executes = false}},
        World{.label = "fake_data_and_shm_control", .registry = {"shm", "fake"}, .data = "fake"}),
    label_of);

TEST_P(WindowFailures, a_fence_meets_the_others_before_it_reports_a_failed_put) {
  run(3, [&](Rank& rank) {
    ASSERT_OK(rank.fence());
    if (rank.me == 0) {
      put_and_fail(rank);
      expect_failed(rank.fence());
    } else {
      ASSERT_OK(rank.fence());  // with one fence of each rank
    }
    if (rank.me == 2) expect_kept(rank);
    expect_usable(rank);
  });
}

TEST_P(WindowFailures, a_fence_that_times_out_after_a_failure_reports_it_when_it_is_resumed) {
  run(3, [&](Rank& rank) {
    ASSERT_OK(rank.fence());
    if (rank.me == 0) {
      put_and_fail(rank);
      for (int i = 0; i < 3; ++i) {
        const Deadline deadline = Deadline::after(std::chrono::milliseconds(50));
        EXPECT_CODE(rank.window.fence(0, deadline), StatusCode::kTimeout);
      }
      rank.meet();
      expect_failed(rank.fence());
    } else {
      rank.meet();
      ASSERT_OK(rank.fence());
    }
    expect_usable(rank);
  });
}

TEST_P(WindowFailures, a_complete_ends_the_exposure_of_all_targets_before_it_reports_a_failed_put) {
  run(3, [&](Rank& rank) {
    for (int round = 0; round < 2; ++round) {
      if (rank.me != 0) {
        ASSERT_OK(rank.window.post({0}));
        ASSERT_OK(rank.window.wait_exposure(soon()));
        continue;
      }
      ASSERT_OK(rank.window.start({1, 2}, soon()));
      if (round == 0) {
        put_and_fail(rank);
        expect_failed(rank.window.complete(soon()));
      } else {
        EXPECT_OK(rank.put(lost_, 1, 0));
        ASSERT_OK(rank.window.complete(soon()));
      }
    }
    if (rank.me == 1) {
      EXPECT_EQ(first_mismatch(rank.local().data(), lost_.size(), 1), lost_.size());
    }
    if (rank.me == 2) expect_kept(rank);
    expect_usable(rank);
  });
}

TEST_P(WindowFailures, an_unlock_gives_the_lock_back_before_it_reports_a_failed_put) {
  run(3, [&](Rank& rank) {
    if (rank.me == 0) {
      ASSERT_OK(rank.window.lock(1, true, soon()));
      session_.fail_completion(FakeVerb::kPut, 1);
      EXPECT_OK(rank.put(lost_, 1, 0));
      expect_failed(rank.window.unlock(1, soon()));
      EXPECT_CODE(rank.window.unlock(1, soon()), StatusCode::kWrongEpoch);
    }
    rank.meet();
    ASSERT_OK(rank.window.lock(1, true, soon()));
    EXPECT_OK(rank.put(lost_, 1, 0));
    ASSERT_OK(rank.window.unlock(1, soon()));
    expect_usable(rank);
  });
}

TEST_P(WindowFailures, an_unlock_all_gives_every_lock_back_before_it_reports_a_failed_put) {
  run(3, [&](Rank& rank) {
    if (rank.me == 0) {
      ASSERT_OK(rank.window.lock_all(soon()));
      put_and_fail(rank);
      expect_failed(rank.window.unlock_all(soon()));
      EXPECT_CODE(rank.window.unlock_all(soon()), StatusCode::kWrongEpoch);
    }
    rank.meet();
    if (rank.me == 2) expect_kept(rank);
    for (int target = 0; target < 3; ++target) {
      ASSERT_OK(rank.window.lock(target, true, soon()));
      ASSERT_OK(rank.window.unlock(target, soon()));
    }
    expect_usable(rank);
  });
}

TEST_P(WindowFailures, an_unlock_that_times_out_keeps_the_lock_and_its_failure) {
  run(3, [&](Rank& rank) {
    if (rank.me == 0) {
      ASSERT_OK(rank.window.lock_all(soon()));
      session_.hold();
      put_and_fail(rank);
      EXPECT_CODE(rank.window.unlock_all(at_once()), StatusCode::kTimeout);
      session_.release();
      expect_failed(rank.window.unlock_all(soon()));
    }
    rank.meet();
    expect_usable(rank);
  });
}

TEST_P(WindowFailures, a_flush_of_all_completes_the_operations_on_the_others) {
  run(3, [&](Rank& rank) {
    if (rank.me == 0) {
      ASSERT_OK(rank.window.lock_all(soon()));
      session_.fail_completion(FakeVerb::kPut, 1);
      EXPECT_OK(rank.put(lost_, 1, 0));
      // So many that they are not through when the failure is.
      for (std::uint64_t i = 0; i < kept_.size(); i += 10) {
        EXPECT_OK(rank.put(std::span(kept_).subspan(i, 10), 2, i));
      }
      expect_failed(rank.flush());
    }
    rank.meet();
    if (rank.me == 2) expect_kept(rank);
    rank.meet();
    if (rank.me == 0) {
      EXPECT_OK(rank.flush());
      ASSERT_OK(rank.window.unlock_all(soon()));
    }
  });
}

TEST_P(WindowFailures, the_first_of_several_failures_is_reported_and_the_log_tells_of_the_others) {
  run(3, [&](Rank& rank) {
    ASSERT_OK(rank.fence());
    if (rank.me == 0) {
      (void)take_log();
      session_.fail_completion(FakeVerb::kPut, 1);
      session_.fail_completion(FakeVerb::kPut, 2);
      EXPECT_OK(rank.put(lost_, 2, 0));
      EXPECT_OK(rank.put(lost_, 1, 0));
      expect_failed(rank.fence());
      const auto lines = take_log();
      EXPECT_EQ(std::ranges::count_if(lines,
                                      [](const auto& line) {
                                        return line.second.find("on rank 2 failed too") !=
                                               std::string::npos;
                                      }),
                1);
    } else {
      ASSERT_OK(rank.fence());
    }
    expect_usable(rank);
  });
}

// The words of the control memory are the fake's own here, so that their way can fail too.
TEST(WindowFailuresOfControl, a_post_that_fails_for_one_origin_reaches_the_others) {
  FakeSession session;
  const World world{.label = "fake", .registry = {"fake"}, .data = "fake"};
  run_ranks(world, 3, 64, [&](Rank& rank) {
    if (rank.me == 0) {
      session.fail_post(FakeVerb::kNotify, 1);
      const Status posted = rank.window.post({1, 2});
      EXPECT_CODE(posted, StatusCode::kTransferFailed);
      EXPECT_EQ(posted.detail().peer_rank, 1);
    } else if (rank.me == 2) {
      ASSERT_OK(rank.window.start({0}, soon()));
      ASSERT_OK(rank.window.complete(soon()));
    }
    rank.meet();
    rank.window.abort();
  });
}

}  // namespace
}  // namespace hixl_rma::testing
