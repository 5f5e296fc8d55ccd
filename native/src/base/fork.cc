// SPDX-License-Identifier: Apache-2.0
#include "base/fork.h"

#include <pthread.h>

#include <atomic>

namespace hixl_rma {
namespace {

std::atomic<int> generation{0};

[[maybe_unused]] const int kRegistered =
    pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

int fork_generation() { return generation.load(std::memory_order_relaxed); }

}  // namespace hixl_rma
