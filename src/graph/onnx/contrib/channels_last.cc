// Rules for operators whose channels come last, which ONNX Runtime's optimiser writes: the plain
// operators between two transpositions.
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "graph/onnx/contrib/rules.h"

namespace chairlift::contrib {
namespace {

// The rank of the input, which has a batch, channels and at least one spatial axis.
int SpatialRank(Maker& make) {
  const int rank = make.Rank(make.in(0), "its input");
  if (make.ok() && rank < 3) {
    make.Fail(InvalidArgument("its input has {} dimensions; it must have 3 or more", rank));
  }
  return rank;
}

// Conv, the sum with `sum` (kNoValue: none) and an activation, over an input with channels last.
Status ConvWithChannelsLast(Maker& make, ValueId weight, ValueId sum) {
  const int rank = SpatialRank(make);
  CHAIRLIFT_RETURN_IF_ERROR(make.status());
  Attributes attributes = make.attributes();
  attributes.Erase("activation");
  attributes.Erase("activation_params");
  std::vector<ValueId> inputs = {ChannelsFirst(make, make.in(0)), weight};
  if (make.has(2)) inputs.push_back(make.in(2));
  ValueId y = make.Make("Conv", std::move(inputs), std::move(attributes));
  if (sum != kNoValue) y = make.Make("Add", {y, ChannelsFirst(make, sum)});
  y = Activate(make, y, make.attributes().String("activation", ""),
               make.attributes().Floats("activation_params"));
  CHAIRLIFT_RETURN_IF_ERROR(make.status());
  return BecomeChannelsLast(make, y, rank);
}

// GroupNormalization of `x`, in float32 for any type of x, and SiLU if the node asks for it.
Status NormalisedGroups(Maker& make, ValueId x, int rank) {
  const Attributes& given = make.attributes();
  const int64_t activation = given.Int("activation", 0);
  if (activation != 0 && activation != 1) {
    return InvalidArgument("its attribute 'activation' is {}; it must be 0 (none) or 1 (SiLU)",
                           activation);
  }
  const bool last = given.Int("channels_last", 1) != 0;
  const auto wide = [&](ValueId id) {
    return make.info(id).dtype == DType::kFloat ? id : make.CastToFloat(id);
  };
  ValueId y = wide(x);
  if (last) y = ChannelsFirst(make, y);
  y = make.Make(
      "GroupNormalization", {y, wide(make.in(1)), wide(make.in(2))},
      With({{"epsilon", given.Float("epsilon", 1e-5f)}, {"num_groups", given.Int("groups", 0)}}));
  if (activation == 1) y = make.Make("Mul", {y, make.Make("Sigmoid", {y})});
  if (make.info(x).dtype != DType::kFloat) y = make.Make("CastLike", {y, x});
  CHAIRLIFT_RETURN_IF_ERROR(make.status());
  return last ? BecomeChannelsLast(make, y, rank) : make.Become("Identity", {y});
}

}  // namespace

ValueId ChannelsFirst(Maker& make, ValueId x) {
  const int rank = make.Rank(x, "its input");
  if (rank < 3) return x;
  std::vector<int64_t> perm(static_cast<size_t>(rank));
  std::iota(perm.begin() + 2, perm.end(), int64_t{1});
  perm[1] = rank - 1;
  return make.Transpose(x, std::move(perm));
}

Status BecomeChannelsLast(Maker& make, ValueId y, int rank) {
  std::vector<int64_t> perm(static_cast<size_t>(rank));
  std::iota(perm.begin(), perm.end(), int64_t{1});
  perm[0] = 0;
  perm[perm.size() - 1] = 1;
  return make.Become("Transpose", {y}, With({{"perm", std::move(perm)}}));
}

Status QLinearConv(Maker& make) {
  Attributes attributes = make.attributes();
  attributes.Erase("channels_last");
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < make.num_inputs(); ++i) inputs.push_back(make.in(i));
  if (make.attributes().Int("channels_last", 0) == 0) {
    return make.Become("QLinearConv", std::move(inputs), std::move(attributes));
  }
  const int rank = SpatialRank(make);
  CHAIRLIFT_RETURN_IF_ERROR(make.status());
  inputs[0] = ChannelsFirst(make, inputs[0]);
  const ValueId y = make.Make("QLinearConv", std::move(inputs), std::move(attributes));
  CHAIRLIFT_RETURN_IF_ERROR(make.status());
  return BecomeChannelsLast(make, y, rank);
}

Status NhwcMaxPool(Maker& make) {
  const int rank = SpatialRank(make);
  CHAIRLIFT_RETURN_IF_ERROR(make.status());
  const ValueId y = make.Make("MaxPool", {ChannelsFirst(make, make.in(0))}, make.attributes());
  CHAIRLIFT_RETURN_IF_ERROR(make.status());
  return BecomeChannelsLast(make, y, rank);
}

// Its weights have channels last too: [filters, height, width, channels].
Status NhwcConv(Maker& make) {
  return ConvWithChannelsLast(make, ChannelsFirst(make, make.in(1)), kNoValue);
}

// Its weights are those of Conv: [filters, channels, height, width].
Status NhwcFusedConv(Maker& make) { return ConvWithChannelsLast(make, make.in(1), make.in(3)); }

Status GroupNorm(Maker& make) {
  const int rank = SpatialRank(make);
  CHAIRLIFT_RETURN_IF_ERROR(make.status());
  return NormalisedGroups(make, make.in(0), rank);
}

// GroupNorm of x + skip + bias, which is also an output if the file names it. `skip` may have one
// value for each channel of an item, [batch, channels] or with spatial axes of 1.
Status SkipGroupNorm(Maker& make) {
  const int rank = SpatialRank(make);
  const int skip_rank = make.Rank(make.in(3), "its input skip");
  CHAIRLIFT_RETURN_IF_ERROR(make.status());
  if (skip_rank != rank && skip_rank != 2) {
    return InvalidArgument("its input skip has {} dimensions; it must have {} or 2", skip_rank,
                           rank);
  }
  const bool last = make.attributes().Int("channels_last", 1) != 0;
  std::vector<int64_t> spatial(static_cast<size_t>(rank) - 2);  // the spatial axes of x
  std::iota(spatial.begin(), spatial.end(), int64_t{last ? 1 : 2});
  const ValueId skip = skip_rank == 2 ? make.Unsqueeze(make.in(3), spatial) : make.in(3);
  ValueId x = make.in(0);
  if (make.has(4)) {
    std::vector<int64_t> after(spatial.size());
    std::iota(after.begin(), after.end(), int64_t{1});
    x = make.Make("Add", {x, last ? make.in(4) : make.Unsqueeze(make.in(4), after)});
  }
  return NormalisedGroups(make, make.MakeOutput(1, "Add", {x, skip}), rank);
}

}  // namespace chairlift::contrib
