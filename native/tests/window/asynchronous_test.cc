// SPDX-License-Identifier: Apache-2.0
//
// Large operations of requests: the caller goes on, and whatever is to come after them waits.
#include <sys/mman.h>

#include <algorithm>
#include <future>
#include <initializer_list>
#include <iterator>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "support/pattern.h"
#include "window/ranks.h"

namespace hixl_rma::testing {
namespace {

constexpr std::size_t kLarge = std::size_t{3} << 20;

/// Keeps the engine's thread from going on to what it is given next.
class Held {
 public:
  explicit Held(Engine& engine) {
    engine.do_behind([begun = &begun_, released = released_.get_future().share()] {
      begun->set_value();
      released.wait();
    });
    begun_.get_future().wait();
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { release(); }
  void release() {
    if (std::exchange(open_, false)) released_.set_value();
  }

 private:
  std::promise<void> begun_;
  std::promise<void> released_;
  bool open_ = true;
};

class AsynchronousCopies : public WindowTest {
 protected:
  /// Two ranks; rank 0 runs the body in a lock of rank 1, which then looks at its memory.
  void at_origin(const Body& body, const Body& at_target = [](Rank&) {}) {
    run(2, kLarge, [&](Rank& rank) {
      if (rank.me == 0) {
        ASSERT_OK(rank.window.lock(1, false, soon()));
        body(rank);
        if (rank.window.closed()) return;
        ASSERT_OK(rank.window.unlock(1, soon()));
        rank.meet();
      } else {
        rank.meet();
        at_target(rank);
      }
    });
  }
  [[nodiscard]] static Status put(Rank& rank, std::span<const std::byte> from,
                                  Window::Issue& issue) {
    return rank.window.put(from.data(), from.size(), 1, 0, issue);
  }
  static void expect_placed(Rank& rank, std::size_t nbytes = kLarge) {
    EXPECT_EQ(first_mismatch(rank.local().data(), nbytes, 1), nbytes);
  }

