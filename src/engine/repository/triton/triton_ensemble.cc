#include "engine/repository/triton/triton_ensemble.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/status.h"

namespace chairlift {
namespace {

using StringEntries = google::protobuf::RepeatedPtrField<triton::StringEntry>;

StatusOr<std::map<std::string, std::string>> ReadMap(const StringEntries& entries,
                                                     const std::string& what) {
  std::map<std::string, std::string> names;
  for (const triton::StringEntry& entry : entries) {
    if (entry.key().empty() || entry.value().empty()) {
      return InvalidArgument("{}: an entry lacks its key or value", what);
    }
    if (!names.emplace(entry.key(), entry.value()).second) {
      return InvalidArgument("{}: '{}' is named twice", what, entry.key());
    }
  }
  return names;
}

StatusOr<StepConfig> ReadStep(const triton::ModelEnsembling::Step& from, int number) {
  const std::string named = fmt::format("ensemble_scheduling: step {}", number);
  StepConfig step;
  step.model = from.model_name();
  if (step.model.empty()) return InvalidArgument("{} has no model_name", named);
  if (from.model_version() > 0) step.version = fmt::to_string(from.model_version());
  CHAIRLIFT_ASSIGN_OR_RETURN(step.inputs, ReadMap(from.input_map(), named + ": input_map"));
  CHAIRLIFT_ASSIGN_OR_RETURN(step.outputs, ReadMap(from.output_map(), named + ": output_map"));
  return step;
}

// The steps that the requested tensors need, in an order in which they can run.
class StepOrder {
 public:
  explicit StepOrder(const std::vector<StepConfig>& steps) : steps_(steps), states_(steps.size()) {}

  Status CollectGivers(const std::set<std::string>& brought) {
    brought_ = brought;
    for (size_t i = 0; i < steps_.size(); ++i) {
      for (const auto& [output, name] : steps_[i].outputs) {
        if (givers_.emplace(name, i).second && !brought.contains(name)) continue;
        return InvalidArgument("ensemble_scheduling: tensor '{}' is given twice", name);
      }
    }
    return absl::OkStatus();
  }
  // Recursion is fine because there are few steps.
  Status Need(const std::string& name) {
    if (brought_.contains(name)) return absl::OkStatus();
    const auto giver = givers_.find(name);
    if (giver == givers_.end()) {
      return InvalidArgument(
          "ensemble_scheduling: tensor '{}' is neither an output of a step nor an input of the "
          "ensemble",
          name);
    }
    State& state = states_[giver->second];
    if (state == State::kDone) return absl::OkStatus();
    if (state == State::kOpen) {
      return InvalidArgument("ensemble_scheduling: tensor '{}' depends on itself", name);
    }
    state = State::kOpen;
    for (const auto& [input, source] : steps_[giver->second].inputs) {
      CHAIRLIFT_RETURN_IF_ERROR(Need(source));
    }
    state = State::kDone;
    order_.push_back(giver->second);
    return absl::OkStatus();
  }
  const std::vector<size_t>& order() const { return order_; }

 private:
  enum class State { kNew, kOpen, kDone };
  const std::vector<StepConfig>& steps_;
  std::vector<State> states_;
  std::set<std::string> brought_;
  std::map<std::string, size_t> givers_;
  std::vector<size_t> order_;
};

}  // namespace

StatusOr<PipelineConfig> ReadEnsemble(const triton::ModelConfig& from) {
  PipelineConfig config;
  config.all_named = true;
  std::vector<StepConfig> steps;
  for (const triton::ModelEnsembling::Step& step : from.ensemble_scheduling().step()) {
    if (steps.size() == kMaxPipelineSteps) {
      return InvalidArgument("ensemble_scheduling has {} steps; it may have {}",
                             from.ensemble_scheduling().step_size(), kMaxPipelineSteps);
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(StepConfig read, ReadStep(step, static_cast<int>(steps.size()) + 1));
    steps.push_back(std::move(read));
  }
  for (const triton::ModelInput& input : from.input()) config.inputs.push_back(input.name());
  for (const triton::ModelOutput& output : from.output()) config.outputs.push_back(output.name());
  if (steps.empty() || config.inputs.empty() || config.outputs.empty()) {
    return InvalidArgument("an ensemble must have steps, inputs and outputs");
  }
  StepOrder order(steps);
  CHAIRLIFT_RETURN_IF_ERROR(
      order.CollectGivers(std::set<std::string>(config.inputs.begin(), config.inputs.end())));
  for (const std::string& output : config.outputs) CHAIRLIFT_RETURN_IF_ERROR(order.Need(output));
  for (const size_t step : order.order()) config.steps.push_back(steps[step]);
  if (!config.steps.empty()) return config;
  return InvalidArgument("ensemble_scheduling: no output is given by a step");
}

}  // namespace chairlift
