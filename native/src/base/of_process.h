// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>

#include "base/fork.h"

namespace hixl_rma {

/// The one T of this process: made by make() when nobody has it, gone when nobody has it any more.
/// That of a parent is not a child's. Thread: any.
template <class T, class Make>
std::shared_ptr<T> of_process(Make&& make) {
  static std::mutex mutex;
  static std::weak_ptr<T> known;
  static int forks = 0;
  std::lock_guard lock(mutex);
  std::shared_ptr<T> one = forks == fork_generation() ? known.lock() : nullptr;
  if (!one) {
    known = one = make();
    forks = fork_generation();
  }
  return one;
}

}  // namespace hixl_rma
