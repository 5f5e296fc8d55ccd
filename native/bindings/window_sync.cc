// SPDX-License-Identifier: Apache-2.0
//
// Synchronisation and flushes. Openers of epochs return a guard.
#include <string>
#include <vector>

#include "bindings/epoch_guard.h"
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

template <class Call>
Status waiting(Window& window, Call&& call) {
  if (window.answers_at_once()) {
    const GilForAGlance kept(window);
    return call();
  }
  const WithoutGil without(window);
  return call();
}

// The bits of MPI's assertions. Absent is 0.
bool parse_assertion(PyObject* object, const char* operation, unsigned* bits) {
  constexpr int kAll = 31;
  *bits = 0;
  if (object == nullptr) return true;
  Integer number;
  if (!parse_integer(object, "assertion", operation, &number)) return false;
  if (number.in(0, kAll)) {
    *bits = static_cast<unsigned>(number.value);
    return true;
  }
  raise_error(
      StatusCode::kInvalidArgument,
      "assertion takes an integer from 0 to " + std::to_string(kAll) + ", not " + text_of(object),
      operation);
  return false;
}

constexpr EpochEnd kFenceAgain{"fence", false, false};
constexpr EpochEnd kCompleteIt{"complete", false, true};
constexpr EpochEnd kWaitForIt{"wait", false, false};
constexpr EpochEnd kUnlockIt{"unlock", true, true};
constexpr EpochEnd kUnlockThem{"unlock_all", false, true};

// The guard of the epoch that a call has opened, or its error.
PyObject* opened(const Status& status, PyObject* self, const EpochEnd& end, const char* operation,
                 int rank = -1) {
  return status.ok() ? make_epoch_guard(self, end, rank) : raise_status(status, operation);
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

constexpr Signature kFence("fence", 0, 1, {"assertion", "timeout"});

PyObject* fence_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return timed_call(
      self, kFence, args, count, names, 1,
      [&](Window& window, const Values& values, const Deadline& deadline) -> PyObject* {
        unsigned assertion = 0;
        if (!parse_assertion(values[0], "fence", &assertion)) return nullptr;
        return opened(waiting(window, [&] { return window.fence(assertion, deadline); }), self,
                      kFenceAgain, "fence");
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

constexpr Signature kStart("start", 1, 2, {"ranks", "assertion", "timeout"});

PyObject* start_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return timed_call(
      self, kStart, args, count, names, 2,
      [&](Window& window, const Values& values, const Deadline& deadline) -> PyObject* {
        unsigned assertion = 0;
        std::vector<int> group;
        if (!parse_assertion(values[1], "start", &assertion) ||
            !parse_group(values[0], window, "start", &group)) {
          return nullptr;
        }
        return opened(waiting(window, [&] { return window.start(group, deadline); }), self,
                      kCompleteIt, "start");
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

constexpr Signature kPost("post", 1, 2, {"ranks", "assertion"});

PyObject* post_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Values values;
  if (!kPost.parse(args, count, names, values)) return nullptr;
  Window* window = open_window(self, "post");
  if (window == nullptr) return nullptr;
  unsigned assertion = 0;
  std::vector<int> group;
  if (!parse_assertion(values[1], "post", &assertion) ||
      !parse_group(values[0], *window, "post", &group)) {
    return nullptr;
  }
  return opened(window->post(group), self, kWaitForIt, "post");
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

constexpr Signature kLock("lock", 1, 1, {"rank", "exclusive", "assertion", "timeout"});

PyObject* lock_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return timed_call(
      self, kLock, args, count, names, 3,
      [&](Window& window, const Values& values, const Deadline& deadline) -> PyObject* {
        int rank = 0;
        bool exclusive = true;
        unsigned assertion = 0;
        if (!parse_assertion(values[2], "lock", &assertion) ||
            !parse_rank(values[0], "rank", window.size(), "lock", &rank) ||
            !parse_bool(values[1], "exclusive", "lock", true, &exclusive)) {
          return nullptr;
        }
        return opened(waiting(window, [&] { return window.lock(rank, exclusive, deadline); }), self,
                      kUnlockIt, "lock", rank);
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

constexpr Signature kLockAll("lock_all", 0, 1, {"assertion", "timeout"});
constexpr Signature kUnlockAll("unlock_all", 0, 0, {"timeout"});

PyObject* lock_all_method(PyObject* self, PyObject* const* args, Py_ssize_t count,
                          PyObject* names) {
  return timed_call(
      self, kLockAll, args, count, names, 1,
      [&](Window& window, const Values& values, const Deadline& deadline) -> PyObject* {
        unsigned assertion = 0;
        if (!parse_assertion(values[0], "lock_all", &assertion)) return nullptr;
        return opened(waiting(window, [&] { return window.lock_all(deadline); }), self, kUnlockThem,
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
    method<fence_method>("fence", docs::kFence),
    method<start_method>("start", docs::kStart),
    method<complete_method>("complete", docs::kComplete),
    method<post_method>("post", docs::kPost),
    method<wait_exposure_method>("wait", docs::kWait),
    method<test_exposure_method>("test", docs::kTest),
    method<lock_method>("lock", docs::kLock),
    method<unlock_method>("unlock", docs::kUnlock),
    method<lock_all_method>("lock_all", docs::kLockAll),
    method<unlock_all_method>("unlock_all", docs::kUnlockAll),
    method<sync_method>("sync", docs::kSync),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace hixl_rma
