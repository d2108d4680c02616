#include "graph/ragged/quantized_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "graph/passes/rewrite.h"

namespace chairlift::ragged {
namespace {

// Scale, zero point and range of integers; a scale of 0: not quantised.
using Steps = std::array<float, 4>;
constexpr size_t kPlaces = 4;  // as AttentionSteps::Place

class QuantizedAttention {
 public:
  explicit QuantizedAttention(Graph& graph) : graph_(graph), links_(graph) {}

  void Run() {
    const OperatorDef* def = OperatorRegistry::Builtin().Find("chairlift", "Attention");
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (Is(graph_.nodes[n], "Softmax")) Fuse(static_cast<int>(n), def);
    }
  }

 private:
  // The scores of a softmax, followed to their product.
  struct Scores {
    int product = -1;
    ValueId mask = kNoValue;
    double scale = 1;
    std::array<Steps, kPlaces> steps{};
  };

  Node& At(int n) { return graph_.nodes[static_cast<size_t>(n)]; }
  const Node& At(int n) const { return graph_.nodes[static_cast<size_t>(n)]; }
  // The node that computes the value, if it is the operator `op`; else −1.
  int MadeBy(ValueId id, std::string_view op) const {
    const int n = links_.producer(id);
    return n >= 0 && Is(At(n), op) ? n : -1;
  }
  bool Rank4(ValueId id) const {
    const SymbolicShape& shape = graph_.values[static_cast<size_t>(id)].shape;
    return shape.has_rank() && shape.rank() == 4;
  }
  // Whether nothing but `reader` reads the value, except for its shape.
  bool ReadBy(ValueId id, int reader) const {
    const std::vector<int>& readers = links_.readers(id);
    return !links_.is_output(id) && std::all_of(readers.begin(), readers.end(), [&](int n) {
      return n == reader || At(n).def->gives_sizes;
    });
  }

  // The scale and the zero point of a QuantizeLinear or DequantizeLinear, if they are one for all.
  std::optional<Steps> StepsOf(const Node& node, DType dtype) const {
    const Tensor* scale = ConstantInput(graph_, node, 1);
    const Tensor* zero = node.inputs.size() > 2 ? ConstantInput(graph_, node, 2) : nullptr;
    const bool is_signed = dtype == DType::kInt8;
    if (scale == nullptr || scale->dtype() != DType::kFloat || scale->size() != 1 ||
        (node.inputs.size() > 2 && (zero == nullptr || zero->size() != 1)) ||
        (!is_signed && dtype != DType::kUInt8)) {
      return std::nullopt;
    }
    Steps steps = {scale->data<float>()[0], 0, is_signed ? -128.0f : 0.0f,
                   is_signed ? 127.0f : 255.0f};
    if (zero != nullptr) {
      steps[1] = is_signed ? static_cast<float>(zero->data<int8_t>()[0])
                           : static_cast<float>(zero->data<uint8_t>()[0]);
    }
    // Beyond these bounds, arithmetic with the scale could overflow or underflow.
    if (!(steps[0] > 1e-30f) || !(steps[0] < 1e30f)) return std::nullopt;
    return steps;
  }

  // Before DequantizeLinear(QuantizeLinear(x)), which `reader` reads: x, and its steps. Otherwise
  // `id` itself.
  ValueId Before(ValueId id, int& reader, Steps& steps) const {
    const int real = MadeBy(id, "DequantizeLinear");
    if (real < 0 || !ReadBy(id, reader)) return id;
    const ValueId integers = At(real).inputs[0];
    const int quantizes = MadeBy(integers, "QuantizeLinear");
    const DType dtype = graph_.values[static_cast<size_t>(integers)].dtype;
    if (quantizes < 0 || !ReadBy(integers, real)) return id;
    const auto to = StepsOf(At(quantizes), dtype), from = StepsOf(At(real), dtype);
    if (!to || to != from) return id;
    steps = *to;
    reader = quantizes;
    return At(quantizes).inputs[0];
  }

