// SPDX-License-Identifier: Apache-2.0
//
// A window whose ranks are threads of this process, each with an engine of its own: TSan sees both
// sides of everything that goes through `self` and `fake`, where both sides use one address.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fakes/fake_transport.h"
#include "support/patience.h"
#include "support/status_assert.h"
#include "window/window.h"

namespace hixl_rma::testing {

/// By what ranks reach each other.
struct World {
  std::string_view label;
  std::vector<std::string_view> registry;
  std::string_view data;  ///< the transport that data takes; "" allows all
  fakes::FakeOptions fake = {};
  /// Memory outside a shared segment can be exposed.
  bool takes_created = true;
  /// Memory in a shared segment can be; otherwise run_ranks gives every rank memory of its own.
  bool takes_allocated = true;

  [[nodiscard]] bool uses_fake() const { return std::ranges::count(registry, "fake") != 0; }
};

const std::vector<World>& worlds();
std::string label_of(const ::testing::TestParamInfo<World>& world);
void PrintTo(const World& world, std::ostream* out);

/// Where threads meet and exchange bytes. After a failure of the test nobody is waited for.
class Team {
 public:
  explicit Team(int size) : size_(static_cast<std::size_t>(size)), given_(size_) {}

  void meet();
  /// What every rank gave, by rank.
  std::vector<Bytes> exchange(int rank, Bytes given);

 private:
  std::size_t size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t arrived_ = 0;
  std::uint64_t round_ = 0;
  std::vector<Bytes> given_;
};

/// One rank, in its thread.
struct Rank {
  Window& window;
  Engine& engine;
  Team& team;
  int me;
  int size;

  [[nodiscard]] int right() const { return (me + 1) % size; }
  [[nodiscard]] int left() const { return (me + size - 1) % size; }
  [[nodiscard]] std::span<std::byte> local() const {
    return {window.local_memory(), window.local_bytes()};
  }
  void meet() const { team.meet(); }

  // The operations on bytes; memory stays in use until the next flush.
  Status put(std::span<const std::byte> from, int target, std::uint64_t displacement) const {
    Window::Issue issue;
    return window.put(from.data(), from.size(), target, displacement, issue);
  }
  Status get(std::span<std::byte> to, int target, std::uint64_t displacement) const {
    Window::Issue issue;
    return window.get(to.data(), to.size(), target, displacement, issue);
  }
  /// A payload and the notification behind it.
  Status put_notify(std::span<const std::byte> from, int target, std::uint64_t displacement,
                    const NotifySpec& spec) const {
    Status status = window.check_notify(target, spec);
    if (status.ok()) status = put(from, target, displacement);
    Window::Issue issue;
    return status.ok() ? window.publish(target, spec, soon(), issue) : status;
  }
  Status notify(int target, const NotifySpec& spec) const {
    Status status = window.check_notify(target, spec);
    Window::Issue issue;
    return status.ok() ? window.publish(target, spec, soon(), issue) : status;
  }
  Status flush(int target = -1) const { return window.flush(target, FlushScope::kRemote, soon()); }
  Status fence() const { return window.fence(0, soon()); }
  /// One notification of an id, or the error with count 0.
  Result<Notification> wait_for(std::size_t id, std::uint64_t count = 1,
                                int source = kAnySource) const {
    Taken taken;
    Status status =
        window.wait_notify(TakeMode::kAny, {{id, id + 1, {}}, count, source}, soon(), &taken);
    if (!status.ok()) return status;
    return taken[0];
  }
};

using Configure = std::function<void(int rank, WindowOptions& options)>;
using Body = std::function<void(Rank& rank)>;

/// An engine that knows the world's transports.
Result<std::shared_ptr<Engine>> make_engine(const World& world);

/// Makes a window of `size` ranks, runs the body as each of them, and frees what was not freed.
void run_ranks(const World& world, int size, const Configure& configure, const Body& body);

/// With memory of `nbytes` bytes and `unit` 1 on every rank.
void run_ranks(const World& world, int size, std::size_t nbytes, const Body& body);

/// Tests of windows, once for each world.
class WindowTest : public ::testing::TestWithParam<World> {
 protected:
  void SetUp() override {
    if (GetParam().uses_fake()) session_.emplace(GetParam().fake);
    auto engine = make_engine(GetParam());
    ASSERT_OK(engine);
    for (const TransportReport& report : engine.value()->reports()) {
      if (!report.viable) GTEST_SKIP() << report.name << ": " << report.reason;
    }
  }
  void run(int size, std::size_t nbytes, const Body& body) {
    run_ranks(GetParam(), size, nbytes, body);
  }
  void run(int size, const Configure& configure, const Body& body) {
    run_ranks(GetParam(), size, configure, body);
  }

  std::optional<fakes::FakeSession> session_;
};

/// Makes a suite of the tests of a fixture derived from WindowTest.
#define INSTANTIATE_WINDOW_SUITE(Suite) \
  INSTANTIATE_TEST_SUITE_P(By, Suite, ::testing::ValuesIn(worlds()), label_of)

}  // namespace hixl_rma::testing
