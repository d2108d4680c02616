// Operators that look along an axis: of a token's own, they stay as they are; along the length, a
// ragged operator stands for some.
#include <algorithm>
#include <utility>

#include "graph/ragged/packer.h"

namespace chairlift::ragged {
namespace {

using Kind = Form::Kind;

// Over the tokens of each sequence.
Status ReduceTokens(Context& c, const char* op, bool keep) {
  if (!c.in(0).leading_tokens()) return MixesTokens();
  const Value& value = c.packer().original().values[static_cast<size_t>(c.id(0))];
  constexpr TypeSet kTypes = kFloatTypes | TypeSet{DType::kInt32, DType::kInt64};
  if (!kTypes.Contains(value.dtype)) {
    return Unimplemented("it reduces {} over the tokens", DTypeName(value.dtype));
  }
  Packer& packer = c.packer();
  const std::string& name = c.node().name;
  Attributes attributes;
  attributes.Set("op", std::string(op));
  ValueId rows =
      packer.Emit(name, "RaggedReduce", {packer.DropBatch(c.packed(0), name), packer.offsets()},
                  attributes, "chairlift");
  if (keep) rows = packer.Emit(name, "Unsqueeze", {rows, packer.Integers({1})});
  return c.Result(Form::Of(Kind::kRows, 0), rows);
}

template <const char* kOp>
Status Reduce(Context& c) {
  if (!c.FixedFrom(1)) return ComputesWithSizes();
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<bool> axes, c.ReducedAxes());
  const bool keep = c.attributes().Int("keepdims", 1) != 0;
  const auto over = [&](int axis) { return axis >= 0 && axes[static_cast<size_t>(axis)]; };
  if (over(c.in(0).batch)) return MixesSequences();
  if (over(c.in(0).length)) {
    if (kOp == nullptr || std::count(axes.begin(), axes.end(), true) != 1) return MixesTokens();
    return ReduceTokens(c, kOp, keep);
  }
  return c.Copy(c.in(0).Moved([&](int axis) {
    const auto before = std::count(axes.begin(), axes.begin() + axis, true);
    return keep ? axis : axis - static_cast<int>(before);
  }));
}

Status ArgReduce(Context& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, c.OwnAxis(0));
  if (axis == c.in(0).length) return MixesTokens();
  if (axis == c.in(0).batch) return MixesSequences();
  const bool keep = c.attributes().Int("keepdims", 1) != 0;
  return c.Copy(c.in(0).Moved([&](int own) { return keep || own < axis ? own : own - 1; }));
}

// Attribute `axis`, by default the last one.
Status AlongAxis(Context& c) {
  if (!c.FixedFrom(1)) return ComputesWithSizes();
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, c.OwnAxis(-1));
  if (axis == c.in(0).length) return MixesTokens();
  if (axis == c.in(0).batch) return MixesSequences();
  return c.Copy(c.in(0));
}

// Over `axis` and all dimensions after it.
Status LayerNormalization(Context& c) {
  if (!c.FixedFrom(1)) return ComputesWithSizes();
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.Rank(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, c.OwnAxis(-1));
  if (axis <= c.in(0).length) return MixesTokens();
  if (axis <= c.in(0).batch) return MixesSequences();
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (!c.has(i)) continue;
    CHAIRLIFT_ASSIGN_OR_RETURN(const int own, c.Rank(i));
    if (own > rank - axis) return Unimplemented("its scale has more dimensions than it normalises");
  }
  return c.Copy(c.in(0));
}

Status CumSum(Context& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.Rank(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, c.Numbers(1));
  if (axes.size() != 1) return Unimplemented("its axis is not a single number");
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, c.Axis(axes[0], rank));
  if (axis == c.in(0).batch) return MixesSequences();
  if (axis != c.in(0).length) return c.Copy(c.in(0));
  if (!c.in(0).leading_tokens()) return MixesTokens();
  Packer& packer = c.packer();
  const std::string& name = c.node().name;
  const ValueId sums =
      packer.Emit(name, "RaggedCumSum", {packer.DropBatch(c.packed(0), name), packer.offsets()},
                  c.attributes(), "chairlift");
  return c.Result(c.in(0), packer.AddBatch(sums, name));
}

constexpr char kSum[] = "sum", kMean[] = "mean", kMax[] = "max", kMin[] = "min";

}  // namespace

void AddReductionRules(RuleTable& rules) {
  for (const char* op : {"ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceProd",
                         "ReduceSumSquare"}) {
    rules[op] = Reduce<nullptr>;
  }
  rules["ReduceSum"] = Reduce<kSum>;
  rules["ReduceMean"] = Reduce<kMean>;
  rules["ReduceMax"] = Reduce<kMax>;
  rules["ReduceMin"] = Reduce<kMin>;
  for (const char* op : {"Hardmax", "LogSoftmax", "LpNormalization", "Softmax", "TopK"}) {
    rules[op] = AlongAxis;
  }
  rules["ArgMax"] = ArgReduce;
  rules["ArgMin"] = ArgReduce;
  rules["CumSum"] = CumSum;
  rules["LayerNormalization"] = LayerNormalization;
  rules["RMSNormalization"] = LayerNormalization;
}

}  // namespace chairlift::ragged
