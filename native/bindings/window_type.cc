// SPDX-License-Identifier: Apache-2.0
//
// The type itself: how it is made, taken down and asked for facts, and what all methods share.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <new>
#include <string>
#include <thread>

#include "bindings/window_object.h"

namespace py = pybind11;

namespace hixl_rma {
namespace {

constexpr long kMaxNotifications = 65'536;

bool interrupted() {
  if (PyGILState_GetThisThreadState() == nullptr) return false;  // a thread of our own
  const PyGILState_STATE state = PyGILState_Ensure();
  const bool raised = PyErr_CheckSignals() != 0;
  PyGILState_Release(state);
  return raised;
}

// With the GIL or without it: who has it lets other threads have it meanwhile.
void pause(Nanoseconds span) {
  PyThreadState* state = PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr;
  std::this_thread::sleep_for(span);
  if (state != nullptr) PyEval_RestoreThread(state);
}

Bytes to_bytes(const py::bytes& object) {
  const std::string_view view = object;
  const auto* first = reinterpret_cast<const std::byte*>(view.data());
  return {first, first + view.size()};
}

// Runs a pybind11 body inside a plain method.
template <class Body>
PyObject* guarded(Body&& body) {
  try {
    return body();
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    raise_error(StatusCode::kResourceExhausted, "out of memory", "create");
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

// The caller's memory of a created window.
bool take_memory(WindowObject* self, PyObject* memory, WindowOptions* options) {
  auto argument = std::make_unique<ArrayArgument>();
  if (!argument->acquire(memory, true, "buffer", "create")) return false;
  if (!argument->contiguous()) {
    raise_error(StatusCode::kInvalidArgument, "buffer must be C-contiguous", "create");
    return false;
  }
  options->memory = argument->data();
  options->nbytes = argument->nbytes();
  self->memory = std::move(argument);
  return true;
}

constexpr Signature kPrepare("_prepare", 8, 8,
                             {"engine", "rank", "size", "notifications", "disp_unit", "memory",
                              "notification_cap", "timeout"});

// memory: a byte count to allocate, or the caller's buffer. timeout: seconds, the default.
PyObject* prepare_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Values values;
  if (!kPrepare.parse(args, count, names, values)) return nullptr;
  return guarded([&]() -> PyObject* {
    WindowObject* object = as_window(self);
    WindowOptions options;
    options.rank = py::cast<int>(py::handle(values[1]));
    options.size = py::cast<int>(py::handle(values[2]));
    const auto notifications = py::cast<long>(py::handle(values[3]));
    options.notifications = static_cast<std::size_t>(notifications);
    options.disp_unit = py::cast<std::uint64_t>(py::handle(values[4]));
    options.notification_cap = py::cast<std::size_t>(py::handle(values[6]));
    options.wait.interrupted = interrupted;
    options.wait.give_lock = GilForAGlance::give;
    options.wait.take_lock = GilForAGlance::take;
    options.wait.pause = pause;
    options.wait.seconds = py::cast<double>(py::handle(values[7]));
    object->default_timeout = options.wait.seconds;
    if (notifications < 1 || notifications > kMaxNotifications) {
      return raise_error(StatusCode::kInvalidArgument, "notifications must be in 1 to 65536",
                         "create");
    }
    if (PyLong_CheckExact(values[5])) {
      options.nbytes = py::cast<std::size_t>(py::handle(values[5]));
    } else if (!take_memory(object, values[5], &options)) {
      return nullptr;
    }
    auto window =
        Window::prepare(py::cast<std::shared_ptr<Engine>>(py::handle(values[0])), options);
    if (!window.ok()) return raise_status(window.status(), "create");
    object->window = window.take();
    const Bytes& description = object->window->description();
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(description.data()),
                                     static_cast<Py_ssize_t>(description.size()));
  });
}

constexpr Signature kConnect("_connect", 2, 2, {"descriptions", "timeout"});

PyObject* connect_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Values values;
  if (!kConnect.parse(args, count, names, values)) return nullptr;
  return guarded([&]() -> PyObject* {
    Window& window = *as_window(self)->window;
    std::vector<Bytes> descriptions;
    for (const py::handle item : py::reinterpret_borrow<py::sequence>(values[0])) {
      descriptions.push_back(to_bytes(py::reinterpret_borrow<py::bytes>(item)));
    }
    const Deadline deadline = Deadline::after_seconds(py::cast<double>(py::handle(values[1])));
    Status status;
    {
      const WithoutGil without(window);
      status = window.connect(descriptions, deadline);
    }
    return answer(status, "create");
  });
}

constexpr Signature kSettle("_settle", 2, 2, {"spin", "timeout"});

PyObject* settle_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Values values;
  if (!kSettle.parse(args, count, names, values)) return nullptr;
  Window& window = *as_window(self)->window;
  const double spin = PyFloat_AsDouble(values[0]);
  const double timeout = PyFloat_AsDouble(values[1]);
  if (PyErr_Occurred() != nullptr) return nullptr;
  window.set_spin(Nanoseconds(static_cast<long long>(spin * 1e9)));
  Status status;
  {
    const WithoutGil without(window);
    status = window.settle(Deadline::after_seconds(timeout));
  }
  return answer(status, "create");
}

