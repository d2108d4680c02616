// What follows a convolution element by element, the sum with a residual and an activation, happens
// while its results are in registers: chairlift::FusedConv; an activation after a transposed one:
// chairlift::FusedConvTranspose.
#include "graph/passes/absorb.h"
#include "graph/passes/activation.h"
#include "graph/passes/passes.h"

namespace chairlift {
namespace {

class ConvFuser : private Absorber {
 public:
  explicit ConvFuser(Graph& graph) : Absorber(graph) {}

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
    const int conv = Open(id, n);
    if (conv < 0) return -1;
    const Node& node = graph_.nodes[conv];
    return Is(node, "Conv") || Is(node, "FusedConv", "chairlift") ? conv : -1;
  }

  bool FuseActivation(int n) {
    const auto activation = ActivationOf(graph_, graph_.nodes[n]);
    if (!activation) return false;
    const int conv = Open(graph_.nodes[n].inputs[0], n);
    if (conv < 0) return false;
    const OperatorDef* def = Is(graph_.nodes[conv], "ConvTranspose") ? transposed_ : fused_;
    if (def == fused_ && Convolution(graph_.nodes[n].inputs[0], n) < 0) return false;
    SetActivation(MoveTo(conv, n, def).attributes, *activation);
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
      if (HasInput(graph_.nodes[found], 3)) continue;
      conv = found;
      residual = add.inputs[1 - i];
    }
    if (conv < 0) return false;
    if (!SameShape(shape(residual), shape(graph_.nodes[conv].outputs[0]))) {
      notes.push_back(add.Describe() + ": its operands " + shape(add.inputs[0]).ToString() +
                      " and " + shape(add.inputs[1]).ToString() +
                      " are not known to have one shape");
      return false;
    }
    SetInput(MoveTo(conv, n, fused_), 3, residual);
    return true;
  }

  const OperatorDef* const fused_ = Fused("FusedConv");
  const OperatorDef* const transposed_ = Fused("FusedConvTranspose");
};

StatusOr<int> RunFuseConv(Graph& graph, std::vector<std::string>& notes) {
  return ConvFuser(graph).Run(notes);
}

}  // namespace

Pass FuseConv() {
  return {"fuse_conv", "compute residual sums and activations inside the convolution before them",
          RunFuseConv};
}

}  // namespace chairlift
