// Fuses elementwise operators after a convolution, the sum with a residual and an activation, so
// that they run on results in registers: chairlift::FusedConv. A factor per channel before a
// convolution with one tap is applied when its inputs are read. An activation after a transposed
// convolution: chairlift::FusedConvTranspose.
#include <algorithm>

#include "graph/passes/absorb.h"
#include "graph/passes/activation.h"
#include "graph/passes/passes.h"
#include "ops/linear/activation.h"

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
    // Runs after all activations are fused, because they determine which convolutions may scale.
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
      if (FuseScale(n)) ++count;
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
    // If there are two convolutions, the later one: the other's result exists by then.
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

  // A factor per channel before a convolution of one tap, as at the end of a squeeze-and-excite
  // block (Hu et al., "Squeeze-and-Excitation Networks", 2018).
  bool FuseScale(int n) {
    if (removed_[n] || !Scales(graph_.nodes[n])) return false;
    const int mul = links_.producer(graph_.nodes[n].inputs[0]);
    if (mul < 0 || removed_[mul] || !Is(graph_.nodes[mul], "Mul") ||
        links_.SoleReader(graph_.nodes[n].inputs[0]) < 0) {
      return false;
    }
    for (int i = 0; i < 2; ++i) {
      const ValueId scaled = graph_.nodes[mul].inputs[1 - i], scale = graph_.nodes[mul].inputs[i];
      if (!IsScale(shape(scale), shape(scaled))) continue;
      Node& fused = graph_.nodes[n];
      fused.def = fused_;
      fused.inputs[0] = scaled;
      SetInput(fused, 4, scale);
      removed_[mul] = true;
      return true;
    }
    return false;
  }

  // Whether a node is a convolution of one tap by constants, on blocked channels, that maps the
  // zeros that fill up a block to zeros.
  bool Scales(const Node& node) const {
    if (!Is(node, "Conv") && !Is(node, "FusedConv", "chairlift")) return false;
    const Value& weights = graph_.values[node.inputs[1]];
    const SymbolicShape& w = weights.shape;
    if (!weights.is_constant() || !w.concrete() || weights.dtype != DType::kFloat || w.rank() > 4 ||
        node.attributes.Int("group", 1) != 1 || HasInput(node, 4) || !FillsBlocks(w[0].value()) ||
        !FillsBlocks(w[1].value())) {
      return false;
    }
    for (int i = 2; i < w.rank(); ++i) {
      if (w[i].value() != 1) return false;
    }
    const std::vector<int64_t> pads = node.attributes.Ints("pads");
    const auto activation = Activation::Parse(node.attributes);
    return std::all_of(pads.begin(), pads.end(), [](int64_t p) { return p == 0; }) &&
           activation.ok() &&
           (w[0].value() % ChannelBlock() == 0 || Activate(*activation, 0.0) == 0);
  }

  // [the same or 1, channels, 1...] for [batch, channels, ...]
  static bool IsScale(const SymbolicShape& scale, const SymbolicShape& x) {
    if (!scale.has_rank() || !x.has_rank() || scale.rank() != x.rank() || x.rank() < 3)
      return false;
    const auto one = [&](int i) { return scale[i].known() && scale[i].value() == 1; };
    if (!(one(0) || scale[0].Same(x[0])) || !x[1].known() || !scale[1].Same(x[1])) return false;
    for (int i = 2; i < x.rank(); ++i) {
      if (!one(i)) return false;
    }
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
  return {"fuse_conv",
          "compute residual sums and activations inside the convolution before them, and factors "
          "for each "
          "channel inside the one after",
          RunFuseConv};
}

}  // namespace chairlift
