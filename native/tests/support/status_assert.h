// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "hixl_rma/status.h"

namespace hixl_rma {

/// Found by GoogleTest through the namespace of its argument.
inline void PrintTo(StatusCode code, std::ostream* out) { *out << name_of(code); }

}  // namespace hixl_rma

namespace hixl_rma::testing {

inline ::testing::AssertionResult is_ok(const Status& status) {
  if (status.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << name_of(status.code()) << ": " << status.text();
}

template <class T>
::testing::AssertionResult is_ok(const Result<T>& result) {
  return is_ok(result.status());
}

inline ::testing::AssertionResult has_code(const Status& status, StatusCode code) {
  if (status.code() == code) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "expected " << name_of(code) << ", got "
                                       << name_of(status.code()) << ": " << status.text();
}

inline ::testing::AssertionResult says(const Status& status, const std::string& words) {
  if (status.text().find(words) != std::string_view::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "no '" << words << "' in: " << status.text();
}

}  // namespace hixl_rma::testing

// NOLINTBEGIN(bugprone-macro-parentheses)
#define EXPECT_OK(expression) EXPECT_TRUE(::hixl_rma::testing::is_ok(expression))
#define ASSERT_OK(expression) ASSERT_TRUE(::hixl_rma::testing::is_ok(expression))
#define EXPECT_CODE(expression, expected) \
  EXPECT_TRUE(::hixl_rma::testing::has_code((expression), (expected)))
#define EXPECT_SAYS(status, words) EXPECT_TRUE(::hixl_rma::testing::says((status), (words)))
// NOLINTEND(bugprone-macro-parentheses)
