// Cuts a model into stages, which requests pass one after the other (DVABatch §6.1).
//
// The graph is cut after the passes, between two of its nodes. So no stage boundary breaks a fusion
// or changes a layout, and the stages compute the same bits as the whole graph. Every value that is
// needed after a cut crosses it, including skip connections. It crosses in its own layout, so it
// may be channel-blocked (Executable).
#ifndef CHAIRLIFT_GRAPH_STAGES_STAGES_H_
#define CHAIRLIFT_GRAPH_STAGES_STAGES_H_

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "graph/ir.h"

namespace chairlift {

// The maximum number of stages.
inline constexpr int kMaxStages = 64;

struct ModelStage {
  std::string name;  // "stage1" is the first
  // Inputs and outputs have rows along dimension 0.
  Graph graph;
  std::vector<int> inputs;   // StagedModel::values, by input of the graph
  std::vector<int> outputs;  // StagedModel::values, by output of the graph
  double share = 0;          // of the costs of all nodes
  // By StageCuts::row_costs: the sum over its nodes.
  std::vector<double> row_costs;
  std::string until;  // its last node, by name
};

struct StagedModel {
  std::vector<std::string> values;  // names; the first are the model's inputs, in order
  std::vector<int> outputs;         // values, by output of the model
  std::vector<ModelStage> stages;
  std::vector<int> exits;  // by StageCuts::exits and `skips`: the stage that ends there
  std::vector<int> skips;
};

// Where to cut. If neither of the first two is set: into kDefaultStages, or as many as there are
// places for.
struct StageCuts {
  int stages = 0;
  // Nodes or tensors, each the last of its stage, in any order.
  std::vector<std::string> after = {};
  // Outputs of the model that also have a cut after them, as early as they can be computed: nodes
  // that they do not need come later, even if the graph has them earlier.
  std::vector<std::string> exits = {};
  // Nodes or tensors that also have a cut after them.
  std::vector<std::string> skips = {};
  // Costs of nodes for one row in batches of several sizes ([size][node], in one unit; empty:
  // unknown). If possible, stages chosen by number separate operators that prefer different sizes.
  std::vector<std::vector<double>> row_costs = {};
  // Names of nodes and tensors before the passes: used in the error for a cut that a pass removed.
  std::set<std::string> before_passes = {};
  // The graph is over packed tokens (graph/ragged/ragged.h). Values with an entry per token or per
  // sequence may cross, whatever `rows` are, and its inputs are available to every stage.
  bool packed = false;
};
inline constexpr int kDefaultStages = 4;

// What the entries of a value in a packed graph belong to.
enum class PackedUnit { kNone, kSequence, kToken };
// A value with such entries has them along its first dimension, apart from leading ones, and no
// other varying dimension. (Every value in a packed graph is the same for all requests, or depends
// on one token or one sequence per entry: graph/ragged/form.h. So its shape determines which.)
PackedUnit PackedUnitOf(const SymbolicShape& shape);

// The names of values that are rows (graph/batch_axis.h) in a graph before the passes.
std::set<std::string> NamesOfRows(const Graph& graph);

// The names of the graph's outputs, in order.
std::vector<std::string> NamesOfOutputs(const Graph& graph);
// The names of all nodes and of the tensors that it computes.
std::set<std::string> NamesIn(const Graph& graph);

// Maps names that settings may use to the graph's names of the same values.
using OtherNames = std::map<std::string, std::string>;
inline const std::string& NameInGraph(const OtherNames& others, const std::string& name) {
  const auto found = others.find(name);
  return found == others.end() ? name : found->second;
}
// Restores the names of outputs after the passes, because exits refer to them: a pass may have
// replaced an output by the value that it was a copy of. Returns the names that this value had, and
// those of outputs that equal an earlier one or an input.
OtherNames RestoreNamesOfOutputs(std::span<const std::string> names, Graph& graph);

// Cuts `graph`, which has been through the passes. Only values in `rows` may cross: their row r
// depends on row r of the inputs. `costs[n]` is the cost of node n, in any unit. If only a number
// of stages is given, their costs are as even as possible at places that few bytes cross.
// InvalidArgument names a cut that is not possible; Unimplemented: there is no place to cut. With
// exits, the stages' nodes are in another order than the graph's.
StatusOr<StagedModel> CutIntoStages(const Graph& graph, const std::set<std::string>& rows,
                                    std::span<const double> costs, const StageCuts& cuts);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_STAGES_STAGES_H_
