// SPDX-License-Identifier: Apache-2.0
//
// put, get, the accumulate family and their checks, between ranks.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "support/pattern.h"
#include "window/ranks.h"

namespace hixl_rma::testing {
namespace {

constexpr int kRanks = 3;

class WindowTransfer : public WindowTest {};
INSTANTIATE_WINDOW_SUITE(WindowTransfer);

std::uint64_t seed_of(int rank) { return 100 + static_cast<std::uint64_t>(rank); }

template <class T>
OriginArray origin_of(std::vector<T>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), StridedRuns(values.size() * sizeof(T))};
}

OriginArray nothing() { return {nullptr, StridedRuns(0)}; }

Status accumulate(Rank& rank, ReduceRequest request, OriginArray origin, OriginArray result,
                  int target, std::uint64_t displacement) {
  Window::Issue issue;
  return rank.window.accumulate(request, origin, result, target, {displacement}, issue);
}

TEST_P(WindowTransfer, a_put_of_one_fence_epoch_is_there_after_the_fence) {
  run(kRanks, 300000, [](Rank& rank) {
    for (const std::size_t length : {1UL, 8UL, 4097UL, 250001UL}) {
      ASSERT_OK(rank.fence());
      std::ranges::fill(rank.local(), std::byte{0});
      ASSERT_OK(rank.fence());
      const Bytes payload = make_pattern(length, seed_of(rank.me));
      EXPECT_OK(rank.put(payload, rank.right(), 3));
      ASSERT_OK(rank.fence());
      const auto local = rank.local();
      EXPECT_EQ(first_mismatch(local.data() + 3, length, seed_of(rank.left())), length);
      EXPECT_EQ(local[2], std::byte{0});
      EXPECT_EQ(local[3 + length], std::byte{0});
    }
  });
}

TEST_P(WindowTransfer, a_get_brings_what_a_rank_stored_before_the_fence) {
  run(kRanks, 100000, [](Rank& rank) {
    fill_pattern(rank.local().data(), 100000, seed_of(rank.me));
    ASSERT_OK(rank.fence());
    for (int target = 0; target < rank.size; ++target) {
      Bytes back(77777);
      EXPECT_OK(rank.get(back, target, 0));
      ASSERT_OK(rank.fence());
      EXPECT_EQ(first_mismatch(back.data(), back.size(), seed_of(target)), back.size());
    }
  });
}

TEST_P(WindowTransfer, displacements_count_in_units_of_the_target) {
  const auto configure = [](int rank, WindowOptions& options) {
    options.disp_unit = std::uint64_t{1} << rank;
    options.nbytes = 4096;
  };
  run(kRanks, configure, [](Rank& rank) {
    ASSERT_OK(rank.fence());
    const Bytes payload = make_pattern(16, seed_of(rank.me));
    for (int target = 0; target < rank.size; ++target) {
      EXPECT_EQ(rank.window.unit_of(target), std::uint64_t{1} << target);
      EXPECT_OK(rank.put(payload, target, 100 + 16 * static_cast<std::uint64_t>(rank.me)));
    }
    ASSERT_OK(rank.fence());
    const std::size_t unit = std::size_t{1} << rank.me;
    for (int origin = 0; origin < rank.size; ++origin) {
      const std::size_t place = (100 + 16 * static_cast<std::size_t>(origin)) * unit;
      EXPECT_EQ(first_mismatch(rank.local().data() + place, 16, seed_of(origin)), 16U);
    }
  });
}

