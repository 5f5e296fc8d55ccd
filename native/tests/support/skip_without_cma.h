// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "transport/cma/factory.h"

/// Ends a test, with the kernel's reason, where this process may not even copy to itself.
#define SKIP_WITHOUT_CMA()                                 \
  if (auto probed = hixl_rma::probe_cma(); !probed.ok()) { \
    GTEST_SKIP() << "cma: " << probed.status().text();     \
  }                                                        \
  static_assert(true)
