// SPDX-License-Identifier: Apache-2.0
#include "base/own_thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/of_process.h"
#include "support/status_assert.h"

namespace hixl_rma::testing {
namespace {

/// The exit status of a child that runs the body; 0: it returned true.
int in_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(OwnThread, runs_its_body_under_its_name) {
  OwnThread thread;
  EXPECT_FALSE(thread.started());
  std::array<char, 16> name{};
  ASSERT_OK(thread.start("hixl-test",
                         [&] { pthread_getname_np(pthread_self(), name.data(), name.size()); }));
  EXPECT_TRUE(thread.started());
  EXPECT_FALSE(thread.is_parents());
  thread.join();
  EXPECT_FALSE(thread.started());
  EXPECT_EQ(std::string(name.data()), "hixl-test");
}

TEST(OwnThread, a_child_of_a_fork_has_the_object_and_not_the_thread) {
  std::atomic<bool> stop{false};
  auto thread = std::make_unique<OwnThread>();
  ASSERT_OK(thread->start("hixl-test", [&] { stop.wait(false); }));
  EXPECT_EQ(in_child([&] {
              const bool seen = thread->started() && thread->is_parents();
              thread.reset();  // neither joins nor ends the process
              return seen;
            }),
            0);
  stop = true;
  stop.notify_all();
  thread->join();
}

TEST(OfProcess, there_is_one_while_somebody_has_it) {
  int made = 0;
  const auto get = [&] { return of_process<int>([&] { return std::make_shared<int>(++made); }); };
  auto one = get();
  EXPECT_EQ(get(), one);
  one.reset();
  EXPECT_EQ(*get(), 2);
}

TEST(OfProcess, a_child_of_a_fork_has_one_of_its_own) {
  const auto get = [] { return of_process<long>([] { return std::make_shared<long>(getpid()); }); };
  const auto parents = get();
  EXPECT_EQ(in_child([&] {
              const auto own = get();
              return own != parents && *own == getpid() && get() == own;
            }),
            0);
}

}  // namespace
}  // namespace hixl_rma::testing
