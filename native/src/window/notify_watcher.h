// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "base/descriptor.h"
#include "base/doorbell.h"
#include "hixl_rma/status.h"
#include "window/notify_board.h"

namespace hixl_rma {

/// Makes arriving notifications visible to select, poll and event loops: one thread sleeps on the
/// doorbell and makes an eventfd readable whenever a total has changed.
class NotifyWatcher {
 public:
  static Result<std::unique_ptr<NotifyWatcher>> start(Doorbell& doorbell, const NotifyBoard& board);
  NotifyWatcher(const NotifyWatcher&) = delete;
  NotifyWatcher& operator=(const NotifyWatcher&) = delete;
  ~NotifyWatcher();

  [[nodiscard]] int fd() const { return event_.get(); }
  /// Makes the descriptor unreadable until something arrives that arrived after this call began.
  void drain();
  /// Makes the descriptor readable: there is more to look at.
  void tell();

 private:
  NotifyWatcher(Doorbell& doorbell, const NotifyBoard& board, Descriptor event)
      : doorbell_(doorbell), board_(board), event_(std::move(event)) {}
  void watch();

  Doorbell& doorbell_;
  const NotifyBoard& board_;
  Descriptor event_;
  std::mutex mutex_;
  std::uint64_t told_ = 0;  // arrivals that the descriptor was made readable for, or that were seen
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace hixl_rma
