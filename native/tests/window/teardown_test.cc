// SPDX-License-Identifier: Apache-2.0
//
// free, abort, and what the others learn of it.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "support/channel.h"
#include "support/pattern.h"
#include "window/ranks.h"

namespace hixl_rma::testing {
namespace {

class WindowTeardown : public WindowTest {};
INSTANTIATE_WINDOW_SUITE(WindowTeardown);

const Bytes kZeros(8);

void expect_closed(Rank& rank) {
  Taken taken;
  const NotifyWait what{{0, 1, {}}};
  EXPECT_TRUE(rank.window.closed());
  EXPECT_CODE(rank.put(kZeros, rank.me, 0), StatusCode::kClosed);
  EXPECT_CODE(rank.flush(), StatusCode::kClosed);
  EXPECT_CODE(rank.fence(), StatusCode::kClosed);
  EXPECT_CODE(rank.window.lock(rank.me, true, soon()), StatusCode::kClosed);
  EXPECT_CODE(rank.window.unlock(rank.me, soon()), StatusCode::kClosed);
  EXPECT_CODE(rank.window.lock_all(soon()), StatusCode::kClosed);
  EXPECT_CODE(rank.window.start({}, soon()), StatusCode::kClosed);
  EXPECT_CODE(rank.window.post({}), StatusCode::kClosed);
  EXPECT_CODE(rank.notify(rank.me, {}), StatusCode::kClosed);
  EXPECT_CODE(rank.window.wait_notify(TakeMode::kAny, what, soon(), &taken), StatusCode::kClosed);
  EXPECT_CODE(rank.window.test_notify(TakeMode::kAny, what, &taken), StatusCode::kClosed);
  EXPECT_CODE(rank.window.notify_fileno().status(), StatusCode::kClosed);
}

TEST_P(WindowTeardown, after_free_every_call_says_closed_and_free_may_be_repeated) {
  run(2, 64, [](Rank& rank) {
    EXPECT_OK(rank.window.notify_fileno());
    ASSERT_OK(rank.window.free(soon()));
    expect_closed(rank);
    EXPECT_OK(rank.window.free(soon()));
    EXPECT_TRUE(rank.window.failed_ranks().empty());
  });
}

TEST_P(WindowTeardown, free_is_refused_while_an_epoch_is_open) {
  run(2, 64, [](Rank& rank) {
    ASSERT_OK(rank.window.lock(rank.right(), false, soon()));
    EXPECT_CODE(rank.window.free(soon()), StatusCode::kWrongEpoch);
    ASSERT_OK(rank.window.unlock(rank.right(), soon()));
    ASSERT_OK(rank.window.post({rank.left()}));
    EXPECT_CODE(rank.window.free(soon()), StatusCode::kWrongEpoch);
    ASSERT_OK(rank.window.start({rank.right()}, soon()));
    ASSERT_OK(rank.window.complete(soon()));
    ASSERT_OK(rank.window.wait_exposure(soon()));
    EXPECT_OK(rank.window.free(soon()));
  });
}

TEST_P(WindowTeardown, a_free_that_timed_out_is_resumed) {
  run(2, 64, [](Rank& rank) {
    if (rank.me == 0) {
      EXPECT_CODE(rank.window.free(at_once()), StatusCode::kTimeout);
      EXPECT_CODE(rank.fence(), StatusCode::kWrongEpoch);
      EXPECT_FALSE(rank.window.closed());
    }
    rank.meet();
    EXPECT_OK(rank.window.free(soon()));
  });
}

TEST_P(WindowTeardown, a_mapping_that_somebody_keeps_outlives_the_window) {
  std::vector<std::shared_ptr<const void>> kept(2);
  std::vector<const std::byte*> mapped(2);
  run(2, 4096, [&](Rank& rank) {
    const auto me = static_cast<std::size_t>(rank.me);
    fill_pattern(rank.local().data(), 4096, me);
    rank.meet();
    mapped[me] = rank.window.mapped(rank.right(), &kept[me]);
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    if (GetParam().data != "shm") continue;  // elsewhere the memory is not mapped, or its owner's
    ASSERT_NE(mapped[rank], nullptr);
    EXPECT_EQ(first_mismatch(mapped[rank], 4096, 1 - rank), 4096U);
  }
}

TEST_P(WindowTeardown, an_abort_is_peer_lost_for_every_call_that_needs_the_rank) {
  run(3, 64, [](Rank& rank) {
    if (rank.me == 2) {
      rank.window.abort();
      expect_closed(rank);
      rank.meet();
      rank.meet();
      return;
    }
    rank.meet();
    EXPECT_CODE(rank.window.lock(2, true, soon()), StatusCode::kPeerLost);
    EXPECT_CODE(rank.window.lock_all(soon()), StatusCode::kPeerLost);
    EXPECT_CODE(rank.window.post({2}), StatusCode::kPeerLost);
    EXPECT_CODE(rank.window.start({2}, soon()), StatusCode::kPeerLost);
    const Status fenced = rank.fence();
    EXPECT_CODE(fenced, StatusCode::kPeerLost);
    EXPECT_EQ(fenced.detail().peer_rank, 2);
    EXPECT_EQ(rank.window.failed_ranks(), std::vector<int>{2});
    rank.meet();
  });
}

TEST_P(WindowTeardown, the_living_go_on_without_the_lost_one) {
  run(3, 64, [](Rank& rank) {
    if (rank.me == 2) {
      rank.window.abort();
      rank.meet();
      rank.meet();
      return;
    }
    rank.meet();
    const int other = 1 - rank.me;
    ASSERT_OK(rank.window.lock(other, true, soon()));
    const Bytes payload = make_pattern(64, static_cast<std::uint64_t>(rank.me));
    EXPECT_OK(rank.put_notify(payload, other, 0, {.id = 1}));
    EXPECT_CODE(rank.put(payload, 2, 0), StatusCode::kPeerLost);
    ASSERT_OK(rank.window.unlock(other, soon()));
    EXPECT_OK(rank.wait_for(1, 1, other));
    EXPECT_EQ(first_mismatch(rank.local().data(), 64, static_cast<std::uint64_t>(other)), 64U);
    rank.meet();
    rank.window.abort();
  });
}

TEST_P(WindowTeardown, free_without_a_lost_rank_works_alone) {
  run(3, 64, [](Rank& rank) {
    if (rank.me == 1) rank.window.abort();
    rank.meet();
    if (rank.me == 1) return;
    EXPECT_OK(rank.window.free(soon()));
    expect_closed(rank);
  });
}

TEST_P(WindowTeardown, who_waits_in_a_fence_is_woken_by_a_loss) {
  run(3, 64, [](Rank& rank) {
    if (rank.me != 0) {
      EXPECT_CODE(rank.fence(), StatusCode::kPeerLost);
      return;
    }
    rank.window.abort();
  });
}

TEST_P(WindowTeardown, a_wait_reports_what_arrived_before_it_reports_the_loss) {
  run(3, 64, [](Rank& rank) {
    if (rank.me == 1) {
      ASSERT_OK(rank.window.lock(0, false, soon()));
      EXPECT_OK(rank.notify(0, {.id = 1, .value = 5}));
      ASSERT_OK(rank.window.unlock(0, soon()));
      rank.window.abort();
    }
    rank.meet();
    if (rank.me == 0) {
      auto note = rank.wait_for(1, 1, 1);
      ASSERT_OK(note);
      EXPECT_EQ(note.value().value, 5U);
      EXPECT_CODE(rank.wait_for(1, 1, 1).status(), StatusCode::kPeerLost);
      // Any source: once for the newly lost, then on with the living.
      const Status first = rank.wait_for(2).status();
      EXPECT_CODE(first, StatusCode::kPeerLost);
      EXPECT_EQ(first.detail().peer_rank, 1);
      rank.meet();
      EXPECT_OK(rank.wait_for(2));
    } else {
      rank.meet();
      if (rank.me == 2) {
        ASSERT_OK(rank.window.lock(0, false, soon()));
        EXPECT_OK(rank.notify(0, {.id = 2}));
        ASSERT_OK(rank.window.unlock(0, soon()));
      }
    }
    rank.meet();
    if (rank.me == 2) rank.window.abort();
    rank.meet();
    if (rank.me != 0) return;
    // Now nobody is left: reported each time.
    for (int i = 0; i < 3; ++i) EXPECT_CODE(rank.wait_for(3).status(), StatusCode::kPeerLost);
    rank.window.abort();
  });
}

TEST_P(WindowTeardown, who_sleeps_for_a_notification_is_woken_by_the_loss_of_its_source) {
  run(2, 64, [](Rank& rank) {
    if (rank.me == 0) {
      EXPECT_CODE(rank.wait_for(1, 1, 1).status(), StatusCode::kPeerLost);
      EXPECT_CODE(rank.wait_for(1).status(), StatusCode::kPeerLost);
      return;
    }
    rank.window.abort();
  });
}

TEST_P(WindowTeardown, who_waits_for_a_lock_learns_that_its_holder_left) {
  run(3, 64, [](Rank& rank) {
    if (rank.me == 2) {
      ASSERT_OK(rank.window.lock(0, true, soon()));
      rank.meet();
      rank.window.abort();
      return;
    }
    rank.meet();
    EXPECT_CODE(rank.window.lock(0, rank.me == 0, soon()), StatusCode::kPeerLost);
  });
}

TEST_P(WindowTeardown, threads_inside_waits_end_with_closed_when_the_window_goes) {
  run(1, 64, [](Rank& rank) {
    std::thread waiter([&] { EXPECT_CODE(rank.wait_for(1).status(), StatusCode::kClosed); });
    while (rank.window.segment()->data() == nullptr) std::this_thread::yield();
    rank.window.abort();
    waiter.join();
  });
}

TEST_P(WindowTeardown, no_byte_lands_in_created_memory_after_its_owner_left) {
  // `self` is a process's own memory: nobody has to be kept out of it.
  if (!GetParam().takes_created) return;
  constexpr std::size_t kBytes = std::size_t{4} << 20;  // a copy of many slices
  for (int round = 0; round < rounds(20, 5); ++round) {
    std::vector<Bytes> memory(2, Bytes(kBytes));
    const auto configure = [&](int rank, WindowOptions& options) {
      options.memory = memory[static_cast<std::size_t>(rank)].data();
      options.nbytes = kBytes;
    };
    std::atomic<int> puts{0};
    run(2, configure, [&](Rank& rank) {
      if (rank.me == 0) {
        while (puts.load() < 2) std::this_thread::yield();
        rank.window.abort();
        rank.window.release();
        std::memset(memory[0].data(), 7, kBytes);
        rank.meet();
        return;
      }
      ASSERT_OK(rank.window.lock(0, false, soon()));
      const Bytes ones(kBytes, std::byte{1});
      Status status;
      for (; status.ok(); puts.fetch_add(1)) {
        status = rank.put(ones, 0, 0);
        if (status.ok()) status = rank.flush(0);
      }
      EXPECT_TRUE(status.code() == StatusCode::kPeerLost || status.code() == StatusCode::kStale)
          << status.text();
      rank.meet();
      rank.window.abort();
    });
    EXPECT_TRUE(std::ranges::all_of(memory[0], [](std::byte b) { return b == std::byte{7}; }));
  }
}

TEST_P(WindowTeardown, a_forked_child_can_use_nothing_and_harms_nothing) {
  // Forked from a process with threads of its own: the child only asks and leaves.
  run(1, 64, [](Rank& rank) {
    ASSERT_OK(rank.fence());
    Child child([&](Channel&) {
      Taken taken;
      EXPECT_CODE(rank.put(kZeros, 0, 0), StatusCode::kForked);
      EXPECT_CODE(rank.fence(), StatusCode::kForked);
      EXPECT_CODE(rank.window.lock(0, true, soon()), StatusCode::kForked);
      EXPECT_CODE(rank.window.test_notify(TakeMode::kAny, {{0, 1, {}}}, &taken),
                  StatusCode::kForked);
      EXPECT_CODE(rank.window.free(soon()), StatusCode::kForked);
      rank.window.abort();
    });
    EXPECT_EQ(child.wait(), 0);
    EXPECT_OK(rank.put(kZeros, 0, 0));
    ASSERT_OK(rank.fence());
    EXPECT_TRUE(rank.window.failed_ranks().empty());
  });
}

}  // namespace
}  // namespace hixl_rma::testing
