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
  explicit PeerWatch(const ControlView& control) : control_(control) {}

  void add(int rank, std::shared_ptr<PeerProcess> process);
  /// Looks when it is time again. One system call for all peers.
  void look();
  /// The process of the rank is known to have ended.
  void ended(int rank);

 private:
  static constexpr Nanoseconds kLookEvery = std::chrono::milliseconds(50);

  const ControlView& control_;
  std::mutex mutex_;
  std::vector<int> ranks_;
  std::vector<pollfd> entries_;
  std::vector<std::shared_ptr<PeerProcess>> processes_;
  std::atomic<std::int64_t> next_look_{0};  // [ns] on the coarse clock
};

}  // namespace hixl_rma
