// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/random.h"

namespace hixl_rma {

/// What tells processes apart and says which of them share what. A domain descriptor is made of
/// some of these.
struct ProcessFacts {
  Token instance;       ///< of this process, new after fork
  std::string boot_id;  ///< of the running kernel
  std::uint64_t pid = 0;
  std::uint64_t start_time = 0;  ///< in clock ticks after boot: a reused pid has another
  std::uint64_t uid = 0;
  std::uint64_t pid_namespace = 0;  ///< inode numbers; 0 when /proc does not tell
  std::uint64_t user_namespace = 0;
  std::uint64_t net_namespace = 0;
};

ProcessFacts process_facts();

/// Start time of a process, or 0 when it is gone.
std::uint64_t start_time_of(std::uint64_t pid);

}  // namespace hixl_rma
