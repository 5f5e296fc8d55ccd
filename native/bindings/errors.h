// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <string>

#include "hixl_rma/status.h"

namespace hixl_rma {

/// Keeps {StatusCode name: class}. Called once, at import.
bool register_error_classes(PyObject* classes);

/// Sets the Python exception that the status stands for and returns null. An exception that is set
/// already (a signal's handler raised) stays.
PyObject* raise_status(const Status& status, const char* operation);

/// Sets an exception of our own without a Status.
PyObject* raise_error(StatusCode code, const std::string& text, const char* operation,
                      int peer_rank = -1);

/// Takes the exception that is set to the log, when it is one of ours; any other stays set, and the
/// answer is false.
bool log_rma_error(const char* what);

}  // namespace hixl_rma
