// GridSample: an image of any number of spatial axes (up to 4) sampled at positions in [−1, 1].
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/image/image.h"
#include "ops/ranges.h"

namespace chairlift {
namespace {

constexpr int kMaxAxes = 4;
constexpr int kMaxTaps = 256;  // 4 to the kMaxAxes

enum class Mode { kNearest, kLinear, kCubic };
enum class Padding { kZeros, kBorder, kReflection };

struct Options {
  Mode mode = Mode::kLinear;
  Padding padding = Padding::kZeros;
  bool align_corners = false;

  static StatusOr<Options> Parse(const Attributes& attributes) {
    Options o;
    const std::string mode = attributes.String("mode", "linear");
    if (mode == "nearest") {
      o.mode = Mode::kNearest;
    } else if (mode == "cubic" || mode == "bicubic") {
      o.mode = Mode::kCubic;
    } else if (mode != "linear" && mode != "bilinear") {
      return InvalidArgument("mode '{}' is not linear, nearest or cubic", mode);
    }
    const std::string padding = attributes.String("padding_mode", "zeros");
    if (padding == "border") {
      o.padding = Padding::kBorder;
    } else if (padding == "reflection") {
      o.padding = Padding::kReflection;
    } else if (padding != "zeros") {
      return InvalidArgument("padding_mode '{}' is not zeros, border or reflection", padding);
    }
    o.align_corners = attributes.Int("align_corners", 0) != 0;
    return o;
  }
};

Status InferGridSample(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Options options, Options::Parse(context.attributes()));
  (void)options;
  const SymbolicShape& in = context.shape(0);
  const SymbolicShape& grid = context.shape(1);
  if (in.has_rank() && (in.rank() < 3 || in.rank() > 2 + kMaxAxes)) {
    return InvalidArgument("input must have 1 to {} spatial axes, not shape {}", kMaxAxes,
                           in.ToString());
  }
  if (in.has_rank() && grid.has_rank()) {
    const Dim& width = grid[grid.rank() - 1];
    if (grid.rank() != in.rank() || (width.known() && width.value() != in.rank() - 2)) {
      return InvalidArgument("grid {} does not fit input {}", grid.ToString(), in.ToString());
    }
    if (in[0].known() && grid[0].known() && in[0].value() != grid[0].value()) {
      return InvalidArgument("grid {} has another batch size than input {}", grid.ToString(),
                             in.ToString());
    }
    for (int d = 2; d < in.rank(); ++d) {
      if (in[d].known() && in[d].value() == 0) {
        return InvalidArgument("input {} has nothing to sample", in.ToString());
      }
    }
  }
  if (!grid.has_rank()) return SetOutput(context, 0, context.dtype(0), SymbolicShape());
  std::vector<Dim> out = {grid[0], in.has_rank() ? in[1] : Dim::Unknown()};
  if (in.has_rank()) out[0] = MergeDims(in[0], grid[0]);
  for (int d = 1; d < grid.rank() - 1; ++d) out.push_back(grid[d]);
  return SetOutput(context, 0, context.dtype(0), SymbolicShape(std::move(out)));
}

double Reflected(double x, double low, double high) {
  const double range = high - low;
  if (range <= 0) return low;
  double past = std::fmod(std::abs(x - low), 2 * range);
  if (past > range) past = 2 * range - past;
  return low + past;
}

// One axis of one sample: up to four elements and their weights; index −1 stands for zero.
struct AxisTaps {
  int count = 1;
  std::array<int64_t, 4> index;
  std::array<double, 4> weight;
};

class Sampler {
 public:
  Sampler(const Options& options, const Shape& in) : options_(options) {
    for (int d = 2; d < in.rank(); ++d) dims_.push_back(in[d]);
  }

  // Offsets into a plane and weights for the sample at `position` (last axis first, as in grids).
  // Returns their number.
  template <typename T>
  int Taps(const T* position, int64_t* offset, T* weight) const {
    const int axes = static_cast<int>(dims_.size());
    int count = 1;
    offset[0] = 0;
    double exact[kMaxTaps];
    exact[0] = 1;
    for (int d = 0; d < axes; ++d) {
      const AxisTaps taps = Along(static_cast<double>(position[axes - 1 - d]), dims_[d]);
      int64_t next_offset[kMaxTaps];
      double next_weight[kMaxTaps];
      int next = 0;
      for (int i = 0; i < count; ++i) {
        for (int k = 0; k < taps.count; ++k) {
          const auto at = static_cast<size_t>(k);
          if (taps.index[at] < 0) continue;
          next_offset[next] = offset[i] * dims_[d] + taps.index[at];
          next_weight[next++] = exact[i] * taps.weight[at];
        }
      }
      count = next;
      std::copy_n(next_offset, count, offset);
      std::copy_n(next_weight, count, exact);
    }
    for (int i = 0; i < count; ++i) weight[i] = static_cast<T>(exact[i]);
    return count;
  }