constexpr Signature kFinish("_finish", 0, 0, {});

PyObject* finish_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Values values;
  if (!kFinish.parse(args, count, names, values)) return nullptr;
  Window& window = *as_window(self)->window;
  {
    const WithoutGil without(window);  // joins the thread that handed the memory over
    window.finish();
  }
  Py_RETURN_NONE;
}

constexpr Signature kFree("free", 0, 1, {"timeout"});

PyObject* free_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Values values;
  if (!kFree.parse(args, count, names, values)) return nullptr;
  double seconds = -1;
  WindowObject* object = as_window(self);
  if (!parse_timeout(values[0], object->default_timeout, "free", &seconds)) return nullptr;
  if (object->window == nullptr || object->window->closed()) Py_RETURN_NONE;
  PyThreadState* state = PyEval_SaveThread();
  Status status = object->window->free(Deadline::after_seconds(seconds));
  PyEval_RestoreThread(state);
  if (object->window->freed()) {
    object->window->release();
    object->memory.reset();
  }
  return answer(status, "free");
}

constexpr Signature kAbort("_abort", 0, 0, {});

PyObject* abort_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Values values;
  if (!kAbort.parse(args, count, names, values)) return nullptr;
  WindowObject* object = as_window(self);
  if (object->window == nullptr) Py_RETURN_NONE;
  PyThreadState* state = PyEval_SaveThread();
  object->window->abort();
  PyEval_RestoreThread(state);
  object->window->release();
  object->memory.reset();
  Py_RETURN_NONE;
}

constexpr Signature kMapped("_mapped", 1, 1, {"rank"});

// (address, bytes, capsule that keeps the mapping) of a rank's memory, or None.
PyObject* mapped_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Values values;
  if (!kMapped.parse(args, count, names, values)) return nullptr;
  Window* window = open_window(self, "remote");
  int rank = 0;
  if (window == nullptr || !parse_rank(values[0], "rank", window->size(), "remote", &rank)) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    auto keep = std::make_unique<std::shared_ptr<const void>>();
    std::byte* address = window->mapped(rank, keep.get());
    if (address == nullptr) Py_RETURN_NONE;
    py::capsule capsule(keep.release(), [](void* kept) {
      delete static_cast<std::shared_ptr<const void>*>(kept);  // NOLINT: owned by the capsule
    });
    return py::make_tuple(reinterpret_cast<std::uintptr_t>(address), window->bytes_of(rank),
                          std::move(capsule))
        .release()
        .ptr();
  });
}

constexpr Signature kFacts("_facts", 1, 1, {"what"});

PyObject* facts_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Values values;
  if (!kFacts.parse(args, count, names, values)) return nullptr;
  WindowObject* object = as_window(self);
  return guarded([&]() -> PyObject* {
    if (object->window == nullptr) Py_RETURN_NONE;
    Window& window = *object->window;
    const auto what = py::cast<std::string>(py::handle(values[0]));
    if (what == "closed") return py::bool_(window.closed()).release().ptr();
    if (what == "failed_ranks") return py::cast(window.failed_ranks()).release().ptr();
    py::list list;
    if (what == "waits") {
      for (std::size_t kind = 0; kind < kWaitKinds; ++kind) {
        const WaitCounts counts = window.waits(static_cast<WaitKind>(kind));
        list.append(py::make_tuple(std::string(kWaitNames[kind]), counts.waits,
                                   1e-9 * static_cast<double>(counts.nanoseconds)));
      }
      return list.release().ptr();
    }
    for (int rank = 0; rank < window.size(); ++rank) {
      if (what == "transports") list.append(window.transport_of(rank));
      if (what == "stats") {
        const PeerStats stats = window.stats(rank);
        list.append(py::make_tuple(
            rank, window.transport_of(rank), stats.puts.calls, stats.gets.calls,
            stats.accumulates.calls, stats.notifications, stats.puts.bytes, stats.gets.bytes,
            stats.accumulates.bytes, 1e-9 * static_cast<double>(stats.puts.nanoseconds),
            1e-9 * static_cast<double>(stats.gets.nanoseconds),
            1e-9 * static_cast<double>(stats.accumulates.nanoseconds), stats.waits.waits,
            1e-9 * static_cast<double>(stats.waits.nanoseconds)));
      }
    }
    return list.release().ptr();
  });
}

PyObject* new_window(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  WindowObject* object = as_window(self);
  new (&object->window) std::shared_ptr<Window>();
  new (&object->memory) std::unique_ptr<ArrayArgument>();
  object->default_timeout = -1;
  return self;
}

