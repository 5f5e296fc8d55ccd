// SPDX-License-Identifier: Apache-2.0
#include "window/short_waits.h"

#include <chrono>
#include <string>
#include <thread>

#include "window/window.h"

namespace hixl_rma {
namespace {

constexpr Nanoseconds kPause = std::chrono::microseconds(50);
/// Signals are asked for so often: every 50 ms, as pauses take a little longer than they should.
constexpr unsigned kPausesPerSignal = 500;

}  // namespace

Deadline ShortWaits::limit() const {
  return Deadline::after_seconds(window_.options_.wait.seconds);
}

bool ShortWaits::ended(std::uint64_t holder) {
  if (holder == 0 || holder > static_cast<std::uint64_t>(window_.options_.size)) return false;
  return window_.peers_->look_at(static_cast<int>(holder - 1));
}

Status ShortWaits::pause(const Deadline& limit, unsigned times) {
  const WaitPolicy& policy = window_.options_.wait;
  if (window_.closed()) {
    return Status::error(StatusCode::kClosed, "the window was freed by another thread");
  }
  if (limit.expired()) {
    return Status::error(StatusCode::kTimeout,
                         "timed out waiting for a lock that a rank holds in the middle of an "
                         "operation: it may have been stopped there");
  }
  if (times % kPausesPerSignal == kPausesPerSignal - 1 && policy.interrupted != nullptr &&
      policy.interrupted()) {
    return Status::error(StatusCode::kCanceled, "interrupted by a signal");
  }
  const Window::Inside inside(window_);
  if (policy.pause != nullptr) {
    policy.pause(limit.remaining(kPause));
  } else {
    std::this_thread::sleep_for(limit.remaining(kPause));
  }
  return {};
}

}  // namespace hixl_rma