  std::optional<Scores> Follow(ValueId id, int reader) const {
    Scores scores;
    id = Before(id, reader, scores.steps[2]);
    if (!ReadBy(id, reader)) return std::nullopt;
    if (const int sum = MadeBy(id, "Add"); sum >= 0) {
      for (size_t i = 0; i < 2; ++i) {
        const ValueId mask = At(sum).inputs[1 - i];
        auto inside = FollowScaled(At(sum).inputs[i], sum);
        const Value& value = graph_.values[static_cast<size_t>(mask)];
        if (!inside || value.dtype != DType::kFloat || !value.shape.has_rank() ||
            value.shape.rank() > 4 || scores.steps[2][0] != 0) {
          continue;
        }
        const int expanded = MadeBy(mask, "Expand");
        inside->mask = expanded < 0 ? mask : At(expanded).inputs[0];
        return inside;
      }
      return std::nullopt;
    }
    auto inside = FollowScaled(id, reader);
    if (inside) inside->steps[2] = scores.steps[2];
    return inside;
  }

  std::optional<Scores> FollowScaled(ValueId id, int reader) const {
    Scores scores;
    id = Before(id, reader, scores.steps[1]);
    if (!ReadBy(id, reader)) return std::nullopt;
    int scaled = MadeBy(id, "Mul");
    if (scaled < 0) scaled = MadeBy(id, "Div");
    if (scaled >= 0) {
      const auto parts = SplitScalar(graph_, At(scaled));
      const bool divides = Is(At(scaled), "Div");
      if (!parts || (divides && parts->other != At(scaled).inputs[0])) return std::nullopt;
      scores.scale = divides ? 1 / parts->scalar : parts->scalar;
      reader = scaled;
      id = Before(parts->other, reader, scores.steps[0]);
      if (!ReadBy(id, reader)) return std::nullopt;
    } else {
      std::swap(scores.steps[0], scores.steps[1]);
    }
    scores.product = MadeBy(id, "MatMul");
    if (scores.product < 0 || !Rank4(id)) return std::nullopt;
    return scores;
  }

  // The product of the softmax's weights and values, and the steps between.
  int Product(int softmax, bool& zeros_for_none, Steps& steps) const {
    ValueId weights = At(softmax).outputs[0];
    for (const int is_nan : links_.readers(weights)) {
      // Where(IsNaN(weights), 0, weights)
      if (!Is(At(is_nan), "IsNaN") || links_.readers(weights).size() != 2) continue;
      const int where = links_.SoleReader(At(is_nan).outputs[0]);
      if (where < 0 || !Is(At(where), "Where") || At(where).inputs[2] != weights ||
          At(where).inputs[0] != At(is_nan).outputs[0] ||
          ScalarInput(graph_, At(where), 1) != 0.0) {
        return -1;
      }
      zeros_for_none = true;
      weights = At(where).outputs[0];
      break;
    }
    int reader = links_.SoleReader(weights);
    if (reader >= 0 && Is(At(reader), "QuantizeLinear")) {
      const int real = links_.SoleReader(At(reader).outputs[0]);
      if (real < 0 || !Is(At(real), "DequantizeLinear")) return -1;
      const DType dtype = graph_.values[static_cast<size_t>(At(reader).outputs[0])].dtype;
      const auto to = StepsOf(At(reader), dtype), from = StepsOf(At(real), dtype);
      if (!to || to != from) return -1;
      steps = *to;
      weights = At(real).outputs[0];
      reader = links_.SoleReader(weights);
    }
    if (reader < 0 || !Is(At(reader), "MatMul") || At(reader).inputs[0] != weights ||
        At(reader).inputs[1] == weights) {
      return -1;
    }
    return reader;
  }

  void Fuse(int softmax, const OperatorDef* def) {
    const int64_t axis = At(softmax).attributes.Int("axis", -1);
    const ValueId id = At(softmax).inputs[0];
    if (graph_.values[static_cast<size_t>(id)].dtype != DType::kFloat || !Rank4(id) ||
        (axis != -1 && axis != 3)) {
      return;
    }
    auto scores = Follow(id, softmax);
    bool zeros_for_none = false;
    if (!scores) return;
    const int product = Product(softmax, zeros_for_none, scores->steps[3]);
    if (product < 0 || !Rank4(At(product).inputs[1])) return;
    const Node& inner = At(scores->product);
    if (!Rank4(inner.inputs[0]) || !Rank4(inner.inputs[1])) return;
    std::vector<float> steps;
    for (const Steps& at : scores->steps) steps.insert(steps.end(), at.begin(), at.end());
    Node& fused = At(product);
    fused.attributes = Attributes();
    fused.attributes.Set("scale", static_cast<float>(scores->scale));
    fused.attributes.Set("k_axes", std::vector<int64_t>{0, 1, 3, 2});
    fused.attributes.Set("steps", std::move(steps));
    if (zeros_for_none) fused.attributes.Set("zeros_for_none", int64_t{2});
    fused.inputs = {inner.inputs[0], inner.inputs[1], fused.inputs[1]};
    if (scores->mask != kNoValue) fused.inputs.push_back(scores->mask);
    fused.def = def;
  }

