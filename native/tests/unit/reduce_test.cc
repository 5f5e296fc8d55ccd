// SPDX-License-Identifier: Apache-2.0
//
// Claims of hixl_rma/reduce.h. Expected values come from wider arithmetic, from a float16 converter
// that works on values instead of bits, or from the same operation on one aligned element.

#include "hixl_rma/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cfloat>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace hixl_rma {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <typename Enum, std::size_t Count>
constexpr std::array<Enum, Count> enumerators() {
  std::array<Enum, Count> values{};
  for (std::size_t i = 0; i < Count; ++i) {
    values[i] = static_cast<Enum>(i);
  }
  return values;
}

constexpr auto kAllTypes = enumerators<DataType, kDataTypeCount>();
constexpr auto kAllOps = enumerators<ReduceOp, kReduceOpCount>();

template <typename T>
T reduced(DataType type, ReduceOp op, T target, T operand) {
  reduce(type, op, &target, &operand, 1);
  return target;
}

/// The operation on integers, in the width of the widest type.
std::int64_t integer_result(ReduceOp op, std::int64_t a, std::int64_t b) {
  const auto ua = static_cast<std::uint64_t>(a);
  const auto ub = static_cast<std::uint64_t>(b);
  switch (op) {
    case ReduceOp::kSum:
      return static_cast<std::int64_t>(ua + ub);
    case ReduceOp::kProd:
      return static_cast<std::int64_t>(ua * ub);
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kLand:
      return a != 0 && b != 0 ? 1 : 0;
    case ReduceOp::kLor:
      return a != 0 || b != 0 ? 1 : 0;
    case ReduceOp::kLxor:
      return (a != 0) != (b != 0) ? 1 : 0;
    case ReduceOp::kBand:
      return static_cast<std::int64_t>(ua & ub);
    case ReduceOp::kBor:
      return static_cast<std::int64_t>(ua | ub);
    case ReduceOp::kBxor:
      return static_cast<std::int64_t>(ua ^ ub);
    case ReduceOp::kReplace:
      return b;
    case ReduceOp::kNoOp:
      return a;
  }
  return 0;
}

template <typename T>
void expect_integer_results(DataType type) {
  using Limits = std::numeric_limits<T>;
  std::vector<T> values;
  for (int i = 0; i < 4; ++i) {
    for (const T base : {T{0}, Limits::min(), static_cast<T>(Limits::max() / 2)}) {
      values.push_back(static_cast<T>(base + static_cast<T>(i)));
    }
    values.push_back(static_cast<T>(-i));
    values.push_back(static_cast<T>(Limits::max() - static_cast<T>(i)));
  }
  for (const ReduceOp op : kAllOps) {
    for (const T a : values) {
      for (const T b : values) {
        // Signed extension keeps every result but the order of 64-bit unsigned values.
        T expected = static_cast<T>(
            integer_result(op, static_cast<std::int64_t>(a), static_cast<std::int64_t>(b)));
        if (op == ReduceOp::kMin || op == ReduceOp::kMax) {
          expected = (op == ReduceOp::kMin) == (a < b) ? a : b;
        }
        ASSERT_EQ(reduced(type, op, a, b), expected)
            << name_of(type) << " " << name_of(op) << " " << +a << " " << +b;
      }
    }
  }
}

/// A float16's value, by its definition.
double value_of_half(std::uint16_t half) {
  const int exponent = static_cast<int>((static_cast<unsigned>(half) >> 10U) & 31U);
  const int mantissa = static_cast<int>(half & 1023U);
  double value = 0;
  if (exponent == 31) {
    value = mantissa != 0 ? kNan : kInfinity;
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, -24);
  } else {
    value = std::ldexp(1024 + mantissa, exponent - 25);
  }
  return (half & 0x8000U) != 0 ? -value : value;
}

/// The value rounded to float16: to a multiple of its unit, then to infinity beyond the largest.
double rounded_to_half(double value) {
  if (!std::isfinite(value) || value == 0) {
    return value;
  }
  const double unit = std::ldexp(1, std::max(std::ilogb(value), -14) - 10);
  const double rounded = std::nearbyint(value / unit) * unit;
  return std::abs(rounded) > 65504 ? std::copysign(kInfinity, rounded) : rounded;
}

