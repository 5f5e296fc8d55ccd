// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace hixl_rma {

/// Bytes this process could still get before the kernel starts to kill: what the host has to give
/// (MemAvailable and free swap) or what is left of the limit of our control group, if that is less.
/// The largest number where neither can be read.
std::uint64_t available_memory();

}  // namespace hixl_rma
