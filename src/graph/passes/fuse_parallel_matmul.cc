// Fuses products of one value with several constant matrices, for example for queries, keys and
// values, into one node: chairlift::ParallelMatMul (TurboTransformers §4.1: Q, K and V in one
// product). What follows each is unchanged.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "graph/passes/absorb.h"
#include "graph/passes/passes.h"

namespace chairlift {
namespace {

class ParallelMatMulFuser : private Absorber {
 public:
  ParallelMatMulFuser(Graph& graph, std::vector<std::string>& notes)
      : Absorber(graph), notes_(notes) {}

  int Run() {
    std::map<ValueId, std::vector<int>> products;  // by their A
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
      if (IsProduct(graph_.nodes[n])) products[graph_.nodes[n].inputs[0]].push_back(n);
    }
    int count = 0;
    for (const auto& [a, nodes] : products) {
      if (nodes.size() > 1) count += Fuse(nodes) ? 1 : 0;
    }
    RemoveNodes(graph_, removed_);
    NoteAttention();
    return count;
  }

 private:
  // A product of a float32 value and a constant matrix.
  bool IsProduct(const Node& node) const {
    if (!Is(node, "MatMul") && !Is(node, "FusedMatMul", "chairlift")) return false;
    const Tensor* b = ConstantInput(graph_, node, 1);
    return b != nullptr && b->dtype() == DType::kFloat && b->shape().rank() == 2 &&
           shape(node.inputs[0]).has_rank() && shape(node.inputs[0]).rank() > 0;
  }

  // Why the product cannot share a node; null if it can.
  const char* Problem(const Node& node) const {
    if (!node.attributes.String("activation", "").empty()) return "an activation follows it";
    if (HasInput(node, 3)) return "a residual is added to it";
    if (node.attributes.Int("transpose_a", 0) != 0 || node.attributes.Int("transpose_b", 0) != 0) {
      return "an operand is transposed";
    }
    if (node.attributes.Float("alpha", 1.0f) != 1.0f) return "it is scaled";
    return nullptr;
  }

  // Puts one node in the place of the first.
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

  // Notes attention whose queries, keys and values come from several products.
  void NoteAttention() {
    const Links links(graph_);
    for (const Node& node : graph_.nodes) {
      if (!Is(node, "Attention", "chairlift") && !Is(node, "RaggedAttention", "chairlift")) {
        continue;
      }
      std::set<int> products;
      for (size_t i = 0; i < 3; ++i) FindProducts(links, node.inputs[i], products);
      // Angles by position are products too, usually of another value.
      const bool together = std::any_of(products.begin(), products.end(),
                                        [&](int n) { return graph_.nodes[n].outputs.size() >= 3; });
      if (products.size() < 2 || together) continue;
      notes_.push_back(fmt::format("{}: its queries, keys and values come from {} products, {}",
                                   node.Describe(), products.size(), Apart(products)));
    }
  }

  // The products that `id` depends on without another product in between.
  void FindProducts(const Links& links, ValueId id, std::set<int>& products) const {
    constexpr size_t kMostNodes = 64;  // more than there are between a product and attention
    std::vector<int> open = {links.producer(id)};
    std::set<int> seen;
    while (!open.empty() && seen.size() < kMostNodes) {
      const int n = open.back();
      open.pop_back();
      if (n < 0 || !seen.insert(n).second) continue;
      const Node& node = graph_.nodes[n];
      if (node.def->multiply_adds != nullptr) {
        products.insert(n);
        continue;
      }
      // Inputs that only determine a shape do not count.
      for (size_t i = 0; i < (node.def->OnlyMoves() ? 1 : node.inputs.size()); ++i) {
        open.push_back(links.producer(node.inputs[i]));
      }
    }
  }

  // Why the products are not fused.
  std::string Apart(const std::set<int>& products) const {
    const Node* first = nullptr;
    for (const int n : products) {
      const Node& node = graph_.nodes[n];
      if (!IsProduct(node) && !Is(node, "ParallelMatMul", "chairlift")) {
        return node.Describe() + " is not one of a float32 value and a constant matrix";
      }
      if (first == nullptr) first = &node;
      if (node.inputs[0] != first->inputs[0]) return "of different values";
    }
    const char* problem = nullptr;
    for (const int n : products) {
      if (problem == nullptr) problem = Problem(graph_.nodes[n]);
    }
    return problem != nullptr ? fmt::format("one of which cannot join: {}", problem) : "left apart";
  }

  std::vector<std::string>& notes_;
  const OperatorDef* const fused_ = Fused("ParallelMatMul");
};

StatusOr<int> RunFuseParallelMatMul(Graph& graph, std::vector<std::string>& notes) {
  return ParallelMatMulFuser(graph, notes).Run();
}

}  // namespace

Pass FuseParallelMatMul() {
  return {"fuse_parallel_matmul", "products of one value (queries, keys, values) in one kernel",
          RunFuseParallelMatMul};
}

}  // namespace chairlift
