// A model made of other models, as described by `steps` of its model.yaml
// (docs/guides/pipelines.md).
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_PIPELINE_CONFIG_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_PIPELINE_CONFIG_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/setting_info.h"
#include "base/yaml_value.h"
#include "chairlift/status.h"
#include "graph/ports/declared_ports.h"

namespace chairlift {

// Per pipeline, including the pipelines in it.
inline constexpr int kMaxPipelineSteps = 64;

struct StepConfig {
  std::string model;
  std::map<std::string, std::string> inputs = {};   // name in the model → name that it reads
  std::map<std::string, std::string> outputs = {};  // name in the model → name of the result
  std::string version = {};                         // empty: the latest
};

// How the vectors of a text's tokens are combined into one.
enum class Pooling {
  kCls,           // the first token
  kMax,           // the maximum of each component
  kMean,          // the sum divided by the number of tokens
  kMeanSqrtLen,   // the sum divided by the square root of the number
  kWeightedMean,  // the n-th token has weight n
  kLast,          // the last token
};

// For a text pipeline: one of its outputs as one vector per text.
struct EmbeddingConfig {
  std::string from;  // the output
  // Several: their vectors are concatenated. None: the model outputs one vector per text.
  std::vector<Pooling> pooling = {};
  bool normalize = true;  // to length 1
};

// For a text pipeline: one of its outputs, [rows, classes], as one score per class.
struct ClassesConfig {
  std::string from;                 // the output with logits
  std::vector<std::string> labels;  // by class
  bool several = false;             // several classes may apply: sigmoids instead of a softmax
};

struct PipelineConfig {
  std::vector<StepConfig> steps;
  std::vector<std::string> inputs = {};   // of a request; empty: those that no step computes
  std::vector<std::string> outputs = {};  // of the answer; empty: those of the last step
  // The answer has two outputs instead of `from`: "embedding", and "pooled", which is not
  // normalised. Not settable in model.yaml.
  std::optional<EmbeddingConfig> embedding = {};
  // The answer has an output "scores" in addition to `from`. Not settable in model.yaml.
  std::optional<ClassesConfig> classes = {};
  // The steps' maps contain all their inputs and outputs; others are not passed. Not settable in
  // model.yaml, nor is what is declared about the pipeline's own inputs and outputs.
  bool all_named = false;
  DeclaredPorts ports = {};
  int max_rows = 0;  // of a request; 0: not declared
};

// Reads `steps`, `inputs` and `outputs` of a model.yaml; nothing if it has no `steps`.
// InvalidArgument if it also has settings that a pipeline does not use.
StatusOr<std::optional<PipelineConfig>> ReadPipelineConfig(const YamlValue& settings);
// The documentation of these settings.
std::vector<SettingInfo> PipelineSettingInfos();
// Whether `name` is a setting of all models that a pipeline may have, too.
bool IsPipelineOption(const std::string& name);

// "step 2 (minilm)", for messages; `index` counts from 0.
std::string StepName(const PipelineConfig& config, size_t index);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_PIPELINE_CONFIG_H_
