// Moves a batch normalisation, or arithmetic with one constant per channel, after a convolution or
// Gemm into its weights and bias.
#include <cmath>
#include <optional>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

// y = scale · x + shift, channel by channel.
struct Affine {
  std::vector<double> scale;
  std::vector<double> shift;
};

std::vector<double> Values(const Tensor& t) {
  const auto v = t.values<float>();
  return {v.begin(), v.end()};
}

// How the weights of the previous linear node are scaled, and their layout.
struct Weights {
  int64_t channels = 0;
  // Elements [c · block, …) at every multiple of channels · block belong to channel c.
  int64_t block = 0;
  bool spatial = false;  // channels are axis 1 of rank ≥ 3; else the last axis
};

std::optional<Weights> WeightsOf(const Graph& graph, const Node& node) {
  const Tensor* w = ConstantInput(graph, node, 1);
  if (w == nullptr || w->dtype() != DType::kFloat || w->size() == 0) return std::nullopt;
  if (node.inputs.size() > 2 && node.inputs[2] != kNoValue) {
    const Tensor* b = ConstantInput(graph, node, 2);
    if (b == nullptr || b->dtype() != DType::kFloat) return std::nullopt;
  }
  const Shape& shape = w->shape();
  if (Is(node, "Conv") && shape.rank() >= 3) {
    return Weights{shape[0], w->size() / shape[0], true};
  }
  if (Is(node, "ConvTranspose") && shape.rank() >= 3 && node.attributes.Int("group", 1) == 1) {
    return Weights{shape[1], shape.NumElements(2, shape.rank()), true};
  }
  if (Is(node, "Gemm") && shape.rank() == 2) {
    const bool transposed = node.attributes.Int("transB", 0) != 0;
    return transposed ? Weights{shape[0], shape[1], false} : Weights{shape[1], 1, false};
  }
  return std::nullopt;
}

// A constant that repeats along all axes except the channels': one value per channel.
std::optional<std::vector<double>> PerChannel(const Tensor& t, const SymbolicShape& out,
                                              const Weights& weights) {
  if (t.dtype() != DType::kFloat || !out.has_rank() || t.shape().rank() > out.rank()) {
    return std::nullopt;
  }
  if (t.size() == 1) return std::vector<double>(weights.channels, t.values<float>()[0]);
  const int from_end = weights.spatial ? out.rank() - 1 : 1;  // the channel axis, counted from 1
  const int axis = t.shape().rank() - from_end;
  if (axis < 0 || t.shape()[axis] != weights.channels || t.size() != weights.channels) {
    return std::nullopt;
  }
  return Values(t);
}

std::optional<Affine> BatchNorm(const Graph& graph, const Node& node, const Weights& weights) {
  if (node.attributes.Int("training_mode", 0) != 0) return std::nullopt;
  const Tensor* parameters[4];  // scale, bias, mean, variance
  for (int i = 0; i < 4; ++i) {
    parameters[i] = ConstantInput(graph, node, i + 1);
    if (parameters[i] == nullptr || parameters[i]->dtype() != DType::kFloat ||
        parameters[i]->size() != weights.channels) {
      return std::nullopt;
    }
  }
  const double epsilon = node.attributes.Float("epsilon", 1e-5f);
  Affine a;
  for (int64_t c = 0; c < weights.channels; ++c) {
    const auto at = [&](int i) -> double { return parameters[i]->data<float>()[c]; };
    const double scale = at(0) / std::sqrt(at(3) + epsilon);
    a.scale.push_back(scale);
    a.shift.push_back(at(1) - at(2) * scale);
  }
  return a;
}

