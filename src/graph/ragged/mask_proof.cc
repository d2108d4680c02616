#include "graph/ragged/mask_proof.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "graph/batch_axis/propagate.h"
#include "graph/ragged/form.h"

namespace chairlift::ragged {
namespace {

using analysis::kReach;
using analysis::Line;
using analysis::Pattern;
using analysis::Size;

// The number by which a window hides: sums with scores stay finite.
constexpr float kBeyondWindow = -1e30f;
// Biases by distance are below this. Those below the negative number hide the key.
constexpr float kMostBias = 1e9f;

// The marks that decide on a key: that of its own token.
StatusOr<int> MarksOf(const Pattern& mask) {
  int input = -1;
  for (const Line& condition : mask.conditions) {
    if (condition.mark < 0) continue;
    const Line own =
        Pattern::MarkAt(Line::Index(mask.rank() - 4), Line::Index(mask.rank() - 1), condition.mark);
    if (mask.rank() != 4 || condition != own)
      return Unimplemented("hides by marks of other tokens than the key");
    if (input >= 0 && input != own.mark) return Unimplemented("hides by several inputs");
    input = own.mark;
  }
  return input;
}

// The smallest, or largest, number that the table adds over all possible cases.
float Extreme(const Pattern& table, bool most) {
  std::optional<float> extreme;
  for (int64_t m = 0; m < table.table.size(); ++m) {
    const float value = table.table.data<float>()[m];
    if (!table.Possible(m)) continue;
    extreme = !extreme ? value : most ? std::max(*extreme, value) : std::min(*extreme, value);
  }
  return extreme.value_or(0.0f);
}

// Sets the biases by distance, key − query: a curve, plus what a table adds if all marks are 1.
// Unknown patterns add nothing. Unimplemented if they depend on more than the distance.
Status SetByDistance(const Pattern& curve, const Pattern& table, const Line& apart,
                     MaskRule& rule) {
  const auto back = Line::Sum(Line(), apart, -1);
  const int64_t points = 2 * kReach + 1, heads = curve.known() ? curve.curve.shape()[1] : 1;
  rule.by_distance.assign(static_cast<size_t>(heads * points), 0.0f);
  for (const Pattern* part : {&curve, &table}) {
    if (!part->known()) continue;
    const std::optional<Pattern> of = part->is_curve() ? *part : part->AsCurve();
    if (!of || !back || (of->line != apart && of->line != *back)) {
      return Unimplemented("adds what follows from more than how far key and query are apart");
    }
    const int64_t columns = of->curve.shape()[1];
    for (int64_t at = 0; at < heads * points; ++at) {
      const int64_t i = at % points, from = of->line == apart ? i : points - 1 - i;
      rule.by_distance[static_cast<size_t>(at)] +=
          of->curve.data<float>()[from * columns + (columns == 1 ? 0 : at / points)];
    }
  }
  float least = 0.0f, most = 0.0f;
  for (size_t at = 0; at < rule.by_distance.size(); ++at) {
    float& added = rule.by_distance[at];
    const int64_t i = static_cast<int64_t>(at) % points - kReach;
    if (!(added < kMostBias) || (i == 0 && added <= -kMostBias)) {
      return Unimplemented("adds {} where the key is {} tokens behind the query", added, i);
    }
    added = std::max(added, kBeyondWindow);
    least = std::min(least, added);
    most = std::max(most, added);
  }
  if (least == 0.0f && most == 0.0f) rule.by_distance.clear();
  // A mark of 0 must still hide a key, whatever is added to other keys.
  rule.is_window = least <= -kMostBias || !(rule.hidden + (most - least) <= -kHidingScore);
  return absl::OkStatus();
}

}  // namespace

MaskProof::MaskProof(const Graph& graph, const std::vector<batch_axis::State>& states)
    : graph_(graph),
      states_(states),
      links_(graph),
      reader_(graph),
      visited_(graph.nodes.size(), false),
      why_(graph.values.size()) {
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Value& value = graph.values[static_cast<size_t>(graph.inputs[i])];
    const bool marks = value.shape.rank() == 2 && value.shape[0].Same(Dim::Symbol(kBatchSymbol)) &&
                       value.shape[1].Same(Dim::Symbol(kLengthSymbol));
    if (marks) reader_.Set(graph.inputs[i], Pattern::OfMarks(value.dtype, static_cast<int>(i)));
  }
}

