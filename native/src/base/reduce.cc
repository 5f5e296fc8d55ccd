// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of accumulates. Hides how elements lie in memory (reduce_elements.h) and which
// loop serves which pair of type and operation: a table, filled at compile time for each level of
// instructions that a processor may have, holds a function per supported pair. Invariants: an
// element is written by one store where its size and alignment allow it; signed integers compute as
// unsigned ones, whose overflow is defined; nothing here locks, allocates or throws.

#include "hixl_rma/reduce.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "reduce_elements.h"
#include "reduce_half.h"

namespace hixl_rma {
namespace {

using namespace reduce_detail;

struct Sum {
  template <typename T>
  static T apply(const T& target, const T& operand) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(target + operand);
    } else {
      return target + operand;
    }
  }
};

struct Prod {
  template <typename T>
  static T apply(T target, T operand) {
    if constexpr (std::is_integral_v<T>) {
      // Widened first: two uint16_t would be promoted to int, whose overflow is undefined.
      using Wide = std::common_type_t<T, std::uint32_t>;
      return static_cast<T>(Wide{target} * Wide{operand});
    } else {
      return target * operand;
    }
  }
};

struct ComplexProd {
  template <typename T>
  static T apply(const T& target, const T& operand) {
    return T{target[0] * operand[0] - target[1] * operand[1],
             target[0] * operand[1] + target[1] * operand[0]};
  }
};

// `target != target` is true for NaN alone; `|` instead of `||` lets the loops vectorise.
struct Min {
  template <typename T>
  static T apply(T target, T operand) {
    return ((target <= operand) | (target != target)) ? target : operand;
  }
};

struct Max {
  template <typename T>
  static T apply(T target, T operand) {
    return ((target >= operand) | (target != target)) ? target : operand;
  }
};

struct LogicalAnd {
  template <typename T>
  static T apply(T target, T operand) {
    return static_cast<T>((target != 0) & (operand != 0));
  }
};

struct LogicalOr {
  template <typename T>
  static T apply(T target, T operand) {
    return static_cast<T>((target != 0) | (operand != 0));
  }
};

struct LogicalXor {
  template <typename T>
  static T apply(T target, T operand) {
    return static_cast<T>((target != 0) ^ (operand != 0));
  }
};

struct BitAnd {
  template <typename T>
  static T apply(T target, T operand) {
    return static_cast<T>(target & operand);
  }
};

struct BitOr {
  template <typename T>
  static T apply(T target, T operand) {
    return static_cast<T>(target | operand);
  }
};

struct BitXor {
  template <typename T>
  static T apply(T target, T operand) {
    return static_cast<T>(target ^ operand);
  }
};

struct Second {
  template <typename T>
  static T apply(T /*target*/, T operand) {
    return operand;
  }
};

template <typename Element, typename Op>
[[gnu::always_inline]] inline void combine_from(std::size_t first, void* target,
                                                const void* operand, std::size_t count) noexcept {
  auto* to = static_cast<std::byte*>(target);
  const auto* from = static_cast<const std::byte*>(operand);
  for (std::size_t i = first; i < count; ++i) {
    const std::size_t at = i * Element::kBytes;
    Element::store(to + at, Op::apply(Element::load(to + at), Element::load(from + at)));
  }
}

/// Loops in the instructions that every processor of the architecture has.
struct Baseline {
  template <typename Element, typename Op>
  static void combine(void* target, const void* operand, std::size_t count) noexcept {
    std::size_t done = 0;
#if defined(__x86_64__)
    if constexpr (std::is_same_v<Element, Half>) {
      done = has_f16c() ? combine_halves<Op>(static_cast<std::byte*>(target),
                                             static_cast<const std::byte*>(operand), count)
                        : 0;
    }
#endif
    combine_from<Element, Op>(done, target, operand, count);
  }
};

#if defined(__x86_64__)
/// The same loops in registers of 32 bytes instead of 16.
struct Avx2 {
  template <typename Element, typename Op>
  [[gnu::target("avx2")]] static void combine(void* target, const void* operand,
                                              std::size_t count) noexcept {
    if constexpr (std::is_same_v<Element, Half>) {
      Baseline::combine<Element, Op>(target, operand, count);
    } else {
      combine_from<Element, Op>(0, target, operand, count);
    }
  }
};

// GCC would stay with 32 bytes; clang decides by the processor and does not know the word.
#if defined(__clang__)
#define HIXL_RMA_AVX512 "avx512f,avx512bw,avx512dq,avx512vl"
#else
#define HIXL_RMA_AVX512 "avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"
#endif

