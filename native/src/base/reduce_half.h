// SPDX-License-Identifier: Apache-2.0
#pragma once

// Float16 as an element (reduce_elements.h). Compilers of the oldest supported age have no such
// type in C++, so the conversions are integer arithmetic that vectorises; where the processor
// converts by itself (x86 F16C, asked for at run time) whole groups take that path. Both give the
// same bits, but for the payload of a NaN.

#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "reduce_elements.h"

namespace hixl_rma::reduce_detail {

/// `yes` where below < limit, else `no`; both below 2^31. Arithmetic instead of a comparison, which
/// would keep a loop scalar or cost it conversions of masks.
inline std::uint32_t select_below(std::uint32_t below, std::uint32_t limit, std::uint32_t yes,
                                  std::uint32_t no) {
  const std::uint32_t mask = 0U - ((below - limit) >> 31U);
  return no ^ ((no ^ yes) & mask);
}

/// The float32 of a float16's bits; exact.
inline float float_of_half(std::uint16_t half) {
  const std::uint32_t magnitude = half & 0x7fffU;
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16U;
  const std::uint32_t shifted = magnitude << 13U;
  // A subnormal is its mantissa times 2^-24. The integer is converted, not shifted into a
  // subnormal float, which a process that flushes those would lose.
  const auto tiny = std::bit_cast<std::uint32_t>(
      static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F);
  const std::uint32_t rebased = shifted + (std::uint32_t{127 - 15} << 23U);
  const std::uint32_t special = shifted | 0x7f800000U;
  const std::uint32_t finite = select_below(magnitude, 0x0400U, tiny, rebased);
  return std::bit_cast<float>(sign | select_below(magnitude, 0x7c00U, finite, special));
}

/// The float16 nearest to a float32, ties to even; NaN keeps the payload bits that fit.
inline std::uint16_t half_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  // Below 2^-14 the result is subnormal. Adding 0.5 puts the unit 2^-24 in the last bit of the
  // mantissa, so that the addition itself rounds to nearest even.
  constexpr std::uint32_t kHalfBits = std::uint32_t{126} << 23U;
  const std::uint32_t tiny =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - kHalfBits;
  // Rebase the exponent, then round at bit 13; a carry may reach the exponent, up to infinity.
  const std::uint32_t odd = (magnitude >> 13U) & 1U;
  const std::uint32_t rounded =
      (magnitude - (std::uint32_t{127 - 15} << 23U) + 0xfffU + odd) >> 13U;
  const std::uint32_t nan = 0x7e00U | ((magnitude >> 13U) & 0x03ffU);
  const std::uint32_t special = select_below(magnitude, 0x7f800001U, 0x7c00U, nan);
  const std::uint32_t finite = select_below(magnitude, std::uint32_t{113} << 23U, tiny, rounded);
  const std::uint32_t result = select_below(magnitude, std::uint32_t{143} << 23U, finite, special);
  return static_cast<std::uint16_t>(((bits >> 16U) & 0x8000U) | result);
}

/// Float16, computed with as float32.
struct Half {
  using Value = float;
  static constexpr std::size_t kBytes = 2;

  static Value load(const std::byte* from) {
    return float_of_half(Plain<std::uint16_t>::load(from));
  }
  static void store(std::byte* to, Value value) {
    Plain<std::uint16_t>::store(to, half_of_float(value));
  }
};

#if defined(__x86_64__)

inline bool has_f16c() { return __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c"); }

/// Combine as many whole groups of eight as there are; returns the number of elements done.
template <typename Op>
__attribute__((target("avx,f16c"))) std::size_t combine_halves(std::byte* to, const std::byte* from,
                                                               std::size_t count) {
  constexpr std::size_t kGroup = 8;
  std::size_t i = 0;
  for (; i + kGroup <= count; i += kGroup) {
    auto* target = reinterpret_cast<__m128i*>(to + i * Half::kBytes);
    const auto* operand = reinterpret_cast<const __m128i*>(from + i * Half::kBytes);
    alignas(__m256) float values[kGroup];
    alignas(__m256) float operands[kGroup];
    _mm256_store_ps(values, _mm256_cvtph_ps(_mm_loadu_si128(target)));
    _mm256_store_ps(operands, _mm256_cvtph_ps(_mm_loadu_si128(operand)));
    for (std::size_t k = 0; k < kGroup; ++k) {
      values[k] = Op::apply(values[k], operands[k]);
    }
    _mm_storeu_si128(target, _mm256_cvtps_ph(_mm256_load_ps(values), _MM_FROUND_TO_NEAREST_INT));
  }
  return i;
}

#endif

}  // namespace hixl_rma::reduce_detail
