// Replaces scaled products of 8-bit integers by chairlift::ScaledIntegerProduct, one kernel:
//   Cast(MatMulInteger(a, w, a_zero, w_zero)) · scales, in any order and grouping of the scales;
//   MatMul and Gemm of DequantizeLinear(a) and DequantizeLinear(w).
// w is constant. Without this pass the weights of the second form would be folded to four bytes
// each. fuse_matmul adds biases, residuals and activations.
#include <cmath>
#include <utility>

#include "graph/passes/absorb.h"
#include "graph/passes/passes.h"
#include "ops/quantization/scaled_integer_product.h"

namespace chairlift {
namespace {

bool IsOne(const SymbolicShape& shape) {
  if (!shape.has_rank()) return false;
  for (int i = 0; i < shape.rank(); ++i) {
    if (!shape[i].known() || shape[i].value() != 1) return false;
  }
  return true;
}

// One element, or one for each of n columns: [n], [1, n], …
bool IsOneOrRow(const Tensor& t, int64_t n) {
  const int rank = t.shape().rank();
  return t.size() == 1 || (t.size() == n && rank > 0 && t.shape()[rank - 1] == n);
}

class IntegerProductRecogniser : private Absorber {
 public:
  IntegerProductRecogniser(Graph& graph, std::vector<std::string>& notes)
      : Absorber(graph), notes_(notes) {}

  int Run() {
    int count = 0;
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
      if (removed_[n]) continue;
      const Node& node = graph_.nodes[n];
      const char* problem = nullptr;
      if (Is(node, "Cast")) {
        const int product = links_.producer(node.inputs[0]);
        if (product < 0 || !Is(graph_.nodes[product], "MatMulInteger")) continue;
        problem = FuseInteger(product, n);
      } else if (Is(node, "MatMul") || Is(node, "Gemm")) {
        const Node* a = Dequantised(node.inputs[0]);
        const Node* w = Dequantised(node.inputs[1]);
        if (a == nullptr || w == nullptr) continue;
        problem = FuseDequantised(n, *a, *w);
      } else {
        continue;
      }
      if (problem == nullptr) {
        ++count;
      } else {
        notes_.push_back(graph_.nodes[n].Describe() + ": " + problem);
      }
    }
    RemoveNodes(graph_, removed_);
    return count;
  }

 private:
  // --- Parts of both

  // Whether `id` has one element for each row of `of` [..., m, k]: [..., m, 1].
  bool IsByRow(ValueId id, const SymbolicShape& of) const {
    const SymbolicShape& s = shape(id);
    if (!s.has_rank() || s.rank() == 0 || s.rank() != of.rank()) return false;
    for (int i = 0; i + 1 < s.rank(); ++i) {
      if (!s[i].Same(of[i])) return false;
    }
    return s[s.rank() - 1].known() && s[s.rank() - 1].value() == 1;
  }

  // The weights are a constant matrix; their zero points, if any, one or one for each column.
  const char* CheckWeights(ValueId w, ValueId zero, bool transposed) const {
    const Value& value = graph_.values[w];
    if (!value.is_constant() || !IsByte(value.dtype)) return "its weights are not 8-bit constants";
    if (value.constant.shape().rank() != 2) return "its weights are not a matrix";
    if (zero == kNoValue) return nullptr;
    const Value& z = graph_.values[zero];
    if (!z.is_constant() || !IsOneOrRow(z.constant, value.constant.shape()[transposed ? 0 : 1])) {
      return "the zero points of its weights are not one constant, or one for each column";
    }
    return nullptr;
  }

  // A constant of one element, or of one for each column, as a factor of `scales` [1 or n].
  static void Multiply(std::vector<float>& scales, const Tensor& by) {
    if (scales.size() < static_cast<size_t>(by.size())) {
      scales.resize(static_cast<size_t>(by.size()), scales[0]);
    }
    for (size_t i = 0; i < scales.size(); ++i) {
      scales[i] *= by.data<float>()[by.size() == 1 ? 0 : static_cast<int64_t>(i)];
    }
  }

