// Replaces a convolution between DequantizeLinear and QuantizeLinear, with a Relu or Clip after it,
// by chairlift::QLinearConv, which computes in integers. What follows on its bytes likewise: sums
// and products become chairlift::QLinearAdd and QLinearMul; a dense layer becomes a
// convolution of one position; MaxPool, Concat and operators that only move elements read and
// write bytes. Results differ by at most one rounding step.
//
// Runs before constants are folded: folding would turn the weights into float32.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "graph/passes/activation.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "ops/linear/activation.h"
#include "ops/quantization/rounding.h"

namespace chairlift {
namespace {

// A tensor of bytes, and the one scale and zero point that give its values.
struct Bytes {
  ValueId id = kNoValue;
  DType dtype = DType::kUndefined;
  float scale = 0;
  int32_t zero = 0;

  bool SameCode(const Bytes& other) const {
    return dtype == other.dtype && scale == other.scale && zero == other.zero;
  }
};

int32_t ByteOf(const Tensor& t, int64_t i) {
  return t.dtype() == DType::kInt8 ? t.data<int8_t>()[i] : t.data<uint8_t>()[i];
}

class QuantizedRecogniser {
 public:
  explicit QuantizedRecogniser(Graph& graph)
      : graph_(graph),
        links_(graph),
        removed_(graph.nodes.size(), false),
        of_conv_(graph.values.size(), false) {}

  int Run() {
    int count = 0;
    const auto nodes = static_cast<int>(graph_.nodes.size());
    for (int n = 0; n < nodes; ++n) {
      if (Is(graph_.nodes[n], "QLinearConv")) Mark(graph_.nodes[n].outputs[0]);
      if (!Is(graph_.nodes[n], "QuantizeLinear")) continue;
      if (Rewrite(n)) {
        Mark(graph_.nodes[n].outputs[0]);
        ++count;
      } else if (IsMean(links_.producer(graph_.nodes[n].inputs[0]))) {
        Mark(graph_.nodes[n].outputs[0]);
      }
    }
    RemoveNodes(graph_, removed_);
    if (count > 0) SortNodes(graph_);
    return count;
  }

 private:
  void Mark(ValueId id) { of_conv_[static_cast<size_t>(id)] = true; }
  bool OfConv(const Bytes& bytes) const { return of_conv_[static_cast<size_t>(bytes.id)]; }

  // Whether node n, which computes in float32, averages channels of a convolution's bytes.
  bool IsMean(int n) const {
    if (n < 0 || !Is(graph_.nodes[n], "GlobalAveragePool")) return false;
    const std::optional<Bytes> x = Dequantized(graph_.nodes[n].inputs[0]);
    return x && OfConv(*x);
  }

  // The scale and zero point of a QuantizeLinear or DequantizeLinear whose bytes are `id`.
  std::optional<Bytes> CodeOf(const Node& node, ValueId id) const {
    const Tensor* scale = ConstantInput(graph_, node, 1);
    if (scale == nullptr || scale->dtype() != DType::kFloat || scale->size() != 1 ||
        node.attributes.Int("block_size", 0) != 0) {
      return std::nullopt;
    }
    Bytes bytes{id, graph_.values[id].dtype, scale->data<float>()[0], 0};
    if (!IsByte(bytes.dtype) || !std::isnormal(bytes.scale) || bytes.scale <= 0) {
      return std::nullopt;
    }
    if (node.inputs.size() > 2 && node.inputs[2] != kNoValue) {
      const Tensor* zero = ConstantInput(graph_, node, 2);
      if (zero == nullptr || zero->dtype() != bytes.dtype || zero->size() != 1) {
        return std::nullopt;
      }
      bytes.zero = ByteOf(*zero, 0);
    }
    return bytes;
  }
  // The bytes that give the float32 value `id`.
  std::optional<Bytes> Dequantized(ValueId id) const {
    const int n = links_.producer(id);
    if (n < 0 || !Is(graph_.nodes[n], "DequantizeLinear") ||
        graph_.values[id].dtype != DType::kFloat) {
      return std::nullopt;
    }
    return CodeOf(graph_.nodes[n], graph_.nodes[n].inputs[0]);
  }

  // The node that computes `id` for node n alone; −1: none.
  int Before(ValueId id, int n) const {
    const int node = links_.producer(id);
    return node >= 0 && links_.SoleReader(id) == n && graph_.values[id].dtype == DType::kFloat
               ? node
               : -1;
  }

