// SPDX-License-Identifier: Apache-2.0
//
// Synchronisation and flushes. The names with an underscore are wrapped by the Python class, which
// returns the guards.
#include <functional>
#include <vector>

#include "bindings/window_docs.h"
#include "bindings/window_object.h"

namespace hixl_rma {
namespace {

// One rank or none, then a time-out: what most of these calls take.
template <class Call>
PyObject* timed_call(PyObject* self, const Signature& signature, PyObject* const* args,
                     Py_ssize_t count, PyObject* names, std::size_t timeout_at, Call&& call) {
  Values values;
  if (!signature.parse(args, count, names, values)) return nullptr;
  Window* window = open_window(self, signature.method());
  if (window == nullptr) return nullptr;
  double seconds = -1;
  if (!parse_timeout(values[timeout_at], as_window(self)->default_timeout, signature.method(),
                     &seconds)) {
    return nullptr;
  }
  return call(*window, values, Deadline::after_seconds(seconds));
}

Status waiting(Window& window, const std::function<Status()>& call) {
  const WithoutGil without(window);
  return call();
}

// ---- flush

// Where every operation is complete when it returns, there is nothing to release the GIL for.
Status flush(Window& window, int rank, FlushScope scope, const Deadline& deadline) {
  return call_without_gil(window, window.may_wait(rank),
                          [&] { return window.flush(rank, scope, deadline); });
}

template <FlushScope Scope, const Signature& Names>
PyObject* flush_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return timed_call(self, Names, args, count, names, 1,
                    [](Window& window, const Values& values, const Deadline& deadline) {
                      int rank = 0;
                      if (!parse_rank(values[0], "rank", window.size(), Names.method(), &rank)) {
                        return static_cast<PyObject*>(nullptr);
                      }
                      return answer(flush(window, rank, Scope, deadline), Names.method());
                    });
}

template <FlushScope Scope, const Signature& Names>
PyObject* flush_all_method(PyObject* self, PyObject* const* args, Py_ssize_t count,
                           PyObject* names) {
  return timed_call(self, Names, args, count, names, 0,
                    [](Window& window, const Values&, const Deadline& deadline) {
                      return answer(flush(window, -1, Scope, deadline), Names.method());
                    });
}

constexpr Signature kFlush("flush", 1, 1, {"rank", "timeout"});
constexpr Signature kFlushLocal("flush_local", 1, 1, {"rank", "timeout"});
constexpr Signature kFlushAll("flush_all", 0, 0, {"timeout"});
constexpr Signature kFlushLocalAll("flush_local_all", 0, 0, {"timeout"});

// ---- fence and the generalised epochs

constexpr Signature kFence("fence", 0, 2, {"assertion", "timeout"});

PyObject* fence_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return timed_call(
      self, kFence, args, count, names, 1,
      [](Window& window, const Values& values, const Deadline& deadline) -> PyObject* {
        Integer assertion{true, false, 0, 0};
        if (values[0] != nullptr && !parse_integer(values[0], "assertion", "fence", &assertion)) {
          return nullptr;
        }
        const unsigned bits =
            assertion.in(0, UINT32_MAX) ? static_cast<unsigned>(assertion.value) : UINT32_MAX;
        return answer(waiting(window, [&] { return window.fence(bits, deadline); }), "fence");
      });
}

// A sequence of ranks.
bool parse_group(PyObject* object, const Window& window, const char* operation,
                 std::vector<int>* group) {
  PyObject* sequence =
      PyUnicode_Check(object) || PyBytes_Check(object) ? nullptr : PySequence_Fast(object, "");
  if (sequence == nullptr) {
    PyErr_Clear();
    raise_error(StatusCode::kInvalidType,
                "ranks takes a sequence of ranks, not " + type_name(object), operation);
    return false;
  }
  bool parsed = true;
  for (Py_ssize_t i = 0; parsed && i < PySequence_Fast_GET_SIZE(sequence); ++i) {
    int rank = 0;
    parsed =
        parse_rank(PySequence_Fast_GET_ITEM(sequence, i), "rank", window.size(), operation, &rank);
    group->push_back(rank);
  }
  Py_DECREF(sequence);
  return parsed;
}

constexpr Signature kStart("start", 1, 2, {"ranks", "timeout"});

PyObject* start_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return timed_call(
      self, kStart, args, count, names, 1,
      [](Window& window, const Values& values, const Deadline& deadline) -> PyObject* {
        std::vector<int> group;
        if (!parse_group(values[0], window, "start", &group)) return nullptr;
        return answer(waiting(window, [&] { return window.start(group, deadline); }), "start");
      });
}

constexpr Signature kComplete("complete", 0, 0, {"timeout"});

PyObject* complete_method(PyObject* self, PyObject* const* args, Py_ssize_t count,
                          PyObject* names) {
  return timed_call(self, kComplete, args, count, names, 0,
                    [](Window& window, const Values&, const Deadline& deadline) {
                      return answer(waiting(window, [&] { return window.complete(deadline); }),
                                    "complete");
                    });
}

