// Broadcasting: the shape rule and the collapsed loop nest.
#include "ops/broadcast.h"

#include <algorithm>
#include <vector>

#include "ops/axes.h"

namespace chairlift {
namespace {

// `shape` with leading ones up to `rank`.
Shape PadRank(const Shape& shape, int rank) {
  Shape padded;
  for (int i = shape.rank(); i < rank; ++i) padded.Append(1);
  for (int64_t d : shape) padded.Append(d);
  return padded;
}

// The physical dimensions of a channel-blocked tensor of logical shape `shape`, or of an operand
// that is broadcast against one: [N, ceil(C/B), spatial..., B].
Shape BlockedDims(const Shape& shape) {
  const int64_t block = shape[1] == 1 ? 1 : ChannelBlock();
  Shape physical = shape;
  physical[1] = (shape[1] + block - 1) / block;
  physical.Append(block);
  return physical;
}

}  // namespace

StatusOr<Dim> BroadcastDims(const Dim& a, const Dim& b) {
  if (a.known() && a.value() == 1) return b;
  if (b.known() && b.value() == 1) return a;
  if (a.known() && b.known()) {
    if (a.value() != b.value()) {
      return InvalidArgument("dimensions {} and {} do not broadcast", a.value(), b.value());
    }
    return a;
  }
  if (a.known()) return a;
  if (b.known()) return b;
  // s and the minimum of s and n > 1: if those differ, broadcasting fails.
  if (a.Same(b) || IsAtMost(b, a)) return a;
  return IsAtMost(a, b) ? b : Dim::Unknown();
}

StatusOr<SymbolicShape> BroadcastShapes(std::span<const SymbolicShape> shapes) {
  int rank = 0;
  for (const SymbolicShape& s : shapes) {
    if (!s.has_rank()) return SymbolicShape();
    rank = std::max(rank, s.rank());
  }
  std::vector<Dim> dims(rank, Dim(1));
  for (const SymbolicShape& s : shapes) {
    for (int i = 0; i < s.rank(); ++i) {
      Dim& dim = dims[rank - s.rank() + i];
      auto merged = BroadcastDims(dim, s[i]);
      if (!merged.ok()) {
        std::string all;
        for (const SymbolicShape& each : shapes) all += fmt::format(" {}", each.ToString());
        return InvalidArgument("shapes{} do not broadcast together", all);
      }
      dim = *std::move(merged);
    }
  }
  return SymbolicShape(std::move(dims));
}

Status InferBroadcast(InferContext& context, DType output, int first) {
  std::vector<SymbolicShape> shapes;
  for (int i = 0; i < context.num_inputs(); ++i) {
    if (!context.has_input(i)) return InvalidArgument("input {} is missing", i);
    if (i >= first && context.dtype(i) != context.dtype(first)) {
      return InvalidArgument("inputs {} and {} have different element types, {} and {}", first, i,
                             DTypeName(context.dtype(first)), DTypeName(context.dtype(i)));
    }
    shapes.push_back(context.shape(i));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(SymbolicShape shape, BroadcastShapes(shapes));
  return SetOutput(context, 0, output, std::move(shape));
}

StatusOr<BroadcastLoop> MakeBroadcastLoop(std::span<const Shape> operands, const Shape& output) {
  const int rank = output.rank();
  const size_t count = operands.size();
  std::vector<Shape> padded;
  for (const Shape& s : operands) {
    bool fits = s.rank() <= rank;
    if (fits) {
      padded.push_back(PadRank(s, rank));
      for (int i = 0; i < rank; ++i) fits &= padded.back()[i] == 1 || padded.back()[i] == output[i];
    }
    if (!fits) {
      return InvalidArgument("shape {} does not broadcast to {}", s.ToString(), output.ToString());
    }
  }
  BroadcastLoop loop;
  loop.size = output.NumElements();
  loop.strides.resize(count);
  // Innermost first; reversed at the end.
  BroadcastLoop::Vector step(count, 1);  // of the current dimension, if it did not repeat
  for (int axis = rank - 1; axis >= 0; --axis) {
    const int64_t dim = output[axis];
    if (dim == 1) continue;
    bool collapses = !loop.dims.empty();
    for (size_t k = 0; k < count && collapses; ++k) {
      const bool repeats = padded[k][axis] == 1;
      const int64_t inner = loop.strides[k].back();
      collapses = repeats ? inner == 0 : inner != 0 && step[k] == inner * loop.dims.back();
    }
    if (collapses) {
      loop.dims.back() *= dim;
    } else {
      loop.dims.push_back(dim);
      for (size_t k = 0; k < count; ++k) {
        loop.strides[k].push_back(padded[k][axis] == 1 ? 0 : step[k]);
      }
    }
    for (size_t k = 0; k < count; ++k) step[k] *= padded[k][axis];
  }
  while (loop.dims.size() < 2) {
    loop.dims.push_back(1);
    for (auto& s : loop.strides) s.push_back(0);
  }
  std::reverse(loop.dims.begin(), loop.dims.end());
  for (auto& s : loop.strides) std::reverse(s.begin(), s.end());
  return loop;
}

StatusOr<BroadcastLoop> MakeBroadcastLoop(std::span<const TensorDesc> operands,
                                          const TensorDesc& output) {
  std::vector<Shape> shapes;
  if (output.layout == Layout::kRowMajor) {
    for (const TensorDesc& d : operands) {
      if (d.layout != Layout::kRowMajor) {
        return Unimplemented("a channel-blocked operand of a row-major result");
      }
      shapes.push_back(d.shape);
    }
    return MakeBroadcastLoop(shapes, output.shape);
  }
  const int rank = output.shape.rank();
  for (const TensorDesc& d : operands) {
    if (d.shape.rank() > rank) {
      return InvalidArgument("shape {} does not broadcast to {}", d.shape.ToString(),
                             output.shape.ToString());
    }
    const Shape padded = PadRank(d.shape, rank);
    if (d.layout == Layout::kRowMajor && padded[1] != 1 &&
        (padded.NumElements(2, rank) != 1 || padded[1] % ChannelBlock() != 0)) {
      return Unimplemented("a row-major operand of shape {} of a channel-blocked result",
                           d.shape.ToString());
    }
    shapes.push_back(BlockedDims(padded));
  }
  return MakeBroadcastLoop(shapes, BlockedDims(output.shape));
}

}  // namespace chairlift
