// Shape inference for one node at a time, for the importer and for passes that add nodes.
#ifndef CHAIRLIFT_GRAPH_INFER_H_
#define CHAIRLIFT_GRAPH_INFER_H_

#include <cstdint>
#include <map>

#include "graph/ir.h"

namespace chairlift {

// Limits far above those of real models, so that a small file cannot exhaust memory with shapes.
inline constexpr int kMaxGraphRank = 32;
// Tracked for one value; if there are more, none is.
inline constexpr size_t kMaxElements = 4096;
inline constexpr size_t kMaxInfoBytes = 64 << 20;  // of all a node's inputs

// Bounds the work of inferring one model. Bodies of nested loops are inferred several times, so a
// small hostile file could otherwise cause any amount of work.
struct InferBudget {
  int64_t nodes_left = 200'000;
  // For constants that the import computes, such as tables of decision trees. A short attribute may
  // ask for a large one.
  int64_t constant_bytes_left = int64_t{1} << 30;
  // Accept an If with one branch that does not fit: its outputs get the types of the other branch,
  // and any shape. For graphs whose conditions are not computed yet.
  bool open_branches = false;
  // For the graph being inferred: small known values that nodes compute, such as a padding derived
  // from a fixed image size. Null: none are computed.
  std::map<ValueId, Tensor>* computed = nullptr;
};

// Runs the shape rule of `node`, whose inputs must have known types, and stores the result in the
// values of its outputs. Sub-graphs of the node are inferred too and replaced by the result.
Status InferNode(Graph& graph, Node& node, InferBudget& budget);

// All nodes of `graph` in order. Types of the graph's inputs must be set.
Status InferNodes(Graph& graph, InferBudget& budget);

// What is known about a value that is either `a` or `b`: dimensions that differ become unknown.
SymbolicShape Generalise(const SymbolicShape& a, const SymbolicShape& b);

// If, Loop and Scan: in infer_control.cc.
Status InferControlNode(Graph& graph, Node& node, InferBudget& budget);

// Stores `info` in `value`. Existing knowledge is kept where `info` has none. A contradicting type
// is an error, and so is a shape larger than a tensor can have. Unknown dimensions get new symbols,
// so that values computed from this one element by element are known to have its shape. `what`
// names the value for messages.
Status StoreInfo(Value& value, const ValueInfo& info, const std::string& what);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_INFER_H_
