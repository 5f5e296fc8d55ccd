// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace hixl_rma {

/// Counted up in every forked child, by a handler that fork.cc installs. Defined there and not
/// here: who reads it makes the linker take the handler out of the static library, too.
extern std::atomic<int> fork_count;

/// How many forks lie between this process and the one that loaded the library: an object made
/// under another number belongs to a parent, and a child must not touch it.
inline int fork_generation() { return fork_count.load(std::memory_order_relaxed); }

}  // namespace hixl_rma
