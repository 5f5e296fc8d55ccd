// SPDX-License-Identifier: Apache-2.0
#include "bindings/buffers.h"

#include <pybind11/numpy.h>

#include <array>
#include <cstring>
#include <string>

#include "bindings/arguments.h"
#include "bindings/errors.h"

namespace hixl_rma {
namespace {

namespace py = pybind11;

PyObject* converter = nullptr;
PyTypeObject* array_type = nullptr;

/// What numpy exports for its plain element types, by their number: format and size.
struct PlainType {
  const char* format = nullptr;
  Py_ssize_t size = 0;
};
constexpr std::array<PlainType, 24> kPlainTypes = [] {
  std::array<PlainType, 24> types{};
  types[0] = {"?", 1};
  types[1] = {"b", 1};
  types[2] = {"B", 1};
  types[3] = {"h", sizeof(short)};
  types[4] = {"H", sizeof(short)};
  types[5] = {"i", sizeof(int)};
  types[6] = {"I", sizeof(int)};
  types[7] = {"l", sizeof(long)};
  types[8] = {"L", sizeof(long)};
  types[9] = {"q", sizeof(long long)};
  types[10] = {"Q", sizeof(long long)};
  types[11] = {"f", sizeof(float)};
  types[12] = {"d", sizeof(double)};
  types[13] = {"g", sizeof(long double)};
  types[14] = {"Zf", 2 * sizeof(float)};
  types[15] = {"Zd", 2 * sizeof(double)};
  types[16] = {"Zg", 2 * sizeof(long double)};
  types[23] = {"e", 2};
  return types;
}();

// Python objects are pointers into one process: an 'O' outside the field names of a struct.
bool holds_objects(const char* format) {
  if (format == nullptr || format[0] == '\0') return false;
  if (format[1] == '\0') return format[0] == 'O';
  bool in_name = false;
  for (const char* c = format; *c != '\0'; ++c) {
    if (*c == ':') in_name = !in_name;
    if (*c == 'O' && !in_name) return true;
  }
  return false;
}

std::optional<DataType> signed_of(std::size_t size) {
  switch (size) {
    case 1:
      return DataType::kInt8;
    case 2:
      return DataType::kInt16;
    case 4:
      return DataType::kInt32;
    case 8:
      return DataType::kInt64;
    default:
      return std::nullopt;
  }
}

std::optional<DataType> unsigned_of(std::size_t size) {
  switch (size) {
    case 1:
      return DataType::kUint8;
    case 2:
      return DataType::kUint16;
    case 4:
      return DataType::kUint32;
    case 8:
      return DataType::kUint64;
    default:
      return std::nullopt;
  }
}

struct ExportDeleter {
  void operator()(Py_buffer* view) const {
    if (Py_IsInitialized() != 0) {
      const PyGILState_STATE state = PyGILState_Ensure();
      PyBuffer_Release(view);
      PyGILState_Release(state);
    }
    delete view;  // NOLINT(cppcoreguidelines-owning-memory): the deleter of a shared_ptr
  }
};

}  // namespace

void set_buffer_converter(PyObject* function) {
  Py_INCREF(function);
  Py_XSETREF(converter, function);
}

void find_array_type() {
  array_type = reinterpret_cast<PyTypeObject*>(
      py::module_::import("numpy").attr("ndarray").cast<py::object>().release().ptr());
}

// The export of a contiguous numpy array of a plain type, made here. numpy's own describes the type
// as text anew each time: 450 instructions of the 2,500 of a put and a flush.
bool ArrayArgument::acquire_plain_array(PyObject* object, bool writable) {
  if (Py_TYPE(object) != array_type) return false;
  const auto array = py::reinterpret_borrow<py::array>(object);
  if ((array.flags() & py::array::c_style) == 0 || (writable && !array.writeable())) return false;
  const py::dtype type = array.dtype();
  const auto number = static_cast<std::size_t>(type.num());
  if (number >= kPlainTypes.size() || kPlainTypes[number].format == nullptr) return false;
  if (type.byteorder() != '=' && type.byteorder() != '|') return false;
  const PlainType& plain = kPlainTypes[number];
  view_.buf = const_cast<void*>(array.data());
  view_.len = array.size() * plain.size;
  view_.itemsize = plain.size;
  view_.readonly = writable ? 0 : 1;
  view_.format = const_cast<char*>(plain.format);
  view_.obj = Py_NewRef(object);
  held_ = true;
  return true;
}

bool ArrayArgument::acquire_from(PyObject* object, bool writable) {
  const int flags = writable ? PyBUF_RECORDS : PyBUF_RECORDS_RO;
  held_ = PyObject_GetBuffer(object, &view_, flags) == 0;
  return held_;
}

bool ArrayArgument::acquire(PyObject* object, bool writable, const char* what,
                            const char* operation) {
  if (acquire_plain_array(object, writable)) return true;
  if (!acquire_from(object, writable) && !refuse(object, writable, what, operation)) return false;
  if (!holds_objects(view_.format)) return true;
  raise_error(StatusCode::kInvalidType,
              std::string(what) + " holds Python objects, which are of one process alone",
              operation);
  return false;
}

// The object gave no such buffer: because it is read-only, or because it speaks another protocol.
bool ArrayArgument::refuse(PyObject* object, bool writable, const char* what,
                           const char* operation) {
  PyErr_Clear();
  if (writable && acquire_from(object, false)) {
    raise_error(StatusCode::kReadOnly, std::string(what) + " is read-only", operation);
    return false;
  }
  PyErr_Clear();
  PyObject* converted =
      converter == nullptr
          ? nullptr
          : PyObject_CallFunctionObjArgs(converter, object, writable ? Py_True : Py_False, nullptr);
  if (converted == nullptr) {
    if (PyErr_Occurred() == nullptr) {
      raise_error(StatusCode::kInvalidType,
                  std::string(what) + " has no buffer: " + type_name(object), operation);
    }
    return false;
  }
  const bool held = acquire_from(converted, writable);
  Py_DECREF(converted);  // the export holds what it needs
  if (held) return true;
  PyErr_Clear();
  raise_error(StatusCode::kInvalidType,
              std::string(what) + " has no usable buffer: " + type_name(object), operation);
  return false;
}

bool ArrayArgument::contiguous() const {
  if (view_.ndim == 0 || view_.len == 0 || view_.strides == nullptr) return true;
  if (view_.ndim == 1) return view_.strides[0] == view_.itemsize || view_.shape[0] == 1;
  return PyBuffer_IsContiguous(&view_, 'C') != 0;
}

OriginArray ArrayArgument::array() const {
  if (contiguous()) return {data(), StridedRuns(nbytes())};
  const auto n = static_cast<std::size_t>(view_.ndim);
  return {data(), StridedRuns(itemsize(), std::span<const std::ptrdiff_t>(view_.shape, n),
                              std::span<const std::ptrdiff_t>(view_.strides, n))};
}

std::optional<DataType> ArrayArgument::type() const {
  const char* format = this->format();
  if (*format == '@' || *format == '=' || *format == '<' || *format == '|') ++format;
  const bool complex = *format == 'Z';
  if (complex) ++format;
  if (format[0] == '\0' || format[1] != '\0') return std::nullopt;
  if (complex) {
    switch (*format) {
      case 'f':
        return DataType::kComplex64;
      case 'd':
        return DataType::kComplex128;
      case 'g':
        return DataType::kComplexLongDouble;
      default:
        return std::nullopt;
    }
  }
  switch (*format) {
    case '?':
      return DataType::kBool;
    case 'e':
      return DataType::kFloat16;
    case 'f':
      return DataType::kFloat32;
    case 'd':
      return DataType::kFloat64;
    case 'g':
      return DataType::kLongDouble;
    default:
      break;
  }
  if (std::strchr("bhilqn", *format) != nullptr) return signed_of(itemsize());
  if (std::strchr("BHILQN", *format) != nullptr) return unsigned_of(itemsize());
  return std::nullopt;
}

std::shared_ptr<void> ArrayArgument::keep() const {
  auto view = std::shared_ptr<Py_buffer>(new Py_buffer{}, ExportDeleter());
  if (view_.obj == nullptr || PyObject_GetBuffer(view_.obj, view.get(), PyBUF_RECORDS_RO) != 0) {
    PyErr_Clear();
  }
  return view;
}

}  // namespace hixl_rma
