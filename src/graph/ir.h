// The graph IR: values and nodes in topological order, all data flow explicit.
//
// A sub-graph (the body of If, Loop, Scan) has no hidden reads. Values that it captures from
// outside are listed in `captures` and passed as further inputs of the node that holds it, after
// the node's own inputs (for a node with several sub-graphs, in order of attribute name).
#ifndef CHAIRLIFT_GRAPH_IR_H_
#define CHAIRLIFT_GRAPH_IR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/operator.h"

namespace chairlift {

using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;  // an absent optional input or output

struct Value {
  std::string name = {};
  DType dtype = DType::kUndefined;
  SymbolicShape shape = {};
  Tensor constant = {};                           // present() for initialisers and folded values
  std::optional<std::vector<Dim>> elements = {};  // as in ValueInfo
  Layout layout = Layout::kRowMajor;

  bool is_constant() const { return constant.present(); }
  ValueInfo info() const { return {dtype, shape, is_constant() ? &constant : nullptr, elements}; }
};

struct Node {
  std::string name;  // as in the file; generated from the operator and position if empty
  const OperatorDef* def = nullptr;
  Attributes attributes;
  std::vector<ValueId> inputs;   // kNoValue for absent optional inputs
  std::vector<ValueId> outputs;  // kNoValue for absent optional outputs

  // "node 'encoder/add' (Add)", for messages.
  std::string Describe() const;
};

// Not thread-safe while it is rewritten; immutable afterwards.
class Graph {
 public:
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;      // topological order
  std::vector<ValueId> inputs;  // formal inputs, then captures
  std::vector<ValueId> outputs;
  int num_captures = 0;  // trailing entries of `inputs` that are read from the enclosing graph

  int num_formal_inputs() const { return static_cast<int>(inputs.size()) - num_captures; }
  ValueId AddValue(Value value) {
    values.push_back(std::move(value));
    return static_cast<ValueId>(values.size()) - 1;
  }
};

// The sub-graphs of a node, in order of attribute name.
std::vector<std::pair<std::string, std::shared_ptr<const Graph>>> Subgraphs(const Node& node);

// Checks every invariant of a graph: ids in range, single assignment, topological order, arity,
// supported element types, outputs defined, captures passed. Run after every pass.
Status Verify(const Graph& graph);

// Runs every node's shape rule in order and stores the results in the values. Keeps declared
// dimensions that the rules cannot infer, and refuses contradicting element types. (Contradicting
// shapes are replaced: files are full of stale ones.) A dimension that neither knows gets a new
// symbol. Includes sub-graphs.
Status InferShapes(Graph& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_IR_H_
