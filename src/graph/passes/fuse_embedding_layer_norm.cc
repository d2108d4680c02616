// Fuses lookups in tables, their sum and its layer normalisation into one pass over the tokens:
// chairlift::EmbeddingLayerNorm. Encoders start like this: embeddings of the word, its position and
// the token's type, in any order. A term may also be an existing tensor, for example if positions
// are a slice of their table. The sum stays an output if others read it.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "graph/passes/row_norm.h"

namespace chairlift {
namespace {

class EmbeddingLayerNormFuser {
 public:
  EmbeddingLayerNormFuser(Graph& graph, std::vector<std::string>& notes)
      : graph_(graph), notes_(notes), links_(graph), removed_(graph.nodes.size(), false) {}

  int Run() {
    int count = 0;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (Is(graph_.nodes[n], "LayerNormalization") && Fuse(static_cast<int>(n))) ++count;
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n) NoteSum(static_cast<int>(n));
    RemoveNodes(graph_, removed_);
    SortNodes(graph_);
    return count;
  }

 private:
  struct Term {
    ValueId values = kNoValue;
    ValueId index = kNoValue;
    int gather = -1;  // the node
  };
  // In the order in which they are added.
  struct Sum {
    std::vector<Term> terms;
    std::vector<int> adds;
    int gathers() const {
      return static_cast<int>(
          std::count_if(terms.begin(), terms.end(), [](const Term& t) { return t.gather >= 0; }));
    }
  };

  const SymbolicShape& shape(ValueId id) const { return graph_.values[id].shape; }

  // The node that looks up rows of a table and returns them as `id`; -1 if it is something else.
  int Lookup(ValueId id) const {
    const int n = links_.producer(id);
    if (n < 0 || !Is(graph_.nodes[n], "Gather")) return -1;
    const Node& gather = graph_.nodes[n];
    const int64_t axis = gather.attributes.Int("axis", 0);
    const Value& table = graph_.values[gather.inputs[0]];
    const bool rows = table.dtype == DType::kFloat && table.shape.has_rank() &&
                      table.shape.rank() == 2 && (axis == 0 || axis == -2);
    return rows ? n : -1;
  }

  // `id` as a term of node n; nothing if it is not one row of `width` per token.
  std::optional<Term> TermOf(ValueId id, int n, const Dim& width) const {
    const SymbolicShape& s = shape(id);
    if (graph_.values[id].dtype != DType::kFloat || !s.has_rank() || s.rank() == 0 ||
        !s[s.rank() - 1].Same(width)) {
      return std::nullopt;
    }
    const int gather = Lookup(id);
    if (gather < 0 || links_.SoleReader(id) != n) return Term{.values = id};
    return Term{graph_.nodes[gather].inputs[0], graph_.nodes[gather].inputs[1], gather};
  }

  // The operands of Add `n`. Operand `expanded` (0 or 1; otherwise none) is itself a sum.
  std::optional<Sum> SumOf(int n, int expanded, const Dim& width) const {
    const Node& add = graph_.nodes[n];
    if (removed_[n]) return std::nullopt;  // already part of another
    Sum sum{.terms = {}, .adds = {n}};
    if (expanded < 0) {
      for (const ValueId id : add.inputs) {
        const auto term = TermOf(id, n, width);
        if (!term) return std::nullopt;
        sum.terms.push_back(*term);
      }
      return sum;
    }
    const ValueId inner = add.inputs[static_cast<size_t>(expanded)];
    const int first = links_.producer(inner);
    if (first < 0 || !Is(graph_.nodes[first], "Add") || links_.SoleReader(inner) != n) {
      return std::nullopt;
    }
    std::optional<Sum> begun = SumOf(first, -1, width);
    const auto last = TermOf(add.inputs[static_cast<size_t>(1 - expanded)], n, width);
    if (!begun || !last) return std::nullopt;
    begun->terms.push_back(*last);
    begun->adds.push_back(n);
    return begun;
  }

