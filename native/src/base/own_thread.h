// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "base/fork.h"
#include "hixl_rma/status.h"

namespace hixl_rma {

/// A thread of the library's own. A child of a fork has the object, but not the thread: there it
/// does not run, and is neither joined nor detached.
/// Thread: as std::thread, one at a time.
class OwnThread {
 public:
  OwnThread() = default;
  OwnThread(OwnThread&&) noexcept = default;
  OwnThread& operator=(OwnThread&&) noexcept = default;
  OwnThread(const OwnThread&) = delete;
  OwnThread& operator=(const OwnThread&) = delete;
  /// In the process that started it, it has been joined by then.
  ~OwnThread();

  /// `name`: at most 15 characters, as the kernel shows them. Errors: ResourceExhausted.
  Status start(std::string name, std::function<void()> body);
  /// Whether it was started and has not been joined.
  [[nodiscard]] bool started() const { return thread_.joinable(); }
  /// Whether it was started by the parent of this process.
  [[nodiscard]] bool is_parents() const {
    return started() && fork_generation_ != fork_generation();
  }
  void join() { thread_.join(); }

 private:
  std::thread thread_;
  int fork_generation_ = -1;
};

}  // namespace hixl_rma
