// A model cut into stages, which requests pass one after the other (DVABatch §6.1).
//
// What is cut is the graph as the passes left it, between two of its nodes: so no stage boundary
// breaks a fusion or changes a layout, and the stages compute what the whole graph does, bit by
// bit. Whatever is still needed behind a cut crosses it, skip connections too. It crosses as it is
// laid out, so a value may be channel-blocked (Executable).
#ifndef CHAIRLIFT_GRAPH_STAGES_STAGES_H_
#define CHAIRLIFT_GRAPH_STAGES_STAGES_H_

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "graph/ir.h"

namespace chairlift {

// Stages that anybody asks for.
inline constexpr int kMaxStages = 64;

struct ModelStage {
  std::string name;  // "stage1" is the first
  // Inputs and outputs have their rows along dimension 0.
  Graph graph;
  std::vector<int> inputs;   // StagedModel::values, by input of the graph
  std::vector<int> outputs;  // likewise
  double share = 0;          // of the costs of all nodes
  // By StageCuts::row_costs: of its nodes together.
  std::vector<double> row_costs;
  std::string until;  // the node that it ends with, as the graph names it
};

struct StagedModel {
  std::vector<std::string> values;  // names; the first are the model's inputs, in order
  std::vector<int> outputs;         // values, by output of the model
  std::vector<ModelStage> stages;
  std::vector<int> exits;  // by StageCuts::exits and `skips`: the stage that ends there
  std::vector<int> skips;
};

// Where to cut. Both of the first unset: into kDefaultStages, or as many as there are places for.
struct StageCuts {
  int stages = 0;
  // Nodes or tensors: each is the last of its stage. In any order.
  std::vector<std::string> after = {};
  // Outputs of the model after each of which there is a cut, too, as early as it can be computed:
  // what it does not need comes later, though the graph may have it earlier.
  std::vector<std::string> exits = {};
  // Nodes or tensors after each of which there is a cut, too.
  std::vector<std::string> skips = {};
  // Of one row, what nodes cost in batches of several sizes ([size][node], in one unit; empty:
  // unknown). Where counted stages may keep operators apart that prefer different sizes, they do.
  std::vector<std::vector<double>> row_costs = {};
  // Nodes and tensors of the graph before the passes: an error says of a cut that they took it
  // away.
  std::set<std::string> before_passes = {};
  // The graph is of packed tokens (graph/ragged/ragged.h): what has an entry for each token or each
  // sequence may cross, whatever `rows` are, and its inputs are there for every stage.
  bool packed = false;
};
inline constexpr int kDefaultStages = 4;

// What a value of a packed graph has an entry for.
enum class PackedUnit { kNone, kSequence, kToken };
// Of one with an entry for each along its first dimension, but for leading ones, and no other
// dimension that varies. (Every value in a packed graph is the same for all requests, or follows
// token by token or sequence by sequence: graph/ragged/form.h. So its shape says which.)
PackedUnit PackedUnitOf(const SymbolicShape& shape);

// The names of values that are rows (graph/batch_axis.h) in a graph that has not been through the
// passes.
std::set<std::string> NamesOfRows(const Graph& graph);

// The names of the graph's outputs, in order.
std::vector<std::string> NamesOfOutputs(const Graph& graph);
// The names of all nodes and tensors that it computes.
std::set<std::string> NamesIn(const Graph& graph);

// From names that settings may use to the names that a graph has for the same.
using OtherNames = std::map<std::string, std::string>;
inline const std::string& NameInGraph(const OtherNames& others, const std::string& name) {
  const auto found = others.find(name);
  return found == others.end() ? name : found->second;
}
// Gives a graph that has been through the passes the names that its outputs had before, which exits
// refer to: a pass may have replaced one by the value that it was a copy of. Returns the names that
// this value had, and those of outputs that are the same as an earlier one or as an input.
OtherNames RestoreNamesOfOutputs(std::span<const std::string> names, Graph& graph);

// Cuts `graph`, which has been through the passes. Only `rows` may cross, of which row r follows
// from row r of the inputs; `costs[n]` is the cost of node n, in any unit. Where stages are
// counted, their costs are as even as may be where little has to cross. InvalidArgument names a cut
// that is not possible; Unimplemented: there is no place to cut. With exits, the stages' nodes are
// in another order than the graph's.
StatusOr<StagedModel> CutIntoStages(const Graph& graph, const std::set<std::string>& rows,
                                    std::span<const double> costs, const StageCuts& cuts);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_STAGES_STAGES_H_
