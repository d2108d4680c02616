// For each value of the packed graph: which hidden tokens may be left out without changing it for
// the kept tokens (and sequences). Also whether it is 0 at hidden tokens, so that a sum does not
// change without them.
#include "graph/ragged/hidden.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "graph/passes/rewrite.h"
#include "graph/ragged/evaluate_values.h"
#include "graph/ragged/mask_proof.h"

namespace chairlift::ragged {
namespace {

// A larger value means that more may be left out.
enum class Ignores { kNone, kTrailing, kAll };

struct Known {
  Ignores ignores = Ignores::kAll;
  bool zero = false;  // at hidden tokens
};

class Analysis {
 public:
  Analysis(const RaggedModel& model, int mask_input)
      : model_(model),
        graph_(model.graph),
        links_(graph_),
        mask_(mask_input),
        known_(graph_.values.size()) {}

  // For all [R, ...] outputs (for all, if there are none), and for all [T, ...] outputs.
  struct Found {
    Ignores rows = Ignores::kAll;
    Ignores tokens = Ignores::kAll;
  };

  // Nothing if the input does not mark tokens anywhere.
  std::optional<Found> Run() {
    known_[static_cast<size_t>(graph_.inputs[static_cast<size_t>(mask_)])].zero = true;
    for (const Node& node : graph_.nodes) {
      const Known known = Visit(node);
      for (const ValueId id : node.outputs) {
        if (id != kNoValue) known_[static_cast<size_t>(id)] = known;
      }
    }
    Found found;
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      Ignores& least = model_.output_is_tokens[i] ? found.tokens : found.rows;
      least = std::min(least, known_[static_cast<size_t>(graph_.outputs[i])].ignores);
    }
    const bool any_rows = std::find(model_.output_is_tokens.begin(), model_.output_is_tokens.end(),
                                    false) != model_.output_is_tokens.end();
    if (!any_rows) found.rows = found.tokens;
    return marks_ ? std::optional(found) : std::nullopt;
  }

 private:
  const Known& Input(const Node& node, size_t i) const {
    return known_[static_cast<size_t>(node.inputs[i])];
  }

