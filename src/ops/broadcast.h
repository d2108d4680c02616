// Multi-directional broadcasting as ONNX (and NumPy) define it: the shape rule, and the loop nest
// over operands of different shapes.
#ifndef CHAIRLIFT_OPS_BROADCAST_H_
#define CHAIRLIFT_OPS_BROADCAST_H_

#include <cstdint>
#include <span>

#include "absl/container/inlined_vector.h"
#include "base/status.h"
#include "ops/operator.h"

namespace chairlift {

// The dimension that a and b broadcast to. InvalidArgument if both are different numbers and
// neither is 1; unknown if it depends on which of two symbols is 1.
StatusOr<Dim> BroadcastDims(const Dim& a, const Dim& b);

// The common broadcast shape of all of `shapes`; unknown rank if any rank is unknown.
StatusOr<SymbolicShape> BroadcastShapes(std::span<const SymbolicShape> shapes);

// The shape rule of an operator whose inputs all broadcast together and have the element type of
// input `first`; its output 0 has element type `output`.
Status InferBroadcast(InferContext& context, DType output, int first = 0);

// A loop nest over the output's elements in memory order. Adjacent dimensions that every operand
// traverses in the same way are merged; dimensions of 1 are dropped. There are always at least two
// dimensions (leading ones are added), so that the last two form a block. In the last dimension
// every operand's stride is 0 or 1 element.
struct BroadcastLoop {
  using Vector = absl::InlinedVector<int64_t, 6>;
  Vector dims;
  absl::InlinedVector<Vector, 3> strides;  // [operand][dimension], in elements; 0 where it repeats
  int64_t size = 0;                        // product of dims
};

// The loop over `operands` in step with an output of shape `output`. Shapes must broadcast to
// `output`.
StatusOr<BroadcastLoop> MakeBroadcastLoop(std::span<const Shape> operands, const Shape& output);

// The same with layouts, over the stored elements. If the output is channel-blocked, full-size
// operands must be too. A row-major operand may vary along channels, which must then be whole
// blocks, or along other dimensions, but not both.
StatusOr<BroadcastLoop> MakeBroadcastLoop(std::span<const TensorDesc> operands,
                                          const TensorDesc& output);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_BROADCAST_H_
