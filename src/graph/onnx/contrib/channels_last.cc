// Rules for operators whose channels come last, which ONNX Runtime's optimiser writes: the plain
// operators between two transpositions.
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "graph/onnx/contrib/rules.h"

namespace chairlift::contrib {

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
  const int rank = make.Rank(make.in(0), "its input");
  if (make.ok() && rank < 3) {
    return InvalidArgument("its input has {} dimensions; it must have 3 or more", rank);
  }
  inputs[0] = ChannelsFirst(make, inputs[0]);
  const ValueId y = make.Make("QLinearConv", std::move(inputs), std::move(attributes));
  CHAIRLIFT_RETURN_IF_ERROR(make.status());
  return BecomeChannelsLast(make, y, rank);
}

Status NhwcMaxPool(Maker& make) {
  const int rank = make.Rank(make.in(0), "its input");
  if (make.ok() && rank < 3) {
    return InvalidArgument("its input has {} dimensions; it must have 3 or more", rank);
  }
  const ValueId y = make.Make("MaxPool", {ChannelsFirst(make, make.in(0))}, make.attributes());
  CHAIRLIFT_RETURN_IF_ERROR(make.status());
  return BecomeChannelsLast(make, y, rank);
}

}  // namespace chairlift::contrib
