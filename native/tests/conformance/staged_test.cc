// SPDX-License-Identifier: Apache-2.0
//
// What staged alone has to keep: a service that believes nothing, blocks on nobody and ends with
// its region; lanes that are claimed and given back.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/stripe_lock.h"
#include "base/wire.h"
#include "hixl_rma/transport.h"
#include "memory/host/shared_segment.h"
#include "support/channel.h"
#include "support/patience.h"
#include "support/pattern.h"
#include "support/status_assert.h"
#include "transport/common/mapped_endpoint.h"
#include "transport/common/segment_server.h"
#include "transport/staged/factory.h"
#include "transport/staged/staging_layout.h"

namespace hixl_rma::testing {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;

std::size_t service_threads() {
  return static_cast<std::size_t>(std::ranges::count_if(
      std::filesystem::directory_iterator("/proc/self/task"), [](const auto& task) {
        std::string name;
        std::ifstream(task.path() / "comm") >> name;
        return name == "hixl-staging";
      }));
}

std::size_t descriptors() {
  return static_cast<std::size_t>(std::distance(
      std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

/// An owner of plain memory, with guard bytes around it and stripe locks.
struct Owner {
  static constexpr std::size_t kGuard = 4096;

  explicit Owner(std::size_t size = kBytes, Access access = Access::kReadWrite)
      : nbytes(size), all(size + 2 * kGuard, std::byte{0xa5}), stripes(kStripeCount) {
    std::fill_n(memory(), nbytes, std::byte{0});
    auto probed = probe_staged();
    EXPECT_OK(probed);
    transport = probed.take();
    auto registered = transport->register_memory({memory(), nbytes}, access);
    EXPECT_OK(registered);
    region = registered.take();
    region->bind({.stripes = stripes.data(), .holder = 1});
  }
  [[nodiscard]] std::byte* memory() { return all.data() + kGuard; }
  [[nodiscard]] bool guards_intact() const {
    const auto intact = [](std::byte byte) { return byte == std::byte{0xa5}; };
    return std::all_of(all.begin(), all.begin() + kGuard, intact) &&
           std::all_of(all.end() - kGuard, all.end(), intact);
  }
  [[nodiscard]] Bytes key() const { return region->packed_key(); }

  std::size_t nbytes;
  Bytes all;
  std::vector<StripeLock> stripes;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<MemoryRegion> region;
};

/// An origin with a lane of its own.
struct Origin {
  explicit Origin(const Bytes& key) {
    auto probed = probe_staged();
    EXPECT_OK(probed);
    transport = probed.take();
    auto imported = transport->import_region(key, soon());
    EXPECT_OK(imported);
    if (imported.ok()) region = imported.take();
    endpoint = transport->connect({}).take();
  }
  Origin(const Origin&) = delete;
  Origin& operator=(const Origin&) = delete;
  ~Origin() { endpoint->close({}); }

  PostResult post_put(const std::byte* from, std::uint64_t offset, std::size_t n,
                      Completion& done) const {
    done.add();
    return endpoint->put(*region, {const_cast<std::byte*>(from), offset, n}, &done);
  }
  PostResult post_add(const std::uint64_t* operand, std::uint64_t offset, std::size_t count,
                      Completion& done) const {
    done.add();
    Accumulate operation{DataType::kUint64, ReduceOp::kSum};
    operation.operand = reinterpret_cast<const std::byte*>(operand);
    operation.offset = offset;
    operation.count = count;
    return endpoint->accumulate(*region, operation, &done);
  }
  /// Waits; Timeout when nothing came of it.
  Status finish(const Completion& done) const {
    const Deadline deadline = soon();
    while (!done.done() && !deadline.expired()) {
      if (transport->progress() == 0) sched_yield();
    }
    if (!done.done()) return Status::error(StatusCode::kTimeout, "not completed");
    return done.status();
  }
  Status put(const std::byte* from, std::uint64_t offset, std::size_t n) const {
    Completion done;
    const PostResult posted = post_put(from, offset, n, done);
    if (posted.state != Post::kPending) done.complete(posted.status);
    return finish(done);
  }
  Status get(std::byte* to, std::uint64_t offset, std::size_t n) const {
    Completion done;
    done.add();
    const PostResult posted = endpoint->get(*region, {to, offset, n}, &done);
    if (posted.state != Post::kPending) done.complete(posted.status);
    return finish(done);
  }

  std::unique_ptr<Transport> transport;
  std::unique_ptr<RemoteRegion> region;
  std::unique_ptr<Endpoint> endpoint;
};

/// A peer that writes what it likes into a staging buffer.
class Vandal {
 public:
  explicit Vandal(const Bytes& key) {
    WireReader reader(key);
    const std::string name = reader.text();
    Token token{};
    std::ranges::copy(reader.bytes(), token.begin());
    auto descriptor = request_segment(name, token, soon());
    EXPECT_OK(descriptor);
    segment_ = SharedSegment::map(descriptor.value().get(), 0, kStagingBytes).take();
  }
  [[nodiscard]] StagingHeader& header() const {
    return *reinterpret_cast<StagingHeader*>(segment_->data());
  }
  [[nodiscard]] LaneView lane(std::size_t i) const {
    return LaneView(segment_->data() + lane_offset(i));
  }
  /// Posts a slot as it is and waits for the answer.
  SlotAnswer ask(std::size_t lane_index, SlotVerb verb, std::uint32_t type, std::uint32_t op,
                 std::uint32_t flags, std::uint32_t runs, std::uint64_t offset,
                 std::uint64_t length) const {
    LaneControl& control = lane(lane_index).control();
    SlotHeader& slot = control.slots[control.served.load() % kSlots];
    slot.verb = static_cast<std::uint32_t>(verb);
    slot.type = type;
    slot.op = op;
    slot.flags = flags;
    slot.runs = runs;
    slot.offset = offset;
    slot.length = length;
    slot.state.store(SlotState::kPosted);
    header().ready[lane_index / 64].fetch_or(std::uint64_t{1} << (lane_index % 64));
    ring(header().doorbell);
    const Deadline deadline = soon();
    while (slot.state.load() != SlotState::kAnswered && !deadline.expired()) sched_yield();
    EXPECT_EQ(slot.state.load(), SlotState::kAnswered);
    slot.state.store(SlotState::kEmpty);
    return slot.answer.load();
  }

 private:
  std::shared_ptr<SharedSegment> segment_;
};

constexpr std::uint64_t kHuge = ~std::uint64_t{0};

}  // namespace

TEST(Staged, memory_in_a_shared_segment_is_left_to_shm) {
  auto transport = probe_staged();
  ASSERT_OK(transport);
  auto segment = SharedSegment::create(4096, {});
  ASSERT_OK(segment);
  const Status status = transport.value()
                            ->register_memory({segment.value()->data(), 4096, MemoryKind::kHost,
                                               segment.value().get()},
                                              Access::kReadWrite)
                            .status();
  EXPECT_CODE(status, StatusCode::kUnsupported);
  EXPECT_SAYS(status, "mapped by shm");
}

TEST(Staged, the_service_starts_when_the_memory_is_taken_and_ends_with_its_region) {
  const std::size_t before = descriptors();
  {
    Owner unused;
    EXPECT_EQ(service_threads(), 0U);
    unused.region->stop_offering();
    EXPECT_EQ(descriptors(), before);
    EXPECT_EQ(service_threads(), 0U);
  }
  Owner owner;
  const Origin origin(owner.key());
  owner.region->stop_offering();
  EXPECT_EQ(descriptors(), before);
  const Bytes data = make_pattern(64, 1);
  EXPECT_OK(origin.put(data.data(), 0, 64));
  EXPECT_EQ(service_threads(), 1U);
  owner.region.reset();
  EXPECT_EQ(first_mismatch(owner.memory(), 64, 1), 64U);
  EXPECT_CODE(origin.put(data.data(), 0, 64), StatusCode::kStale);
  // It was joined; the kernel takes it off the list a moment later.
  const Deadline deadline = soon();
  while (service_threads() != 0 && !deadline.expired()) sched_yield();
  EXPECT_EQ(service_threads(), 0U);
}

TEST(Staged, slots_that_name_places_outside_the_region_touch_nothing) {
  Owner owner;
  const Vandal vandal(owner.key());
  const Bytes before = owner.all;
  struct Range {
    std::uint64_t offset;
    std::uint64_t length;
  };
  const std::array<Range, 9> outside = {{{kBytes, 1},
                                         {kBytes - 8, 9},
                                         {kBytes + 1, 0},
                                         {kHuge, 1},
                                         {kHuge, kHuge},
                                         {0, kHuge},
                                         {kHuge - 7, 16},
                                         {0, kSlotBytes + 1},
                                         {1, std::uint64_t{1} << 61}}};
  constexpr auto kWord = static_cast<std::uint32_t>(DataType::kUint64);
  for (const auto& [offset, length] : outside) {
    for (const SlotVerb verb : {SlotVerb::kPut, SlotVerb::kGet}) {
      EXPECT_NE(vandal.ask(3, verb, 0, 0, 0, 0, offset, length), SlotAnswer::kDone);
      std::byte* table = vandal.lane(3).payload(vandal.lane(3).control().served.load());
      payload_word(table, 0).store(offset);
      payload_word(table, 1).store(length);
      EXPECT_NE(vandal.ask(3, verb, 0, 0, 0, 1, 0, 0), SlotAnswer::kDone);
    }
    if (length == 0) continue;
    EXPECT_NE(vandal.ask(3, SlotVerb::kAccumulate, kWord, 0, 1, 0, offset, length),
              SlotAnswer::kDone);
  }
  EXPECT_EQ(vandal.ask(3, SlotVerb::kSwap, kWord, 0, 0, 0, kBytes - 7, 0), SlotAnswer::kOutOfRange);
  EXPECT_EQ(owner.all, before);
}

TEST(Staged, slots_that_make_no_sense_are_answered_and_touch_nothing) {
  Owner owner;
  const Vandal vandal(owner.key());
  const Bytes before = owner.all;
  const Origin origin(owner.key());
  for (const std::uint32_t wild : {16U, 77U, 255U, 256U, 0xffffffffU}) {
    EXPECT_EQ(vandal.ask(700, static_cast<SlotVerb>(wild), 0, 0, 3, 0, 0, 8),
              SlotAnswer::kMalformed);
    EXPECT_EQ(vandal.ask(700, SlotVerb::kAccumulate, wild, 0, 3, 0, 0, 1), SlotAnswer::kMalformed);
    EXPECT_EQ(vandal.ask(700, SlotVerb::kAccumulate, 3, wild, 3, 0, 0, 1), SlotAnswer::kMalformed);
    EXPECT_EQ(vandal.ask(700, SlotVerb::kSwap, wild, 0, 0, 0, 0, 0), SlotAnswer::kMalformed);
    EXPECT_EQ(vandal.ask(700, SlotVerb::kPut, 0, 0, 0, kSlotBytes / 16 + 1 + (wild & 255), 0, 0),
              SlotAnswer::kMalformed);
  }
  // A sum without an operand; a table that ends beyond its slot.
  EXPECT_EQ(vandal.ask(700, SlotVerb::kAccumulate, 3, 0, 0, 0, 0, 1), SlotAnswer::kMalformed);
  std::byte* table = vandal.lane(700).payload(vandal.lane(700).control().served.load());
  payload_word(table, 0).store(0);
  payload_word(table, 1).store(kSlotBytes - kRunBytes + 1);
  EXPECT_EQ(vandal.ask(700, SlotVerb::kPut, 0, 0, 0, 1, 0, 0), SlotAnswer::kMalformed);
  EXPECT_EQ(owner.all, before);
  // Ready bits, claims and a closed word that mean nothing keep nobody from being served.
  for (auto& word : vandal.header().ready) word.store(kHuge);
  const Bytes data = make_pattern(64, 2);
  EXPECT_OK(origin.put(data.data(), 8, 64));
  EXPECT_EQ(first_mismatch(owner.memory() + 8, 64, 2), 64U);
}

TEST(Staged, memory_that_may_only_be_read_is_not_written) {
  Owner owner(4096, Access::kReadOnly);
  const Origin origin(owner.key());
  Bytes data(64, std::byte{1});
  EXPECT_OK(origin.get(data.data(), 0, 64));
  EXPECT_EQ(data, Bytes(64));
  std::ranges::fill(data, std::byte{1});
  EXPECT_CODE(origin.put(data.data(), 0, 64), StatusCode::kAccessDenied);
  EXPECT_EQ(owner.memory()[0], std::byte{0});
}

TEST(Staged, a_stripe_that_somebody_holds_delays_its_own_lane_alone) {
  Owner owner;
  const Origin waits(owner.key());
  const Origin goes(owner.key());
  ASSERT_OK(lock_stripe(owner.stripes[0], 77));
  const std::uint64_t one = 1;
  Completion added;
  ASSERT_EQ(waits.post_add(&one, 0, 1, added).state, Post::kPending);
  const Bytes data = make_pattern(300000, 3);
  Completion behind;
  ASSERT_EQ(waits.post_put(data.data(), 0, 8, behind).state, Post::kPending);
  for (int i = 0; i < 20; ++i) ASSERT_OK(goes.put(data.data(), 4096, data.size()));
  waits.transport->progress();
  EXPECT_FALSE(added.done());
  EXPECT_FALSE(behind.done());  // one origin's operations keep their order
  unlock_stripe(owner.stripes[0]);
  EXPECT_OK(waits.finish(added));
  EXPECT_OK(waits.finish(behind));
}

TEST(Staged, a_local_flush_waits_for_the_callers_memory_and_not_for_the_target) {
  Owner owner;
  const Origin origin(owner.key());
  ASSERT_OK(lock_stripe(owner.stripes[0], 77));
  const std::uint64_t one = 1;
  Completion posts;
  ASSERT_EQ(origin.post_add(&one, 0, 1, posts).state, Post::kPending);
  Bytes small = make_pattern(100, 4);
  ASSERT_EQ(origin.post_put(small.data(), 8192, 100, posts).state, Post::kPending);
  Completion flushed;
  flushed.add(2);
  EXPECT_EQ(origin.endpoint->flush(FlushScope::kLocal, &flushed).state, Post::kDone);
  std::ranges::fill(small, std::byte{0});
  const Bytes large = make_pattern(kBytes - 8292, 5);
  ASSERT_EQ(origin.post_put(large.data(), 8292, large.size(), posts).state, Post::kPending);
  EXPECT_EQ(origin.endpoint->flush(FlushScope::kLocal, &flushed).state, Post::kPending);
  EXPECT_EQ(origin.endpoint->flush(FlushScope::kRemote, &flushed).state, Post::kPending);
  origin.transport->progress();
  EXPECT_FALSE(flushed.done());
  unlock_stripe(owner.stripes[0]);
  EXPECT_OK(origin.finish(flushed));
  EXPECT_TRUE(posts.done());
  owner.region.reset();
  EXPECT_EQ(first_mismatch(owner.memory() + 8192, 100, 4), 100U);
  EXPECT_EQ(first_mismatch(owner.memory() + 8292, large.size(), 5), large.size());
}

TEST(Staged, an_owner_that_leaves_fails_what_is_outstanding_and_takes_up_nothing) {
  Owner owner;
  const Origin origin(owner.key());
  ASSERT_OK(lock_stripe(owner.stripes[0], 77));  // by somebody who never gives it back
  const std::uint64_t one = 1;
  Completion added;
  std::deque<Completion> puts(40);
  ASSERT_EQ(origin.post_add(&one, 0, 1, added).state, Post::kPending);
  const Bytes data(5000, std::byte{9});
  for (Completion& put : puts) {
    ASSERT_EQ(origin.post_put(data.data(), 8192, data.size(), put).state, Post::kPending);
  }
  owner.region.reset();
  EXPECT_CODE(origin.finish(added), StatusCode::kStale);
  for (Completion& put : puts) EXPECT_CODE(origin.finish(put), StatusCode::kStale);
  EXPECT_FALSE(origin.transport->needs_progress());
  EXPECT_CODE(origin.put(data.data(), 0, 8), StatusCode::kStale);
  EXPECT_TRUE(std::all_of(owner.memory(), owner.memory() + kBytes,
                          [](std::byte byte) { return byte == std::byte{0}; }));
  EXPECT_TRUE(owner.guards_intact());
}

TEST(Staged, no_byte_lands_after_the_region_is_gone) {
  for (int round = 0; round < rounds(100, 10); ++round) {
    Owner owner;
    std::atomic<int> puts{0};
    const Bytes key = owner.key();
    std::thread writer([&] {
      const Origin origin(key);
      const Bytes ones(kBytes, std::byte{1});
      Status status;
      for (; status.ok(); puts.fetch_add(1)) status = origin.put(ones.data(), 0, kBytes);
      EXPECT_CODE(status, StatusCode::kStale);
    });
    while (puts.load() < 1 + round % 3) sched_yield();
    owner.region.reset();
    std::memset(owner.memory(), 2, kBytes);
    writer.join();
    EXPECT_TRUE(std::all_of(owner.memory(), owner.memory() + kBytes,
                            [](std::byte byte) { return byte == std::byte{2}; }));
    EXPECT_TRUE(owner.guards_intact());
  }
}

TEST(Staged, lanes_run_out_with_a_sentence_and_come_back) {
  Owner owner(4096);
  auto transport = probe_staged();
  ASSERT_OK(transport);
  std::vector<std::unique_ptr<RemoteRegion>> regions;
  for (std::size_t i = 0; i < kLanes; ++i) {
    auto imported = transport.value()->import_region(owner.key(), soon());
    ASSERT_OK(imported);
    regions.push_back(imported.take());
  }
  const Status status = transport.value()->import_region(owner.key(), soon()).status();
  EXPECT_CODE(status, StatusCode::kResourceExhausted);
  EXPECT_SAYS(status, "all 1024 lanes");
  regions.erase(regions.begin() + 500);
  // The lane goes on where its last origin stopped: more posts than slots, twice.
  for (int again = 0; again < 2; ++again) {
    const Origin origin(owner.key());
    const Bytes data = make_pattern(64, 6);
    for (int i = 0; i < 7; ++i) ASSERT_OK(origin.put(data.data(), 64, 64));
  }
}

TEST(Staged, a_canceled_put_is_not_taken_up_afterwards) {
  Owner owner;
  const Bytes data(64, std::byte{7});
  {
    const Origin origin(owner.key());
    ASSERT_OK(lock_stripe(owner.stripes[0], 77));
    const std::uint64_t one = 1;
    Completion posts;
    ASSERT_EQ(origin.post_add(&one, 0, 1, posts).state, Post::kPending);
    ASSERT_EQ(origin.post_put(data.data(), 8192, 64, posts).state, Post::kPending);
    origin.endpoint->close(Status::error(StatusCode::kCanceled, "the test closes"));
    EXPECT_TRUE(posts.done());
    EXPECT_CODE(posts.status(), StatusCode::kCanceled);
    unlock_stripe(owner.stripes[0]);
  }
  const Origin other(owner.key());
  ASSERT_OK(other.put(data.data(), 4096, 8));
  owner.region.reset();
  EXPECT_EQ(owner.memory()[8192], std::byte{0});
}

TEST(Staged, origins_of_many_processes_are_served_at_once_and_exactly) {
  constexpr std::uint32_t kOrigins = 6;
  constexpr std::size_t kCount = 1200;  // three stripes of words
  const int times = rounds(500, 50);
  std::vector<std::unique_ptr<Child>> children;
  for (std::uint32_t i = 0; i < kOrigins; ++i) {
    children.push_back(std::make_unique<Child>([&, i](Channel& channel) {
      Bytes key;
      ASSERT_TRUE(channel.receive(&key));
      const Origin origin(key);
      const std::vector<std::uint64_t> ones(kCount, 1);
      const std::uint64_t mine = kCount * 8 + i * 70000;
      const Bytes data = make_pattern(70000, i);
      Bytes back(70000);
      Completion added;
      for (int round = 0; round < times; ++round) {
        ASSERT_EQ(origin.post_add(ones.data(), 0, kCount, added).state, Post::kPending);
        ASSERT_OK(origin.put(data.data(), mine, data.size()));
        ASSERT_OK(origin.get(back.data(), mine, back.size()));
        ASSERT_EQ(back, data);
      }
      EXPECT_OK(origin.finish(added));
    }));
  }
  Owner owner;
  for (const auto& child : children) ASSERT_TRUE(child->channel().send(owner.key()));
  // The owner's own accumulates go by loads and stores, under the same locks.
  MappedRegion region(owner.memory(), kBytes, nullptr);
  region.bind({.stripes = owner.stripes.data(), .holder = 1});
  MappedEndpoint self;
  const std::vector<std::uint64_t> ones(kCount, 1);
  Accumulate operation{DataType::kUint64, ReduceOp::kSum};
  operation.operand = reinterpret_cast<const std::byte*>(ones.data());
  operation.count = kCount;
  for (int i = 0; i < times; ++i) ASSERT_OK(self.accumulate(region, operation, nullptr).status);
  for (const auto& child : children) EXPECT_EQ(child->wait(), 0);
  owner.region.reset();
  std::vector<std::uint64_t> sums(kCount);
  std::memcpy(sums.data(), owner.memory(), kCount * 8);
  EXPECT_EQ(sums,
            std::vector<std::uint64_t>(kCount, (kOrigins + 1) * static_cast<unsigned>(times)));
  for (std::uint32_t i = 0; i < kOrigins; ++i) {
    EXPECT_EQ(first_mismatch(owner.memory() + kCount * 8 + i * 70000, 70000, i), 70000U);
  }
}

TEST(Staged, a_killed_owner_answers_nothing_and_close_does_not_hang) {
  Child target([](Channel& channel) {
    const Owner owner(4096);
    (void)channel.send(owner.key());
    (void)channel.receive_number();
  });
  Bytes key;
  ASSERT_TRUE(target.channel().receive(&key));
  const Origin origin(key);
  const Bytes data(64, std::byte{1});
  ASSERT_OK(origin.put(data.data(), 0, 64));
  target.kill();
  Completion lost;
  ASSERT_EQ(origin.post_put(data.data(), 0, 64, lost).state, Post::kPending);
  for (int i = 0; i < 1000; ++i) origin.transport->progress();
  EXPECT_FALSE(lost.done());
  origin.endpoint->close({});
  EXPECT_TRUE(lost.done());
  EXPECT_CODE(lost.status(), StatusCode::kCanceled);
}

TEST(Staged, a_forked_child_takes_nothing_away_from_its_parent) {
  Owner owner(4096);
  auto origin = std::make_unique<Origin>(owner.key());
  const Bytes data = make_pattern(64, 8);
  ASSERT_OK(origin->put(data.data(), 0, 64));
  Child child([&](Channel&) {
    origin->endpoint->close({});
    origin.reset();
    owner.region.reset();
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_OK(origin->put(data.data(), 128, 64));
  const Origin other(owner.key());
  EXPECT_OK(other.put(data.data(), 256, 64));
}

}  // namespace hixl_rma::testing
