// SPDX-License-Identifier: Apache-2.0
#pragma once

// How one element is read from and written to memory of any alignment. An element class names the
// bytes of one element and the value that operations compute with. Elements of at most 8 bytes go
// through a type of alignment 1 that may alias any other: one move each, and loops over it
// vectorise. (A memcpy of a selected element is turned into an integer move, which keeps minima of
// doubles scalar.) Complex values are vector types because the compiler may store a struct of two
// floats in two halves.

#include <cstddef>

namespace hixl_rma::reduce_detail {

/// Integers and floats: the value is what lies in memory. A store of an x87 long double writes the
/// ten bytes that carry the value and leaves the six of padding as they are.
template <typename T>
struct Plain {
  using Value = T;
  static constexpr std::size_t kBytes = sizeof(T);

  using Unaligned __attribute__((aligned(1), may_alias)) = T;

  static Value load(const std::byte* from) { return *reinterpret_cast<const Unaligned*>(from); }
  static void store(std::byte* to, Value value) { *reinterpret_cast<Unaligned*>(to) = value; }
};

/// Bool: any byte but 0 is true, and 1 is what is written.
struct Bool {
  using Value = bool;
  static constexpr std::size_t kBytes = 1;

  static Value load(const std::byte* from) { return *from != std::byte{0}; }
  static void store(std::byte* to, Value value) { *to = static_cast<std::byte>(value); }
};

/// Real and imaginary part as one vector register, stored by one instruction.
using ComplexFloat = float __attribute__((vector_size(8)));
using ComplexDouble = double __attribute__((vector_size(16)));

/// Real and imaginary part of a complex long double; wider than any single store.
struct ComplexLong {
  long double parts[2];

  long double operator[](std::size_t part) const { return parts[part]; }
  ComplexLong operator+(const ComplexLong& other) const {
    return {{parts[0] + other.parts[0], parts[1] + other.parts[1]}};
  }
};

struct ComplexLongDouble {
  using Value = ComplexLong;
  using Part = Plain<long double>;
  static constexpr std::size_t kBytes = 2 * Part::kBytes;

  static Value load(const std::byte* from) {
    return {{Part::load(from), Part::load(from + Part::kBytes)}};
  }
  static void store(std::byte* to, const Value& value) {
    Part::store(to, value.parts[0]);
    Part::store(to + Part::kBytes, value.parts[1]);
  }
};

}  // namespace hixl_rma::reduce_detail
