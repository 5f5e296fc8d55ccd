// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "hixl_rma/transport.h"
#include "transport/common/mapped_endpoint.h"
#include "window/control_layout.h"

namespace hixl_rma::testing {

/// The control part of one rank in plain memory of this process.
class ControlMemory {
 public:
  ControlMemory(std::size_t ranks, std::size_t ids)
      : layout_(ranks, ids),
        memory_(static_cast<std::byte*>(::operator new(layout_.nbytes(), kAlignment))),
        view_(memory_.get(), layout_) {
    std::fill_n(memory_.get(), layout_.nbytes(), std::byte{0});
  }

  [[nodiscard]] const ControlLayout& layout() const { return layout_; }
  [[nodiscard]] const ControlView& view() const { return view_; }
  [[nodiscard]] std::byte* data() const { return memory_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
  };

  ControlLayout layout_;
  std::unique_ptr<std::byte, Free> memory_;
  ControlView view_;
};

/// What one origin writes into a rank's control memory, as NOTE [publication] has it.
class Publisher {
 public:
  Publisher(ControlMemory& target, std::size_t origin, std::uint64_t salt)
      : target_(target),
        region_(target.data(), target.layout().nbytes(), nullptr),
        origin_(origin),
        salt_(salt),
        sent_(target.layout().ids()) {
    region_.bind({.doorbell = &target.view().header().doorbell});
  }

  void publish(std::size_t id, std::uint64_t value) {
    std::array<RecordWrite, 3> writes;
    std::size_t n = 0;
    Sent& sent = sent_[id];
    if (sent.count == 0) {
      std::uint64_t bits = 0;
      const std::size_t first = id / 64 * 64;
      for (std::size_t i = first; i < first + 64 && i < sent_.size(); ++i) {
        if (sent_[i].count != 0 || i == id) bits |= std::uint64_t{1} << (i % 64);
      }
      writes[n++] = {target_.layout().touched(origin_) + id / 64 * 8, 1, {bits}};
    }
    ++sent.count;
    sent.sum += value;
    last_ids_ = last_ids_ << 16 | id;
    ++total_;
    writes[n++] = slot(target_.layout().record(origin_, id), sent.count, sent.sum);
    writes[n++] = slot(target_.layout().total(origin_), total_, last_ids_);
    (void)endpoint_.notify(region_, std::span(writes.data(), n), nullptr);
  }

 private:
  struct Sent {
    std::uint64_t count = 0;
    std::uint64_t sum = 0;
  };

  [[nodiscard]] RecordWrite slot(std::uint64_t record, std::uint64_t count,
                                 std::uint64_t sum) const {
    return {
        record + count % 2 * sizeof(RecordSlot), 3, {count, sum, record_check(count, sum, salt_)}};
  }

  ControlMemory& target_;
  MappedRegion region_;
  MappedEndpoint endpoint_;
  std::size_t origin_;
  std::uint64_t salt_;
  std::vector<Sent> sent_;
  std::uint64_t total_ = 0;
  std::uint64_t last_ids_ = 0;
};

}  // namespace hixl_rma::testing
