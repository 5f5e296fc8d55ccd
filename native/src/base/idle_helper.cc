// SPDX-License-Identifier: Apache-2.0
#include "base/idle_helper.h"

#include <sched.h>

#include <thread>

#include "base/cpu.h"
#include "base/log.h"
#include "base/of_process.h"
#include "hixl_rma/status.h"

namespace hixl_rma {
namespace {

constexpr int kSpins = 2000;

// All the processors that the process may be given; the kernel drops those it may not.
void widen_affinity() {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &all);
  sched_setaffinity(0, sizeof all, &all);
}

bool run_when_idle() {
  const sched_param parameter{};
  return sched_setscheduler(0, SCHED_IDLE, &parameter) == 0;
}

}  // namespace

std::shared_ptr<IdleHelper> IdleHelper::of_process() {
  return hixl_rma::of_process<IdleHelper>(
      [] { return std::shared_ptr<IdleHelper>(new IdleHelper); });
}

IdleHelper::~IdleHelper() {
  if (!thread_.started() || thread_.is_parents()) return;
  stop_.store(true, std::memory_order_relaxed);
  bell_.fetch_add(1, std::memory_order_release);
  bell_.notify_one();
  thread_.join();
}

bool IdleHelper::started() {
  std::call_once(start_, [this] {
    if (std::thread::hardware_concurrency() < 2) return;
    const Status status = thread_.start("hixl-idle", [this] {
      widen_affinity();
      if (run_when_idle()) serve();
    });
    if (!status.ok()) {
      log_line(LogLevel::kDebug, "no thread to help with copies: callers work alone");
    }
  });
  return thread_.started() && !thread_.is_parents();
}

void IdleHelper::take_units(Job& job) {
  for (;;) {
    const std::size_t unit = job.next.fetch_add(1, std::memory_order_relaxed);
    if (unit >= job.units) return;
    job.work(unit);
  }
}

void IdleHelper::run(std::size_t units, const std::function<void(std::size_t)>& work) {
  Job job{work, units};
  Job* none = nullptr;
  const bool offered = units > 1 && started() &&
                       offered_.compare_exchange_strong(none, &job, std::memory_order_release,
                                                        std::memory_order_relaxed);
  if (offered) {
    bell_.fetch_add(1, std::memory_order_release);
    bell_.notify_one();
  }
  take_units(job);
  if (!offered) return;
  Job* mine = &job;
  if (offered_.compare_exchange_strong(mine, nullptr, std::memory_order_relaxed)) return;
  // It came: its last unit is to be waited for. acquire; pairs with the release store in serve().
  for (int spin = 0; !job.left.load(std::memory_order_acquire); ++spin) {
    if (spin < kSpins) {
      cpu_relax();
      continue;
    }
    // Asleep, not yielding: who yields still wants the core, which the helper gets from nobody.
    const std::uint32_t seen = served_.load(std::memory_order_acquire);
    if (!job.left.load(std::memory_order_acquire)) served_.wait(seen, std::memory_order_acquire);
  }
}

void IdleHelper::serve() {
  while (!stop_.load(std::memory_order_relaxed)) {
    const std::uint32_t seen = bell_.load(std::memory_order_acquire);
    if (Job* job = offered_.exchange(nullptr, std::memory_order_acquire)) {
      take_units(*job);
      job->left.store(true, std::memory_order_release);  // the job is gone from here on
      served_.fetch_add(1, std::memory_order_release);
      served_.notify_all();
      continue;
    }
    if (stop_.load(std::memory_order_relaxed)) return;
    bell_.wait(seen, std::memory_order_acquire);
  }
}

}  // namespace hixl_rma