constexpr Signature kPost("post", 1, 1, {"ranks"});

PyObject* post_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Values values;
  if (!kPost.parse(args, count, names, values)) return nullptr;
  Window* window = open_window(self, "post");
  if (window == nullptr) return nullptr;
  std::vector<int> group;
  if (!parse_group(values[0], *window, "post", &group)) return nullptr;
  return answer(window->post(group), "post");
}

constexpr Signature kWaitExposure("wait", 0, 0, {"timeout"});

PyObject* wait_exposure_method(PyObject* self, PyObject* const* args, Py_ssize_t count,
                               PyObject* names) {
  return timed_call(self, kWaitExposure, args, count, names, 0,
                    [](Window& window, const Values&, const Deadline& deadline) {
                      return answer(waiting(window, [&] { return window.wait_exposure(deadline); }),
                                    "wait");
                    });
}

constexpr Signature kTestExposure("test", 0, 0, {});

PyObject* test_exposure_method(PyObject* self, PyObject* const* args, Py_ssize_t count,
                               PyObject* names) {
  Values values;
  if (!kTestExposure.parse(args, count, names, values)) return nullptr;
  Window* window = open_window(self, "test");
  if (window == nullptr) return nullptr;
  bool over = false;
  Status status = window->test_exposure(&over);
  return status.ok() ? PyBool_FromLong(over ? 1 : 0) : raise_status(status, "test");
}

// ---- locks

constexpr Signature kLock("lock", 1, 3, {"rank", "exclusive", "timeout"});

PyObject* lock_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return timed_call(
      self, kLock, args, count, names, 2,
      [](Window& window, const Values& values, const Deadline& deadline) -> PyObject* {
        int rank = 0;
        bool exclusive = true;
        if (!parse_rank(values[0], "rank", window.size(), "lock", &rank) ||
            !parse_bool(values[1], "exclusive", "lock", true, &exclusive)) {
          return nullptr;
        }
        return answer(waiting(window, [&] { return window.lock(rank, exclusive, deadline); }),
                      "lock");
      });
}

constexpr Signature kUnlock("unlock", 1, 1, {"rank", "timeout"});

PyObject* unlock_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return timed_call(
      self, kUnlock, args, count, names, 1,
      [](Window& window, const Values& values, const Deadline& deadline) -> PyObject* {
        int rank = 0;
        if (!parse_rank(values[0], "rank", window.size(), "unlock", &rank)) return nullptr;
        return answer(waiting(window, [&] { return window.unlock(rank, deadline); }), "unlock");
      });
}

constexpr Signature kLockAll("lock_all", 0, 1, {"timeout"});
constexpr Signature kUnlockAll("unlock_all", 0, 0, {"timeout"});

PyObject* lock_all_method(PyObject* self, PyObject* const* args, Py_ssize_t count,
                          PyObject* names) {
  return timed_call(self, kLockAll, args, count, names, 0,
                    [](Window& window, const Values&, const Deadline& deadline) {
                      return answer(waiting(window, [&] { return window.lock_all(deadline); }),
                                    "lock_all");
                    });
}

PyObject* unlock_all_method(PyObject* self, PyObject* const* args, Py_ssize_t count,
                            PyObject* names) {
  return timed_call(self, kUnlockAll, args, count, names, 0,
                    [](Window& window, const Values&, const Deadline& deadline) {
                      return answer(waiting(window, [&] { return window.unlock_all(deadline); }),
                                    "unlock_all");
                    });
}

constexpr Signature kSync("sync", 0, 0, {});

PyObject* sync_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Values values;
  if (!kSync.parse(args, count, names, values)) return nullptr;
  Window* window = open_window(self, "sync");
  if (window == nullptr) return nullptr;
  window->sync();
  Py_RETURN_NONE;
}

}  // namespace

PyMethodDef sync_methods[] = {
    method<flush_method<FlushScope::kRemote, kFlush>>("flush", docs::kFlush),
    method<flush_method<FlushScope::kLocal, kFlushLocal>>("flush_local", docs::kFlushLocal),
    method<flush_all_method<FlushScope::kRemote, kFlushAll>>("flush_all", docs::kFlushAll),
    method<flush_all_method<FlushScope::kLocal, kFlushLocalAll>>("flush_local_all",
                                                                 docs::kFlushLocalAll),
    method<fence_method>("_fence"),
    method<start_method>("_start"),
    method<complete_method>("complete", docs::kComplete),
    method<post_method>("_post"),
    method<wait_exposure_method>("wait", docs::kWait),
    method<test_exposure_method>("test", docs::kTest),
    method<lock_method>("_lock"),
    method<unlock_method>("unlock", docs::kUnlock),
    method<lock_all_method>("_lock_all"),
    method<unlock_all_method>("unlock_all", docs::kUnlockAll),
    method<sync_method>("sync", docs::kSync),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace hixl_rma
