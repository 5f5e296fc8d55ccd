// SPDX-License-Identifier: Apache-2.0
//
// Reading the arguments of a vectorcall method: names are interned once, an exact int costs one
// comparison and one conversion.
#pragma once

#include <Python.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace hixl_rma {

inline constexpr std::size_t kMaxParameters = 9;

/// Names of a method's parameters: the first `required` must be given, the first `positional` may
/// be given by position.
class Signature {
 public:
  constexpr Signature(const char* method, std::size_t required, std::size_t positional,
                      std::initializer_list<const char*> names,
                      std::size_t required_by_name = SIZE_MAX) noexcept
      : method_(method),
        required_(required),
        positional_(positional),
        required_by_name_(required_by_name) {
    for (const char* name : names) texts_[count_++] = name;
  }

  /// Puts borrowed references into `values`; what was not given is null. Errors: TypeError.
  bool parse(PyObject* const* args, Py_ssize_t count, PyObject* names,
             std::array<PyObject*, kMaxParameters>& values) const {
    const auto given = static_cast<std::size_t>(count);
    if (names != nullptr || given < required_ || given > positional_ ||
        required_by_name_ != SIZE_MAX) {
      return parse_fully(args, count, names, values);
    }
    for (std::size_t i = 0; i < count_; ++i) values[i] = i < given ? args[i] : nullptr;
    return true;
  }

  [[nodiscard]] const char* method() const { return method_; }

 private:
  bool parse_fully(PyObject* const* args, Py_ssize_t count, PyObject* names,
                   std::array<PyObject*, kMaxParameters>& values) const;
  bool by_name(PyObject* name, PyObject* value,
               std::array<PyObject*, kMaxParameters>& values) const;
  [[nodiscard]] bool missing(std::size_t parameter) const;
  void intern() const;

  const char* method_;
  std::size_t required_;
  std::size_t positional_;
  std::size_t count_ = 0;
  std::size_t required_by_name_;  // index of a keyword that has no default; SIZE_MAX: none
  std::array<const char*, kMaxParameters> texts_{};
  mutable std::array<PyObject*, kMaxParameters> names_{};
};

/// An integer argument of any size.
struct Integer {
  bool fits = false;  ///< in a signed or an unsigned 64-bit number
  bool negative = false;
  std::int64_t value = 0;       ///< when it fits a signed one
  std::uint64_t magnitude = 0;  ///< when it is not negative and fits
  [[nodiscard]] bool in(std::int64_t low, std::int64_t high) const {
    return fits && (negative || magnitude <= INT64_MAX) && value >= low && value <= high;
  }
};

/// Takes what is a number by __index__, but no bool. Errors: ArgumentTypeError, what __index__
/// raises.
bool parse_integer(PyObject* object, const char* what, const char* operation, Integer* result);
/// str(object), for messages.
std::string text_of(PyObject* object);
/// __name__ of the object's type.
std::string type_name(PyObject* object);

/// An exact int that fits a long, the case that is to be fast.
inline bool plain_integer(PyObject* object, long* value) {
  if (!PyLong_CheckExact(object)) return false;
  int overflow = 0;
  *value = PyLong_AsLongAndOverflow(object, &overflow);
  return overflow == 0;
}

bool parse_rank_fully(PyObject* object, const char* what, int size, const char* operation,
                      int* rank);

/// A rank of a group of `size`. Errors: RangeError, ArgumentTypeError.
inline bool parse_rank(PyObject* object, const char* what, int size, const char* operation,
                       int* rank) {
  long value = 0;
  if (!plain_integer(object, &value) || value < 0 || value >= size) {
    return parse_rank_fully(object, what, size, operation, rank);
  }
  *rank = static_cast<int>(value);
  return true;
}
/// None or absent gives `fallback`; -1 stands for no time-out. Errors: ArgumentError,
/// ArgumentTypeError.
bool parse_timeout(PyObject* object, double fallback, const char* operation, double* seconds);
/// Absent gives the default. Errors: ArgumentTypeError.
bool parse_bool(PyObject* object, const char* what, const char* operation, bool fallback,
                bool* result);

}  // namespace hixl_rma
