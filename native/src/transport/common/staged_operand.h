// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>

#include "base/stripe_lock.h"
#include "hixl_rma/transport.h"

namespace hixl_rma {

/// Memory for what one StripeGuard covers: on the stack where a stripe is enough.
class StripeScratch {
 public:
  std::byte* of(std::size_t nbytes) {
    if (nbytes <= small_.size()) return small_.data();
    if (!large_) large_ = std::make_unique_for_overwrite<std::byte[]>(kGroupBytes);
    return large_.get();
  }

 private:
  alignas(64) std::array<std::byte, kStripeBytes> small_;
  std::unique_ptr<std::byte[]> large_;
};

/// The operand of an accumulate, as much at a time as one StripeGuard covers. Where the result goes
/// into the same memory, the part in use is copied aside first: the old values are written before
/// the operand is read.
class StagedOperand {
 public:
  explicit StagedOperand(const Accumulate& operation)
      : operand_(operation.operand),
        aliased_(operation.result != nullptr && operation.result == operation.operand) {}

  const std::byte* at(std::size_t offset, std::size_t nbytes) {
    if (operand_ == nullptr || !aliased_) return operand_ == nullptr ? nullptr : operand_ + offset;
    std::byte* aside = scratch_.of(nbytes);
    std::memcpy(aside, operand_ + offset, nbytes);
    return aside;
  }

 private:
  const std::byte* operand_;
  bool aliased_;
  StripeScratch scratch_;
};

}  // namespace hixl_rma
