// SPDX-License-Identifier: Apache-2.0
//
// Claims about the answer of a post and the completion that goes with it.
#include <array>
#include <deque>
#include <vector>

#include "conformance/claims.h"
#include "support/pattern.h"

namespace hixl_rma::testing {

TEST_P(PostClaims, a_completion_fires_from_progress_alone_and_exactly_once) {
  constexpr std::size_t kPosts = 16;
  const Bytes origin = make_pattern(kPosts * 100, 3);
  std::deque<Completion> completions(kPosts);
  std::vector<bool> pending(kPosts);
  for (std::size_t i = 0; i < kPosts; ++i) {
    const Piece piece{const_cast<std::byte*>(origin.data()) + i * 100, kPayload + i * 100, 100};
    completions[i].add(2);  // one more than the post may take: firing twice would show
    const PostResult posted = near().endpoint().put(near().remote(), piece, &completions[i]);
    ASSERT_TRUE(posted.state == Post::kDone || posted.state == Post::kPending);
    EXPECT_EQ(posted.state == Post::kDone, completes_inline());
    pending[i] = posted.state == Post::kPending;
  }
  // Nobody has made progress: whatever the target did meanwhile, nothing has fired.
  if (session_ && GetParam().fake.target_executes) {
    while (session_->executed_count() < kPosts) std::this_thread::yield();
  }
  for (std::size_t i = 0; i < kPosts; ++i) {
    if (!pending[i]) completions[i].complete({});
    completions[i].complete({});
    EXPECT_EQ(completions[i].done(), !pending[i]);
  }
  EXPECT_EQ(near().engine().needs_progress(), !completes_inline());
  ASSERT_OK(near().flush(FlushScope::kRemote));
  for (int round = 0; round < 100; ++round) near().engine().progress();
  EXPECT_FALSE(near().engine().needs_progress());
  for (const Completion& completion : completions) {
    EXPECT_TRUE(completion.done());
    EXPECT_OK(completion.status());
  }
}

TEST_P(PostClaims, one_completion_counts_many_operations) {
  const Bytes origin = make_pattern(64, 4);
  Completion completion;
  for (int i = 0; i < 50; ++i) {
    const Piece piece{const_cast<std::byte*>(origin.data()), kPayload, 64};
    ASSERT_OK(near().issue(completion, [&](Completion* done) {
      return near().endpoint().put(near().remote(), piece, done);
    }));
  }
  while (!completion.done()) near().engine().idle();
  EXPECT_OK(completion.status());
}

TEST_P(PostClaims, closing_fires_what_is_outstanding_once_with_canceled) {
  if (session_) session_->hold();
  const Bytes origin = make_pattern(8, 5);
  std::deque<Completion> completions(5);
  std::vector<bool> pending;
  for (Completion& completion : completions) {
    completion.add(2);
    const Piece piece{const_cast<std::byte*>(origin.data()), kPayload, 8};
    pending.push_back(near().endpoint().put(near().remote(), piece, &completion).state ==
                      Post::kPending);
  }
  near().endpoint().close(Status::error(StatusCode::kCanceled, "the test closes"));
  near().endpoint().close(Status::error(StatusCode::kCanceled, "and once more"));
  for (std::size_t i = 0; i < completions.size(); ++i) {
    completions[i].complete({});
    EXPECT_EQ(completions[i].done(), pending[i]);  // a Done post has left its share
    EXPECT_CODE(completions[i].status(), pending[i] ? StatusCode::kCanceled : StatusCode::kOk);
  }
  if (session_) session_->release();
}

TEST_P(PostClaims, verbs_that_a_transport_has_not_are_unsupported_and_change_nothing) {
  const Capabilities capabilities = near().engine().capabilities(0);
  EXPECT_TRUE(capabilities.accumulate);
  if (capabilities.control) return;
  target().fill(0, 256, 6);
  EXPECT_CODE(near().notify({kRecordWord, 1, {1}}), StatusCode::kUnsupported);
  EXPECT_CODE(near().fetch_add(kCounterWord, 1).status(), StatusCode::kUnsupported);
  EXPECT_CODE(near().compare_swap(kCounterWord, 0, 1).status(), StatusCode::kUnsupported);
  EXPECT_EQ(target().read(0, 256), make_pattern(256, 6));
}

TEST_P(PostClaims, posts_of_several_threads_on_one_endpoint_are_all_placed) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kPuts = 50;
  constexpr std::size_t kLength = 200;
  const Bytes origin = make_pattern(kThreads * kPuts * kLength, 7);
  std::vector<std::thread> threads;
  std::array<Status, kThreads> failures;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < kPuts && failures[t].ok(); ++i) {
        const std::size_t at = (t * kPuts + i) * kLength;
        failures[t] = near().put(origin.data() + at, kPayload + at, kLength);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& failure : failures) EXPECT_OK(failure);
  ASSERT_OK(near().flush(FlushScope::kRemote));
  EXPECT_EQ(target().read(kPayload, origin.size()), origin);
}

}  // namespace hixl_rma::testing
