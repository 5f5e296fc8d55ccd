// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <memory>

#include "hixl_rma/reduce.h"
#include "window/window.h"

namespace hixl_rma {

/// The function (object, writable) -> object with the buffer protocol over the same memory, asked
/// for whatever has no buffer of its own. Called once, at import.
void set_buffer_converter(PyObject* function);

/// Learns numpy's array type. Called once, at import. Throws what importing numpy throws.
void find_array_type();

/// The memory of an argument, exported for as long as this object lives. Needs the GIL to die.
class ArrayArgument {
 public:
  ArrayArgument() = default;
  ArrayArgument(const ArrayArgument&) = delete;
  ArrayArgument& operator=(const ArrayArgument&) = delete;
  ~ArrayArgument() {
    if (held_) PyBuffer_Release(&view_);
  }

  /// Errors: ReadOnlyBufferError, ArgumentTypeError (no buffer, or Python objects inside).
  bool acquire(PyObject* object, bool writable, const char* what, const char* operation);

  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(view_.buf); }
  [[nodiscard]] std::size_t nbytes() const { return static_cast<std::size_t>(view_.len); }
  [[nodiscard]] std::size_t itemsize() const { return static_cast<std::size_t>(view_.itemsize); }
  [[nodiscard]] bool contiguous() const;
  [[nodiscard]] OriginArray array() const;
  [[nodiscard]] std::size_t count() const { return itemsize() == 0 ? 0 : nbytes() / itemsize(); }
  /// The element type, or nothing where the accumulate family has none for it.
  [[nodiscard]] std::optional<DataType> type() const;
  /// The format string, for messages.
  [[nodiscard]] const char* format() const { return view_.format == nullptr ? "B" : view_.format; }
  /// A second export of the same memory that may outlive the call and die without the GIL.
  [[nodiscard]] std::shared_ptr<void> keep() const;

 private:
  bool acquire_plain_array(PyObject* object, bool writable);
  bool acquire_from(PyObject* object, bool writable);
  bool refuse(PyObject* object, bool writable, const char* what, const char* operation);

  Py_buffer view_{};
  bool held_ = false;
};

}  // namespace hixl_rma
