#include "engine/programs/pipeline/wiring.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/closest.h"
#include "base/status.h"
#include "tensor/datatype.h"

namespace chairlift {
namespace {

// A value during the walk over the steps.
struct WiredValue {
  SymbolicSpec spec;
  std::string from;  // "the request's 'x'", "output 'y' of step 1 (a)"
  std::optional<size_t> step;
  std::string output;  // of the step's model
  bool read = false;
};

std::string Describe(const SymbolicSpec& spec) {
  return fmt::format("{} {}", DatatypeName(spec.dtype), spec.shape.ToString());
}

// Symbols of one model are unrelated to those of another with the same name.
SymbolicSpec Renamed(const SymbolicSpec& spec, const std::string& name, size_t step) {
  SymbolicSpec renamed = spec;
  renamed.name = name;
  if (!renamed.shape.has_rank()) return renamed;
  for (int axis = 0; axis < renamed.shape.rank(); ++axis) {
    const Dim& dim = spec.shape[axis];
    if (dim.is_symbol()) {
      renamed.shape[axis] = Dim::Symbol(fmt::format("{}#{}", dim.symbol(), step + 1));
    }
  }
  return renamed;
}

// Whether a tensor can have both shapes.
bool MayBeOne(const SymbolicSpec& a, const SymbolicSpec& b) {
  if (a.dtype != b.dtype) return false;
  if (!a.shape.has_rank() || !b.shape.has_rank()) return true;
  if (a.shape.rank() != b.shape.rank()) return false;
  for (int axis = 0; axis < a.shape.rank(); ++axis) {
    const Dim &x = a.shape[axis], &y = b.shape[axis];
    if (x.known() && y.known() && x.value() != y.value()) return false;
  }
  return true;
}

void Narrow(SymbolicSpec& spec, const SymbolicSpec& other) {
  if (!other.shape.has_rank()) return;
  if (!spec.shape.has_rank()) {
    spec.shape = other.shape;
    return;
  }
  for (int axis = 0; axis < spec.shape.rank(); ++axis) {
    spec.shape[axis] = MergeDims(spec.shape[axis], other.shape[axis]);
  }
}

class Wirer {
 public:
  Wirer(const PipelineConfig& config, const std::vector<const Signature*>& models)
      : config_(config), models_(models) {}

  StatusOr<PipelineWiring> Wire() {
    for (size_t i = 0; i < config_.steps.size(); ++i) {
      CHAIRLIFT_RETURN_IF_ERROR(CheckNames(i));
      CHAIRLIFT_RETURN_IF_ERROR(Read(i));
      Give(i);
    }
    for (const std::string& name : config_.inputs) {
      if (!IsInput(name)) {
        return InvalidArgument("inputs: '{}' is read by no step", name);
      }
    }
    CHAIRLIFT_RETURN_IF_ERROR(NameOutputs());
    return Number();
  }

 private:
  bool IsInput(const std::string& name) const {
    return std::any_of(values_.begin(), values_.end(), [&](const WiredValue& value) {
      return !value.step && value.spec.name == name;
    });
  }

  // Checks that the maps of a step contain only inputs and outputs of its model.
  Status CheckNames(size_t step) const {
    const auto check = [&](const std::map<std::string, std::string>& names,
                           const std::vector<SymbolicSpec>& specs, const char* what) -> Status {
      const std::vector<std::string> known = NamesOf(specs, &SymbolicSpec::name);
      for (const auto& [name, other] : names) {
        if (std::find(known.begin(), known.end(), name) != known.end()) continue;
        return InvalidArgument("{}: the model has no {} '{}'{}", StepName(config_, step), what,
                               name, KnownNames(name, known));
      }
      return absl::OkStatus();
    };
    CHAIRLIFT_RETURN_IF_ERROR(check(config_.steps[step].inputs, models_[step]->inputs, "input"));
    CHAIRLIFT_RETURN_IF_ERROR(check(config_.steps[step].outputs, models_[step]->outputs, "output"));
    std::map<std::string, std::string> given;
    for (const SymbolicSpec& output : models_[step]->outputs) {
      if (IsLeftOut(step, output.name)) continue;
      const std::string name = Mapped(config_.steps[step].outputs, output.name);
      const auto [other, fresh] = given.emplace(name, output.name);
      if (fresh) continue;
      return InvalidArgument("{}: its outputs '{}' and '{}' are both named '{}'",
                             StepName(config_, step), other->second, output.name, name);
    }
    return absl::OkStatus();
  }

