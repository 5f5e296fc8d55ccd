// SPDX-License-Identifier: Apache-2.0
//
// Status, Result, Completion, Deadline, Descriptor, the log, process identity.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/descriptor.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/random.h"
#include "hixl_rma/completion.h"
#include "hixl_rma/status.h"
#include "support/channel.h"
#include "support/status_assert.h"
#include "transport/common/process_facts.h"

namespace hixl_rma {
namespace {

using testing::Channel;
using testing::Child;

TEST(Status, every_code_has_a_name_of_its_own) {
  std::vector<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(StatusCode::kInternal); ++code) {
    names.push_back(name_of(static_cast<StatusCode>(code)));
    EXPECT_EQ(std::ranges::count(names, names.back()), 1) << names.back();
  }
  EXPECT_EQ(names.front(), "Ok");
  EXPECT_EQ(names.back(), "Internal");
  EXPECT_EQ(name_of(StatusCode::kPeerLost), "PeerLost");
}

TEST(Status, ok_carries_nothing_and_stays_ok) {
  const Status ok;
  EXPECT_TRUE(ok.ok());
  EXPECT_EQ(ok.code(), StatusCode::kOk);
  EXPECT_EQ(ok.text(), "ok");
  EXPECT_TRUE(ok.with_operation("put").with_transport("shm").with_peer(3).ok());
}

TEST(Status, facts_are_added_once_and_never_replaced) {
  const Status plain = Status::from_errno(StatusCode::kTransferFailed, "it broke", 5);
  const Status full = plain.with_operation("put").with_transport("cma").with_peer(2);
  const Status again = full.with_operation("get").with_transport("shm").with_peer(0);
  EXPECT_EQ(again.detail().operation, "put");
  EXPECT_EQ(again.detail().transport, "cma");
  EXPECT_EQ(again.detail().peer_rank, 2);
  EXPECT_EQ(again.detail().errno_value, 5);
  EXPECT_EQ(again.text(), "it broke");
  EXPECT_EQ(plain.detail().peer_rank, -1);
}

TEST(Status, unavailable_keeps_the_reason_of_each_transport) {
  const Status status = Status::unavailable("none", {{"shm", "another host"}, {"cma", "refused"}});
  ASSERT_EQ(status.detail().reasons.size(), 2U);
  EXPECT_EQ(status.detail().reasons[1], (std::pair<std::string, std::string>("cma", "refused")));
}

TEST(Result, holds_a_value_or_the_reason) {
  Result<std::unique_ptr<int>> value(std::make_unique<int>(4));
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(*value.take(), 4);
  const Result<int> none(Status::error(StatusCode::kStale, "gone"));
  EXPECT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), StatusCode::kStale);
}

TEST(Completion, is_done_when_every_operation_is_and_keeps_the_first_error) {
  Completion completion;
  EXPECT_TRUE(completion.done());
  completion.add(3);
  completion.complete({});
  completion.complete(Status::error(StatusCode::kStale, "first"));
  EXPECT_FALSE(completion.done());
  completion.complete(Status::error(StatusCode::kPeerLost, "second"));
  EXPECT_TRUE(completion.done());
  EXPECT_CODE(completion.status(), StatusCode::kStale);
}

TEST(Completion, an_error_that_was_taken_is_not_reported_again) {
  Completion completion;
  completion.add();
  completion.complete(Status::error(StatusCode::kTransferFailed, "once"));
  EXPECT_CODE(completion.take_status(), StatusCode::kTransferFailed);
  EXPECT_OK(completion.take_status());
  EXPECT_OK(completion.status());
}

TEST(Completion, what_was_written_before_it_fired_is_visible_to_who_saw_it_done) {
  for (int round = 0; round < 200; ++round) {
    Completion completion;
    completion.add(2);
    int written = 0;
    std::thread other([&] {
      written = round + 1;
      completion.complete({});
    });
    completion.complete({});
    while (!completion.done()) std::this_thread::yield();
    EXPECT_EQ(written, round + 1);
    other.join();
  }
}