// The nodes that it depends on, in the order of the graph.
std::vector<int> MaskProof::Follow(ValueId id) {
  std::vector<bool> needed(graph_.nodes.size(), false);
  std::vector<int> marks;
  std::vector<ValueId> open = {id};
  while (!open.empty()) {
    const ValueId value = open.back();
    open.pop_back();
    if (value == kNoValue) continue;
    const int n = links_.producer(value);
    const auto input = std::find(graph_.inputs.begin(), graph_.inputs.end(), value);
    if (n < 0 && input != graph_.inputs.end()) {
      const auto place = static_cast<int>(input - graph_.inputs.begin());
      if (std::find(marks.begin(), marks.end(), place) == marks.end()) marks.push_back(place);
    }
    if (n < 0 || needed[static_cast<size_t>(n)]) continue;
    needed[static_cast<size_t>(n)] = true;
    const Node& node = graph_.nodes[static_cast<size_t>(n)];
    if (node.def->gives_sizes) continue;
    open.insert(open.end(), node.inputs.begin(), node.inputs.end());
  }
  for (size_t n = 0; n < needed.size(); ++n) {
    if (!needed[n] || visited_[n]) continue;
    visited_[n] = true;
    const Node& node = graph_.nodes[n];
    for (const ValueId input : node.inputs) {
      if (input == kNoValue || reader_.of(input).known()) continue;
      const auto& elements = states_[static_cast<size_t>(input)].elements;
      const Value& value = graph_.values[static_cast<size_t>(input)];
      reader_.TakeSizes(input,
                        elements ? elements : batch_axis::Known(value, kBatchSymbol).elements);
    }
    const Status followed = reader_.Visit(node);
    if (followed.ok() || node.outputs[0] == kNoValue) continue;
    std::string& why = why_[static_cast<size_t>(node.outputs[0])];
    for (const ValueId input : node.inputs) {
      if (input != kNoValue && why.empty()) why = why_[static_cast<size_t>(input)];
    }
    if (why.empty()) why = fmt::format("{}: {}", node.Describe(), Message(followed));
  }
  return marks;
}

bool MaskProof::NumbersSequences(ValueId id) {
  if (!Follow(id).empty()) return false;
  const Pattern& pattern = reader_.of(id);
  for (int axis = 0; pattern.is_line() && axis < pattern.rank(); ++axis) {
    if (pattern.line != Line::Index(axis)) continue;
    std::vector<Line> dims(pattern.dims.size(), Line::Number(1));
    dims[static_cast<size_t>(axis)] = Line::Batch();
    return pattern.dims == dims;
  }
  return false;
}

StatusOr<MaskRule> MaskProof::RuleOf(ValueId mask) {
  MaskRule rule;
  rule.marks = Follow(mask);
  const Pattern& pattern = reader_.of(mask);
  if (!(pattern.is_table() || pattern.is_curve()) || pattern.dtype != DType::kFloat) {
    const std::string& why = why_[static_cast<size_t>(mask)];
    return Unimplemented("cannot be followed{}{}", why.empty() ? "" : ": ", why);
  }
  const int rank = pattern.rank();
  if (rank < 2 || rank > 4) return Unimplemented("is not of rank 4");
  for (int axis = 0; axis < rank; ++axis) {
    const Line& dim = pattern.dims[static_cast<size_t>(axis)];
    const int place = axis + 4 - rank;
    const bool fits = dim == Line::Number(1) || (place == 0   ? dim == Line::Batch()
                                                 : place == 1 ? dim.is_number()
                                                              : dim == Line::Of(Size::kNew));
    if (!fits) return Unimplemented("has {} entries along axis {}", dim.ToString(), axis);
  }
  if (pattern.column >= 0 && pattern.column != rank - 3) {
    return Unimplemented("differs along axis {}, which is not that of heads", pattern.column);
  }
  const Pattern table = pattern.is_curve() ? pattern.Added() : pattern;
  CHAIRLIFT_ASSIGN_OR_RETURN(rule.input, MarksOf(table));
  if (rule.input >= 0) {
    rule.hidden = Extreme(table.WithMarks(false), true);
    if (!(rule.hidden <= -kHidingScore)) {
      return Unimplemented("adds {} where the mask is 0, which does not hide", rule.hidden);
    }
  }
  Pattern shown = table.WithMarks(true);
  const float most = Extreme(shown, true), least = Extreme(shown, false);
  if (most != 0.0f || (least != 0.0f && !(least <= -kHidingScore))) {
    return Unimplemented("adds {} and {} to keys that count", least, most);
  }
  if (shown.conditions.empty() && rule.input >= 0) {
    // In a sequence of hidden tokens alone, the key that is lowered least counts most.
    const float lowest = Extreme(table.WithMarks(false), false);
    if (lowest != rule.hidden) {
      return Unimplemented("adds {} and {} where the mask is 0", lowest, rule.hidden);
    }
  }
  const Line apart = *Line::Sum(Line::Index(rank - 1), Line::Index(rank - 2), -1);
  const Line seen = *Line::Sum(Line(), apart, -1);
  const Line later = *Line::Sum(apart, Line::Number(1), -1);
  if (shown.conditions.size() == 1) {
    const float* values = shown.table.data<float>();
    const Line& condition = shown.conditions[0];
    rule.causal =
        (condition == seen && values[1] == 0.0f) || (condition == later && values[0] == 0.0f);
  }
  if (rule.causal || shown.conditions.empty()) shown = {};
  if (!shown.known() && !pattern.is_curve()) return rule;
  CHAIRLIFT_RETURN_IF_ERROR(
      SetByDistance(pattern.is_curve() ? pattern : Pattern(), shown, apart, rule));
  reader_.LimitTokens(kReach + 1);
  return rule;
}

}  // namespace chairlift::ragged
