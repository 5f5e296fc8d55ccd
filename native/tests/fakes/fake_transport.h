// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "hixl_rma/transport.h"

namespace hixl_rma::fakes {

class FakeNetwork;

enum class FakeVerb : std::uint8_t {
  kPut,
  kGet,
  kAccumulate,
  kSwap,
  kFetchAdd,
  kCompareSwap,
  kNotify,
  kFlush,
};
inline constexpr std::size_t kFakeVerbCount = 8;

struct FakeOptions {
  /// A thread of the target executes what arrives, as a tcp listener would; otherwise progress() of
  /// the origin does, and nothing happens between two calls of it.
  bool target_executes = true;
  /// Outstanding operations of one endpoint before a post answers Again; 0 = no bound.
  std::size_t queue_capacity = 0;
  /// Payload up to this size is copied when it is posted: its memory is reusable at once.
  std::size_t eager_bytes = 1024;
  /// Not 0: operations are executed out of order wherever the contract leaves the order open.
  std::uint64_t reorder_seed = 0;
};

/// What was executed, in the order of execution; serials count the posts of one endpoint.
struct FakeExecution {
  FakeVerb verb;
  std::uint64_t serial;
};

/// How fake transports that are probed while the session lives behave, and what is done to them.
/// One session at a time; engines end before their session.
class FakeSession {
 public:
  explicit FakeSession(const FakeOptions& options = {});
  FakeSession(const FakeSession&) = delete;
  FakeSession& operator=(const FakeSession&) = delete;
  ~FakeSession();

  /// Nothing more is executed until release().
  void hold();
  void release();
  /// The nth post of the verb from now on (1 = the next) fails: nothing happened.
  void fail_post(FakeVerb verb, std::uint64_t nth);
  /// The nth post of the verb from now on is accepted, not executed, and completes with
  /// TransferFailed.
  void fail_completion(FakeVerb verb, std::uint64_t nth);
  [[nodiscard]] std::vector<FakeExecution> executed() const;
  /// Regions that were imported.
  [[nodiscard]] std::size_t imports() const;
  /// Executed operations, without a copy of the list.
  [[nodiscard]] std::size_t executed_count() const;

 private:
  std::shared_ptr<FakeNetwork> network_;
};

/// A transport within one process that keeps the whole contract by work queues, so that no post but
/// an empty one is Done when it returns: the shape that tcp and verbs will have.
Result<std::unique_ptr<Transport>> probe_fake();

inline constexpr TransportEntry kFakeEntry = {"fake", probe_fake};

}  // namespace hixl_rma::fakes
