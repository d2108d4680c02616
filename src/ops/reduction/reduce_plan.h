// The axes that a reduction folds, and the loop nest over kept and folded axes.
#ifndef CHAIRLIFT_OPS_REDUCTION_REDUCE_PLAN_H_
#define CHAIRLIFT_OPS_REDUCTION_REDUCE_PLAN_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "ops/operator.h"

namespace chairlift {

// The shape rule of a reduction with axes as input 1 (optional), and attributes keepdims and
// noop_with_empty_axes.
Status InferReduce(InferContext& context);

// The axes to fold, in [0, rank), from the contents of input 1 (nullopt: it is absent).
StatusOr<std::vector<int>> ReduceAxes(const Attributes& attributes,
                                      std::optional<std::span<const int64_t>> axes, int rank);

// Adjacent dimensions of one kind are merged and dimensions of 1 dropped. The innermost run is
// separate, because vector code loops over it. Strides are in elements of the input.
struct ReducePlan {
  using Vector = absl::InlinedVector<int64_t, 4>;
  Vector kept_dims, kept_strides;
  Vector folded_dims, folded_strides;
  int64_t inner = 1;         // elements in the innermost run
  bool inner_folded = true;  // whether that run is folded
  int64_t outer = 1;         // product of kept_dims
  int64_t fold_count = 1;    // input elements per output element, including the inner run's
  int64_t size = 1;          // output elements

  // The start in the input of the k-th of `outer` groups of outputs.
  int64_t OuterOffset(int64_t k) const;
  // Calls body(offset, rows, stride) for all positions that are folded into one output, relative to
  // OuterOffset(). Each call stands for `rows` positions, `stride` elements apart.
  void ForEachFolded(
      absl::FunctionRef<void(int64_t offset, int64_t rows, int64_t stride)> body) const;
};
ReducePlan MakeReducePlan(const Shape& input, std::span<const int> axes);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_REDUCTION_REDUCE_PLAN_H_
