// SPDX-License-Identifier: Apache-2.0
#include "bindings/epoch_guard.h"

#include "bindings/errors.h"

namespace hixl_rma {
namespace {

struct EpochGuard {
  PyObject_HEAD PyObject* window;
  const EpochEnd* end;
  int rank;
};

PyTypeObject* guard_type = nullptr;

EpochGuard* as_guard(PyObject* self) { return reinterpret_cast<EpochGuard*>(self); }

// By the name of the method, so that a subclass of Window has its say.
bool close_epoch(const EpochGuard& guard) {
  PyObject* result = guard.end->takes_rank
                         ? PyObject_CallMethod(guard.window, guard.end->method, "i", guard.rank)
                         : PyObject_CallMethod(guard.window, guard.end->method, nullptr);
  Py_XDECREF(result);
  return result != nullptr;
}

PyObject* enter(PyObject* self, PyObject*) {
  Py_INCREF(self);
  return self;
}

// An error of the body is never replaced by one of the end.
PyObject* exit(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  if (count != 3) {
    PyErr_SetString(PyExc_TypeError, "__exit__ takes 3 arguments");
    return nullptr;
  }
  const EpochGuard& guard = *as_guard(self);
  if (args[1] == Py_None) {
    if (!close_epoch(guard)) return nullptr;
  } else if (guard.end->after_error && !close_epoch(guard)) {
    if (!log_rma_error("closing an epoch after an error failed too")) return nullptr;
  }
  Py_RETURN_NONE;
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_guard(self)->window);
  return 0;
}

int clear(PyObject* self) {
  Py_CLEAR(as_guard(self)->window);
  return 0;
}

void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  clear(self);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

}  // namespace

PyObject* make_epoch_guard(PyObject* window, const EpochEnd& end, int rank) {
  auto* guard = PyObject_GC_New(EpochGuard, guard_type);
  if (guard == nullptr) return nullptr;
  Py_INCREF(window);
  guard->window = window;
  guard->end = &end;
  guard->rank = rank;
  PyObject_GC_Track(reinterpret_cast<PyObject*>(guard));
  return reinterpret_cast<PyObject*>(guard);
}

bool init_epoch_guard(PyObject* module) {
  static PyMethodDef methods[] = {
      {"__enter__", enter, METH_NOARGS, "Return the guard: the opener has acted already."},
      {"__exit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(exit)), METH_FASTCALL,
       "End the epoch; an error of the body is never replaced by one of the end."},
      {nullptr, nullptr, 0, nullptr},
  };
  static PyType_Slot slots[] = {
      {Py_tp_doc,
       const_cast<char*>("Closes an epoch at the end of a `with` body. Without `with` it does "
                         "nothing.")},
      {Py_tp_methods, methods},
      {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
      {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(clear)},
      {0, nullptr},
  };
  static PyType_Spec spec = {
      "hixl_rma.EpochGuard", sizeof(EpochGuard), 0,
      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  guard_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return guard_type != nullptr &&
         PyModule_AddObjectRef(module, "EpochGuard", reinterpret_cast<PyObject*>(guard_type)) == 0;
}

}  // namespace hixl_rma
