// SPDX-License-Identifier: Apache-2.0
//
// The moving parts of the fake transport: a queue for each endpoint, the process-wide state that a
// session steers, and what one transport is to its peers.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "fakes/fake_transport.h"
#include "transport/common/mapped_endpoint.h"

namespace hixl_rma::fakes {

class FakePort;

/// What the target does with its own memory, by the verbs of a mapped endpoint.
using FakeWork = std::function<PostResult(MappedEndpoint& verbs, RemoteRegion& region)>;

struct FakeOperation {
  FakeVerb verb = FakeVerb::kFlush;
  std::uint64_t region = 0;  ///< id at the target; 0 for a flush
  FakeWork work;
  bool borrows = false;  ///< the caller's memory is in use until the operation was executed
  Completion* completion = nullptr;
  std::uint64_t serial = 0;
  bool fails = false;
  Status outcome;
};

enum class FakeFault : std::uint8_t { kNone, kPost, kCompletion };

/// Shared by all transports of a session.
/// Thread: any.
class FakeNetwork {
 public:
  explicit FakeNetwork(const FakeOptions& options) : options_(options) {}

  [[nodiscard]] const FakeOptions& options() const { return options_; }
  [[nodiscard]] bool held() const { return held_.load(std::memory_order_acquire); }
  void set_held(bool held);
  void add_fault(FakeVerb verb, std::uint64_t nth, FakeFault fault);
  FakeFault take_fault(FakeVerb verb);
  void log(const FakeExecution& execution);
  [[nodiscard]] std::vector<FakeExecution> executed() const;
  [[nodiscard]] std::size_t executed_count() const;
  void count_import() { imports_.fetch_add(1); }
  [[nodiscard]] std::size_t imports() const { return imports_.load(); }

  std::uint64_t add_port(const std::shared_ptr<FakePort>& port);
  [[nodiscard]] std::shared_ptr<FakePort> find_port(std::uint64_t id) const;

 private:
  const FakeOptions options_;
  std::atomic<bool> held_{false};
  std::atomic<std::size_t> imports_{0};
  mutable std::mutex mutex_;
  std::array<std::uint64_t, kFakeVerbCount> posts_{};
  std::map<std::pair<FakeVerb, std::uint64_t>, FakeFault> faults_;
  std::vector<FakeExecution> executed_;
  std::map<std::uint64_t, std::weak_ptr<FakePort>> ports_;
  std::uint64_t next_port_ = 1;
};

/// One endpoint's queue. The origin posts and fires, the target executes.
/// Thread: any; one operation is executed at a time.
class FakeQueue {
 public:
  FakeQueue(std::shared_ptr<FakeNetwork> network, std::shared_ptr<FakePort> target);
  FakeQueue(const FakeQueue&) = delete;
  FakeQueue& operator=(const FakeQueue&) = delete;
  ~FakeQueue() = default;

  PostResult post(FakeOperation operation);
  /// Done when nothing is outstanding that the scope asks for.
  PostResult flush(FlushScope scope, Completion* completion);
  /// Executes one operation; false when there was none.
  bool execute_one();
  /// Fires what was executed; returns how many.
  std::size_t fire();
  void close();
  /// The target is gone: everything that waits fails.
  void fail_all(const Status& reason);
  [[nodiscard]] bool outstanding() const;

 private:
  [[nodiscard]] std::size_t next_index();
  void finish(FakeOperation operation, Status outcome);
  PostResult admit(FakeOperation& operation);

  const std::shared_ptr<FakeNetwork> network_;
  const std::shared_ptr<FakePort> target_;
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  std::deque<FakeOperation> queue_;
  std::deque<FakeOperation> done_;
  std::minstd_rand random_;
  std::uint64_t next_serial_ = 0;
  std::size_t borrowing_ = 0;  // operations not executed that use the caller's memory
  bool executing_ = false;
  bool closed_ = false;
  bool failed_ = false;  // an operation failed since the last flush: no notify may be delivered
};

/// What one transport is to its peers: its regions and the thread that works on them.
class FakePort {
 public:
  explicit FakePort(std::shared_ptr<FakeNetwork> network) : network_(std::move(network)) {}
  FakePort(const FakePort&) = delete;
  FakePort& operator=(const FakePort&) = delete;
  ~FakePort() = default;

  void start();
  /// Fails what peers have queued and ends the thread.
  void stop();
  void wake();

  std::uint64_t add_region(const MemoryView& view);
  void bind_region(std::uint64_t id, const RegionSync& sync);
  /// After it returns no byte of the region is touched any more.
  void remove_region(std::uint64_t id);
  Status execute(const FakeOperation& operation);

  void add_inbound(const std::shared_ptr<FakeQueue>& queue);
  [[nodiscard]] bool stopped() const { return stopped_.load(std::memory_order_acquire); }

 private:
  void work();
  std::vector<std::shared_ptr<FakeQueue>> live_inbound();

  const std::shared_ptr<FakeNetwork> network_;
  std::mutex mutex_;
  std::condition_variable wake_up_;
  std::vector<std::weak_ptr<FakeQueue>> inbound_;
  bool signalled_ = false;
  std::atomic<bool> stopped_{false};
  std::mutex regions_mutex_;  // held while an operation works on a region
  std::map<std::uint64_t, std::unique_ptr<MappedRegion>> regions_;
  std::uint64_t next_region_ = 1;
  std::thread thread_;
};

}  // namespace hixl_rma::fakes
