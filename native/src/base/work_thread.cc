// SPDX-License-Identifier: Apache-2.0
#include "base/work_thread.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "base/log.h"
#include "hixl_rma/status.h"

namespace hixl_rma {
namespace {

constexpr int kNiceStep = 5;

// On Linux a nice value belongs to a thread: setpriority(2).
void step_back() {
  const auto thread = static_cast<id_t>(syscall(SYS_gettid));
  setpriority(PRIO_PROCESS, thread, getpriority(PRIO_PROCESS, thread) + kNiceStep);
}

}  // namespace

WorkThread::~WorkThread() {
  if (!thread_.started() || thread_.is_parents()) return;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

// Under mutex_.
bool WorkThread::started() {
  if (thread_.started()) return !thread_.is_parents();
  const Status status = thread_.start(name_, [this] {
    step_back();
    serve();
  });
  if (!status.ok()) log_line(LogLevel::kDebug, name_ + ": " + std::string(status.text()));
  return status.ok();
}

bool WorkThread::submit(std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    if (!started()) return false;
    queue_.push_back(std::move(work));
  }
  changed_.notify_one();
  return true;
}

void WorkThread::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    {
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
    }
    lock.lock();
  }
}

}  // namespace hixl_rma
