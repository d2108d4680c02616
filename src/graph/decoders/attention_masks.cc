#include "graph/decoders/attention_masks.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "graph/passes/rewrite.h"
#include "graph/ragged/mask_proof.h"

namespace chairlift::decoders {
namespace {

// What a bias hides by: sums with scores stay finite.
constexpr float kHidden = -1e30f;

}  // namespace

StatusOr<ValueId> AttentionMasks::BiasOf(ValueId mask, const Node& attention, bool causal) {
  const auto key = std::pair(mask, causal);
  if (const auto found = biases_.find(key); found != biases_.end()) return found->second;
  const Pattern& followed = reader_.of(mask);
  const std::optional<Pattern> window = followed.AsCurve();
  const Pattern& pattern = window ? *window : followed;
  const int rank = pattern.rank();
  const auto apart = rank >= 2 && rank <= 4
                         ? Line::Sum(Line::Index(rank - 1), position_(rank - 2), -1)
                         : std::nullopt;
  const auto back = apart ? Line::Sum(Line(), *apart, -1) : std::nullopt;
  if (!back || !pattern.is_curve() || pattern.is_sum() ||
      (pattern.line != *apart && pattern.line != *back) || pattern.curve.dtype() != DType::kFloat ||
      (pattern.column >= 0 && pattern.column != rank - 3) ||
      pattern.dims[static_cast<size_t>(rank - 2)] != Line::Of(Size::kNew) ||
      pattern.dims[static_cast<size_t>(rank - 1)] != total_) {
    return Unimplemented("its mask does not follow from how far key and query are apart");
  }
  const int64_t columns = pattern.curve.shape()[1];
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t heads, HeadsOf(attention, columns));
  const int64_t points = pattern.curve.shape()[0];
  Tensor bias = Tensor::Allocate(DType::kFloat, {heads, points});
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < points; ++i) {
      const int64_t from = pattern.line == *apart ? i : points - 1 - i;
      const float added = pattern.curve.data<float>()[from * columns + (columns == 1 ? 0 : h)];
      const bool later = causal && i > kReach;
      // It may hide what is far, as a window does, but not a query's own key.
      const bool seen =
          added < ragged::kHidingScore && (i != kReach || added > -ragged::kHidingScore);
      if (later ? !(added <= -ragged::kHidingScore) : !seen) {
        return Unimplemented("its mask adds {} where the key is {} tokens behind the query", added,
                             i - kReach);
      }
      bias.data<float>()[h * points + i] = later ? 0.0f : std::max(added, kHidden);
    }
  }
  reader_.LimitTokens(kReach + 1);
  const ValueId id = AddConstant(graph_, fmt::format("bias/{}", mask), std::move(bias));
  biases_[key] = id;
  return id;
}

StatusOr<int64_t> AttentionMasks::HeadsOf(const Node& attention, int64_t of_mask) const {
  const SymbolicShape& q = graph_.values[static_cast<size_t>(attention.inputs[0])].shape;
  const Dim heads = q[static_cast<int>(attention.attributes.Ints("q_axes", {0, 1, 2, 3})[1])];
  if (heads.known() && (of_mask == 1 || of_mask == heads.value())) return heads.value();
  return Unimplemented("its mask has {} heads", of_mask);
}

StatusOr<ValueId> AttentionMasks::SlopesBias(ValueId mask, const Node& attention, bool causal) {
  const Pattern& pattern = reader_.of(mask);
  if (causal) {
    CHAIRLIFT_RETURN_IF_ERROR(CheckHidesNothing(mask, pattern.Added(), total_));
  } else {
    CHAIRLIFT_RETURN_IF_ERROR(CheckCausal(mask, pattern.Added()));
  }
  const auto key = std::pair(mask, true);
  if (const auto found = biases_.find(key); found != biases_.end()) return found->second;
  const int rank = pattern.rank();
  const auto along = rank >= 1 && rank <= 4 ? pattern.line.Multiple(rank - 1) : std::nullopt;
  if (!along || !along->is_number()) return Unimplemented("its mask's slopes depend on sizes");
  const int64_t times = along->number;
  if (pattern.column != rank - 3) {
    return Unimplemented("its mask has slopes along axis {}, which is not that of heads",
                         pattern.column);
  }
  if (times == 0) return kNoValue;
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t heads, HeadsOf(attention, pattern.slopes.size()));
  if (!causal) CHAIRLIFT_RETURN_IF_ERROR(CheckStaysHidden(pattern, times));
  Tensor bias = Tensor::Allocate(DType::kFloat, {heads, 2 * kReach + 1});
  for (int64_t h = 0; h < heads; ++h) {
    const float slope = pattern.slopes.data<float>()[h];
    for (int64_t i = -kReach; i <= kReach; ++i) {
      const float added = i < 0 ? slope * static_cast<float>(times * i) : 0.0f;
      bias.data<float>()[h * (2 * kReach + 1) + kReach + i] = added;
    }
  }
  reader_.LimitTokens(kReach + 1);
  return biases_[key] = AddConstant(graph_, fmt::format("bias/{}", mask), std::move(bias));
}

