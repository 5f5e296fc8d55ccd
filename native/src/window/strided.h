// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace hixl_rma {

inline constexpr std::size_t kMaxDimensions = 64;  // as numpy

/// An array of any shape and byte strides, walked in C order as runs of neighbouring bytes.
/// Positions are relative to the first element and may be negative.
class StridedRuns {
 public:
  /// One run of `nbytes`.
  explicit StridedRuns(std::size_t nbytes);
  /// shape and strides have the same length, at most kMaxDimensions.
  StridedRuns(std::size_t itemsize, std::span<const std::ptrdiff_t> shape,
              std::span<const std::ptrdiff_t> strides);

  [[nodiscard]] std::size_t total_bytes() const { return total_; }
  [[nodiscard]] bool contiguous() const { return dimensions_ == 0; }
  [[nodiscard]] std::size_t run_bytes() const { return run_; }
  /// Lowest and one past the highest byte touched, relative to the first element.
  [[nodiscard]] std::ptrdiff_t lowest() const { return lowest_; }
  [[nodiscard]] std::ptrdiff_t highest() const { return highest_; }

  // ---- a cursor over the runs
  [[nodiscard]] bool finished() const { return finished_; }
  [[nodiscard]] std::ptrdiff_t position() const {
    return at_ + static_cast<std::ptrdiff_t>(consumed_);
  }
  [[nodiscard]] std::size_t run_left() const { return run_ - consumed_; }
  /// n <= run_left().
  void advance(std::size_t n);

 private:
  void next_run();

  std::size_t run_ = 0;  // bytes of one run
  std::size_t total_ = 0;
  std::size_t dimensions_ = 0;  // outer dimensions that remain after merging
  std::array<std::ptrdiff_t, kMaxDimensions> shape_;
  std::array<std::ptrdiff_t, kMaxDimensions> strides_;
  std::array<std::ptrdiff_t, kMaxDimensions> index_;
  std::ptrdiff_t lowest_ = 0;
  std::ptrdiff_t highest_ = 0;
  std::ptrdiff_t at_ = 0;
  std::size_t consumed_ = 0;
  bool finished_ = false;
};

}  // namespace hixl_rma
