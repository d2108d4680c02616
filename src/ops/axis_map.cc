#include "ops/axis_map.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "ops/axes.h"

namespace chairlift {

int AxisMap::Operand::AxisOf(int label) const {
  const auto found = std::find(labels.begin(), labels.end(), label);
  return found == labels.end() ? -1 : static_cast<int>(found - labels.begin());
}

AxisMap MakeAxisMap(const InferContext& context) {
  AxisMap map;
  map.inputs.resize(static_cast<size_t>(context.num_inputs()));
  map.outputs.resize(static_cast<size_t>(context.num_outputs()));
  return map;
}

StatusOr<int> KnownRank(const InferContext& context, int input) {
  if (!context.has_input(input)) return Unimplemented("its input {} is absent", input);
  if (!context.shape(input).has_rank()) {
    return Unimplemented("the rank of its input {} is not known", input);
  }
  return context.shape(input).rank();
}

std::vector<int> LabelsWithout(int rank, std::span<const int> without) {
  std::vector<int> labels(static_cast<size_t>(rank));
  std::iota(labels.begin(), labels.end(), 0);
  for (const int axis : without) labels[static_cast<size_t>(axis)] = AxisMap::kNone;
  return labels;
}

StatusOr<AxisMap> ElementwiseAxes(const InferContext& context) {
  AxisMap map = MakeAxisMap(context);
  std::vector<int> ranks(map.inputs.size(), 0);
  for (int i = 0; i < context.num_inputs(); ++i) {
    if (!context.has_input(i)) continue;
    CHAIRLIFT_ASSIGN_OR_RETURN(ranks[static_cast<size_t>(i)], KnownRank(context, i));
  }
  const int rank = *std::max_element(ranks.begin(), ranks.end());
  for (size_t i = 0; i < ranks.size(); ++i) {
    std::vector<int>& labels = map.inputs[i].labels;
    labels.resize(static_cast<size_t>(ranks[i]));
    std::iota(labels.begin(), labels.end(), rank - ranks[i]);
    map.inputs[i].broadcasts = true;
  }
  for (AxisMap::Operand& output : map.outputs) output.labels = LabelsWithout(rank, {});
  return map;
}

AxisMap FirstAxisOf(const InferContext& context, std::span<const int> inputs) {
  AxisMap map = MakeAxisMap(context);
  for (const int i : inputs) {
    if (context.has_input(i)) map.inputs[static_cast<size_t>(i)].labels = {0};
  }
  for (AxisMap::Operand& output : map.outputs) output.labels = {0};
  return map;
}

StatusOr<AxisMap> AxesWithout(const InferContext& context, std::span<const int64_t> without) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, KnownRank(context, 0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int> axes, NormalizeAxes(without, rank));
  AxisMap map = MakeAxisMap(context);
  map.inputs[0].labels = LabelsWithout(rank, axes);
  for (AxisMap::Operand& output : map.outputs) output = map.inputs[0];
  return map;
}

StatusOr<AxisMap> SameAxesButOne(const InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(AxisMap map, AxesButOne<0>(context));
  for (AxisMap::Operand& input : map.inputs) input = map.inputs[0];
  return map;
}

StatusOr<AxisMap> ProductAxes(const InferContext& context, int a, int b) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int a_rank, KnownRank(context, a));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int b_rank, KnownRank(context, b));
  AxisMap map = MakeAxisMap(context);
  AxisMap::Operand& left = map.inputs[static_cast<size_t>(a)];
  AxisMap::Operand& right = map.inputs[static_cast<size_t>(b)];
  // Labels count from the right of the product, as if both were matrices: 0 for its columns, 1 for
  // its rows, 2 and up for the broadcast axes.
  for (int i = 0; i < a_rank; ++i) {
    left.labels.push_back(i == a_rank - 1 ? AxisMap::kNone : a_rank - 1 - i);
  }
  for (int i = 0; i < b_rank; ++i) {
    const int label = b_rank - 1 - i;
    right.labels.push_back(b_rank == 1 || label == 1 ? AxisMap::kNone : label);
  }
  left.broadcasts = right.broadcasts = true;
  for (int label = std::max(a_rank, b_rank) - 1; label >= 0; --label) {
    if ((label == 0 && b_rank == 1) || (label == 1 && a_rank == 1)) continue;
    map.outputs[0].labels.push_back(label);
  }
  return map;
}

}  // namespace chairlift
