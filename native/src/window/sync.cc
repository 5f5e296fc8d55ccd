// SPDX-License-Identifier: Apache-2.0
//
// Epochs that more than one rank takes part in. Each protocol stores absolute counts into words
// that have one writer each, in the memory of the rank that waits for them; a call that timed out
// goes on where it stopped when it is made again.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "window/busy_scope.h"
#include "window/failures.h"
#include "window/window.h"

namespace hixl_rma {
namespace {

constexpr unsigned kNoSucceed = 8;
constexpr unsigned kAllAssertions = 31;

}  // namespace

Status Window::waited(WaitEnd end) const {
  if (end == WaitEnd::kReady) return {};
  if (end == WaitEnd::kTimedOut) {
    return Status::error(StatusCode::kTimeout, "timed out");
  }
  return Status::error(StatusCode::kCanceled, "interrupted by a signal");
}

Status Window::first_lost(std::span<const int> group) {
  refresh_lost();
  for (const int rank : group) {
    if (!link(rank).lost.load(std::memory_order_relaxed)) continue;
    return loss_of(rank);
  }
  return {};
}

Status Window::any_lost() {
  refresh_lost();
  if (lost_seen_.load(std::memory_order_relaxed) == 0) return {};
  for (int rank = 0; rank < options_.size; ++rank) {
    if (Status status = first_lost(std::span(&rank, 1)); !status.ok()) return status;
  }
  return {};
}

// NOTE [failed operations and those who wait]
// An operation that failed keeps nobody waiting: the call that closes its epoch completes what else
// is outstanding, meets or releases the other ranks as ever, and reports the failure last. Between
// the two it may time out; the failure is then kept for the call that goes on with it.
Status Window::complete_outstanding(const Deadline& deadline) {
  for (int rank = 0; rank < options_.size; ++rank) {
    if (link(rank).inline_data && link(rank).behind.done()) continue;
    if (Status status = complete_rank(rank, deadline); !status.ok()) return status;
  }
  return {};
}

// Errors: what leaves operations outstanding; a failure is kept for closed_with.
Status Window::complete_rank(int rank, const Deadline& deadline) {
  Status status = flush_rank(rank, FlushScope::kRemote, deadline);
  if (left_pending(status)) return status;
  std::lock_guard lock(sync_mutex_);
  keep_first(failure_, status);
  return {};
}

// How the call ends: with its own error, or with the failure of an operation, which came first.
Status Window::closed_with(const Status& status) {
  if (left_pending(status)) return status;
  std::lock_guard lock(sync_mutex_);
  Status failure = std::exchange(failure_, Status());
  return failure.ok() ? status : failure;
}

// Dissemination: in round r a rank signals the one 2^r places on and waits for the one 2^r places
// back; after log2(size) rounds everybody has heard of everybody.
Status Window::advance_barrier(const Deadline& deadline, WaitKind kind) {
  const auto size = static_cast<std::size_t>(options_.size);
  const auto me = static_cast<std::size_t>(options_.rank);
  if (!barrier_.running) barrier_ = {barrier_.epoch + 1, 0, false, true};
  for (; (std::size_t{1} << barrier_.round) < size; ++barrier_.round, barrier_.signalled = false) {
    const std::size_t distance = std::size_t{1} << barrier_.round;
    if (!barrier_.signalled) {
      const std::uint64_t offset =
          offsetof(ControlHeader, barrier) + barrier_.round * sizeof(BarrierWord);
      if (Status status = control_links_[(me + distance) % size].store(offset, barrier_.epoch);
          !status.ok()) {
        return status;
      }
      barrier_.signalled = true;
    }
    const Word& heard = control_.header().barrier[barrier_.round].epoch;
    const WaitEnd end = wait_until(kind, -1, deadline, [&] {
      return heard.load(std::memory_order_acquire) >= barrier_.epoch ||
             control_.header().lost_count.load(std::memory_order_relaxed) != 0;
    });
    if (heard.load(std::memory_order_acquire) >= barrier_.epoch) continue;
    if (Status status = any_lost(); !status.ok()) return status;
    if (end == WaitEnd::kTimedOut) {
      return Status::error(StatusCode::kTimeout, "timed out waiting to hear from rank " +
                                                     std::to_string((me + size - distance) % size));
    }
    return waited(end);
  }
  barrier_.running = false;
  return {};
}

Status Window::fence(unsigned assertion, const Deadline& deadline) {
  if (Status status = usable(); !status.ok()) return status;
  if ((assertion & ~kAllAssertions) != 0) {
    return Status::error(StatusCode::kInvalidArgument,
                         "assertion " + std::to_string(assertion) + " has unknown bits");
  }
  const BusyScope busy(sync_busy_);
  if (Status status = busy.status("fence"); !status.ok()) return status;
  {
    std::lock_guard lock(sync_mutex_);
    if (Status status = epochs_.begin_fence(); !status.ok()) return status;
  }
  Status status = complete_outstanding(deadline);
  if (status.ok()) std::atomic_thread_fence(std::memory_order_seq_cst);
  if (status.ok()) status = advance_barrier(deadline, WaitKind::kFence);
  {
    std::lock_guard lock(sync_mutex_);
    if (status.ok()) {
      epochs_.end_fence((assertion & kNoSucceed) == 0);
    } else if (left_pending(status)) {
      epochs_.set_pending(PendingCall::kFence);
    }
  }
  return closed_with(status);
}

Status Window::check_group(const std::vector<int>& group) const {
  std::vector<bool> named(static_cast<std::size_t>(options_.size));
  for (const int rank : group) {
    if (rank < 0 || rank >= options_.size) {
      return Status::error(
          StatusCode::kOutOfRange,
          "rank " + std::to_string(rank) + " is not in 0 to " + std::to_string(options_.size - 1));
    }
    if (named[static_cast<std::size_t>(rank)]) {
      return Status::error(StatusCode::kInvalidArgument,
                           "rank " + std::to_string(rank) + " is named twice");
    }
    named[static_cast<std::size_t>(rank)] = true;
  }
  return {};
}

// Until `arrived` holds for every rank of the group, or one of them is lost.
template <class Arrived>
Status Window::wait_for_all(WaitKind kind, std::span<const int> group, const Arrived& arrived,
                            const Deadline& deadline) {
  const int peer = group.size() == 1 ? group.front() : -1;
  while (!std::ranges::all_of(group, arrived)) {
    // Looked at first: of a loss that is known already there will be no news.
    if (Status status = first_lost(group); !status.ok()) return status;
    const WaitEnd end = wait_until(kind, peer, deadline, [&] {
      return std::ranges::all_of(group, arrived) || news_of_loss();
    });
    if (end == WaitEnd::kReady || std::ranges::all_of(group, arrived)) continue;
    if (end == WaitEnd::kTimedOut) {
      std::string missing;
      for (const int rank : group) {
        if (!arrived(rank)) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
      }
      return Status::error(StatusCode::kTimeout, "timed out waiting for rank " + missing);
    }
    return waited(end);
  }
  return {};
}

Status Window::start(const std::vector<int>& group, const Deadline& deadline) {
  if (Status status = usable(); !status.ok()) return status;
  if (Status status = check_group(group); !status.ok()) return status;
  const BusyScope busy(sync_busy_);
  if (Status status = busy.status("start"); !status.ok()) return status;
  {
    std::lock_guard lock(sync_mutex_);
    if (Status status = epochs_.begin_start(); !status.ok()) return status;
  }
  const auto posted = [&](int target) {
    const auto t = static_cast<std::size_t>(target);
    return control_.peer(t).posts.load(std::memory_order_acquire) > posts_taken_[t];
  };
  Status status = wait_for_all(WaitKind::kStart, group, posted, deadline);
  std::lock_guard lock(sync_mutex_);
  if (status.ok()) {
    for (const int target : group) ++posts_taken_[static_cast<std::size_t>(target)];
    epochs_.started(group);
  } else if (status.code() == StatusCode::kTimeout) {
    epochs_.set_pending(PendingCall::kStart);
  }
  return status;
}

Status Window::complete(const Deadline& deadline) {
  if (Status status = usable(); !status.ok()) return status;
  const BusyScope busy(sync_busy_);
  if (Status status = busy.status("complete"); !status.ok()) return status;
  {
    std::lock_guard lock(sync_mutex_);
    if (Status status = epochs_.begin_complete(); !status.ok()) return status;
  }
  Status status = complete_outstanding(deadline);
  if (!status.ok()) {
    std::lock_guard lock(sync_mutex_);
    epochs_.set_pending(PendingCall::kComplete);
    return status;
  }
  const std::uint64_t offset =
      layout_.peer(static_cast<std::size_t>(options_.rank)) + offsetof(PeerWords, completes);
  Status first_error;
  for (const int target : epochs_.start_group()) {
    const auto t = static_cast<std::size_t>(target);
    Status stored = control_links_[t].store(offset, ++completes_made_[t]);
    if (!stored.ok()) keep_first(first_error, post_error(target, stored));
  }
  {
    std::lock_guard lock(sync_mutex_);
    epochs_.completed();
  }
  return closed_with(first_error);
}

Status Window::post(const std::vector<int>& group) {
  if (Status status = usable(); !status.ok()) return status;
  if (Status status = check_group(group); !status.ok()) return status;
  if (Status status = first_lost(group); !status.ok()) return status;
  std::lock_guard lock(sync_mutex_);
  if (Status status = epochs_.begin_post(); !status.ok()) return status;
  epochs_.posted(group);
  const std::uint64_t offset =
      layout_.peer(static_cast<std::size_t>(options_.rank)) + offsetof(PeerWords, posts);
  Status first_error;
  for (const int origin : group) {
    const auto o = static_cast<std::size_t>(origin);
    Status stored = control_links_[o].store(offset, ++posts_made_[o]);
    if (!stored.ok()) keep_first(first_error, post_error(origin, stored));
  }
  return first_error;
}

Status Window::wait_exposure(const Deadline& deadline) {
  if (Status status = usable(); !status.ok()) return status;
  const BusyScope busy(sync_busy_);
  if (Status status = busy.status("wait"); !status.ok()) return status;
  {
    std::lock_guard lock(sync_mutex_);
    if (Status status = epochs_.begin_wait(); !status.ok()) return status;
  }
  const std::vector<int>& group = epochs_.post_group();
  const auto completed = [&](int origin) {
    const auto o = static_cast<std::size_t>(origin);
    return control_.peer(o).completes.load(std::memory_order_acquire) > completes_taken_[o];
  };
  Status status = wait_for_all(WaitKind::kExposure, group, completed, deadline);
  std::lock_guard lock(sync_mutex_);
  if (status.ok() || status.code() == StatusCode::kPeerLost) {
    // A lost origin never completes, so its loss ends the epoch; the others' completes, which may
    // be still to come, belong to this epoch, not to the next.
    for (const int origin : group) ++completes_taken_[static_cast<std::size_t>(origin)];
    epochs_.waited();
  } else if (status.code() == StatusCode::kTimeout) {
    epochs_.set_pending(PendingCall::kWait);
  }
  return status;
}

Status Window::test_exposure(bool* over) {
  *over = false;
  Status status = wait_exposure(Deadline::after(Nanoseconds(0)));
  if (status.ok()) {
    *over = true;
    return {};
  }
  if (status.code() != StatusCode::kTimeout) return status;
  std::lock_guard lock(sync_mutex_);
  epochs_.set_pending(PendingCall::kNone);  // a test that says "not yet" leaves nothing pending
  return {};
}

// A rank that left with the lock gives it to nobody.
Status Window::lost_holder(int target, bool exclusive) {
  refresh_lost();
  if (lost_seen_.load(std::memory_order_relaxed) == 0) return {};
  for (const int rank : failed_ranks()) {
    bool holds = false;
    Status status = lock_->holds(static_cast<std::size_t>(target), static_cast<std::size_t>(rank),
                                 exclusive, &holds);
    if (!status.ok()) return status;
    if (holds) {
      return Status::error(StatusCode::kPeerLost, std::string(loss_of(rank).text()) +
                                                      " with the lock of rank " +
                                                      std::to_string(target))
          .with_peer(rank);
    }
  }
  return {};
}

// What ranks that died left undone in the lock's queue, once for each news of a death.
Status Window::recover_lock(int target, std::uint64_t* known_losses, const Deadline& deadline) {
  refresh_lost();
  const std::uint64_t losses = lost_seen_.load(std::memory_order_relaxed);
  if (losses == *known_losses) return {};
  *known_losses = losses;
  return lock_->recover(static_cast<std::size_t>(target), deadline);
}

Status Window::lock_one(int target, bool exclusive, const Deadline& deadline) {
  const auto wait = [&](const std::function<bool()>& granted) -> Status {
    std::uint64_t known_losses = 0;
    for (;;) {
      if (Status status = recover_lock(target, &known_losses, deadline); !status.ok())
        return status;
      if (granted()) return {};
      if (Status status = lost_holder(target, exclusive); !status.ok()) return status;
      const WaitEnd end = wait_until(WaitKind::kLock, target, deadline, [&] {
        return granted() || closing_.load(std::memory_order_relaxed) || news_of_loss();
      });
      if (granted()) return {};
      if (Status status = first_lost(std::span(&target, 1)); !status.ok()) return status;
      if (Status status = usable(); !status.ok()) return status;
      if (Status status = waited(end); !status.ok()) return status.with_peer(target);
    }
  };
  return lock_->acquire(static_cast<std::size_t>(target), exclusive, deadline, wait);
}

Status Window::lock(int target, bool exclusive, const Deadline& deadline) {
  if (Status status = check_target(target); !status.ok()) return status;
  const auto t = static_cast<std::size_t>(target);
  {
    std::lock_guard lock(sync_mutex_);
    if (Status status = epochs_.begin_lock(t); !status.ok()) return status;
  }
  Status status = lock_one(target, exclusive, deadline);
  std::lock_guard lock(sync_mutex_);
  if (status.ok()) {
    epochs_.locked(t, exclusive);
  } else {
    epochs_.lock_failed(t);
  }
  return status;
}

Status Window::unlock(int target, const Deadline& deadline) {
  if (Status status = usable(); !status.ok()) return status;
  if (target < 0 || target >= options_.size) return check_target(target);
  const auto t = static_cast<std::size_t>(target);
  bool exclusive = false;
  {
    std::lock_guard lock(sync_mutex_);
    if (Status status = epochs_.begin_unlock(t, &exclusive); !status.ok()) return status;
  }
  refresh_lost();
  const bool lost = link(target).lost.load();
  Status flushed;
  if (!lost) {
    flushed = flush(target, FlushScope::kRemote, deadline);
    if (left_pending(flushed) || flushed.code() == StatusCode::kClosed) {
      std::lock_guard lock(sync_mutex_);
      epochs_.unlock_failed(t);
      return flushed;
    }
  }
  Status status = lock_->release(t, exclusive);
  std::lock_guard lock(sync_mutex_);
  epochs_.unlocked(t);
  if (lost) return first_lost(std::span(&target, 1));
  if (!flushed.ok()) return flushed;
  return status.ok() ? status : post_error(target, status);
}

Status Window::lock_all(const Deadline& deadline) {
  if (Status status = usable(); !status.ok()) return status;
  {
    std::lock_guard lock(sync_mutex_);
    if (Status status = epochs_.begin_lock_all(); !status.ok()) return status;
  }
  Status status;
  int taken = 0;
  for (; taken < options_.size && status.ok(); ++taken) {
    status = check_target(taken);
    if (status.ok()) status = lock_one(taken, false, deadline);
    if (!status.ok()) break;
  }
  if (!status.ok()) {
    while (taken-- > 0) {
      Status released = lock_->release(static_cast<std::size_t>(taken), false);
      if (!released.ok()) status = released;
    }
  }
  std::lock_guard lock(sync_mutex_);
  if (status.ok()) {
    epochs_.locked_all();
  } else {
    epochs_.lock_all_failed();
  }
  return status;
}

Status Window::unlock_all(const Deadline& deadline) {
  if (Status status = usable(); !status.ok()) return status;
  {
    std::lock_guard lock(sync_mutex_);
    if (Status status = epochs_.begin_unlock_all(); !status.ok()) return status;
  }
  for (int rank = 0; rank < options_.size; ++rank) {
    if (link(rank).inline_data && link(rank).lost.load(std::memory_order_relaxed)) continue;
    if (Status status = complete_rank(rank, deadline); !status.ok()) {
      std::lock_guard lock(sync_mutex_);
      epochs_.unlock_all_failed();
      return status;
    }
  }
  Status first_error;
  for (int target = 0; target < options_.size; ++target) {
    Status released = lock_->release(static_cast<std::size_t>(target), false);
    if (!released.ok()) keep_first(first_error, post_error(target, released));
  }
  {
    std::lock_guard lock(sync_mutex_);
    epochs_.unlocked_all();
  }
  return closed_with(first_error);
}

}  // namespace hixl_rma