/// In registers of a whole cache line: a tenth faster where the operands lie in the second-level
/// cache.
struct Avx512 {
  template <typename Element, typename Op>
  [[gnu::target(HIXL_RMA_AVX512)]] static void combine(void* target, const void* operand,
                                                       std::size_t count) noexcept {
    if constexpr (std::is_same_v<Element, Half>) {
      Baseline::combine<Element, Op>(target, operand, count);
    } else {
      combine_from<Element, Op>(0, target, operand, count);
    }
  }
};
#undef HIXL_RMA_AVX512
#endif

void keep(void* /*target*/, const void* /*operand*/, std::size_t /*count*/) noexcept {}

/// Copy elements that no single store covers.
template <std::size_t Bytes>
void replace_wide(void* target, const void* operand, std::size_t count) noexcept {
  if (count != 0) {
    std::memmove(target, operand, count * Bytes);
  }
}

/// Copy words to where they are aligned, each by one store. Relaxed: a store only must not be
/// split.
template <typename Word>
void store_words(std::byte* to, const std::byte* from, std::size_t count) {
  using Aliased __attribute__((may_alias)) = Word;
  auto* words = reinterpret_cast<Aliased*>(to);
#pragma GCC unroll 4
  for (std::size_t i = 0; i < count; ++i) {
    __atomic_store_n(words + i, Plain<Word>::load(from + i * sizeof(Word)), __ATOMIC_RELAXED);
  }
}

/// Copy elements of at most 8 bytes. memmove may choose an instruction that writes bytes, so an
/// aligned target takes atomic stores: elements up to a multiple of 8, 8 bytes each, the rest.
template <typename Word>
void replace(void* target, const void* operand, std::size_t count) noexcept {
  constexpr std::size_t kWide = sizeof(std::uint64_t);
  constexpr std::size_t kPerWide = kWide / sizeof(Word);
  const auto address = reinterpret_cast<std::uintptr_t>(target);
  if (address % sizeof(Word) != 0) {
    replace_wide<sizeof(Word)>(target, operand, count);
    return;
  }
  auto* to = static_cast<std::byte*>(target);
  const auto* from = static_cast<const std::byte*>(operand);
  const std::size_t head = std::min(count, (kWide - address % kWide) % kWide / sizeof(Word));
  const std::size_t wide = (count - head) / kPerWide;
  const std::size_t done = (head + wide * kPerWide) * sizeof(Word);
  store_words<Word>(to, from, head);
  store_words<std::uint64_t>(to + head * sizeof(Word), from + head * sizeof(Word), wide);
  store_words<Word>(to + done, from + done, count - head - wide * kPerWide);
}

using Row = std::array<ReduceFunction, kReduceOpCount>;
using Table = std::array<Row, kDataTypeCount>;

template <typename Enum>
constexpr std::size_t index_of(Enum value) {
  return static_cast<std::size_t>(value);
}

template <typename Level, typename T>
constexpr Row integer_row() {
  using Ordered = Plain<T>;
  using Element = Plain<std::make_unsigned_t<T>>;
  Row row{};
  row[index_of(ReduceOp::kSum)] = Level::template combine<Element, Sum>;
  row[index_of(ReduceOp::kProd)] = Level::template combine<Element, Prod>;
  row[index_of(ReduceOp::kMin)] = Level::template combine<Ordered, Min>;
  row[index_of(ReduceOp::kMax)] = Level::template combine<Ordered, Max>;
  row[index_of(ReduceOp::kLand)] = Level::template combine<Element, LogicalAnd>;
  row[index_of(ReduceOp::kLor)] = Level::template combine<Element, LogicalOr>;
  row[index_of(ReduceOp::kLxor)] = Level::template combine<Element, LogicalXor>;
  row[index_of(ReduceOp::kBand)] = Level::template combine<Element, BitAnd>;
  row[index_of(ReduceOp::kBor)] = Level::template combine<Element, BitOr>;
  row[index_of(ReduceOp::kBxor)] = Level::template combine<Element, BitXor>;
  row[index_of(ReduceOp::kReplace)] = replace<std::make_unsigned_t<T>>;
  row[index_of(ReduceOp::kNoOp)] = keep;
  return row;
}

