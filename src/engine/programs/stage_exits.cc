#include "engine/programs/stage_exits.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/closest.h"
#include "base/status.h"

namespace chairlift {
namespace {

bool IsFloat(DType dtype) {
  return dtype == DType::kFloat || dtype == DType::kDouble || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}

// An exit, the stage that it ends, and the stage at which requests that take it continue.
struct PlacedExit {
  const StageExit& exit;
  int stage = 0;
  int next = 0;
};

class ExitReader {
 public:
  ExitReader(const StagedModel& model, std::span<const std::unique_ptr<Cell>> cells,
             std::span<const PlacedExit> exits, const OtherNames& others)
      : model_(model), others_(others), specs_(model.values.size()) {
    for (size_t s = 0; s < model.stages.size(); ++s) {
      const ModelStage& stage = model.stages[s];
      for (size_t i = 0; i < stage.inputs.size(); ++i) {
        Spec& spec = SpecOf(stage.inputs[i]);
        spec.port = &cells[s]->inputs()[i];
        spec.read = static_cast<int>(s);
        spec.reader = "a later stage reads";
      }
      for (size_t i = 0; i < stage.outputs.size(); ++i) {
        Spec& spec = SpecOf(stage.outputs[i]);
        spec.port = &cells[s]->outputs()[i];
        spec.made = static_cast<int>(s);
      }
    }
    for (const PlacedExit& placed : exits) {
      for (const auto& [name, source_name] : placed.exit.instead) {
        const auto source =
            std::find(model.values.begin(), model.values.end(), NameInGraph(others, source_name));
        if (source == model.values.end()) continue;
        Spec& spec = SpecOf(static_cast<int>(source - model.values.begin()));
        if (spec.read >= placed.stage) continue;
        spec.read = placed.stage;
        spec.reader = fmt::format("the exit after '{}' names in its 'instead'", placed.exit.output);
      }
    }
    for (const int value : model.outputs) {
      SpecOf(value).read = num_stages();
      SpecOf(value).reader = "the model answers with";
    }
  }

  StatusOr<LayoutExit> Read(const PlacedExit& placed) const {
    const auto& [exit, stage, next] = placed;
    LayoutExit read;
    read.name = exit.output;
    read.predicate = exit.predicate;
    read.next = next;
    CHAIRLIFT_ASSIGN_OR_RETURN(read.value, ValueNamed(exit.output));
    const DType dtype = SpecOf(read.value).port->dtype;
    if (exit.at_least) {
      read.at_least = *exit.at_least;
      if (!IsFloat(dtype)) {
        return InvalidArgument("at_least is set, but the output is of {}; it must be of floats",
                               DTypeName(dtype));
      }
    }
    if (next <= stage + 1 && next < num_stages()) {
      return InvalidArgument(
          "skip_to is '{}', which is computed before the exit, so nothing would be skipped; name a "
          "later node or tensor",
          exit.skip_to);
    }
    for (const auto& [name, source_name] : exit.instead) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const int value, ValueNamed(name));
      CHAIRLIFT_ASSIGN_OR_RETURN(const int source, ValueNamed(source_name));
      CHAIRLIFT_RETURN_IF_ERROR(CheckInstead(value, source, stage, next));
      for (const auto& [earlier, its_source] : read.instead) {
        if (earlier != value || its_source == source) continue;
        return InvalidArgument(
            "instead: '{}' is another name of '{}', which then has two substitutes, '{}' and '{}'; "
            "name one",
            name, model_.values[static_cast<size_t>(value)],
            model_.values[static_cast<size_t>(its_source)], source_name);
      }
      read.instead.emplace_back(value, source);
    }
    for (size_t value = 0; value < specs_.size(); ++value) {
      const Spec& spec = specs_[value];
      const bool missing = spec.made > stage && spec.made < next && spec.read >= next;
      const bool given =
          std::any_of(read.instead.begin(), read.instead.end(),
                      [&](const auto& pair) { return pair.first == static_cast<int>(value); });
      if (!missing || given) continue;
      return InvalidArgument(
          "requests that take the exit have no '{}', which {}; name its substitute in `instead`",
          model_.values[value], spec.reader);
    }
    return read;
  }

