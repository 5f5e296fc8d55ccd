// SPDX-License-Identifier: Apache-2.0
//
// Every rule of Epochs: what is legal in which epoch, and what an error leaves behind.
#include "window/epochs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/status_assert.h"

namespace hixl_rma {
namespace {

constexpr std::size_t kRanks = 4;

void fence(Epochs& epochs, bool opens = true) {
  ASSERT_OK(epochs.begin_fence());
  epochs.end_fence(opens);
}

void lock(Epochs& epochs, std::size_t target, bool exclusive = true) {
  ASSERT_OK(epochs.begin_lock(target));
  epochs.locked(target, exclusive);
}

void unlock(Epochs& epochs, std::size_t target) {
  bool exclusive = false;
  ASSERT_OK(epochs.begin_unlock(target, &exclusive));
  epochs.unlocked(target);
}

void lock_all(Epochs& epochs) {
  ASSERT_OK(epochs.begin_lock_all());
  epochs.locked_all();
}

void start(Epochs& epochs, const std::vector<int>& group) {
  ASSERT_OK(epochs.begin_start());
  epochs.started(group);
}

void complete(Epochs& epochs) {
  ASSERT_OK(epochs.begin_complete());
  epochs.completed();
}

void post(Epochs& epochs, const std::vector<int>& group) {
  ASSERT_OK(epochs.begin_post());
  epochs.posted(group);
}

/// The calls that open or close something, by name.
struct Call {
  const char* name;
  std::function<Status(Epochs&)> begin;
};

const std::array<Call, 12> kCalls = {{
    {"fence", [](Epochs& e) { return e.begin_fence(); }},
    {"lock",
     [](Epochs& e) {
       Status status = e.begin_lock(0);
       if (status.ok()) e.lock_failed(0);
       return status;
     }},
    {"unlock",
     [](Epochs& e) {
       bool exclusive = false;
       Status status = e.begin_unlock(0, &exclusive);
       if (status.ok()) e.unlock_failed(0);
       return status;
     }},
    {"lock_all",
     [](Epochs& e) {
       Status status = e.begin_lock_all();
       if (status.ok()) e.lock_all_failed();
       return status;
     }},
    {"unlock_all",
     [](Epochs& e) {
       Status status = e.begin_unlock_all();
       if (status.ok()) e.unlock_all_failed();
       return status;
     }},
    {"start", [](Epochs& e) { return e.begin_start(); }},
    {"complete", [](Epochs& e) { return e.begin_complete(); }},
    {"post", [](Epochs& e) { return e.begin_post(); }},
    {"wait", [](Epochs& e) { return e.begin_wait(); }},
    {"flush", [](Epochs& e) { return e.may_flush(0); }},
    {"flush_all", [](Epochs& e) { return e.may_flush(-1); }},
    {"free", [](Epochs& e) { return e.begin_free(); }},
}};

/// Exactly the calls named are legal.
void expect_legal(Epochs& epochs, const std::vector<std::string>& legal) {
  for (const Call& call : kCalls) {
    const bool expected = std::ranges::find(legal, call.name) != legal.end();
    Status status = call.begin(epochs);
    EXPECT_EQ(status.ok(), expected) << call.name << ": " << status.text();
    EXPECT_TRUE(expected || status.code() == StatusCode::kWrongEpoch) << call.name;
  }
}

/// Exactly the targets named may be accessed.
void expect_access(Epochs& epochs, const std::vector<std::size_t>& targets) {
  for (std::size_t target = 0; target < kRanks; ++target) {
    const bool expected = std::ranges::find(targets, target) != targets.end();
    EXPECT_EQ(epochs.may_access(target).ok(), expected) << target;
  }
}

const std::vector<std::size_t> kEverybody = {0, 1, 2, 3};

TEST(Epochs, without_an_epoch_only_openers_and_free_are_legal) {
  Epochs epochs(kRanks);
  expect_legal(epochs, {"fence", "lock", "lock_all", "start", "post", "free"});
  expect_access(epochs, {});
}

TEST(Epochs, an_unused_fence_epoch_allows_every_opener) {
  Epochs epochs(kRanks);
  fence(epochs);
  expect_legal(epochs, {"fence", "lock", "lock_all", "start", "post", "free"});
}

TEST(Epochs, the_first_operation_of_a_fence_epoch_closes_it_to_other_openers) {
  Epochs epochs(kRanks);
  fence(epochs);
  expect_access(epochs, kEverybody);
  expect_legal(epochs, {"fence"});
  fence(epochs);
  expect_legal(epochs, {"fence", "lock", "lock_all", "start", "post", "free"});
}

TEST(Epochs, a_fence_that_nothing_follows_opens_no_epoch) {
  Epochs epochs(kRanks);
  fence(epochs);
  expect_access(epochs, kEverybody);
  fence(epochs, false);
  expect_access(epochs, {});
  expect_legal(epochs, {"fence", "lock", "lock_all", "start", "post", "free"});
}

TEST(Epochs, a_lock_opens_its_target_alone) {
  Epochs epochs(kRanks);
  lock(epochs, 0);
  expect_access(epochs, {0});
  expect_legal(epochs, {"unlock", "flush", "flush_all"});
  EXPECT_OK(epochs.begin_lock(1));  // another target may be locked as well
  epochs.locked(1, false);
  expect_access(epochs, {0, 1});
  EXPECT_CODE(epochs.may_flush(2), StatusCode::kWrongEpoch);
  unlock(epochs, 0);
  expect_access(epochs, {1});
  unlock(epochs, 1);
  expect_legal(epochs, {"fence", "lock", "lock_all", "start", "post", "free"});
}

TEST(Epochs, a_lock_ends_an_unused_fence_epoch) {
  Epochs epochs(kRanks);
  fence(epochs);
  lock(epochs, 2);
  expect_access(epochs, {2});
  unlock(epochs, 2);
  expect_access(epochs, {});
}

TEST(Epochs, unlock_says_how_the_target_was_locked) {
  Epochs epochs(kRanks);
  bool exclusive = false;
  lock(epochs, 1, true);
  ASSERT_OK(epochs.begin_unlock(1, &exclusive));
  EXPECT_TRUE(exclusive);
  epochs.unlocked(1);
  lock(epochs, 1, false);
  ASSERT_OK(epochs.begin_unlock(1, &exclusive));
  EXPECT_FALSE(exclusive);
}

TEST(Epochs, a_target_is_locked_once_even_while_the_first_lock_waits) {
  Epochs epochs(kRanks);
  ASSERT_OK(epochs.begin_lock(1));
  EXPECT_CODE(epochs.begin_lock(1), StatusCode::kWrongEpoch);
  EXPECT_CODE(epochs.begin_lock_all(), StatusCode::kWrongEpoch);
  EXPECT_CODE(epochs.begin_fence(), StatusCode::kWrongEpoch);
  EXPECT_CODE(epochs.begin_start(), StatusCode::kWrongEpoch);
  EXPECT_CODE(epochs.begin_post(), StatusCode::kWrongEpoch);
  EXPECT_CODE(epochs.begin_free(), StatusCode::kWrongEpoch);
  epochs.lock_failed(1);
  EXPECT_OK(epochs.begin_lock(1));
}

TEST(Epochs, one_thread_alone_gives_a_lock_back) {
  Epochs epochs(kRanks);
  bool exclusive = false;
  lock(epochs, 0);
  ASSERT_OK(epochs.begin_unlock(0, &exclusive));
  EXPECT_CODE(epochs.begin_unlock(0, &exclusive), StatusCode::kBusy);
  epochs.unlock_failed(0);  // it ran out of time: the lock is still there to be given back
  ASSERT_OK(epochs.begin_unlock(0, &exclusive));
  epochs.unlocked(0);
  EXPECT_CODE(epochs.begin_unlock(0, &exclusive), StatusCode::kWrongEpoch);
  lock_all(epochs);
  ASSERT_OK(epochs.begin_unlock_all());
  EXPECT_CODE(epochs.begin_unlock_all(), StatusCode::kBusy);
  epochs.unlock_all_failed();
  ASSERT_OK(epochs.begin_unlock_all());
  epochs.unlocked_all();
  EXPECT_CODE(epochs.begin_unlock_all(), StatusCode::kWrongEpoch);
}

TEST(Epochs, lock_all_opens_every_target) {
  Epochs epochs(kRanks);
  lock_all(epochs);
  expect_access(epochs, kEverybody);
  expect_legal(epochs, {"unlock_all", "flush", "flush_all"});
  ASSERT_OK(epochs.begin_unlock_all());
  epochs.unlocked_all();
  expect_access(epochs, {});
}

TEST(Epochs, while_lock_all_waits_nothing_else_begins) {
  Epochs epochs(kRanks);
  ASSERT_OK(epochs.begin_lock_all());
  EXPECT_CODE(epochs.begin_lock_all(), StatusCode::kWrongEpoch);
  EXPECT_CODE(epochs.begin_lock(0), StatusCode::kWrongEpoch);
  EXPECT_CODE(epochs.begin_fence(), StatusCode::kWrongEpoch);
  EXPECT_CODE(epochs.begin_free(), StatusCode::kWrongEpoch);
  epochs.lock_all_failed();
  EXPECT_OK(epochs.begin_fence());
}

TEST(Epochs, start_opens_its_group_alone) {
  Epochs epochs(kRanks);
  start(epochs, {1, 3});
  expect_access(epochs, {1, 3});
  expect_legal(epochs, {"complete", "post"});
  EXPECT_EQ(epochs.start_group(), (std::vector<int>{1, 3}));
  complete(epochs);
  expect_access(epochs, {});
  EXPECT_TRUE(epochs.start_group().empty());
}

TEST(Epochs, an_operation_outside_the_group_says_so) {
  Epochs epochs(kRanks);
  start(epochs, {1});
  EXPECT_SAYS(epochs.may_access(2), "group");
  complete(epochs);
  EXPECT_SAYS(epochs.may_access(2), "no access epoch");
}

TEST(Epochs, an_exposure_epoch_goes_with_an_access_epoch_of_start) {
  Epochs epochs(kRanks);
  post(epochs, {0, 2});
  EXPECT_EQ(epochs.post_group(), (std::vector<int>{0, 2}));
  expect_legal(epochs, {"start", "wait"});
  expect_access(epochs, {});
  start(epochs, {1});
  expect_access(epochs, {1});
  expect_legal(epochs, {"complete", "wait"});
  complete(epochs);
  ASSERT_OK(epochs.begin_wait());
  epochs.waited();
  expect_legal(epochs, {"fence", "lock", "lock_all", "start", "post", "free"});
}

TEST(Epochs, an_empty_group_opens_and_closes_like_any_other) {
  Epochs epochs(kRanks);
  start(epochs, {});
  expect_access(epochs, {});
  complete(epochs);
  post(epochs, {});
  ASSERT_OK(epochs.begin_wait());
}

struct Pending {
  PendingCall call;
  const char* name;
  std::function<void(Epochs&)> open;
};

TEST(Epochs, a_call_that_is_pending_blocks_all_others_until_it_is_made_again) {
  const std::array<Pending, 5> table = {{
      {PendingCall::kFence, "fence", [](Epochs& e) { fence(e); }},
      {PendingCall::kStart, "start", [](Epochs&) {}},
      {PendingCall::kComplete, "complete", [](Epochs& e) { start(e, {0}); }},
      {PendingCall::kWait, "wait", [](Epochs& e) { post(e, {0}); }},
      {PendingCall::kFree, "free", [](Epochs&) {}},
  }};
  for (const Pending& pending : table) {
    Epochs epochs(kRanks);
    pending.open(epochs);
    epochs.set_pending(pending.call);
    epochs.set_pending(pending.call);  // it may time out again
    expect_legal(epochs, {pending.name});
    expect_access(epochs, {});
    EXPECT_SAYS(epochs.may_access(0), std::string("an earlier ") + pending.name);
    EXPECT_EQ(epochs.pending(), pending.call);
  }
}

TEST(Epochs, what_was_open_before_a_pending_call_is_open_after_it) {
  Epochs epochs(kRanks);
  post(epochs, {0});
  start(epochs, {2});
  epochs.set_pending(PendingCall::kWait);
  expect_access(epochs, {});
  epochs.waited();
  expect_access(epochs, {2});
  complete(epochs);
  EXPECT_EQ(epochs.pending(), PendingCall::kNone);
}

TEST(Epochs, a_resumed_fence_opens_what_it_would_have_opened) {
  Epochs epochs(kRanks);
  ASSERT_OK(epochs.begin_fence());
  epochs.set_pending(PendingCall::kFence);
  fence(epochs);
  expect_access(epochs, kEverybody);
}

// TSan: operations and flushes come from any thread while another opens and closes epochs.
TEST(Epochs, operations_of_other_threads_look_at_the_state_without_a_lock) {
  Epochs epochs(kRanks);
  lock(epochs, 1);
  std::thread other([&] {
    for (int i = 0; i < 2000; ++i) {
      EXPECT_OK(epochs.may_access(1));
      EXPECT_OK(epochs.may_flush(1));
      EXPECT_OK(epochs.may_flush(-1));
      (void)epochs.may_access(2);
      (void)epochs.may_flush(2);
    }
  });
  for (int i = 0; i < 2000; ++i) {
    lock(epochs, 2);
    unlock(epochs, 2);
  }
  other.join();
}

}  // namespace
}  // namespace hixl_rma
