// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/log.h"
#include "hixl_rma/status.h"

namespace hixl_rma {

/// The call ended before its operations did and is to be made again.
inline bool left_pending(const Status& status) {
  return status.code() == StatusCode::kTimeout || status.code() == StatusCode::kCanceled;
}

/// Of several failures that one call meets the first is reported; of the others the log tells.
inline void keep_first(Status& first, const Status& next) {
  if (next.ok()) return;
  if (first.ok()) {
    first = next;
    return;
  }
  log_line(
      LogLevel::kWarning,
      (next.detail().peer_rank < 0
           ? std::string("one more operation failed: ")
           : "an operation on rank " + std::to_string(next.detail().peer_rank) + " failed too: ") +
          std::string(next.text()));
}

}  // namespace hixl_rma