template <typename Level, typename Element>
constexpr Row float_row(ReduceFunction replacement) {
  Row row{};
  row[index_of(ReduceOp::kSum)] = Level::template combine<Element, Sum>;
  row[index_of(ReduceOp::kProd)] = Level::template combine<Element, Prod>;
  row[index_of(ReduceOp::kMin)] = Level::template combine<Element, Min>;
  row[index_of(ReduceOp::kMax)] = Level::template combine<Element, Max>;
  row[index_of(ReduceOp::kReplace)] = replacement;
  row[index_of(ReduceOp::kNoOp)] = keep;
  return row;
}

// In the baseline's instructions at every level: compilers make fused multiplications of wide
// complex products, and a result must not depend on the processor that computes it.
template <typename Element>
constexpr Row complex_row(ReduceFunction replacement) {
  Row row{};
  row[index_of(ReduceOp::kSum)] = Baseline::combine<Element, Sum>;
  row[index_of(ReduceOp::kProd)] = Baseline::combine<Element, ComplexProd>;
  row[index_of(ReduceOp::kReplace)] = replacement;
  row[index_of(ReduceOp::kNoOp)] = keep;
  return row;
}

template <typename Level>
constexpr Row bool_row() {
  constexpr ReduceFunction kAnd = Level::template combine<Bool, LogicalAnd>;
  constexpr ReduceFunction kOr = Level::template combine<Bool, LogicalOr>;
  constexpr ReduceFunction kXor = Level::template combine<Bool, LogicalXor>;
  Row row{};
  row[index_of(ReduceOp::kSum)] = kOr;
  row[index_of(ReduceOp::kProd)] = kAnd;
  row[index_of(ReduceOp::kMin)] = kAnd;
  row[index_of(ReduceOp::kMax)] = kOr;
  row[index_of(ReduceOp::kLand)] = kAnd;
  row[index_of(ReduceOp::kLor)] = kOr;
  row[index_of(ReduceOp::kLxor)] = kXor;
  row[index_of(ReduceOp::kBand)] = kAnd;
  row[index_of(ReduceOp::kBor)] = kOr;
  row[index_of(ReduceOp::kBxor)] = kXor;
  row[index_of(ReduceOp::kReplace)] = Level::template combine<Bool, Second>;
  row[index_of(ReduceOp::kNoOp)] = keep;
  return row;
}

template <typename Level>
constexpr Table make_table() {
  Table table{};
  table[index_of(DataType::kInt8)] = integer_row<Level, std::int8_t>();
  table[index_of(DataType::kInt16)] = integer_row<Level, std::int16_t>();
  table[index_of(DataType::kInt32)] = integer_row<Level, std::int32_t>();
  table[index_of(DataType::kInt64)] = integer_row<Level, std::int64_t>();
  table[index_of(DataType::kUint8)] = integer_row<Level, std::uint8_t>();
  table[index_of(DataType::kUint16)] = integer_row<Level, std::uint16_t>();
  table[index_of(DataType::kUint32)] = integer_row<Level, std::uint32_t>();
  table[index_of(DataType::kUint64)] = integer_row<Level, std::uint64_t>();
  table[index_of(DataType::kFloat16)] = float_row<Level, Half>(replace<std::uint16_t>);
  table[index_of(DataType::kFloat32)] = float_row<Level, Plain<float>>(replace<std::uint32_t>);
  table[index_of(DataType::kFloat64)] = float_row<Level, Plain<double>>(replace<std::uint64_t>);
  table[index_of(DataType::kLongDouble)] =
      float_row<Level, Plain<long double>>(replace_wide<sizeof(long double)>);
  table[index_of(DataType::kComplex64)] = complex_row<Plain<ComplexFloat>>(replace<std::uint64_t>);
  table[index_of(DataType::kComplex128)] =
      complex_row<Plain<ComplexDouble>>(replace_wide<sizeof(ComplexDouble)>);
  table[index_of(DataType::kComplexLongDouble)] =
      complex_row<ComplexLongDouble>(replace_wide<ComplexLongDouble::kBytes>);
  table[index_of(DataType::kBool)] = bool_row<Level>();
  return table;
}

#if defined(__x86_64__)
constexpr std::array<Table, 3> kTables = {make_table<Baseline>(), make_table<Avx2>(),
                                          make_table<Avx512>()};

std::size_t supported_levels() {
  if (!__builtin_cpu_supports("avx2")) return 1;
  const bool all = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return all ? 3 : 2;
}
#else
constexpr std::array<Table, 1> kTables = {make_table<Baseline>()};

std::size_t supported_levels() { return 1; }
#endif

