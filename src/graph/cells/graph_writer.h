// Adds nodes to a graph.
#ifndef CHAIRLIFT_GRAPH_CELLS_GRAPH_WRITER_H_
#define CHAIRLIFT_GRAPH_CELLS_GRAPH_WRITER_H_

#include <string>
#include <vector>

#include "graph/ir.h"

namespace chairlift {

// Values get the name of the node that computes them. Their types and shapes come from
// InferShapes().
class GraphWriter {
 public:
  // Appends to `nodes`, which may be graph.nodes. Names begin with `prefix`.
  GraphWriter(Graph& graph, std::vector<Node>& nodes, std::string prefix)
      : graph_(graph), nodes_(nodes), prefix_(std::move(prefix)) {}

  std::vector<ValueId> Call(const OperatorDef& def, std::vector<ValueId> inputs, int num_outputs,
                            Attributes attributes = {});
  Node& last() { return nodes_.back(); }
  void Name(ValueId id, std::string name) { graph_.values[id].name = std::move(name); }
  // A builtin operator of ai.onnx with one output.
  ValueId Op(const char* op, std::vector<ValueId> inputs, Attributes attributes = {});
  ValueId Constant(Tensor t);
  ValueId Ints(const std::vector<int64_t>& values);  // rank 1
  ValueId Int(int64_t value);                        // a scalar

  ValueId Squeeze(ValueId x, int64_t axis) { return Op("Squeeze", {x, Ints({axis})}); }
  ValueId Unsqueeze(ValueId x, int64_t axis) { return Op("Unsqueeze", {x, Ints({axis})}); }
  ValueId Reshape(ValueId x, const std::vector<int64_t>& dims) {
    return Op("Reshape", {x, Ints(dims)});
  }
  ValueId Transpose(ValueId x, const std::vector<int64_t>& perm);
  ValueId Concat(std::vector<ValueId> parts, int64_t axis);
  ValueId Pick(ValueId x, int64_t index, int64_t axis);  // removes the axis

 private:
  Graph& graph_;
  std::vector<Node>& nodes_;
  const std::string prefix_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_CELLS_GRAPH_WRITER_H_
