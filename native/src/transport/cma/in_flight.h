// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "hixl_rma/transport.h"

namespace hixl_rma {

/// NOTE [never write late]
/// A cross-process copy cannot be revoked once it runs. So an origin stores the generation it
/// believes in into its in-flight word, issues a full fence and loads the generation; the owner who
/// withdraws memory stores a new generation, issues a full fence and waits for the words. Either
/// the origin sees the new generation and does not copy, or the owner sees the word and waits.
class InFlight {
 public:
  explicit InFlight(const RegionSync& sync) : word_(sync.in_flight) {
    if (word_ == nullptr) return;
    word_->store(sync.expected_generation, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    current_ = sync.generation->load(std::memory_order_acquire) == sync.expected_generation;
  }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;
  ~InFlight() {
    // release; pairs with the owner's acquire load: the copy is over when the word is seen clear
    if (word_ != nullptr) word_->store(0, std::memory_order_release);
  }

  /// False when the memory was withdrawn: nothing may be copied.
  [[nodiscard]] bool current() const { return current_; }

 private:
  std::atomic<std::uint64_t>* word_;
  bool current_ = true;
};

}  // namespace hixl_rma
