// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hixl_rma {

/// Element types an accumulate may name; the values travel between processes.
enum class DataType : std::uint8_t {
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kFloat16,
  kFloat32,
  kFloat64,
  kLongDouble,
  kComplex64,
  kComplex128,
  kComplexLongDouble,
  kBool,
};
inline constexpr std::size_t kDataTypeCount = 16;

/// Operations of the accumulate family; the values travel between processes.
enum class ReduceOp : std::uint8_t {
  kSum,
  kProd,
  kMin,
  kMax,
  kLand,
  kLor,
  kLxor,
  kBand,
  kBor,
  kBxor,
  kReplace,
  kNoOp,
};
inline constexpr std::size_t kReduceOpCount = 12;

/// Bytes of one element, padding included; 0 for a value that is no DataType.
std::size_t size_of(DataType type) noexcept;

/// The name numpy gives the type ("int8", "longdouble", ...); "unknown" for any other value.
std::string_view name_of(DataType type) noexcept;

/// The name of the operation as Window takes it ("sum", "no_op", ...); "unknown" otherwise.
std::string_view name_of(ReduceOp op) noexcept;

/// The operation of that name, or nothing.
std::optional<ReduceOp> parse_reduce_op(std::string_view name) noexcept;

/// True where reduce() has a meaning: integers take every operation; floats sum, prod, min, max,
/// replace, no_op; complex sum, prod, replace, no_op; bool every operation.
bool is_supported(DataType type, ReduceOp op) noexcept;

/// A resolved operation: target[i] = target[i] op operand[i] for `count` elements.
///
/// Borrows: both buffers, for the call. They may have any alignment, and be the same buffer or
///   disjoint; where they overlap otherwise the target's values are unspecified.
/// Order: the caller holds whatever lock makes the update atomic against other updates. A reader
///   without it never sees part of an element of at most 8 bytes that lies at a multiple of its
///   size.
using ReduceFunction = void (*)(void* target, const void* operand, std::size_t count) noexcept;

/// The function for the pair, to be looked up once and called per stripe; nullptr where
/// is_supported() is false. `nbytes`: how much is combined in all, which decides the instructions.
ReduceFunction reduce_function(DataType type, ReduceOp op, std::size_t nbytes) noexcept;

/// How many levels of instructions this processor can run these loops in, at least 1. Level 0 is
/// what every processor of the architecture has.
std::size_t reduce_levels() noexcept;
/// The same function in the instructions of one level: the results are the same bits.
ReduceFunction reduce_function_of_level(DataType type, ReduceOp op, std::size_t level) noexcept;

/// Look up and call reduce_function(). An unsupported pair leaves the target as it is.
///
/// Results are those of numpy's ufuncs: integers wrap around, minimum and maximum return NaN where
/// either side is NaN, float16 computes in float32 and rounds to nearest even, logical operations
/// give 0 or 1, bool sums are "or" and products "and". Two choices keep a result independent of the
/// processor that computes it, where numpy leaves it open: minimum and maximum of two zeros keep
/// the target's, and a complex product is rounded after every multiplication and addition.
void reduce(DataType type, ReduceOp op, void* target, const void* operand,
            std::size_t count) noexcept;

/// True for the types compare_and_swap() takes: integers and bool.
bool is_swappable(DataType type) noexcept;

/// Store the old value of the target's element in `result`, and `desired` in the target where the
/// old value equals `compare`. Bool compares and stores truth, never other bytes than 0 and 1.
///
/// Borrows: one element each, of any alignment. `result` may be the same element as `compare` or
///   `desired`.
/// Order: the caller holds the stripe lock; the store is one instruction, as in ReduceFunction.
/// Returns whether the element was swapped; false, with nothing written, where is_swappable() is
/// false.
bool compare_and_swap(DataType type, void* target, const void* compare, const void* desired,
                      void* result) noexcept;

}  // namespace hixl_rma
