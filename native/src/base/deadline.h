// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace hixl_rma {

using Clock = std::chrono::steady_clock;
using Nanoseconds = std::chrono::nanoseconds;

/// Time passed [ns].
inline std::uint64_t nanoseconds_since(Clock::time_point begin) {
  return static_cast<std::uint64_t>(Nanoseconds(Clock::now() - begin).count());
}

/// A point in time that several waits share, or never.
class Deadline {
 public:
  /// Never.
  Deadline() = default;

  static Deadline after(Nanoseconds span) {
    Deadline deadline;
    deadline.at_ = Clock::now() + span;
    return deadline;
  }

  /// A negative number of seconds means never; a very long time, or NaN, is capped at 100 years.
  static Deadline after_seconds(double seconds) {
    if (seconds < 0) return {};
    constexpr double kMaxSeconds = 100.0 * 365 * 86400;
    // In this order min() gives kMaxSeconds for NaN.
    return after(Nanoseconds(static_cast<long long>(std::min(kMaxSeconds, seconds) * 1e9)));
  }

  [[nodiscard]] bool never() const { return at_ == Clock::time_point::max(); }
  [[nodiscard]] bool expired() const { return !never() && Clock::now() >= at_; }

  /// Time left, at most `cap` and never below zero.
  [[nodiscard]] Nanoseconds remaining(Nanoseconds cap) const {
    if (never()) return cap;
    return std::clamp(std::chrono::duration_cast<Nanoseconds>(at_ - Clock::now()), Nanoseconds(0),
                      cap);
  }

 private:
  Clock::time_point at_ = Clock::time_point::max();
};

}  // namespace hixl_rma
