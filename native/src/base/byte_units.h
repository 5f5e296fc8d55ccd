// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace hixl_rma {

/// Bytes of runs. `Run` has a member `nbytes`.
template <class Run>
std::size_t total_bytes(std::span<const Run> runs) {
  std::size_t total = 0;
  for (const Run& run : runs) total += run.nbytes;
  return total;
}

/// Whether runs are at least so many bytes, and long enough that looking at each once more costs
/// little beside moving it.
template <class Run>
bool worth_cutting(std::span<const Run> runs, std::size_t least_bytes) {
  constexpr std::size_t kShortRun = 1024;
  const std::size_t total = total_bytes(runs);
  return total >= least_bytes && total / runs.size() >= kShortRun;
}

/// Runs of any lengths, taken as one and cut into units of equal bytes: what several threads share
/// among them.
template <class Run>
class ByteUnits {
 public:
  /// Borrows the runs.
  ByteUnits(std::span<const Run> runs, std::size_t unit_bytes)
      : runs_(runs), unit_bytes_(unit_bytes) {
    ends_.reserve(runs.size());
    for (const Run& run : runs) ends_.push_back(total_ += run.nbytes);
  }

  [[nodiscard]] std::size_t count() const { return (total_ + unit_bytes_ - 1) / unit_bytes_; }

  /// visit(run, first byte within it, bytes) for each part of one unit, in order.
  template <class Visit>
  void visit(std::size_t unit, Visit&& visit) const {
    std::size_t at = unit * unit_bytes_;
    const std::size_t end = std::min(total_, at + unit_bytes_);
    auto i = static_cast<std::size_t>(std::ranges::upper_bound(ends_, at) - ends_.begin());
    while (at < end) {
      const std::size_t within = at - (ends_[i] - runs_[i].nbytes);
      const std::size_t n = std::min(end, ends_[i]) - at;
      visit(runs_[i], within, n);
      at += n;
      ++i;
    }
  }

 private:
  std::span<const Run> runs_;
  std::size_t unit_bytes_;
  std::vector<std::size_t> ends_;
  std::size_t total_ = 0;
};

}  // namespace hixl_rma
