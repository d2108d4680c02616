// Fuses what surrounds a matrix product into it, a transpose of an operand, a constant factor, a
// bias, the sum with a residual and an activation: chairlift::FusedMatMul.
#include <algorithm>

#include "graph/passes/absorb.h"
#include "graph/passes/activation.h"
#include "graph/passes/passes.h"

namespace chairlift {
namespace {

class MatMulFuser : private Absorber {
 public:
  MatMulFuser(Graph& graph, std::vector<std::string>& notes) : Absorber(graph), notes_(notes) {}

  int Run() {
    int count = 0;
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
      for (int operand = 0; operand < 2; ++operand) count += FuseTranspose(n, operand) ? 1 : 0;
      if (FuseScale(n) || FuseActivation(n) || FuseBias(n) || FuseResidual(n)) {
        ++count;
      } else {
        NoteSum(n);
        NoteActivation(n);
      }
    }
    RemoveNodes(graph_, removed_);
    return count;
  }

 private:
  // The product that computes `id` for node n alone; -1 if there is none or it has an activation
  // already.
  int Product(ValueId id, int n) const {
    const int product = Open(id, n);
    if (product < 0) return -1;
    const Node& node = graph_.nodes[product];
    if (IsFused(node)) return product;
    if (Is(node, "Gemm")) return CanConvert(node) ? product : -1;
    const bool matrices = Is(node, "MatMul") && shape(node.inputs[0]).has_rank() &&
                          shape(node.inputs[0]).rank() >= 2 && shape(node.inputs[1]).has_rank() &&
                          shape(node.inputs[1]).rank() >= 2;
    return matrices ? product : -1;
  }

  // With inputs 2 and 3 for a bias and a residual.
  static bool IsFused(const Node& node) {
    return Is(node, "FusedMatMul", "chairlift") || IsQuantised(node);
  }
  static bool IsQuantised(const Node& node) {
    return Is(node, "MatMulNBits", "chairlift") || Is(node, "ScaledIntegerProduct", "chairlift");
  }

  // A Gemm whose C is a row that can be added as a bias.
  bool CanConvert(const Node& gemm) const {
    if (!HasInput(gemm, 2)) return true;
    if (gemm.attributes.Float("beta", 1.0f) != 1.0f) return false;
    const Value& c = graph_.values[gemm.inputs[2]];
    if (c.is_constant()) return RowOf(c.constant, gemm.outputs[0]).has_value();
    return IsRow(c.shape, gemm.outputs[0]);
  }

  // A vector with one element per column of `out`.
  bool IsRow(const SymbolicShape& v, ValueId out) const {
    return v.has_rank() && v.rank() == 1 && shape(out).has_rank() && shape(out).rank() > 0 &&
           v[0].Same(shape(out)[shape(out).rank() - 1]);
  }

  // The constant as such a vector.
  std::optional<Tensor> RowOf(const Tensor& t, ValueId out) const {
    if (!shape(out).has_rank() || shape(out).rank() == 0) return std::nullopt;
    const Dim& columns = shape(out)[shape(out).rank() - 1];
    const int rank = t.shape().rank();
    if (t.dtype() != DType::kFloat || !columns.known() || rank == 0 || rank > shape(out).rank() ||
        t.size() != columns.value() || t.shape()[rank - 1] != columns.value()) {
      return std::nullopt;
    }
    return t.Reshaped(Shape{t.size()});
  }

  // Replaces node n by the product, as a FusedMatMul with node n's output.
  Node& MoveTo(int product, int n) {
    const bool gemm = Is(graph_.nodes[product], "Gemm");
    const bool keeps = IsQuantised(graph_.nodes[product]);
    Node& fused = Absorber::MoveTo(product, n, keeps ? graph_.nodes[product].def : fused_);
    if (!gemm) return fused;
    Attributes attributes;
    attributes.Set("transpose_a", fused.attributes.Int("transA", 0));
    attributes.Set("transpose_b", fused.attributes.Int("transB", 0));
    attributes.Set("alpha", fused.attributes.Float("alpha", 1.0f));
    fused.attributes = std::move(attributes);
    if (const Tensor* c = ConstantInput(graph_, fused, 2); c != nullptr && c->shape().rank() != 1) {
      const std::string name = graph_.values[fused.inputs[2]].name;
      fused.inputs[2] = AddConstant(graph_, name + "/row", c->Reshaped(Shape{c->size()}));
    }
    return fused;
  }

  // A transpose of an operand whose last axis is not last in memory: the product reads it
  // transposed. The rest of the transpose copies whole rows, or is a no-op.
  bool FuseTranspose(int n, int operand) {
    Node& node = graph_.nodes[n];
    const bool fused = Is(node, "FusedMatMul", "chairlift");
    if ((!fused && !Is(node, "MatMul")) || graph_.values[node.outputs[0]].dtype != DType::kFloat ||
        !shape(node.inputs[0]).has_rank() || shape(node.inputs[0]).rank() < 2 ||
        !shape(node.inputs[1]).has_rank() || shape(node.inputs[1]).rank() < 2) {
      return false;
    }
    const ValueId id = node.inputs[operand];
    const int before = links_.producer(id);
    if (before < 0 || links_.SoleReader(id) != n || !Is(graph_.nodes[before], "Transpose")) {
      return false;
    }
    Node& transpose = graph_.nodes[before];
    std::vector<int64_t> order = transpose.attributes.Ints("perm");
    const int64_t last = static_cast<int64_t>(order.size()) - 1;
    if (last < 1 || order[last] == last || order[last - 1] != last) return false;
    std::swap(order[last], order[last - 1]);
    if (std::is_sorted(order.begin(), order.end())) {
      node.inputs[operand] = transpose.inputs[0];
      removed_[before] = true;
    } else {
      transpose.attributes.Set("perm", order);
      Value& value = graph_.values[id];
      std::swap(value.shape[static_cast<int>(last)], value.shape[static_cast<int>(last) - 1]);
    }
    const char* name = operand == 0 ? "transpose_a" : "transpose_b";
    node.attributes.Set(name, int64_t{1} - node.attributes.Int(name, 0));
    node.def = fused_;
    return true;
  }

