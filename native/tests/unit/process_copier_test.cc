// SPDX-License-Identifier: Apache-2.0
//
// Cross-process copies of this process with itself: no kernel that has them refuses those.
#include "transport/cma/process_copier.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "support/pattern.h"
#include "support/skip_without_cma.h"
#include "support/status_assert.h"

namespace hixl_rma::testing {
namespace {

constexpr std::size_t kGap = 3;

std::uint64_t address_of(const Bytes& bytes) {
  return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(bytes.data()));
}

class ProcessCopyWays : public ::testing::TestWithParam<ProcessCopyWay> {};
INSTANTIATE_TEST_SUITE_P(All, ProcessCopyWays,
                         ::testing::Values(ProcessCopyWay::kAlone, ProcessCopyWay::kHelped));

TEST_P(ProcessCopyWays, every_way_copies_pieces_of_any_sizes_exactly_and_nothing_beside) {
  SKIP_WITHOUT_CMA();
  const std::array<std::size_t, 8> sizes{1, 300'000, 0, 262'144, 7, 4096, 1'000'003, 64};
  std::size_t total = 0;
  for (const std::size_t n : sizes) total += n + kGap;
  ProcessCopier copier;
  for (const CopyDirection direction : {CopyDirection::kToPeer, CopyDirection::kFromPeer}) {
    Bytes here = make_pattern(total, 1);
    Bytes there = make_pattern(total, 2);
    const Bytes& from = direction == CopyDirection::kToPeer ? here : there;
    Bytes expected = direction == CopyDirection::kToPeer ? there : here;
    std::vector<Piece> pieces;
    std::size_t at = 0;
    for (const std::size_t n : sizes) {
      pieces.push_back({here.data() + at, at, n});
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(at), n,
                  expected.begin() + static_cast<std::ptrdiff_t>(at));
      at += n + kGap;
    }
    ASSERT_OK(copier.copy(getpid(), direction, address_of(there), pieces, GetParam()));
    EXPECT_EQ(direction == CopyDirection::kToPeer ? there : here, expected);
  }
}

TEST_P(ProcessCopyWays, a_page_that_refuses_in_the_middle_is_reported) {
  SKIP_WITHOUT_CMA();
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  void* there = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(there, MAP_FAILED);
  ASSERT_EQ(mprotect(static_cast<char*>(there) + kBytes / 2, 4096, PROT_NONE), 0);
  Bytes here = make_pattern(kBytes, 1);
  const Piece piece{here.data(), 0, kBytes};
  ProcessCopier copier;
  const auto base = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(there));
  EXPECT_CODE(copier.copy(getpid(), CopyDirection::kToPeer, base, std::span(&piece, 1), GetParam()),
              StatusCode::kAccessDenied);
  munmap(there, kBytes);
}

TEST(ProcessCopier, several_threads_share_one_helper_and_what_it_learns) {
  SKIP_WITHOUT_CMA();
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  const auto copier = ProcessCopier::of_process();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      Bytes from = make_pattern(kBytes, t);
      for (int round = 0; round < 20; ++round) {
        Bytes to(kBytes);
        const Piece piece{from.data(), 0, kBytes};
        const Status status =
            copier->copy(getpid(), CopyDirection::kToPeer, address_of(to), std::span(&piece, 1));
        if (!status.ok() || to != from) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace hixl_rma::testing