void delete_window(PyObject* self) {
  WindowObject* object = as_window(self);
  PyTypeObject* type = Py_TYPE(self);
  PyThreadState* state = PyEval_SaveThread();
  object->window.reset();  // an open one is aborted: that may join a thread
  PyEval_RestoreThread(state);
  object->window.~shared_ptr();
  object->memory.~unique_ptr();
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef fact_methods[] = {
    method<prepare_method>("_prepare"), method<connect_method>("_connect"),
    method<settle_method>("_settle"),   method<finish_method>("_finish"),
    method<free_method>("free"),        method<abort_method>("_abort"),
    method<mapped_method>("_mapped"),   method<facts_method>("_facts"),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

Window* open_window(PyObject* self, const char* operation) {
  Window* window = as_window(self)->window.get();
  if (window == nullptr) {
    raise_error(StatusCode::kClosed, "the window is not open", operation);
    return nullptr;
  }
  if (window->closed()) [[unlikely]] {
    raise_status(window->usable(), operation);
    return nullptr;
  }
  return window;
}

std::shared_ptr<RequestState> make_request(PyObject* self, int target, Window::Issue* issue) {
  auto request = std::make_shared<RequestState>();
  request->window = as_window(self)->window;
  request->target = target;
  issue->own = &request->work->completion;
  return request;
}

void hold_memory(Window& window, std::initializer_list<const ArrayArgument*> memory, int target,
                 const Window::Issue& issue, const std::shared_ptr<RequestState>& request) {
  if (!issue.pending) return;
  if (request == nullptr) {
    for (const ArrayArgument* array : memory) window.hold(target, array->keep());
    return;
  }
  for (const ArrayArgument* array : memory) request->work->held.push_back(array->keep());
  window.hold(target, request->work, &request->work->completion);
}

Status publish(PyObject* self, int target, const NotifySpec& spec, Window::Issue& issue) {
  Window& window = *as_window(self)->window;
  const Deadline deadline = Deadline::after_seconds(as_window(self)->default_timeout);
  return call_without_gil(window, window.may_wait(target),
                          [&] { return window.publish(target, spec, deadline, issue); });
}

PyObject* answer(const Status& status, const char* operation,
                 const std::shared_ptr<RequestState>& request) {
  if (!status.ok()) return raise_status(status, operation);
  if (request != nullptr) return wrap_request(request);
  Py_RETURN_NONE;
}

bool TargetArgument::parse(PyObject* self, const Window& window, PyObject* rank_object,
                           PyObject* displacement, const char* operation) {
  if (!parse_rank(rank_object, "target_rank", window.size(), operation, &rank)) return false;
  if (displacement == nullptr) return true;
  long plain = 0;
  if (plain_integer(displacement, &plain) && plain >= 0) {
    place.displacement = static_cast<std::uint64_t>(plain);
    return true;
  }
  if (PyTuple_Check(displacement) || PySlice_Check(displacement) || displacement == Py_Ellipsis) {
    return select(self, displacement);
  }
  Integer number;
  if (!parse_integer(displacement, "target_disp", operation, &number)) return false;
  huge = number.negative || !number.fits;
  if (huge) text = text_of(displacement);
  place.displacement = number.magnitude;
  return true;
}

bool TargetArgument::select(PyObject* self, PyObject* index) {
  PyObject* selection = PyObject_CallMethod(self, "_select", "iO", rank, index);
  if (selection == nullptr) return false;
  PyObject* done = guarded([&]() -> PyObject* {
    const auto parts = py::reinterpret_borrow<py::tuple>(selection);
    const auto shape = py::cast<std::vector<std::ptrdiff_t>>(parts[2]);
    const auto strides = py::cast<std::vector<std::ptrdiff_t>>(parts[3]);
    layout = StridedRuns(py::cast<std::size_t>(parts[1]), shape, strides);
    place = {py::cast<std::uint64_t>(parts[0]), &layout};
    Py_RETURN_NONE;
  });
  Py_DECREF(selection);
  Py_XDECREF(done);
  return done != nullptr;
}

PyObject* make_window_type() {
  static std::vector<PyMethodDef> methods;
  for (PyMethodDef* table :
       {operation_methods, accumulate_methods, notify_methods, sync_methods, fact_methods}) {
    for (; table->ml_name != nullptr; ++table) methods.push_back(*table);
  }
  methods.push_back({nullptr, nullptr, 0, nullptr});
  static PyType_Slot slots[] = {
      {Py_tp_new, reinterpret_cast<void*>(new_window)},
      {Py_tp_dealloc, reinterpret_cast<void*>(delete_window)},
      {Py_tp_methods, methods.data()},
      {0, nullptr},
  };
  static PyType_Spec spec = {"hixl_rma._core.Window", sizeof(WindowObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  return PyType_FromSpec(&spec);
}

}  // namespace hixl_rma