  bool Rewrite(int n) {
    const std::optional<Bytes> y = CodeOf(graph_.nodes[n], graph_.nodes[n].outputs[0]);
    if (!y) return false;
    int node = Before(graph_.nodes[n].inputs[0], n);
    if (node < 0) return false;
    // An activation clamps the result: rounding is monotonous.
    int32_t low = y->dtype == DType::kInt8 ? -128 : 0, high = low + 255;
    const int32_t least = low, most = high;
    int activation = -1;
    if (const auto step = ActivationOf(graph_, graph_.nodes[node])) {
      Attributes attributes;
      SetActivation(attributes, *step);
      const auto function = Activation::Parse(attributes);
      if (!function.ok()) return false;
      const auto bound = [&](float x) {
        const float scaled = x / y->scale;
        return y->dtype == DType::kInt8 ? int32_t{Quantize<int8_t>(scaled, y->zero)}
                                        : int32_t{Quantize<uint8_t>(scaled, y->zero)};
      };
      if (function->kind == ActivationKind::kRelu) {
        low = bound(0);
      } else if (function->kind == ActivationKind::kClip && function->alpha <= function->beta) {
        low = bound(function->alpha);
        high = bound(function->beta);
      } else {
        return false;
      }
      activation = node;
      node = Before(graph_.nodes[node].inputs[0], node);
      if (node < 0) return false;
    }
    const Node& inner = graph_.nodes[node];
    bool done = false;
    if (Is(inner, "Conv")) {
      done = RewriteConv(n, inner, *y, low, high);
    } else if (Is(inner, "Gemm")) {
      // A copy: nodes are added.
      done = RewriteGemm(n, Node(inner), *y, low, high);
    } else if (low == least && high == most) {
      if (Is(inner, "Add") || Is(inner, "Mul")) {
        done = RewriteBinary(n, inner, *y);
      } else if (activation < 0) {
        done = RewriteMove(n, inner, *y);
      }
    }
    if (!done) return false;
    removed_[static_cast<size_t>(node)] = true;
    if (activation >= 0) removed_[static_cast<size_t>(activation)] = true;
    return true;
  }

  // Constant weights in bytes, and the scale of the sums of each output channel.
  struct Weights {
    Tensor bytes;
    ValueId id = kNoValue, scale = kNoValue, zero = kNoValue;
    std::vector<double> scales = {};
  };
  // Those of the float32 value `id`, whose output channels are along `axis`, for inputs of `x`.
  std::optional<Weights> WeightsOf(ValueId id, int axis, const Bytes& x) {
    const int n = links_.producer(id);
    if (n < 0 || !Is(graph_.nodes[n], "DequantizeLinear")) return std::nullopt;
    const Node& node = graph_.nodes[n];
    const Tensor* w = ConstantInput(graph_, node, 0);
    const Tensor* scale = ConstantInput(graph_, node, 1);
    const Tensor* zero = ConstantInput(graph_, node, 2);
    const bool has_zero = node.inputs.size() > 2 && node.inputs[2] != kNoValue;
    if (w == nullptr || !IsByte(w->dtype()) || w->shape().rank() <= axis || scale == nullptr ||
        scale->dtype() != DType::kFloat || has_zero != (zero != nullptr) ||
        node.attributes.Int("block_size", 0) != 0) {
      return std::nullopt;
    }
    const int64_t channels = w->shape()[axis], given = node.attributes.Int("axis", 1);
    const bool by_channel = scale->shape().rank() == 1 && scale->size() == channels &&
                            (given < 0 ? given + w->shape().rank() : given) == axis;
    if ((!by_channel && scale->size() != 1) ||
        (has_zero && (zero->dtype() != w->dtype() || zero->size() != scale->size()))) {
      return std::nullopt;
    }
    Weights weights{.bytes = *w, .id = node.inputs[0], .scale = node.inputs[1]};
    for (int64_t c = 0; c < channels; ++c) {
      const float own = scale->data<float>()[by_channel ? c : 0];
      if (!std::isnormal(own) || own <= 0) return std::nullopt;
      weights.scales.push_back(static_cast<double>(x.scale) * static_cast<double>(own));
    }
    const DType dtype = w->dtype();  // constants that are added may move it
    weights.zero = has_zero ? node.inputs[2] : Byte(graph_.values[id].name + "/zero", dtype, 0);
    return weights;
  }
  // The operands of a QLinearConv for a node whose bias is input 2; empty: the bias does not fit.
  std::vector<ValueId> Operands(const Node& node, const Bytes& x, const Weights& weights,
                                const Bytes& y) {
    std::vector<ValueId> operands = {x.id,          Scale(x),     Zero(x),  weights.id,
                                     weights.scale, weights.zero, Scale(y), Zero(y)};
    if (node.inputs.size() > 2 && node.inputs[2] != kNoValue) {
      std::optional<Tensor> whole = Bias(node, weights.scales, y);
      if (!whole) return {};
      const std::string name = graph_.values[node.inputs[2]].name + "/sums";
      operands.push_back(AddConstant(graph_, name, *std::move(whole)));
    }
    return operands;
  }

