// SPDX-License-Identifier: Apache-2.0
//
// What the fake transport adds to the claims: back-pressure, reordering, faults, loss. What it
// shows of the layers above is in ../window.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "conformance/side.h"
#include "support/patience.h"
#include "support/pattern.h"
#include "support/status_assert.h"

namespace hixl_rma::testing {
namespace {

using fakes::FakeExecution;
using fakes::FakeOptions;
using fakes::FakeSession;
using fakes::FakeVerb;

constexpr std::size_t kBytes = 4096;

/// Two sides in this thread, the near one connected to the far one.
struct Pair {
  explicit Pair(const FakeOptions& options) : session(options) {
    const Trial trial = {.label = "fake", .transport = "fake"};
    far = Side::create(trial, kBytes, 2).take();
    near = Side::create(trial, kBytes, 1).take();
    EXPECT_OK(near->connect(far->introduction()));
  }

  PostResult post_put(std::uint64_t offset, std::size_t nbytes, Completion& completion) {
    completion.add();
    return near->endpoint().put(near->remote(), {near->data(), offset, nbytes}, &completion);
  }

  void finish(const Completion& completion) {
    while (!completion.done()) near->engine().idle();
  }

  FakeSession session;
  std::unique_ptr<Side> far;
  std::unique_ptr<Side> near;
};

std::vector<std::uint64_t> serials_of(const std::vector<FakeExecution>& executed) {
  std::vector<std::uint64_t> serials;
  for (const FakeExecution& execution : executed) serials.push_back(execution.serial);
  return serials;
}

}  // namespace

TEST(FakeTransport, is_not_viable_without_a_session) {
  EXPECT_CODE(fakes::probe_fake().status(), StatusCode::kUnavailable);
}

TEST(FakeTransport, a_full_queue_answers_again_and_takes_the_post_after_progress) {
  Pair pair({.target_executes = false, .queue_capacity = 4});
  std::deque<Completion> completions(5);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(pair.post_put(i * 8, 8, completions[i]).state, Post::kPending);
  }
  EXPECT_EQ(pair.post_put(32, 8, completions[4]).state, Post::kAgain);
  EXPECT_EQ(pair.near->engine().progress(), 1U);
  completions[4].complete({});  // takes back the share of the post that did not happen
  EXPECT_EQ(pair.post_put(32, 8, completions[4]).state, Post::kPending);
  for (const Completion& completion : completions) pair.finish(completion);
}

TEST(FakeTransport, reorders_puts_but_never_across_a_notify_or_a_flush) {
  Pair pair({.eager_bytes = 0, .reorder_seed = 3});
  pair.session.hold();
  Completion completion;
  constexpr std::uint64_t kPuts = 20;
  const RecordWrite record{kBytes - 64, 1, {1}};
  for (int part = 0; part < 3; ++part) {
    for (std::uint64_t i = 0; i < kPuts; ++i) {
      ASSERT_EQ(pair.post_put(8 * i, 8, completion).state, Post::kPending);
    }
    completion.add();
    const PostResult barrier =
        part == 0
            ? pair.near->endpoint().notify(pair.near->remote(), std::span(&record, 1), &completion)
            : pair.near->endpoint().flush(FlushScope::kRemote, &completion);
    ASSERT_EQ(barrier.state, Post::kPending);
  }
  pair.session.release();
  pair.finish(completion);
  const auto serials = serials_of(pair.session.executed());
  ASSERT_EQ(serials.size(), 3 * (kPuts + 1));
  EXPECT_FALSE(std::ranges::is_sorted(serials));
  for (std::uint64_t part = 0; part < 3; ++part) {
    const auto begin = serials.begin() + static_cast<std::ptrdiff_t>(part * (kPuts + 1));
    const std::uint64_t barrier = part * (kPuts + 1) + kPuts;
    EXPECT_EQ(*(begin + kPuts), barrier);
    EXPECT_TRUE(std::all_of(begin, begin + kPuts, [&](std::uint64_t serial) {
      return serial < barrier && serial + kPuts >= barrier;
    }));
  }
}

