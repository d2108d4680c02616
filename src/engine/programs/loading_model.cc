#include "engine/programs/loading_model.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "device/devices.h"
#include "graph/decoders/decoder.h"
#include "graph/lift_batch.h"
#include "graph/onnx/import.h"
#include "graph/rename_ports.h"
#include "graph/widen.h"

namespace chairlift {

namespace {

Status PlaceOn(const ModelConfig& config, LoadingModel& model) {
  std::string name = config.device.empty() ? model.load.device : config.device;
  if (name.empty()) name = "cpu";
  const std::string& precision = config.precision.empty() ? model.load.precision : config.precision;
  CHAIRLIFT_RETURN_IF_ERROR(CheckPrecision(precision));
  CHAIRLIFT_ASSIGN_OR_RETURN(model.executable.device,
                             FindDevice(name, {.tf32 = precision == "tf32"}));
  if (model.executable.device->is_host()) {
    if (precision == "tf32" || precision == "float16") {
      return InvalidArgument(
          "precision '{}' is for GPUs; on the CPU it must be float32, bfloat16 or int8", precision);
    }
    model.executable.round_products_to = RoundedProducts(precision);
    return absl::OkStatus();
  }
  if (precision == "int8") {
    return InvalidArgument(
        "precision 'int8' is for CPUs; on a GPU it must be float32, tf32, float16 or bfloat16");
  }
  if (precision == "float16") model.executable.narrow_to = DType::kFloat16;
  if (precision == "bfloat16") model.executable.narrow_to = DType::kBFloat16;
  // A task in a lane has the device to itself, and CPU measurements do not apply to it.
  model.load.workers = 1;
  model.load.autotune = false;
  return absl::OkStatus();
}

// A decoder's inputs and outputs are those of the requests that it serves, not the file's.
Status Declare(ModelSource& source, Graph& graph) {
  const auto declare = [&] {
    source.ports.filled.insert(source.rules.seeds);
    return Annotate(DeclarePorts(source.ports, graph), "config.pbtxt");
  };
  if (!IsDecoder(graph)) return declare();
  source.rules.max_rows.reset();
  source.rules.output_dims.clear();
  if (!source.ports.Rewrites()) return absl::OkStatus();
  return Unimplemented(
      "config.pbtxt: reshape and batch_input are not supported for a model that generates; its "
      "requests are "
      "prompts");
}

// Opens a batch that the file fixes to 1, as the setting asks.
Status OpenBatch(LoadingModel& model) {
  if (*model.config.batch_dim != 0) {
    return InvalidArgument("batch_dim is {}; it must be 0: requests share the first dimension",
                           *model.config.batch_dim);
  }
  const auto fixes = [&](ValueId id) {
    const SymbolicShape& shape = model.graph.values[static_cast<size_t>(id)].shape;
    return shape.has_rank() && shape.rank() > 0 && shape[0].known();
  };
  if (std::none_of(model.graph.inputs.begin(), model.graph.inputs.end(), fixes)) {
    return absl::OkStatus();
  }
  StatusOr<Graph> lifted = LiftBatch(model.graph);
  if (!lifted.ok()) {
    return InvalidArgument(
        "batch_dim is 0, but the batch that the file fixes cannot be opened: {}; export the model "
        "with an open first dimension (docs/guides/exporting.md)",
        Message(lifted.status()));
  }
  model.graph = *std::move(lifted);
  model.notes.emplace_back("the file fixes the batch to 1; it is opened, as batch_dim says");
  return absl::OkStatus();
}

}  // namespace

Status CheckPrecision(const std::string& precision) {
  for (const char* known : {"", "float32", "tf32", "float16", "bfloat16", "int8"}) {
    if (precision == known) return absl::OkStatus();
  }
  return InvalidArgument("precision is '{}'; it must be float32, tf32, float16, bfloat16 or int8",
                         precision);
}

DType RoundedProducts(const std::string& precision) {
  if (precision == "bfloat16") return DType::kBFloat16;
  return precision == "int8" ? DType::kInt8 : DType::kUndefined;
}

StatusOr<LoadingModel> LoadingModel::Read(std::string name, ModelSource source,
                                          const ModelConfig& config, const LoadOptions& load) {
  LoadingModel model;
  model.name = std::move(name);
  model.source = std::move(source);
  model.config = config;
  model.load = load;
  model.executable.disabled_passes = config.disabled_passes;
  load.Report("reading");
  const ModelSource& from = model.source;
  const bool computes = !from.function && !from.pipeline && !from.completion;
  if (!computes && !config.device.empty()) {
    return InvalidArgument(
        "setting 'device' applies only to ONNX models; set it for the models that this one calls");
  }
  if (!config.tensor_names.empty() && (!computes || from.cells)) {
    return InvalidArgument(
        "tensor_names is set, but the model has no single ONNX file whose inputs it could rename");
  }
  if (config.batch_dim && (!computes || from.cells)) {
    return InvalidArgument(
        "batch_dim is set, but the model has no single ONNX file whose batch it could open");
  }
  if (computes) CHAIRLIFT_RETURN_IF_ERROR(PlaceOn(config, model));
  if (!computes || from.cells) return model;
  CHAIRLIFT_ASSIGN_OR_RETURN(ImportedModel imported, ImportOnnxFile(model.source.path));
  model.opset = imported.opset;
  model.producer = std::move(imported.producer);
  model.notes = std::move(imported.notes);
  model.graph = std::move(imported.graph);
  model.source.rules.seeds = std::move(imported.seeds);
  CHAIRLIFT_RETURN_IF_ERROR(RenamePorts(model.graph, config.tensor_names));
  if (config.batch_dim) {
    CHAIRLIFT_RETURN_IF_ERROR(OpenBatch(model));
  }
  CHAIRLIFT_RETURN_IF_ERROR(Declare(model.source, model.graph));
  if (model.executable.device->is_host() && HasFloat16(model.graph) && !IsDecoder(model.graph)) {
    CHAIRLIFT_RETURN_IF_ERROR(WidenInside(model.graph));
    model.widened = true;
  }
  if (config.interrupted != nullptr && config.interrupted()) {
    return absl::CancelledError("it was interrupted");
  }
  load.Report("compiling");
  return model;
}

const BatchAxisReport& LoadingModel::Batching() {
  if (!batching_) batching_ = AnalyseBatchAxis(graph);
  return *batching_;
}

StatusOr<RaggedModel>& LoadingModel::Ragged() {
  if (!ragged_) ragged_.emplace(MakeRagged(graph));
  return *ragged_;
}

void ServeUncut(const std::string& why, LoadingModel& model) {
  const ModelConfig none;
  ModelConfig& config = model.config;
  model.not_cut = why;
  config.policy.clear();
  config.stages = none.stages;
  config.stages_after = none.stages_after;
  config.stage_policy = none.stage_policy;
  config.stage_plugin = none.stage_plugin;
  config.drop_unused = true;
}

Signature SignatureOf(const Graph& graph) {
  Signature signature;
  signature.inputs = Specs(graph, graph.inputs);
  signature.outputs = Specs(graph, graph.outputs);
  return signature;
}

}  // namespace chairlift
