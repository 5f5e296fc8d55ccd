// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "hixl_rma/transport.h"
#include "transport/cma/factory.h"
#include "transport/self/factory.h"
#include "transport/shm/factory.h"
#include "transport/staged/factory.h"

namespace hixl_rma {

std::span<const TransportEntry> transport_registry() {
  static constexpr std::array<TransportEntry, 4> kRegistry = {{
      {"self", probe_self},
      {"shm", probe_shm},
      {"cma", probe_cma},
      {"staged", probe_staged},
  }};
  return kRegistry;
}

}  // namespace hixl_rma