 private:
  AxisTaps Along(double n, int64_t dim) const {
    AxisTaps taps;
    const auto length = static_cast<double>(dim);
    double x = options_.align_corners ? (n + 1) / 2 * (length - 1) : ((n + 1) * length - 1) / 2;
    // NaN counts as outside, as in PyTorch.
    if (!(std::abs(x) < 1e15)) x = x > 0 ? 1e15 : -1e15;
    if (options_.mode == Mode::kNearest) x = std::nearbyint(x);
    const double low = options_.align_corners ? 0 : -0.5;
    const double high = options_.align_corners ? length - 1 : length - 0.5;
    if (x < low || x > high) {
      if (options_.padding == Padding::kBorder) x = std::clamp(x, 0.0, length - 1);
      if (options_.padding == Padding::kReflection) x = Reflected(x, low, high);
    }
    const double first = std::floor(x);
    const double r = x - first;
    switch (options_.mode) {
      case Mode::kNearest:
        taps.index[0] = Inside(x, dim);
        taps.weight[0] = 1;
        break;
      case Mode::kLinear:
        taps.count = 2;
        taps.weight = {1 - r, r};
        for (int k = 0; k < 2; ++k) taps.index[static_cast<size_t>(k)] = Inside(first + k, dim);
        break;
      case Mode::kCubic:
        taps.count = 4;
        for (int k = 0; k < 4; ++k) {
          taps.index[static_cast<size_t>(k)] = Inside(first + k - 1, dim);
          taps.weight[static_cast<size_t>(k)] = Cubic(r - (k - 1));
        }
        break;
    }
    return taps;
  }

  static double Cubic(double x) {
    constexpr double kA = -0.75;
    x = std::abs(x);
    if (x <= 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
    return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA;
  }

  int64_t Inside(double i, int64_t dim) const {
    if (i >= 0 && i < static_cast<double>(dim)) return static_cast<int64_t>(i);
    switch (options_.padding) {
      case Padding::kZeros:
        return -1;
      case Padding::kBorder:
        return i < 0 ? 0 : dim - 1;
      case Padding::kReflection:
        break;
    }
    const double low = options_.align_corners ? 0 : -0.5;
    const double high = static_cast<double>(dim) - (options_.align_corners ? 1 : 0.5);
    return std::clamp<int64_t>(static_cast<int64_t>(Reflected(i, low, high)), 0, dim - 1);
  }

  Options options_;
  std::vector<int64_t> dims_;
};

StatusOr<std::unique_ptr<Kernel>> CompileGridSample(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Options options, Options::Parse(context.attributes));
  const Shape& in = context.inputs[0].shape;
  const Shape& out = context.outputs[0].shape;
  const Sampler sampler(options, in);
  const int axes = in.rank() - 2;
  const int64_t channels = in[1];
  const int64_t in_plane = in.NumElements(2, in.rank());
  const int64_t points = out.NumElements(2, out.rank());
  const int64_t samples = out[0] * points;
  return DispatchFloat(
      context.inputs[0].dtype, [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelArgs& args) -> Status {
          const auto* image = static_cast<const T*>(args.inputs[0]);
          const auto* grid = static_cast<const T*>(args.inputs[1]);
          auto* out = static_cast<T*>(args.outputs[0]);
          const auto range = [&](int64_t first, int64_t last) {
            int64_t offset[kMaxTaps];
            T weight[kMaxTaps];
            for (int64_t s = first; s < last; ++s) {
              const int taps = sampler.Taps(grid + s * axes, offset, weight);
              const int64_t n = s / points;
              const T* plane = image + n * channels * in_plane;
              T* to = out + n * channels * points + s % points;
              for (int64_t c = 0; c < channels; ++c, plane += in_plane, to += points) {
                T sum = 0;
                for (int k = 0; k < taps; ++k) sum += weight[k] * plane[offset[k]];
                *to = sum;
              }
            }
          };
          constexpr int64_t kParallelSamples = 2048;
          ForRanges(args.team, samples, samples, kParallelSamples, range);
          return absl::OkStatus();
        });
      });
}

}  // namespace

OperatorDef GridSampleOperator() {
  return {.name = "GridSample",
          .min_inputs = 2,
          .max_inputs = 2,
          .input_types = {kFloatTypes},
          .infer = InferGridSample,
          .axes = FirstAxis<0, 1>,
          .compile = CompileGridSample};
}

}  // namespace chairlift
