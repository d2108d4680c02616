// A model made of other models, as the `steps` of its model.yaml say it (docs/guides/pipelines.md).
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_PIPELINE_CONFIG_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_PIPELINE_CONFIG_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/yaml_value.h"
#include "chairlift/status.h"
#include "graph/ports/declared_ports.h"

namespace chairlift {

// Of a pipeline, those of the pipelines in it included.
inline constexpr int kMaxPipelineSteps = 64;

struct StepConfig {
  std::string model;
  std::map<std::string, std::string> inputs = {};   // of the model → the name it reads
  std::map<std::string, std::string> outputs = {};  // of the model → the name it gives
  std::string version = {};                         // empty: the latest
};

// How the vectors of a text's tokens become one.
enum class Pooling {
  kCls,           // that of the first token
  kMax,           // the largest of each component
  kMean,          // their sum divided by their number
  kMeanSqrtLen,   // or by its square root
  kWeightedMean,  // the n-th counts n times
  kLast,          // that of the last token
};

// Of a pipeline of texts: one of its outputs as a vector for each of them.
struct EmbeddingConfig {
  std::string from;  // the output
  // Several: their vectors one behind the other. None: the model gives a vector for each text.
  std::vector<Pooling> pooling = {};
  bool normalize = true;  // to length 1
};

// Of a pipeline of texts: one of its outputs, [rows, classes], as a score for each class.
struct ClassesConfig {
  std::string from;                 // the output: logits
  std::vector<std::string> labels;  // by class
  bool several = false;             // may hold at once: each has a sigmoid, in place of a softmax
};

struct PipelineConfig {
  std::vector<StepConfig> steps;
  std::vector<std::string> inputs = {};   // that a request brings; empty: what no step gives
  std::vector<std::string> outputs = {};  // of the answer; empty: those of the last step
  // Its answer has two outputs in place of `from`: "embedding", and "pooled", which is not
  // normalised. Not settable in model.yaml.
  std::optional<EmbeddingConfig> embedding = {};
  // Its answer has an output "scores" beside `from`. Likewise.
  std::optional<ClassesConfig> classes = {};
  // The steps' maps name all that they read and give; what they leave out is not given. Not
  // settable in model.yaml; likewise what is declared of the pipeline's own inputs and outputs.
  bool all_named = false;
  DeclaredPorts ports = {};
};

// `steps`, `inputs` and `outputs` of a model.yaml; nothing where it has no `steps`.
// InvalidArgument where it has settings beside them that a pipeline does not use.
StatusOr<std::optional<PipelineConfig>> ReadPipelineConfig(const YamlValue& settings);
// Their names.
std::vector<std::string> PipelineSettingNames();
// Whether it is one of the settings of all models that pipelines have as well.
bool IsPipelineOption(const std::string& name);

// "step 2 (minilm)", for messages; `index` from 0.
std::string StepName(const PipelineConfig& config, size_t index);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_PIPELINE_CONFIG_H_
