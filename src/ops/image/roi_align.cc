// RoiAlign: each bin of each region of interest is the mean (or maximum) of bilinear samples.
#include <algorithm>
#include <cmath>

#include "base/stop_poll.h"
#include "ops/axes.h"
#include "ops/extrema.h"
#include "ops/image/image.h"

namespace chairlift {
namespace {

// Samples along one axis of a bin; only invalid regions need more.
constexpr int64_t kMaxSamples = 1 << 12;
constexpr int64_t kMaxBins = 1 << 16;

struct RoiAlignOptions {
  bool max = false;
  bool half_pixel = true;
  int64_t height = 1;
  int64_t width = 1;
  int64_t samples = 0;  // along each axis of a bin; 0: as many as input elements
  double scale = 1;

  static StatusOr<RoiAlignOptions> Parse(const Attributes& attributes) {
    RoiAlignOptions o;
    const std::string mode = attributes.String("mode", "avg");
    if (mode != "avg" && mode != "max") return InvalidArgument("mode '{}' is not avg or max", mode);
    o.max = mode == "max";
    const std::string transform = attributes.String("coordinate_transformation_mode", "half_pixel");
    if (transform != "half_pixel" && transform != "output_half_pixel") {
      return InvalidArgument("coordinate_transformation_mode '{}' is not known", transform);
    }
    o.half_pixel = transform == "half_pixel";
    o.height = attributes.Int("output_height", 1);
    o.width = attributes.Int("output_width", 1);
    o.samples = attributes.Int("sampling_ratio", 0);
    if (o.height < 1 || o.width < 1 || o.height > kMaxBins || o.width > kMaxBins) {
      return InvalidArgument("output of {} × {} bins is not possible", o.height, o.width);
    }
    if (o.samples < 0 || o.samples > kMaxSamples) {
      return InvalidArgument("sampling_ratio {} is outside [0, {}]", o.samples, kMaxSamples);
    }
    o.scale = static_cast<double>(attributes.Float("spatial_scale", 1));
    return o;
  }
};

Status InferRoiAlign(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const RoiAlignOptions options,
                             RoiAlignOptions::Parse(context.attributes()));
  const SymbolicShape& in = context.shape(0);
  const SymbolicShape& rois = context.shape(1);
  const SymbolicShape& batch = context.shape(2);
  if (in.has_rank() && in.rank() != 4) {
    return InvalidArgument("input must have rank 4, not {}", in.ToString());
  }
  if (rois.has_rank() && (rois.rank() != 2 || (rois[1].known() && rois[1].value() != 4))) {
    return InvalidArgument("rois must be [count,4], not {}", rois.ToString());
  }
  if (batch.has_rank() && batch.rank() != 1) {
    return InvalidArgument("batch_indices must have rank 1, not {}", batch.ToString());
  }
  if (context.dtype(1) != context.dtype(0)) {
    return InvalidArgument("rois are {}, but input is {}; both must have one type",
                           DTypeName(context.dtype(1)), DTypeName(context.dtype(0)));
  }
  if (rois.has_rank() && batch.has_rank() && rois[0].known() && batch[0].known() &&
      !rois[0].Same(batch[0])) {
    return InvalidArgument("there are {} rois, but {} batch_indices; each roi needs one",
                           rois[0].value(), batch[0].value());
  }
  Dim count = rois.has_rank() ? rois[0] : Dim::Unknown();
  if (batch.has_rank()) count = MergeDims(count, batch[0]);
  return SetOutput(context, 0, context.dtype(0),
                   SymbolicShape(std::vector<Dim>{count, in.has_rank() ? in[1] : Dim::Unknown(),
                                                  options.height, options.width}));
}

// A bilinear sample: four elements of a plane.
struct Sample {
  int64_t at[4] = {};
  double weight[4] = {};
};

Sample Bilinear(double y, double x, int64_t height, int64_t width) {
  Sample s;
  if (!(y >= -1 && y <= static_cast<double>(height) && x >= -1 &&
        x <= static_cast<double>(width))) {
    return s;
  }
  const auto place = [](double v, int64_t n, int64_t& low, int64_t& high, double& part) {
    v = std::max(v, 0.0);
    low = std::min(static_cast<int64_t>(v), n - 1);
    high = std::min(low + 1, n - 1);
    part = low == high ? 0 : v - static_cast<double>(low);
  };
  int64_t y0, y1, x0, x1;
  double dy, dx;
  place(y, height, y0, y1, dy);
  place(x, width, x0, x1, dx);
  s = {{y0 * width + x0, y0 * width + x1, y1 * width + x0, y1 * width + x1},
       {(1 - dy) * (1 - dx), (1 - dy) * dx, dy * (1 - dx), dy * dx}};
  return s;
}

// A region in elements of the input.
struct Region {
  double y = 0;
  double x = 0;
  double bin_height = 1;
  double bin_width = 1;
  int64_t rows = 0;  // samples along each axis of a bin
  int64_t columns = 0;
};

template <typename T>
StatusOr<Region> MakeRegion(const RoiAlignOptions& options, const T* roi) {
  const double offset = options.half_pixel ? 0.5 : 0;
  double edge[4];
  for (int i = 0; i < 4; ++i) edge[i] = static_cast<double>(roi[i]) * options.scale - offset;
  double width = edge[2] - edge[0];
  double height = edge[3] - edge[1];
  if (!options.half_pixel) {
    width = std::max(width, 1.0);
    height = std::max(height, 1.0);
  }
  Region r{edge[1],
           edge[0],
           height / static_cast<double>(options.height),
           width / static_cast<double>(options.width),
           options.samples,
           options.samples};
  if (options.samples == 0) {
    if (!(std::abs(r.bin_height) <= kMaxSamples && std::abs(r.bin_width) <= kMaxSamples)) {
      return InvalidArgument("region [{}, {}, {}, {}] is too large to sample", edge[0], edge[1],
                             edge[2], edge[3]);
    }
    r.rows = std::max<int64_t>(0, static_cast<int64_t>(std::ceil(r.bin_height)));
    r.columns = std::max<int64_t>(0, static_cast<int64_t>(std::ceil(r.bin_width)));
  }
  return r;
}

template <typename T>
void PoolBin(const RoiAlignOptions& options, const Shape& in, const Region& r, int64_t row,
             int64_t column, const T* image, T* out, int64_t out_step, StopPoll& poll) {
  const int64_t height = in[2];
  const int64_t width = in[3];
  const int64_t count = r.rows * r.columns;
  for (int64_t c = 0; c < in[1]; ++c) out[c * out_step] = 0;
  // Some samples at a time, each located once for all channels.
  constexpr int64_t kAtOnce = 64;
  Sample samples[kAtOnce];
  for (int64_t first = 0; first < count; first += kAtOnce) {
    const int64_t n = std::min(kAtOnce, count - first);
    if (poll.Stopped(8 * n * in[1])) return;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t whole_rows = (first + i) / r.columns;
      const auto down = static_cast<double>(whole_rows);
      const auto across = static_cast<double>((first + i) % r.columns);
      const double y = static_cast<double>(row) + (down + 0.5) / static_cast<double>(r.rows);
      const double x =
          static_cast<double>(column) + (across + 0.5) / static_cast<double>(r.columns);
      samples[i] = Bilinear(r.y + y * r.bin_height, r.x + x * r.bin_width, height, width);
    }
    for (int64_t c = 0; c < in[1]; ++c) {
      const T* plane = image + c * height * width;
      auto total = static_cast<double>(out[c * out_step]);
      for (int64_t i = 0; i < n; ++i) {
        const Sample& s = samples[i];
        for (int k = 0; k < 4; ++k) {
          const double v = s.weight[k] * static_cast<double>(plane[s.at[k]]);
          if (!options.max) {
            total += v;
          } else {
            // As in ONNX: the largest of the weighted elements, not of the samples.
            total = first + i + k == 0 ? v : Larger(v, total);
          }
        }
      }
      out[c * out_step] = static_cast<T>(total);
    }
  }
  if (options.max || count == 0) return;
  for (int64_t c = 0; c < in[1]; ++c) out[c * out_step] /= static_cast<T>(count);
}

