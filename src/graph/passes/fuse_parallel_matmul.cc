// Products of one value by several constant matrices, as of queries, keys and values, become one
// node: chairlift::ParallelMatMul (TurboTransformers §4.1: Q, K and V in one product). What stands
// behind each stays as it is.
#include <map>
#include <utility>

#include "graph/passes/absorb.h"
#include "graph/passes/passes.h"

namespace chairlift {
namespace {

class Fuser : private Absorber {
 public:
  Fuser(Graph& graph, std::vector<std::string>& notes) : Absorber(graph), notes_(notes) {}

  int Run() {
    std::map<ValueId, std::vector<int>> products;  // of the same A
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
      if (IsProduct(graph_.nodes[n])) products[graph_.nodes[n].inputs[0]].push_back(n);
    }
    int count = 0;
    for (const auto& [a, nodes] : products) {
      if (nodes.size() > 1) count += Fuse(nodes) ? 1 : 0;
    }
    RemoveNodes(graph_, removed_);
    return count;
  }

 private:
  // Of a float32 value and a constant matrix.
  bool IsProduct(const Node& node) const {
    if (!Is(node, "MatMul") && !Is(node, "FusedMatMul", "chairlift")) return false;
    const Tensor* b = ConstantInput(graph_, node, 1);
    return b != nullptr && b->dtype() == DType::kFloat && b->shape().rank() == 2 &&
           shape(node.inputs[0]).has_rank() && shape(node.inputs[0]).rank() > 0;
  }

  // Why the product cannot share a node; null where it can.
  const char* Problem(const Node& node) const {
    if (!node.attributes.String("activation", "").empty()) return "an activation follows it";
    if (HasInput(node, 3)) return "a residual is added to it";
    if (node.attributes.Int("transpose_a", 0) != 0 || node.attributes.Int("transpose_b", 0) != 0) {
      return "an operand is transposed";
    }
    if (node.attributes.Float("alpha", 1.0f) != 1.0f) return "it is scaled";
    return nullptr;
  }

  // One node in the place of the first.
  bool Fuse(const std::vector<int>& nodes) {
    std::vector<int> fitting;
    for (int n : nodes) {
      const char* problem = Problem(graph_.nodes[n]);
      if (problem == nullptr) {
        fitting.push_back(n);
      } else {
        notes_.push_back(graph_.nodes[n].Describe() + ": others multiply the same value, but " +
                         problem);
      }
    }
    if (fitting.size() < 2) return false;
    Node fused;
    fused.name = graph_.nodes[fitting[0]].name;
    fused.def = fused_;
    fused.inputs = {graph_.nodes[fitting[0]].inputs[0]};
    for (int n : fitting) {
      const Node& node = graph_.nodes[n];
      fused.inputs.push_back(node.inputs[1]);
      fused.inputs.push_back(HasInput(node, 2) ? node.inputs[2] : kNoValue);
      fused.outputs.push_back(node.outputs[0]);
      removed_[n] = n != fitting[0];
    }
    graph_.nodes[fitting[0]] = std::move(fused);
    return true;
  }

  std::vector<std::string>& notes_;
  const OperatorDef* const fused_ = Fused("ParallelMatMul");
};

StatusOr<int> Run(Graph& graph, std::vector<std::string>& notes) {
  return Fuser(graph, notes).Run();
}

}  // namespace

Pass FuseParallelMatMul() {
  return {"fuse_parallel_matmul", "products of one value (queries, keys, values) in one kernel",
          Run};
}

}  // namespace chairlift