void expect_same_value(double actual, double expected, const std::string& what) {
  if (std::isnan(expected)) {
    ASSERT_TRUE(std::isnan(actual)) << what;
  } else {
    ASSERT_EQ(std::bit_cast<std::uint64_t>(actual), std::bit_cast<std::uint64_t>(expected)) << what;
  }
}

TEST(ReduceNames, every_operation_is_found_by_its_name) {
  for (const ReduceOp op : kAllOps) {
    EXPECT_EQ(parse_reduce_op(name_of(op)), op);
  }
  EXPECT_EQ(parse_reduce_op(""), std::nullopt);
  EXPECT_EQ(parse_reduce_op("SUM"), std::nullopt);
}

TEST(ReduceNames, values_outside_the_enumerations_are_unknown_and_harmless) {
  const auto type = static_cast<DataType>(200);
  const auto op = static_cast<ReduceOp>(200);
  EXPECT_EQ(name_of(type), "unknown");
  EXPECT_EQ(name_of(op), "unknown");
  EXPECT_EQ(size_of(type), 0U);
  EXPECT_FALSE(is_supported(type, ReduceOp::kSum));
  EXPECT_FALSE(is_supported(DataType::kInt8, op));
  EXPECT_FALSE(is_swappable(type));
}

TEST(ReduceSupport, integers_and_bool_take_every_operation_floats_and_complex_only_their_own) {
  for (const DataType type : kAllTypes) {
    const bool is_complex = type >= DataType::kComplex64 && type <= DataType::kComplexLongDouble;
    const bool is_float = type >= DataType::kFloat16 && type <= DataType::kLongDouble;
    for (const ReduceOp op : kAllOps) {
      const bool ordered = op == ReduceOp::kMin || op == ReduceOp::kMax;
      const bool of_bits = op >= ReduceOp::kLand && op <= ReduceOp::kBxor;
      const bool expected = !((is_complex || is_float) && of_bits) && !(is_complex && ordered);
      EXPECT_EQ(is_supported(type, op), expected) << name_of(type) << " " << name_of(op);
    }
  }
}

TEST(ReduceSupport, an_unsupported_pair_leaves_the_target_as_it_is) {
  EXPECT_EQ(reduced(DataType::kFloat64, ReduceOp::kBand, 3.0, 1.0), 3.0);
}

TEST(ReduceIntegers, results_wrap_around_and_are_exact) {
  expect_integer_results<std::int8_t>(DataType::kInt8);
  expect_integer_results<std::int16_t>(DataType::kInt16);
  expect_integer_results<std::int32_t>(DataType::kInt32);
  expect_integer_results<std::int64_t>(DataType::kInt64);
  expect_integer_results<std::uint8_t>(DataType::kUint8);
  expect_integer_results<std::uint16_t>(DataType::kUint16);
  expect_integer_results<std::uint32_t>(DataType::kUint32);
  expect_integer_results<std::uint64_t>(DataType::kUint64);
}

TEST(ReduceFloats, minimum_and_maximum_return_nan_from_either_side) {
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    for (const double other : {1.0, -kInfinity, kInfinity, kNan}) {
      EXPECT_TRUE(std::isnan(reduced(DataType::kFloat64, op, kNan, other)));
      EXPECT_TRUE(std::isnan(reduced(DataType::kFloat64, op, other, kNan)));
      const auto narrow = static_cast<float>(other);
      EXPECT_TRUE(std::isnan(reduced(DataType::kFloat32, op, std::nanf(""), narrow)));
      EXPECT_TRUE(std::isnan(reduced(DataType::kFloat32, op, narrow, std::nanf(""))));
      EXPECT_TRUE(std::isnan(reduced<long double>(DataType::kLongDouble, op, kNan, other)));
      EXPECT_TRUE(std::isnan(reduced<long double>(DataType::kLongDouble, op, other, kNan)));
    }
  }
}

