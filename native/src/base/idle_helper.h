// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "base/own_thread.h"

namespace hixl_rma {

/// A thread that works only where a core has nothing else to do, and lends itself to whoever moves
/// many bytes.
///
/// NOTE [never at the cost of a busy peer]
/// Whether a core is idle cannot be asked without being wrong a moment later. So the thread runs
/// under SCHED_IDLE: the kernel gives it a core that would sleep and takes it back the moment
/// anything else wants it. The work is cut into units that both take from one counter: where no
/// core is idle the caller takes them all and has lost nothing but the wake-up; where the helper
/// lost its core within a unit, the caller sleeps and so lends it its own. A launcher that binds
/// each rank to a core binds its threads too, so the thread widens its own mask to all the process
/// may use. Thread: several callers at once; the helper serves one, the others work alone.
class IdleHelper {
 public:
  /// The one of this process, alive while somebody holds it.
  static std::shared_ptr<IdleHelper> of_process();

  IdleHelper(const IdleHelper&) = delete;
  IdleHelper& operator=(const IdleHelper&) = delete;
  ~IdleHelper();

  /// Runs work(0) to work(units - 1), each once, on this thread and where possible on the helper's.
  /// What the units wrote is visible to the caller when it returns.
  void run(std::size_t units, const std::function<void(std::size_t)>& work);

 private:
  struct Job {
    const std::function<void(std::size_t)>& work;
    std::size_t units;
    std::atomic<std::size_t> next{0};
    std::atomic<bool> left{false};  // the helper, which came, has gone
  };

  IdleHelper() = default;
  static void take_units(Job& job);
  bool started();
  void serve();

  std::once_flag start_;
  OwnThread thread_;
  std::atomic<Job*> offered_{nullptr};  // whoever takes it out owns the answer
  std::atomic<std::uint32_t> bell_{0};
  std::atomic<std::uint32_t> served_{0};  // counts the jobs it came to
  std::atomic<bool> stop_{false};
};

}  // namespace hixl_rma