  static std::string Mapped(const std::map<std::string, std::string>& names,
                            const std::string& name) {
    const auto found = names.find(name);
    return found == names.end() ? name : found->second;
  }

  // Whether nothing can read an output of the step.
  bool IsLeftOut(size_t step, const std::string& output) const {
    return config_.all_named && !config_.steps[step].outputs.contains(output);
  }

  bool Gives(size_t step, const std::string& name) const {
    const std::vector<SymbolicSpec>& outputs = models_[step]->outputs;
    return std::any_of(outputs.begin(), outputs.end(), [&](const SymbolicSpec& output) {
      return !IsLeftOut(step, output.name) &&
             Mapped(config_.steps[step].outputs, output.name) == name;
    });
  }
  // The first step after `step` that produces the name. Nothing if there is none, or if `step`
  // itself replaces the value that it reads.
  std::optional<size_t> GivenLater(size_t step, const std::string& name) const {
    if (Gives(step, name)) return std::nullopt;
    for (size_t later = step + 1; later < config_.steps.size(); ++later) {
      if (Gives(later, name)) return later;
    }
    return std::nullopt;
  }

  Status CheckNewInput(size_t step, const std::string& input, const std::string& name) const {
    if (!config_.inputs.empty()) {
      if (std::count(config_.inputs.begin(), config_.inputs.end(), name) > 0) {
        return absl::OkStatus();
      }
      std::vector<std::string> known = config_.inputs;
      for (const auto& [given, value] : by_name_) known.push_back(given);
      return InvalidArgument(
          "{}: its input '{}' reads '{}', which no step before it gives and `inputs` does not "
          "name{}",
          StepName(config_, step), input, name, KnownNames(name, known));
    }
    const std::optional<size_t> later = GivenLater(step, name);
    if (!later) return absl::OkStatus();
    return InvalidArgument(
        "{}: its input '{}' reads '{}', which only {} gives; steps read what those before them "
        "give: order them so, or name '{}' in `inputs` if requests bring it",
        StepName(config_, step), input, name, StepName(config_, *later), name);
  }

  Status Read(size_t step) {
    for (const SymbolicSpec& input : models_[step]->inputs) {
      if (config_.all_named && !config_.steps[step].inputs.contains(input.name)) {
        return InvalidArgument("{}: its input_map does not name input '{}'; add it",
                               StepName(config_, step), input.name);
      }
      const std::string name = Mapped(config_.steps[step].inputs, input.name);
      const SymbolicSpec wanted = Renamed(input, name, step);
      auto found = by_name_.find(name);
      if (found == by_name_.end()) {
        CHAIRLIFT_RETURN_IF_ERROR(CheckNewInput(step, input.name, name));
        found = by_name_.emplace(name, values_.size()).first;
        values_.push_back({wanted, fmt::format("the request's '{}'", name), {}, {}, true});
      }
      WiredValue& value = values_[found->second];
      if (!MayBeOne(value.spec, wanted)) {
        return InvalidArgument("{}: its input '{}' is {}; {} is {}", StepName(config_, step),
                               input.name, Describe(input), value.from, Describe(value.spec));
      }
      if (!value.step) Narrow(value.spec, wanted);
      value.read = true;
      reads_.resize(step + 1);
      reads_[step].emplace_back(input.name, found->second);
    }
    return absl::OkStatus();
  }

