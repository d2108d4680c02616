#include "graph/stages/stages.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <type_traits>
#include <utility>

#include "base/status.h"
#include "graph/batch_axis.h"
#include "graph/stages/places.h"

namespace chairlift {
namespace {

// Copies nodes [first, last) of a graph, and their values.
class StageWriter {
 public:
  StageWriter(const Graph& whole, Graph& stage) : whole_(whole), stage_(stage) {}

  ValueId In(ValueId id) {
    if (id == kNoValue) return kNoValue;
    const auto [it, fresh] = copies_.emplace(id, kNoValue);
    if (fresh) it->second = stage_.AddValue(whole_.values[id]);
    return it->second;
  }
  void Add(const Node& node) {
    Node copy = node;
    for (ValueId& id : copy.inputs) id = In(id);
    for (ValueId& id : copy.outputs) id = In(id);
    stage_.nodes.push_back(std::move(copy));
  }

 private:
  const Graph& whole_;
  Graph& stage_;
  std::map<ValueId, ValueId> copies_;
};

class Cutter {
 public:
  Cutter(const Graph& graph, std::vector<int> cuts)
      : graph_(graph), last_(LastReaders(graph)), ends_(std::move(cuts)) {
    ends_.push_back(static_cast<int>(graph.nodes.size()));
  }

  StatusOr<StagedModel> Cut(std::span<const double> costs,
                            std::span<const std::vector<double>> row_costs) {
    for (const ValueId id : graph_.inputs) ValueOf(id);
    const double all = std::accumulate(costs.begin(), costs.end(), 0.0);
    int first = 0;
    for (const int end : ends_) {
      ModelStage& stage = model_.stages.emplace_back();
      stage.name = fmt::format("stage{}", model_.stages.size());
      stage.until = graph_.nodes[static_cast<size_t>(end) - 1].name;
      const double own = std::accumulate(costs.begin() + first, costs.begin() + end, 0.0);
      stage.share = all > 0 ? own / all : 0;
      for (const std::vector<double>& of_size : row_costs) {
        stage.row_costs.push_back(
            std::accumulate(of_size.begin() + first, of_size.begin() + end, 0.0));
      }
      Write(first, end, stage);
      CHAIRLIFT_RETURN_IF_ERROR(Verify(stage.graph));
      first = end;
    }
    for (const ValueId id : graph_.outputs) model_.outputs.push_back(ValueOf(id));
    return std::move(model_);
  }

 private:
  int ValueOf(ValueId id) {
    const auto [it, fresh] = values_.emplace(id, static_cast<int>(model_.values.size()));
    if (fresh) model_.values.push_back(graph_.values[id].name);
    return it->second;
  }

  bool IsOutput(ValueId id) const {
    return std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end();
  }

  void Write(int first, int end, ModelStage& stage) {
    stage.graph.name = stage.name;
    StageWriter writer(graph_, stage.graph);
    std::set<ValueId> given;  // values computed by its own nodes
    for (int n = first; n < end; ++n) {
      const Node& node = graph_.nodes[static_cast<size_t>(n)];
      for (const ValueId id : node.inputs) {
        if (id == kNoValue || graph_.values[id].is_constant() || given.contains(id)) continue;
        const int value = ValueOf(id);
        if (std::find(stage.inputs.begin(), stage.inputs.end(), value) != stage.inputs.end()) {
          continue;
        }
        stage.inputs.push_back(value);
        stage.graph.inputs.push_back(writer.In(id));
      }
      writer.Add(node);
      for (const ValueId id : node.outputs) {
        if (id != kNoValue) given.insert(id);
      }
    }
    for (const ValueId id : given) {
      if (last_[id] < end && !IsOutput(id)) continue;
      stage.outputs.push_back(ValueOf(id));
      stage.graph.outputs.push_back(writer.In(id));
    }
  }

  const Graph& graph_;
  const std::vector<int> last_;
  std::vector<int> ends_;  // of stages: the nodes after them
  StagedModel model_;
  std::map<ValueId, int> values_;
};

StatusOr<StagedModel> CutAsOrdered(const Graph& graph, const std::set<std::string>& rows,
                                   std::span<const double> costs, const StageCuts& cuts) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const ChosenCuts chosen, ChooseCuts(graph, rows, costs, cuts));
  CHAIRLIFT_ASSIGN_OR_RETURN(StagedModel model,
                             Cutter(graph, chosen.nodes).Cut(costs, cuts.row_costs));
  const auto stages_of = [&](std::span<const int> nodes) {
    std::vector<int> stages;
    for (const int node : nodes) {
      const auto at = std::find(chosen.nodes.begin(), chosen.nodes.end(), node);
      stages.push_back(static_cast<int>(at - chosen.nodes.begin()));
    }
    return stages;
  };
  model.exits = stages_of(chosen.exits);
  model.skips = stages_of(chosen.skips);
  return model;
}

}  // namespace

std::set<std::string> NamesOfRows(const Graph& graph) {
  const std::vector<bool> rows = FindRows(graph);
  std::set<std::string> names;
  for (size_t id = 0; id < rows.size(); ++id) {
    if (rows[id]) names.insert(graph.values[id].name);
  }
  return names;
}

std::vector<std::string> NamesOfOutputs(const Graph& graph) {
  std::vector<std::string> names;
  names.reserve(graph.outputs.size());
  for (const ValueId id : graph.outputs) names.push_back(graph.values[id].name);
  return names;
}

std::set<std::string> NamesIn(const Graph& graph) {
  std::set<std::string> names;
  for (const Node& node : graph.nodes) {
    names.insert(node.name);
    for (const ValueId id : node.outputs) {
      if (id != kNoValue) names.insert(graph.values[id].name);
    }
  }
  return names;
}

OtherNames RestoreNamesOfOutputs(std::span<const std::string> names, Graph& graph) {
  OtherNames others;
  // Inputs keep their names; if several outputs are now one value, it has the first one's name.
  std::set<ValueId> named(graph.inputs.begin(), graph.inputs.end());
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    std::string& name = graph.values[graph.outputs[i]].name;
    if (name == names[i]) {
      named.insert(graph.outputs[i]);
    } else if (named.insert(graph.outputs[i]).second) {
      others.emplace(std::exchange(name, names[i]), names[i]);
    } else {
      others.emplace(names[i], name);
    }
  }
  for (const std::string& name : NamesIn(graph)) others.erase(name);
  return others;
}

StatusOr<StagedModel> CutIntoStages(const Graph& graph, const std::set<std::string>& rows,
                                    std::span<const double> costs, const StageCuts& cuts) {
  if (cuts.exits.empty()) return CutAsOrdered(graph, rows, costs, cuts);
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int> order, OrderForExits(graph, cuts.exits));
  const auto ordered = [&order](const auto& from) {
    std::vector<std::decay_t<decltype(from[0])>> to;
    to.reserve(order.size());
    for (const int n : order) to.push_back(from[static_cast<size_t>(n)]);
    return to;
  };
  Graph own = graph;
  own.nodes = ordered(graph.nodes);
  StageCuts own_cuts = cuts;
  for (std::vector<double>& of_size : own_cuts.row_costs) of_size = ordered(of_size);
  return CutAsOrdered(own, rows, ordered(costs), own_cuts);
}

}  // namespace chairlift
