// SPDX-License-Identifier: Apache-2.0
//
// What a target reports of the records that origins wrote.
#include "window/notify_board.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "support/control_memory.h"
#include "support/patience.h"

namespace hixl_rma {

bool operator==(const Notification& a, const Notification& b) {
  return a.id == b.id && a.source == b.source && a.count == b.count && a.value == b.value;
}

void PrintTo(const Notification& note, std::ostream* out) {
  *out << "(id " << note.id << ", source " << note.source << ", count " << note.count << ", value "
       << note.value << ")";
}

namespace {

using testing::ControlMemory;
using testing::Publisher;
using testing::rounds;

constexpr std::uint64_t kSalt = 5;

/// A board of `ids` and the origins that write to it.
struct Board {
  Board(std::size_t ranks, std::size_t ids)
      : control(ranks, ids), board(control.view(), ranks, kSalt), all{0, ids, {}} {
    for (std::size_t rank = 0; rank < ranks; ++rank) origins.emplace_back(control, rank, kSalt);
  }

  void publish(std::size_t origin, std::size_t id, std::uint64_t value = 1) {
    origins[origin].publish(id, value);
  }

  /// {id, source, count, value} of a take, or count 0 when there was none.
  Notification any(const NotificationSet& ids, std::uint64_t count = 1, int source = kAnySource,
                   bool consume = true) {
    Notification note;
    if (!board.take_any(ids, count, source, consume, &note)) note.count = 0;
    return note;
  }
  Notification one(std::size_t id, std::uint64_t count = 1, int source = kAnySource,
                   bool consume = true) {
    return any({id, id + 1, {}}, count, source, consume);
  }

