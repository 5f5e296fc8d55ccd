// SPDX-License-Identifier: Apache-2.0
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <tuple>

#include "base/log.h"
#include "bindings/epoch_guard.h"
#include "bindings/window_object.h"

namespace py = pybind11;

namespace hixl_rma {
namespace {

[[noreturn]] void throw_status(const Status& status, const char* operation) {
  raise_status(status, operation);
  throw py::error_already_set();
}

std::shared_ptr<Engine> make_engine(std::vector<std::string> data_transports) {
  EngineOptions options;
  options.data_transports = std::move(data_transports);
  Result<std::shared_ptr<Engine>> engine(Status{});
  {
    const py::gil_scoped_release release;
    engine = Engine::create(options);
  }
  if (!engine.ok()) throw_status(engine.status(), "engine");
  return engine.take();
}

std::vector<std::tuple<std::string, bool, std::string>> reports_of(const Engine& engine) {
  std::vector<std::tuple<std::string, bool, std::string>> reports;
  for (const TransportReport& report : engine.reports()) {
    reports.emplace_back(report.name, report.viable, report.reason);
  }
  return reports;
}

std::vector<std::tuple<std::string, std::string>> drain_log() {
  std::vector<std::tuple<std::string, std::string>> lines;
  for (auto& [level, text] : take_log()) {
    const char* name = level == LogLevel::kDebug  ? "debug"
                       : level == LogLevel::kInfo ? "info"
                                                  : "warning";
    lines.emplace_back(name, std::move(text));
  }
  return lines;
}

bool wait_request(RequestState& request, std::optional<double> timeout) {
  RequestWork& work = *request.work;
  Status status;
  const bool done = work.completion.done();
  if (!done && request.window->closed()) {
    throw_status(Status::error(StatusCode::kClosed, "the window was freed"), "wait");
  }
  if (!done) {
    const WithoutGil without(*request.window);
    status = request.window->wait(work.completion, Deadline::after_seconds(timeout.value_or(-1)),
                                  request.target);
  }
  if (!work.completion.done()) throw_status(status, "wait");
  work.held.clear();
  if (Status result = request.window->outcome(work.completion); !result.ok())
    throw_status(result, "wait");
  return true;
}

}  // namespace

PyObject* wrap_request(const std::shared_ptr<RequestState>& state) {
  try {
    return py::cast(state).release().ptr();
  } catch (py::error_already_set& error) {
    error.restore();
    return nullptr;
  }
}

PYBIND11_MODULE(_core, module) {
  module.doc() = "Native engine of hixl_rma. Imported by hixl_rma._native alone.";
  module.attr("wire_version") = 1;
  py::class_<Engine, std::shared_ptr<Engine>>(module, "Engine", "The transports of this process.")
      .def(py::init(&make_engine), py::arg("data_transports"))
      .def("reports", &reports_of, "(name, viable, reason) of each transport.");
  py::class_<RequestState, std::shared_ptr<RequestState>>(module, "Request", "A native operation.")
      .def(
          "test",
          [](RequestState& request) {
            if (!request.window->closed()) request.window->progress();
            return request.work->completion.done();
          },
          "Make progress and say whether it is complete.")
      .def_property_readonly(
          "done", [](const RequestState& request) { return request.work->completion.done(); })
      .def("wait", &wait_request, py::arg("timeout"),
           "Wait until it is complete; raise what went wrong.");
  module.def(
      "register_error_classes",
      [](const py::dict& classes) { return register_error_classes(classes.ptr()); },
      py::arg("classes"), "Give the exception class of each status code.");
  module.def(
      "set_buffer_converter",
      [](const py::object& function) { set_buffer_converter(function.ptr()); }, py::arg("function"),
      "Give the function that finds a buffer in objects without one.");
  module.def("drain_log", &drain_log, "Take the (level, text) lines that native code left.");
  find_array_type();
  PyObject* type = make_window_type();
  if (type == nullptr || PyModule_AddObject(module.ptr(), "Window", type) != 0 ||
      !init_notification_type(module.ptr()) || !init_epoch_guard(module.ptr())) {
    throw py::error_already_set();
  }
}

}  // namespace hixl_rma
