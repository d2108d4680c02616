// For each value of the packed graph: which hidden tokens may be left out so that it stays the same
// for the tokens (and sequences) that are kept. And whether it is 0 at hidden tokens, so that a sum
// does not miss them.
#include "graph/ragged/hidden.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>

#include "graph/passes/rewrite.h"
#include "graph/ragged/mask_probe.h"

namespace chairlift::ragged {
namespace {

// More may be left out the greater it is.
enum class Ignores { kNone, kTrailing, kAll };

struct Known {
  Ignores ignores = Ignores::kAll;
  bool zero = false;  // at hidden tokens
};

// What is added to the score of a key whose token is hidden has to be lower by this.
constexpr float kHides = 1000.0f;

class Analysis {
 public:
  Analysis(const RaggedModel& model, int mask_input)
      : model_(model), graph_(model.graph), mask_(mask_input), known_(graph_.values.size()) {}

  // Of all [R, ...] outputs; nothing where the input marks no tokens anywhere.
  std::optional<Ignores> Run() {
    known_[static_cast<size_t>(graph_.inputs[static_cast<size_t>(mask_)])].zero = true;
    for (const Node& node : graph_.nodes) {
      const Known known = Visit(node);
      for (const ValueId id : node.outputs) {
        if (id != kNoValue) known_[static_cast<size_t>(id)] = known;
      }
    }
    Ignores least = Ignores::kAll;
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      if (model_.output_is_tokens[i]) continue;
      least = std::min(least, known_[static_cast<size_t>(graph_.outputs[i])].ignores);
    }
    return marks_ ? std::optional(least) : std::nullopt;
  }

 private:
  const Known& Input(const Node& node, size_t i) const {
    return known_[static_cast<size_t>(node.inputs[i])];
  }

  Known Visit(const Node& node) {
    Known known;
    for (const ValueId id : node.inputs) {
      if (id != kNoValue) {
        known.ignores = std::min(known.ignores, known_[static_cast<size_t>(id)].ignores);
      }
    }
    if (node.def->domain.empty()) {
      // Token by token, or sequence by sequence.
      known.zero = KeepsZeros(node);
      return known;
    }
    if (Is(node, "RaggedSpread", "chairlift")) return known;
    Ignores most = Ignores::kNone;
    if (Is(node, "RaggedAttention", "chairlift")) {
      if (node.inputs.size() > 4 && Hides(node.inputs[4])) {
        most = Ignores::kAll;
        marks_ = true;
      }
    } else if (Is(node, "RaggedReduce", "chairlift")) {
      if (node.attributes.String("op", "") == "sum" && Input(node, 0).zero) {
        most = Ignores::kAll;
        marks_ = true;
      }
    } else if (Is(node, "RaggedToken", "chairlift")) {
      // The first token stays wherever one counts.
      if (node.attributes.Int("index", 0) == 0) most = Ignores::kTrailing;
    } else if (Is(node, "RaggedCumSum", "chairlift")) {
      const bool reverse = node.attributes.Int("reverse", 0) != 0;
      most = Input(node, 0).zero ? Ignores::kAll : reverse ? Ignores::kNone : Ignores::kTrailing;
    }
    known.ignores = std::min(known.ignores, most);
    return known;
  }

  // Whether the result is 0 wherever hidden tokens are, as some operand is. Values are finite.
  bool KeepsZeros(const Node& node) const {
    static constexpr std::string_view kMoving[] = {"Cast",    "Expand",  "Flatten",   "Identity",
                                                   "Reshape", "Squeeze", "Transpose", "Unsqueeze"};
    static constexpr std::string_view kEither[] = {"And", "Mul"};
    const std::string& name = node.def->name;
    if (std::find(std::begin(kMoving), std::end(kMoving), name) != std::end(kMoving)) {
      return Input(node, 0).zero;
    }
    if (std::find(std::begin(kEither), std::end(kEither), name) != std::end(kEither)) {
      return Input(node, 0).zero || Input(node, 1).zero;
    }
    return false;
  }

  // Whether `bias`, [T], tells hidden tokens from all others, as the mask alone says.
  bool Hides(ValueId bias) {
    const auto [found, fresh] = hides_.emplace(bias, false);
    if (!fresh) return found->second;
    const auto inputs = ReadInputs(graph_, bias);
    if (!inputs.ok() || *inputs != std::vector<int>{mask_}) return false;
    const Value& value =
        graph_.values[static_cast<size_t>(graph_.inputs[static_cast<size_t>(mask_)])];
    Tensor mask = Tensor::Allocate(value.dtype, Shape{2});
    if (value.shape.rank() != 1) return false;
    switch (value.dtype) {
      case DType::kInt64:
        mask = Tensor::Of<int64_t>(Shape{2}, {0, 1});
        break;
      case DType::kInt32:
        mask = Tensor::Of<int32_t>(Shape{2}, {0, 1});
        break;
      case DType::kBool:
        mask = Tensor::Of<bool>(Shape{2}, {false, true});
        break;
      case DType::kFloat:
        mask = Tensor::Of<float>(Shape{2}, {0.0f, 1.0f});
        break;
      default:
        return false;
    }
    const auto added = EvaluateValues(graph_, {&bias, 1}, {{mask_, mask}}, {{"tokens", 2}});
    if (!added.ok() || (*added)[0].dtype() != DType::kFloat || (*added)[0].size() != 2) {
      return false;
    }
    const float* b = (*added)[0].data<float>();
    found->second = b[1] > -kHides && b[1] < kHides && b[0] <= b[1] - kHides;
    return found->second;
  }

  const RaggedModel& model_;
  const Graph& graph_;
  const int mask_;
  std::vector<Known> known_;
  std::map<ValueId, bool> hides_;
  bool marks_ = false;
};

}  // namespace

void FindHidden(RaggedModel& model) {
  std::optional<Ignores> best;
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    const Value& input = model.graph.values[static_cast<size_t>(model.graph.inputs[i])];
    if (model.inputs[i].role != RaggedRole::kTokens || input.shape.rank() != 1) continue;
    const std::optional<Ignores> found = Analysis(model, static_cast<int>(i)).Run();
    if (!found || (best && *found <= *best)) continue;
    best = found;
    model.mask = model.inputs[i].source;
  }
  model.rows_ignore_masked = best == Ignores::kAll;
  model.rows_ignore_trailing = best && *best >= Ignores::kTrailing;
}

}  // namespace chairlift::ragged
