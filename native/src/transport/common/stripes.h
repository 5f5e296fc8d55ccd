// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/stripe_lock.h"
#include "hixl_rma/transport.h"

namespace hixl_rma {

/// How whoever executes an operation on a region takes its stripe locks.
inline StripeUser stripe_user(const RegionSync& sync) {
  return {sync.stripes, sync.holder, sync.patience};
}

}  // namespace hixl_rma