  Known Visit(const Node& node) {
    Known known;
    const bool attends = Is(node, "RaggedAttention", "chairlift");
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue || (attends && i == 4)) continue;  // Hidden() handles that
      known.ignores = std::min(known.ignores, known_[static_cast<size_t>(id)].ignores);
    }
    if (node.def->domain.empty() || node.def->axes != nullptr) {
      // Token by token, or sequence by sequence.
      known.zero = KeepsZeros(node);
      return known;
    }
    if (Is(node, "RaggedSpread", "chairlift")) return known;
    // A range over rows does not depend on hidden tokens. A range over tokens includes them.
    if (Is(node, "RaggedQuantize", "chairlift") && node.inputs.size() > 1 &&
        IsInput(node.inputs[1], RaggedRole::kRequests)) {
      return known;
    }
    Ignores most = Ignores::kNone;
    if (attends) {
      if (node.inputs.size() > 4 && node.inputs[4] != kNoValue) most = Hidden(node.inputs[4]);
      // Leaving out a token between two others would reduce their distance.
      if (node.inputs.size() > 5) most = std::min(most, Ignores::kTrailing);
      marks_ = marks_ || most != Ignores::kNone;
    } else if (Is(node, "RaggedReduce", "chairlift")) {
      if (node.attributes.String("op", "") == "sum" && Input(node, 0).zero) {
        most = Ignores::kAll;
        marks_ = true;
      }
    } else if (Is(node, "RaggedToken", "chairlift")) {
      // In every sequence with a valid token, the first token is kept. So is the token at position
      // n − 1, for n valid tokens.
      const bool kept = node.inputs.size() < 3 ? node.attributes.Int("index", 0) == 0
                                               : IsBeforeCount(node.inputs[2]);
      if (kept) most = Ignores::kTrailing;
    } else if (Is(node, "RaggedCumSum", "chairlift")) {
      const bool reverse = node.attributes.Int("reverse", 0) != 0;
      most = Input(node, 0).zero ? Ignores::kAll : reverse ? Ignores::kNone : Ignores::kTrailing;
    }
    known.ignores = std::min(known.ignores, most);
    return known;
  }

  // Whether the result is 0 at hidden tokens because an operand is. Values are finite.
  bool KeepsZeros(const Node& node) const {
    if (node.def->OnlyMoves()) return Input(node, 0).zero;
    return (Is(node, "And") || Is(node, "Mul")) && (Input(node, 0).zero || Input(node, 1).zero);
  }

  // Which hidden tokens may be left out if `bias`, [T], is added to the scores of keys.
  Ignores Hidden(ValueId bias) {
    const auto [found, fresh] = hidden_.emplace(bias, Ignores::kNone);
    if (fresh) {
      found->second = HidesEach(bias)       ? Ignores::kAll
                      : HidesTrailing(bias) ? Ignores::kTrailing
                                            : Ignores::kNone;
    }
    return found->second;
  }

  // Whether it separates hidden tokens from all others using the mask alone.
  bool HidesEach(ValueId bias) const {
    const auto inputs = ReadInputs(graph_, bias);
    if (!inputs.ok() || *inputs != std::vector<int>{mask_}) return false;
    const auto b = Bias(bias, {0, 1});
    return b && (*b)[1] > -kHidingScore && (*b)[1] < kHidingScore &&
           (*b)[0] <= (*b)[1] - kHidingScore;
  }

  // Whether hidden tokens after the last valid one are hidden from all others without affecting
  // them. This holds if the bias is one number for positions below the number of valid tokens in
  // the sequence, and another number elsewhere.
  bool HidesTrailing(ValueId bias) const {
    if (!FollowsFromCount(bias)) return false;
    const auto b = Bias(bias, {1, 0});  // with one valid token: a position below that count, and
                                        // one that is not
    return b && (*b)[0] > -kHidingScore && (*b)[0] < kHidingScore &&
           (*b)[1] <= (*b)[0] - kHidingScore;
  }

  // Whether each token's bias depends only on comparisons of positions with counts.
  bool FollowsFromCount(ValueId bias) const {
    std::vector<ValueId> open = {bias};
    while (!open.empty()) {
      const ValueId id = open.back();
      open.pop_back();
      if (id == kNoValue || graph_.values[static_cast<size_t>(id)].is_constant()) continue;
      const int producer = links_.producer(id);
      if (producer < 0) return false;
      const Node& node = graph_.nodes[static_cast<size_t>(producer)];
      if (ComparesPlaceWithCount(node)) continue;
      if (!node.def->domain.empty() || node.inputs.empty()) return false;
      open.insert(open.end(), node.inputs.begin(), node.inputs.end());
    }
    return true;
  }

  bool ComparesPlaceWithCount(const Node& node) const {
    const auto compares = [&](size_t place, size_t count) {
      return IsInput(Moved(node.inputs[place]), RaggedRole::kPositions) &&
             IsCount(node.inputs[count]);
    };
    if (Is(node, "Less") || Is(node, "GreaterOrEqual")) return compares(0, 1);
    if (Is(node, "Greater") || Is(node, "LessOrEqual")) return compares(1, 0);
    return false;
  }

  // Count − 1 for each sequence.
  bool IsBeforeCount(ValueId id) const {
    const Node* less = Producer(Moved(id));
    return less != nullptr && Is(*less, "Sub") &&
           IntegersInput(graph_, *less, 1) == std::vector<int64_t>{1} &&
           IsCountOfRows(less->inputs[0]);
  }

  // The number of tokens that the mask marks with 1 in each token's sequence.
  bool IsCount(ValueId id) const {
    const Node* spread = Producer(Moved(id));
    return spread != nullptr && Is(*spread, "RaggedSpread", "chairlift") &&
           IsCountOfRows(spread->inputs[0]);
  }

  bool IsCountOfRows(ValueId id) const {
    const Node* sum = Producer(Moved(id));
    return sum != nullptr && Is(*sum, "RaggedReduce", "chairlift") &&
           sum->attributes.String("op", "") == "sum" && IsMark(sum->inputs[0]);
  }

  // Whether it is 1 for tokens that the mask marks with 1, and 0 for others.
  bool IsMark(ValueId id) const {
    std::vector<ValueId> open = {id};
    while (!open.empty()) {
      const Node* node = open.back() == kNoValue ? nullptr : Producer(open.back());
      open.pop_back();
      if (node == nullptr) continue;
      if (!node->def->domain.empty()) return false;
      open.insert(open.end(), node->inputs.begin(), node->inputs.end());
    }
    const auto inputs = ReadInputs(graph_, id);
    if (!inputs.ok() || *inputs != std::vector<int>{mask_}) return false;
    const std::optional<Tensor> marks = Evaluated(id, {0, 1});
    const auto zero_and_one = [&]<typename T>(T zero) {
      return marks->data<T>()[0] == zero && marks->data<T>()[1] == T{1};
    };
    if (!marks) return false;
    return marks->dtype() == DType::kInt64   ? zero_and_one(int64_t{0})
           : marks->dtype() == DType::kInt32 ? zero_and_one(int32_t{0})
           : marks->dtype() == DType::kFloat ? zero_and_one(0.0f)
                                             : false;
  }

  bool IsInput(ValueId id, RaggedRole role) const {
    const auto found = std::find(graph_.inputs.begin(), graph_.inputs.end(), id);
    return found != graph_.inputs.end() &&
           model_.inputs[static_cast<size_t>(found - graph_.inputs.begin())].role == role;
  }

  const Node* Producer(ValueId id) const {
    const int producer = links_.producer(id);
    return producer < 0 ? nullptr : &graph_.nodes[static_cast<size_t>(producer)];
  }

  // The source of a value's numbers, if its nodes only change their shape or type.
  ValueId Moved(ValueId id) const {
    for (const Node* node = Producer(id); node != nullptr; node = Producer(id)) {
      const DType dtype = graph_.values[static_cast<size_t>(id)].dtype;
      const bool counts =
          dtype == DType::kInt64 || dtype == DType::kInt32 || dtype == DType::kFloat;
      if (!counts || !(node->def->is_view || Is(*node, "Cast") || Is(*node, "Transpose"))) break;
      id = node->inputs[0];
    }
    return id;
  }

  // The bias of one sequence under `mask`; nothing if it depends on anything else.
  std::optional<std::vector<float>> Bias(ValueId bias, const std::vector<int64_t>& mask) const {
    const std::optional<Tensor> added = Evaluated(bias, mask);
    if (!added || added->dtype() != DType::kFloat) return std::nullopt;
    const auto values = added->values<float>();
    return std::vector<float>(values.begin(), values.end());
  }

  // One number per token, under the same conditions.
  std::optional<Tensor> Evaluated(ValueId id, const std::vector<int64_t>& mask) const {
    const auto length = static_cast<int64_t>(mask.size());
    const Value& value =
        graph_.values[static_cast<size_t>(graph_.inputs[static_cast<size_t>(mask_)])];
    if (value.shape.rank() != 1) return std::nullopt;
    Tensor given = Tensor::Allocate(value.dtype, Shape{length});
    for (int64_t i = 0; i < length; ++i) {
      const int64_t v = mask[static_cast<size_t>(i)];
      switch (value.dtype) {
        case DType::kInt64:
          given.data<int64_t>()[i] = v;
          break;
        case DType::kInt32:
          given.data<int32_t>()[i] = static_cast<int32_t>(v);
          break;
        case DType::kBool:
          given.data<bool>()[i] = v != 0;
          break;
        case DType::kFloat:
          given.data<float>()[i] = static_cast<float>(v);
          break;
        default:
          return std::nullopt;
      }
    }
    std::map<int, Tensor> inputs = {{mask_, given}};
    for (size_t i = 0; i < model_.inputs.size(); ++i) {
      if (model_.inputs[i].role == RaggedRole::kOffsets) {
        inputs[static_cast<int>(i)] = Tensor::Of<int64_t>(Shape{2}, {0, length});
      } else if (model_.inputs[i].role == RaggedRole::kPositions) {
        Tensor places = Tensor::Allocate(DType::kInt64, Shape{length});
        std::iota(places.data<int64_t>(), places.data<int64_t>() + length, int64_t{0});
        inputs[static_cast<int>(i)] = places;
      }
    }
    const auto read = ReadInputs(graph_, id);
    if (!read.ok() ||
        !std::all_of(read->begin(), read->end(), [&](int i) { return inputs.contains(i); })) {
      return std::nullopt;
    }
    auto values =
        EvaluateValues(graph_, {&id, 1}, inputs,
                       {{kTokensSymbol, length}, {kSequencesSymbol, 1}, {"sequences+1", 2}});
    if (!values.ok() || (*values)[0].size() != length) return std::nullopt;
    return std::move((*values)[0]);
  }

  const RaggedModel& model_;
  const Graph& graph_;
  const Links links_;
  const int mask_;
  std::vector<Known> known_;
  std::map<ValueId, Ignores> hidden_;
  bool marks_ = false;
};

}  // namespace

void FindHidden(RaggedModel& model) {
  std::optional<Analysis::Found> best;
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    const Value& input = model.graph.values[static_cast<size_t>(model.graph.inputs[i])];
    if (model.inputs[i].role != RaggedRole::kTokens || input.shape.rank() != 1) continue;
    const auto found = Analysis(model, static_cast<int>(i)).Run();
    if (!found ||
        (best && std::pair(found->rows, found->tokens) <= std::pair(best->rows, best->tokens))) {
      continue;
    }
    best = found;
    model.mask = model.inputs[i].source;
  }
  if (!best) return;
  model.rows_ignore_masked = best->rows == Ignores::kAll;
  model.rows_ignore_trailing = best->rows >= Ignores::kTrailing;
  model.tokens_ignore_trailing = best->tokens >= Ignores::kTrailing;
}

}  // namespace chairlift::ragged