constexpr std::array<std::string_view, kReduceOpCount> kOpNames = {
    "sum", "prod", "min", "max", "land", "lor", "lxor", "band", "bor", "bxor", "replace", "no_op"};

struct TypeTraits {
  std::string_view name;
  std::size_t bytes;
};

constexpr std::array<TypeTraits, kDataTypeCount> kTypes = {{
    {"int8", 1},
    {"int16", 2},
    {"int32", 4},
    {"int64", 8},
    {"uint8", 1},
    {"uint16", 2},
    {"uint32", 4},
    {"uint64", 8},
    {"float16", Half::kBytes},
    {"float32", sizeof(float)},
    {"float64", sizeof(double)},
    {"longdouble", sizeof(long double)},
    {"complex64", sizeof(ComplexFloat)},
    {"complex128", sizeof(ComplexDouble)},
    {"clongdouble", ComplexLongDouble::kBytes},
    {"bool", Bool::kBytes},
}};

template <typename Element>
bool swap_if_equal(void* target, const void* compare, const void* desired, void* result) {
  auto* to = static_cast<std::byte*>(target);
  const auto old = Element::load(to);
  const auto wanted = Element::load(static_cast<const std::byte*>(desired));
  const bool equal = old == Element::load(static_cast<const std::byte*>(compare));
  if (equal) {
    Element::store(to, wanted);
  }
  Element::store(static_cast<std::byte*>(result), old);
  return equal;
}

}  // namespace

std::size_t size_of(DataType type) noexcept {
  return index_of(type) < kDataTypeCount ? kTypes[index_of(type)].bytes : 0;
}

std::string_view name_of(DataType type) noexcept {
  return index_of(type) < kDataTypeCount ? kTypes[index_of(type)].name : "unknown";
}

std::string_view name_of(ReduceOp op) noexcept {
  return index_of(op) < kReduceOpCount ? kOpNames[index_of(op)] : "unknown";
}

std::optional<ReduceOp> parse_reduce_op(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kReduceOpCount; ++i) {
    if (kOpNames[i] == name) {
      return static_cast<ReduceOp>(i);
    }
  }
  return std::nullopt;
}

bool is_supported(DataType type, ReduceOp op) noexcept {
  return reduce_function_of_level(type, op, 0) != nullptr;
}

std::size_t reduce_levels() noexcept {
  static const std::size_t kLevels = supported_levels();
  return kLevels;
}

ReduceFunction reduce_function_of_level(DataType type, ReduceOp op, std::size_t level) noexcept {
  if (index_of(type) >= kDataTypeCount || index_of(op) >= kReduceOpCount) {
    return nullptr;
  }
  return kTables[level][index_of(type)][index_of(op)];
}

// The widest vectors pay where the operands come from the nearest cache (sums of 16 KiB took 0.7 to
// 0.8 of the time), and cost where they come from beyond it: each load of an array that no cache
// line begins with touches two (1.05 of the time at 1 MiB).
ReduceFunction reduce_function(DataType type, ReduceOp op, std::size_t nbytes) noexcept {
  constexpr std::size_t kNearest = std::size_t{512} * 1024;
  const std::size_t widest = reduce_levels() - 1;
  return reduce_function_of_level(type, op,
                                  nbytes < kNearest ? widest : std::min<std::size_t>(widest, 1));
}

void reduce(DataType type, ReduceOp op, void* target, const void* operand,
            std::size_t count) noexcept {
  if (const ReduceFunction function = reduce_function(type, op, count * size_of(type));
      function != nullptr) {
    function(target, operand, count);
  }
}

bool is_swappable(DataType type) noexcept {
  return index_of(type) <= index_of(DataType::kUint64) || type == DataType::kBool;
}

bool compare_and_swap(DataType type, void* target, const void* compare, const void* desired,
                      void* result) noexcept {
  if (!is_swappable(type)) {
    return false;
  }
  if (type == DataType::kBool) {
    return swap_if_equal<Bool>(target, compare, desired, result);
  }
  // Equality does not see the sign, so the size alone decides.
  switch (size_of(type)) {
    case 1:
      return swap_if_equal<Plain<std::uint8_t>>(target, compare, desired, result);
    case 2:
      return swap_if_equal<Plain<std::uint16_t>>(target, compare, desired, result);
    case 4:
      return swap_if_equal<Plain<std::uint32_t>>(target, compare, desired, result);
    default:
      return swap_if_equal<Plain<std::uint64_t>>(target, compare, desired, result);
  }
}

}  // namespace hixl_rma