TEST(ReduceFloats, minimum_and_maximum_of_two_zeros_keep_the_target) {
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    EXPECT_FALSE(std::signbit(reduced(DataType::kFloat64, op, 0.0, -0.0)));
    EXPECT_TRUE(std::signbit(reduced(DataType::kFloat64, op, -0.0, 0.0)));
    EXPECT_FALSE(std::signbit(reduced(DataType::kFloat32, op, 0.0F, -0.0F)));
    EXPECT_TRUE(std::signbit(reduced(DataType::kFloat32, op, -0.0F, 0.0F)));
  }
}

TEST(ReduceFloats, sums_and_products_are_those_of_the_type) {
  EXPECT_EQ(reduced(DataType::kFloat64, ReduceOp::kSum, 0.1, 0.2), 0.1 + 0.2);
  EXPECT_EQ(reduced(DataType::kFloat64, ReduceOp::kProd, 0.1, 0.2), 0.1 * 0.2);
  EXPECT_EQ(reduced(DataType::kFloat32, ReduceOp::kSum, 16777216.0F, 1.0F), 16777216.0F);
  EXPECT_EQ(reduced(DataType::kLongDouble, ReduceOp::kSum, 1.0L, LDBL_EPSILON), 1 + LDBL_EPSILON);
}

TEST(ReduceHalf, results_are_rounded_to_nearest_even_for_every_target) {
  constexpr std::array<std::uint16_t, 14> kOperands = {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff,
                                                       0x0400, 0x1400, 0x3bff, 0x3c01, 0xb800,
                                                       0x7bff, 0x7c00, 0xfc00, 0x7e01};
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax}) {
    for (const std::uint16_t operand : kOperands) {
      std::vector<std::uint16_t> targets(65536);
      for (std::size_t i = 0; i < targets.size(); ++i) {
        targets[i] = static_cast<std::uint16_t>(i);
      }
      const std::vector<std::uint16_t> operands(targets.size(), operand);
      reduce(DataType::kFloat16, op, targets.data(), operands.data(), targets.size());
      for (std::size_t i = 0; i < targets.size(); ++i) {
        const auto half = static_cast<std::uint16_t>(i);
        const double a = value_of_half(half);
        const double b = value_of_half(operand);
        double expected = reduced(DataType::kFloat64, op, a, b);
        expected = std::isnan(expected) ? expected : rounded_to_half(expected);
        expect_same_value(value_of_half(targets[i]), expected,
                          std::string(name_of(op)) + " " + std::to_string(i));
        // One element never takes the path of whole groups.
        expect_same_value(value_of_half(reduced(DataType::kFloat16, op, half, operand)), expected,
                          "single");
      }
    }
  }
}

TEST(ReduceComplex, the_product_is_rounded_after_every_multiplication) {
  // Fused, the real part would keep the 2^-46 that the rounded squares lose.
  const float value = 1.0F + 0x1p-23F;
  const std::complex<float> factor(value, value);
  const auto product = reduced(DataType::kComplex64, ReduceOp::kProd, factor, factor);
  EXPECT_EQ(product, std::complex<float>(0.0F, 2.0F * (1.0F + 0x1p-22F)));
}

TEST(ReduceComplex, sums_and_products_of_every_width) {
  using Wide = std::complex<long double>;
  const std::complex<double> a(1, 2);
  const std::complex<double> b(3, -5);
  EXPECT_EQ(reduced(DataType::kComplex128, ReduceOp::kSum, a, b), a + b);
  EXPECT_EQ(reduced(DataType::kComplex128, ReduceOp::kProd, a, b), std::complex<double>(13, 1));
  EXPECT_EQ(reduced(DataType::kComplexLongDouble, ReduceOp::kSum, Wide(a), Wide(b)), Wide(4, -3));
  EXPECT_EQ(reduced(DataType::kComplexLongDouble, ReduceOp::kProd, Wide(a), Wide(b)), Wide(13, 1));
}

