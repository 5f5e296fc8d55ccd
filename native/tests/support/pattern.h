// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "hixl_rma/memory.h"

namespace hixl_rma::testing {

/// Byte i of the pattern of a seed: neighbours and equal places of other seeds differ.
constexpr std::byte pattern_at(std::uint64_t seed, std::size_t i) {
  std::uint64_t x = (static_cast<std::uint64_t>(i) + 1) * 0x9e3779b97f4a7c15U ^ (seed << 7);
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9U;
  return static_cast<std::byte>(x >> 56);
}

inline void fill_pattern(std::byte* memory, std::size_t nbytes, std::uint64_t seed) {
  for (std::size_t i = 0; i < nbytes; ++i) memory[i] = pattern_at(seed, i);
}

inline Bytes make_pattern(std::size_t nbytes, std::uint64_t seed) {
  Bytes bytes(nbytes);
  fill_pattern(bytes.data(), nbytes, seed);
  return bytes;
}

/// Index of the first byte that is not the pattern's; nbytes when all are.
inline std::size_t first_mismatch(const std::byte* memory, std::size_t nbytes, std::uint64_t seed) {
  for (std::size_t i = 0; i < nbytes; ++i) {
    if (memory[i] != pattern_at(seed, i)) return i;
  }
  return nbytes;
}

}  // namespace hixl_rma::testing
