// NonZero: the indices of the elements that are not 0, one column per element, in memory order.
#include <vector>

#include "ops/reduction/reduction.h"

namespace chairlift {
namespace {

Status InferNonZero(InferContext& context) {
  const SymbolicShape& shape = context.shape(0);
  const Dim rank = shape.has_rank() ? Dim(shape.rank()) : Dim::Unknown();
  context.set_output(0, DType::kInt64, SymbolicShape({rank, Dim::Unknown()}));
  return absl::OkStatus();
}

template <typename T>
Tensor IndicesOf(const Tensor& input) {
  const Shape& shape = input.shape();
  const T* x = static_cast<const T*>(input.raw());
  std::vector<int64_t> places;
  for (int64_t i = 0; i < input.size(); ++i) {
    if (x[i] != T{0}) places.push_back(i);
  }
  const auto count = static_cast<int64_t>(places.size());
  Tensor out = Tensor::Allocate(DType::kInt64, Shape{shape.rank(), count});
  int64_t* to = out.data<int64_t>();
  for (int64_t k = 0; k < count; ++k) {
    int64_t rest = places[k];
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      to[axis * count + k] = rest % shape[axis];
      rest /= shape[axis];
    }
  }
  return out;
}

StatusOr<std::vector<Tensor>> EvaluateNonZero(const EvaluateContext& context) {
  const Tensor& x = context.inputs[0];
  CHAIRLIFT_ASSIGN_OR_RETURN(
      Tensor out, DispatchNumeric(x.dtype() == DType::kBool ? DType::kUInt8 : x.dtype(),
                                  [&]<typename T>() { return StatusOr<Tensor>(IndicesOf<T>(x)); }));
  return std::vector<Tensor>{std::move(out)};
}

}  // namespace

void RegisterNonZero(OperatorRegistry& registry) {
  registry.Add({.name = "NonZero",
                .min_opset = 9,
                .input_types = {kAllTypes},
                .infer = InferNonZero,
                .evaluate = EvaluateNonZero});
}

}  // namespace chairlift
