// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "base/deadline.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define HIXL_RMA_TESTS_SANITIZED 1
#else
#define HIXL_RMA_TESTS_SANITIZED 0
#endif

namespace hixl_rma::testing {

inline constexpr bool kSanitized = HIXL_RMA_TESTS_SANITIZED != 0;

/// How long a test waits for what must happen before it says that it did not: generous, because
/// other jobs share the cores and only a failing test pays it.
inline constexpr Nanoseconds kPatience = std::chrono::seconds(kSanitized ? 60 : 20);

inline Deadline soon() { return Deadline::after(kPatience); }

/// For waits that are to time out.
inline Deadline at_once() { return Deadline::after(std::chrono::milliseconds(5)); }

/// Rounds of a test that looks for a rare interleaving; the sanitizers are slower by far.
constexpr int rounds(int plain, int sanitized) { return kSanitized ? sanitized : plain; }

}  // namespace hixl_rma::testing