TEST_P(WindowTransfer, strides_at_both_sides_move_element_by_element) {
  run(2, 40 * 50 * 4, [](Rank& rank) {
    ASSERT_OK(rank.fence());
    // Every other row of a 20 x 30 array, backwards, into column 7 of the 40 x 50 at the target.
    std::vector<std::uint32_t> origin(20 * 30);
    std::iota(origin.begin(), origin.end(), static_cast<std::uint32_t>(rank.me) * 10000);
    const std::array<std::ptrdiff_t, 2> shape = {10, 4};
    const std::array<std::ptrdiff_t, 2> strides = {-2 * 30 * 4, 3 * 4};
    const OriginArray array{reinterpret_cast<std::byte*>(origin.data() + 19 * 30),
                            StridedRuns(4, shape, strides)};
    const std::array<std::ptrdiff_t, 1> column_shape = {40};
    const std::array<std::ptrdiff_t, 1> column_strides = {50 * 4};
    const StridedRuns column(4, column_shape, column_strides);
    Window::Issue issue;
    EXPECT_OK(rank.window.put_array(array, rank.right(), {7 * 4, &column}, issue));
    ASSERT_OK(rank.fence());
    std::vector<std::uint32_t> local(40 * 50);
    std::memcpy(local.data(), rank.local().data(), rank.local().size());
    for (std::size_t row = 0; row < 40; ++row) {
      const std::size_t from = (19 - row / 4 * 2) * 30 + row % 4 * 3;
      EXPECT_EQ(local[row * 50 + 7], static_cast<std::uint32_t>(rank.left()) * 10000 + from);
      EXPECT_EQ(local[row * 50 + 8], 0U);
    }
    std::vector<std::uint32_t> back(40);
    EXPECT_OK(rank.window.get_array(origin_of(back), rank.right(), {7 * 4, &column}, issue));
    ASSERT_OK(rank.fence());
    for (std::size_t row = 0; row < 40; ++row) {
      EXPECT_EQ(back[row], origin[(19 - row / 4 * 2) * 30 + row % 4 * 3]);
    }
  });
}

TEST_P(WindowTransfer, a_list_of_pieces_is_one_operation_whether_they_touch_or_not) {
  constexpr std::size_t kPieces = 2500;
  run(2, kPieces * 48, [](Rank& rank) {
    const Bytes source = make_pattern(kPieces * 16, seed_of(rank.me));
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < kPieces; ++i) {
      // The first half neighbours at both sides, the second at neither.
      const std::size_t place = i < kPieces / 2 ? i * 16 : i * 48;
      pieces.push_back({const_cast<std::byte*>(source.data()) + i * 16, place, 16});
    }
    ASSERT_OK(rank.window.lock(rank.right(), true, soon()));
    Window::Issue issue;
    EXPECT_OK(rank.window.put_pieces(pieces, rank.right(), issue));
    EXPECT_OK(rank.flush(rank.right()));
    Bytes back(source.size());
    for (std::size_t i = 0; i < kPieces; ++i) pieces[i].local = back.data() + i * 16;
    EXPECT_OK(rank.window.get_pieces(pieces, rank.right(), issue));
    ASSERT_OK(rank.window.unlock(rank.right(), soon()));
    EXPECT_EQ(back, source);
    EXPECT_EQ(rank.window.stats(rank.right()).puts.calls, 1U);
    EXPECT_EQ(rank.window.stats(rank.right()).gets.bytes, source.size());
  });
}

TEST_P(WindowTransfer, what_does_not_lie_inside_the_target_is_refused_before_a_byte_moves) {
  constexpr std::uint64_t kMax = ~std::uint64_t{0};
  struct Line {
    std::uint64_t displacement;
    std::size_t nbytes;
    bool inside;
  };
  constexpr std::array<Line, 11> kTable = {{{0, 64, true},
                                            {0, 65, false},
                                            {7, 8, true},
                                            {8, 0, true},
                                            {8, 1, false},
                                            {9, 0, false},
                                            {7, 9, false},
                                            {kMax, 1, false},
                                            {kMax / 8 + 1, 8, false},
                                            {kMax / 8 + 2, 8, false},
                                            {std::uint64_t{1} << 61, 8, false}}};
  const auto configure = [](int, WindowOptions& options) {
    options.disp_unit = 8;
    options.nbytes = 64;
  };
  run(2, configure, [&](Rank& rank) {
    ASSERT_OK(rank.window.lock_all(soon()));
    Bytes memory(80, std::byte{0});
    for (const Line& line : kTable) {
      const std::span<std::byte> part(memory.data(), line.nbytes);
      const StatusCode expected = line.inside ? StatusCode::kOk : StatusCode::kOutOfRange;
      EXPECT_CODE(rank.put(part, rank.right(), line.displacement), expected) << line.displacement;
      EXPECT_CODE(rank.get(part, rank.right(), line.displacement), expected) << line.displacement;
      std::uint64_t offset = 0;
      EXPECT_CODE(rank.window.locate(rank.right(), line.displacement, line.nbytes, &offset),
                  expected)
          << line.displacement;
      EXPECT_EQ(offset, line.inside ? line.displacement * 8 : 0);
      EXPECT_CODE(accumulate(rank, {DataType::kUint8, ReduceOp::kSum},
                             {memory.data(), StridedRuns(line.nbytes)}, nothing(), rank.right(),
                             line.displacement),
                  expected);
    }
    EXPECT_CODE(rank.put(memory, 2, 0), StatusCode::kOutOfRange);
    EXPECT_CODE(rank.put(memory, -1, 0), StatusCode::kOutOfRange);
    ASSERT_OK(rank.window.unlock_all(soon()));
  });
}