// Checks that the farthest key hidden by a mask stays hidden although slopes add most to it.
Status AttentionMasks::CheckStaysHidden(const Pattern& pattern, int64_t times) const {
  Pattern added = pattern.Added();
  added.Simplify(true);
  const auto all = added.table.values<float>();
  const float hidden = *std::min_element(all.begin(), all.end());
  for (const float slope : pattern.slopes.values<float>()) {
    const float most = slope * static_cast<float>(times * kReach);
    if (hidden + most <= -ragged::kHidingScore) continue;
    return Unimplemented("its mask adds {} to what is hidden, and slopes up to {}", hidden, most);
  }
  return absl::OkStatus();
}

Status AttentionMasks::CheckHidesNothing(ValueId mask, const std::optional<Line>& keys) const {
  const Value& value = graph_.values[static_cast<size_t>(mask)];
  return CheckHidesNothing(
      mask, value.is_constant() ? Pattern::OfConstant(value.constant) : reader_.of(mask), keys);
}

Status AttentionMasks::CheckHidesNothing(ValueId mask, Pattern pattern,
                                         const std::optional<Line>& keys) const {
  const auto table = pattern.known() ? pattern.AsTable() : std::nullopt;
  if (!table || table->dtype != DType::kFloat) {
    const std::string& why = why_[static_cast<size_t>(mask)];
    return Unimplemented("its mask cannot be followed{}{}", why.empty() ? "" : ": ", why);
  }
  pattern = *table;
  if (keys && (pattern.rank() < 1 || pattern.dims.back() != *keys)) {
    return Unimplemented("its mask has no column for each key");
  }
  pattern.Simplify(true);
  if (pattern.conditions.empty() && pattern.table.data<float>()[0] == 0.0f) {
    return absl::OkStatus();
  }
  return Unimplemented("its mask hides tokens {}that all count", keys ? "" : "of a source ");
}

Status AttentionMasks::CheckCausal(ValueId mask) const {
  const bool constant = graph_.values[static_cast<size_t>(mask)].is_constant();
  return CheckCausal(mask, constant ? Pattern() : reader_.of(mask));
}

Status AttentionMasks::CheckCausal(ValueId mask, Pattern pattern) const {
  if (!pattern.is_table() || pattern.dtype != DType::kFloat) {
    const std::string& why = why_[static_cast<size_t>(mask)];
    return Unimplemented("its mask cannot be followed{}{}", why.empty() ? "" : ": ", why);
  }
  pattern.Simplify(true);
  const int rank = pattern.rank();
  if (rank < 2 || rank > 4 || pattern.dims[static_cast<size_t>(rank - 2)] != Line::Of(Size::kNew) ||
      pattern.dims[static_cast<size_t>(rank - 1)] != total_) {
    return Unimplemented("its mask is not one for each new token and each of all tokens");
  }
  // Key ≤ past + query.
  const Line seen = *Line::Sum(position_(rank - 2), Line::Index(rank - 1), -1);
  const Line hidden = *Line::Sum(Line::Number(-1), seen, -1);
  const auto& conditions = pattern.conditions;
  const bool straight = conditions.size() == 1 && conditions[0] == seen;
  if (!straight && !(conditions.size() == 1 && conditions[0] == hidden)) {
    std::vector<std::string> all;
    all.reserve(conditions.size());
    for (const Line& condition : conditions) all.push_back(condition.ToString() + " ≥ 0");
    return Unimplemented("its mask hides by [{}], not where {} ≥ 0 fails", fmt::join(all, ", "),
                         seen.ToString());
  }
  const float* table = pattern.table.data<float>();
  if (table[straight ? 1 : 0] != 0.0f || !(table[straight ? 0 : 1] <= -ragged::kHidingScore)) {
    return Unimplemented("its mask adds {} to what is seen and {} to what is hidden",
                         table[straight ? 1 : 0], table[straight ? 0 : 1]);
  }
  return absl::OkStatus();
}

}  // namespace chairlift::decoders
