// SPDX-License-Identifier: Apache-2.0
//
// StridedRuns against a walk that visits every byte of every element.
#include "window/strided.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

namespace hixl_rma {
namespace {

struct Layout {
  std::size_t itemsize = 1;
  std::vector<std::ptrdiff_t> shape;
  std::vector<std::ptrdiff_t> strides;

  [[nodiscard]] StridedRuns runs() const { return {itemsize, shape, strides}; }
};

/// Position of every byte, in C order.
std::vector<std::ptrdiff_t> walk_all(const Layout& layout) {
  std::vector<std::ptrdiff_t> elements = {0};
  for (std::size_t dimension = 0; dimension < layout.shape.size(); ++dimension) {
    std::vector<std::ptrdiff_t> next;
    for (const std::ptrdiff_t base : elements) {
      for (std::ptrdiff_t i = 0; i < layout.shape[dimension]; ++i) {
        next.push_back(base + i * layout.strides[dimension]);
      }
    }
    elements = std::move(next);
  }
  std::vector<std::ptrdiff_t> bytes;
  for (const std::ptrdiff_t element : elements) {
    for (std::size_t i = 0; i < layout.itemsize; ++i) {
      bytes.push_back(element + static_cast<std::ptrdiff_t>(i));
    }
  }
  return bytes;
}

/// The same by the walker, in steps as `step` says.
template <class Step>
std::vector<std::ptrdiff_t> walk_runs(StridedRuns runs, Step step) {
  std::vector<std::ptrdiff_t> bytes;
  while (!runs.finished()) {
    const std::size_t n = std::clamp<std::size_t>(step(), 1, runs.run_left());
    for (std::size_t i = 0; i < n; ++i) {
      bytes.push_back(runs.position() + static_cast<std::ptrdiff_t>(i));
    }
    runs.advance(n);
  }
  return bytes;
}

void expect_like_the_walk(const Layout& layout, std::minstd_rand& random) {
  const auto expected = walk_all(layout);
  const StridedRuns runs = layout.runs();
  EXPECT_EQ(runs.total_bytes(), expected.size());
  EXPECT_EQ(walk_runs(runs, [] { return ~std::size_t{0}; }), expected);
  EXPECT_EQ(walk_runs(runs, [&] { return std::size_t{random() % 5 + 1}; }), expected);
  if (expected.empty()) {
    EXPECT_EQ(runs.lowest(), 0);
    EXPECT_EQ(runs.highest(), 0);
    EXPECT_TRUE(runs.finished());
    return;
  }
  EXPECT_EQ(runs.lowest(), std::ranges::min(expected));
  EXPECT_EQ(runs.highest(), std::ranges::max(expected) + 1);
}

TEST(StridedRuns, random_layouts_are_walked_like_the_elements) {
  std::minstd_rand random(7);
  for (int round = 0; round < 4000; ++round) {
    Layout layout;
    layout.itemsize = std::size_t{1} << random() % 4;
    const std::size_t dimensions = random() % 5;
    for (std::size_t i = 0; i < dimensions; ++i) {
      layout.shape.push_back(static_cast<std::ptrdiff_t>(random() % 5));
      layout.strides.push_back((static_cast<std::ptrdiff_t>(random() % 41) - 20) * 8);
    }
    expect_like_the_walk(layout, random);
  }
}

TEST(StridedRuns, layouts_cut_from_arrays_are_walked_like_the_elements) {
  std::minstd_rand random(8);
  for (int round = 0; round < 2000; ++round) {
    // A C-contiguous array, some dimensions sliced, reversed or cut to one element.
    Layout layout;
    layout.itemsize = 4;
    std::ptrdiff_t stride = 4;
    for (std::size_t i = 0; i < 4; ++i) {
      const auto extent = static_cast<std::ptrdiff_t>(random() % 4 + 1);
      const auto step = static_cast<std::ptrdiff_t>(random() % 2 + 1);
      const std::ptrdiff_t sign = random() % 3 == 0 ? -1 : 1;
      layout.shape.insert(layout.shape.begin(), (extent + step - 1) / step);
      layout.strides.insert(layout.strides.begin(), sign * step * stride);
      stride *= extent;
    }
    expect_like_the_walk(layout, random);
  }
}

TEST(StridedRuns, a_contiguous_array_is_one_run) {
  const Layout layout{8, {3, 4, 5}, {160, 40, 8}};
  EXPECT_TRUE(layout.runs().contiguous());
  EXPECT_EQ(layout.runs().run_bytes(), 480U);
  const Layout with_ones{8, {1, 4, 1, 5, 1}, {-7, 40, 999, 8, 3}};
  EXPECT_TRUE(with_ones.runs().contiguous());
  EXPECT_EQ(with_ones.runs().run_bytes(), 160U);
}

TEST(StridedRuns, a_column_is_one_run_an_element) {
  const Layout column{8, {6}, {48}};
  EXPECT_FALSE(column.runs().contiguous());
  EXPECT_EQ(column.runs().run_bytes(), 8U);
  const Layout rows{8, {6, 3}, {48, 8}};
  EXPECT_EQ(rows.runs().run_bytes(), 24U);
}

TEST(StridedRuns, a_scalar_is_one_element) {
  const Layout scalar{8, {}, {}};
  EXPECT_EQ(scalar.runs().total_bytes(), 8U);
  EXPECT_TRUE(scalar.runs().contiguous());
}

TEST(StridedRuns, a_repeated_element_is_visited_each_time) {
  std::minstd_rand random(9);
  expect_like_the_walk({4, {3, 2}, {0, 4}}, random);
  expect_like_the_walk({4, {2, 3}, {4, 0}}, random);
}

TEST(StridedRuns, no_bytes_are_finished_at_once) {
  EXPECT_TRUE(StridedRuns(0).finished());
  EXPECT_EQ(StridedRuns(0).total_bytes(), 0U);
  const Layout none{8, {4, 0, 2}, {16, 8, 8}};
  EXPECT_TRUE(none.runs().finished());
}

TEST(StridedRuns, as_many_dimensions_as_numpy_has_are_taken) {
  Layout layout;
  layout.itemsize = 2;
  for (std::size_t i = 0; i < kMaxDimensions; ++i) {
    layout.shape.push_back(i % 8 == 0 ? 2 : 1);
    layout.strides.push_back(static_cast<std::ptrdiff_t>(i) * 64 + 2);
  }
  std::minstd_rand random(10);
  expect_like_the_walk(layout, random);
}

}  // namespace
}  // namespace hixl_rma
