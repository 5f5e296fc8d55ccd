// SPDX-License-Identifier: Apache-2.0
//
// Claims about words: notify, fetch_add, compare_swap.
#include <array>
#include <cstring>
#include <thread>
#include <vector>

#include "conformance/claims.h"
#include "support/patience.h"
#include "support/pattern.h"

namespace hixl_rma::testing {
namespace {

std::uint64_t word_of(const Bytes& bytes, std::size_t i = 0) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + 8 * i, sizeof value);
  return value;
}

}  // namespace

TEST_P(ControlClaims, a_notification_is_visible_only_after_the_put) {
  const auto total = static_cast<std::uint64_t>(rounds(3000, 300));
  target().start_watching(total);
  Completion puts;
  std::array<Bytes, kSlots> payloads;
  for (std::uint64_t round = 1; round <= total; ++round) {
    // A slot is filled again when its former payload was looked at.
    while (round > kSlots) {
      auto seen = near().fetch_add(kAckWord, 0);
      ASSERT_OK(seen);
      if (seen.value() + kSlots >= round) break;
      std::this_thread::yield();
    }
    Bytes& payload = payloads[round % kSlots];
    payload = make_pattern(slot_length(round), round);
    const Piece piece{payload.data(), kPayload + round % kSlots * kSlotBytes, payload.size()};
    ASSERT_OK(near().issue(puts, [&](Completion* done) {
      return near().endpoint().put(near().remote(), piece, done);
    }));
    ASSERT_OK(near().notify({kRecordWord, 2, {round, ~round}}));
  }
  const Watched seen = target().watched();
  EXPECT_EQ(seen.rounds, total);
  EXPECT_EQ(seen.early, 0U);
  EXPECT_EQ(seen.lost, 0U);
  while (!puts.done()) near().engine().idle();
}

TEST_P(ControlClaims, a_notify_stores_every_word_of_every_record) {
  const std::array<RecordWrite, 3> records = {
      {{256, 4, {1, 2, 3, 4}}, {320, 1, {5}}, {384, 3, {6, 7, 8}}}};
  ASSERT_OK(near().engine().run(
      [&](Completion* done) { return near().endpoint().notify(near().remote(), records, done); }));
  const Bytes seen = target().read(256, 192);
  const std::array<std::uint64_t, 24> expected = {1, 2, 3, 4, 0, 0, 0, 0, 5, 0, 0, 0,
                                                  0, 0, 0, 0, 6, 7, 8, 0, 0, 0, 0, 0};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(word_of(seen, i), expected[i]) << i;
}

TEST_P(ControlClaims, the_first_word_of_a_record_is_stored_last) {
  const auto total = static_cast<std::uint64_t>(rounds(GetParam().is_fake() ? 2000 : 300000, 1000));
  target().start_polling(total);
  for (std::uint64_t round = 1; round <= total; ++round) {
    ASSERT_OK(near().notify({kRecordWord, 2, {round, round}}));
  }
  EXPECT_TRUE(target().told());
}

TEST_P(ControlClaims, fetch_add_returns_what_was_there_and_wraps_around) {
  constexpr std::uint64_t kMax = ~std::uint64_t{0};
  const std::array<std::uint64_t, 4> steps = {5, kMax, kMax, 0};
  std::uint64_t expected = 0;
  for (const std::uint64_t step : steps) {
    auto previous = near().fetch_add(kCounterWord, step);
    ASSERT_OK(previous);
    EXPECT_EQ(previous.value(), expected);
    expected += step;
  }
  EXPECT_EQ(word_of(target().read(kCounterWord, 8)), expected);
}

TEST_P(ControlClaims, fetch_add_is_exact_under_contention) {
  const auto times = static_cast<std::uint64_t>(rounds(5000, 500));
  constexpr std::size_t kThreads = 2;
  target().start_adding(times);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < times; ++i) EXPECT_OK(near().fetch_add(kCounterWord, 1));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(target().told());
  EXPECT_EQ(word_of(target().read(kCounterWord, 8)), (kThreads + 1) * times);
}

TEST_P(ControlClaims, compare_swap_stores_only_where_the_word_is_as_expected) {
  auto first = near().compare_swap(kCounterWord, 0, 41);
  ASSERT_OK(first);
  EXPECT_EQ(first.value(), 0U);
  auto second = near().compare_swap(kCounterWord, 0, 99);
  ASSERT_OK(second);
  EXPECT_EQ(second.value(), 41U);
  EXPECT_EQ(word_of(target().read(kCounterWord, 8)), 41U);
}

TEST_P(ControlClaims, compare_swap_is_exact_under_contention) {
  const auto times = static_cast<std::uint64_t>(rounds(2000, 200));
  target().start_swapping(times);
  std::uint64_t seen = 0;
  for (std::uint64_t i = 0; i < times;) {
    auto previous = near().compare_swap(kCounterWord, seen, seen + 1);
    ASSERT_OK(previous);
    if (previous.value() == seen) ++i;
    seen = previous.value() == seen ? seen + 1 : previous.value();
  }
  EXPECT_TRUE(target().told());
  EXPECT_EQ(word_of(target().read(kCounterWord, 8)), 2 * times);
}

}  // namespace hixl_rma::testing