  ValueId AddScales(const std::string& name, const std::vector<float>& scales) {
    Tensor t = Tensor::Allocate(DType::kFloat, Shape{static_cast<int64_t>(scales.size())});
    std::copy(scales.begin(), scales.end(), t.data<float>());
    return AddConstant(graph_, name + "/scales", std::move(t));
  }

  // Node n becomes the product; it keeps its outputs.
  void Become(int n, std::vector<ValueId> inputs, bool transposed) {
    while (inputs.back() == kNoValue) inputs.pop_back();
    Node& node = graph_.nodes[n];
    node.inputs = std::move(inputs);
    node.attributes = Attribute("transpose_w", int64_t{transposed ? 1 : 0});
    node.def = fused_;
  }

  // --- MatMulInteger

  // Factors of a sum: constants of columns, and one computed value of all rows or of each.
  struct Factors {
    std::vector<float> scales = {1.0f};
    ValueId of_rows = kNoValue;
  };

  // Adds `id` to the factors of a product of shape `out`. False if it is not a factor, or the
  // second that is computed; `factors` is undefined then.
  bool AddFactor(ValueId id, const SymbolicShape& out, Factors& factors) const {
    const Value& value = graph_.values[id];
    if (value.dtype != DType::kFloat || !value.shape.has_rank() ||
        value.shape.rank() > out.rank()) {
      return false;
    }
    if (value.is_constant()) {
      const Dim& n = out[out.rank() - 1];
      if (!n.known() || !IsOneOrRow(value.constant, n.value())) return false;
      Multiply(factors.scales, value.constant);
      return true;
    }
    const int producer = links_.producer(id);
    if (producer >= 0 && Is(graph_.nodes[producer], "Mul")) {
      Factors both = factors;
      const Node& mul = graph_.nodes[producer];
      if (AddFactor(mul.inputs[0], out, both) && AddFactor(mul.inputs[1], out, both)) {
        factors = std::move(both);
        return true;
      }
    }
    if (factors.of_rows != kNoValue || (!IsOne(value.shape) && !IsByRow(id, out))) return false;
    factors.of_rows = id;
    return true;
  }

  // Null, or why not.
  const char* FuseInteger(int product, int cast) {
    const Node& sum = graph_.nodes[product];
    const ValueId a = sum.inputs[0], w = sum.inputs[1];
    const ValueId a_zero = HasInput(sum, 2) ? sum.inputs[2] : kNoValue;
    const ValueId w_zero = HasInput(sum, 3) ? sum.inputs[3] : kNoValue;
    if (graph_.values[graph_.nodes[cast].outputs[0]].dtype != DType::kFloat) {
      return "the sums do not become float32";
    }
    if (links_.SoleReader(sum.outputs[0]) != cast) return "others read the sums";
    if (const char* problem = CheckWeights(w, w_zero, false)) return problem;
    if (!shape(a).has_rank() || shape(a).rank() == 0) return "the rank of A is unknown";
    const bool by_row = a_zero != kNoValue && shape(a).rank() == 2 && shape(a_zero).has_rank() &&
                        shape(a_zero).rank() == 1 && shape(a_zero)[0].Same(shape(a)[0]);
    if (a_zero != kNoValue && !by_row && !IsOne(shape(a_zero)) && !IsByRow(a_zero, shape(a))) {
      return "the zero points of A are not one, or one for each row";
    }
    Factors factors;
    std::vector<int> nodes = {product, cast};
    while (true) {
      const ValueId out = graph_.nodes[nodes.back()].outputs[0];
      const int mul = links_.SoleReader(out);
      if (mul < 0 || !Is(graph_.nodes[mul], "Mul")) break;
      const ValueId factor = OtherInput(graph_.nodes[mul], out);
      Factors more = factors;
      if (factor == kNoValue || !SameShape(shape(out), shape(graph_.nodes[mul].outputs[0])) ||
          !AddFactor(factor, shape(out), more)) {
        break;
      }
      factors = std::move(more);
      nodes.push_back(mul);
    }
    const int last = nodes.back();
    const ValueId scales = AddScales(graph_.values[w].name, factors.scales);
    for (int n : nodes) removed_[n] = n != last;
    Become(last, {a, w, kNoValue, kNoValue, factors.of_rows, a_zero, scales, w_zero}, false);
    return nullptr;
  }