TEST(FakeTransport, a_post_that_fails_has_done_nothing) {
  Pair pair({});
  fill_pattern(pair.near->data(), kBytes, 1);
  pair.session.fail_post(FakeVerb::kPut, 2);
  EXPECT_OK(pair.near->put(pair.near->data(), 0, 8));
  EXPECT_CODE(pair.near->put(pair.near->data(), 8, 8), StatusCode::kTransferFailed);
  EXPECT_OK(pair.near->put(pair.near->data(), 16, 8));
  EXPECT_OK(pair.near->flush(FlushScope::kRemote));
  EXPECT_EQ(pair.far->data()[0], pattern_at(1, 0));
  EXPECT_EQ(pair.far->data()[8], std::byte{0});
  EXPECT_EQ(pair.far->data()[16], pattern_at(1, 0));
}

TEST(FakeTransport, a_failed_put_delivers_no_later_notify_until_a_flush) {
  Pair pair({});
  fill_pattern(pair.near->data(), kBytes, 1);
  pair.session.fail_completion(FakeVerb::kPut, 1);
  Completion put;
  ASSERT_EQ(pair.post_put(0, 8, put).state, Post::kPending);
  EXPECT_CODE(pair.near->notify({512, 1, {7}}), StatusCode::kTransferFailed);
  pair.finish(put);
  EXPECT_CODE(put.status(), StatusCode::kTransferFailed);
  EXPECT_EQ(pair.far->data()[512], std::byte{0});
  EXPECT_OK(pair.near->flush(FlushScope::kRemote));
  EXPECT_OK(pair.near->notify({512, 1, {7}}));
  EXPECT_EQ(pair.far->data()[512], std::byte{7});
}

TEST(FakeTransport, memory_that_was_withdrawn_is_stale_and_no_byte_lands) {
  FakeSession session;
  const Trial trial = {.label = "fake", .transport = "fake"};
  auto far = Side::create(trial, kBytes, 2).take();
  auto near = Side::create(trial, kBytes, 1).take();
  Bytes memory(64);
  auto region =
      far->engine().register_memory({memory.data(), memory.size()}, Access::kReadWrite, 1);
  ASSERT_OK(region);
  auto peer = near->engine().connect(far->engine().address(), true);
  ASSERT_OK(peer);
  auto imported =
      near->engine().import_region(*peer.value(), region.value()->packed_keys(), 1, Deadline());
  ASSERT_OK(imported);
  region.value().reset();
  fill_pattern(near->data(), 64, 1);
  Status status = near->engine().run([&](Completion* done) {
    return peer.value()->endpoints[0]->put(*imported.value().regions[0], {near->data(), 0, 64},
                                           done);
  });
  EXPECT_CODE(status, StatusCode::kStale);
  EXPECT_EQ(memory, Bytes(64));
}

TEST(FakeTransport, a_run_that_is_not_answered_ends_in_time_and_what_it_works_on_lives_on) {
  Pair pair({});
  pair.session.hold();
  auto data = std::make_shared<Bytes>(make_pattern(8, 3));
  std::byte* const from = data->data();
  const std::weak_ptr<Bytes> watched = data;
  const Deadline deadline = at_once();
  Side& near = *pair.near;
  Status status = near.engine().run(
      [&](Completion* done) { return near.endpoint().put(near.remote(), {from, 0, 8}, done); },
      &deadline, std::move(data));
  EXPECT_CODE(status, StatusCode::kTimeout);
  EXPECT_FALSE(watched.expired());
  pair.session.release();
  Completion flushed;
  flushed.add();
  const PostResult posted = near.endpoint().flush(FlushScope::kRemote, &flushed);
  if (posted.state == Post::kPending) pair.finish(flushed);
  EXPECT_EQ(first_mismatch(pair.far->data(), 8, 3), 8U);
}

TEST(FakeTransport, with_the_target_gone_everything_fails_with_peer_lost) {
  Pair pair({});
  pair.session.hold();
  Completion queued;
  ASSERT_EQ(pair.post_put(0, 8, queued).state, Post::kPending);
  pair.far.reset();
  pair.finish(queued);
  EXPECT_CODE(queued.status(), StatusCode::kPeerLost);
  EXPECT_CODE(pair.near->put(pair.near->data(), 0, 8), StatusCode::kPeerLost);
}

TEST(FakeTransport, a_closed_endpoint_takes_no_post) {
  Pair pair({});
  pair.near->endpoint().close({});
  EXPECT_CODE(pair.near->put(pair.near->data(), 0, 8), StatusCode::kClosed);
  EXPECT_CODE(pair.near->flush(FlushScope::kRemote), StatusCode::kClosed);
}

}  // namespace hixl_rma::testing
