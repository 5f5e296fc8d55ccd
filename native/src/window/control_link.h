// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "hixl_rma/engine.h"
#include "hixl_rma/status.h"
#include "hixl_rma/transport.h"

namespace hixl_rma {

/// How long a rank's side may take to carry out one operation on its control memory. It needs no
/// program there, so this bounds what is broken, not what is slow.
inline constexpr Nanoseconds kControlLimit = std::chrono::seconds(10);

/// The control memory of one rank as another reaches it: words at offsets, whatever the transport.
/// Every call is complete at the target when it returns Ok. Errors: Timeout after kControlLimit;
/// the operation may be carried out later.
class ControlLink {
 public:
  ControlLink() = default;
  /// `completes_inline` is what the transport says of itself.
  ControlLink(Engine& engine, Endpoint& endpoint, RemoteRegion& region, bool completes_inline)
      : engine_(&engine), endpoint_(&endpoint), region_(&region), inline_(completes_inline) {}

  /// Stores the records in order and rings the rank's doorbell.
  Status notify(std::span<const RecordWrite> records) const {
    if (inline_) return endpoint_->notify(*region_, records, nullptr).status;
    return notify_later(records);
  }

  Status store(std::uint64_t offset, std::uint64_t value) const {
    const RecordWrite write{offset, 1, {value}};
    return notify(std::span(&write, 1));
  }

  Status fetch_add(std::uint64_t offset, std::uint64_t value, std::uint64_t* previous) const {
    if (inline_) return endpoint_->fetch_add(*region_, offset, value, previous, nullptr).status;
    return read_later(previous, [&](std::uint64_t* answer, Completion* completion) {
      return endpoint_->fetch_add(*region_, offset, value, answer, completion);
    });
  }

  Status compare_swap(std::uint64_t offset, std::uint64_t expected, std::uint64_t desired,
                      std::uint64_t* previous) const {
    if (inline_) {
      return endpoint_->compare_swap(*region_, offset, expected, desired, previous, nullptr).status;
    }
    return read_later(previous, [&](std::uint64_t* answer, Completion* completion) {
      return endpoint_->compare_swap(*region_, offset, expected, desired, answer, completion);
    });
  }

  Status load(std::uint64_t offset, std::uint64_t* value) const {
    return fetch_add(offset, 0, value);
  }

  [[nodiscard]] Endpoint* endpoint() const { return endpoint_; }
  [[nodiscard]] RemoteRegion* region() const { return region_; }

 private:
  // What an operation works on must outlive it, even if nobody waits for its answer any more.
  Status notify_later(std::span<const RecordWrite> records) const {
    const auto kept = std::make_shared<std::vector<RecordWrite>>(records.begin(), records.end());
    const Deadline deadline = Deadline::after(kControlLimit);
    return engine_->run(
        [&](Completion* completion) { return endpoint_->notify(*region_, *kept, completion); },
        &deadline, kept);
  }
  template <class PostOperation>
  Status read_later(std::uint64_t* previous, PostOperation&& post) const {
    const auto answer = std::make_shared<std::uint64_t>(0);
    const Deadline deadline = Deadline::after(kControlLimit);
    Status status = engine_->run(
        [&](Completion* completion) { return post(answer.get(), completion); }, &deadline, answer);
    if (status.ok()) *previous = *answer;
    return status;
  }

  Engine* engine_ = nullptr;
  Endpoint* endpoint_ = nullptr;
  RemoteRegion* region_ = nullptr;
  bool inline_ = false;
};

}  // namespace hixl_rma
