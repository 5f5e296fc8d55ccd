// SPDX-License-Identifier: Apache-2.0
//
// The two ways out of a window: free, which all ranks do together, and abort, which one does alone
// when its program failed or ends.
#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "base/log.h"
#include "window/busy_scope.h"
#include "window/failures.h"
#include "window/notify_watcher.h"  // IWYU pragma: keep (a member of Window)
#include "window/window.h"

namespace hixl_rma {
namespace {

constexpr Nanoseconds kWithdrawLimit = std::chrono::seconds(10);

}  // namespace

Status Window::free(const Deadline& deadline) {
  if (closed()) return {};
  if (Status status = usable(); !status.ok()) return status;
  {
    const BusyScope busy(sync_busy_);
    if (Status status = busy.status("free"); !status.ok()) return status;
    {
      std::lock_guard lock(sync_mutex_);
      if (Status status = epochs_.begin_free(); !status.ok()) return status;
    }
    Status status = complete_outstanding(deadline);
    if (status.ok()) status = advance_barrier(deadline, WaitKind::kFree);
    if (left_pending(status)) {
      std::lock_guard lock(sync_mutex_);
      epochs_.set_pending(PendingCall::kFree);
      return status;
    }
    if (!status.ok()) {
      // With a rank lost there is no barrier to pass; what is ours goes all the same.
      log_line(LogLevel::kWarning, "window freed alone: " + std::string(status.text()));
      withdraw_memory();
      tell_lost();
    }
  }
  quiesce();
  freed_.store(true, std::memory_order_release);  // pairs with freed()
  Status failure = closed_with({});
  return failure.code() == StatusCode::kPeerLost ? Status() : failure;
}

void Window::abort() {
  if (closed() || fork_generation_ != fork_generation() || control_links_.empty()) return;
  withdraw_memory();
  tell_lost();
  quiesce();
}

// After this no byte of a peer lands in the memory: NOTE [never write late].
void Window::withdraw_memory() {
  if (options_.memory == nullptr) return;
  control_.header().generation.fetch_add(2, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const Deadline deadline = Deadline::after(kWithdrawLimit);
  for (int rank = 0; rank < options_.size; ++rank) {
    const Word& in_flight = control_.peer(static_cast<std::size_t>(rank)).in_flight;
    while (in_flight.load(std::memory_order_acquire) != 0 && !link(rank).lost.load()) {
      if (deadline.expired()) {
        log_line(LogLevel::kWarning, "rank " + std::to_string(rank) +
                                         " is still copying into memory that is being withdrawn");
        break;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      peers_->look();  // who died copies no more
      refresh_lost();
    }
  }
}

void Window::tell_lost() {
  const auto me = static_cast<std::size_t>(options_.rank);
  const std::uint64_t lost = layout_.peer(me) + offsetof(PeerWords, lost);
  for (std::size_t peer = 0; peer < control_links_.size(); ++peer) {
    const ControlLink& to = control_links_[peer];
    if (peer == me || to.endpoint() == nullptr) continue;
    std::uint64_t before = 0;
    Status status = to.store(lost, 1);
    if (status.ok()) status = to.fetch_add(offsetof(ControlHeader, lost_count), 1, &before);
    if (status.ok()) status = to.store(lost, 1);  // once more, for the doorbell
    if (!status.ok()) log_line(LogLevel::kDebug, "telling a rank of our leaving failed");
  }
}

// No call begins any more, and those that run without the GIL have ended.
void Window::quiesce() {
  closing_.store(true);
  wake_all(control_.header().doorbell);
  while (inside_.load() != 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
  std::lock_guard lock(sync_mutex_);
  watching_.store(nullptr);
  watcher_.reset();
}

void Window::release() {
  if (!closed() || released_ || fork_generation_ != fork_generation()) return;
  released_ = true;
  for (int rank = 0; rank < options_.size; ++rank) {
    Link& to = link(rank);
    if (!to.peer) continue;
    const Status reason = Status::error(StatusCode::kCanceled, "the window was freed");
    for (const auto& endpoint : to.peer->endpoints) {
      if (endpoint) endpoint->close(reason);
    }
    while (!to.outstanding.done() || !to.local_flushes.done()) engine_->idle();
    to.data = nullptr;
    to.data_region = nullptr;
    to.data_regions.regions.clear();
    to.control_regions.regions.clear();
    to.held.clear();
    to.peer.reset();
  }
  control_region_.reset();
  data_region_.reset();
}

void Window::learn_lost(std::uint64_t count) {
  std::lock_guard lock(lost_mutex_);
  for (int rank = 0; rank < options_.size; ++rank) {
    Link& to = link(rank);
    const Word& lost = control_.peer(static_cast<std::size_t>(rank)).lost;
    if (!to.lost.load() && lost.load(std::memory_order_acquire) != 0) {
      to.lost.store(true);
      lost_.push_back(rank);
    }
    if (to.ended || !peers_->has_ended(rank)) continue;
    to.ended = true;
    // Nobody is left to answer. What is outstanding fires with the rank's name: see settled().
    const Status reason =
        Status::error(StatusCode::kCanceled, "the process of the rank has ended").with_peer(rank);
    if (to.data != nullptr) to.data->close(reason);
  }
  lost_seen_.store(count, std::memory_order_relaxed);
}

Status Window::loss_of(int rank) const {
  return Status::error(StatusCode::kPeerLost,
                       peers_->was_silent(rank)
                           ? "the process of rank " + std::to_string(rank) + " has ended"
                           : "rank " + std::to_string(rank) + " left without freeing the window")
      .with_peer(rank);
}

// The outcome of an operation: one that was canceled for its target's sake tells of the loss.
Status Window::settled(const Status& status) const {
  const bool lost = status.code() == StatusCode::kCanceled && status.detail().peer_rank >= 0;
  return lost ? loss_of(status.detail().peer_rank) : status;
}

std::vector<int> Window::failed_ranks() {
  if (!closed()) {
    peers_->look();
    refresh_lost();
  }
  std::lock_guard lock(lost_mutex_);
  std::vector<int> ranks = lost_;
  std::ranges::sort(ranks);
  return ranks;
}

Window::~Window() {
  if (fork_generation_ != fork_generation()) return;
  if (!closed() && control_region_ != nullptr && control_links_[0].endpoint() != nullptr) abort();
  release();
}

}  // namespace hixl_rma
