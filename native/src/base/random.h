// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace hixl_rma {

/// 16 bytes nobody can guess: names of sockets, tokens, identities of processes.
using Token = std::array<std::byte, 16>;

Token random_token();
std::uint64_t random_word();

}  // namespace hixl_rma
