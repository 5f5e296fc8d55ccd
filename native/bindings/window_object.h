// SPDX-License-Identifier: Apache-2.0
//
// The native window type. Its methods take vectorcall arguments directly: through pybind11's
// dispatcher a put and flush of 8 bytes cost 850 ns, this way 155 to 230 ns.
#pragma once

#include <Python.h>

#include <array>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "bindings/arguments.h"
#include "bindings/buffers.h"
#include "bindings/errors.h"
#include "window/window.h"

namespace hixl_rma {

struct WindowObject {
  PyObject_HEAD std::shared_ptr<Window> window;  // null until prepared
  std::unique_ptr<ArrayArgument> memory;         // the caller's, of a created window
  double default_timeout;                        // seconds, -1 waits without
};

using Values = std::array<PyObject*, kMaxParameters>;

inline WindowObject* as_window(PyObject* self) { return reinterpret_cast<WindowObject*>(self); }

/// The window, or null with ClosedError set.
Window* open_window(PyObject* self, const char* operation);

/// Releases the GIL for its lifetime, and keeps the window up.
class WithoutGil {
 public:
  explicit WithoutGil(Window& window) : inside_(window), state_(PyEval_SaveThread()) {}
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;
  ~WithoutGil() { PyEval_RestoreThread(state_); }

 private:
  Window::Inside inside_;
  PyThreadState* state_;
};

/// Keeps the GIL while a call does not wait longer than a glance, and the window up. For calls
/// whose waits all go through the window's own way of waiting: Window::answers_at_once().
class GilForAGlance {
 public:
  explicit GilForAGlance(Window& window) : inside_(window) { kept = true; }
  GilForAGlance(const GilForAGlance&) = delete;
  GilForAGlance& operator=(const GilForAGlance&) = delete;
  ~GilForAGlance() { kept = false; }

  /// WaitPolicy's give_lock and take_lock.
  static void* give() { return std::exchange(kept, false) ? PyEval_SaveThread() : nullptr; }
  static void take(void* state) {
    PyEval_RestoreThread(static_cast<PyThreadState*>(state));
    kept = true;
  }

 private:
  static inline thread_local bool kept = false;  // by this thread
  Window::Inside inside_;
};

/// Copies from this many bytes on run without the GIL: a release and reacquisition costs about as
/// much as copying a few KiB.
inline constexpr std::size_t kReleaseGilBytes = std::size_t{32} * 1024;

template <class Call>
Status call_without_gil(Window& window, bool release, Call&& call) {
  if (!release) return call();
  const WithoutGil without(window);
  return call();
}

/// A target as the caller gives it: a rank, and a displacement or a basic index.
struct TargetArgument {
  int rank = 0;
  TargetPlace place;
  StridedRuns layout{0};
  bool huge = false;  // a displacement that is no unsigned 64-bit number
  std::string text;   // of a huge displacement

  /// `displacement` may be null (0). Errors: as parse_rank, and of the index.
  bool parse(PyObject* self, const Window& window, PyObject* rank_object, PyObject* displacement,
             const char* operation);

 private:
  bool select(PyObject* self, PyObject* index);
};

/// What the transports know of a request, and the memory they work on for it. The window holds it,
/// too, until it is done: nobody has to keep the request.
struct RequestWork {
  Completion completion;
  std::vector<std::shared_ptr<void>> held;
};

/// A request's native part.
struct RequestState {
  std::shared_ptr<Window> window;
  int target = -1;
  std::shared_ptr<RequestWork> work = std::make_shared<RequestWork>();
};

/// A request to `target` whose completion collects what `issue` posts.
std::shared_ptr<RequestState> make_request(PyObject* self, int target, Window::Issue* issue);

/// Keeps what a pending operation works on: for its request, or until a flush.
void hold_memory(Window& window, std::initializer_list<const ArrayArgument*> memory, int target,
                 const Window::Issue& issue, const std::shared_ptr<RequestState>& request);

/// Publishes a notification behind its payload, within the window's default time-out.
Status publish(PyObject* self, int target, const NotifySpec& spec, Window::Issue& issue);

/// Makes the Python object of a request.
PyObject* wrap_request(const std::shared_ptr<RequestState>& state);

/// None, or the request, or the error of the status.
PyObject* answer(const Status& status, const char* operation,
                 const std::shared_ptr<RequestState>& request = nullptr);

// ---- method tables of the parts, joined in window_type.cc
extern PyMethodDef operation_methods[];
extern PyMethodDef accumulate_methods[];
extern PyMethodDef notify_methods[];
extern PyMethodDef sync_methods[];

bool init_notification_type(PyObject* module);
PyObject* make_window_type();

template <PyObject* (*Method)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*)>
PyMethodDef method(const char* name, const char* doc = nullptr) noexcept {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(Method)),
          METH_FASTCALL | METH_KEYWORDS, doc};
}

}  // namespace hixl_rma