TEST_P(WindowTransfer, a_layout_that_leaves_the_target_is_refused) {
  run(2, 64, [](Rank& rank) {
    ASSERT_OK(rank.fence());
    std::vector<std::uint64_t> origin(4);
    const std::array<std::ptrdiff_t, 1> shape = {4};
    const auto put = [&](std::ptrdiff_t stride, std::uint64_t first) {
      const std::array<std::ptrdiff_t, 1> strides = {stride};
      const StridedRuns layout(8, shape, strides);
      Window::Issue issue;
      return rank.window.put_array(origin_of(origin), rank.right(), {first, &layout}, issue);
    };
    EXPECT_OK(put(16, 8));
    EXPECT_OK(put(-16, 56));
    EXPECT_CODE(put(16, 9), StatusCode::kOutOfRange);
    EXPECT_CODE(put(-16, 47), StatusCode::kOutOfRange);
    EXPECT_CODE(put(-16, 57), StatusCode::kOutOfRange);
    const std::array<std::ptrdiff_t, 1> strides = {8};
    const StridedRuns longer(8, std::array<std::ptrdiff_t, 1>{5}, strides);
    Window::Issue issue;
    EXPECT_CODE(rank.window.put_array(origin_of(origin), rank.right(), {0, &longer}, issue),
                StatusCode::kInvalidArgument);
    ASSERT_OK(rank.fence());
  });
}

TEST_P(WindowTransfer, without_an_epoch_nothing_moves) {
  run(2, 64, [](Rank& rank) {
    const Bytes payload = make_pattern(64, 1);
    Bytes back(64);
    EXPECT_CODE(rank.put(payload, rank.right(), 0), StatusCode::kWrongEpoch);
    EXPECT_CODE(rank.get(back, rank.right(), 0), StatusCode::kWrongEpoch);
    EXPECT_CODE(rank.notify(rank.right(), {}), StatusCode::kWrongEpoch);
    EXPECT_CODE(rank.flush(rank.right()), StatusCode::kWrongEpoch);
    ASSERT_OK(rank.fence());
    EXPECT_EQ(rank.local()[0], std::byte{0});
    EXPECT_EQ(back, Bytes(64));
  });
}

TEST_P(WindowTransfer, accumulates_of_all_ranks_add_up) {
  const int times = rounds(200, 25);
  constexpr std::size_t kCount = 1000;
  run(kRanks, kCount * 8, [&](Rank& rank) {
    ASSERT_OK(rank.window.lock_all(soon()));
    std::vector<double> ones(kCount, 1.0);
    for (int i = 0; i < times; ++i) {
      EXPECT_OK(accumulate(rank, {DataType::kFloat64, ReduceOp::kSum}, origin_of(ones), nothing(),
                           (rank.me + i) % rank.size, 0));
    }
    ASSERT_OK(rank.window.unlock_all(soon()));
    rank.meet();
    std::vector<double> sums(kCount);
    std::memcpy(sums.data(), rank.local().data(), kCount * 8);
    double expected = 0;
    for (int origin = 0; origin < rank.size; ++origin) {
      for (int i = 0; i < times; ++i) expected += (origin + i) % rank.size == rank.me ? 1 : 0;
    }
    EXPECT_EQ(sums, std::vector<double>(kCount, expected));
    rank.meet();
  });
}

TEST_P(WindowTransfer, every_fetch_and_op_draws_another_number) {
  const int times = rounds(200, 40);
  std::mutex mutex;
  std::set<std::uint64_t> drawn;
  run(kRanks, 64, [&](Rank& rank) {
    ASSERT_OK(rank.window.lock(0, false, soon()));
    std::vector<std::uint64_t> one = {1};
    std::vector<std::uint64_t> mine(1);
    for (int i = 0; i < times; ++i) {
      EXPECT_OK(accumulate(rank, {DataType::kUint64, ReduceOp::kSum}, origin_of(one),
                           origin_of(mine), 0, 8));
      EXPECT_OK(rank.flush(0));
      std::lock_guard lock(mutex);
      drawn.insert(mine[0]);
    }
    ASSERT_OK(rank.window.unlock(0, soon()));
  });
  const auto expected = static_cast<std::uint64_t>(kRanks * times);
  EXPECT_EQ(drawn.size(), expected);
  EXPECT_EQ(*drawn.rbegin(), expected - 1);
}

