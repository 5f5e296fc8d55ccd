// SPDX-License-Identifier: Apache-2.0
#include "bindings/arguments.h"

#include <cmath>
#include <cstring>

#include "bindings/errors.h"

namespace hixl_rma {

void Signature::intern() const {
  for (std::size_t i = 0; i < count_; ++i) names_[i] = PyUnicode_InternFromString(texts_[i]);
}

bool Signature::missing(std::size_t parameter) const {
  PyErr_Format(PyExc_TypeError, "%s() missing required argument: '%s'", method_, texts_[parameter]);
  return false;
}

bool Signature::parse_fully(PyObject* const* args, Py_ssize_t count, PyObject* names,
                            std::array<PyObject*, kMaxParameters>& values) const {
  const auto given = static_cast<std::size_t>(count);
  if (given > positional_) {
    PyErr_Format(PyExc_TypeError, "%s() takes at most %zu positional arguments (%zu given)",
                 method_, positional_, given);
    return false;
  }
  for (std::size_t i = 0; i < given; ++i) values[i] = args[i];
  for (std::size_t i = given; i < count_; ++i) values[i] = nullptr;
  if (names != nullptr) {
    if (names_[0] == nullptr) intern();
    const Py_ssize_t n = PyTuple_GET_SIZE(names);
    std::size_t next = given;  // most callers keep to the order of the parameters
    for (Py_ssize_t i = 0; i < n; ++i) {
      PyObject* name = PyTuple_GET_ITEM(names, i);
      while (next < count_ && names_[next] != name) ++next;
      if (next < count_) {
        values[next++] = args[count + i];
      } else if (!by_name(name, args[count + i], values)) {
        return false;
      }
    }
  }
  for (std::size_t i = given; i < required_; ++i) {
    if (values[i] == nullptr) return missing(i);
  }
  return required_by_name_ == SIZE_MAX || values[required_by_name_] != nullptr ||
         missing(required_by_name_);
}

bool Signature::by_name(PyObject* name, PyObject* value,
                        std::array<PyObject*, kMaxParameters>& values) const {
  std::size_t found = 0;
  while (found < count_ && names_[found] != name) ++found;
  if (found == count_) {  // a name that was not interned
    found = 0;
    while (found < count_ && PyUnicode_Compare(names_[found], name) != 0) ++found;
  }
  if (found == count_) {
    PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", method_, name);
    return false;
  }
  if (values[found] != nullptr) {
    PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'", method_, name);
    return false;
  }
  values[found] = value;
  return true;
}

std::string text_of(PyObject* object) {
  PyObject* text = PyObject_Str(object);
  const char* bytes = text == nullptr ? nullptr : PyUnicode_AsUTF8(text);
  std::string result = bytes == nullptr ? "?" : bytes;
  Py_XDECREF(text);
  PyErr_Clear();
  return result;
}

std::string type_name(PyObject* object) {
  const char* name = Py_TYPE(object)->tp_name;
  const char* dot = std::strrchr(name, '.');
  return dot == nullptr ? name : dot + 1;
}

bool parse_integer(PyObject* object, const char* what, const char* operation, Integer* result) {
  PyObject* number = object;
  if (PyLong_CheckExact(object)) {
    Py_INCREF(number);
  } else {
    if (PyBool_Check(object) || !PyIndex_Check(object) || type_name(object) == "bool") {
      raise_error(StatusCode::kInvalidType,
                  std::string(what) + " takes an integer, not " + type_name(object), operation);
      return false;
    }
    number = PyNumber_Index(object);
    if (number == nullptr) {
      // numpy's arrays have __index__ and raise TypeError unless they hold one integer.
      if (PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        raise_error(StatusCode::kInvalidType,
                    std::string(what) + " takes an integer, not " + type_name(object), operation);
      }
      return false;
    }
  }
  int overflow = 0;
  result->value = PyLong_AsLongLongAndOverflow(number, &overflow);
  result->negative = overflow < 0 || (overflow == 0 && result->value < 0);
  result->fits = overflow == 0;
  result->magnitude = static_cast<std::uint64_t>(result->value);
  if (overflow > 0) {
    result->magnitude = PyLong_AsUnsignedLongLong(number);
    result->fits = PyErr_Occurred() == nullptr;
    PyErr_Clear();
  }
  Py_DECREF(number);
  return true;
}

bool parse_rank_fully(PyObject* object, const char* what, int size, const char* operation,
                      int* rank) {
  Integer number;
  if (!parse_integer(object, what, operation, &number)) return false;
  if (number.in(0, size - 1)) {
    *rank = static_cast<int>(number.value);
    return true;
  }
  raise_error(
      StatusCode::kOutOfRange,
      std::string(what) + " " + text_of(object) + " is not in 0 to " + std::to_string(size - 1),
      operation);
  return false;
}

bool parse_timeout(PyObject* object, double fallback, const char* operation, double* seconds) {
  if (object == nullptr || object == Py_None) {
    *seconds = fallback;
    return true;
  }
  const bool number = !PyBool_Check(object) && !PyComplex_Check(object) &&
                      !PyUnicode_Check(object) &&
                      (PyFloat_Check(object) || PyIndex_Check(object) || PyNumber_Check(object));
  if (number) *seconds = PyFloat_AsDouble(object);
  if (!number || (*seconds == -1.0 && PyErr_Occurred() != nullptr)) {
    PyErr_Clear();
    raise_error(StatusCode::kInvalidType,
                "timeout takes a number >= 0 or None, not " + type_name(object), operation);
    return false;
  }
  if (std::isfinite(*seconds) && *seconds >= 0) return true;
  raise_error(StatusCode::kInvalidArgument,
              "timeout takes a finite number >= 0 or None, not " + text_of(object), operation);
  return false;
}

bool parse_bool(PyObject* object, const char* what, const char* operation, bool fallback,
                bool* result) {
  if (object == nullptr) {
    *result = fallback;
    return true;
  }
  if (!PyBool_Check(object)) {
    raise_error(StatusCode::kInvalidType,
                std::string(what) + " takes True or False, not " + type_name(object), operation);
    return false;
  }
  *result = object == Py_True;
  return true;
}

}  // namespace hixl_rma
