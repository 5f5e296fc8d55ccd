// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/wait.h>
#include <unistd.h>

namespace hixl_rma::testing {

inline constexpr uid_t kNobody = 65534;

inline bool become_nobody() { return setresuid(kNobody, kNobody, kNobody) == 0; }

/// Whether a child of this process can become another user: root outside a strict container.
inline bool may_become_nobody() {
  if (getuid() == kNobody) return false;
  const pid_t child = fork();
  if (child == 0) _exit(become_nobody() ? 0 : 1);
  int how = 0;
  return child > 0 && waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 0;
}

}  // namespace hixl_rma::testing
