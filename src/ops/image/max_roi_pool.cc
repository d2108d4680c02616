// MaxRoiPool: the largest element of each bin of each region, with borders rounded to whole
// elements.
#include <algorithm>
#include <cmath>

#include "base/stop_poll.h"
#include "ops/axes.h"
#include "ops/extrema.h"
#include "ops/image/image.h"

namespace chairlift {
namespace {

StatusOr<std::vector<int64_t>> PooledShape(const Attributes& attributes) {
  std::vector<int64_t> bins = attributes.Ints("pooled_shape");
  if (bins.size() != 2 || bins[0] < 1 || bins[1] < 1 || bins[0] > 1 << 16 || bins[1] > 1 << 16) {
    return InvalidArgument("pooled_shape must be two numbers above 0");
  }
  return bins;
}

Status InferMaxRoiPool(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> bins, PooledShape(context.attributes()));
  const SymbolicShape& in = context.shape(0);
  const SymbolicShape& rois = context.shape(1);
  if (in.has_rank() && in.rank() != 4) {
    return InvalidArgument("input must have rank 4, not {}", in.ToString());
  }
  if (rois.has_rank() && (rois.rank() != 2 || (rois[1].known() && rois[1].value() != 5))) {
    return InvalidArgument("rois must be [count,5], not {}", rois.ToString());
  }
  if (context.dtype(1) != context.dtype(0)) {
    return InvalidArgument("rois are {}, but input is {}; both must have one type",
                           DTypeName(context.dtype(1)), DTypeName(context.dtype(0)));
  }
  return SetOutput(
      context, 0, context.dtype(0),
      SymbolicShape(std::vector<Dim>{rois.has_rank() ? rois[0] : Dim::Unknown(),
                                     in.has_rank() ? in[1] : Dim::Unknown(), bins[0], bins[1]}));
}

struct Span {
  int64_t first;
  int64_t last;
};

// Bin i of `bins` over [start, end], inclusive, within an axis of n.
Span Bin(int64_t i, int64_t bins, double start, double end, int64_t n) {
  const double size = std::max(end - start + 1, 1.0) / static_cast<double>(bins);
  const auto clip = [&](double v) {
    return static_cast<int64_t>(std::clamp(v, 0.0, static_cast<double>(n)));
  };
  return {clip(std::floor(static_cast<double>(i) * size) + start),
          clip(std::ceil(static_cast<double>(i + 1) * size) + start)};
}

template <typename T>
Status Pool(const Shape& in, const Shape& out, double scale, const T* image, const T* rois, T* to) {
  StopPoll poll;
  for (int64_t n = 0; n < out[0]; ++n, rois += 5) {
    const auto batch = static_cast<double>(rois[0]);
    double edge[4];
    for (int i = 0; i < 4; ++i) {
      edge[i] = std::round(static_cast<double>(rois[i + 1]) * scale);
      if (!std::isfinite(edge[i])) return InvalidArgument("region {} has no finite borders", n);
    }
    if (!(batch >= 0 && batch < static_cast<double>(in[0]))) {
      return InvalidArgument("batch index {} of region {} is outside [0, {})", batch, n, in[0]);
    }
    const T* planes = image + static_cast<int64_t>(batch) * in[1] * in[2] * in[3];
    for (int64_t c = 0; c < in[1]; ++c, planes += in[2] * in[3]) {
      for (int64_t i = 0; i < out[2]; ++i) {
        const Span rows = Bin(i, out[2], edge[1], edge[3], in[2]);
        for (int64_t j = 0; j < out[3]; ++j) {
          const Span columns = Bin(j, out[3], edge[0], edge[2], in[3]);
          const bool empty = rows.first >= rows.last || columns.first >= columns.last;
          T largest = empty ? T(0) : planes[rows.first * in[3] + columns.first];
          for (int64_t y = rows.first; y < rows.last; ++y) {
            if (poll.Stopped(2 * (columns.last - columns.first))) return StoppedStatus();
            for (int64_t x = columns.first; x < columns.last; ++x) {
              largest = Larger(planes[y * in[3] + x], largest);
            }
          }
          *to++ = largest;
        }
      }
    }
  }
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileMaxRoiPool(const CompileContext& context) {
  const Shape in = context.inputs[0].shape;
  const Shape out = context.outputs[0].shape;
  const auto scale = static_cast<double>(context.attributes.Float("spatial_scale", 1));
  return DispatchFloat(
      context.inputs[0].dtype, [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelArgs& args) {
          return Pool(in, out, scale, static_cast<const T*>(args.inputs[0]),
                      static_cast<const T*>(args.inputs[1]), static_cast<T*>(args.outputs[0]));
        });
      });
}

}  // namespace

OperatorDef MaxRoiPoolOperator() {
  return {.name = "MaxRoiPool",
          .min_inputs = 2,
          .max_inputs = 2,
          .input_types = {kFloatTypes, kFloatTypes},
          .infer = InferMaxRoiPool,
          .compile = CompileMaxRoiPool};
}

}  // namespace chairlift
