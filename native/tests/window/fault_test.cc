// SPDX-License-Identifier: Apache-2.0
//
// Operations that are outstanding, refused for now, or fail: what the window makes of a transport
// whose posts are Pending. The fake transport stands for tcp and verbs; window and engine know none
// of them.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "support/pattern.h"
#include "window/ranks.h"

namespace hixl_rma::testing {
namespace {

using fakes::FakeOptions;
using fakes::FakeSession;
using fakes::FakeVerb;

const World kFakeAlone = {.label = "fake", .registry = {"fake"}, .data = "fake"};
const World kFakeData = {.label = "fake_data", .registry = {"shm", "fake"}, .data = "fake"};

TEST(WindowFaults, a_failed_put_is_reported_by_one_flush_and_only_once) {
  FakeSession session;
  run_ranks(kFakeAlone, 1, 4096, [&](Rank& rank) {
    ASSERT_OK(rank.window.lock(0, true, soon()));
    const Bytes payload = make_pattern(64, 1);
    session.fail_completion(FakeVerb::kPut, 2);
    for (std::uint64_t i = 0; i < 3; ++i) EXPECT_OK(rank.put(payload, 0, 100 * i));
    const Status failed = rank.flush(0);
    EXPECT_CODE(failed, StatusCode::kTransferFailed);
    EXPECT_OK(rank.flush(0));
    EXPECT_OK(rank.put(payload, 0, 100));
    ASSERT_OK(rank.window.unlock(0, soon()));
    EXPECT_EQ(first_mismatch(rank.local().data() + 100, 64, 1), 64U);
    EXPECT_EQ(first_mismatch(rank.local().data() + 200, 64, 1), 64U);
  });
}

TEST(WindowFaults, a_post_that_is_refused_is_reported_at_once_with_transport_and_peer) {
  FakeSession session;
  run_ranks(kFakeAlone, 1, 4096, [&](Rank& rank) {
    ASSERT_OK(rank.window.lock(0, true, soon()));
    const Bytes payload = make_pattern(64, 1);
    session.fail_post(FakeVerb::kPut, 1);
    const Status failed = rank.put(payload, 0, 0);
    EXPECT_CODE(failed, StatusCode::kTransferFailed);
    EXPECT_EQ(failed.detail().transport, "fake");
    EXPECT_EQ(failed.detail().peer_rank, 0);
    EXPECT_OK(rank.put(payload, 0, 0));
    ASSERT_OK(rank.window.unlock(0, soon()));
    EXPECT_EQ(first_mismatch(rank.local().data(), 64, 1), 64U);
  });
}

TEST(WindowFaults, a_failed_put_delivers_no_notification) {
  for (const World* world : {&kFakeAlone, &kFakeData}) {
    FakeSession session;
    run_ranks(*world, 1, 4096, [&](Rank& rank) {
      ASSERT_OK(rank.window.lock(0, true, soon()));
      const Bytes payload = make_pattern(2000, 1);
      session.fail_completion(FakeVerb::kPut, 1);
      EXPECT_CODE(rank.put_notify(payload, 0, 0, {.id = 1}), StatusCode::kTransferFailed);
      EXPECT_EQ(rank.window.notify_count(1, kAnySource).value(), 0U);
      (void)rank.flush(0);
      EXPECT_OK(rank.put_notify(payload, 0, 0, {.id = 1, .value = 3}));
      auto note = rank.wait_for(1);
      ASSERT_OK(note);
      EXPECT_EQ(note.value().count, 1U);
      EXPECT_EQ(note.value().value, 3U);
      EXPECT_EQ(first_mismatch(rank.local().data(), 2000, 1), 2000U);
      ASSERT_OK(rank.window.unlock(0, soon()));
    });
  }
}

TEST(WindowFaults, every_wait_for_what_a_peer_does_not_answer_is_bounded_by_its_deadline) {
  FakeSession session;
  run_ranks(kFakeData, 1, 4096, [&](Rank& rank) {
    ASSERT_OK(rank.window.lock(0, true, soon()));
    const Bytes payload = make_pattern(2000, 1);
    std::int64_t compare = 0;
    std::int64_t result = 5;
    const auto* bytes = reinterpret_cast<const std::byte*>(&compare);
    session.hold();
    Completion request;
    Window::Issue issue{.own = &request};
    ASSERT_OK(rank.window.put(payload.data(), payload.size(), 0, 0, issue));
    EXPECT_CODE(rank.window.wait(request, at_once()), StatusCode::kTimeout);
    // Nothing but the request is outstanding: a flush is behind it, too.
    EXPECT_CODE(rank.window.flush(0, FlushScope::kRemote, at_once()), StatusCode::kTimeout);
    EXPECT_CODE(rank.window.flush(0, FlushScope::kLocal, at_once()), StatusCode::kTimeout);
    Window::Issue swap;
    EXPECT_OK(rank.window.compare_and_swap(DataType::kInt64, bytes, bytes,
                                           reinterpret_cast<std::byte*>(&result), 0, 3000, swap));
    EXPECT_TRUE(swap.pending);
    EXPECT_CODE(rank.window.unlock(0, at_once()), StatusCode::kTimeout);
    session.release();
    ASSERT_OK(rank.window.unlock(0, soon()));
    EXPECT_TRUE(request.done());
    EXPECT_EQ(result, 0);
    EXPECT_EQ(first_mismatch(rank.local().data(), 2000, 1), 2000U);
  });
}

TEST(WindowFaults, who_waits_for_an_operation_is_sent_away_when_the_window_goes) {
  FakeSession session;
  run_ranks(kFakeAlone, 1, 4096, [&](Rank& rank) {
    ASSERT_OK(rank.window.lock(0, true, soon()));
    const Bytes payload = make_pattern(2000, 1);
    Completion request;
    Window::Issue issue{.own = &request};
    session.hold();
    ASSERT_OK(rank.window.put(payload.data(), payload.size(), 0, 0, issue));
    std::atomic<bool> waits{false};
    std::thread waiter([&] {
      const Window::Inside inside(rank.window);
      waits.store(true);
      EXPECT_CODE(rank.window.wait(request, Deadline()), StatusCode::kClosed);
    });
    while (!waits.load()) std::this_thread::yield();
    rank.window.abort();
    waiter.join();
    rank.window.release();
    EXPECT_TRUE(request.done());
    EXPECT_CODE(request.status(), StatusCode::kCanceled);
  });
  session.release();
}

TEST(WindowFaults, what_a_request_works_on_is_held_until_it_is_done_and_not_longer) {
  FakeSession session;
  run_ranks(kFakeAlone, 1, 4096, [&](Rank& rank) {
    ASSERT_OK(rank.window.lock(0, true, soon()));
    const Bytes payload = make_pattern(2000, 1);
    auto work = std::make_shared<Completion>();
    const std::weak_ptr<Completion> watched = work;
    Window::Issue issue{.own = work.get()};
    session.hold();
    ASSERT_OK(rank.window.put(payload.data(), payload.size(), 0, 0, issue));
    rank.window.hold(0, work, work.get());
    work.reset();  // nobody keeps the request
    EXPECT_CODE(rank.window.flush(0, FlushScope::kRemote, at_once()), StatusCode::kTimeout);
    EXPECT_FALSE(watched.expired());
    session.release();
    ASSERT_OK(rank.window.unlock(0, soon()));
    EXPECT_TRUE(watched.expired());
  });
}

TEST(WindowFaults, a_full_queue_slows_down_and_loses_nothing) {
  for (const bool target_executes : {true, false}) {
    FakeSession session({.target_executes = target_executes, .queue_capacity = 2});
    run_ranks(kFakeAlone, 2, 100 * 64, [](Rank& rank) {
      ASSERT_OK(rank.fence());
      const Bytes payload = make_pattern(100 * 64, static_cast<std::uint64_t>(rank.me));
      for (std::uint64_t i = 0; i < 100; ++i) {
        EXPECT_OK(rank.put(std::span(payload).subspan(i * 64, 64), rank.right(), i * 64));
      }
      ASSERT_OK(rank.fence());
      EXPECT_EQ(first_mismatch(rank.local().data(), 6400, static_cast<std::uint64_t>(rank.left())),
                6400U);
    });
  }
}

TEST(WindowFaults, a_flush_that_timed_out_leaves_its_operations_outstanding) {
  FakeSession session;
  run_ranks(kFakeData, 1, 4096, [&](Rank& rank) {
    ASSERT_OK(rank.window.lock(0, true, soon()));
    const Bytes payload = make_pattern(4000, 1);
    session.hold();
    EXPECT_OK(rank.put(payload, 0, 0));
    EXPECT_CODE(rank.window.flush(0, FlushScope::kRemote, at_once()), StatusCode::kTimeout);
    EXPECT_CODE(rank.window.unlock(0, at_once()), StatusCode::kTimeout);
    EXPECT_EQ(rank.local()[0], std::byte{0});
    session.release();
    EXPECT_OK(rank.flush(0));
    EXPECT_EQ(first_mismatch(rank.local().data(), 4000, 1), 4000U);
    ASSERT_OK(rank.window.unlock(0, soon()));
  });
}

TEST(WindowFaults, a_fence_with_outstanding_operations_times_out_and_is_resumed) {
  FakeSession session;
  run_ranks(kFakeData, 1, 4096, [&](Rank& rank) {
    ASSERT_OK(rank.fence());
    const Bytes payload = make_pattern(4000, 1);
    session.hold();
    EXPECT_OK(rank.put(payload, 0, 0));
    EXPECT_CODE(rank.window.fence(0, at_once()), StatusCode::kTimeout);
    EXPECT_CODE(rank.put(payload, 0, 0), StatusCode::kWrongEpoch);
    session.release();
    ASSERT_OK(rank.fence());
    EXPECT_EQ(first_mismatch(rank.local().data(), 4000, 1), 4000U);
  });
}

TEST(WindowFaults, a_request_wait_that_timed_out_can_be_waited_for_again) {
  FakeSession session;
  run_ranks(kFakeData, 1, 4096, [&](Rank& rank) {
    ASSERT_OK(rank.window.lock(0, true, soon()));
    const Bytes payload = make_pattern(4000, 1);
    session.hold();
    Completion completion;
    Window::Issue issue{.own = &completion};
    EXPECT_OK(rank.window.put(payload.data(), payload.size(), 0, 0, issue));
    EXPECT_TRUE(issue.pending);
    EXPECT_CODE(rank.window.wait(completion, at_once()), StatusCode::kTimeout);
    session.release();
    EXPECT_OK(rank.window.wait(completion, soon()));
    EXPECT_EQ(first_mismatch(rank.local().data(), 4000, 1), 4000U);
    ASSERT_OK(rank.window.unlock(0, soon()));
  });
}

TEST(WindowFaults, an_abort_cancels_what_is_outstanding_and_no_byte_lands) {
  FakeSession session;
  run_ranks(kFakeData, 1, 4096, [&](Rank& rank) {
    ASSERT_OK(rank.window.lock(0, true, soon()));
    const Bytes payload = make_pattern(4000, 1);
    session.hold();
    Completion completion;
    Window::Issue issue{.own = &completion};
    EXPECT_OK(rank.window.put(payload.data(), payload.size(), 0, 0, issue));
    EXPECT_OK(rank.put(payload, 0, 0));
    const std::shared_ptr<SharedSegment> memory = rank.window.segment();
    rank.window.abort();
    rank.window.release();
    session.release();
    EXPECT_TRUE(completion.done());
    EXPECT_CODE(completion.status(), StatusCode::kCanceled);
    EXPECT_EQ(rank.window.local_memory()[0], std::byte{0});
  });
}

TEST(WindowFaults, memory_is_held_until_the_operations_on_it_are_through) {
  FakeSession session;
  run_ranks(kFakeData, 1, 4096, [&](Rank& rank) {
    ASSERT_OK(rank.window.lock(0, true, soon()));
    auto payload = std::make_shared<Bytes>(make_pattern(4000, 1));
    const std::weak_ptr<Bytes> watched = payload;
    session.hold();
    Window::Issue issue;
    EXPECT_OK(rank.window.put(payload->data(), payload->size(), 0, 0, issue));
    rank.window.hold(0, std::move(payload));
    EXPECT_CODE(rank.window.flush(0, FlushScope::kRemote, at_once()), StatusCode::kTimeout);
    EXPECT_FALSE(watched.expired());
    session.release();
    EXPECT_OK(rank.flush(0));
    EXPECT_TRUE(watched.expired());
    EXPECT_EQ(first_mismatch(rank.local().data(), 4000, 1), 4000U);
    ASSERT_OK(rank.window.unlock(0, soon()));
  });
}

TEST(WindowFaults, a_wait_on_completions_that_another_thread_fires_does_not_oversleep) {
  FakeSession session;
  run_ranks(kFakeData, 1, 4096, [&](Rank& rank) {
    ASSERT_OK(rank.window.lock(0, true, soon()));
    std::atomic<bool> stop{false};
    std::thread other([&] {
      while (!stop) rank.window.progress();
    });
    const Bytes payload(8);
    int overslept = 0;
    for (int i = 0; i < rounds(10000, 1000); ++i) {
      EXPECT_OK(rank.put(payload, 0, 0));
      const auto begun = Clock::now();
      EXPECT_OK(rank.flush(0));
      overslept += Clock::now() - begun >= kLongestSleep ? 1 : 0;
    }
    EXPECT_LE(overslept, 2);  // that often the machine may be to blame
    stop = true;
    other.join();
    ASSERT_OK(rank.window.unlock(0, soon()));
  });
}

}  // namespace
}  // namespace hixl_rma::testing