TEST(ReduceBool, every_result_is_zero_or_one_whatever_the_bytes) {
  for (const ReduceOp op : kAllOps) {
    if (op == ReduceOp::kNoOp) {
      continue;
    }
    for (const int a : {0, 1, 2, 255}) {
      for (const int b : {0, 1, 4, 128}) {
        const auto result = reduced(DataType::kBool, op, static_cast<std::uint8_t>(a),
                                    static_cast<std::uint8_t>(b));
        // Truth is 0 or 1, and so is its integer result, but for 1 + 1.
        EXPECT_EQ(result, std::min<std::int64_t>(1, integer_result(op, a != 0, b != 0)))
            << name_of(op) << " " << a << " " << b;
      }
    }
  }
}

TEST(ReduceMemory, any_alignment_and_count_gives_the_result_of_single_aligned_elements) {
  for (const DataType type : kAllTypes) {
    const std::size_t size = size_of(type);
    for (const ReduceOp op : kAllOps) {
      if (!is_supported(type, op)) {
        continue;
      }
      for (std::size_t count = 0; count <= 70; ++count) {
        const std::size_t shift = count % 17;
        std::vector<std::uint8_t> target(71 * 32 + 64, 0xa5);
        std::vector<std::uint8_t> operand(target.size());
        for (std::size_t i = 0; i < count * size; ++i) {
          // 0x3. in every byte keeps each float type away from NaN, whose payload is free.
          target[shift + i] = static_cast<std::uint8_t>(0x30U | ((i * 29 + count) & 0x8fU));
          operand[i + 3] = static_cast<std::uint8_t>(0x30U | ((i * 23 + count) & 0x8fU));
        }
        std::vector<std::uint8_t> expected = target;
        for (std::size_t i = 0; i < count; ++i) {
          alignas(32) std::array<std::uint8_t, 32> a{};
          alignas(32) std::array<std::uint8_t, 32> b{};
          std::memcpy(a.data(), &target[shift + i * size], size);
          std::memcpy(b.data(), &operand[3 + i * size], size);
          reduce(type, op, a.data(), b.data(), 1);
          std::memcpy(&expected[shift + i * size], a.data(), size);
        }
        reduce(type, op, &target[shift], &operand[3], count);
        ASSERT_EQ(target, expected) << name_of(type) << " " << name_of(op) << " " << count;
      }
    }
  }
}

TEST(ReduceMemory, every_level_of_instructions_gives_the_same_bits) {
  constexpr std::size_t kCount = 333;
  for (const DataType type : kAllTypes) {
    const std::size_t size = size_of(type);
    for (const ReduceOp op : kAllOps) {
      if (!is_supported(type, op)) continue;
      std::vector<std::uint8_t> start(kCount * size + 1);
      std::vector<std::uint8_t> operand(kCount * size + 3);
      for (std::size_t i = 0; i < start.size(); ++i) {
        start[i] = static_cast<std::uint8_t>(0x30U | ((i * 29) & 0x8fU));
        operand[i + 2] = static_cast<std::uint8_t>(0x30U | ((i * 23) & 0x8fU));
      }
      std::vector<std::uint8_t> expected = start;
      reduce_function_of_level(type, op, 0)(&expected[1], &operand[3], kCount);
      for (std::size_t level = 1; level < reduce_levels(); ++level) {
        std::vector<std::uint8_t> target = start;
        reduce_function_of_level(type, op, level)(&target[1], &operand[3], kCount);
        ASSERT_EQ(target, expected) << name_of(type) << " " << name_of(op) << " level " << level;
      }
    }
  }
}