StatusOr<std::unique_ptr<Kernel>> CompileRoiAlign(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const RoiAlignOptions options,
                             RoiAlignOptions::Parse(context.attributes));
  const Shape in = context.inputs[0].shape;
  const int64_t regions = context.outputs[0].shape[0];
  const int64_t bins = options.height * options.width;
  if (in[2] == 0 || in[3] == 0) return InvalidArgument("input {} is empty", in.ToString());
  return DispatchFloat(
      context.inputs[0].dtype, [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelArgs& args) -> Status {
          const auto* image = static_cast<const T*>(args.inputs[0]);
          const auto* rois = static_cast<const T*>(args.inputs[1]);
          const auto* batch = static_cast<const int64_t*>(args.inputs[2]);
          auto* out = static_cast<T*>(args.outputs[0]);
          const StopPoll poll;
          for (int64_t n = 0; n < regions; ++n) {
            CHAIRLIFT_RETURN_IF_ERROR(poll.Result());
            if (batch[n] < 0 || batch[n] >= in[0]) {
              return InvalidArgument("batch index {} at position {} is outside [0, {})", batch[n],
                                     n, in[0]);
            }
            CHAIRLIFT_ASSIGN_OR_RETURN(const Region region, MakeRegion(options, rois + 4 * n));
            const T* from = image + batch[n] * in[1] * in[2] * in[3];
            T* to = out + n * in[1] * bins;
            args.team.For(static_cast<int>(options.height), [&](int row, int) {
              StopPoll own = poll;
              for (int64_t column = 0; column < options.width; ++column) {
                PoolBin(options, in, region, row, column, from, to + row * options.width + column,
                        bins, own);
              }
            });
          }
          return poll.Result();
        });
      });
}

}  // namespace

OperatorDef RoiAlignOperator() {
  return {.name = "RoiAlign",
          .min_inputs = 3,
          .max_inputs = 3,
          .input_types = {kFloatTypes, kFloatTypes, {DType::kInt64}},
          .infer = InferRoiAlign,
          .compile = CompileRoiAlign};
}

}  // namespace chairlift
