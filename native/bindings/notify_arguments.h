// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <vector>

#include "window/window.h"

namespace hixl_rma {

/// What `notification` may be instead of an id: any of them.
inline constexpr long kAnyNotification = -1;

/// Reads (notification, value, order) from three consecutive values, the last two with defaults.
bool parse_notify_spec(PyObject* const* values, const Window& window, const char* operation,
                       NotifySpec* spec);

/// One id of the window. Errors: RangeError, ArgumentTypeError.
bool parse_notification(PyObject* object, const Window& window, const char* operation,
                        std::size_t* id);

/// The ids a wait looks at: nothing or ANY for all, an int, a range or a sequence.
struct NotificationArgument {
  NotificationSet ids;
  std::vector<std::size_t> list;

  bool parse(PyObject* object, const Window& window, const char* operation);

 private:
  bool parse_range(PyObject* range, const Window& window, const char* operation, bool* taken);
};

}  // namespace hixl_rma
