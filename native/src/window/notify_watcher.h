// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/descriptor.h"
#include "base/doorbell.h"
#include "base/own_thread.h"
#include "hixl_rma/status.h"
#include "window/control_layout.h"
#include "window/notify_board.h"
#include "window/peer_watch.h"

namespace hixl_rma {

/// Makes arriving notifications visible to select, poll and event loops: one thread sleeps on the
/// doorbell and makes an eventfd readable whenever a total has changed or a rank was lost.
class NotifyWatcher {
 public:
  static Result<std::unique_ptr<NotifyWatcher>> start(ControlHeader& header,
                                                      const NotifyBoard& board, PeerWatch& peers);
  NotifyWatcher(const NotifyWatcher&) = delete;
  NotifyWatcher& operator=(const NotifyWatcher&) = delete;
  ~NotifyWatcher();

  [[nodiscard]] int fd() const { return event_.get(); }
  /// Makes the descriptor unreadable until something arrives that arrived after this call began.
  void drain();
  /// Makes the descriptor readable: there is more to look at.
  void tell();

 private:
  NotifyWatcher(ControlHeader& header, const NotifyBoard& board, PeerWatch& peers, Descriptor event)
      : header_(header), board_(board), peers_(peers), event_(std::move(event)) {}
  void watch();
  [[nodiscard]] std::uint64_t news() const;

  ControlHeader& header_;
  const NotifyBoard& board_;
  PeerWatch& peers_;
  Descriptor event_;
  std::mutex mutex_;
  std::uint64_t told_ = 0;  // news that the descriptor was made readable for, or that were seen
  std::atomic<bool> stop_{false};
  OwnThread thread_;
};

}  // namespace hixl_rma