  ControlMemory control;
  NotifyBoard board;
  NotificationSet all;
  std::deque<Publisher> origins;
};

using Ids = std::vector<std::size_t>;

TEST(NotifyBoard, nothing_is_taken_where_nothing_came) {
  Board b(2, 8);
  EXPECT_EQ(b.any(b.all).count, 0U);
  EXPECT_EQ(b.one(3).count, 0U);
  EXPECT_EQ(b.board.pending(3, kAnySource), 0U);
  EXPECT_EQ(b.board.arrivals(), 0U);
}

TEST(NotifyBoard, values_pending_are_reported_once_surplus_included) {
  Board b(1, 4);
  for (const std::uint64_t value : {5U, 6U, 7U}) b.publish(0, 2, value);
  EXPECT_EQ(b.one(2), (Notification{2, 0, 1, 18}));
  EXPECT_EQ(b.one(2), (Notification{2, 0, 1, 0}));
  b.publish(0, 2, 100);
  EXPECT_EQ(b.one(2, 2), (Notification{2, 0, 2, 100}));
  EXPECT_EQ(b.one(2).count, 0U);
}

TEST(NotifyBoard, a_value_of_zero_counts) {
  Board b(1, 4);
  b.publish(0, 1, 0);
  EXPECT_EQ(b.one(1), (Notification{1, 0, 1, 0}));
}

TEST(NotifyBoard, sums_wrap_around) {
  Board b(1, 2);
  b.publish(0, 0, ~std::uint64_t{0});
  b.publish(0, 0, 3);
  EXPECT_EQ(b.one(0, 2), (Notification{0, 0, 2, 2}));
}

TEST(NotifyBoard, exactly_count_is_consumed_and_the_surplus_stays) {
  Board b(1, 2);
  for (int i = 0; i < 5; ++i) b.publish(0, 1);
  EXPECT_EQ(b.one(1, 6).count, 0U);
  EXPECT_EQ(b.one(1, 3).count, 3U);
  EXPECT_EQ(b.board.pending(1, kAnySource), 2U);
  EXPECT_EQ(b.one(1, 3).count, 0U);
  EXPECT_EQ(b.one(1, 2).count, 2U);
}

TEST(NotifyBoard, looking_without_consuming_changes_nothing) {
  Board b(3, 4);
  b.publish(1, 2, 8);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(b.one(2, 1, kAnySource, false), (Notification{2, 1, 1, 8}));
    EXPECT_EQ(b.any(b.all, 1, 1, false), (Notification{2, 1, 1, 8}));
  }
  EXPECT_EQ(b.one(2), (Notification{2, 1, 1, 8}));
}

TEST(NotifyBoard, the_source_is_named_when_one_origin_supplied_all) {
  Board b(4, 2);
  b.publish(1, 0, 10);
  b.publish(2, 0, 20);
  b.publish(2, 0, 30);
  EXPECT_EQ(b.one(0, 3, kAnySource, false), (Notification{0, kAnySource, 3, 60}));
  EXPECT_EQ(b.one(0, 2, 2), (Notification{0, 2, 2, 50}));
  EXPECT_EQ(b.one(0), (Notification{0, 1, 1, 10}));
}

TEST(NotifyBoard, one_source_is_taken_from_alone) {
  Board b(3, 2);
  b.publish(0, 1);
  b.publish(0, 1);
  b.publish(2, 1);
  EXPECT_EQ(b.one(1, 2, 2).count, 0U);
  EXPECT_EQ(b.one(1, 1, 2).source, 2);
  EXPECT_EQ(b.one(1, 1, 2).count, 0U);
  EXPECT_EQ(b.board.pending(1, 0), 2U);
  EXPECT_EQ(b.board.pending(1, 1), 0U);
  EXPECT_EQ(b.board.pending(1, kAnySource), 2U);
}

TEST(NotifyBoard, consumption_goes_on_in_rank_order_after_the_origin_served_last) {
  Board b(4, 1);
  for (std::size_t origin = 0; origin < 4; ++origin) {
    for (int i = 0; i < 3; ++i) b.publish(origin, 0);
  }
  std::vector<int> served;
  for (int i = 0; i < 12; ++i) served.push_back(b.one(0).source);
  EXPECT_EQ(served, (std::vector<int>{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}));
}

TEST(NotifyBoard, a_take_of_many_goes_around_the_origins_too) {
  Board b(3, 1);
  for (std::size_t origin = 0; origin < 3; ++origin) {
    for (int i = 0; i < 2; ++i) b.publish(origin, 0, 10 * (origin + 1));
  }
  EXPECT_EQ(b.one(0, 3), (Notification{0, kAnySource, 3, 20 + 40}));  // two of 0, one of 1
  EXPECT_EQ(b.one(0, 2), (Notification{0, 2, 2, 60}));                // after 1 comes 2
  EXPECT_EQ(b.one(0), (Notification{0, 1, 1, 0}));                    // its value was reported
}

TEST(NotifyBoard, reset_takes_everything_over_all_sources) {
  Board b(3, 2);
  b.publish(0, 1, 1);
  b.publish(1, 1, 2);
  b.publish(1, 1, 3);
  EXPECT_EQ(b.board.reset(1), (Notification{1, kAnySource, 3, 6}));
  EXPECT_EQ(b.board.reset(1), (Notification{1, kAnySource, 0, 0}));
  b.publish(1, 1, 4);
  EXPECT_EQ(b.one(1), (Notification{1, 1, 1, 4}));
}

TEST(NotifyBoard, some_returns_every_id_that_is_satisfied) {
  Board b(2, 8);
  b.publish(0, 1);
  b.publish(1, 4, 9);
  b.publish(0, 6);
  b.publish(0, 6);
  std::vector<Notification> taken;
  ASSERT_TRUE(b.board.take_some(b.all, 1, kAnySource, true, &taken));
  EXPECT_EQ(taken, (std::vector<Notification>{{1, 0, 1, 1}, {4, 1, 1, 9}, {6, 0, 1, 2}}));
  ASSERT_TRUE(b.board.take_some(b.all, 1, kAnySource, true, &taken));
  EXPECT_EQ(taken, (std::vector<Notification>{{6, 0, 1, 0}}));
  EXPECT_FALSE(b.board.take_some(b.all, 1, kAnySource, true, &taken));
  EXPECT_TRUE(taken.empty());
}

TEST(NotifyBoard, all_takes_every_id_or_nothing) {
  Board b(2, 8);
  const Ids ids = {5, 1, 3};
  const NotificationSet set{0, 0, ids};
  b.publish(0, 5, 50);
  b.publish(1, 1, 10);
  std::vector<Notification> taken;
  EXPECT_FALSE(b.board.take_all(set, 1, kAnySource, true, &taken));
  EXPECT_EQ(b.board.pending(5, kAnySource), 1U);
  b.publish(1, 3, 30);
  ASSERT_TRUE(b.board.take_all(set, 1, kAnySource, true, &taken));
  EXPECT_EQ(taken, (std::vector<Notification>{{5, 0, 1, 50}, {1, 1, 1, 10}, {3, 1, 1, 30}}));
  EXPECT_FALSE(b.board.take_all(set, 1, kAnySource, true, &taken));
}

TEST(NotifyBoard, waiting_for_any_of_a_range_starves_no_id) {
  Board b(1, 100);
  for (const std::size_t id : {3U, 50U, 99U}) {
    for (int i = 0; i < 4; ++i) b.publish(0, id);
  }
  std::map<std::size_t, int> served;
  for (int i = 0; i < 6; ++i) ++served[b.any(b.all).id];
  EXPECT_EQ(served, (std::map<std::size_t, int>{{3, 2}, {50, 2}, {99, 2}}));
}

TEST(NotifyBoard, waiting_for_any_of_a_list_starves_no_id) {
  Board b(1, 100);
  const Ids ids = {70, 2, 40};
  for (const std::size_t id : ids) {
    for (int i = 0; i < 4; ++i) b.publish(0, id);
  }
  std::map<std::size_t, int> served;
  for (int i = 0; i < 6; ++i) ++served[b.any({0, 0, ids}).id];
  EXPECT_EQ(served, (std::map<std::size_t, int>{{2, 2}, {40, 2}, {70, 2}}));
}

TEST(NotifyBoard, waits_on_other_sets_between_starve_no_id) {
  Board b(1, 100);
  for (const std::size_t id : {0U, 1U, 2U, 90U, 91U}) {
    for (int i = 0; i < 20; ++i) b.publish(0, id);
  }
  const Ids list = {90, 91};
  std::map<std::size_t, int> served;
  for (int i = 0; i < 9; ++i) {
    ++served[b.any({0, 3, {}}).id];
    ++served[b.any({0, 0, list}).id];
  }
  for (const std::size_t id : {0U, 1U, 2U}) EXPECT_EQ(served[id], 3) << id;
  for (const std::size_t id : {90U, 91U}) EXPECT_GE(served[id], 4) << id;
}

TEST(NotifyBoard, ids_beyond_one_word_of_the_bitmap_are_found) {
  constexpr std::size_t kIds = 1000;
  Board b(1, kIds);
  for (const std::size_t id : {0U, 63U, 64U, 127U, 128U, 511U, 999U}) {
    b.publish(0, id, id);
    EXPECT_EQ(b.any(b.all), (Notification{id, 0, 1, id}));
  }
}

TEST(NotifyBoard, a_burst_beyond_the_ids_a_total_names_is_found_whole) {
  constexpr std::size_t kIds = 300;
  Board b(2, kIds);
  for (std::size_t id = 0; id < kIds; ++id) b.publish(id % 2, id, id);  // all before the first look
  std::vector<Notification> taken;
  ASSERT_TRUE(b.board.take_some(b.all, 1, kAnySource, true, &taken));
  ASSERT_EQ(taken.size(), kIds);
  for (std::size_t id = 0; id < kIds; ++id) {
    EXPECT_EQ(taken[id], (Notification{id, static_cast<int>(id % 2), 1, id}));
  }
  for (const std::size_t id : {7U, 8U, 9U, 10U}) b.publish(0, id);  // as many as a total names
  ASSERT_TRUE(b.board.take_some(b.all, 1, kAnySource, true, &taken));
  EXPECT_EQ(taken.size(), 4U);
}

TEST(NotifyBoard, single_looks_and_looks_at_all_know_of_each_other) {
  Board b(1, 50);
  b.publish(0, 10);
  b.publish(0, 20);
  EXPECT_EQ(b.one(10).count, 1U);  // reads the record, not the total
  EXPECT_EQ(b.any(b.all).id, 20U);
  EXPECT_EQ(b.any(b.all).count, 0U);
  b.publish(0, 10);
  EXPECT_EQ(b.any(b.all).id, 10U);
  EXPECT_EQ(b.one(10).count, 0U);
}

TEST(NotifyBoard, arrivals_count_every_notification_of_every_origin) {
  Board b(3, 4);
  b.publish(0, 1);
  b.publish(2, 1);
  b.publish(2, 3);
  EXPECT_EQ(b.board.arrivals(), 3U);
  (void)b.board.reset(1);
  EXPECT_EQ(b.board.arrivals(), 3U);
}

TEST(NotifyBoard, a_window_without_notifications_has_a_board) {
  Board b(2, 0);
  EXPECT_EQ(b.board.arrivals(), 0U);
}

/// Random publications and takes against a model that keeps every value.
TEST(NotifyBoard, random_programs_report_what_a_plain_model_reports) {
  constexpr std::size_t kRanks = 3;
  constexpr std::size_t kIds = 70;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::minstd_rand random(seed);
    Board b(kRanks, kIds);
    struct Origin {
      std::uint64_t pending = 0;
      std::uint64_t value = 0;
    };
    std::map<std::size_t, std::array<Origin, kRanks>> model;
    std::map<std::size_t, std::size_t> next;
    for (int step = 0; step < 400; ++step) {
      const std::size_t id = random() % 5 * 16;
      if (random() % 3 != 0) {
        const std::size_t origin = random() % kRanks;
        const std::uint64_t value = random() % 9;
        b.publish(origin, id, value);
        model[id][origin].pending += 1;
        model[id][origin].value += value;
        continue;
      }
      const std::uint64_t count = random() % 3 + 1;
      Notification expected{id, kAnySource, count, 0};
      std::uint64_t there = 0;
      for (const Origin& origin : model[id]) there += origin.pending;
      if (there < count) {
        EXPECT_EQ(b.one(id, count).count, 0U);
        continue;
      }
      std::uint64_t left = count;
      std::size_t suppliers = 0;
      for (std::size_t i = 0, begin = next[id]; i < kRanks && left > 0; ++i) {
        const std::size_t rank = (begin + i) % kRanks;
        Origin& origin = model[id][rank];
        const std::uint64_t part = std::min(left, origin.pending);
        if (part == 0) continue;
        left -= part;
        origin.pending -= part;
        expected.value += std::exchange(origin.value, 0);
        expected.source = suppliers++ == 0 ? static_cast<int>(rank) : kAnySource;
        next[id] = (rank + 1) % kRanks;
      }
      EXPECT_EQ(b.one(id, count), expected) << "seed " << seed << " step " << step;
    }
  }
}

