// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string>

#include "hixl_rma/status.h"

namespace hixl_rma {

/// Only one thread at a time can be inside a call that opens or closes the epochs of the process.
class BusyScope {
 public:
  explicit BusyScope(std::atomic<bool>& flag) : flag_(flag), entered_(!flag.exchange(true)) {}
  BusyScope(const BusyScope&) = delete;
  BusyScope& operator=(const BusyScope&) = delete;
  ~BusyScope() {
    if (entered_) flag_.store(false);
  }
  [[nodiscard]] Status status(const char* call) const {
    if (entered_) return {};
    return Status::error(StatusCode::kBusy, std::string(call) +
                                                ": another thread is inside a fence, start, "
                                                "complete, wait or free of this window");
  }

 private:
  std::atomic<bool>& flag_;
  bool entered_;
};

}  // namespace hixl_rma
