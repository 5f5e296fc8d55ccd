// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "conformance/side.h"
#include "conformance/target.h"
#include "fakes/fake_transport.h"
#include "support/status_assert.h"

namespace hixl_rma::testing {

/// A near side connected to a far side by the transport under test.
class Claims : public ::testing::TestWithParam<Trial> {
 protected:
  void SetUp() override {
    if (GetParam().is_fake()) session_.emplace(GetParam().fake);
    target_ = std::make_unique<Target>(GetParam());  // may fork: nothing else runs yet
    auto side = Side::create(GetParam(), kRegionBytes, 1);
    if (side.status().code() == StatusCode::kUnavailable) {
      GTEST_SKIP() << GetParam().transport << ": " << side.status().text();
    }
    ASSERT_OK(side);
    near_ = side.take();
    ASSERT_OK(target_->meet(*near_));
  }

  void TearDown() override {
    near_.reset();
    target_.reset();
    session_.reset();
  }

  [[nodiscard]] Side& near() { return *near_; }
  [[nodiscard]] Target& target() { return *target_; }
  [[nodiscard]] bool completes_inline() { return near().engine().capabilities(0).completes_inline; }

  std::optional<fakes::FakeSession> session_;
  std::unique_ptr<Target> target_;
  std::unique_ptr<Side> near_;
};

/// Moving bytes: every transport.
class DataClaims : public Claims {};
/// Posts and completions: every transport.
class PostClaims : public Claims {};
/// Words: transports that can carry control memory.
class ControlClaims : public Claims {};
/// The accumulate family: every transport that has it.
class AccumulateClaims : public Claims {};

}  // namespace hixl_rma::testing
