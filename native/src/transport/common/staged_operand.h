// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstring>

#include "base/stripe_lock.h"
#include "hixl_rma/transport.h"

namespace hixl_rma {

/// The operand of an accumulate, stripe by stripe. Where the result goes into the same memory, the
/// part in use is copied aside first: the old values are written before the operand is read.
class StagedOperand {
 public:
  explicit StagedOperand(const Accumulate& operation)
      : operand_(operation.operand),
        aliased_(operation.result != nullptr && operation.result == operation.operand) {}

  /// nbytes is what one StripeGuard covers.
  const std::byte* at(std::size_t offset, std::size_t nbytes) {
    if (operand_ == nullptr || !aliased_) return operand_ == nullptr ? nullptr : operand_ + offset;
    std::memcpy(staging_.data(), operand_ + offset, nbytes);
    return staging_.data();
  }

 private:
  const std::byte* operand_;
  bool aliased_;
  alignas(64) std::array<std::byte, kStripeBytes> staging_;
};

}  // namespace hixl_rma
