// Operators with a ragged counterpart along the length.
#include <algorithm>
#include <utility>

#include "graph/ragged/packer.h"

namespace chairlift::ragged {
namespace {

using Kind = Form::Kind;

// Reduces over the tokens of each sequence.
Status ReduceTokens(Context& c, const char* op, bool keep) {
  if (!c.in(0).leading_tokens()) return MixesTokens();
  const Value& value = c.packer().original().values[static_cast<size_t>(c.id(0))];
  constexpr TypeSet kTypes = kFloatTypes | TypeSet{DType::kInt32, DType::kInt64};
  if (!kTypes.Contains(value.dtype)) {
    return Unimplemented("it reduces {} over the tokens", DTypeName(value.dtype));
  }
  Packer& packer = c.packer();
  const std::string& name = c.node().name;
  ValueId rows =
      packer.Emit(name, "RaggedReduce", {packer.DropBatch(c.packed(0), name), packer.offsets()},
                  Attribute("op", std::string(op)), "chairlift");
  if (keep) rows = packer.Emit(name, "Unsqueeze", {rows, packer.Integers({1})});
  return c.Result(Form::Of(Kind::kRows, 0), rows);
}

template <const char* kOp>
Status Reduce(Context& c) {
  if (!c.FixedFrom(1)) return ComputesWithSizes();
  CHAIRLIFT_ASSIGN_OR_RETURN(const AxisMap map, c.Axes());
  const std::vector<int>& labels = map.inputs[0].labels;
  const int length = c.in(0).length;
  if (length < 0 || c.in(0).merged() || labels[static_cast<size_t>(length)] != AxisMap::kNone) {
    return FollowAxes(c);
  }
  if (std::count(labels.begin(), labels.end(), AxisMap::kNone) != 1) return MixesTokens();
  return ReduceTokens(c, kOp, c.attributes().Int("keepdims", 1) != 0);
}

Status CumSum(Context& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const AxisMap map, c.Axes());
  const int length = c.in(0).length;
  if (length < 0 || c.in(0).merged() || map.inputs[0].Label(length) != AxisMap::kNone) {
    return FollowAxes(c);
  }
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
  rules["ReduceSum"] = Reduce<kSum>;
  rules["ReduceMean"] = Reduce<kMean>;
  rules["ReduceMax"] = Reduce<kMax>;
  rules["ReduceMin"] = Reduce<kMin>;
  rules["CumSum"] = CumSum;
}

}  // namespace chairlift::ragged