  // The input that node n normalises, with as many lookups as possible, then as many terms as
  // possible.
  Sum Best(int n) const {
    const ValueId x = graph_.nodes[n].inputs[0];
    const Dim& width = shape(x)[shape(x).rank() - 1];
    Sum best;
    const auto take = [&best](std::optional<Sum> sum) {
      if (sum && std::pair(sum->gathers(), sum->terms.size()) >
                     std::pair(best.gathers(), best.terms.size())) {
        best = *std::move(sum);
      }
    };
    if (!width.known()) return best;
    const int add = links_.producer(x);
    if (add >= 0 && Is(graph_.nodes[add], "Add")) {
      for (int expanded : {-1, 0, 1}) take(SumOf(add, expanded, width));
    } else if (const auto term = TermOf(x, n, width)) {
      take(Sum{{*term}, {}});
    }
    return best;
  }

  // The number of lookups that `id` is the sum of, including those with other readers.
  int Lookups(ValueId id, int depth = 2) const {
    if (Lookup(id) >= 0) return 1;
    const int n = links_.producer(id);
    if (depth == 0 || n < 0 || !Is(graph_.nodes[n], "Add")) return 0;
    const Node& add = graph_.nodes[n];
    return Lookups(add.inputs[0], depth - 1) + Lookups(add.inputs[1], depth - 1);
  }

  bool Fuse(int n) {
    Node& norm = graph_.nodes[n];
    const ValueId x = norm.inputs[0];
    const int lookups = Lookups(x);
    if (lookups == 0) return false;
    std::string problem = RowNormProblem(graph_, norm);
    const Sum sum = problem.empty() ? Best(n) : Sum();
    if (problem.empty() && sum.gathers() == 0) {
      problem = "others read the embeddings before it too, or a term is not one row a token";
    }
    if (!problem.empty()) {
      notes_.push_back(norm.Describe() + ": " + problem);
      return false;
    }
    std::vector<ValueId> inputs = {norm.inputs[1],
                                   norm.inputs.size() > 2 ? norm.inputs[2] : kNoValue};
    std::vector<std::string> gathers;
    for (const Term& term : sum.terms) {
      inputs.push_back(term.values);
      inputs.push_back(term.index);
      gathers.push_back(term.gather < 0 ? "" : graph_.nodes[term.gather].Describe());
      if (term.gather >= 0) removed_[term.gather] = true;
    }
    if (inputs.back() == kNoValue) inputs.pop_back();
    for (const int add : sum.adds) removed_[add] = true;
    const bool sum_is_read = !sum.adds.empty() && links_.SoleReader(x) < 0;
    SetRowNorm(norm, fused_, std::move(inputs), sum_is_read ? x : kNoValue);
    norm.attributes.Set("gathers", gathers);
    return true;
  }

  // Notes a sum of embeddings that is not normalised.
  void NoteSum(int n) {
    const Node& add = graph_.nodes[n];
    if (removed_[n] || !Is(add, "Add")) return;
    const int lookups = Lookups(add.outputs[0]);
    if (lookups < 2) return;
    for (const int reader : links_.readers(add.outputs[0])) {
      // A normalisation has its own note, and so has a sum of more embeddings.
      const Node& next = graph_.nodes[reader];
      if (Is(next, "LayerNormalization") || next.def == fused_ ||
          (Is(next, "Add") && Lookups(next.outputs[0]) > lookups)) {
        return;
      }
    }
    notes_.push_back(add.Describe() + ": no layer normalisation follows this sum of embeddings");
  }

  Graph& graph_;
  std::vector<std::string>& notes_;
  const OperatorDef* const fused_ =
      OperatorRegistry::Builtin().Find("chairlift", "EmbeddingLayerNorm");
  const Links links_;
  std::vector<bool> removed_;
};

StatusOr<int> RunFuseEmbeddingLayerNorm(Graph& graph, std::vector<std::string>& notes) {
  return EmbeddingLayerNormFuser(graph, notes).Run();
}

}  // namespace

Pass FuseEmbeddingLayerNorm() {
  return {"fuse_embedding_layer_norm",
          "look up, add and normalise embeddings in one pass over the tokens",
          RunFuseEmbeddingLayerNorm};
}

}  // namespace chairlift
