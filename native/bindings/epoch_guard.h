// SPDX-License-Identifier: Apache-2.0
//
// What the openers of epochs return: a `with` statement over it closes the epoch.
#pragma once

#include <Python.h>

namespace hixl_rma {

/// How an epoch ends.
struct EpochEnd {
  const char* method;  ///< of the window
  bool takes_rank;
  /// Whether the epoch is also ended when the body raised. Not for what waits for other ranks: they
  /// may never come once this one has failed.
  bool after_error;
};

/// A new guard of an open epoch of `window`; null with an exception set where there is no memory.
PyObject* make_epoch_guard(PyObject* window, const EpochEnd& end, int rank = -1);

bool init_epoch_guard(PyObject* module);

}  // namespace hixl_rma
