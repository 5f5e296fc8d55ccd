// SPDX-License-Identifier: Apache-2.0
#include "window/ranks.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace hixl_rma::testing {

const std::vector<World>& worlds() {
  static const std::vector<World> kWorlds = {
      {.label = "shm", .registry = {"shm"}, .data = "shm", .takes_created = false},
      {.label = "cma", .registry = {"shm", "cma"}, .data = "cma"},
      {.label = "staged",
       .registry = {"fake", "staged"},
       .data = "staged",
       .takes_allocated = false},
#if !defined(__SANITIZE_THREAD__)
      // Both sides map the control memory at addresses of their own, so that TSan sees no order
      // between the service thread and who was notified.
      {.label = "staged_and_shm_control",
       .registry = {"shm", "staged"},
       .data = "staged",
       .takes_allocated = false},
#endif
      {.label = "fake", .registry = {"fake"}, .data = "fake"},
      {.label = "fake_by_progress",
       .registry = {"fake"},
       .data = "fake",
       .fake = {.target_executes = false}},
      {.label = "fake_reordering",
       .registry = {"fake"},
       .data = "fake",
       .fake = {.queue_capacity = 8, .eager_bytes = 0, .reorder_seed = 11}},
      // A notification takes another way than the data before it.
      {.label = "fake_data_and_shm_control",
       .registry = {"shm", "fake"},
       .data = "fake",
       .fake = {.eager_bytes = 16, .reorder_seed = 5}},
  };
  return kWorlds;
}

std::string label_of(const ::testing::TestParamInfo<World>& world) {
  return std::string(world.param.label);
}

void PrintTo(const World& world, std::ostream* out) { *out << world.label; }

void Team::meet() {
  std::unique_lock lock(mutex_);
  const std::uint64_t round = round_;
  if (++arrived_ == size_) {
    arrived_ = 0;
    ++round_;
    changed_.notify_all();
    return;
  }
  const Deadline deadline = soon();
  while (round_ == round && !::testing::Test::HasFailure()) {
    changed_.wait_for(lock, std::chrono::milliseconds(20));
    if (deadline.expired()) ADD_FAILURE() << "the ranks did not meet";
  }
}

std::vector<Bytes> Team::exchange(int rank, Bytes given) {
  {
    std::lock_guard lock(mutex_);
    given_[static_cast<std::size_t>(rank)] = std::move(given);
  }
  meet();
  std::vector<Bytes> all;
  {
    std::lock_guard lock(mutex_);
    all = given_;
  }
  meet();
  return all;
}

Result<std::shared_ptr<Engine>> make_engine(const World& world) {
  std::vector<TransportEntry> registry;
  for (const std::string_view name : world.registry) {
    registry.push_back(name == "fake"
                           ? fakes::kFakeEntry
                           : *std::ranges::find(transport_registry(), name, &TransportEntry::name));
  }
  EngineOptions options;
  options.registry = registry;
  if (!world.data.empty()) options.data_transports = {std::string(world.data)};
  return Engine::create(options);
}

namespace {

void run_rank(const World& world, Team& team, WindowOptions options, const Body& body,
              std::unique_ptr<Window>& window) {
  auto engine = make_engine(world);
  ASSERT_OK(engine);
  auto prepared = Window::prepare(engine.value(), options);
  ASSERT_OK(prepared);
  window = prepared.take();
  const std::vector<Bytes> descriptions = team.exchange(options.rank, window->description());
  ASSERT_OK(window->connect(descriptions, soon()));
  team.meet();
  ASSERT_OK(window->settle(soon()));
  team.meet();
  window->finish();
  Rank rank{*window, *engine.value(), team, options.rank, options.size};
  body(rank);
  if (::testing::Test::HasFailure() || window->closed()) return;
  EXPECT_OK(window->free(soon()));
}

}  // namespace

void run_ranks(const World& world, int size, const Configure& configure, const Body& body) {
  Team team(size);
  std::vector<Bytes> memories(static_cast<std::size_t>(size));
  // Windows go when all threads have ended: `self` keeps no memory of others alive.
  std::vector<std::unique_ptr<Window>> windows(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    WindowOptions options;
    options.rank = rank;
    options.size = size;
    options.notifications = 64;
    configure(rank, options);
    if (!world.takes_allocated && options.memory == nullptr) {
      Bytes& memory = memories[static_cast<std::size_t>(rank)];
      memory.resize(options.nbytes);
      options.memory = options.nbytes == 0 ? nullptr : memory.data();
    }
    threads.emplace_back([&, options] {
      run_rank(world, team, options, body, windows[static_cast<std::size_t>(options.rank)]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  // After a failure some are open: each tells the others while their memory is there.
  for (const auto& window : windows) {
    if (window) window->abort();
  }
}

void run_ranks(const World& world, int size, std::size_t nbytes, const Body& body) {
  run_ranks(world, size, [&](int, WindowOptions& options) { options.nbytes = nbytes; }, body);
}

}  // namespace hixl_rma::testing
