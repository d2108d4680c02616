// AffineGrid: the positions at which GridSample samples an image for an affine transformation.
#include <cmath>

#include "ops/axes.h"
#include "ops/image/image.h"

namespace chairlift {
namespace {

Status InferAffineGrid(InferContext& context) {
  const SymbolicShape& theta = context.shape(0);
  if (theta.has_rank() && theta.rank() != 3) {
    return InvalidArgument("theta must have rank 3, not {}", theta.ToString());
  }
  int axes = 0;
  if (theta.has_rank() && theta[1].known() && theta[2].known()) {
    axes = static_cast<int>(std::min<int64_t>(theta[1].value(), 4));
    if ((axes != 2 && axes != 3) || theta[2].value() != axes + 1) {
      return InvalidArgument("theta must be [N,2,3] or [N,3,4], not {}", theta.ToString());
    }
  }
  if (const auto known = context.known_elements(1)) {
    for (int64_t s : *known) {
      if (s < 0) return InvalidArgument("size has the negative number {}", s);
    }
  }
  const auto size = ShapeElements(context, 1);
  if (!size) return SetOutput(context, 0, context.dtype(0), SymbolicShape());
  if ((size->size() != 4 && size->size() != 5) ||
      (axes != 0 && static_cast<int>(size->size()) != axes + 2)) {
    return InvalidArgument("size has {} numbers for theta {}", size->size(), theta.ToString());
  }
  if (theta.has_rank() && theta[0].known() && (*size)[0].known() && !theta[0].Same((*size)[0])) {
    return InvalidArgument("size begins with {}, theta {} with {}", (*size)[0].value(),
                           theta.ToString(), theta[0].value());
  }
  std::vector<Dim> out = {(*size)[0]};
  out.insert(out.end(), size->begin() + 2, size->end());
  out.emplace_back(static_cast<int64_t>(size->size()) - 2);
  return SetOutput(context, 0, context.dtype(0), SymbolicShape(std::move(out)));
}

// Position i of n along an axis, in [−1, 1].
double Place(int64_t i, int64_t n, bool align_corners) {
  const auto at = static_cast<double>(i);
  const auto count = static_cast<double>(n);
  if (align_corners) return n == 1 ? -1 : -1 + 2 * at / (count - 1);
  return (2 * at + 1) / count - 1;
}

template <typename T>
void Fill(const Shape& out, bool align_corners, const T* theta, T* grid) {
  const int axes = out.rank() - 2;
  const int64_t depth = axes == 3 ? out[1] : 1;
  const int64_t height = out[axes - 1];
  const int64_t width = out[axes];
  for (int64_t n = 0; n < out[0]; ++n, theta += axes * (axes + 1)) {
    for (int64_t z = 0; z < depth; ++z) {
      for (int64_t y = 0; y < height; ++y) {
        for (int64_t x = 0; x < width; ++x) {
          // x first, as in grids, and 1 last.
          double p[4] = {Place(x, width, align_corners), Place(y, height, align_corners)};
          if (axes == 3) p[2] = Place(z, depth, align_corners);
          p[axes] = 1;
          for (int r = 0; r < axes; ++r) {
            double sum = 0;
            for (int c = 0; c <= axes; ++c) {
              sum += static_cast<double>(theta[r * (axes + 1) + c]) * p[c];
            }
            *grid++ = static_cast<T>(sum);
          }
        }
      }
    }
  }
}

StatusOr<std::unique_ptr<Kernel>> CompileAffineGrid(const CompileContext& context) {
  const Shape out = context.outputs[0].shape;
  const bool align_corners = context.attributes.Int("align_corners", 0) != 0;
  if (!(context.inputs[0].shape == Shape{out[0], out.rank() - 2, out.rank() - 1})) {
    return InvalidArgument("theta {} does not make {}", context.inputs[0].shape.ToString(),
                           out.ToString());
  }
  return DispatchFloat(context.inputs[0].dtype,
                       [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
                         return MakeKernel([=](const KernelArgs& args) {
                           Fill(out, align_corners, static_cast<const T*>(args.inputs[0]),
                                static_cast<T*>(args.outputs[0]));
                           return absl::OkStatus();
                         });
                       });
}

}  // namespace

OperatorDef AffineGridOperator() {
  return {.name = "AffineGrid",
          .min_inputs = 2,
          .max_inputs = 2,
          .input_types = {kFloatTypes, {DType::kInt64}},
          .infer = InferAffineGrid,
          .compile = CompileAffineGrid};
}

}  // namespace chairlift
