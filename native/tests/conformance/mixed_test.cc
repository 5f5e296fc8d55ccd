// SPDX-License-Identifier: Apache-2.0
//
// Several transports on one memory at once: the stripe locks make one executor atomic against all.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "base/stripe_lock.h"
#include "base/wire.h"
#include "hixl_rma/engine.h"
#include "memory/host/shared_segment.h"
#include "support/channel.h"
#include "support/patience.h"
#include "support/status_assert.h"
#include "transport/cma/factory.h"
#include "transport/common/mapped_endpoint.h"

namespace hixl_rma::testing {
namespace {

constexpr std::size_t kCount = 1200;  // three stripes of doubles
constexpr std::size_t kSyncBytes = kStripeCount * sizeof(StripeLock);
constexpr std::size_t kBytes = kSyncBytes + kCount * 8;

Accumulate one_more(const std::vector<double>& ones) {
  Accumulate operation{DataType::kFloat64, ReduceOp::kSum};
  operation.operand = reinterpret_cast<const std::byte*>(ones.data());
  operation.count = ones.size();
  return operation;
}

/// An origin in a process of its own that accumulates through one transport.
void accumulate_through(std::string_view name, Channel& channel, std::uint32_t holder, int times) {
  auto engine = Engine::create({});
  ASSERT_OK(engine);
  Bytes message;
  ASSERT_TRUE(channel.receive(&message));
  WireReader reader(message);
  auto peer = engine.value()->connect(reader.bytes(), true);
  ASSERT_OK(peer);
  auto sync = engine.value()->import_region(*peer.value(), reader.bytes(), ~0U, soon());
  ASSERT_OK(sync);
  auto data = engine.value()->import_region(*peer.value(), reader.bytes(), ~0U, soon());
  ASSERT_OK(data);
  std::size_t index = 0;
  std::size_t shm = 0;
  const auto& reports = engine.value()->reports();
  for (std::size_t i = 0; i < reports.size(); ++i) {
    if (reports[i].name == name) index = i;
    if (reports[i].name == "shm") shm = i;
  }
  ASSERT_NE(data.value().regions[index], nullptr) << peer.value()->reasons[index];
  RemoteRegion& region = *data.value().regions[index];
  region.bind({.stripes = reinterpret_cast<StripeLock*>(sync.value().regions[shm]->mapped()),
               .holder = holder});
  const std::vector<double> ones(kCount, 1.0);
  for (int i = 0; i < times; ++i) {
    ASSERT_OK(peer.value()->endpoints[index]->accumulate(region, one_more(ones), nullptr).status);
  }
}

}  // namespace

TEST(Mixed, accumulates_of_shm_and_cma_origins_and_of_the_owner_are_atomic) {
  if (auto probed = probe_cma(); !probed.ok()) GTEST_SKIP() << "cma: " << probed.status().text();
  const int times = rounds(2000, 100);
  std::vector<std::unique_ptr<Child>> origins;
  constexpr std::array<std::string_view, 3> kNames = {"shm", "cma", "cma"};
  for (std::uint32_t i = 0; i < kNames.size(); ++i) {
    origins.push_back(std::make_unique<Child>(
        [&, i](Channel& channel) { accumulate_through(kNames[i], channel, i + 2, times); }));
  }
  auto engine = Engine::create({});
  ASSERT_OK(engine);
  const std::size_t sync_pages = round_to_pages(kSyncBytes);
  const std::size_t total = sync_pages + kBytes;
  auto segment = SharedSegment::create(total, {});
  ASSERT_OK(segment);
  std::byte* base = segment.value()->data();
  std::byte* memory = base + sync_pages;
  auto sync = engine.value()->register_memory(
      {base, kSyncBytes, MemoryKind::kHost, segment.value().get()}, Access::kReadWrite, ~0U);
  auto data = engine.value()->register_memory(
      {memory, kBytes, MemoryKind::kHost, segment.value().get()}, Access::kReadWrite, ~0U);
  ASSERT_OK(sync);
  ASSERT_OK(data);
  const Bytes message = WireWriter()
                            .bytes(engine.value()->address())
                            .bytes(sync.value()->packed_keys())
                            .bytes(data.value()->packed_keys())
                            .take();
  for (const auto& origin : origins) ASSERT_TRUE(origin->channel().send(message));
  MappedRegion region(memory, kBytes, nullptr);
  region.bind({.stripes = reinterpret_cast<StripeLock*>(base), .holder = 1});
  MappedEndpoint owner;
  const std::vector<double> ones(kCount, 1.0);
  for (int i = 0; i < times; ++i) {
    ASSERT_OK(owner.accumulate(region, one_more(ones), nullptr).status);
  }
  for (const auto& origin : origins) EXPECT_EQ(origin->wait(), 0);
  std::vector<double> sums(kCount);
  std::memcpy(sums.data(), memory, kCount * 8);
  EXPECT_EQ(sums, std::vector<double>(kCount, 4.0 * times));
}

}  // namespace hixl_rma::testing