// The operation of `node` on its input `from`.
std::optional<Affine> AffineOf(const Graph& graph, const Node& node, ValueId from,
                               const Weights& weights) {
  if (Is(node, "BatchNormalization")) {
    return node.inputs[0] == from && (node.outputs.size() == 1 || node.outputs[1] == kNoValue)
               ? BatchNorm(graph, node, weights)
               : std::nullopt;
  }
  const bool mul = Is(node, "Mul"), div = Is(node, "Div"), add = Is(node, "Add"),
             sub = Is(node, "Sub");
  if ((!mul && !div && !add && !sub) || node.inputs.size() != 2) return std::nullopt;
  const int at = node.inputs[0] == from ? 0 : 1;
  if (at == 1 && (div || sub)) return std::nullopt;
  const Tensor* constant = ConstantInput(graph, node, 1 - at);
  const SymbolicShape& out = graph.values[node.outputs[0]].shape;
  if (constant == nullptr || !SameShape(out, graph.values[from].shape)) return std::nullopt;
  auto values = PerChannel(*constant, out, weights);
  if (!values) return std::nullopt;
  Affine a;
  a.scale.assign(weights.channels, 1);
  a.shift.assign(weights.channels, 0);
  for (int64_t c = 0; c < weights.channels; ++c) {
    const double v = (*values)[c];
    if (mul) a.scale[c] = v;
    if (div) a.scale[c] = 1 / v;
    if (add) a.shift[c] = v;
    if (sub) a.shift[c] = -v;
  }
  return a;
}

// The bias of the node as one value per channel, or nullopt if it has another form.
std::optional<std::vector<double>> BiasOf(const Graph& graph, const Node& node,
                                          const Weights& weights) {
  const Tensor* b = ConstantInput(graph, node, 2);
  if (b == nullptr) return std::vector<double>(weights.channels, 0);
  const bool gemm = Is(node, "Gemm");
  const double beta = gemm ? node.attributes.Float("beta", 1.0f) : 1;
  std::vector<double> values = Values(*b);
  if (gemm && values.size() == 1) values.assign(weights.channels, values[0]);
  if (static_cast<int64_t>(values.size()) != weights.channels) return std::nullopt;
  if (gemm && b->shape().rank() > 0 && b->size() > 1 &&
      b->shape()[b->shape().rank() - 1] != weights.channels) {
    return std::nullopt;  // a column
  }
  for (double& v : values) v *= beta;
  return values;
}

bool Finite(const Affine& a) {
  for (size_t c = 0; c < a.scale.size(); ++c) {
    if (!std::isfinite(a.scale[c]) || !std::isfinite(a.shift[c])) return false;
  }
  return true;
}

void Apply(Graph& graph, Node& node, const Weights& weights, const Affine& affine,
           const std::vector<double>& bias) {
  const Tensor& w = graph.values[node.inputs[1]].constant;
  const std::string name = graph.values[node.inputs[1]].name;
  Tensor scaled = w.Clone();
  float* data = scaled.data<float>();
  for (int64_t i = 0; i < scaled.size(); ++i) {
    const int64_t channel = i / weights.block % weights.channels;
    data[i] = static_cast<float>(data[i] * affine.scale[channel]);
  }
  Tensor shifted = Tensor::Allocate(DType::kFloat, Shape{weights.channels});
  for (int64_t c = 0; c < weights.channels; ++c) {
    shifted.data<float>()[c] = static_cast<float>(bias[c] * affine.scale[c] + affine.shift[c]);
  }
  node.inputs.resize(3, kNoValue);
  node.inputs[1] = AddConstant(graph, name + "/scaled", std::move(scaled));
  node.inputs[2] = AddConstant(graph, name + "/bias", std::move(shifted));
  if (Is(node, "Gemm")) node.attributes.Set("beta", 1.0f);
}

StatusOr<int> RunFuseBatchNorm(Graph& graph, std::vector<std::string>& notes) {
  const Links links(graph);
  std::vector<bool> removed(graph.nodes.size(), false);
  int count = 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& node = graph.nodes[n];
    while (const auto weights = WeightsOf(graph, node)) {
      const ValueId out = node.outputs[0];
      const int reader = links.SoleReader(out);
      if (reader < 0) break;
      const auto affine = AffineOf(graph, graph.nodes[reader], out, *weights);
      if (!affine) break;
      const auto bias = BiasOf(graph, node, *weights);
      if (!bias || !Finite(*affine)) {
        notes.push_back(graph.nodes[reader].Describe() + " stays: " +
                        (bias ? "it is not finite" : "the bias before it is a matrix"));
        break;
      }
      Apply(graph, node, *weights, *affine, *bias);
      node.outputs[0] = graph.nodes[reader].outputs[0];
      removed[reader] = true;
      ++count;
    }
  }
  RemoveNodes(graph, removed);
  return count;
}

}  // namespace

Pass FuseBatchNorm() {
  return {"fuse_batch_norm",
          "multiply batch normalisation and arithmetic by channel into weights before it",
          RunFuseBatchNorm};
}

}  // namespace chairlift
