// SPDX-License-Identifier: Apache-2.0
//
// put, get, accumulate and their relatives: arguments to native calls. One function for each shape
// of call serves the plain, the request and the notifying form.
#include <cstring>
#include <string>

#include "bindings/notify_arguments.h"
#include "bindings/window_docs.h"
#include "bindings/window_object.h"

namespace hixl_rma {
namespace {

enum class Form { kPlain, kRequest };

// ---- put and get

struct Transfer {
  const Signature& signature;
  bool put;
  Form form;
  bool notifies;
};

Status run_transfer(Window& window, const Transfer& transfer, const ArrayArgument& origin,
                    const TargetArgument& target, Window::Issue& issue) {
  if (target.huge) return window.refuse_displacement(target.rank, target.text, origin.nbytes());
  const bool release = origin.nbytes() >= kReleaseGilBytes;
  if (origin.contiguous() && target.place.layout == nullptr) {
    return call_without_gil(window, release, [&] {
      return transfer.put ? window.put(origin.data(), origin.nbytes(), target.rank,
                                       target.place.displacement, issue)
                          : window.get(origin.data(), origin.nbytes(), target.rank,
                                       target.place.displacement, issue);
    });
  }
  return call_without_gil(window, release, [&] {
    return transfer.put ? window.put_array(origin.array(), target.rank, target.place, issue)
                        : window.get_array(origin.array(), target.rank, target.place, issue);
  });
}

PyObject* transfer_call(PyObject* self, const Transfer& transfer, PyObject* const* args,
                        Py_ssize_t count, PyObject* names) {
  Values values;
  const char* operation = transfer.signature.method();
  if (!transfer.signature.parse(args, count, names, values)) return nullptr;
  Window* window = open_window(self, operation);
  if (window == nullptr) return nullptr;
  TargetArgument target;
  NotifySpec spec;
  ArrayArgument origin;
  if (!target.parse(self, *window, values[1], values[2], operation) ||
      (transfer.notifies && !parse_notify_spec(&values[3], *window, operation, &spec)) ||
      !origin.acquire(values[0], !transfer.put, "origin", operation)) {
    return nullptr;
  }
  Window::Issue issue;
  const auto request =
      transfer.form == Form::kRequest ? make_request(self, target.rank, &issue) : nullptr;
  Status status;
  if (transfer.notifies) status = window->check_notify(target.rank, spec);
  if (status.ok()) status = run_transfer(*window, transfer, origin, target, issue);
  if (request == nullptr) hold_memory(*window, {&origin}, target.rank, issue, nullptr);
  if (status.ok() && transfer.notifies) status = publish(self, target.rank, spec, issue);
  // Behind the notification, which may be part of what the request waits for.
  if (request != nullptr) hold_memory(*window, {&origin}, target.rank, issue, request);
  return answer(status, operation, request);
}

constexpr Signature kPut("put", 2, 3, {"origin", "target_rank", "target_disp"});
constexpr Signature kGet("get", 2, 3, {"origin", "target_rank", "target_disp"});
constexpr Signature kRput("rput", 2, 3, {"origin", "target_rank", "target_disp"});
constexpr Signature kRget("rget", 2, 3, {"origin", "target_rank", "target_disp"});
constexpr Signature kPutNotify("put_notify", 2, 3,
                               {"origin", "target_rank", "target_disp", "notification", "value",
                                "order"},
                               3);
constexpr Signature kRputNotify("rput_notify", 2, 3,
                                {"origin", "target_rank", "target_disp", "notification", "value",
                                 "order"},
                                3);
constexpr Signature kGetNotify("get_notify", 2, 3,
                               {"origin", "target_rank", "target_disp", "notification", "value",
                                "order"},
                               3);

const Transfer kPutCall{kPut, true, Form::kPlain, false};
const Transfer kGetCall{kGet, false, Form::kPlain, false};
const Transfer kRputCall{kRput, true, Form::kRequest, false};
const Transfer kRgetCall{kRget, false, Form::kRequest, false};
const Transfer kPutNotifyCall{kPutNotify, true, Form::kPlain, true};
const Transfer kRputNotifyCall{kRputNotify, true, Form::kRequest, true};
const Transfer kGetNotifyCall{kGetNotify, false, Form::kPlain, true};

template <const Transfer& Call>
PyObject* transfer_method(PyObject* self, PyObject* const* args, Py_ssize_t count,
                          PyObject* names) {
  return transfer_call(self, Call, args, count, names);
}

// ---- put_v and get_v

struct VectorCall {
  const Signature& signature;
  bool put;
  bool notifies;
};

// Everything a call with a list of (origin, displacement) works with.
class VectorArguments {
 public:
  /// Reads the arguments. Errors: ArgumentError, ArgumentTypeError, ReadOnlyBufferError.
  bool parse(PyObject* ops, bool writable, const char* operation);
  /// Turns displacements into byte offsets at the target, each checked, before any byte moves.
  Status locate(Window& window, int rank);

