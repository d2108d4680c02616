// What normalisations share: checking per-channel operands.
#include "ops/normalization/normalization.h"

namespace chairlift {

Status CheckSameType(const InferContext& context, int i) {
  if (!context.has_input(i)) return InvalidArgument("input {} is missing", i);
  const auto computes_as = [&](int k) {
    return kHalfTypes.Contains(context.dtype(k)) ? DType::kFloat : context.dtype(k);
  };
  if (computes_as(i) == computes_as(0)) return absl::OkStatus();
  return InvalidArgument("inputs 0 and {} have different element types, {} and {}", i,
                         DTypeName(context.dtype(0)), DTypeName(context.dtype(i)));
}

Status CheckPerChannel(const InferContext& context, int i, const Dim& channels) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckSameType(context, i));
  const SymbolicShape& shape = context.shape(i);
  if (shape.has_rank() && (shape.rank() != 1 || (shape[0].known() && channels.known() &&
                                                 shape[0].value() != channels.value()))) {
    return InvalidArgument("input {} has shape {}, not [{}]", i, shape.ToString(),
                           channels.ToString());
  }
  return absl::OkStatus();
}

}  // namespace chairlift
