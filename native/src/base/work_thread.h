// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "base/own_thread.h"

namespace hixl_rma {

/// A thread that does what it is given, one thing after the other, in the order given. Nothing is
/// started before there is something to do.
///
/// It steps back a little behind the threads of the program (its nice value is 5 higher), whose
/// core it may share: what it does is not waited for yet.
/// Thread: any may submit.
class WorkThread {
 public:
  /// At most 15 characters, as the kernel shows them.
  explicit WorkThread(std::string name) : name_(std::move(name)) {}
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;
  /// What was submitted is done first.
  ~WorkThread();

  /// False, and nothing is taken, where no thread can be had: the caller does it himself.
  [[nodiscard]] bool submit(std::function<void()> work);

 private:
  bool started();
  void serve();

  std::string name_;
  OwnThread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;  // guarded by mutex_
  bool stop_ = false;                        // guarded by mutex_
};

}  // namespace hixl_rma