TEST_P(WindowTransfer, compare_and_swap_lets_one_of_many_win) {
  const int times = rounds(100, 20);
  run(kRanks, 64, [&](Rank& rank) {
    ASSERT_OK(rank.window.lock_all(soon()));
    std::int64_t seen = 0;
    for (int i = 0; i < times;) {
      const std::int64_t desired = seen + 1;
      std::int64_t result = -1;
      Window::Issue issue;
      ASSERT_OK(rank.window.compare_and_swap(DataType::kInt64,
                                             reinterpret_cast<const std::byte*>(&desired),
                                             reinterpret_cast<const std::byte*>(&seen),
                                             reinterpret_cast<std::byte*>(&result), 1, 16, issue));
      ASSERT_OK(rank.flush(1));
      i += result == seen ? 1 : 0;
      seen = result == seen ? desired : result;
    }
    ASSERT_OK(rank.window.unlock_all(soon()));
    rank.meet();
    std::int64_t sum = 0;
    std::memcpy(&sum, rank.local().data() + 16, 8);
    EXPECT_EQ(sum, rank.me == 1 ? kRanks * times : 0);
    rank.meet();
  });
}

TEST_P(WindowTransfer, an_accumulate_that_has_no_meaning_is_refused) {
  run(1, 64, [](Rank& rank) {
    ASSERT_OK(rank.fence());
    std::vector<double> values(4);
    std::vector<double> more(5);
    EXPECT_CODE(
        accumulate(rank, {DataType::kFloat64, ReduceOp::kBand}, origin_of(values), nothing(), 0, 0),
        StatusCode::kInvalidType);
    EXPECT_CODE(
        accumulate(rank, {DataType::kFloat64, ReduceOp::kSum}, nothing(), origin_of(values), 0, 0),
        StatusCode::kInvalidArgument);
    EXPECT_CODE(accumulate(rank, {DataType::kFloat64, ReduceOp::kSum}, origin_of(values),
                           origin_of(more), 0, 0),
                StatusCode::kInvalidArgument);
    const double one = 1;
    double result = 0;
    const auto* bytes = reinterpret_cast<const std::byte*>(&one);
    Window::Issue issue;
    EXPECT_CODE(rank.window.compare_and_swap(DataType::kFloat64, bytes, bytes,
                                             reinterpret_cast<std::byte*>(&result), 0, 0, issue),
                StatusCode::kInvalidType);
    ASSERT_OK(rank.fence());
    EXPECT_TRUE(std::ranges::all_of(rank.local(), [](std::byte b) { return b == std::byte{0}; }));
  });
}

TEST_P(WindowTransfer, a_request_is_done_when_its_bytes_are_placed) {
  run(2, 1 << 20, [](Rank& rank) {
    ASSERT_OK(rank.window.lock(rank.right(), false, soon()));
    const Bytes payload = make_pattern(1 << 20, seed_of(rank.me));
    Completion completion;
    Window::Issue issue{.own = &completion};
    ASSERT_OK(rank.window.put(payload.data(), payload.size(), rank.right(), 0, issue));
    ASSERT_OK(rank.window.wait(completion, soon()));
    rank.meet();
    EXPECT_EQ(first_mismatch(rank.local().data(), 1 << 20, seed_of(rank.left())),
              std::size_t{1} << 20);
    ASSERT_OK(rank.window.unlock(rank.right(), soon()));
    rank.meet();
  });
}

TEST_P(WindowTransfer, threads_of_one_rank_may_put_at_the_same_time) {
  constexpr std::size_t kThreads = 3;
  constexpr std::size_t kLength = 5000;
  run(2, kThreads * kLength, [](Rank& rank) {
    ASSERT_OK(rank.window.lock_all(soon()));
    const Bytes payload = make_pattern(kThreads * kLength, seed_of(rank.me));
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t i = 0; i < kLength; i += 100) {
          EXPECT_OK(rank.put(std::span(payload).subspan(t * kLength + i, 100), rank.right(),
                             t * kLength + i));
          if (i % 1000 != 0) continue;
          EXPECT_OK(rank.flush(rank.right()));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_OK(rank.window.unlock_all(soon()));
    rank.meet();
    EXPECT_EQ(first_mismatch(rank.local().data(), kThreads * kLength, seed_of(rank.left())),
              kThreads * kLength);
    rank.meet();
  });
}

}  // namespace
}  // namespace hixl_rma::testing