  bool RewriteConv(int n, const Node& conv, const Bytes& y, int32_t low, int32_t high) {
    const std::optional<Bytes> x = Dequantized(conv.inputs[0]);
    if (!x) return false;
    const std::optional<Weights> weights = WeightsOf(conv.inputs[1], 0, *x);
    if (!weights || weights->bytes.shape().rank() < 3) return false;
    std::vector<ValueId> operands = Operands(conv, *x, *weights, y);
    if (operands.empty()) return false;
    Attributes attributes = conv.attributes;
    attributes.Set("low", int64_t{low});
    attributes.Set("high", int64_t{high});
    Become(n, "QLinearConv", std::move(operands), std::move(attributes));
    return true;
  }

  // A dense layer after convolutions is a convolution of one position.
  bool RewriteGemm(int n, const Node& gemm, const Bytes& y, int32_t low, int32_t high) {
    const std::optional<Bytes> x = Dequantized(gemm.inputs[0]);
    const bool transposed = gemm.attributes.Int("transB", 0) != 0;
    if (!x || !OfConv(*x) || gemm.attributes.Int("transA", 0) != 0 ||
        gemm.attributes.Float("alpha", 1) != 1 || gemm.attributes.Float("beta", 1) != 1) {
      return false;
    }
    std::optional<Weights> weights = WeightsOf(gemm.inputs[1], transposed ? 0 : 1, *x);
    if (!weights || weights->bytes.shape().rank() != 2) return false;
    std::vector<ValueId> operands = Operands(gemm, *x, *weights, y);
    if (operands.empty()) return false;
    const Shape& given = weights->bytes.shape();
    const int64_t outputs = given[transposed ? 0 : 1], k = given[transposed ? 1 : 0];
    Tensor w = Tensor::Allocate(weights->bytes.dtype(), Shape{outputs, k, 1});
    const auto* from = static_cast<const uint8_t*>(weights->bytes.raw());
    for (int64_t o = 0; o < outputs; ++o) {
      for (int64_t i = 0; i < k; ++i) {
        static_cast<uint8_t*>(w.raw())[o * k + i] = from[transposed ? o * k + i : i * outputs + o];
      }
    }
    const std::string name = graph_.nodes[n].name;
    operands[3] = AddConstant(graph_, graph_.values[weights->id].name + "/taps", std::move(w));
    const int64_t position[] = {1};
    const ValueId axis = AddIntegers(graph_, name + "/axis", position);
    operands[0] = AddNode(graph_, name + "/rows", "Unsqueeze", {x->id, axis});
    Attributes attributes = Attribute("channels_last", int64_t{1});
    attributes.Set("low", int64_t{low});
    attributes.Set("high", int64_t{high});
    const ValueId product = AddNode(graph_, name + "/product", "QLinearConv", std::move(operands),
                                    std::move(attributes), "chairlift");
    Node& last = graph_.nodes[n];
    last.def = OperatorRegistry::Builtin().Find("", "Squeeze");
    last.inputs = {product, axis};
    last.attributes = {};
    return true;
  }

  // The bias in units of the sums; nullopt if it is unknown, or coarser than a step of the result.
  std::optional<Tensor> Bias(const Node& conv, const std::vector<double>& scales,
                             const Bytes& y) const {
    const auto channels = static_cast<int64_t>(scales.size());
    const Tensor* real = ConstantInput(graph_, conv, 2);
    const Tensor *codes = nullptr, *code_scales = nullptr;
    if (real == nullptr) {
      const int n = links_.producer(conv.inputs[2]);
      if (n < 0 || !Is(graph_.nodes[n], "DequantizeLinear")) return std::nullopt;
      const Node& node = graph_.nodes[n];
      codes = ConstantInput(graph_, node, 0);
      code_scales = ConstantInput(graph_, node, 1);
      if (codes == nullptr || codes->dtype() != DType::kInt32 || codes->size() != channels ||
          code_scales == nullptr || code_scales->dtype() != DType::kFloat ||
          (code_scales->size() != 1 && code_scales->size() != channels) ||
          node.attributes.Int("block_size", 0) != 0) {
        return std::nullopt;
      }
      if (node.inputs.size() > 2 && node.inputs[2] != kNoValue) {
        const Tensor* zero = ConstantInput(graph_, node, 2);
        if (zero == nullptr || zero->dtype() != DType::kInt32) return std::nullopt;
        const auto values = zero->values<int32_t>();
        if (std::any_of(values.begin(), values.end(), [](int32_t z) { return z != 0; })) {
          return std::nullopt;
        }
      }
    } else if (real->dtype() != DType::kFloat || real->size() != channels) {
      return std::nullopt;
    }
    Tensor bias = Tensor::Allocate(DType::kInt32, Shape{channels});
    for (int64_t c = 0; c < channels; ++c) {
      const double scale = scales[static_cast<size_t>(c)];
      double value = 0;
      if (codes != nullptr) {
        const double own = code_scales->data<float>()[code_scales->size() == 1 ? 0 : c];
        if (std::abs(own - scale) <= 1e-6 * scale) {
          bias.data<int32_t>()[c] = codes->data<int32_t>()[c];
          continue;
        }
        value = own * codes->data<int32_t>()[c];
      } else {
        value = static_cast<double>(real->data<float>()[c]);
      }
      const double steps = std::nearbyint(value / scale);
      // Rounding moves it by half a unit of the sums.
      if (!(std::abs(steps) <= std::numeric_limits<int32_t>::max() / 2) ||
          (steps * scale != value && scale > static_cast<double>(y.scale))) {
        return std::nullopt;
      }
      bias.data<int32_t>()[c] = static_cast<int32_t>(steps);
    }
    return bias;
  }

