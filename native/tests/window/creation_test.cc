// SPDX-License-Identifier: Apache-2.0
//
// How windows come to be, and what keeps them from it.
#include <algorithm>
#include <string>
#include <vector>

#include "base/log.h"
#include "support/channel.h"
#include "support/pattern.h"
#include "window/ranks.h"

namespace hixl_rma::testing {
namespace {

class WindowCreation : public WindowTest {};
INSTANTIATE_WINDOW_SUITE(WindowCreation);

/// Two windows of one group in this thread, not yet connected.
struct Couple {
  explicit Couple(const World& world, std::size_t first = 4, std::size_t second = 4) {
    WindowOptions options;
    options.size = 2;
    options.nbytes = 8;
    options.notifications = first;
    if (!world.takes_allocated) options.memory = memory.data();
    windows.push_back(Window::prepare(make_engine(world).take(), options).take());
    options.rank = 1;
    options.notifications = second;
    if (!world.takes_allocated) options.memory = memory.data() + 8;
    windows.push_back(Window::prepare(make_engine(world).take(), options).take());
  }
  [[nodiscard]] std::vector<Bytes> descriptions() const {
    return {windows[0]->description(), windows[1]->description()};
  }
  Bytes memory = Bytes(16);
  std::vector<std::unique_ptr<Window>> windows;
};

TEST_P(WindowCreation, every_rank_is_reached_by_the_first_transport_that_is_allowed) {
  run(3, 64, [&](Rank& rank) {
    for (int target = 0; target < rank.size; ++target) {
      EXPECT_EQ(rank.window.transport_of(target), GetParam().data);
    }
  });
}

TEST_P(WindowCreation, a_rank_may_bring_no_memory) {
  const auto configure = [](int rank, WindowOptions& options) {
    options.nbytes = rank == 1 ? 0 : 64;
  };
  run(3, configure, [](Rank& rank) {
    EXPECT_EQ(rank.window.bytes_of(1), 0U);
    EXPECT_EQ(rank.window.bytes_of(2), 64U);
    ASSERT_OK(rank.fence());
    const Bytes payload = make_pattern(8, 1);
    EXPECT_OK(rank.put({}, 1, 0));
    EXPECT_CODE(rank.put(payload, 1, 0), StatusCode::kOutOfRange);
    EXPECT_OK(rank.put(payload, 2, 8 * static_cast<std::uint64_t>(rank.me)));
    EXPECT_OK(rank.notify(1, {.id = 3}));
    ASSERT_OK(rank.fence());
    if (rank.me != 1) return;
    EXPECT_OK(rank.wait_for(3, 3));
  });
}

TEST_P(WindowCreation, memory_of_the_callers_own_is_exposed_where_it_lies) {
  if (!GetParam().takes_created) return;  // no_transport_takes_it, below
  std::vector<Bytes> memory(2, Bytes(100000));
  const auto configure = [&](int rank, WindowOptions& options) {
    options.memory = memory[static_cast<std::size_t>(rank)].data();
    options.nbytes = memory.front().size();
  };
  run(2, configure, [&](Rank& rank) {
    EXPECT_EQ(rank.local().data(), memory[static_cast<std::size_t>(rank.me)].data());
    ASSERT_OK(rank.window.lock(rank.right(), true, soon()));
    const Bytes payload = make_pattern(100000, static_cast<std::uint64_t>(rank.me));
    EXPECT_OK(rank.put(payload, rank.right(), 0));
    ASSERT_OK(rank.window.unlock(rank.right(), soon()));
  });
  EXPECT_EQ(memory[0], make_pattern(100000, 1));
  EXPECT_EQ(memory[1], make_pattern(100000, 0));
}

TEST_P(WindowCreation, many_windows_live_side_by_side) {
  run(2, 64, [&](Rank& rank) {
    const auto inner = [&](Rank& other) {
      const Bytes payload = make_pattern(8, 2);
      EXPECT_OK(other.fence());
      EXPECT_OK(other.put(payload, other.right(), 0));
      EXPECT_OK(other.fence());
    };
    ASSERT_OK(rank.fence());
    if (rank.me == 0) run_ranks(GetParam(), 2, 128, inner);
    ASSERT_OK(rank.fence());
  });
}

TEST_P(WindowCreation, notifications_must_be_equal_on_all_ranks) {
  Couple couple(GetParam(), 4, 8);
  Status status = couple.windows[0]->connect(couple.descriptions(), soon());
  EXPECT_CODE(status, StatusCode::kInvalidArgument);
  EXPECT_SAYS(status, "rank 1 has 8, rank 0 has 4");
}

TEST_P(WindowCreation, a_damaged_description_is_refused_wherever_it_is_cut) {
  Couple couple(GetParam());
  std::vector<Bytes> descriptions = couple.descriptions();
  const Bytes whole = descriptions[1];
  for (std::size_t cut = 0; cut < whole.size(); cut += 3) {
    descriptions[1].assign(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut));
    EXPECT_CODE(couple.windows[0]->connect(descriptions, soon()), StatusCode::kProtocolMismatch);
  }
  descriptions[1] = whole;
  descriptions[1][0] ^= std::byte{4};
  Status status = couple.windows[0]->connect(descriptions, soon());
  EXPECT_CODE(status, StatusCode::kProtocolMismatch);
  EXPECT_SAYS(status, "version 5, ours is 1");
  descriptions.pop_back();
  EXPECT_CODE(couple.windows[0]->connect(descriptions, soon()), StatusCode::kInternal);
}

TEST_P(WindowCreation, a_window_that_was_never_finished_goes_without_a_word) {
  const Couple never_connected(GetParam());
  Couple half(GetParam());
  EXPECT_OK(half.windows[0]->connect(half.descriptions(), soon()));
}

TEST_P(WindowCreation, a_rank_that_has_not_said_how_it_reaches_others_stops_settle) {
  Couple couple(GetParam());
  ASSERT_OK(couple.windows[0]->connect(couple.descriptions(), soon()));
  EXPECT_CODE(couple.windows[0]->settle(soon()), StatusCode::kInternal);
}

TEST(WindowChoice, memory_is_imported_on_the_transport_that_was_chosen_and_on_no_other) {
  const fakes::FakeSession session;
  const World world = {.label = "", .registry = {"shm", "fake"}, .data = ""};
  run_ranks(world, 3, 64, [&](Rank& rank) {
    EXPECT_EQ(rank.window.transport_of(rank.right()), "shm");
    EXPECT_EQ(session.imports(), 0U);
  });
}

TEST(WindowChoice, what_synchronises_by_pointers_needs_control_memory_that_is_mapped) {
  const fakes::FakeSession session;
  // Control memory goes by the fake, which maps nothing: cma would come first otherwise.
  const World world = {.label = "", .registry = {"cma", "fake"}, .data = ""};
  std::vector<Bytes> memory(2, Bytes(64));
  const auto configure = [&](int rank, WindowOptions& options) {
    options.memory = memory[static_cast<std::size_t>(rank)].data();
    options.nbytes = 64;
  };
  auto engine = make_engine(world);
  ASSERT_OK(engine);
  if (!engine.value()->reports()[0].viable) GTEST_SKIP() << engine.value()->reports()[0].reason;
  run_ranks(world, 2, configure,
            [&](Rank& rank) { EXPECT_EQ(rank.window.transport_of(rank.right()), "fake"); });
}

TEST(WindowChoice, without_another_transport_that_is_an_error_with_the_reason) {
  const fakes::FakeSession session;
  const World world = {.label = "", .registry = {"cma", "fake"}, .data = "cma"};
  WindowOptions options;
  options.nbytes = 8;
  auto engine = make_engine(world);
  ASSERT_OK(engine);
  if (!engine.value()->reports()[0].viable) GTEST_SKIP() << engine.value()->reports()[0].reason;
  auto window = Window::prepare(engine.value(), options);
  ASSERT_OK(window);
  ASSERT_OK(window.value()->connect(std::vector<Bytes>{window.value()->description()}, soon()));
  const Status status = window.value()->settle(soon());
  EXPECT_CODE(status, StatusCode::kUnavailable);
  ASSERT_EQ(status.detail().reasons.size(), 2U);
  EXPECT_EQ(status.detail().reasons[0].second, "the peer's control memory is not mapped here");
  EXPECT_EQ(status.detail().reasons[1].second, "not among the transports that are allowed");
}

TEST(WindowLimits, records_beyond_the_cap_are_a_resource_error) {
  const World world = {.label = "self", .registry = {"self"}, .data = "self"};
  WindowOptions options;
  options.size = 64;
  options.notifications = 65536;
  options.notification_cap = std::size_t{100} << 20;
  const Status status = Window::prepare(make_engine(world).take(), options).status();
  EXPECT_CODE(status, StatusCode::kResourceExhausted);
  EXPECT_SAYS(status, "HIXL_RMA_NOTIFICATION_CAP");
  EXPECT_SAYS(status, "268435456");
}

TEST(WindowLimits, absurd_sizes_are_a_resource_error) {
  const World world = {.label = "self", .registry = {"self"}, .data = "self"};
  for (const std::size_t nbytes : {std::size_t{1} << 61, std::size_t{1} << 63, ~std::size_t{0}}) {
    WindowOptions options;
    options.nbytes = nbytes;
    EXPECT_CODE(Window::prepare(make_engine(world).take(), options).status(),
                StatusCode::kResourceExhausted)
        << nbytes;
  }
}

TEST(WindowLimits, memory_that_no_transport_takes_is_unavailable_at_once) {
  const World world = {.label = "shm", .registry = {"shm"}, .data = "shm"};
  Bytes memory(64);
  WindowOptions options;
  options.memory = memory.data();
  options.nbytes = memory.size();
  const Status status = Window::prepare(make_engine(world).take(), options).status();
  EXPECT_CODE(status, StatusCode::kUnavailable);
  EXPECT_SAYS(status, "shm: the memory does not lie in a shared segment");
}

/// A rank in its process, up to settle(); the descriptions go through the channel.
Status settle_with_peer(int rank, Channel& channel, std::byte* memory,
                        const std::vector<std::string_view>& registry) {
  const World world = {.label = "", .registry = registry, .data = "shm"};
  WindowOptions options;
  options.rank = rank;
  options.size = 2;
  options.nbytes = 64;
  options.memory = memory;
  auto window = Window::prepare(make_engine(world).take(), options);
  if (!window.ok()) return window.status();
  std::vector<Bytes> descriptions(2, window.value()->description());
  Bytes other;
  if (!channel.send(window.value()->description()) || !channel.receive(&other)) {
    return Status::error(StatusCode::kInternal, "the peer said nothing");
  }
  descriptions[static_cast<std::size_t>(1 - rank)] = other;
  Status status = window.value()->connect(descriptions, soon());
  (void)channel.send_number(1);
  (void)channel.receive_number();
  if (status.ok()) status = window.value()->settle(soon());
  (void)channel.send_number(1);
  (void)channel.receive_number();
  return status;
}

TEST(WindowLimits, without_a_transport_between_two_ranks_every_transport_says_why) {
  Child peer([](Channel& channel) {
    Bytes memory(64);
    EXPECT_CODE(settle_with_peer(1, channel, memory.data(), {"self", "shm"}),
                StatusCode::kUnavailable);
  });
  Bytes memory(64);
  const Status status = settle_with_peer(0, peer.channel(), memory.data(), {"self", "shm"});
  EXPECT_CODE(status, StatusCode::kUnavailable);
  ASSERT_EQ(status.detail().reasons.size(), 2U);
  using Reason = std::pair<std::string, std::string>;
  EXPECT_EQ(status.detail().reasons[0], Reason("self", "for a rank's own memory alone"));
  EXPECT_EQ(status.detail().reasons[1], Reason("shm", "not for memory of this kind"));
  EXPECT_EQ(status.detail().peer_rank, 1);
  EXPECT_EQ(peer.wait(), 0);
}

TEST(WindowLimits, ranks_in_two_processes_say_once_how_they_reach_each_other) {
  (void)take_log();
  Child peer(
      [](Channel& channel) { EXPECT_OK(settle_with_peer(1, channel, nullptr, {"self", "shm"})); });
  EXPECT_OK(settle_with_peer(0, peer.channel(), nullptr, {"self", "shm"}));
  const auto lines = take_log();
  EXPECT_EQ(std::ranges::count_if(lines,
                                  [](const auto& line) {
                                    return line.first == LogLevel::kInfo &&
                                           line.second.find("reaches rank 1 through shm") !=
                                               std::string::npos;
                                  }),
            1);
  EXPECT_EQ(peer.wait(), 0);
}

TEST(EngineOptions, an_unknown_transport_is_refused_with_the_names_there_are) {
  EngineOptions options;
  options.data_transports = {"shm", "pigeon"};
  const Status status = Engine::create(options).status();
  EXPECT_CODE(status, StatusCode::kInvalidArgument);
  EXPECT_SAYS(status, "'pigeon'; there are: self shm cma staged");
}

}  // namespace
}  // namespace hixl_rma::testing
