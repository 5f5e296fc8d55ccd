// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string>

#include "bindings/notify_arguments.h"
#include "bindings/window_docs.h"
#include "bindings/window_object.h"

namespace hixl_rma {
namespace {

constexpr Py_ssize_t kNotificationFields = 4;

PyTypeObject* notification_type = nullptr;

// PyStructSequence_New looks the number of fields up in the type's dictionary, twice and by name:
// 600 instructions that this does not need.
PyObject* to_python(const Notification& notification) {
  PyObject* result = reinterpret_cast<PyObject*>(
      PyObject_GC_NewVar(PyTupleObject, notification_type, kNotificationFields));
  if (result == nullptr) return nullptr;
  PyObject* fields[kNotificationFields] = {PyLong_FromSize_t(notification.id),
                                           PyLong_FromLong(notification.source),
                                           PyLong_FromUnsignedLongLong(notification.count),
                                           PyLong_FromUnsignedLongLong(notification.value)};
  for (Py_ssize_t i = 0; i < kNotificationFields; ++i) PyTuple_SET_ITEM(result, i, fields[i]);
  if (PyErr_Occurred() != nullptr) Py_CLEAR(result);
  return result;
}

PyObject* to_list(const std::vector<Notification>& taken) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(taken.size()));
  for (std::size_t i = 0; list != nullptr && i < taken.size(); ++i) {
    PyObject* item = to_python(taken[i]);
    if (item == nullptr) {
      Py_CLEAR(list);
    } else {
      PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), item);
    }
  }
  return list;
}

bool out_of_range(PyObject* object, const Window& window, const char* operation) {
  raise_error(StatusCode::kOutOfRange,
              "notification " + text_of(object) + " is not in 0 to " +
                  std::to_string(window.notifications()) + " exclusive",
              operation);
  return false;
}

bool parse_word(PyObject* object, const char* what, const char* operation, std::uint64_t least,
                std::uint64_t* word) {
  Integer number;
  if (!parse_integer(object, what, operation, &number)) return false;
  if (number.fits && !number.negative && number.magnitude >= least) {
    *word = number.magnitude;
    return true;
  }
  raise_error(StatusCode::kInvalidArgument,
              std::string(what) + " " + text_of(object) + " is not in " + std::to_string(least) +
                  " to 2^64 - 1",
              operation);
  return false;
}

bool parse_source(PyObject* object, const Window& window, const char* operation, int* source) {
  if (object == nullptr) {
    *source = kAnySource;
    return true;
  }
  Integer number;
  if (!parse_integer(object, "source", operation, &number)) return false;
  if (number.in(kAnySource, window.size() - 1)) {
    *source = static_cast<int>(number.value);
    return true;
  }
  raise_error(StatusCode::kOutOfRange,
              "source " + text_of(object) + " is not in 0 to " + std::to_string(window.size() - 1) +
                  " and not ANY_SOURCE",
              operation);
  return false;
}

}  // namespace

bool parse_notification(PyObject* object, const Window& window, const char* operation,
                        std::size_t* id) {
  long plain = 0;
  if (plain_integer(object, &plain) && plain >= 0 &&
      static_cast<std::size_t>(plain) < window.notifications()) {
    *id = static_cast<std::size_t>(plain);
    return true;
  }
  Integer number;
  if (!parse_integer(object, "notification", operation, &number)) return false;
  if (!number.in(0, static_cast<std::int64_t>(window.notifications()) - 1)) {
    return out_of_range(object, window, operation);
  }
  *id = number.magnitude;
  return true;
}

bool parse_notify_spec(PyObject* const* values, const Window& window, const char* operation,
                       NotifySpec* spec) {
  if (!parse_notification(values[0], window, operation, &spec->id)) return false;
  if (values[1] != nullptr && !parse_word(values[1], "value", operation, 0, &spec->value)) {
    return false;
  }
  if (values[2] == nullptr) return true;
  if (!PyUnicode_Check(values[2])) {
    raise_error(StatusCode::kInvalidType,
                "order takes \"all\" or \"self\", not " + type_name(values[2]), operation);
    return false;
  }
  const std::string order = text_of(values[2]);
  spec->order = order == "self" ? NotifyOrder::kSelf : NotifyOrder::kAll;
  if (order == "self" || order == "all") return true;
  raise_error(StatusCode::kInvalidArgument, "order '" + order + "' is neither \"all\" nor \"self\"",
              operation);
  return false;
}

