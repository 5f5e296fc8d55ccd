// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

#include "hixl_rma/status.h"

namespace hixl_rma {

/// Counts posted operations down to done and keeps the first error.
/// Owned by the caller, who keeps it alive until done(); a transport touches it only from
/// progress() or close(), never inside the post that returned Pending. Thread: complete() may run
/// on any thread; add() only before the post that will be completed.
class Completion {
 public:
  Completion() = default;
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;
  ~Completion() = default;

  void add(std::uint32_t operations = 1) {
    remaining_.fetch_add(operations, std::memory_order_relaxed);
  }

  void complete(const Status& status) {
    if (!status.ok()) {
      std::lock_guard lock(mutex_);
      if (error_.ok()) error_ = status;
    }
    remaining_.fetch_sub(1, std::memory_order_release);  // pairs with the acquire in done()
  }

  [[nodiscard]] bool done() const { return remaining_.load(std::memory_order_acquire) == 0; }

  [[nodiscard]] Status status() const {
    std::lock_guard lock(mutex_);
    return error_;
  }

  /// The first error since the last call: whoever reports it takes it, so that it is not reported
  /// again.
  Status take_status() {
    std::lock_guard lock(mutex_);
    return std::exchange(error_, Status());
  }

 private:
  std::atomic<std::uint32_t> remaining_{0};
  mutable std::mutex mutex_;
  Status error_;
};

}  // namespace hixl_rma
