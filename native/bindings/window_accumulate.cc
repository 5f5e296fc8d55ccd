// SPDX-License-Identifier: Apache-2.0
//
// The accumulate family: element types and operations are named by the arrays and by `op`.
#include <string>

#include "bindings/window_docs.h"
#include "bindings/window_object.h"

namespace hixl_rma {
namespace {

struct AccumulateCall {
  const Signature& signature;
  bool has_result;
  bool single;  // exactly one element
  bool request;
};

bool parse_op(PyObject* object, const char* operation, ReduceOp* op) {
  if (object == nullptr) {
    *op = ReduceOp::kSum;
    return true;
  }
  if (!PyUnicode_Check(object)) {
    raise_error(StatusCode::kInvalidType, "op takes a name, not " + type_name(object), operation);
    return false;
  }
  const std::string name = text_of(object);
  const auto parsed = parse_reduce_op(name);
  if (parsed.has_value()) {
    *op = *parsed;
    return true;
  }
  raise_error(
      StatusCode::kInvalidArgument,
      "op '" + name + "' is none of sum prod min max land lor lxor band bor bxor replace no_op",
      operation);
  return false;
}

bool element_type(const ArrayArgument& array, const char* what, const char* operation,
                  DataType* type) {
  const auto found = array.type();
  if (found.has_value()) {
    *type = *found;
    return true;
  }
  raise_error(StatusCode::kInvalidType,
              std::string(what) + " has elements of format '" + array.format() +
                  "', which no accumulate takes: integers, floats, complex numbers and bool",
              operation);
  return false;
}

bool same_shape(const ArrayArgument& one, const ArrayArgument& other, DataType type, DataType of,
                const char* operation) {
  if (type != of) {
    raise_error(StatusCode::kInvalidType,
                "the arrays must have one element type, not " + std::string(name_of(type)) +
                    " and " + std::string(name_of(of)),
                operation);
    return false;
  }
  if (one.nbytes() == other.nbytes()) return true;
  raise_error(StatusCode::kInvalidArgument,
              "the arrays must have equally many elements, not " + std::to_string(one.count()) +
                  " and " + std::to_string(other.count()),
              operation);
  return false;
}

bool one_element(const ArrayArgument& array, const char* what, const char* operation) {
  if (array.count() == 1) return true;
  raise_error(
      StatusCode::kInvalidArgument,
      std::string(what) + " must have exactly one element, not " + std::to_string(array.count()),
      operation);
  return false;
}

// Origin and result of a call, checked against each other. no_op needs no origin.
struct Operands {
  ArrayArgument origin;
  ArrayArgument result;
  bool has_origin = true;
  ReduceRequest request;

  bool parse(const AccumulateCall& call, const Values& values, const char* operation) {
    if (!parse_op(values[call.has_result ? 4 : 3], operation, &request.op)) return false;
    has_origin = !(call.has_result && values[0] == Py_None && request.op == ReduceOp::kNoOp);
    if (has_origin && (!origin.acquire(values[0], false, "origin", operation) ||
                       !element_type(origin, "origin", operation, &request.type))) {
      return false;
    }
    if (call.has_result) {
      DataType type{};
      if (!result.acquire(values[1], true, "result", operation) ||
          !element_type(result, "result", operation, &type)) {
        return false;
      }
      if (!has_origin) request.type = type;
      if (has_origin && !same_shape(origin, result, request.type, type, operation)) return false;
    }
    return !call.single || one_element(call.has_result ? result : origin, "result", operation);
  }

