// A model that is being loaded, as the makers of programs see it.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_LOADING_MODEL_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_LOADING_MODEL_H_

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/background.h"
#include "chairlift/engine.h"
#include "engine/costs/measure.h"
#include "engine/programs/cells/cell_manifest.h"
#include "engine/programs/completing/completion_config.h"
#include "engine/programs/model_calls.h"
#include "engine/programs/pipeline/pipeline_config.h"
#include "engine/programs/process/function_config.h"
#include "engine/requests/request_rules.h"
#include "engine/requests/validate.h"
#include "graph/batch_axis.h"
#include "graph/ir.h"
#include "graph/ports/declared_ports.h"
#include "graph/ragged/ragged.h"
#include "runtime/executable.h"

namespace chairlift {

struct LoadOptions {
  int workers = 1;
  Background* background = nullptr;  // for what may take long later on; must outlive the model
  bool time_cells = false;           // EngineOptions
  bool allow_plugins = false;        // EngineOptions
  bool serve_texts = false;          // EngineOptions
  std::string device = {};           // EngineOptions
  std::string config_name = {};      // EngineOptions::model_config_name
  // Of the engine that is to serve the model, which it must outlive; null: there is none.
  ModelCalls* calls = nullptr;
  // Called with what the load is at and how far that has come, from 0 to 1, where it is known.
  std::function<void(const char* step, double done)> progress = nullptr;

  void Report(const char* step, double done = 0) const {
    if (progress != nullptr) progress(step, done);
  }
  TimingProgress ReportTiming() const {
    return [this](double done) { Report("timing batches", done); };
  }
};

// What a model is made from.
struct ModelSource {
  std::filesystem::path path;  // an ONNX file; of a model made of cells, the version's folder
  std::optional<CellManifest> cells = {};
  std::optional<FunctionConfig> function = {};      // of the file, which is Python then
  std::optional<PipelineConfig> pipeline = {};      // there is no file then
  std::optional<CompletionConfig> completion = {};  // likewise
  DeclaredPorts ports = {};  // what a configuration says of its inputs and outputs,
  RequestRules rules = {};   // and of its requests
  // Whoever started the program named the function, and need not allow it apart.
  bool named_by_user = false;
};

struct LoadingModel {
  // Imports the source's file, where it is one.
  static StatusOr<LoadingModel> Read(std::string name, ModelSource source,
                                     const ModelConfig& config, const LoadOptions& load);

  // Each is proved once, when it is first asked for: before the graph is moved away.
  const BatchAxisReport& Batching();
  StatusOr<RaggedModel>& Ragged();

  std::string name;
  ModelSource source;
  ModelConfig config;
  LoadOptions load;
  ExecutableOptions executable;
  int64_t opset = 0;
  std::string producer;  // of the file
  bool widened = false;  // it has float16, and is computed in float32
  // Why it is served as a whole though stages are set; empty: it is not, or none are.
  std::string not_cut;
  // As it was imported; empty where the model is made of cells. The maker that accepts the model
  // moves it away.
  Graph graph;

 private:
  std::optional<BatchAxisReport> batching_;
  std::optional<StatusOr<RaggedModel>> ragged_;
};

// Whether the model's settings say into how many stages it is cut, or where.
inline bool SaysWhereToCut(const ModelConfig& config) {
  return config.stages > 0 || !config.stages_after.empty();
}

// Whether the model's settings are for a model in stages.
inline bool SetsStages(const ModelConfig& config) {
  return SaysWhereToCut(config) || !config.exits.empty() || config.stage_policy != nullptr ||
         !config.stage_plugin.library.empty();
}

// Has the model served by another kind of program, whatever its settings say of stages.
void ServeUncut(const std::string& why, LoadingModel& model);

// The graph's inputs and outputs.
Signature SignatureOf(const Graph& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_LOADING_MODEL_H_
