#include "graph/ragged/bounds.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "graph/passes/rewrite.h"

namespace chairlift::ragged {
namespace {

// Every element is in [low, high], or in [low, high + length].
struct Bound {
  int64_t low = 0, high = 0;
  bool grows = false;
};

// Larger numbers are not positions.
constexpr int64_t kLarge = int64_t{1} << 40;

std::optional<Bound> OfConstant(const Tensor& t) {
  std::optional<Bound> bound;
  const auto of = [&]<typename T>(std::span<const T> values) {
    if (values.empty()) return;
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    const Bound found{static_cast<int64_t>(*low), static_cast<int64_t>(*high), false};
    if (found.low > -kLarge && found.high < kLarge) bound = found;
  };
  if (t.dtype() == DType::kInt64) of(t.values<int64_t>());
  if (t.dtype() == DType::kInt32) of(t.values<int32_t>());
  if (t.dtype() == DType::kBool) of(t.values<bool>());
  return bound;
}

std::optional<Bound> Sum(const Bound& a, const Bound& b) {
  if (a.grows && b.grows) return std::nullopt;
  return Bound{a.low + b.low, a.high + b.high, a.grows || b.grows};
}

// A product of marks, 0 or 1, with a value that is never negative.
std::optional<Bound> ProductBound(const Bound& a, const Bound& b) {
  const auto mark = [](const Bound& m) { return m.low >= 0 && m.high <= 1 && !m.grows; };
  if (a.low < 0 || b.low < 0) return std::nullopt;
  if (mark(b)) return Bound{0, a.high, a.grows};
  if (mark(a)) return Bound{0, b.high, b.grows};
  return std::nullopt;
}

class Bounds {
 public:
  explicit Bounds(const Packer& packer)
      : packer_(packer), graph_(packer.original()), known_(graph_.values.size()) {
    for (size_t i = 0; i < known_.size(); ++i) {
      if (graph_.values[i].is_constant()) known_[i] = OfConstant(graph_.values[i].constant);
    }
  }

  int64_t Longest() {
    for (const Node& node : graph_.nodes) {
      const ValueId out = node.outputs[0];
      if (out == kNoValue || packer_.form(out).unknown() || !node.def->domain.empty()) continue;
      if (Is(node, "Gather") || Is(node, "GatherND")) Read(node);
      known_[static_cast<size_t>(out)] =
          graph_.values[static_cast<size_t>(out)].dtype == DType::kBool ? Bound{0, 1, false}
                                                                        : Of(node);
      // A value that overflows is not a position.
      std::optional<Bound>& bound = known_[static_cast<size_t>(out)];
      if (bound && (bound->low <= -kLarge || bound->high >= kLarge)) bound.reset();
    }
    return longest_;
  }

 private:
  std::optional<Bound> In(const Node& node, size_t i) const {
    return i < node.inputs.size() && node.inputs[i] != kNoValue
               ? known_[static_cast<size_t>(node.inputs[i])]
               : std::nullopt;
  }

  void Read(const Node& node) {
    const std::optional<Bound> index = In(node, 1);
    const SymbolicShape& table = graph_.values[static_cast<size_t>(node.inputs[0])].shape;
    if (!index || !index->grows || !packer_.form(node.inputs[0]).fixed() || !table.has_rank()) {
      return;
    }
    int64_t axis = node.attributes.Int("axis", 0);
    if (Is(node, "GatherND")) {  // of single entries along axis 0
      const SymbolicShape& places = graph_.values[static_cast<size_t>(node.inputs[1])].shape;
      if (!places.has_rank() || !places[places.rank() - 1].Same(Dim(1))) return;
      axis = node.attributes.Int("batch_dims", 0);
    }
    if (axis < 0) axis += table.rank();
    if (axis < 0 || axis >= table.rank() || !table[static_cast<int>(axis)].known()) return;
    const int64_t most = table[static_cast<int>(axis)].value() - 1 - index->high;
    longest_ = longest_ == 0 ? most : std::min(longest_, most);
    longest_ = std::max<int64_t>(longest_, 1);
  }

  std::optional<Bound> Of(const Node& node) const {
    const std::string& op = node.def->name;
    if (op == "Range" && packer_.form(node.outputs[0]).positions()) return Bound{0, -1, true};
    if (node.def->OnlyMoves()) return In(node, 0);
    const std::optional<Bound> a = In(node, 0), b = In(node, 1);
    if (op == "CumSum") {
      return a && a->low >= 0 && a->high <= 1 && !a->grows ? std::optional(Bound{0, 0, true})
                                                           : std::nullopt;
    }
    if (!a || !b) return std::nullopt;
    if (op == "Add") return Sum(*a, *b);
    if (op == "Sub") {
      return b->grows ? std::nullopt : Sum(*a, {-b->high, -b->low, false});
    }
    if (op == "Mul") return ProductBound(*a, *b);
    return std::nullopt;
  }

  const Packer& packer_;
  const Graph& graph_;
  std::vector<std::optional<Bound>> known_;
  int64_t longest_ = 0;
};

}  // namespace

int64_t LongestForTables(const Packer& packer) { return Bounds(packer).Longest(); }

}  // namespace chairlift::ragged
