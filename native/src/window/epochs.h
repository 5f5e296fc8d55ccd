// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "hixl_rma/status.h"

namespace hixl_rma {

/// The call that ran into its time-out and waits to be made again.
enum class PendingCall : std::uint8_t { kNone, kFence, kStart, kComplete, kWait, kFree };

/// Which epochs this process has open on a window, and what MPI allows in them. Knows no memory and
/// no peers: every rule is checked here, before anything is touched.
/// Thread: may_access() and may_flush() from any thread; the others one at a time (the window's own
/// mutex).
class Epochs {
 public:
  explicit Epochs(std::size_t size);

  /// Ok where an operation on `target` is legal now. The first one inside a fence epoch makes
  /// `lock` and `start` illegal until the next fence.
  Status may_access(std::size_t target) {
    Global global = global_.load(std::memory_order_relaxed);
    // Exchanged, not stored: a thread that opens another epoch meanwhile wins.
    if (global == Global::kFence &&
        global_.compare_exchange_strong(global, Global::kFenceUsed, std::memory_order_relaxed)) {
      return {};
    }
    if (global != Global::kNone && global != Global::kBlocked) return {};
    if (global == Global::kNone && access_[target].load(std::memory_order_relaxed) != 0) return {};
    return no_access(target);
  }

  Status begin_fence();
  void end_fence(bool opens_epoch);

  /// Keeps a second thread from asking for the same lock until locked() or lock_failed().
  Status begin_lock(std::size_t target);
  void locked(std::size_t target, bool exclusive);
  void lock_failed(std::size_t target);
  /// Keeps a second thread from giving back the same lock until unlocked() or unlock_failed().
  /// Errors: WrongEpoch when the target is not locked; Busy. *exclusive says how it was.
  Status begin_unlock(std::size_t target, bool* exclusive);
  void unlocked(std::size_t target);
  void unlock_failed(std::size_t target) { unlocking_[target] = false; }
  Status begin_lock_all();
  void locked_all();
  void lock_all_failed() { locking_all_ = false; }
  Status begin_unlock_all();
  void unlocked_all();
  void unlock_all_failed() { unlocking_all_ = false; }

  Status begin_start();
  void started(const std::vector<int>& group);
  Status begin_complete();
  void completed();
  [[nodiscard]] const std::vector<int>& start_group() const { return start_group_; }

  Status begin_post();
  void posted(const std::vector<int>& group);
  Status begin_wait();
  void waited();
  [[nodiscard]] const std::vector<int>& post_group() const { return post_group_; }

  /// flush of one target (target >= 0) or of all (-1).
  Status may_flush(int target) const {
    if (all_locked()) return {};
    if (target >= 0 && pending_ == PendingCall::kNone) {
      const auto access = access_[static_cast<std::size_t>(target)].load(std::memory_order_relaxed);
      if (access == kShared || access == kExclusive) return {};
    }
    return no_flush(target);
  }
  Status begin_free() const;

  /// Blocks every other call until `call` is made again; kNone ends it.
  void set_pending(PendingCall call);
  [[nodiscard]] PendingCall pending() const { return pending_; }

  [[nodiscard]] bool all_locked() const {
    return global_.load(std::memory_order_relaxed) == Global::kLockAll;
  }

 private:
  enum class Global : std::uint8_t { kNone, kFence, kFenceUsed, kLockAll, kBlocked };
  enum : std::uint8_t { kNoAccess = 0, kShared = 1, kExclusive = 2, kStarted = 3 };

  Status no_access(std::size_t target) const;
  Status no_flush(int target) const;
  Status blocked_by_pending(PendingCall mine) const;
  Status passive_conflict(const char* call) const;

  std::atomic<Global> global_{Global::kNone};
  std::unique_ptr<std::atomic<std::uint8_t>[]> access_;
  std::vector<bool> locking_;      // by target: a thread waits for its lock
  std::size_t locks_awaited_ = 0;  // how many of them
  std::atomic<std::size_t> locks_held_{0};
  bool locking_all_ = false;
  std::vector<bool> unlocking_;  // by target: a thread gives its lock back
  bool unlocking_all_ = false;
  std::atomic<bool> start_open_{false};
  bool post_open_ = false;
  std::vector<int> start_group_;
  std::vector<int> post_group_;
  std::atomic<PendingCall> pending_{PendingCall::kNone};
  Global before_pending_ = Global::kNone;
};

}  // namespace hixl_rma