  Graph& graph_;
  const Links links_;
};

// QLinearMatMul(a, scale, zero, b, scale, zero, scale, zero) of two computed matrices as MatMul
// between DequantizeLinear and QuantizeLinear.
void SplitProducts(Graph& graph) {
  std::vector<size_t> found;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (!Is(node, "QLinearMatMul") || ConstantInput(graph, node, 3) != nullptr) continue;
    bool scalars = true;
    for (const int i : {1, 2, 4, 5, 6, 7}) {
      const Tensor* constant = ConstantInput(graph, node, i);
      scalars = scalars && constant != nullptr && constant->size() == 1;
    }
    if (scalars) found.push_back(n);
  }
  for (const size_t n : found) {
    const std::string name = graph.nodes[n].name;
    const std::vector<ValueId> in = graph.nodes[n].inputs;
    const auto scalar = [&](ValueId id) {
      const Tensor constant = graph.values[static_cast<size_t>(id)].constant;
      return AddConstant(graph, name + "/scalar", constant.Reshaped(Shape{}));
    };
    const auto real = [&](size_t i) {
      return AddNode(graph, name, "DequantizeLinear",
                     {in[i], scalar(in[i + 1]), scalar(in[i + 2])});
    };
    const ValueId a = real(0), b = real(3);
    const ValueId y = AddNode(graph, name, "MatMul", {a, b});
    const std::vector<ValueId> inputs = {y, scalar(in[6]), scalar(in[7])};
    graph.nodes[n].def = OperatorRegistry::Builtin().Find("", "QuantizeLinear");
    graph.nodes[n].attributes = Attributes();
    graph.nodes[n].inputs = inputs;
  }
  if (!found.empty()) SortNodes(graph);
}

// [b, h, l, d] → [b·h, l, d] → [b·h, d, l] → [b, h, d, l], as PyTorch's exporter transposes keys,
// as one Transpose.
void JoinTransposes(Graph& graph) {
  const Links links(graph);
  for (Node& last : graph.nodes) {
    if (!Is(last, "Reshape")) continue;
    const int middle = links.producer(last.inputs[0]);
    if (middle < 0) continue;
    const Node& transpose = graph.nodes[static_cast<size_t>(middle)];
    if (!Is(transpose, "Transpose") ||
        transpose.attributes.Ints("perm") != std::vector<int64_t>{0, 2, 1}) {
      continue;
    }
    const int begin = links.producer(transpose.inputs[0]);
    if (begin < 0 || !Is(graph.nodes[static_cast<size_t>(begin)], "Reshape")) continue;
    const ValueId source = graph.nodes[static_cast<size_t>(begin)].inputs[0];
    const auto shape = [&](ValueId id) -> const SymbolicShape& {
      return graph.values[static_cast<size_t>(id)].shape;
    };
    const SymbolicShape &from = shape(source), &flat = shape(transpose.inputs[0]),
                        &to = shape(last.outputs[0]);
    if (!from.has_rank() || from.rank() != 4 || !flat.has_rank() || flat.rank() != 3 ||
        !to.has_rank() || to.rank() != 4 || !flat[1].Same(from[2]) || !flat[2].Same(from[3]) ||
        !to[0].Same(from[0]) || !to[1].Same(from[1]) || !to[2].Same(from[3]) ||
        !to[3].Same(from[2])) {
      continue;
    }
    last.def = OperatorRegistry::Builtin().Find("", "Transpose");
    last.attributes = Attribute("perm", std::vector<int64_t>{0, 1, 3, 2});
    last.inputs = {source};
  }
}

}  // namespace

Status FuseQuantizedAttention(Graph& graph) {
  const bool quantized = std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return Is(node, "QuantizeLinear") || Is(node, "QLinearMatMul");
  });
  if (!quantized) return absl::OkStatus();
  SplitProducts(graph);
  CHAIRLIFT_RETURN_IF_ERROR(InferShapes(graph));
  JoinTransposes(graph);
  QuantizedAttention(graph).Run();
  return InferShapes(graph);
}

}  // namespace chairlift::ragged