TEST(NotifyBoard, threads_share_out_what_comes_and_nothing_is_lost_or_given_twice) {
  constexpr std::size_t kOrigins = 2;
  constexpr std::size_t kIds = 6;
  const auto each = static_cast<std::uint64_t>(rounds(20000, 1500));
  Board b(kOrigins, kIds);
  std::atomic<std::uint64_t> left{kOrigins * each};
  std::atomic<std::uint64_t> value{0};
  std::vector<std::thread> threads;
  for (std::size_t origin = 0; origin < kOrigins; ++origin) {
    threads.emplace_back([&, origin] {
      for (std::uint64_t i = 1; i <= each; ++i) b.publish(origin, i % kIds, i);
    });
  }
  for (std::size_t taker = 0; taker < 2; ++taker) {
    threads.emplace_back([&, taker] {
      while (left.load() > 0) {
        // One looks at all by the totals, the other at single ids by their records.
        Notification note = taker == 0 ? b.any(b.all) : b.one(left.load() % kIds);
        if (note.count == 0) {
          std::this_thread::yield();
          continue;
        }
        value.fetch_add(note.value);
        left.fetch_sub(note.count);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(value.load(), kOrigins * each * (each + 1) / 2);
  EXPECT_EQ(b.any(b.all).count, 0U);
}

}  // namespace
}  // namespace hixl_rma