bool NotificationArgument::parse_range(PyObject* range, const Window& window, const char* operation,
                                       bool* taken) {
  *taken = false;
  PyObject* parts[3] = {PyObject_GetAttrString(range, "start"),
                        PyObject_GetAttrString(range, "stop"),
                        PyObject_GetAttrString(range, "step")};
  Integer numbers[3];
  bool parsed = true;
  for (int i = 0; i < 3; ++i) {
    parsed = parsed && parts[i] != nullptr &&
             parse_integer(parts[i], "notification", operation, &numbers[i]);
  }
  for (PyObject* part : parts) Py_XDECREF(part);
  if (!parsed) return false;
  if (!numbers[2].fits || numbers[2].value != 1) return true;  // a list of its members
  *taken = true;
  const auto limit = static_cast<std::int64_t>(window.notifications());
  if (!numbers[0].in(0, limit) || !numbers[1].in(INT64_MIN, limit)) {
    return out_of_range(range, window, operation);
  }
  ids.first = numbers[0].magnitude;
  ids.last = static_cast<std::size_t>(std::max(numbers[0].value, numbers[1].value));
  return true;
}

bool NotificationArgument::parse(PyObject* object, const Window& window, const char* operation) {
  ids.last = window.notifications();
  if (object == nullptr) return true;
  if (PyRange_Check(object)) {
    bool taken = false;
    if (!parse_range(object, window, operation, &taken)) return false;
    if (taken) return true;
  }
  if (PyIndex_Check(object) || PyUnicode_Check(object) || !PySequence_Check(object)) {
    if (PyLong_CheckExact(object)) {
      const bool any = PyLong_AsLong(object) == kAnyNotification && PyErr_Occurred() == nullptr;
      PyErr_Clear();
      if (any) return true;
    }
    if (!PyObject_CheckBuffer(object)) {
      if (!parse_notification(object, window, operation, &ids.first)) return false;
      ids.last = ids.first + 1;
      return true;
    }
  }
  PyObject* sequence = PySequence_Fast(object, "notification is no sequence");
  if (sequence == nullptr) {
    PyErr_Clear();
    return parse_notification(object, window, operation, &ids.first);
  }
  bool parsed = true;
  for (Py_ssize_t i = 0; parsed && i < PySequence_Fast_GET_SIZE(sequence); ++i) {
    std::size_t id = 0;
    parsed = parse_notification(PySequence_Fast_GET_ITEM(sequence, i), window, operation, &id);
    if (parsed && std::ranges::find(list, id) == list.end()) list.push_back(id);
  }
  Py_DECREF(sequence);
  ids.first = ids.last = 0;
  ids.list = list;
  return parsed;
}

namespace {

constexpr Signature kNotify("notify", 1, 1, {"target_rank", "notification", "value", "order"}, 1);

PyObject* notify_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Values values;
  if (!kNotify.parse(args, count, names, values)) return nullptr;
  Window* window = open_window(self, kNotify.method());
  if (window == nullptr) return nullptr;
  int rank = 0;
  NotifySpec spec;
  if (!parse_rank(values[0], "target_rank", window->size(), kNotify.method(), &rank) ||
      !parse_notify_spec(&values[1], *window, kNotify.method(), &spec)) {
    return nullptr;
  }
  Status status = window->check_notify(rank, spec);
  Window::Issue issue;
  if (status.ok()) status = publish(self, rank, spec, issue);
  return answer(status, kNotify.method());
}

// ---- waiting

struct WaitArguments {
  NotificationArgument ids;
  NotifyWait what;

  // values: notification, count, source, consume
  bool parse(const Values& values, const Window& window, const char* operation) {
    if (!ids.parse(values[0], window, operation)) return false;
    what.ids = ids.ids;
    if (values[1] != nullptr && !parse_word(values[1], "count", operation, 1, &what.count)) {
      return false;
    }
    return parse_source(values[2], window, operation, &what.source) &&
           parse_bool(values[3], "consume", operation, true, &what.consume);
  }
};

PyObject* taken_to_python(TakeMode mode, const Taken& taken) {
  return mode == TakeMode::kAny ? to_python(taken[0]) : to_list(taken.list);
}

PyObject* wait_call(PyObject* self, const Signature& signature, TakeMode mode,
                    PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Values values;
  const char* operation = signature.method();
  if (!signature.parse(args, count, names, values)) return nullptr;
  Window* window = open_window(self, operation);
  if (window == nullptr) return nullptr;
  WaitArguments wait;
  double seconds = -1;
  if (!wait.parse(values, *window, operation) ||
      !parse_timeout(values[4], as_window(self)->default_timeout, operation, &seconds)) {
    return nullptr;
  }
  Taken taken;
  Status status = window->glance_notify(mode, wait.what, &taken);
  if (status.ok() && taken.empty()) {
    const Deadline deadline = Deadline::after_seconds(seconds);
    const WithoutGil without(*window);
    status = window->wait_notify(mode, wait.what, deadline, &taken);
  }
  return status.ok() ? taken_to_python(mode, taken) : raise_status(status, operation);
}

