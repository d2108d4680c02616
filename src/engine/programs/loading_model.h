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
  Background* background = nullptr;  // for slow work after the load; must outlive the model
  bool autotune = false;             // EngineOptions
  bool allow_plugins = false;        // EngineOptions
  bool serve_texts = false;          // EngineOptions
  std::string device = {};           // EngineOptions
  std::string precision = {};        // EngineOptions
  std::string config_name = {};      // EngineOptions::model_config_name
  // The calls of the engine that will serve the model, which must outlive it; null: there is none.
  ModelCalls* calls = nullptr;
  // Receives the current step of the load and its progress from 0 to 1, if known.
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
  std::filesystem::path path;  // an ONNX file; for a model made of cells, the version's folder
  std::optional<CellManifest> cells = {};
  std::optional<FunctionConfig> function = {};      // for a Python file
  std::optional<PipelineConfig> pipeline = {};      // without a file
  std::optional<CompletionConfig> completion = {};  // without a file
  DeclaredPorts ports = {};  // inputs and outputs that its configuration declares
  RequestRules rules = {};   // of its configuration
  // The user named this Python file on the command line, so it needs no separate permission.
  bool named_by_user = false;
};

// InvalidArgument if it is neither empty nor a ModelConfig::precision.
Status CheckPrecision(const std::string& precision);
// The type that a precision rounds the operands of products to, on the CPU; kUndefined: none.
DType RoundedProducts(const std::string& precision);

struct LoadingModel {
  // Imports the source's file, if there is one.
  static StatusOr<LoadingModel> Read(std::string name, ModelSource source,
                                     const ModelConfig& config, const LoadOptions& load);

  // Each is proved once, on first use, before the graph is moved away.
  const BatchAxisReport& Batching();
  StatusOr<RaggedModel>& Ragged();

  std::string name;
  ModelSource source;
  ModelConfig config;
  LoadOptions load;
  ExecutableOptions executable;
  int64_t opset = 0;
  std::string producer;            // of the file
  std::vector<std::string> notes;  // of the import, for users
  bool widened = false;            // it has float16 and is computed in float32
  // Why it runs as a whole although stages are set; empty: it does not, or none are set.
  std::string not_cut;
  // As imported; empty if the model is made of cells. The maker that accepts the model moves it
  // away.
  Graph graph;

 private:
  std::optional<BatchAxisReport> batching_;
  std::optional<StatusOr<RaggedModel>> ragged_;
};

// Whether the model's settings give the number of stages or the cuts.
inline bool SaysWhereToCut(const ModelConfig& config) {
  return config.stages > 0 || !config.stages_after.empty();
}

// Whether the model's settings are for a model in stages.
inline bool SetsStages(const ModelConfig& config) {
  return SaysWhereToCut(config) || !config.exits.empty() || config.stage_policy != nullptr ||
         !config.stage_plugin.library.empty();
}

// Makes another kind of program serve the model, regardless of its settings about stages.
void ServeUncut(const std::string& why, LoadingModel& model);

// The graph's inputs and outputs.
Signature SignatureOf(const Graph& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_LOADING_MODEL_H_