  // (A·B) · s, before anything is added.
  bool FuseScale(int n) {
    const Node& node = graph_.nodes[n];
    const bool mul = Is(node, "Mul");
    if (!mul && !Is(node, "Div")) return false;
    const auto parts = SplitScalar(graph_, node);
    if (!parts || (!mul && parts->other != node.inputs[0]) || parts->scalar == 0) return false;
    const int product = Product(parts->other, n);
    if (product < 0 || HasInput(graph_.nodes[product], 2) || HasInput(graph_.nodes[product], 3) ||
        IsQuantised(graph_.nodes[product]) ||
        !SameShape(shape(node.outputs[0]), shape(parts->other))) {
      return false;
    }
    const auto factor = static_cast<float>(mul ? parts->scalar : 1 / parts->scalar);
    Node& fused = MoveTo(product, n);
    fused.attributes.Set("alpha", fused.attributes.Float("alpha", 1.0f) * factor);
    return true;
  }

  bool FuseActivation(int n) {
    const auto activation = ActivationOf(graph_, graph_.nodes[n]);
    if (!activation) return false;
    const int product = Product(graph_.nodes[n].inputs[0], n);
    if (product < 0) return false;
    SetActivation(MoveTo(product, n).attributes, *activation);
    return true;
  }

  bool FuseBias(int n) {
    const Node& add = graph_.nodes[n];
    if (!Is(add, "Add") || add.inputs.size() != 2) return false;
    for (int i = 0; i < 2; ++i) {
      const ValueId out = add.inputs[i];
      const ValueId bias = add.inputs[1 - i];
      const int product = Product(out, n);
      if (product < 0 || HasInput(graph_.nodes[product], 2)) continue;
      const Value& value = graph_.values[bias];
      ValueId row = kNoValue;
      if (value.is_constant()) {
        if (auto t = RowOf(value.constant, out)) {
          row = t->shape() == value.constant.shape()
                    ? bias
                    : AddConstant(graph_, value.name + "/row", *std::move(t));
        }
      } else if (value.dtype == DType::kFloat && IsRow(value.shape, out)) {
        row = bias;
      }
      if (row == kNoValue) continue;
      SetInput(MoveTo(product, n), 2, row);
      return true;
    }
    return false;
  }

  bool FuseResidual(int n) {
    const Node& add = graph_.nodes[n];
    if (!Is(add, "Add") || add.inputs.size() != 2) return false;
    int product = -1;
    ValueId residual = kNoValue;
    for (int i = 0; i < 2; ++i) {
      const int found = Product(add.inputs[i], n);
      if (found <= product || HasInput(graph_.nodes[found], 3) ||
          !SameShape(shape(add.inputs[1 - i]), shape(add.inputs[i]))) {
        continue;
      }
      product = found;
      residual = add.inputs[1 - i];
    }
    if (product < 0) return false;
    SetInput(MoveTo(product, n), 3, residual);
    return true;
  }

  // Notes a sum with a product that is not fused.
  void NoteSum(int n) {
    const Node& add = graph_.nodes[n];
    if (!Is(add, "Add") || add.inputs.size() != 2) return;
    for (int i = 0; i < 2; ++i) {
      if (Product(add.inputs[i], n) < 0) continue;
      notes_.push_back(add.Describe() + ": " + shape(add.inputs[1 - i]).ToString() +
                       " is neither one value a column of the product " +
                       shape(add.inputs[i]).ToString() + " nor of its shape");
      return;
    }
  }

  // Notes an activation of a product that is not fused.
  void NoteActivation(int n) {
    const Node& node = graph_.nodes[n];
    if (!ActivationOf(graph_, node)) return;
    const int product = links_.producer(node.inputs[0]);
    if (product < 0) return;
    const Node& before = graph_.nodes[product];
    if (!Is(before, "MatMul") && !Is(before, "Gemm") && !IsFused(before)) {
      return;
    }
    const char* why = links_.SoleReader(node.inputs[0]) != n ? "others read the product before it"
                      : !before.attributes.String("activation", "").empty()
                          ? "the product before it has an activation already"
                          : "the product before it is not of matrices with a bias";
    notes_.push_back(node.Describe() + ": " + why);
  }

  std::vector<std::string>& notes_;
  const OperatorDef* const fused_ = Fused("FusedMatMul");
};

StatusOr<int> RunFuseMatMul(Graph& graph, std::vector<std::string>& notes) {
  return MatMulFuser(graph, notes).Run();
}

}  // namespace

Pass FuseMatMul() {
  return {"fuse_matmul",
          "transpose, scale, and add biases, residuals and activations inside the matrix product",
          RunFuseMatMul};
}

}  // namespace chairlift
