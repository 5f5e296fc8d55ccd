// SPDX-License-Identifier: Apache-2.0
#include "base/fork.h"

#include <pthread.h>

namespace hixl_rma {

constinit std::atomic<int> fork_count{0};

namespace {

[[maybe_unused]] const int kRegistered =
    pthread_atfork(nullptr, nullptr, [] { fork_count.fetch_add(1, std::memory_order_relaxed); });

}  // namespace
}  // namespace hixl_rma
