#include "graph/cells/fold_embeddings.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "graph/evaluate.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

// A matrix product that reads an embedding.
struct Use {
  int transpose = -1;  // between the two; −1: absent
  int matmul = 0;
  int add = -1;  // −1: absent
};

bool KeepsLastAxis(const Node& transpose) {
  const std::vector<int64_t> perm = transpose.attributes.Ints("perm");
  return !perm.empty() && perm.back() == static_cast<int64_t>(perm.size()) - 1;
}

class EmbeddingFolder {
 public:
  EmbeddingFolder(Graph& graph, int gather) : graph_(graph), gather_(gather), links_(graph) {}

  // Adds the products that read `id` to `uses`; false if anything else reads it.
  bool FindUses(ValueId id, int transpose, std::vector<Use>& uses) const {
    if (links_.is_output(id) || links_.readers(id).empty()) return false;
    return std::all_of(links_.readers(id).begin(), links_.readers(id).end(), [&](int n) {
      const Node& node = graph_.nodes[n];
      if (Is(node, "Transpose") && transpose < 0 && KeepsLastAxis(node)) {
        return FindUses(node.outputs[0], n, uses);
      }
      const Tensor* weights = ConstantInput(graph_, node, 1);
      if (!Is(node, "MatMul") || node.inputs[0] != id || weights == nullptr ||
          weights->shape().rank() != 2) {
        return false;
      }
      Use use{transpose, n, -1};
      if (const int add = links_.SoleReader(node.outputs[0]);
          add >= 0 && Is(graph_.nodes[add], "Add") &&
          graph_.nodes[add].inputs[0] == node.outputs[0]) {
        const Tensor* bias = ConstantInput(graph_, graph_.nodes[add], 1);
        if (bias != nullptr && bias->shape() == Shape{weights->shape()[1]}) use.add = add;
      }
      uses.push_back(use);
      return true;
    });
  }

  // The rows of the table, multiplied by the weights.
  StatusOr<Tensor> Product(const Use& use, int64_t max_bytes) const {
    WeightCache weights;
    SoloTeam team;
    const auto constant = [&](const Node& node, int i) { return *ConstantInput(graph_, node, i); };
    const Node& matmul = graph_.nodes[use.matmul];
    const Tensor operands[] = {constant(graph_.nodes[gather_], 0), constant(matmul, 1)};
    CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> product,
                               EvaluateNode(matmul, operands, weights, team, 0, max_bytes));
    if (use.add < 0) return std::move(product[0]);
    const Tensor sum[] = {product[0], constant(graph_.nodes[use.add], 1)};
    CHAIRLIFT_ASSIGN_OR_RETURN(
        product, EvaluateNode(graph_.nodes[use.add], sum, weights, team, 0, max_bytes));
    return std::move(product[0]);
  }

  // Replaces the product by a lookup in the table; returns the nodes that do.
  std::vector<Node> Replace(const Use& use, Tensor table) const {
    const Node& last = graph_.nodes[use.add < 0 ? use.matmul : use.add];
    Node gather = graph_.nodes[gather_];
    gather.name = last.name + "/embedding";
    gather.inputs[0] = AddConstant(graph_, gather.name, std::move(table));
    gather.outputs = last.outputs;
    if (use.transpose < 0) return {gather};
    Node transpose = graph_.nodes[use.transpose];
    transpose.name = gather.name + "/transpose";
    transpose.outputs = gather.outputs;
    gather.outputs = {graph_.AddValue({.name = gather.name})};
    transpose.inputs = gather.outputs;
    return {gather, transpose};
  }

 private:
  Graph& graph_;
  const int gather_;
  const Links links_;
};

// Limit per model: more than real models have.
constexpr int kMaxEmbeddings = 64;

bool IsEmbedding(const Graph& graph, const Node& node) {
  if (!Is(node, "Gather") || node.attributes.Int("axis", 0) != 0) return false;
  const Tensor* table = ConstantInput(graph, node, 0);
  return table != nullptr && table->shape().rank() == 2 && table->size() > 0 &&
         !graph.values[node.inputs[1]].is_constant();
}

}  // namespace

StatusOr<int> FoldEmbeddings(Graph& graph, int64_t max_bytes, std::vector<std::string>& notes) {
  int count = 0;
  int tried = 0;
  for (size_t g = 0; g < graph.nodes.size(); ++g) {
    if (!IsEmbedding(graph, graph.nodes[g])) continue;
    if (++tried > kMaxEmbeddings) break;
    const EmbeddingFolder folder(graph, static_cast<int>(g));
    std::vector<Use> uses;
    if (!folder.FindUses(graph.nodes[g].outputs[0], -1, uses)) continue;
    const std::string name = graph.nodes[g].Describe();
    const Tensor before = *ConstantInput(graph, graph.nodes[g], 0);
    std::vector<Tensor> tables;
    int64_t bytes = 0;
    for (const Use& use : uses) {
      StatusOr<Tensor> table = folder.Product(use, max_bytes);
      if (!table.ok()) {
        notes.push_back(fmt::format("{} stays: {}", name, Message(table.status())));
        break;
      }
      bytes += static_cast<int64_t>(table->byte_size());
      tables.push_back(*std::move(table));
    }
    if (tables.size() != uses.size()) continue;
    if (bytes > max_bytes) {
      notes.push_back(fmt::format("{} stays: its products take {} bytes, more than {}", name, bytes,
                                  max_bytes));
      continue;
    }
    std::vector<bool> removed(graph.nodes.size(), false);
    removed[g] = true;
    std::vector<Node> made;
    for (size_t i = 0; i < uses.size(); ++i) {
      for (int n : {uses[i].transpose, uses[i].matmul, uses[i].add}) {
        if (n >= 0) removed[n] = true;
      }
      for (Node& node : folder.Replace(uses[i], std::move(tables[i]))) {
        made.push_back(std::move(node));
      }
    }
    notes.push_back(fmt::format("{} folded into the product after it: {} bytes in place of {}",
                                name, bytes, before.byte_size()));
    RemoveNodes(graph, removed);
    graph.nodes.insert(graph.nodes.end(), made.begin(), made.end());
    SortNodes(graph);
    ++count;
    g = static_cast<size_t>(-1);  // positions have changed
  }
  return count;
}

}  // namespace chairlift