  // --- DequantizeLinear

  const Node* Dequantised(ValueId id) const {
    const int producer = links_.producer(id);
    if (producer < 0 || !Is(graph_.nodes[producer], "DequantizeLinear")) return nullptr;
    const Node& node = graph_.nodes[producer];
    return IsByte(graph_.values[node.inputs[0]].dtype) && node.attributes.Int("block_size", 0) == 0
               ? &node
               : nullptr;
  }

  // Null, or why not.
  const char* FuseDequantised(int n, const Node& a, const Node& w) {
    const Node& node = graph_.nodes[n];
    const bool transposed = node.attributes.Int("transB", 0) != 0;
    if (graph_.values[node.outputs[0]].dtype != DType::kFloat) return "it is not float32";
    if (node.attributes.Int("transA", 0) != 0) return "A is transposed";
    const ValueId a_zero = HasInput(a, 2) ? a.inputs[2] : kNoValue;
    const ValueId w_zero = HasInput(w, 2) ? w.inputs[2] : kNoValue;
    if (!IsOne(shape(a.inputs[1]))) return "A has several scales";
    if (!shape(a.inputs[0]).has_rank() || shape(a.inputs[0]).rank() == 0) {
      return "the rank of A is unknown";
    }
    if (const char* problem = CheckWeights(w.inputs[0], w_zero, transposed)) return problem;
    const Tensor* scales = ConstantInput(graph_, w, 1);
    const int64_t columns = graph_.values[w.inputs[0]].constant.shape()[transposed ? 0 : 1];
    if (scales == nullptr || scales->dtype() != DType::kFloat ||
        (scales->size() != 1 && scales->size() != columns)) {
      return "the scales of its weights are not one constant, or one for each column";
    }
    const int64_t axis = w.attributes.Int("axis", 1);
    if (scales->size() != 1 && (axis < 0 ? axis + 2 : axis) != (transposed ? 0 : 1)) {
      return "its weights have a scale for each row";
    }
    for (int64_t i = 0; i < scales->size(); ++i) {
      if (!std::isnormal(scales->data<float>()[i])) return "a scale of its weights is no usual one";
    }
    const float alpha = Is(node, "Gemm") ? node.attributes.Float("alpha", 1.0f) : 1.0f;
    ValueId bias = kNoValue;
    if (HasInput(node, 2)) {
      bias = node.inputs[2];
      const SymbolicShape& c = shape(bias);
      if (node.attributes.Float("beta", 1.0f) != 1.0f || !c.has_rank() || c.rank() != 1 ||
          !c[0].known() || c[0].value() != columns) {
        return "C is not one value for each column";
      }
    }
    std::vector<float> factors = {alpha};
    Multiply(factors, *scales);
    const ValueId scale = AddScales(graph_.values[w.inputs[0]].name, factors);
    Become(n, {a.inputs[0], w.inputs[0], bias, kNoValue, a.inputs[1], a_zero, scale, w_zero},
           transposed);
    return nullptr;
  }

  std::vector<std::string>& notes_;
  const OperatorDef* const fused_ = Fused("ScaledIntegerProduct");
};

StatusOr<int> RunRecogniseIntegerProducts(Graph& graph, std::vector<std::string>& notes) {
  return IntegerProductRecogniser(graph, notes).Run();
}

}  // namespace

Pass RecogniseIntegerProducts() {
  return {"recognise_integer_products", "products of 8-bit integers and their scales in one kernel",
          RunRecogniseIntegerProducts};
}

}  // namespace chairlift
