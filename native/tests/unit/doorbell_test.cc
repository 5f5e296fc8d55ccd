// SPDX-License-Identifier: Apache-2.0
//
// TSan does not model the fences of NOTE [no wake-up is lost]; it need not: the condition of a test
// is stored with release and loaded with acquire order, and the fences only keep a store from
// passing a later load, which is looked for here by rounds.
#include "base/doorbell.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <random>
#include <thread>
#include <vector>

#include "base/cpu.h"
#include "hixl_rma/engine.h"
#include "support/patience.h"
#include "window/waiting.h"

namespace hixl_rma {
namespace {

using testing::rounds;

/// Sleeps, without a spin, until the word says so; counts wake-ups that did not come.
void await(Doorbell& doorbell, const std::atomic<int>& word, int value, int& lost) {
  while (word.load(std::memory_order_acquire) < value) {
    Sleeper sleeper(doorbell);
    if (word.load(std::memory_order_acquire) >= value) return;
    const SleepEnd end = sleeper.sleep(std::chrono::seconds(5));
    lost += end == SleepEnd::kTimedOut ? 1 : 0;
  }
}

TEST(Doorbell, no_wake_up_is_lost) {
  const int total = rounds(300000, 4000);
  Doorbell doorbell{};
  std::atomic<int> asked{0};
  std::atomic<int> answered{0};
  std::atomic<int> lost{0};
  // The other side polls and answers at ever other moments: in the middle of our falling asleep.
  std::thread other([&] {
    std::minstd_rand random(1);
    for (int round = 1; round <= total && lost == 0; ++round) {
      const Deadline deadline = testing::soon();
      while (asked.load(std::memory_order_acquire) < round) {
        if (lost != 0 || deadline.expired()) return;
        cpu_relax();
      }
      for (auto n = random() % 256; n > 0; --n) std::atomic_signal_fence(std::memory_order_seq_cst);
      answered.store(round, std::memory_order_release);
      ring(doorbell);
    }
  });
  int missed = 0;
  for (int round = 1; round <= total && missed == 0; ++round) {
    asked.store(round, std::memory_order_release);
    await(doorbell, answered, round, missed);
    lost = missed;
  }
  other.join();
  EXPECT_EQ(missed, 0);
}

TEST(Doorbell, one_ring_wakes_every_sleeper) {
  constexpr int kSleepers = 4;
  Doorbell doorbell{};
  std::atomic<int> word{0};
  std::array<int, kSleepers> lost{};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kSleepers; ++t) {
    threads.emplace_back([&, t] { await(doorbell, word, 1, lost[t]); });
  }
  while (doorbell.sleepers.load() < kSleepers) std::this_thread::yield();
  word.store(1, std::memory_order_release);
  ring(doorbell);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::ranges::count(lost, 0), kSleepers);
  EXPECT_EQ(doorbell.sleepers.load(), 0U);
}

TEST(Doorbell, a_ring_before_the_sleep_lets_nobody_sleep) {
  Doorbell doorbell{};
  Sleeper sleeper(doorbell);
  wake_all(doorbell);
  EXPECT_EQ(sleeper.sleep(testing::kPatience), SleepEnd::kWoken);
}

TEST(Doorbell, a_sleep_ends_when_its_time_is_over) {
  Doorbell doorbell{};
  Sleeper sleeper(doorbell);
  const auto before = Clock::now();
  EXPECT_EQ(sleeper.sleep(std::chrono::milliseconds(3)), SleepEnd::kTimedOut);
  EXPECT_GE(Clock::now() - before, std::chrono::milliseconds(3));
  EXPECT_EQ(sleeper.sleep(Nanoseconds(0)), SleepEnd::kTimedOut);
}

// ----------------------------------------------------------------------------------------- wait_on

std::shared_ptr<Engine> engine_of_self() {
  static constexpr std::array<std::string_view, 1> kNames = {"self"};
  EngineOptions options;
  options.registry = transport_registry().first(kNames.size());
  return Engine::create(options).take();
}

TEST(WaitOn, looks_before_it_asks_the_time) {
  Doorbell doorbell{};
  const auto engine = engine_of_self();
  EXPECT_EQ(wait_on(doorbell, *engine, {}, Deadline::after(Nanoseconds(0)), [] { return true; }),
            WaitEnd::kReady);
}

TEST(WaitOn, times_out_when_nothing_comes) {
  Doorbell doorbell{};
  const auto engine = engine_of_self();
  EXPECT_EQ(wait_on(doorbell, *engine, {}, testing::at_once(), [] { return false; }),
            WaitEnd::kTimedOut);
}

TEST(WaitOn, is_woken_for_what_comes) {
  Doorbell doorbell{};
  const auto engine = engine_of_self();
  for (const auto spin : {Nanoseconds(0), Nanoseconds(std::chrono::milliseconds(1))}) {
    std::atomic<bool> flag{false};
    std::thread other([&] {
      flag.store(true, std::memory_order_release);
      ring(doorbell);
    });
    EXPECT_EQ(wait_on(doorbell, *engine, {spin, nullptr}, testing::soon(),
                      [&] { return flag.load(std::memory_order_acquire); }),
              WaitEnd::kReady);
    other.join();
  }
}

std::atomic<int> interrupts{0};

TEST(WaitOn, asks_for_interrupts_after_a_signal) {
  Doorbell doorbell{};
  const auto engine = engine_of_self();
  struct sigaction action{};
  struct sigaction before{};
  action.sa_handler = [](int) { interrupts.fetch_add(1); };
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  const pthread_t waiter = pthread_self();
  std::thread other([&] {
    while (doorbell.sleepers.load() == 0) std::this_thread::yield();
    pthread_kill(waiter, SIGUSR1);
  });
  const auto begun = Clock::now();
  const WaitEnd end = wait_on(doorbell, *engine, {Nanoseconds(0), [] { return interrupts > 0; }},
                              testing::soon(), [] { return false; });
  EXPECT_EQ(end, WaitEnd::kInterrupted);
  EXPECT_LT(Clock::now() - begun, testing::kPatience / 2);
  other.join();
  sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace hixl_rma
