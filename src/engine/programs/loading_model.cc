#include "engine/programs/loading_model.h"

#include <utility>

#include "base/status.h"
#include "graph/onnx/import.h"

namespace chairlift {

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
  if (from.cells || from.function || from.pipeline || from.completion) return model;
  CHAIRLIFT_ASSIGN_OR_RETURN(ImportedModel imported, ImportOnnxFile(model.source.path));
  model.opset = imported.opset;
  model.producer = std::move(imported.producer);
  model.graph = std::move(imported.graph);
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
