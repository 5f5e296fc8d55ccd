// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/deadline.h"
#include "engine/peer_process.h"
#include "window/control_layout.h"

namespace hixl_rma {

/// Notices that the process of a rank has ended without a word, and says it the way a rank that
/// leaves does: in this rank's own control memory. So everything that heeds a loss heeds a death.
///
/// It costs no thread: whoever waits looks, a few times a second, so a death is seen within
/// kLookEvery of the waiter's own wake-up. Who never waits sees it in what fails.
/// Thread: any.
class PeerWatch {
 public:
  PeerWatch(const ControlView& control, std::size_t ranks) : control_(control), known_(ranks) {}

  void add(int rank, std::shared_ptr<PeerProcess> process);
  /// Looks when it is time again. One system call for all peers.
  void look();
  /// The process of the rank is known to have ended.
  void ended(int rank);
  /// Whether its process is known to have ended. One that left the window may live on.
  [[nodiscard]] bool has_ended(int rank) const { return known(rank).end.load() != End::kNone; }
  /// The same, after a look at this process. One system call.
  bool look_at(int rank);
  /// Whether it is known to have ended before it could say that the rank leaves.
  [[nodiscard]] bool was_silent(int rank) const { return known(rank).end.load() == End::kSilent; }

 private:
  enum class End : std::uint8_t { kNone, kTold, kSilent };
  struct Known {
    std::atomic<End> end{End::kNone};
  };

  static constexpr Nanoseconds kLookEvery = std::chrono::milliseconds(50);

  [[nodiscard]] const Known& known(int rank) const {
    return known_[static_cast<std::size_t>(rank)];
  }

  const ControlView& control_;
  std::vector<Known> known_;
  std::mutex mutex_;
  std::vector<int> ranks_;
  std::vector<pollfd> entries_;
  std::vector<std::shared_ptr<PeerProcess>> processes_;
  std::atomic<std::int64_t> next_look_{0};  // [ns] on the coarse clock
};

}  // namespace hixl_rma