 private:
  struct Spec {
    const Cell::Port* port = nullptr;
    int made = -1;  // the stage that computes it; −1: an input of the model
    // The last stage that reads it, or whose exit does; the number of stages: an output of the
    // model.
    int read = -1;
    std::string reader = {};  // "a later stage reads"
  };

  int num_stages() const { return static_cast<int>(model_.stages.size()); }

  Spec& SpecOf(int value) { return specs_[static_cast<size_t>(value)]; }
  const Spec& SpecOf(int value) const { return specs_[static_cast<size_t>(value)]; }

  StatusOr<int> ValueNamed(const std::string& name) const {
    const std::string& its_name = NameInGraph(others_, name);
    std::vector<std::string> known;
    for (size_t value = 0; value < specs_.size(); ++value) {
      if (specs_[value].port == nullptr) continue;
      if (model_.values[value] == its_name) return static_cast<int>(value);
      known.push_back(model_.values[value]);
    }
    return InvalidArgument("no tensor '{}' is kept between stages{}", name,
                           KnownNames(name, known));
  }

  Status CheckInstead(int value, int source, int stage, int next) const {
    const Spec& to = SpecOf(value);
    const Spec& from = SpecOf(source);
    const std::string& name = model_.values[static_cast<size_t>(value)];
    const std::string& source_name = model_.values[static_cast<size_t>(source)];
    if (to.made <= stage || to.made >= next || to.read < next) {
      return InvalidArgument(
          "instead: '{}' needs no substitute: requests that take the exit have it, or do not read "
          "it",
          name);
    }
    if (from.made > stage) {
      return InvalidArgument("instead: '{}' cannot replace '{}': it is computed later", source_name,
                             name);
    }
    if (to.port->dtype == from.port->dtype && to.port->row_bytes == from.port->row_bytes &&
        to.port->row.ToString() == from.port->row.ToString()) {
      return absl::OkStatus();
    }
    return InvalidArgument("instead: '{}' cannot replace '{}': its rows are {} {}, not {} {}",
                           source_name, name, DTypeName(from.port->dtype),
                           from.port->row.ToString(), DTypeName(to.port->dtype),
                           to.port->row.ToString());
  }

  const StagedModel& model_;
  const OtherNames& others_;
  std::vector<Spec> specs_;  // by value
};

}  // namespace

void AddExitCuts(std::span<const StageExit> exits, const OtherNames& others, StageCuts& cuts) {
  for (const StageExit& exit : exits) {
    const std::string& output = NameInGraph(others, exit.output);
    if (std::find(cuts.exits.begin(), cuts.exits.end(), output) == cuts.exits.end()) {
      cuts.exits.push_back(output);
    }
    if (!exit.skip_to.empty()) cuts.skips.push_back(NameInGraph(others, exit.skip_to));
  }
}

StatusOr<std::vector<std::vector<LayoutExit>>> ExitsOf(const StagedModel& model,
                                                       std::span<const std::unique_ptr<Cell>> cells,
                                                       std::span<const StageExit> exits,
                                                       const OtherNames& others) {
  StageCuts cuts;
  AddExitCuts(exits, others, cuts);
  std::vector<PlacedExit> placed;
  size_t skips = 0;
  for (const StageExit& exit : exits) {
    const auto at =
        std::find(cuts.exits.begin(), cuts.exits.end(), NameInGraph(others, exit.output));
    const int stage = model.exits[static_cast<size_t>(at - cuts.exits.begin())];
    const int next =
        exit.skip_to.empty() ? static_cast<int>(model.stages.size()) : model.skips[skips++] + 1;
    placed.push_back({exit, stage, next});
  }
  const ExitReader reader(model, cells, placed, others);
  std::vector<std::vector<LayoutExit>> by_stage(model.stages.size());
  for (const PlacedExit& exit : placed) {
    StatusOr<LayoutExit> read = reader.Read(exit);
    if (!read.ok()) {
      return Annotate(read.status(), fmt::format("exits: exit after '{}'", exit.exit.output));
    }
    by_stage[static_cast<size_t>(exit.stage)].push_back(*std::move(read));
  }
  return by_stage;
}

}  // namespace chairlift