TEST(Deadline, never_expires_when_it_is_never) {
  const Deadline never;
  EXPECT_TRUE(never.never());
  EXPECT_FALSE(never.expired());
  EXPECT_EQ(never.remaining(std::chrono::seconds(3)), std::chrono::seconds(3));
  EXPECT_TRUE(Deadline::after_seconds(-1).never());
}

TEST(Deadline, time_left_is_capped_and_never_negative) {
  const Deadline passed = Deadline::after(Nanoseconds(0));
  EXPECT_TRUE(passed.expired());
  EXPECT_EQ(passed.remaining(std::chrono::seconds(1)), Nanoseconds(0));
  const Deadline far = Deadline::after(std::chrono::hours(1));
  EXPECT_FALSE(far.expired());
  EXPECT_EQ(far.remaining(std::chrono::milliseconds(2)), std::chrono::milliseconds(2));
  EXPECT_GT(far.remaining(std::chrono::hours(2)), std::chrono::minutes(59));
}

TEST(Deadline, any_number_of_seconds_is_fine) {
  EXPECT_TRUE(Deadline::after_seconds(0).expired());
  for (const double seconds :
       {1e300, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    const Deadline deadline = Deadline::after_seconds(seconds);
    EXPECT_FALSE(deadline.never());
    EXPECT_FALSE(deadline.expired());
    EXPECT_GT(deadline.remaining(std::chrono::hours(24)), std::chrono::hours(23));
  }
}

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(Descriptor, is_closed_once_by_its_last_owner) {
  const int raw = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(raw, 0);
  {
    Descriptor first(raw);
    Descriptor second(std::move(first));
    Descriptor third;
    third = std::move(second);
    EXPECT_TRUE(third.valid());
    EXPECT_EQ(third.get(), raw);
    EXPECT_TRUE(is_open(raw));
  }
  EXPECT_FALSE(is_open(raw));
}

TEST(Log, lines_come_out_in_order_and_only_once) {
  (void)take_log();
  log_line(LogLevel::kInfo, "one");
  log_line(LogLevel::kWarning, "two");
  const auto lines = take_log();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], (std::pair<LogLevel, std::string>(LogLevel::kInfo, "one")));
  EXPECT_EQ(lines[1], (std::pair<LogLevel, std::string>(LogLevel::kWarning, "two")));
  EXPECT_TRUE(take_log().empty());
}

TEST(Log, the_oldest_lines_go_when_nobody_takes_them) {
  (void)take_log();
  for (std::size_t i = 0; i < kMaxLogLines + 5; ++i) {
    log_line(LogLevel::kDebug, std::to_string(i));
  }
  const auto lines = take_log();
  ASSERT_EQ(lines.size(), kMaxLogLines);
  EXPECT_EQ(lines.front().second, "5");
}

TEST(Log, takes_lines_from_any_thread) {
  (void)take_log();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 50; ++i) log_line(LogLevel::kDebug, "line");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(take_log().size(), 200U);
}

TEST(Random, tokens_differ) { EXPECT_NE(random_token(), random_token()); }

TEST(ProcessFacts, a_process_knows_itself_and_a_pid_that_is_gone) {
  const ProcessFacts facts = process_facts();
  EXPECT_EQ(facts.pid, static_cast<std::uint64_t>(getpid()));
  EXPECT_EQ(facts.start_time, start_time_of(facts.pid));
  EXPECT_NE(facts.start_time, 0U);
  EXPECT_EQ(facts.boot_id.size(), 36U);
  EXPECT_EQ(facts.instance, process_facts().instance);
  EXPECT_EQ(start_time_of(~std::uint64_t{0}), 0U);
}

TEST(ProcessFacts, a_forked_child_is_another_instance) {
  const int generation = fork_generation();
  const Token parent = process_facts().instance;
  Child child([&](Channel&) {
    EXPECT_EQ(fork_generation(), generation + 1);
    EXPECT_NE(process_facts().instance, parent);
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(fork_generation(), generation);
}

}  // namespace
}  // namespace hixl_rma