constexpr Signature kWait("wait_notify", 0, 1,
                          {"notification", "count", "source", "consume", "timeout"});
constexpr Signature kWaitSome("wait_notify_some", 0, 1,
                              {"notification", "count", "source", "consume", "timeout"});
constexpr Signature kWaitAll("wait_notify_all", 1, 1,
                             {"notifications", "count", "source", "consume", "timeout"});
constexpr Signature kTest("test_notify", 0, 1, {"notification", "count", "source", "consume"});

PyObject* wait_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return wait_call(self, kWait, TakeMode::kAny, args, count, names);
}
PyObject* wait_some_method(PyObject* self, PyObject* const* args, Py_ssize_t count,
                           PyObject* names) {
  return wait_call(self, kWaitSome, TakeMode::kSome, args, count, names);
}
PyObject* wait_all_method(PyObject* self, PyObject* const* args, Py_ssize_t count,
                          PyObject* names) {
  return wait_call(self, kWaitAll, TakeMode::kAll, args, count, names);
}

PyObject* test_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Values values;
  if (!kTest.parse(args, count, names, values)) return nullptr;
  Window* window = open_window(self, kTest.method());
  if (window == nullptr) return nullptr;
  WaitArguments wait;
  if (!wait.parse(values, *window, kTest.method())) return nullptr;
  Taken taken;
  Status status = window->test_notify(TakeMode::kAny, wait.what, &taken);
  if (!status.ok()) return raise_status(status, kTest.method());
  if (taken.empty()) Py_RETURN_NONE;
  return to_python(taken[0]);
}

constexpr Signature kCount("notify_count", 1, 2, {"notification", "source"});

PyObject* count_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Values values;
  if (!kCount.parse(args, count, names, values)) return nullptr;
  Window* window = open_window(self, kCount.method());
  if (window == nullptr) return nullptr;
  std::size_t id = 0;
  int source = kAnySource;
  if (!parse_notification(values[0], *window, kCount.method(), &id) ||
      !parse_source(values[1], *window, kCount.method(), &source)) {
    return nullptr;
  }
  auto pending = window->notify_count(id, source);
  return pending.ok() ? PyLong_FromUnsignedLongLong(pending.value())
                      : raise_status(pending.status(), kCount.method());
}

constexpr Signature kReset("reset_notify", 1, 1, {"notification"});

PyObject* reset_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Values values;
  if (!kReset.parse(args, count, names, values)) return nullptr;
  Window* window = open_window(self, kReset.method());
  if (window == nullptr) return nullptr;
  std::size_t id = 0;
  if (!parse_notification(values[0], *window, kReset.method(), &id)) return nullptr;
  auto taken = window->reset_notify(id);
  if (!taken.ok()) return raise_status(taken.status(), kReset.method());
  return Py_BuildValue("(KK)", static_cast<unsigned long long>(taken.value().count),
                       static_cast<unsigned long long>(taken.value().value));
}

constexpr Signature kFileno("notify_fileno", 0, 0, {});

PyObject* fileno_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Values values;
  if (!kFileno.parse(args, count, names, values)) return nullptr;
  Window* window = open_window(self, kFileno.method());
  if (window == nullptr) return nullptr;
  auto fd = window->notify_fileno();
  return fd.ok() ? PyLong_FromLong(fd.value()) : raise_status(fd.status(), kFileno.method());
}

}  // namespace

bool init_notification_type(PyObject* module) {
  static PyStructSequence_Field fields[] = {
      {"id", "which notification"},
      {"source", "rank that supplied all of it, else ANY_SOURCE"},
      {"count", "how many were asked for and taken"},
      {"value", "sum (mod 2^64) of what arrived from its sources and was not reported before"},
      {nullptr, nullptr},
  };
  static PyStructSequence_Desc description = {"hixl_rma.Notification", "What a wait reports.",
                                              fields, kNotificationFields};
  notification_type = PyStructSequence_NewType(&description);
  if (notification_type == nullptr) return false;
  notification_type->tp_name = "Notification";  // what its repr begins with
  return PyModule_AddObjectRef(module, "Notification",
                               reinterpret_cast<PyObject*>(notification_type)) == 0;
}

PyMethodDef notify_methods[] = {
    method<notify_method>("notify", docs::kNotify),
    method<wait_method>("wait_notify", docs::kWaitNotify),
    method<wait_some_method>("wait_notify_some", docs::kWaitNotifySome),
    method<wait_all_method>("wait_notify_all", docs::kWaitNotifyAll),
    method<test_method>("test_notify", docs::kTestNotify),
    method<count_method>("notify_count", docs::kNotifyCount),
    method<reset_method>("reset_notify", docs::kResetNotify),
    method<fileno_method>("notify_fileno", docs::kNotifyFileno),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace hixl_rma
