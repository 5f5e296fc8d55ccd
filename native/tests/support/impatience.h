// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "base/patience.h"
#include "support/patience.h"

namespace hixl_rma::testing {

/// A patience whose holders die when a test says so.
class Mourner final : public Patience {
 public:
  explicit Mourner(Nanoseconds span = kPatience) : span_(span) {}

  void bury(std::uint64_t holder) { dead_.fetch_or(std::uint64_t{1} << holder); }

  [[nodiscard]] Deadline limit() const override { return Deadline::after(span_); }
  bool ended(std::uint64_t holder) override { return (dead_.load() >> holder & 1) != 0; }
  Status pause(const Deadline& limit, unsigned) override {
    if (limit.expired()) return Status::error(StatusCode::kTimeout, "the holder keeps it");
    std::this_thread::yield();
    return {};
  }

 private:
  const Nanoseconds span_;
  std::atomic<std::uint64_t> dead_{0};
};

}  // namespace hixl_rma::testing
