// SPDX-License-Identifier: Apache-2.0
#include "base/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

namespace hixl_rma {
namespace {

// The word is shared between processes through a file mapping: no FUTEX_PRIVATE_FLAG.
long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) {
  return syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

}  // namespace

SleepEnd sleep_on(Doorbell& doorbell, std::uint32_t seen, Nanoseconds span) {
  const auto count = span.count();
  const timespec timeout{static_cast<time_t>(count / 1'000'000'000),
                         static_cast<long>(count % 1'000'000'000)};
  if (futex(doorbell.sequence, FUTEX_WAIT, seen, &timeout) == 0) return SleepEnd::kWoken;
  if (errno == EINTR) return SleepEnd::kSignal;
  return errno == ETIMEDOUT ? SleepEnd::kTimedOut : SleepEnd::kWoken;
}

void wake_all(Doorbell& doorbell) {
  doorbell.sequence.fetch_add(1, std::memory_order_release);
  futex(doorbell.sequence, FUTEX_WAKE, INT_MAX, nullptr);
}

}  // namespace hixl_rma
