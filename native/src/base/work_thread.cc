// SPDX-License-Identifier: Apache-2.0
#include "base/work_thread.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <system_error>
#include <utility>

#include "base/fork.h"
#include "base/log.h"

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
  if (!thread_.joinable()) return;
  if (fork_generation_ != fork_generation()) {
    thread_.detach();  // it runs in the parent process
    return;
  }
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

// Under mutex_.
bool WorkThread::started() {
  if (thread_.joinable()) return fork_generation_ == fork_generation();
  fork_generation_ = fork_generation();
  try {
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), name_.c_str());
      step_back();
      serve();
    });
  } catch (const std::system_error& error) {
    log_line(LogLevel::kDebug, "no thread " + name_ + ": " + error.what());
    return false;
  }
  return true;
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
