// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "hixl_rma/engine.h"
#include "hixl_rma/status.h"
#include "hixl_rma/transport.h"

namespace hixl_rma {

/// The control memory of one rank as another reaches it: words at offsets, whatever the transport.
/// Every call is complete at the target when it returns.
class ControlLink {
 public:
  ControlLink() = default;
  ControlLink(Engine& engine, Endpoint& endpoint, RemoteRegion& region)
      : engine_(&engine), endpoint_(&endpoint), region_(&region) {}

  /// Stores the records in order and rings the rank's doorbell.
  Status notify(std::span<const RecordWrite> records) const {
    return engine_->run(
        [&](Completion* completion) { return endpoint_->notify(*region_, records, completion); });
  }

  Status store(std::uint64_t offset, std::uint64_t value) const {
    const RecordWrite write{offset, 1, {value}};
    return notify(std::span(&write, 1));
  }

  Status fetch_add(std::uint64_t offset, std::uint64_t value, std::uint64_t* previous) const {
    return engine_->run([&](Completion* completion) {
      return endpoint_->fetch_add(*region_, offset, value, previous, completion);
    });
  }

  Status compare_swap(std::uint64_t offset, std::uint64_t expected, std::uint64_t desired,
                      std::uint64_t* previous) const {
    return engine_->run([&](Completion* completion) {
      return endpoint_->compare_swap(*region_, offset, expected, desired, previous, completion);
    });
  }

  Status load(std::uint64_t offset, std::uint64_t* value) const {
    return fetch_add(offset, 0, value);
  }

  [[nodiscard]] Endpoint* endpoint() const { return endpoint_; }
  [[nodiscard]] RemoteRegion* region() const { return region_; }

 private:
  Engine* engine_ = nullptr;
  Endpoint* endpoint_ = nullptr;
  RemoteRegion* region_ = nullptr;
};

}  // namespace hixl_rma
