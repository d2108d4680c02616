// The module chairlift._core. Users call python/chairlift/_model.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/version.h"
#include "chairlift/engine.h"
#include "cli/model_path.h"
#include "cli/terminal.h"
#include "python/errors.h"
#include "python/events.h"
#include "python/model.h"
#include "python/unfolder.h"
#include "tensor/buffer_pool.h"
#include "tensor/dtype.h"

namespace nb = nanobind;

namespace chairlift::python {
namespace {

// (name, type, dimensions) of each; a varying dimension is None.
nb::list SpecsOf(const std::vector<TensorSpec>& specs) {
  nb::list list;
  for (const TensorSpec& spec : specs) {
    nb::list dims;
    for (const int64_t dim : spec.shape) {
      dims.append(dim < 0 ? nb::none() : nb::object(nb::int_(dim)));
    }
    list.append(nb::make_tuple(spec.name, std::string(DTypeName(spec.dtype)), nb::tuple(dims)));
  }
  return list;
}

std::shared_ptr<EngineHandle> MakeEngine(int workers, const std::vector<int>& cores,
                                         int64_t memory_budget, int max_requests, bool autotune) {
  return std::make_shared<EngineHandle>(EngineOptions{.workers = workers,
                                                      .cores = cores,
                                                      .memory_budget = memory_budget,
                                                      .max_requests = max_requests,
                                                      .autotune = autotune});
}

}  // namespace
}  // namespace chairlift::python

NB_MODULE(_core, module) {
  using chairlift::python::Check;
  using chairlift::python::EngineHandle;
  using chairlift::python::Events;
  using chairlift::python::LoadedModel;
  using chairlift::python::PendingRequest;
  // At exit other threads may hold our objects; the interpreter's own shutdown frees nothing.
  nb::set_leak_warnings(false);
  // Standard output belongs to the program.
  spdlog::set_default_logger(spdlog::stderr_color_mt("chairlift"));
  module.attr("version") = nb::str(chairlift::Version().data(), chairlift::Version().size());
  chairlift::LogWhatIsPrintable();
  // Created before there are other threads, so that it exists in a child of fork().
  (void)chairlift::BufferPool::Default();

  module.def("run_events", [] { return Events::Own().Run(); });
  module.def("close_events", [] { Events::Own().Close(); });
  module.def("models_in", [](const std::string& folder) {
    Check(chairlift::CheckRepository(folder));
    nb::dict models;
    for (const std::string& name : chairlift::ModelsIn(folder)) {
      const auto found =
          chairlift::FindModel((std::filesystem::path(folder) / name).string(), true);
      models[nb::str(name.c_str())] =
          found.ok() ? chairlift::NamedModels(*found) : std::vector<std::string>();
    }
    return models;
  });

  nb::class_<EngineHandle>(module, "Engine", nb::is_weak_referenceable())
      .def(nb::new_(&chairlift::python::MakeEngine), nb::kw_only(), nb::arg("workers"),
           nb::arg("cores"), nb::arg("memory_budget"), nb::arg("max_requests"), nb::arg("autotune"))
      .def("close", &EngineHandle::Close)
      .def_prop_ro("workers", [](const EngineHandle& self) { return self.Get()->workers(); });

  chairlift::python::AddCells(module);

  nb::class_<PendingRequest>(module, "Request")
      .def("cancel", &PendingRequest::Cancel)
      .def("read", &PendingRequest::Read);

  nb::class_<LoadedModel>(module, "Model")
      .def(nb::init<std::shared_ptr<EngineHandle>, const std::string&, const nb::dict&, bool,
                    nb::handle, nb::object>(),
           nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none())
      .def("infer", &LoadedModel::Infer, nb::arg(), nb::arg().none(), nb::arg().none())
      .def("infer_many", &LoadedModel::InferMany, nb::arg(), nb::arg().none(), nb::arg().none())
      .def("start", &LoadedModel::Start, nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg(),
           nb::arg().none())
      .def("texts", &LoadedModel::Texts)
      .def("stats", &LoadedModel::Statistics)
      .def("unload", &LoadedModel::Unload)
      .def_prop_ro("name", [](const LoadedModel& self) { return self.metadata().name; })
      .def_prop_ro("version", [](const LoadedModel& self) { return self.metadata().version; })
      .def_prop_ro("diagnosis", [](const LoadedModel& self) { return self.metadata().diagnosis; })
      .def_prop_ro("inputs",
                   [](const LoadedModel& self) {
                     return chairlift::python::SpecsOf(self.metadata().inputs);
                   })
      .def_prop_ro("outputs", [](const LoadedModel& self) {
        return chairlift::python::SpecsOf(self.metadata().outputs);
      });
}
