// What follows a convolution element by element, the sum with a residual and an activation, happens
// while its results are in registers: chairlift::FusedConv.
#include "graph/passes/activation.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

class Fuser {
 public:
  explicit Fuser(Graph& graph)
      : graph_(graph),
        fused_(OperatorRegistry::Builtin().Find("chairlift", "FusedConv")),
        links_(graph),
        removed_(graph.nodes.size(), false) {}

  int Run(std::vector<std::string>& notes) {
    int count = 0;
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
      if (FuseActivation(n) || FuseResidual(n, notes)) ++count;
    }
    RemoveNodes(graph_, removed_);
    return count;
  }

 private:
  // The convolution that computes `id` for node n alone and has no activation yet; else -1.
  int Convolution(ValueId id, int n) const {
    const int conv = links_.producer(id);
    if (conv < 0 || links_.SoleReader(id) != n) return -1;
    const Node& node = graph_.nodes[conv];
    if (!Is(node, "Conv") && !Is(node, "FusedConv", "chairlift")) return -1;
    if (graph_.values[id].dtype != DType::kFloat) return -1;
    return node.attributes.String("activation", "").empty() ? conv : -1;
  }

  // Node n becomes `conv` with its own output.
  Node& MoveTo(int conv, int n) {
    Node fused = std::move(graph_.nodes[conv]);
    fused.def = fused_;
    fused.outputs = graph_.nodes[n].outputs;
    removed_[conv] = true;
    graph_.nodes[n] = std::move(fused);
    return graph_.nodes[n];
  }

  bool FuseActivation(int n) {
    const auto activation = ActivationOf(graph_, graph_.nodes[n]);
    if (!activation) return false;
    const int conv = Convolution(graph_.nodes[n].inputs[0], n);
    if (conv < 0) return false;
    SetActivation(MoveTo(conv, n).attributes, *activation);
    return true;
  }

  bool FuseResidual(int n, std::vector<std::string>& notes) {
    const Node& add = graph_.nodes[n];
    if (!Is(add, "Add") || add.inputs.size() != 2) return false;
    // Of two convolutions, the later: the other's result exists by then.
    int conv = -1;
    ValueId residual = kNoValue;
    for (int i = 0; i < 2; ++i) {
      const int found = Convolution(add.inputs[i], n);
      if (found <= conv) continue;
      const Node& node = graph_.nodes[found];
      if (node.inputs.size() > 3 && node.inputs[3] != kNoValue) continue;
      conv = found;
      residual = add.inputs[1 - i];
    }
    if (conv < 0) return false;
    if (!SameShape(graph_.values[residual].shape,
                   graph_.values[graph_.nodes[conv].outputs[0]].shape)) {
      notes.push_back(add.Describe() + ": its operands " +
                      graph_.values[add.inputs[0]].shape.ToString() + " and " +
                      graph_.values[add.inputs[1]].shape.ToString() +
                      " are not known to have one shape");
      return false;
    }
    Node& fused = MoveTo(conv, n);
    fused.inputs.resize(4, kNoValue);
    fused.inputs[3] = residual;
    return true;
  }

  Graph& graph_;
  const OperatorDef* fused_;
  const Links links_;
  std::vector<bool> removed_;
};

StatusOr<int> Run(Graph& graph, std::vector<std::string>& notes) { return Fuser(graph).Run(notes); }

}  // namespace

Pass FuseConv() {
  return {"fuse_conv", "compute residual sums and activations inside the convolution before them",
          Run};
}

}  // namespace chairlift
