// SPDX-License-Identifier: Apache-2.0
#include "base/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <array>

namespace hixl_rma {

constinit std::atomic<int> fork_count{0};

namespace {

// Fixed, and without a lock: the handler runs between fork and whatever the child does first.
constexpr int kFree = -1;
constinit std::array<std::atomic<int>, 8> closed_in_child{kFree, kFree, kFree, kFree,
                                                          kFree, kFree, kFree, kFree};

void begin_child() {
  fork_count.fetch_add(1, std::memory_order_relaxed);
  for (std::atomic<int>& fd : closed_in_child) {
    const int number = fd.exchange(kFree, std::memory_order_relaxed);
    if (number != kFree) close(number);
  }
}

[[maybe_unused]] const int kRegistered = pthread_atfork(nullptr, nullptr, begin_child);

}  // namespace

void close_in_child(int fd, bool yes) {
  const int before = yes ? kFree : fd;
  const int after = yes ? fd : kFree;
  for (std::atomic<int>& entry : closed_in_child) {
    int expected = before;
    if (entry.compare_exchange_strong(expected, after, std::memory_order_relaxed)) return;
  }
}

}  // namespace hixl_rma
