// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/deadline.h"

namespace hixl_rma {

/// Learns which of several ways of moving bytes is the fastest for each size, from the transfers
/// that are made anyway: no threshold is a guess, and none is measured before it is needed.
///
/// Sizes are told apart by their power of two. Each way is tried some times in a row, because the
/// first time finds what another way left in the caches, and the best of them counts; then the
/// fastest way is taken. The ways are tried anew one after the other, often at first, because the
/// first tries may have had bad luck, and rarely later, because what is fast depends on what else
/// the machine does.
/// Thread: any; what two threads learn at the same moment may be learnt once.
template <std::size_t Ways>
class Tuner {
 public:
  static constexpr std::uint32_t kTries = 3;
  static constexpr std::uint32_t kRetryEvery = 512;  // below 1 %: rare enough for a p99
  static constexpr std::uint32_t kLearning = 128;    // transfers, of which every 16th begins tries

  /// move(way) moves so many bytes one way and says whether its time tells anything: that of a
  /// failure does not.
  template <class Move>
  void run(std::size_t nbytes, Move&& move) {
    const std::size_t way = choose(nbytes);
    const auto begin = Clock::now();
    if (move(way)) learn(nbytes, way, static_cast<double>(nanoseconds_since(begin)));
  }

  [[nodiscard]] std::size_t choose(std::size_t nbytes) {
    Size& size = sizes_[index(nbytes)];
    const std::uint32_t call = size.calls.fetch_add(1, std::memory_order_relaxed);
    const std::uint32_t period = call < kLearning ? kLearning / 8 : kRetryEvery;
    if (call != 0 && call % period == 0) {
      size.ways[call / period % Ways].tries.store(0, std::memory_order_relaxed);
    }
    std::size_t best = 0;
    for (std::size_t way = 0; way < Ways; ++way) {
      const Way& candidate = size.ways[way];
      if (candidate.tries.load(std::memory_order_relaxed) < kTries) return way;
      if (cost(candidate) < cost(size.ways[best])) best = way;
    }
    return best;
  }

  void learn(std::size_t nbytes, std::size_t way, double nanoseconds) {
    Way& learner = sizes_[index(nbytes)].ways[way];
    const auto fresh = static_cast<float>(nanoseconds / static_cast<double>(nbytes));
    const std::uint32_t tries = learner.tries.load(std::memory_order_relaxed);
    const float known = cost(learner);
    // Once it is known, a single slow one, of a thread that lost its core, must not turn the
    // choice.
    const float next = tries == 0       ? fresh
                       : tries < kTries ? std::min(known, fresh)
                                        : known + (std::min(fresh, 2 * known) - known) / 8;
    learner.cost.store(next, std::memory_order_relaxed);
    if (tries < kTries) learner.tries.store(tries + 1, std::memory_order_relaxed);
  }

 private:
  struct Way {
    std::atomic<float> cost{0};  // nanoseconds a byte
    std::atomic<std::uint32_t> tries{0};
  };
  struct Size {
    std::array<Way, Ways> ways;
    std::atomic<std::uint32_t> calls{0};
  };
  static constexpr std::size_t kSizes = 65;

  static float cost(const Way& way) { return way.cost.load(std::memory_order_relaxed); }
  static std::size_t index(std::size_t nbytes) {
    return static_cast<std::size_t>(std::bit_width(nbytes));
  }

  std::array<Size, kSizes> sizes_;
};

}  // namespace hixl_rma