  [[nodiscard]] OriginArray result_array(bool has_result) const {
    return has_result ? result.array() : OriginArray{nullptr, StridedRuns(0)};
  }
  [[nodiscard]] OriginArray origin_array() const {
    return has_origin ? origin.array() : OriginArray{nullptr, StridedRuns(0)};
  }
  [[nodiscard]] std::size_t nbytes() const { return (has_origin ? origin : result).nbytes(); }
};

PyObject* accumulate_call(PyObject* self, const AccumulateCall& call, PyObject* const* args,
                          Py_ssize_t count, PyObject* names) {
  Values values;
  const char* operation = call.signature.method();
  if (!call.signature.parse(args, count, names, values)) return nullptr;
  Window* window = open_window(self, operation);
  if (window == nullptr) return nullptr;
  const std::size_t at = call.has_result ? 2 : 1;
  TargetArgument target;
  Operands operands;
  if (!target.parse(self, *window, values[at], values[at + 1], operation) ||
      !operands.parse(call, values, operation)) {
    return nullptr;
  }
  Window::Issue issue;
  const auto request = call.request ? make_request(self, target.rank, &issue) : nullptr;
  Status status;
  if (target.huge) {
    status = window->refuse_displacement(target.rank, target.text, operands.nbytes());
  } else {
    status = call_without_gil(*window, operands.nbytes() >= kReleaseGilBytes, [&] {
      return window->accumulate(operands.request, operands.origin_array(),
                                operands.result_array(call.has_result), target.rank, target.place,
                                issue);
    });
  }
  hold_memory(*window, {&operands.origin, &operands.result}, target.rank, issue, request);
  return answer(status, operation, request);
}

constexpr Signature kAccumulate("accumulate", 2, 3, {"origin", "target_rank", "target_disp", "op"});
constexpr Signature kRaccumulate("raccumulate", 2, 3,
                                 {"origin", "target_rank", "target_disp", "op"});
constexpr Signature kGetAccumulate("get_accumulate", 3, 4,
                                   {"origin", "result", "target_rank", "target_disp", "op"});
constexpr Signature kRgetAccumulate("rget_accumulate", 3, 4,
                                    {"origin", "result", "target_rank", "target_disp", "op"});
constexpr Signature kFetchAndOp("fetch_and_op", 3, 4,
                                {"origin", "result", "target_rank", "target_disp", "op"});
const AccumulateCall kAccumulateCall{kAccumulate, false, false, false};
const AccumulateCall kRaccumulateCall{kRaccumulate, false, false, true};
const AccumulateCall kGetAccumulateCall{kGetAccumulate, true, false, false};
const AccumulateCall kRgetAccumulateCall{kRgetAccumulate, true, false, true};
const AccumulateCall kFetchAndOpCall{kFetchAndOp, true, true, false};

template <const AccumulateCall& Call>
PyObject* accumulate_method(PyObject* self, PyObject* const* args, Py_ssize_t count,
                            PyObject* names) {
  return accumulate_call(self, Call, args, count, names);
}

constexpr Signature kSwap("compare_and_swap", 4, 5,
                          {"origin", "compare", "result", "target_rank", "target_disp"});

PyObject* swap_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Values values;
  const char* operation = kSwap.method();
  if (!kSwap.parse(args, count, names, values)) return nullptr;
  Window* window = open_window(self, operation);
  if (window == nullptr) return nullptr;
  TargetArgument target;
  ArrayArgument origin;
  ArrayArgument compare;
  ArrayArgument result;
  DataType type{};
  DataType compare_type{};
  DataType result_type{};
  if (!target.parse(self, *window, values[3], values[4], operation) ||
      !origin.acquire(values[0], false, "origin", operation) ||
      !compare.acquire(values[1], false, "compare", operation) ||
      !result.acquire(values[2], true, "result", operation) ||
      !element_type(origin, "origin", operation, &type) ||
      !element_type(compare, "compare", operation, &compare_type) ||
      !element_type(result, "result", operation, &result_type) ||
      !same_shape(origin, compare, type, compare_type, operation) ||
      !same_shape(origin, result, type, result_type, operation) ||
      !one_element(origin, "origin", operation)) {
    return nullptr;
  }
  if (target.place.layout != nullptr) {
    raise_error(StatusCode::kInvalidArgument, "compare_and_swap takes a displacement", operation);
    return nullptr;
  }
  if (target.huge) {
    return answer(window->refuse_displacement(target.rank, target.text, origin.nbytes()),
                  operation);
  }
  Window::Issue issue;
  Status status = window->compare_and_swap(type, origin.data(), compare.data(), result.data(),
                                           target.rank, target.place.displacement, issue);
  hold_memory(*window, {&origin, &compare, &result}, target.rank, issue, nullptr);
  return answer(status, operation);
}

}  // namespace

PyMethodDef accumulate_methods[] = {
    method<accumulate_method<kAccumulateCall>>("accumulate", docs::kAccumulate),
    method<accumulate_method<kRaccumulateCall>>("_raccumulate"),
    method<accumulate_method<kGetAccumulateCall>>("get_accumulate", docs::kGetAccumulate),
    method<accumulate_method<kRgetAccumulateCall>>("_rget_accumulate"),
    method<accumulate_method<kFetchAndOpCall>>("fetch_and_op", docs::kFetchAndOp),
    method<swap_method>("compare_and_swap", docs::kCompareAndSwap),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace hixl_rma
