#include "server/protocol/metadata.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/version.h"
#include "chairlift/text.h"
#include "tensor/datatype.h"

namespace chairlift::protocol {
namespace {

const TensorSpec* Find(const std::vector<TensorSpec>& specs, std::string_view name) {
  const auto found = std::find_if(specs.begin(), specs.end(),
                                  [&](const TensorSpec& spec) { return spec.name == name; });
  return found == specs.end() ? nullptr : &*found;
}

// Those that clients send and receive, each after `shape_batch` has seen its dimension 0 if the
// model batches.
template <typename ShapeBatch>
void Show(const ModelMetadata& model, const ShapeBatch& shape_batch,
          std::vector<TensorSpec>* inputs, std::vector<TensorSpec>* outputs) {
  const auto& states = model.config.sequence_state;
  *inputs = model.inputs;
  *outputs = model.outputs;
  std::erase_if(*inputs, [&](const TensorSpec& spec) {
    return std::any_of(states.begin(), states.end(),
                       [&](const auto& state) { return state.second == spec.name; });
  });
  std::erase_if(*outputs, [&](const TensorSpec& spec) {
    return states.contains(spec.name) && !model.shown_states.contains(spec.name);
  });
  for (std::vector<TensorSpec>* specs : {inputs, outputs}) {
    for (TensorSpec& spec : *specs) {
      if (model.has_batch() && !spec.shape.empty()) shape_batch(&spec.shape);
    }
  }
}

void EraseBatch(std::vector<int64_t>* shape) { shape->erase(shape->begin()); }

ModelConfiguration::SequenceBatching SequencesOf(const ModelMetadata& model) {
  ModelConfiguration::SequenceBatching sequences = {
      model.config.max_sequence_idle_us, model.config.max_sequences, {}};
  for (const auto& [output, input] : model.config.sequence_state) {
    const TensorSpec* const spec = Find(model.inputs, input);
    if (spec == nullptr) continue;
    sequences.states.push_back({input, output, *spec});
    std::vector<int64_t>& dims = sequences.states.back().spec.shape;
    if (model.has_batch() && !dims.empty()) EraseBatch(&dims);
  }
  return sequences;
}

}  // namespace

ServerMetadata DescribeServer() {
  return {"chairlift",
          Version(),
          {"binary_tensor_data", "generate", "model_configuration", "model_repository",
           "model_repository(unload_dependents)", "parameters", "sequence", "statistics"}};
}

ModelSignature SignatureOf(const ModelMetadata& model) {
  ModelSignature shown = {model.name, model.versions, model.platform, {}, {}};
  Show(
      model, [](std::vector<int64_t>* shape) { shape->front() = -1; }, &shown.inputs,
      &shown.outputs);
  return shown;
}

ModelConfiguration ConfigurationOf(const ModelMetadata& model) {
  constexpr int64_t kMostRows = int64_t{1} << 24;  // that the engine accepts for any model
  const ModelConfig& config = model.config;
  ModelConfiguration shown;
  shown.name = model.name;
  shown.platform = model.platform;
  if (model.max_rows) {
    shown.max_batch_size = *model.max_rows;
  } else if (model.batches) {
    shown.max_batch_size = config.max_batch_size > 0 ? config.max_batch_size : kMostRows;
  }
  Show(model, EraseBatch, &shown.inputs, &shown.outputs);
  if (!config.sequence_state.empty() || model.sequences_only) {
    shown.sequence_batching = SequencesOf(model);
  } else if (model.batches && model.has_batch()) {
    shown.dynamic_batching = {config.default_timeout_us, config.max_queue_size};
  }
  shown.preferred_batch_sizes = config.preferred_batch_sizes;
  shown.max_queue_delay_us = config.queue_delay_us;
  shown.parameters = {
      {"policy", config.policy},
      {"disabled_passes", fmt::format("{}", fmt::join(config.disabled_passes, ","))},
      {"diagnosis", model.diagnosis}};
  return shown;
}

std::string ConfigurationType(DType datatype) {
  if (datatype == DType::kBytes) return "TYPE_STRING";
  return fmt::format("TYPE_{}", DatatypeName(datatype));
}

std::string_view StateName(ModelState state) {
  switch (state) {
    case ModelState::kLoading:
      return "LOADING";
    case ModelState::kReady:
      return "READY";
    case ModelState::kUnloading:
      return "UNLOADING";
    case ModelState::kUnavailable:
      break;
  }
  return "UNAVAILABLE";
}

std::string_view PartOf(std::string_view model) {
  const size_t slash = model.find('/');
  return slash == std::string_view::npos ? std::string_view() : model.substr(slash + 1);
}

}  // namespace chairlift::protocol