TEST(ReduceMemory, how_much_is_combined_decides_the_instructions_but_never_the_result) {
  for (const std::size_t count : {std::size_t{1000}, std::size_t{200'000}}) {
    std::vector<double> target(count, 1.5);
    const std::vector<double> operand(count, 0.25);
    reduce_function(DataType::kFloat64, ReduceOp::kSum, 8 * count)(target.data(), operand.data(),
                                                                   count);
    ASSERT_EQ(std::ranges::count(target, 1.75), static_cast<std::ptrdiff_t>(count));
  }
  EXPECT_EQ(reduce_function(DataType::kComplex64, ReduceOp::kMin, 8), nullptr);
}

TEST(ReduceMemory, target_and_operand_may_be_the_same_buffer) {
  std::vector<double> values(100, 1.5);
  reduce(DataType::kFloat64, ReduceOp::kSum, values.data(), values.data(), values.size());
  EXPECT_EQ(values, std::vector<double>(100, 3.0));
}

template <typename T>
void expect_swaps(DataType type, T old, T other) {
  T target = old;
  T result = 0;
  EXPECT_FALSE(compare_and_swap(type, &target, &other, &other, &result));
  EXPECT_EQ(target, old);
  EXPECT_EQ(result, old);
  result = 0;
  EXPECT_TRUE(compare_and_swap(type, &target, &old, &other, &result));
  EXPECT_EQ(target, other);
  EXPECT_EQ(result, old);
}

TEST(CompareAndSwap, the_element_changes_only_where_it_equals_compare) {
  expect_swaps<std::int8_t>(DataType::kInt8, -1, 3);
  expect_swaps<std::uint16_t>(DataType::kUint16, 65535, 3);
  expect_swaps<std::int32_t>(DataType::kInt32, -70000, 3);
  expect_swaps<std::uint64_t>(DataType::kUint64, ~std::uint64_t{0}, 3);
  expect_swaps<std::uint8_t>(DataType::kBool, 1, 0);
}

TEST(CompareAndSwap, bool_compares_truth) {
  std::uint8_t target = 2;
  const std::uint8_t compare = 1;
  const std::uint8_t desired = 0;
  std::uint8_t result = 7;
  EXPECT_TRUE(compare_and_swap(DataType::kBool, &target, &compare, &desired, &result));
  EXPECT_EQ(target, 0);
  EXPECT_EQ(result, 1);
}

TEST(CompareAndSwap, floats_are_refused_and_untouched) {
  double target = 1.0;
  double result = 5.0;
  const double other = 2.0;
  EXPECT_FALSE(is_swappable(DataType::kFloat64));
  EXPECT_FALSE(compare_and_swap(DataType::kFloat64, &target, &target, &other, &result));
  EXPECT_EQ(target, 1.0);
  EXPECT_EQ(result, 5.0);
}

// The race is the point of this claim; ThreadSanitizer would report it.
#if !defined(__SANITIZE_THREAD__)
void expect_untorn(DataType type, ReduceOp op, std::uint64_t first, std::uint64_t second,
                   const std::array<std::uint64_t, 2>& operands, std::size_t bytes) {
  alignas(64) std::array<std::uint64_t, 9> target{};
  target.fill(first);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::size_t round = 0; !stop.load(std::memory_order_relaxed); ++round) {
      std::array<std::uint64_t, 9> operand{};
      operand.fill(operands[round % 2]);
      reduce(type, op, target.data(), operand.data(), bytes / size_of(type));
    }
  });
  std::size_t torn = 0;
  for (std::size_t i = 0; i < 200000; ++i) {
    const std::uint64_t seen = __atomic_load_n(&target[i % target.size()], __ATOMIC_RELAXED);
    torn += seen != first && seen != second ? 1 : 0;
  }
  stop = true;
  writer.join();
  EXPECT_EQ(torn, 0U) << name_of(type) << " " << name_of(op);
}

TEST(ReduceMemory, a_concurrent_reader_never_sees_part_of_an_aligned_element) {
  const auto ones = std::bit_cast<std::uint64_t>(std::array<float, 2>{1.0F, 1.0F});
  const auto minus = std::bit_cast<std::uint64_t>(std::array<float, 2>{-1.0F, -1.0F});
  const auto half = std::bit_cast<std::uint64_t>(0.5);
  const auto less = std::bit_cast<std::uint64_t>(-0.5);
  constexpr std::uint64_t kFull = ~std::uint64_t{0};
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{72}}) {
    expect_untorn(DataType::kComplex64, ReduceOp::kSum, 0, ones, {ones, minus}, bytes);
    expect_untorn(DataType::kFloat64, ReduceOp::kSum, 0, half, {half, less}, bytes);
    expect_untorn(DataType::kUint64, ReduceOp::kBxor, 0, kFull, {kFull, kFull}, bytes);
    expect_untorn(DataType::kInt64, ReduceOp::kReplace, 0, kFull, {kFull, 0}, bytes);
  }
}
#endif

}  // namespace
}  // namespace hixl_rma
