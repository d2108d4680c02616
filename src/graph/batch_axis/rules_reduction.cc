// Operators that look along an axis: reductions, normalisations, sorting. Rows stay apart where it
// is not theirs.
#include <algorithm>

#include "graph/batch_axis/rule.h"

namespace chairlift::batch_axis {
namespace {

Status Reduce(Context& c) {
  if (!c.in(0).rows()) return Unimplemented("it computes with the batch size");
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<bool> over, c.ReducedAxes());
  const int axis = c.in(0).axis;
  if (over[static_cast<size_t>(axis)]) return MixesRows();
  const auto before = std::count(over.begin(), over.begin() + axis, true);
  const bool keep = c.attributes().Int("keepdims", 1) != 0;
  c.Set(0, c.in(0).At(axis - (keep ? 0 : static_cast<int>(before))));
  return absl::OkStatus();
}

Status ArgReduce(Context& c) {
  if (!c.in(0).rows()) return Unimplemented("it computes with the batch size");
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, c.OwnAxis(0));
  if (axis == c.in(0).axis) return MixesRows();
  const bool dropped = c.attributes().Int("keepdims", 1) == 0 && axis < c.in(0).axis;
  c.Set(0, c.in(0).At(c.in(0).axis - (dropped ? 1 : 0)));
  return absl::OkStatus();
}

// Shape kept (but for the axis itself); attribute `axis`, by default the last one.
Status AlongAxis(Context& c) {
  if (!c.in(0).rows() || !c.SharedFrom(1)) return Unimplemented("it computes with the batch size");
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, c.OwnAxis(-1));
  if (axis == c.in(0).axis) return MixesRows();
  c.SetAll(c.in(0));
  return absl::OkStatus();
}

// Over `axis` and all dimensions after it.
Status LayerNormalization(Context& c) {
  if (!c.in(0).rows() || !c.SharedFrom(1)) return Unimplemented("it computes with the batch size");
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.Rank(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, c.OwnAxis(-1));
  if (axis <= c.in(0).axis) return MixesRows();
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (!c.has(i)) continue;
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> dims, c.Dims(i));
    const int at = c.in(0).axis - (rank - static_cast<int>(dims.size()));
    if (at >= 0 && !dims[static_cast<size_t>(at)].is_one()) return MixesRows();
  }
  c.SetAll(c.in(0));
  return absl::OkStatus();
}

Status MeanVarianceNormalization(Context& c) {
  if (!c.in(0).rows()) return Unimplemented("it computes with the batch size");
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.Rank(0));
  for (int64_t listed : c.attributes().Ints("axes", {0, 2, 3})) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, c.Axis(listed, rank));
    if (axis == c.in(0).axis) return MixesRows();
  }
  c.Set(0, c.in(0));
  return absl::OkStatus();
}

// The axis is an input.
template <int kAxisInput>
Status AlongInputAxis(Context& c) {
  if (!c.in(0).rows() || !c.SharedFrom(1)) return Unimplemented("it computes with the batch size");
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.Rank(0));
  int64_t listed = -2;  // DFT's default
  if (c.has(kAxisInput)) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, c.Numbers(kAxisInput));
    if (axes.size() != 1) return Unimplemented("its axis is not a single number");
    listed = axes[0];
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, c.Axis(listed, rank));
  if (axis == c.in(0).axis) return MixesRows();
  c.Set(0, c.in(0));
  return absl::OkStatus();
}

}  // namespace

void AddReductionRules(RuleTable& rules) {
  for (const char* op : {"ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax",
                         "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"}) {
    rules[op] = Reduce;
  }
  for (const char* op : {"Hardmax", "LogSoftmax", "LpNormalization", "Softmax", "TopK"}) {
    rules[op] = AlongAxis;
  }
  rules["ArgMax"] = ArgReduce;
  rules["ArgMin"] = ArgReduce;
  rules["CumSum"] = AlongInputAxis<1>;
  rules["DFT"] = AlongInputAxis<2>;
  rules["LayerNormalization"] = LayerNormalization;
  rules["MeanVarianceNormalization"] = MeanVarianceNormalization;
  rules["RMSNormalization"] = LayerNormalization;
}

}  // namespace chairlift::batch_axis
