// SPDX-License-Identifier: Apache-2.0
#include "memory/host/copier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "memory/host/stream_copy.h"

namespace hixl_rma {
namespace {

std::vector<std::byte> pattern(std::size_t n, unsigned seed) {
  std::vector<std::byte> bytes(n);
  std::uint32_t x = seed * 2654435761U + 1;
  for (std::byte& byte : bytes) {
    x = x * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(x >> 24);
  }
  return bytes;
}

TEST(StreamCopy, CopiesEverySizeAndAlignmentExactlyAndNothingBeside) {
  for (const std::size_t n : {0U, 1U, 15U, 63U, 64U, 65U, 255U, 256U, 257U, 1000U, 4096U, 70001U}) {
    for (const std::size_t to_shift : {0U, 1U, 31U, 63U}) {
      for (const std::size_t from_shift : {0U, 1U, 7U}) {
        const auto from = pattern(n + from_shift, static_cast<unsigned>(n));
        std::vector<std::byte> to(n + to_shift + 64, std::byte{0x5a});
        stream_copy(to.data() + to_shift, from.data() + from_shift, n);
        const auto copied = std::span{to}.subspan(to_shift, n);
        EXPECT_TRUE(std::ranges::equal(copied, std::span{from}.subspan(from_shift, n))) << n;
        for (std::size_t i = 0; i < to_shift; ++i) ASSERT_EQ(to[i], std::byte{0x5a});
        for (std::size_t i = n + to_shift; i < to.size(); ++i) ASSERT_EQ(to[i], std::byte{0x5a});
      }
    }
  }
}

class CopyWays : public testing::TestWithParam<CopyWay> {};

TEST_P(CopyWays, EveryWayCopiesBlocksOfAnySizesExactly) {
  Copier copier;
  const std::array<std::size_t, 9> sizes{1, 130000, 0, 131072, 262145, 7, 16384, 3000000, 64};
  std::size_t total = 0;
  for (const std::size_t n : sizes) total += n + 3;
  const auto from = pattern(total, 5);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::byte> to(total);
    std::vector<CopyBlock> blocks;
    std::vector<std::byte> expected(total);
    std::size_t at = 0;
    for (const std::size_t n : sizes) {
      blocks.push_back({to.data() + at, from.data() + at, n});
      std::memcpy(expected.data() + at, from.data() + at, n);
      at += n + 3;
    }
    copier.copy(blocks, GetParam());
    ASSERT_EQ(to, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CopyWays,
                         testing::Values(CopyWay::kPlain, CopyWay::kStreaming,
                                         CopyWay::kPlainHelped, CopyWay::kStreamingHelped));

TEST(Copier, SeveralThreadsShareOneHelper) {
  const auto copier = Copier::of_process();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const auto from = pattern(1 << 20, t);
      for (int round = 0; round < 20; ++round) {
        std::vector<std::byte> to(from.size());
        const CopyBlock block{to.data(), from.data(), from.size()};
        copier->copy(std::span(&block, 1), CopyWay::kStreamingHelped);
        if (to != from) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(IdleHelper, EveryUnitRunsOnce) {
  const auto helper = IdleHelper::of_process();
  for (int round = 0; round < 200; ++round) {
    std::array<std::atomic<int>, 37> runs{};
    helper->run(runs.size(), [&](std::size_t unit) { ++runs[unit]; });
    for (const auto& count : runs) ASSERT_EQ(count, 1);
  }
}

TEST(Tuner, TakesTheWayThatWasFasterForTheSizeAndNoOther) {
  Tuner<2> tuner;
  const auto fill = [&](std::size_t nbytes, double first, double second) {
    for (int i = 0; i < 100; ++i) {
      const std::size_t way = tuner.choose(nbytes);
      tuner.learn(nbytes, way, way == 0 ? first : second);
    }
  };
  fill(1 << 20, 100, 200);
  fill(1 << 26, 200, 100);
  EXPECT_EQ(tuner.choose(1 << 20), 0U);
  EXPECT_EQ(tuner.choose(1 << 26), 1U);
}

TEST(Tuner, LearnsFromWhatItRunsAndNothingFromAFailure) {
  Tuner<2> tuner;
  for (int i = 0; i < 20; ++i) tuner.run(4096, [](std::size_t) { return false; });
  EXPECT_EQ(tuner.choose(4096), 0U) << "nothing is known: the first way is tried";
  const auto begin = Clock::now();
  for (int i = 0; i < 20; ++i) {
    tuner.run(4096, [](std::size_t way) {
      const auto until = Clock::now() + std::chrono::microseconds(way == 0 ? 500 : 0);
      while (Clock::now() < until) {
      }
      return true;
    });
  }
  EXPECT_GE(nanoseconds_since(begin), 1'000'000U);
  EXPECT_EQ(tuner.choose(4096), 1U);
}

TEST(Tuner, BadLuckInTheFirstTriesIsMadeGoodByTheNextOnes) {
  Tuner<4> tuner;
  int slow = 0;
  for (int i = 0; i < 80; ++i) {
    const std::size_t way = tuner.choose(1 << 26);
    const bool unlucky = way == 3 && i < 12;
    tuner.learn(1 << 26, way, way != 3 ? 200 : unlucky ? 1000 : 100);
    if (i >= 70 && way != 3) ++slow;
  }
  EXPECT_EQ(slow, 0);
}

TEST(Tuner, AWayIsJudgedByWhatItDoesAfterItself) {
  Tuner<2> tuner;
  std::size_t before = 1;
  int slow = 0;
  for (int i = 0; i < 10'000; ++i) {
    const std::size_t way = tuner.choose(1 << 20);
    // The first way is the faster one, but not with what the second one left in the caches.
    tuner.learn(1 << 20, way, way != 0 ? 110 : before == 0 ? 100 : 150);
    before = way;
    if (i >= 1000 && way != 0) ++slow;
  }
  EXPECT_LE(slow, 100) << "it is tried anew in fewer than 1 of 100 transfers";
}

TEST(Tuner, OneSlowTransferDoesNotTurnTheChoice) {
  Tuner<2> tuner;
  for (int i = 0; i < 60; ++i) {
    const std::size_t way = tuner.choose(4096);
    tuner.learn(4096, way, way == 0 ? 100 : 130);
  }
  tuner.learn(4096, 0, 1e9);
  EXPECT_EQ(tuner.choose(4096), 0U);
  for (int i = 0; i < 10; ++i) tuner.learn(4096, 0, 1e9);
  EXPECT_EQ(tuner.choose(4096), 1U) << "ten slow ones in a row are no accident";
}

}  // namespace
}  // namespace hixl_rma
