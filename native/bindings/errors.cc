// SPDX-License-Identifier: Apache-2.0
#include "bindings/errors.h"

#include <pybind11/pybind11.h>

namespace py = pybind11;

namespace hixl_rma {
namespace {

PyObject* error_classes = nullptr;  // dict, lives as long as the interpreter

py::object class_of(StatusCode code) {
  const std::string name(name_of(code));
  PyObject* found =
      error_classes == nullptr ? nullptr : PyDict_GetItemString(error_classes, name.c_str());
  return py::reinterpret_borrow<py::object>(found == nullptr ? PyExc_RuntimeError : found);
}

void set_error(const Status::Detail& detail, const char* operation) {
  const py::object type = class_of(detail.code);
  py::dict facts;
  facts["operation"] = detail.operation.empty() ? std::string(operation) : detail.operation;
  facts["transport"] = detail.transport;
  if (detail.peer_rank >= 0) facts["peer_rank"] = detail.peer_rank;
  if (detail.errno_value != 0) facts["errno"] = detail.errno_value;
  if (!detail.reasons.empty()) {
    py::dict reasons;
    for (const auto& [name, reason] : detail.reasons) reasons[py::str(name)] = reason;
    facts["reasons"] = reasons;
  }
  const py::object error = type(detail.text, **facts);
  PyErr_SetObject(type.ptr(), error.ptr());
}

}  // namespace

bool register_error_classes(PyObject* classes) {
  if (!PyDict_Check(classes)) return false;
  Py_INCREF(classes);
  Py_XSETREF(error_classes, classes);
  return true;
}

PyObject* raise_status(const Status& status, const char* operation) {
  if (PyErr_Occurred() != nullptr) return nullptr;
  try {
    set_error(status.detail(), operation);
  } catch (py::error_already_set& error) {
    error.restore();
  }
  return nullptr;
}

PyObject* raise_error(StatusCode code, const std::string& text, const char* operation,
                      int peer_rank) {
  return raise_status(Status::error(code, text).with_peer(peer_rank), operation);
}

bool log_rma_error(const char* what) {
  py::error_already_set error;  // takes it
  try {
    if (!error.matches(py::module_::import("hixl_rma.errors").attr("RmaError"))) {
      error.restore();
      return false;
    }
    py::module_::import("hixl_rma.logs").attr("logger").attr("info")("%s: %s", what, error.value());
    return true;
  } catch (py::error_already_set& other) {
    other.restore();
    return false;
  }
}

}  // namespace hixl_rma
