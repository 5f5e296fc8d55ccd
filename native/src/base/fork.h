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

/// Whether a forked child is to close its copy of a descriptor: of one whose last copy tells others
/// that this process has ended. A few at a time.
void close_in_child(int fd, bool yes);

}  // namespace hixl_rma
