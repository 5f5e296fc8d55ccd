// SPDX-License-Identifier: Apache-2.0
//
// Notifications from end to end.
#include <poll.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "support/pattern.h"
#include "window/ranks.h"

namespace hixl_rma::testing {
namespace {

class WindowNotify : public WindowTest {};
INSTANTIATE_WINDOW_SUITE(WindowNotify);

NotifyWait one_of(std::size_t id, std::uint64_t count = 1, int source = kAnySource) {
  return {{id, id + 1, {}}, count, source};
}

NotifyWait all_ids() { return {{0, 64, {}}}; }

TEST_P(WindowNotify, carries_id_source_count_and_value) {
  run(3, 64, [](Rank& rank) {
    ASSERT_OK(rank.window.lock_all(soon()));
    const Bytes payload = make_pattern(8, static_cast<std::uint64_t>(rank.me));
    const auto value = static_cast<std::uint64_t>(10 + rank.me);
    EXPECT_OK(rank.put_notify(payload, rank.right(), 0, {.id = 7, .value = value}));
    auto note = rank.wait_for(7, 1, rank.left());
    ASSERT_OK(note);
    EXPECT_EQ(note.value().id, 7U);
    EXPECT_EQ(note.value().source, rank.left());
    EXPECT_EQ(note.value().count, 1U);
    EXPECT_EQ(note.value().value, static_cast<std::uint64_t>(10 + rank.left()));
    EXPECT_EQ(first_mismatch(rank.local().data(), 8, static_cast<std::uint64_t>(rank.left())), 8U);
    ASSERT_OK(rank.window.unlock_all(soon()));
  });
}

TEST_P(WindowNotify, is_visible_only_after_everything_put_before_it) {
  const auto total = static_cast<std::uint64_t>(rounds(400, 60));
  constexpr std::size_t kBlock = 9000;
  constexpr std::size_t kBlocks = 5;
  run(2, kBlock * kBlocks, [&](Rank& rank) {
    ASSERT_OK(rank.window.lock_all(soon()));
    for (std::uint64_t round = 1; round <= total; ++round) {
      if (rank.me == 0) {
        // Only the last block goes with the notification; order "all" covers the others.
        Bytes payload = make_pattern(kBlock * kBlocks, round);
        for (std::size_t i = 0; i + 1 < kBlocks; ++i) {
          EXPECT_OK(rank.put(std::span(payload).subspan(i * kBlock, kBlock), 1, i * kBlock));
        }
        EXPECT_OK(rank.put_notify(std::span(payload).last(kBlock), 1, (kBlocks - 1) * kBlock,
                                  {.id = 1, .value = round}));
        ASSERT_OK(rank.wait_for(2));
        EXPECT_OK(rank.flush(1));  // the payload was the operations' until here
      } else {
        auto note = rank.wait_for(1);
        ASSERT_OK(note);
        EXPECT_EQ(note.value().value, round);
        const std::size_t length = kBlock * kBlocks;
        ASSERT_EQ(first_mismatch(rank.local().data(), length, round), length) << "round " << round;
        EXPECT_OK(rank.notify(0, {.id = 2}));
      }
    }
    ASSERT_OK(rank.window.unlock_all(soon()));
  });
}

TEST_P(WindowNotify, a_get_notify_tells_that_the_memory_was_read) {
  const auto total = static_cast<std::uint64_t>(rounds(200, 40));
  run(2, 20000, [&](Rank& rank) {
    ASSERT_OK(rank.window.lock_all(soon()));
    Bytes back(20000);
    for (std::uint64_t round = 1; round <= total; ++round) {
      if (rank.me == 0) {
        fill_pattern(rank.local().data(), 20000, round);
        EXPECT_OK(rank.notify(1, {.id = 1}));
        ASSERT_OK(rank.wait_for(2));  // from here on the memory is ours again
      } else {
        ASSERT_OK(rank.wait_for(1));
        EXPECT_OK(rank.get(back, 0, 0));
        EXPECT_OK(rank.notify(0, {.id = 2}));
        EXPECT_OK(rank.flush(0));
        ASSERT_EQ(first_mismatch(back.data(), 20000, round), 20000U) << "round " << round;
      }
    }
    ASSERT_OK(rank.window.unlock_all(soon()));
  });
}

TEST_P(WindowNotify, of_many_origins_on_one_id_are_counted_for_each) {
  constexpr int kRanks = 4;
  constexpr std::uint64_t kEach = 50;
  run(kRanks, 64, [](Rank& rank) {
    ASSERT_OK(rank.fence());
    for (std::uint64_t i = 0; i < kEach; ++i) {
      EXPECT_OK(rank.notify(0, {.id = 63, .value = static_cast<std::uint64_t>(rank.me)}));
    }
    if (rank.me == 0) {
      auto from_three = rank.wait_for(63, kEach, 3);
      ASSERT_OK(from_three);
      EXPECT_EQ(from_three.value().value, 3 * kEach);
      auto rest = rank.wait_for(63, 3 * kEach);
      ASSERT_OK(rest);
      EXPECT_EQ(rest.value().source, kAnySource);
      EXPECT_EQ(rest.value().value, (0 + 1 + 2) * kEach);
      EXPECT_EQ(rank.window.notify_count(63, kAnySource).value(), 0U);
    }
    ASSERT_OK(rank.fence());
  });
}

TEST_P(WindowNotify, to_oneself_and_without_payload_work_like_any_other) {
  run(1, 0, [](Rank& rank) {
    ASSERT_OK(rank.fence());
    EXPECT_OK(rank.put_notify({}, 0, 0, {.id = 0, .value = 0}));
    auto note = rank.wait_for(0);
    ASSERT_OK(note);
    EXPECT_EQ(note.value().source, 0);
    EXPECT_EQ(note.value().value, 0U);
    ASSERT_OK(rank.fence());
  });
}

TEST_P(WindowNotify, any_some_and_all_take_what_they_say) {
  run(2, 0, [](Rank& rank) {
    ASSERT_OK(rank.fence());
    const std::vector<std::size_t> ids = {9, 4, 30};
    if (rank.me == 1) {
      for (const std::size_t id : ids) EXPECT_OK(rank.notify(0, {.id = id, .value = id}));
      EXPECT_OK(rank.notify(0, {.id = 4, .value = 1}));
    } else {
      Taken taken;
      ASSERT_OK(rank.window.wait_notify(TakeMode::kAll, {{0, 0, ids}}, soon(), &taken));
      ASSERT_EQ(taken.size(), 3U);
      EXPECT_EQ(taken[0].id, 9U);
      EXPECT_EQ(taken[1].id, 4U);
      EXPECT_EQ(taken[2].value, 30U);
      ASSERT_OK(rank.window.wait_notify(TakeMode::kSome, all_ids(), soon(), &taken));
      ASSERT_EQ(taken.size(), 1U);
      EXPECT_EQ(taken[0].id, 4U);
      ASSERT_OK(rank.window.test_notify(TakeMode::kAny, all_ids(), &taken));
      EXPECT_TRUE(taken.empty());
    }
    ASSERT_OK(rank.fence());
  });
}

TEST_P(WindowNotify, a_wait_that_times_out_consumes_nothing_and_says_what_it_saw) {
  run(2, 0, [](Rank& rank) {
    ASSERT_OK(rank.fence());
    if (rank.me == 1) {
      EXPECT_OK(rank.notify(0, {.id = 5}));
    }
    ASSERT_OK(rank.fence());
    if (rank.me == 0) {
      Taken taken;
      Status status = rank.window.wait_notify(TakeMode::kAny, one_of(5, 2), at_once(), &taken);
      EXPECT_CODE(status, StatusCode::kNotifyTimeout);
      EXPECT_SAYS(status, "notification 5 with count 2 from any source");
      EXPECT_SAYS(status, "id 5 rank 1: 1");
      EXPECT_CODE(rank.window.wait_notify(TakeMode::kAny, one_of(5, 1, 0), at_once(), &taken),
                  StatusCode::kNotifyTimeout);
      EXPECT_OK(rank.wait_for(5));
    }
    ASSERT_OK(rank.fence());
  });
}

TEST_P(WindowNotify, wrong_arguments_are_refused) {
  run(1, 64, [](Rank& rank) {
    ASSERT_OK(rank.fence());
    EXPECT_CODE(rank.notify(0, {.id = 64}), StatusCode::kOutOfRange);
    Taken taken;
    const auto refused = [&](const NotifyWait& what) {
      return rank.window.test_notify(TakeMode::kAll, what, &taken);
    };
    const std::vector<std::size_t> twice = {1, 2, 1};
    const std::vector<std::size_t> outside = {1, 64};
    EXPECT_CODE(refused(one_of(64)), StatusCode::kOutOfRange);
    EXPECT_CODE(refused({{0, 0, outside}}), StatusCode::kOutOfRange);
    EXPECT_CODE(refused({{0, 0, twice}}), StatusCode::kInvalidArgument);
    EXPECT_CODE(refused({{3, 3, {}}}), StatusCode::kInvalidArgument);
    EXPECT_CODE(refused(one_of(1, 0)), StatusCode::kInvalidArgument);
    EXPECT_CODE(refused(one_of(1, 1, 1)), StatusCode::kOutOfRange);
    EXPECT_CODE(refused(one_of(1, 1, -2)), StatusCode::kOutOfRange);
    EXPECT_CODE(rank.window.notify_count(64, 0).status(), StatusCode::kOutOfRange);
    EXPECT_CODE(rank.window.reset_notify(64).status(), StatusCode::kOutOfRange);
    ASSERT_OK(rank.fence());
  });
}

TEST_P(WindowNotify, reset_takes_what_is_pending) {
  run(2, 0, [](Rank& rank) {
    ASSERT_OK(rank.fence());
    EXPECT_OK(rank.notify(0, {.id = 1, .value = 4}));
    EXPECT_OK(rank.notify(0, {.id = 1, .value = 5}));
    ASSERT_OK(rank.fence());
    if (rank.me == 0) {
      auto taken = rank.window.reset_notify(1);
      ASSERT_OK(taken);
      EXPECT_EQ(taken.value().count, 4U);
      EXPECT_EQ(taken.value().value, 18U);
      EXPECT_EQ(rank.window.notify_count(1, kAnySource).value(), 0U);
    }
  });
}

TEST_P(WindowNotify, threads_of_one_rank_wait_for_different_ids) {
  const int total = rounds(300, 50);
  constexpr std::size_t kThreads = 3;
  run(2, 0, [&](Rank& rank) {
    ASSERT_OK(rank.fence());
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < total; ++i) {
          if (rank.me == 0) {
            EXPECT_OK(rank.notify(1, {.id = t}));
          }
          auto note = rank.wait_for(t);
          EXPECT_OK(note);
          if (!note.ok()) return;
          if (rank.me == 1) {
            EXPECT_OK(rank.notify(0, {.id = t}));
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_OK(rank.fence());
  });
}

bool readable(int fd, Nanoseconds span) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, static_cast<int>(span / std::chrono::milliseconds(1))) == 1;
}

TEST_P(WindowNotify, the_descriptor_is_readable_while_there_is_something_to_take) {
  const int total = rounds(100, 20);
  run(2, 0, [&](Rank& rank) {
    ASSERT_OK(rank.fence());
    if (rank.me == 1) {
      for (int i = 0; i < total; ++i) EXPECT_OK(rank.notify(0, {.id = 2}));
    } else {
      auto fd = rank.window.notify_fileno();
      ASSERT_OK(fd);
      EXPECT_EQ(rank.window.notify_fileno().value(), fd.value());
      int taken = 0;
      while (taken < total) {
        // One test for each time it is readable: none may be forgotten.
        ASSERT_TRUE(readable(fd.value(), kPatience)) << "after " << taken;
        Taken notes;
        ASSERT_OK(rank.window.test_notify(TakeMode::kAny, all_ids(), &notes));
        taken += static_cast<int>(notes.size());
      }
      Taken notes;
      ASSERT_OK(rank.window.test_notify(TakeMode::kAny, all_ids(), &notes));
      EXPECT_TRUE(notes.empty());
    }
    ASSERT_OK(rank.fence());
  });
}

TEST_P(WindowNotify, the_descriptor_may_be_asked_for_while_another_thread_tests) {
  run(1, 0, [](Rank& rank) {
    ASSERT_OK(rank.fence());
    std::atomic<bool> stop{false};
    std::thread tester([&] {
      Taken notes;
      while (!stop) EXPECT_OK(rank.window.test_notify(TakeMode::kAny, all_ids(), &notes));
    });
    EXPECT_OK(rank.window.notify_fileno());
    for (int i = 0; i < 20; ++i) EXPECT_OK(rank.notify(0, {.id = 1}));
    stop = true;
    tester.join();
    ASSERT_OK(rank.fence());
  });
}

std::atomic<bool> interrupt_now{false};

TEST_P(WindowNotify, a_signal_ends_a_wait_when_the_caller_says_so) {
  interrupt_now = false;
  const auto configure = [](int, WindowOptions& options) {
    options.wait.interrupted = [] { return interrupt_now.load(); };
  };
  run(1, configure, [](Rank& rank) {
    std::thread other([] { interrupt_now = true; });
    Taken taken;
    EXPECT_CODE(rank.window.wait_notify(TakeMode::kAny, one_of(1), soon(), &taken),
                StatusCode::kCanceled);
    other.join();
    interrupt_now = false;
  });
}

TEST_P(WindowNotify, a_spinning_waiter_sees_what_a_sleeping_one_sees) {
  const auto configure = [](int, WindowOptions& options) {
    options.wait.spin = std::chrono::microseconds(100);
  };
  run(2, configure, [](Rank& rank) {
    ASSERT_OK(rank.fence());
    for (int i = 0; i < 50; ++i) {
      if (rank.me == 0) {
        EXPECT_OK(rank.notify(1, {.id = 1}));
      }
      ASSERT_OK(rank.wait_for(1));
      if (rank.me == 1) {
        EXPECT_OK(rank.notify(0, {.id = 1}));
      }
    }
    ASSERT_OK(rank.fence());
  });
}

}  // namespace
}  // namespace hixl_rma::testing