  const Bytes data_ = make_pattern(kLarge, 1);
};

std::vector<World> worlds_by(std::initializer_list<std::string_view> transports) {
  std::vector<World> chosen;
  std::ranges::copy_if(worlds(), std::back_inserter(chosen), [&](const World& world) {
    return std::ranges::count(transports, world.data) != 0;
  });
  return chosen;
}
INSTANTIATE_TEST_SUITE_P(By, AsynchronousCopies, ::testing::ValuesIn(worlds_by({"shm", "cma"})),
                         label_of);

// A copy within mapped memory cannot fail.
class AsynchronousFailures : public AsynchronousCopies {};
INSTANTIATE_TEST_SUITE_P(By, AsynchronousFailures, ::testing::ValuesIn(worlds_by({"cma"})),
                         label_of);

TEST_P(AsynchronousCopies, a_large_put_of_a_request_returns_before_its_bytes_are_placed) {
  at_origin(
      [&](Rank& rank) {
        Held held(rank.engine);
        Completion own;
        Window::Issue issue{.own = &own};
        ASSERT_OK(put(rank, data_, issue));
        EXPECT_TRUE(issue.pending);
        EXPECT_FALSE(own.done());
        EXPECT_CODE(rank.window.wait(own, at_once()), StatusCode::kTimeout);
        held.release();
        EXPECT_OK(rank.window.wait(own, soon()));
        EXPECT_TRUE(own.done());
      },
      [](Rank& rank) { expect_placed(rank); });
}

TEST_P(AsynchronousCopies, a_large_get_of_a_request_is_complete_when_its_bytes_are_here) {
  run(2, kLarge, [&](Rank& rank) {
    fill_pattern(rank.local().data(), kLarge, static_cast<std::uint64_t>(rank.me));
    rank.meet();
    ASSERT_OK(rank.window.lock(rank.right(), false, soon()));
    Bytes to(kLarge);
    Completion own;
    Window::Issue issue{.own = &own};
    ASSERT_OK(rank.window.get(to.data(), kLarge, rank.right(), 0, issue));
    ASSERT_OK(rank.window.wait(own, soon()));
    EXPECT_EQ(first_mismatch(to.data(), kLarge, static_cast<std::uint64_t>(rank.right())), kLarge);
    ASSERT_OK(rank.window.unlock(rank.right(), soon()));
    rank.meet();
  });
}

TEST_P(AsynchronousCopies, small_operations_and_those_without_a_request_are_done_at_once) {
  at_origin([&](Rank& rank) {
    const Held held(rank.engine);
    Completion own;
    Window::Issue small{.own = &own};
    ASSERT_OK(put(rank, std::span(data_).first(1000), small));
    Window::Issue plain;
    ASSERT_OK(put(rank, data_, plain));
    EXPECT_FALSE(small.pending);
    EXPECT_FALSE(plain.pending);
    EXPECT_TRUE(own.done());
    EXPECT_OK(rank.flush(1));
  });
}

TEST_P(AsynchronousCopies, flush_waits_for_them_and_may_time_out) {
  at_origin([&](Rank& rank) {
    Held held(rank.engine);
    Completion own;
    Window::Issue issue{.own = &own};
    ASSERT_OK(put(rank, data_, issue));
    EXPECT_CODE(rank.window.flush(1, FlushScope::kRemote, at_once()), StatusCode::kTimeout);
    EXPECT_CODE(rank.window.flush(1, FlushScope::kLocal, at_once()), StatusCode::kTimeout);
    EXPECT_TRUE(rank.window.may_wait(1));
    EXPECT_TRUE(rank.window.may_wait(-1));
    held.release();
    EXPECT_OK(rank.flush(1));
    EXPECT_TRUE(own.done());
    EXPECT_FALSE(rank.window.may_wait(1));
    EXPECT_FALSE(rank.window.may_wait(-1));
  });
}

TEST_P(AsynchronousCopies, what_closes_an_epoch_waits_for_them) {
  run(2, kLarge, [&](Rank& rank) {
    Held held(rank.engine);
    Completion own;
    const auto issue_one = [&] {
      Window::Issue issue{.own = &own};
      ASSERT_OK(rank.window.put(data_.data(), kLarge, rank.right(), 0, issue));
    };
    ASSERT_OK(rank.window.fence(0, soon()));
    issue_one();
    EXPECT_CODE(rank.window.fence(8, at_once()), StatusCode::kTimeout);
    EXPECT_FALSE(own.done());
    rank.meet();
    held.release();
    ASSERT_OK(rank.window.fence(8, soon()));
    EXPECT_TRUE(own.done());
    expect_placed(rank);
    rank.meet();
    std::ranges::fill(rank.local(), std::byte{});
    rank.meet();

    Held again(rank.engine);
    ASSERT_OK(rank.window.lock(rank.right(), false, soon()));
    issue_one();
    EXPECT_CODE(rank.window.unlock(rank.right(), at_once()), StatusCode::kTimeout);
    again.release();
    ASSERT_OK(rank.window.unlock(rank.right(), soon()));
    EXPECT_TRUE(own.done());
    rank.meet();
    expect_placed(rank);
  });
}

TEST_P(AsynchronousCopies, a_notification_of_a_request_comes_behind_its_payload_unasked) {
  run(2, kLarge, [&](Rank& rank) {
    if (rank.me == 1) {
      const auto got = rank.wait_for(3);
      ASSERT_OK(got);
      EXPECT_EQ(got.value().value, 7U);
      expect_placed(rank);
      rank.meet();
      return;
    }
    ASSERT_OK(rank.window.lock(1, false, soon()));
    Completion own;
    Window::Issue issue{.own = &own};
    ASSERT_OK(put(rank, data_, issue));
    ASSERT_OK(rank.window.publish(1, {.id = 3, .value = 7}, at_once(), issue));
    rank.meet();  // the target has it, and this rank has waited for nothing
    EXPECT_OK(rank.window.unlock(1, soon()));
    EXPECT_TRUE(own.done());
  });
}

TEST_P(AsynchronousCopies, notifications_keep_their_order_behind_copies_on_their_way) {
  at_origin(
      [&](Rank& rank) {
        Held held(rank.engine);
        Completion large;
        Completion small;
        Window::Issue first{.own = &large};
        ASSERT_OK(put(rank, data_, first));
        ASSERT_OK(rank.window.publish(1, {.id = 3, .value = 1}, at_once(), first));
        // A small one of a request follows without holding its caller up.
        Window::Issue second{.own = &small};
        ASSERT_OK(put(rank, std::span(data_).first(8), second));
        ASSERT_OK(rank.window.publish(1, {.id = 3, .value = 10}, at_once(), second));
        EXPECT_TRUE(second.pending);
        // One without a request has to wait, unless it is about its own payload alone.
        Window::Issue plain;
        EXPECT_CODE(rank.window.publish(1, {.id = 3, .value = 100}, at_once(), plain),
                    StatusCode::kTimeout);
        EXPECT_OK(rank.window.publish(1, {4, 5, NotifyOrder::kSelf}, at_once(), plain));
        held.release();
        EXPECT_OK(rank.window.publish(1, {.id = 3, .value = 100}, soon(), plain));
        EXPECT_TRUE(large.done());
        EXPECT_TRUE(small.done());
      },
      [](Rank& rank) {
        const auto got = rank.wait_for(3, 3);
        ASSERT_OK(got);
        EXPECT_EQ(got.value().value, 111U);
        EXPECT_OK(rank.wait_for(4));
        expect_placed(rank);
      });
}

TEST_P(AsynchronousFailures, a_copy_that_fails_delivers_no_notification) {
  void* hidden = mmap(nullptr, kLarge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(hidden, MAP_FAILED);
  at_origin(
      [&](Rank& rank) {
        Completion own;
        Window::Issue issue{.own = &own};
        ASSERT_OK(put(rank, {static_cast<const std::byte*>(hidden), kLarge}, issue));
        ASSERT_OK(rank.window.publish(1, {.id = 3}, soon(), issue));
        EXPECT_CODE(rank.window.wait(own, soon()), StatusCode::kAccessDenied);
        EXPECT_OK(rank.flush(1));
      },
      [](Rank& rank) { EXPECT_EQ(rank.window.notify_count(3, kAnySource).value(), 0U); });
  munmap(hidden, kLarge);
}

TEST_P(AsynchronousCopies, an_abort_cancels_what_was_not_begun_and_leaves_the_memory_alone) {
  run(2, kLarge, [&](Rank& rank) {
    if (rank.me == 0) {
      Held held(rank.engine);
      ASSERT_OK(rank.window.lock(1, false, soon()));
      Completion own;
      Window::Issue issue{.own = &own};
      ASSERT_OK(put(rank, data_, issue));
      auto aborted = std::async(std::launch::async, [&] { rank.window.abort(); });
      while (!rank.window.closed()) std::this_thread::yield();
      held.release();
      aborted.wait();
      EXPECT_TRUE(own.done());
      EXPECT_CODE(own.status(), StatusCode::kCanceled);
    }
    rank.meet();
    if (rank.me == 1) {
      EXPECT_TRUE(std::ranges::all_of(rank.local(), [](std::byte b) { return b == std::byte{}; }));
      rank.window.abort();
    }
  });
}

TEST_P(AsynchronousCopies, many_threads_hand_over_at_once) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kPart = std::size_t{1} << 20;
  run(2, kThreads * kPart, [&](Rank& rank) {
    ASSERT_OK(rank.window.lock_all(soon()));
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const Bytes part = make_pattern(kPart, t);
        for (int round = 0; round < rounds(10, 3); ++round) {
          Completion own;
          Window::Issue issue{.own = &own};
          EXPECT_OK(rank.window.put(part.data(), kPart, rank.right(), t * kPart, issue));
          EXPECT_OK(rank.window.publish(rank.right(), {.id = t}, soon(), issue));
          EXPECT_OK(rank.window.wait(own, soon()));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_OK(rank.window.unlock_all(soon()));
    for (std::size_t t = 0; t < kThreads; ++t) {
      EXPECT_OK(rank.wait_for(t, static_cast<std::uint64_t>(rounds(10, 3))));
      EXPECT_EQ(first_mismatch(rank.local().data() + t * kPart, kPart, t), kPart);
    }
    rank.meet();
  });
}

}  // namespace
}  // namespace hixl_rma::testing
