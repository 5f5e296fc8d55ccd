// SPDX-License-Identifier: Apache-2.0
//
// What cma alone has to keep: partial copies, refusals of the kernel, peers that are gone, and
// memory that is withdrawn while origins write.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "hixl_rma/transport.h"
#include "support/channel.h"
#include "support/identity.h"
#include "support/patience.h"
#include "support/pattern.h"
#include "support/skip_without_cma.h"
#include "support/status_assert.h"
#include "transport/cma/factory.h"

namespace hixl_rma::testing {
namespace {

constexpr std::size_t kPage = 4096;

/// Pages of one's own, aligned, with a mapping that can be protected.
class Pages {
 public:
  explicit Pages(std::size_t nbytes)
      : nbytes_(nbytes),
        data_(static_cast<std::byte*>(
            mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { munmap(data_, nbytes_); }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] MemoryView view() const { return {data_, nbytes_}; }

 private:
  std::size_t nbytes_;
  std::byte* data_;
};

/// An origin's transport, endpoint and region, from what a target sent: address, then key.
struct Origin {
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Endpoint> endpoint;
  std::unique_ptr<RemoteRegion> region;

  Status reach(ByteSpan address, ByteSpan key) {
    auto probed = probe_cma();
    if (!probed.ok()) return probed.status();
    transport = probed.take();
    auto connected = transport->connect(address);
    if (!connected.ok()) return connected.status();
    endpoint = connected.take();
    auto imported = transport->import_region(key, soon());
    if (!imported.ok()) return imported.status();
    region = imported.take();
    return {};
  }
  Status reach(Channel& channel) {
    Bytes address;
    Bytes key;
    if (!channel.receive(&address) || !channel.receive(&key)) {
      return Status::error(StatusCode::kInternal, "the target said nothing");
    }
    return reach(address, key);
  }
  Status put(const std::byte* from, std::uint64_t offset, std::size_t nbytes) const {
    return endpoint->put(*region, {const_cast<std::byte*>(from), offset, nbytes}, nullptr).status;
  }
  Status get(std::byte* to, std::uint64_t offset, std::size_t nbytes) const {
    return endpoint->get(*region, {to, offset, nbytes}, nullptr).status;
  }
};

/// Registers pages, tells the near side and answers reads of all of them until it has enough.
void serve_pages(Channel& channel, const Pages& pages, std::size_t nbytes) {
  auto transport = probe_cma();
  auto region = transport.value()->register_memory(pages.view(), Access::kReadWrite);
  (void)channel.send(transport.value()->address());
  (void)channel.send(region.value()->packed_key());
  while (channel.receive_number() == 1) (void)channel.send(ByteSpan(pages.data(), nbytes));
}

}  // namespace

TEST(Cma, a_put_stops_at_a_page_that_cannot_be_written_and_says_how_far_it_came) {
  SKIP_WITHOUT_CMA();
  constexpr std::size_t kLength = 4 * kPage;
  Child target([](Channel& channel) {
    const Pages pages(kLength);
    EXPECT_EQ(mprotect(pages.data() + 2 * kPage, kPage, PROT_READ), 0);
    serve_pages(channel, pages, kLength);
  });
  Origin origin;
  ASSERT_OK(origin.reach(target.channel()));
  const Bytes data = make_pattern(kLength, 1);
  Status status = origin.put(data.data(), 100, kLength - 100);
  EXPECT_CODE(status, StatusCode::kAccessDenied);
  EXPECT_SAYS(status, std::to_string(2 * kPage - 100) + " bytes");
  const std::vector<Piece> pieces = {{const_cast<std::byte*>(data.data()), 3 * kPage, 10},
                                     {const_cast<std::byte*>(data.data()), 2 * kPage, 10},
                                     {const_cast<std::byte*>(data.data()), 3 * kPage + 50, 10}};
  status = origin.endpoint->put_v(*origin.region, pieces, nullptr).status;
  EXPECT_CODE(status, StatusCode::kAccessDenied);
  EXPECT_SAYS(status, " 10 bytes");
  ASSERT_TRUE(target.channel().send_number(1));
  Bytes seen;
  ASSERT_TRUE(target.channel().receive(&seen));
  EXPECT_EQ(first_mismatch(seen.data() + 100, 2 * kPage - 100, 1), 2 * kPage - 100);
  EXPECT_EQ(first_mismatch(seen.data() + 3 * kPage, 10, 1), 10U);
  EXPECT_EQ(seen[3 * kPage + 50], std::byte{0});
  ASSERT_TRUE(target.channel().send_number(2));
  EXPECT_EQ(target.wait(), 0);
}

TEST(Cma, a_get_stops_at_a_page_that_is_not_there) {
  SKIP_WITHOUT_CMA();
  const Pages pages(3 * kPage);
  fill_pattern(pages.data(), 3 * kPage, 2);
  auto transport = probe_cma();
  auto region = transport.value()->register_memory(pages.view(), Access::kReadWrite);
  ASSERT_OK(region);
  Origin origin;
  ASSERT_OK(origin.reach(transport.value()->address(), region.value()->packed_key()));
  ASSERT_EQ(munmap(pages.data() + 2 * kPage, kPage), 0);
  Bytes back(3 * kPage);
  Status status = origin.get(back.data(), 0, back.size());
  EXPECT_CODE(status, StatusCode::kAccessDenied);
  EXPECT_SAYS(status, std::to_string(2 * kPage) + " bytes");
  EXPECT_EQ(first_mismatch(back.data(), 2 * kPage, 2), 2 * kPage);
  EXPECT_EQ(back[2 * kPage], std::byte{0});
}

TEST(Cma, a_killed_peer_is_lost) {
  SKIP_WITHOUT_CMA();
  Child target([](Channel& channel) {
    const Pages pages(kPage);
    serve_pages(channel, pages, kPage);
  });
  Bytes address;
  Bytes key;
  ASSERT_TRUE(target.channel().receive(&address) && target.channel().receive(&key));
  Origin origin;
  ASSERT_OK(origin.reach(address, key));
  Bytes data(8);
  EXPECT_OK(origin.put(data.data(), 0, 8));
  target.kill();
  const double one = 1;
  EXPECT_CODE(origin.put(data.data(), 0, 8), StatusCode::kPeerLost);
  EXPECT_CODE(origin.get(data.data(), 0, 8), StatusCode::kPeerLost);
  EXPECT_CODE(origin.endpoint
                  ->accumulate(*origin.region,
                               {DataType::kFloat64, ReduceOp::kSum,
                                reinterpret_cast<const std::byte*>(&one), nullptr, 0, 1},
                               nullptr)
                  .status,
              StatusCode::kPeerLost);
  // A process of that number may come again: it is not the peer.
  EXPECT_CODE(origin.transport->connect(address).status(), StatusCode::kPeerLost);
}

TEST(Cma, a_peer_that_may_not_be_traced_is_unavailable_with_the_reason) {
  SKIP_WITHOUT_CMA();
  // Root may trace anybody, so both become somebody else; anybody else stays who he is.
  if (getuid() == 0 && !may_become_nobody()) GTEST_SKIP() << "root that may trace everybody";
  const auto leave_root = [] { return getuid() != 0 || become_nobody(); };
  Child target([&](Channel& channel) {
    EXPECT_TRUE(leave_root());
    prctl(PR_SET_DUMPABLE, 0);
    auto transport = probe_cma();
    EXPECT_OK(transport);  // on itself a process may do what it likes
    (void)channel.send(transport.value()->address());
    (void)channel.receive_number();
  });
  Bytes address;
  ASSERT_TRUE(target.channel().receive(&address));
  Child origin([&](Channel&) {
    EXPECT_TRUE(leave_root());
    auto transport = probe_cma();
    EXPECT_OK(transport);
    EXPECT_OK(transport.value()->can_reach(address));
    Status status = transport.value()->connect(address).status();
    EXPECT_CODE(status, StatusCode::kUnavailable);
    EXPECT_SAYS(status, "refused");
    EXPECT_SAYS(status, "ptrace_scope");
  });
  EXPECT_EQ(origin.wait(), 0);
  ASSERT_TRUE(target.channel().send_number(1));
  EXPECT_EQ(target.wait(), 0);
}

TEST(Cma, a_peer_whose_cookie_does_not_fit_is_unavailable) {
  SKIP_WITHOUT_CMA();
  auto transport = probe_cma();
  Bytes address = transport.value()->address();
  address.back() ^= std::byte{1};
  Status status = transport.value()->connect(address).status();
  EXPECT_CODE(status, StatusCode::kUnavailable);
  EXPECT_SAYS(status, "another process");
}

TEST(Cma, memory_of_an_older_generation_is_stale_and_no_byte_lands) {
  SKIP_WITHOUT_CMA();
  const Pages pages(kPage);
  auto transport = probe_cma();
  auto region = transport.value()->register_memory(pages.view(), Access::kReadWrite);
  ASSERT_OK(region);
  Origin origin;
  ASSERT_OK(origin.reach(transport.value()->address(), region.value()->packed_key()));
  std::atomic<std::uint64_t> generation{11};
  std::atomic<std::uint64_t> in_flight{0};
  origin.region->bind(
      {.generation = &generation, .expected_generation = 11, .in_flight = &in_flight});
  const Bytes data = make_pattern(64, 5);
  EXPECT_OK(origin.put(data.data(), 0, 64));
  EXPECT_EQ(in_flight.load(), 0U);
  generation.store(13);
  const std::uint64_t operand = 1;
  EXPECT_CODE(origin.put(data.data(), 1000, 64), StatusCode::kStale);
  EXPECT_CODE(origin.endpoint
                  ->accumulate(*origin.region,
                               {DataType::kUint64, ReduceOp::kSum,
                                reinterpret_cast<const std::byte*>(&operand), nullptr, 1000, 1},
                               nullptr)
                  .status,
              StatusCode::kStale);
  EXPECT_EQ(in_flight.load(), 0U);
  EXPECT_EQ(first_mismatch(pages.data(), 64, 5), 64U);
  EXPECT_TRUE(std::all_of(pages.data() + 64, pages.data() + kPage,
                          [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST(Cma, no_byte_lands_after_the_owner_has_withdrawn_the_memory) {
  SKIP_WITHOUT_CMA();
  constexpr std::size_t kLength = 64 * kPage;
  for (int round = 0; round < rounds(200, 20); ++round) {
    const Pages pages(kLength);
    auto transport = probe_cma();
    auto region = transport.value()->register_memory(pages.view(), Access::kReadWrite);
    ASSERT_OK(region);
    std::atomic<std::uint64_t> generation{1};
    std::atomic<std::uint64_t> in_flight{0};
    std::atomic<int> puts{0};
    std::thread writer([&] {
      Origin origin;
      EXPECT_OK(origin.reach(transport.value()->address(), region.value()->packed_key()));
      origin.region->bind(
          {.generation = &generation, .expected_generation = 1, .in_flight = &in_flight});
      const Bytes ones(kLength, std::byte{1});
      Status status;
      for (; status.ok(); puts.fetch_add(1)) status = origin.put(ones.data(), 0, kLength);
      EXPECT_CODE(status, StatusCode::kStale);
    });
    while (puts.load() < 1 + round % 3) std::this_thread::yield();
    generation.store(3);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // NOTE [never write late]
    while (in_flight.load(std::memory_order_acquire) != 0) std::this_thread::yield();
    std::memset(pages.data(), 2, kLength);
    writer.join();
    EXPECT_TRUE(std::all_of(pages.data(), pages.data() + kLength,
                            [](std::byte byte) { return byte == std::byte{2}; }));
  }
}

#if !HIXL_RMA_TESTS_SANITIZED  // a sanitizer keeps a shadow of all those addresses
namespace {

/// Many views of one small memory in a row, and a memory of its own at the end: two GiB of
/// addresses that cost no two GiB of memory.
class LongRange {
 public:
  static constexpr std::size_t kChunk = std::size_t{16} << 20;
  static constexpr std::size_t kChunks = 129;
  static constexpr std::size_t kBytes = kChunk * kChunks;

  LongRange() : memory_(memfd_create("test", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(memory_, 2 * kChunk), 0);
    void* reserved = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    data_ = static_cast<std::byte*>(reserved);
    for (std::size_t i = 0; i < kChunks; ++i) {
      const off_t offset = i + 1 < kChunks ? 0 : static_cast<off_t>(kChunk);
      EXPECT_NE(mmap(data_ + i * kChunk, kChunk, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                     memory_, offset),
                MAP_FAILED);
    }
  }
  LongRange(const LongRange&) = delete;
  LongRange& operator=(const LongRange&) = delete;
  ~LongRange() {
    munmap(data_, kBytes);
    close(memory_);
  }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::byte* last() const { return data_ + kBytes - kChunk; }

 private:
  int memory_;
  std::byte* data_ = nullptr;
};

}  // namespace

TEST(Cma, a_copy_longer_than_the_kernel_does_in_one_call_is_continued) {
  SKIP_WITHOUT_CMA();
  static_assert(LongRange::kBytes > 0x7ffff000);
  const LongRange from;
  const LongRange to;
  fill_pattern(from.data(), LongRange::kChunk, 1);
  fill_pattern(from.last(), LongRange::kChunk, 2);
  auto transport = probe_cma();
  auto region =
      transport.value()->register_memory({to.data(), LongRange::kBytes}, Access::kReadWrite);
  ASSERT_OK(region);
  Origin origin;
  ASSERT_OK(origin.reach(transport.value()->address(), region.value()->packed_key()));
  ASSERT_OK(origin.put(from.data(), 0, LongRange::kBytes));
  EXPECT_EQ(std::memcmp(to.data(), from.data(), LongRange::kChunk), 0);
  EXPECT_EQ(std::memcmp(to.last(), from.last(), LongRange::kChunk), 0);
}
#endif

}  // namespace hixl_rma::testing
