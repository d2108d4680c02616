#include "engine/programs/pipeline/pipeline_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace chairlift {
namespace {

constexpr const char* kSteps = "steps";
constexpr const char* kInputs = "inputs";
constexpr const char* kOutputs = "outputs";
// Settings of all models that also apply to a pipeline; the others belong to its steps.
constexpr const char* kOfPipelines[] = {"max_queue_size", "max_queue_wait_us", "default_timeout_us",
                                        "response_cache_bytes"};

std::map<std::string, std::string> ReadStepNames(const YamlValue& step, const char* key,
                                                 const char* takes) {
  std::map<std::string, std::string> names;
  if (!step.Has(key)) return names;
  for (const auto& [name, entry] : step.At(key).Map(takes)) names.emplace(name, entry.Name());
  return names;
}

std::vector<std::string> ReadNameList(const YamlValue& settings, const char* key) {
  std::vector<std::string> names;
  if (!settings.Has(key)) return names;
  for (const YamlValue& entry : settings.At(key).List("a list of names", 1)) {
    names.push_back(entry.Name());
    if (std::find(names.begin(), names.end() - 1, names.back()) != names.end() - 1) {
      entry.Refuse("{}: '{}' is named twice", key, names.back());
    }
  }
  return names;
}

}  // namespace

std::vector<SettingInfo> PipelineSettingInfos() {
  return {{kSteps, "a list of maps with model, inputs and outputs", "",
           "Models of the repository, one after the other, in place of model.onnx"},
          {kInputs, "a list of names", "",
           "Inputs of the pipeline; absent: what steps read and no step gives"},
          {kOutputs, "a list of names", "", "Its outputs; absent: those of the last step"}};
}

bool IsPipelineOption(const std::string& name) {
  return std::find(std::begin(kOfPipelines), std::end(kOfPipelines), name) !=
         std::end(kOfPipelines);
}

StatusOr<std::optional<PipelineConfig>> ReadPipelineConfig(const YamlValue& settings) {
  if (!settings.Has(kSteps)) {
    for (const char* name : {kInputs, kOutputs}) {
      if (settings.Has(name)) {
        return InvalidArgument("{} is for pipelines; `steps` lists their models", name);
      }
    }
    return std::nullopt;
  }
  for (const auto& [name, value] : settings.Map("a map of settings")) {
    const std::string& key = name;
    const std::vector<SettingInfo> own = PipelineSettingInfos();
    if (std::any_of(own.begin(), own.end(), [&](const auto& one) { return one.name == key; })) {
      continue;
    }
    if (IsPipelineOption(name)) continue;
    value.Refuse(
        "{} is not for pipelines: it belongs to the models of the steps; pipelines take {}", name,
        fmt::join(kOfPipelines, ", "));
  }
  PipelineConfig config;
  for (const YamlValue& entry : settings.At(kSteps).List("a list of steps", 1)) {
    entry.CheckKeys({"model", kInputs, kOutputs});
    StepConfig step;
    step.model = entry.At("model").Name();
    step.inputs =
        ReadStepNames(entry, kInputs, "a map from the model's inputs to the names they read");
    step.outputs =
        ReadStepNames(entry, kOutputs, "a map from the model's outputs to the names they get");
    config.steps.push_back(std::move(step));
    if (config.steps.size() > kMaxPipelineSteps) {
      entry.Refuse("a pipeline has at most {} steps", kMaxPipelineSteps);
      break;
    }
  }
  config.inputs = ReadNameList(settings, kInputs);
  config.outputs = ReadNameList(settings, kOutputs);
  CHAIRLIFT_RETURN_IF_ERROR(settings.status());
  return config;
}

std::string StepName(const PipelineConfig& config, size_t index) {
  return fmt::format("step {} ({})", index + 1, config.steps[index].model);
}

}  // namespace chairlift