  bool RewriteBinary(int n, const Node& node, const Bytes& y) {
    const std::optional<Bytes> a = Dequantized(node.inputs[0]), b = Dequantized(node.inputs[1]);
    if (!a || !b || a->dtype != y.dtype || b->dtype != y.dtype || (!OfConv(*a) && !OfConv(*b))) {
      return false;
    }
    Become(n, Is(node, "Add") ? "QLinearAdd" : "QLinearMul",
           {a->id, Scale(*a), Zero(*a), b->id, Scale(*b), Zero(*b), Scale(y), Zero(y)}, {});
    return true;
  }

  // Every result is one of the inputs: in the same code, bytes give the same.
  bool RewriteMove(int n, const Node& node, const Bytes& y) {
    const bool concat = Is(node, "Concat");
    const bool moves = Is(node, "MaxPool") ||
                       (node.def->OnlyMoves() && !Is(node, "Cast") && !Is(node, "CastLike"));
    if (!(concat || moves) || node.outputs.size() != 1 || node.def->input_types.empty()) {
      return false;
    }
    std::vector<ValueId> inputs = node.inputs;
    bool of_conv = false;
    for (size_t i = 0; i < (concat ? inputs.size() : 1); ++i) {
      const std::optional<Bytes> x = Dequantized(inputs[i]);
      const size_t set = std::min(i, node.def->input_types.size() - 1);
      if (!x || !x->SameCode(y) || !node.def->input_types[set].Contains(y.dtype)) return false;
      inputs[i] = x->id;
      of_conv = of_conv || OfConv(*x);
    }
    if (!of_conv) return false;
    Node& to = graph_.nodes[n];
    to.def = node.def;
    to.attributes = node.attributes;
    to.inputs = std::move(inputs);
    return true;
  }

  void Become(int n, const char* op, std::vector<ValueId> inputs, Attributes attributes) {
    Node& node = graph_.nodes[n];
    node.def = OperatorRegistry::Builtin().Find("chairlift", op);
    node.inputs = std::move(inputs);
    node.attributes = std::move(attributes);
  }
  ValueId Scale(const Bytes& bytes) {
    return Added(graph_.values[bytes.id].name + "/scale", Tensor::Scalar(bytes.scale));
  }
  ValueId Zero(const Bytes& bytes) {
    return Byte(graph_.values[bytes.id].name + "/zero", bytes.dtype, bytes.zero);
  }
  ValueId Byte(const std::string& name, DType dtype, int32_t value) {
    return Added(name, dtype == DType::kInt8 ? Tensor::Scalar(static_cast<int8_t>(value))
                                             : Tensor::Scalar(static_cast<uint8_t>(value)));
  }
  ValueId Added(const std::string& name, Tensor t) {
    return AddConstant(graph_, name, std::move(t));
  }

  Graph& graph_;
  const Links links_;
  std::vector<bool> removed_;
  std::vector<bool> of_conv_;  // by value of the original graph: bytes that follow a convolution
};

StatusOr<int> RunRecogniseQuantized(Graph& graph, std::vector<std::string>& /*notes*/) {
  return QuantizedRecogniser(graph).Run();
}

}  // namespace

Pass RecogniseQuantized() {
  return {"recognise_quantized",
          "convolutions between DequantizeLinear and QuantizeLinear compute in integers",
          RunRecogniseQuantized};
}

}  // namespace chairlift