  void Give(size_t step) {
    for (const SymbolicSpec& output : models_[step]->outputs) {
      if (IsLeftOut(step, output.name)) continue;
      const std::string name = Mapped(config_.steps[step].outputs, output.name);
      by_name_[name] = values_.size();
      values_.push_back({Renamed(output, name, step),
                         fmt::format("output '{}' of {}", output.name, StepName(config_, step)),
                         step, output.name});
    }
  }

  Status NameOutputs() {
    std::vector<std::string> names = config_.outputs;
    const size_t last = config_.steps.size() - 1;
    if (names.empty()) {
      for (const SymbolicSpec& output : models_[last]->outputs) {
        names.push_back(Mapped(config_.steps[last].outputs, output.name));
      }
    }
    for (const std::string& name : names) {
      const auto found = by_name_.find(name);
      if (found == by_name_.end() || !values_[found->second].step) {
        std::vector<std::string> known;
        for (const auto& [given, value] : by_name_) {
          if (values_[value].step) known.push_back(given);
        }
        return InvalidArgument("outputs: no step gives '{}'{}", name, KnownNames(name, known));
      }
      values_[found->second].read = true;
      outputs_.push_back(found->second);
    }
    return absl::OkStatus();
  }

  StatusOr<PipelineWiring> Number() {
    PipelineWiring wiring;
    wiring.steps.resize(config_.steps.size());
    reads_.resize(config_.steps.size());
    std::vector<size_t> numbers(values_.size());
    wiring.counts_rows = true;
    for (size_t i = 0; i < values_.size(); ++i) {
      if (values_[i].step) continue;
      numbers[i] = wiring.num_values++;
      wiring.signature.inputs.push_back(values_[i].spec);
    }
    for (size_t i = 0; i < values_.size(); ++i) {
      if (!values_[i].step || !values_[i].read) continue;
      numbers[i] = wiring.num_values++;
      wiring.steps[*values_[i].step].gives.push_back({values_[i].output, numbers[i]});
    }
    for (size_t step = 0; step < config_.steps.size(); ++step) {
      for (const auto& [input, value] : reads_[step]) {
        wiring.steps[step].reads.emplace_back(input, numbers[value]);
        if (!values_[value].step && !models_[step]->batches) wiring.counts_rows = false;
      }
      if (wiring.steps[step].gives.empty()) {
        return InvalidArgument("{}: {}", StepName(config_, step), WhyNotRead(step));
      }
    }
    for (const size_t output : outputs_) {
      wiring.outputs.push_back(numbers[output]);
      wiring.signature.outputs.push_back(values_[output].spec);
    }
    return wiring;
  }

  // The reason why the outputs of a step have no reader. A reader may have another name for them.
  std::string WhyNotRead(size_t step) const {
    std::vector<std::string> gives, open;
    for (const SymbolicSpec& output : models_[step]->outputs) {
      if (!IsLeftOut(step, output.name)) {
        gives.push_back(Mapped(config_.steps[step].outputs, output.name));
      }
    }
    for (const auto& [name, value] : by_name_) {
      if (!values_[value].step) open.push_back(name);
    }
    if (gives.empty()) return "its `outputs` name none of its model's outputs: name those to use";
    std::sort(open.begin(), open.end());
    return fmt::format("no later step and no output reads what it gives, '{}'{}",
                       fmt::join(gives, "', '"),
                       open.empty() ? ""
                                    : fmt::format("; the steps read '{}' from the request: give "
                                                  "one that name if it is meant",
                                                  fmt::join(open, "', '")));
  }

  const PipelineConfig& config_;
  const std::vector<const Signature*>& models_;
  std::vector<WiredValue> values_;
  std::map<std::string, size_t> by_name_;  // as seen by the next step
  std::vector<std::vector<std::pair<std::string, size_t>>> reads_;
  std::vector<size_t> outputs_;
};

}  // namespace

StatusOr<PipelineWiring> WirePipeline(const PipelineConfig& config,
                                      const std::vector<const Signature*>& models) {
  return Wirer(config, models).Wire();
}

}  // namespace chairlift
