// SPDX-License-Identifier: Apache-2.0
#include "window/notify_watcher.h"

#include <sys/eventfd.h>

#include <cerrno>

#include "window/waiting.h"

namespace hixl_rma {

Result<std::unique_ptr<NotifyWatcher>> NotifyWatcher::start(ControlHeader& header,
                                                            const NotifyBoard& board,
                                                            PeerWatch& peers) {
  Descriptor event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event.valid()) {
    return Status::from_errno(StatusCode::kResourceExhausted, "eventfd failed", errno);
  }
  std::unique_ptr<NotifyWatcher> watcher(new NotifyWatcher(header, board, peers, std::move(event)));
  Status status = watcher->thread_.start("hixl-watcher", [self = watcher.get()] { self->watch(); });
  if (!status.ok()) return status;
  return watcher;
}

NotifyWatcher::~NotifyWatcher() {
  if (!thread_.started() || thread_.is_parents()) return;
  stop_.store(true, std::memory_order_relaxed);
  wake_all(header_.doorbell);
  thread_.join();
}

// Both only grow.
std::uint64_t NotifyWatcher::news() const {
  return board_.arrivals() + header_.lost_count.load(std::memory_order_acquire);
}

void NotifyWatcher::watch() {
  while (!stop_.load(std::memory_order_relaxed)) {
    peers_.look();
    Sleeper sleeper(header_.doorbell);
    {
      std::lock_guard lock(mutex_);
      const std::uint64_t now = news();
      if (now != told_) {
        told_ = now;
        tell();
      }
    }
    if (!stop_.load(std::memory_order_relaxed)) sleeper.sleep(kLongestSleep);
  }
}

void NotifyWatcher::tell() { eventfd_write(event_.get(), 1); }

void NotifyWatcher::drain() {
  std::lock_guard lock(mutex_);
  // Whoever drains looks once more: what has arrived by now needs no telling.
  told_ = news();
  eventfd_t count = 0;
  eventfd_read(event_.get(), &count);
}

}  // namespace hixl_rma
