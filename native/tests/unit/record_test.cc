// SPDX-License-Identifier: Apache-2.0
//
// NOTE [a record is read untorn]: a writer and readers at full speed. TSan sees atomics only; what
// it cannot see, a mixture of two notifications, is looked for by the sums themselves.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support/control_memory.h"
#include "support/patience.h"
#include "window/notify_board.h"

namespace hixl_rma {
namespace {

using testing::ControlMemory;
using testing::Publisher;
using testing::rounds;

constexpr std::uint64_t kSalt = 77;

constexpr std::uint64_t sum_up_to(std::uint64_t count) { return count * (count + 1) / 2; }

TEST(Record, is_empty_before_the_first_notification) {
  ControlMemory control(1, 1);
  std::uint64_t count = 9;
  std::uint64_t sum = 9;
  EXPECT_FALSE(read_record(control.view().record(0, 0), kSalt, 0, &count, &sum));
  EXPECT_EQ(count, 9U);
  EXPECT_EQ(sum, 9U);
}

TEST(Record, gives_what_was_published_last) {
  ControlMemory control(1, 1);
  Publisher origin(control, 0, kSalt);
  for (std::uint64_t k = 1; k <= 5; ++k) {
    origin.publish(0, k);
    std::uint64_t count = 0;
    std::uint64_t sum = 0;
    ASSERT_TRUE(read_record(control.view().record(0, 0), kSalt, k - 1, &count, &sum));
    EXPECT_EQ(count, k);
    EXPECT_EQ(sum, sum_up_to(k));
    EXPECT_FALSE(read_record(control.view().record(0, 0), kSalt, k, &count, &sum));
  }
}

TEST(Record, of_another_window_is_not_accepted) {
  ControlMemory control(1, 1);
  Publisher origin(control, 0, kSalt);
  origin.publish(0, 1);
  std::uint64_t count = 0;
  std::uint64_t sum = 0;
  EXPECT_FALSE(read_record(control.view().record(0, 0), kSalt + 1, 0, &count, &sum));
}

TEST(Record, a_torn_slot_leaves_the_whole_one_before_it) {
  ControlMemory control(1, 1);
  Publisher origin(control, 0, kSalt);
  origin.publish(0, 10);
  origin.publish(0, 20);
  // The third is half written: its count is there, its check is not.
  Record& record = const_cast<Record&>(control.view().record(0, 0));
  record.slots[1].count.store(3);
  std::uint64_t count = 0;
  std::uint64_t sum = 0;
  ASSERT_TRUE(read_record(record, kSalt, 0, &count, &sum));
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(sum, 30U);
  EXPECT_FALSE(read_record(record, kSalt, 2, &count, &sum));
}

TEST(Record, never_mixes_two_notifications) {
  const auto total = static_cast<std::uint64_t>(rounds(2000000, 50000));
  ControlMemory control(1, 1);
  const Record& record = control.view().record(0, 0);
  std::atomic<bool> over{false};
  std::thread writer([&] {
    Publisher origin(control, 0, kSalt);
    for (std::uint64_t k = 1; k <= total; ++k) origin.publish(0, k);
    over = true;
  });
  std::uint64_t known = 0;
  std::uint64_t mixed = 0;
  while (known < total) {
    std::uint64_t count = 0;
    std::uint64_t sum = 0;
    const bool last = over.load();
    if (!read_record(record, kSalt, known, &count, &sum)) {
      ASSERT_FALSE(last) << "what was published is not found";
      continue;
    }
    mixed += sum != sum_up_to(count) || count <= known ? 1 : 0;
    known = count;
  }
  writer.join();
  EXPECT_EQ(mixed, 0U);
}

TEST(Record, what_was_published_before_the_look_is_found_however_fast_the_writer_is) {
  const auto total = static_cast<std::uint64_t>(rounds(500000, 20000));
  ControlMemory control(1, 1);
  const Record& record = control.view().record(0, 0);
  std::atomic<std::uint64_t> published{0};
  std::thread writer([&] {
    Publisher origin(control, 0, kSalt);
    for (std::uint64_t k = 1; k <= total; ++k) {
      origin.publish(0, k);
      published.store(k, std::memory_order_release);
    }
  });
  std::uint64_t missed = 0;
  for (;;) {
    const std::uint64_t before = published.load(std::memory_order_acquire);
    if (before == 0) continue;
    std::uint64_t count = 0;
    std::uint64_t sum = 0;
    missed += read_record(record, kSalt, before - 1, &count, &sum) ? 0 : 1;
    if (before == total) break;
  }
  writer.join();
  EXPECT_EQ(missed, 0U);
}

}  // namespace
}  // namespace hixl_rma
