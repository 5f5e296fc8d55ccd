// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/patience.h"

namespace hixl_rma {

class Window;

/// The patience of a window: its default time-out, signals, the death of the holder, its own end.
class ShortWaits final : public Patience {
 public:
  explicit ShortWaits(Window& window) : window_(window) {}

  [[nodiscard]] Deadline limit() const override;
  bool ended(std::uint64_t holder) override;
  Status pause(const Deadline& limit, unsigned times) override;

 private:
  Window& window_;
};

}  // namespace hixl_rma
