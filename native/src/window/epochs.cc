// SPDX-License-Identifier: Apache-2.0
#include "window/epochs.h"

#include <string>

namespace hixl_rma {
namespace {

Status wrong_epoch(std::string text) {
  return Status::error(StatusCode::kWrongEpoch, std::move(text));
}

const char* name_of_call(PendingCall call) {
  switch (call) {
    case PendingCall::kFence:
      return "fence";
    case PendingCall::kStart:
      return "start";
    case PendingCall::kComplete:
      return "complete";
    case PendingCall::kWait:
      return "wait";
    case PendingCall::kFree:
      return "free";
    case PendingCall::kNone:
      break;
  }
  return "nothing";
}

}  // namespace

Epochs::Epochs(std::size_t size)
    : access_(std::make_unique<std::atomic<std::uint8_t>[]>(size)),
      locking_(size),
      unlocking_(size) {}

Status Epochs::no_access(std::size_t target) const {
  if (Status status = blocked_by_pending(PendingCall::kNone); !status.ok()) return status;
  if (start_open_) {
    return wrong_epoch("rank " + std::to_string(target) +
                       " is not in the group of the access epoch that start opened");
  }
  return wrong_epoch("no access epoch is open to rank " + std::to_string(target) +
                     ": call fence, start, lock or lock_all first");
}

Status Epochs::blocked_by_pending(PendingCall mine) const {
  const PendingCall pending = pending_.load();
  if (pending == PendingCall::kNone || pending == mine) return {};
  return wrong_epoch(std::string("an earlier ") + name_of_call(pending) +
                     " timed out and is pending: call it again to finish it");
}

Status Epochs::passive_conflict(const char* call) const {
  if (locks_held_ > 0 || all_locked()) {
    return wrong_epoch(std::string(call) + " inside a lock epoch: unlock first");
  }
  if (locks_awaited_ > 0 || locking_all_) {
    return wrong_epoch(std::string(call) + " while another thread waits for a lock");
  }
  return {};
}

Status Epochs::begin_fence() {
  if (Status status = blocked_by_pending(PendingCall::kFence); !status.ok()) return status;
  if (Status status = passive_conflict("fence"); !status.ok()) return status;
  if (start_open_) return wrong_epoch("fence inside start ... complete");
  if (post_open_) return wrong_epoch("fence inside post ... wait");
  return {};
}

void Epochs::end_fence(bool opens_epoch) {
  set_pending(PendingCall::kNone);
  global_.store(opens_epoch ? Global::kFence : Global::kNone);
}

Status Epochs::begin_lock(std::size_t target) {
  if (Status status = blocked_by_pending(PendingCall::kNone); !status.ok()) return status;
  if (global_.load() == Global::kFenceUsed) {
    return wrong_epoch("lock inside a fence epoch that has operations: fence first");
  }
  if (all_locked()) return wrong_epoch("lock inside lock_all");
  if (start_open_) return wrong_epoch("lock inside start ... complete");
  if (post_open_) return wrong_epoch("lock inside post ... wait");
  if (access_[target].load() != kNoAccess || locking_[target] || locking_all_) {
    return wrong_epoch("rank " + std::to_string(target) + " is locked already by this process");
  }
  locking_[target] = true;
  ++locks_awaited_;
  return {};
}

void Epochs::lock_failed(std::size_t target) {
  locking_[target] = false;
  --locks_awaited_;
}

void Epochs::locked(std::size_t target, bool exclusive) {
  global_.store(Global::kNone);  // an unused fence epoch ends here
  access_[target].store(exclusive ? kExclusive : kShared);
  lock_failed(target);  // the wait is over, as it is when it fails
  ++locks_held_;
}

Status Epochs::begin_unlock(std::size_t target, bool* exclusive) {
  if (Status status = blocked_by_pending(PendingCall::kNone); !status.ok()) return status;
  const std::uint8_t access = access_[target].load();
  if (access != kShared && access != kExclusive) {
    return wrong_epoch("rank " + std::to_string(target) + " is not locked by this process");
  }
  if (unlocking_[target]) {
    return Status::error(StatusCode::kBusy,
                         "another thread is unlocking rank " + std::to_string(target));
  }
  unlocking_[target] = true;
  *exclusive = access == kExclusive;
  return {};
}

void Epochs::unlocked(std::size_t target) {
  unlock_failed(target);  // it is over
  access_[target].store(kNoAccess);
  --locks_held_;
}

Status Epochs::begin_lock_all() {
  if (Status status = blocked_by_pending(PendingCall::kNone); !status.ok()) return status;
  if (all_locked() || locking_all_) return wrong_epoch("lock_all inside lock_all");
  if (locks_held_ > 0 || locks_awaited_ > 0) {
    return wrong_epoch("lock_all while single ranks are locked");
  }
  if (global_.load() == Global::kFenceUsed) {
    return wrong_epoch("lock_all inside a fence epoch that has operations: fence first");
  }
  if (start_open_) return wrong_epoch("lock_all inside start ... complete");
  if (post_open_) return wrong_epoch("lock_all inside post ... wait");
  locking_all_ = true;
  return {};
}

void Epochs::locked_all() {
  locking_all_ = false;
  global_.store(Global::kLockAll);
}

Status Epochs::begin_unlock_all() {
  if (Status status = blocked_by_pending(PendingCall::kNone); !status.ok()) return status;
  if (!all_locked()) return wrong_epoch("unlock_all without lock_all");
  if (unlocking_all_) {
    return Status::error(StatusCode::kBusy, "another thread is inside unlock_all");
  }
  unlocking_all_ = true;
  return {};
}

void Epochs::unlocked_all() {
  unlock_all_failed();  // it is over
  global_.store(Global::kNone);
}

Status Epochs::begin_start() {
  if (Status status = blocked_by_pending(PendingCall::kStart); !status.ok()) return status;
  if (Status status = passive_conflict("start"); !status.ok()) return status;
  if (start_open_) return wrong_epoch("start inside start ... complete");
  if (global_.load() == Global::kFenceUsed) {
    return wrong_epoch("start inside a fence epoch that has operations: fence first");
  }
  return {};
}

void Epochs::started(const std::vector<int>& group) {
  set_pending(PendingCall::kNone);
  global_.store(Global::kNone);
  start_open_ = true;
  start_group_ = group;
  for (const int rank : group) access_[static_cast<std::size_t>(rank)].store(kStarted);
}

Status Epochs::begin_complete() {
  if (Status status = blocked_by_pending(PendingCall::kComplete); !status.ok()) return status;
  return start_open_ ? Status() : wrong_epoch("complete without start");
}

void Epochs::completed() {
  set_pending(PendingCall::kNone);
  for (const int rank : start_group_) access_[static_cast<std::size_t>(rank)].store(kNoAccess);
  start_open_ = false;
  start_group_.clear();
}

Status Epochs::begin_post() {
  if (Status status = blocked_by_pending(PendingCall::kNone); !status.ok()) return status;
  if (Status status = passive_conflict("post"); !status.ok()) return status;
  if (post_open_) return wrong_epoch("post inside post ... wait");
  if (global_.load() == Global::kFenceUsed) {
    return wrong_epoch("post inside a fence epoch that has operations: fence first");
  }
  return {};
}

void Epochs::posted(const std::vector<int>& group) {
  post_open_ = true;
  post_group_ = group;
}

Status Epochs::begin_wait() {
  if (Status status = blocked_by_pending(PendingCall::kWait); !status.ok()) return status;
  return post_open_ ? Status() : wrong_epoch("wait or test without post");
}

void Epochs::waited() {
  set_pending(PendingCall::kNone);
  post_open_ = false;
  post_group_.clear();
}

Status Epochs::no_flush(int target) const {
  if (Status status = blocked_by_pending(PendingCall::kNone); !status.ok()) return status;
  if (target < 0) return locks_held_ > 0 ? Status() : wrong_epoch("flush outside a lock epoch");
  return wrong_epoch("flush of rank " + std::to_string(target) + ", which is not locked");
}

Status Epochs::begin_free() const {
  if (Status status = blocked_by_pending(PendingCall::kFree); !status.ok()) return status;
  if (Status status = passive_conflict("free"); !status.ok()) return status;
  if (start_open_) return wrong_epoch("free inside start ... complete");
  if (post_open_) return wrong_epoch("free inside post ... wait");
  if (global_.load() == Global::kFenceUsed) {
    return wrong_epoch("free inside a fence epoch that has operations: fence first");
  }
  return {};
}

void Epochs::set_pending(PendingCall call) {
  if (pending_ == call) return;
  if (pending_ == PendingCall::kNone) before_pending_ = global_.exchange(Global::kBlocked);
  if (call == PendingCall::kNone) global_.store(before_pending_);
  pending_ = call;
}

}  // namespace hixl_rma