  std::vector<Piece> pieces;
  std::vector<std::unique_ptr<ArrayArgument>> origins;

 private:
  bool parse_rows(PyObject* ops, const char* operation, bool* taken);
  bool parse_entry(PyObject* entry, bool writable, const char* operation);

  std::vector<std::uint64_t> displacements_;  // of the origins
  std::string huge_;                          // one that is no unsigned 64-bit number
  std::size_t huge_bytes_ = 0;
};

bool VectorArguments::parse_rows(PyObject* ops, const char* operation, bool* taken) {
  *taken = false;
  if (PyList_Check(ops) || PyTuple_Check(ops) || !PyObject_CheckBuffer(ops)) return true;
  *taken = true;
  Py_buffer view;
  if (PyObject_GetBuffer(ops, &view, PyBUF_RECORDS_RO) != 0) return false;
  const char* format = view.format == nullptr ? "B" : view.format;
  const bool shaped =
      view.ndim == 2 && view.shape[1] == 3 && PyBuffer_IsContiguous(&view, 'C') != 0;
  const bool unsigned_words = view.itemsize == 8 && format[0] != '>' && format[0] != '!' &&
                              std::strchr("LQN", format[std::strlen(format) - 1]) != nullptr;
  const Py_ssize_t n = view.ndim == 2 ? view.shape[0] : 0;
  PyBuffer_Release(&view);
  if (!shaped || !unsigned_words) {
    raise_error(unsigned_words ? StatusCode::kInvalidArgument : StatusCode::kInvalidType,
                "ops takes a list of (origin, target_disp) or a C-contiguous N x 3 array of uint64 "
                "(address, displacement, bytes)",
                operation);
    return false;
  }
  ArrayArgument rows;
  if (!rows.acquire(ops, false, "ops", operation)) return false;
  const auto* words = reinterpret_cast<const std::uint64_t*>(rows.data());
  pieces.reserve(static_cast<std::size_t>(n));
  for (Py_ssize_t i = 0; i < n; ++i, words += 3) {
    pieces.push_back({reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(words[0])), words[1],
                      static_cast<std::size_t>(words[2])});
  }
  return true;
}

bool VectorArguments::parse_entry(PyObject* entry, bool writable, const char* operation) {
  PyObject* pair =
      PyTuple_Check(entry) || PyList_Check(entry) ? PySequence_Fast(entry, "") : nullptr;
  if (pair == nullptr || PySequence_Fast_GET_SIZE(pair) != 2) {
    const bool sequence = pair != nullptr;
    Py_XDECREF(pair);
    raise_error(sequence ? StatusCode::kInvalidArgument : StatusCode::kInvalidType,
                "each of ops is a pair (origin, target_disp), not " + type_name(entry), operation);
    return false;
  }
  auto origin = std::make_unique<ArrayArgument>();
  Integer displacement;
  PyObject* number = PySequence_Fast_GET_ITEM(pair, 1);
  const bool parsed =
      parse_integer(number, "target_disp", operation, &displacement) &&
      origin->acquire(PySequence_Fast_GET_ITEM(pair, 0), writable, "origin", operation);
  if (parsed && (displacement.negative || !displacement.fits) && huge_.empty()) {
    huge_ = text_of(number);
    huge_bytes_ = origin->nbytes();
  }
  Py_DECREF(pair);
  if (!parsed) return false;
  displacements_.push_back(displacement.magnitude);
  origins.push_back(std::move(origin));
  return true;
}

bool VectorArguments::parse(PyObject* ops, bool writable, const char* operation) {
  bool taken = false;
  if (!parse_rows(ops, operation, &taken)) return false;
  if (taken) return true;
  if (PyUnicode_Check(ops) || PyDict_Check(ops) || !PySequence_Check(ops)) {
    raise_error(StatusCode::kInvalidType,
                "ops takes a list of (origin, target_disp) or an N x 3 array of uint64, not " +
                    type_name(ops),
                operation);
    return false;
  }
  PyObject* list = PySequence_Fast(ops, "ops is not a sequence");
  if (list == nullptr) return false;
  bool parsed = true;
  for (Py_ssize_t i = 0; parsed && i < PySequence_Fast_GET_SIZE(list); ++i) {
    parsed = parse_entry(PySequence_Fast_GET_ITEM(list, i), writable, operation);
  }
  Py_DECREF(list);
  return parsed;
}

Status VectorArguments::locate(Window& window, int rank) {
  if (!huge_.empty()) return window.refuse_displacement(rank, huge_, huge_bytes_);
  for (Piece& piece : pieces) {
    if (Status status = window.locate(rank, piece.offset, piece.nbytes, &piece.offset);
        !status.ok()) {
      return status;
    }
  }
  for (std::size_t i = 0; i < origins.size(); ++i) {
    OriginArray array = origins[i]->array();
    std::uint64_t at = 0;
    if (Status status = window.locate(rank, displacements_[i], origins[i]->nbytes(), &at);
        !status.ok()) {
      return status;
    }
    while (!array.runs.finished()) {
      const std::size_t run = array.runs.run_left();
      pieces.push_back({array.base + array.runs.position(), at, run});
      array.runs.advance(run);
      at += run;
    }
  }
  return {};
}

PyObject* vector_call(PyObject* self, const VectorCall& call, PyObject* const* args,
                      Py_ssize_t count, PyObject* names) {
  Values values;
  const char* operation = call.signature.method();
  if (!call.signature.parse(args, count, names, values)) return nullptr;
  Window* window = open_window(self, operation);
  if (window == nullptr) return nullptr;
  int rank = 0;
  NotifySpec spec;
  VectorArguments vector;
  if (!parse_rank(values[1], "target_rank", window->size(), operation, &rank) ||
      (call.notifies && !parse_notify_spec(&values[2], *window, operation, &spec)) ||
      !vector.parse(values[0], !call.put, operation)) {
    return nullptr;
  }
  Status status = call.notifies ? window->check_notify(rank, spec) : window->access(rank);
  if (status.ok()) status = vector.locate(*window, rank);
  Window::Issue issue;
  if (status.ok()) {
    std::size_t total = 0;
    for (const Piece& piece : vector.pieces) total += std::min(piece.nbytes, kReleaseGilBytes);
    status = call_without_gil(*window, total >= kReleaseGilBytes, [&] {
      return call.put ? window->put_pieces(std::move(vector.pieces), rank, issue)
                      : window->get_pieces(std::move(vector.pieces), rank, issue);
    });
  }
  for (const auto& origin : vector.origins)
    hold_memory(*window, {origin.get()}, rank, issue, nullptr);
  if (status.ok() && call.notifies) status = publish(self, rank, spec, issue);
  return answer(status, operation);
}

constexpr Signature kPutV("put_v", 2, 2, {"ops", "target_rank"});
constexpr Signature kGetV("get_v", 2, 2, {"ops", "target_rank"});
constexpr Signature kPutNotifyV("put_notify_v", 2, 2,
                                {"ops", "target_rank", "notification", "value", "order"}, 2);
const VectorCall kPutVCall{kPutV, true, false};
const VectorCall kGetVCall{kGetV, false, false};
const VectorCall kPutNotifyVCall{kPutNotifyV, true, true};

template <const VectorCall& Call>
PyObject* vector_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return vector_call(self, Call, args, count, names);
}

}  // namespace

PyMethodDef operation_methods[] = {
    method<transfer_method<kPutCall>>("put", docs::kPut),
    method<transfer_method<kGetCall>>("get", docs::kGet),
    method<transfer_method<kRputCall>>("_rput"),
    method<transfer_method<kRgetCall>>("_rget"),
    method<transfer_method<kPutNotifyCall>>("put_notify", docs::kPutNotify),
    method<transfer_method<kRputNotifyCall>>("_rput_notify"),
    method<transfer_method<kGetNotifyCall>>("get_notify", docs::kGetNotify),
    method<vector_method<kPutVCall>>("put_v", docs::kPutV),
    method<vector_method<kGetVCall>>("get_v", docs::kGetV),
    method<vector_method<kPutNotifyVCall>>("put_notify_v", docs::kPutNotifyV),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace hixl_rma
