// DeformConv(X [N, C, H, W], weights [M, C/group, kH, kW], offset [N, groups·kH·kW·2, oH, oW],
// bias? [M], mask? [N, groups·kH·kW, oH, oW]) -> Y [N, M, oH, oW]: a convolution in which each tap
// is moved by its offset (down, across), interpolated between elements, and scaled by its mask.
// `offset_group` groups of channels have separate offsets. Values outside X are 0.
//
// Output positions are processed one panel at a time. Their taps are sampled directly into the
// packed form of the product with the weights, so that no matrix of all taps is stored.
#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>

#include "ops/axis_map.h"
#include "ops/linear/linear.h"
#include "ops/linear/packed_gemm.h"
#include "ops/operator.h"
#include "ops/window.h"

namespace chairlift {
namespace {

struct DeformSizes {
  int64_t groups = 1, offset_groups = 1;

  static StatusOr<DeformSizes> Parse(const Attributes& attributes) {
    const DeformSizes s{attributes.Int("group", 1), attributes.Int("offset_group", 1)};
    if (s.groups < 1 || s.offset_groups < 1) {
      return InvalidArgument("group {} and offset_group {} must be at least 1", s.groups,
                             s.offset_groups);
    }
    return s;
  }
};

// Nothing if the kernel's size is unknown.
StatusOr<std::optional<Window>> DeformWindowOf(const InferContext& context) {
  const SymbolicShape& w = context.shape(1);
  std::vector<int64_t> kernel;
  if (w.has_rank() && w[2].known() && w[3].known()) kernel = {w[2].value(), w[3].value()};
  if (kernel.empty() && !context.attributes().Has("kernel_shape")) return std::optional<Window>();
  CHAIRLIFT_ASSIGN_OR_RETURN(Window window, Window::Parse(context.attributes(), 2, kernel));
  return std::optional<Window>(std::move(window));
}

// Checks the required shape of an operand, if it is known.
Status CheckShape(const InferContext& context, int input, const char* name,
                  const SymbolicShape& wanted) {
  if (!context.has_input(input)) return absl::OkStatus();
  const SymbolicShape& shape = context.shape(input);
  bool fits = !shape.has_rank() || shape.rank() == wanted.rank();
  for (int i = 0; fits && shape.has_rank() && i < shape.rank(); ++i) {
    fits = !shape[i].known() || !wanted[i].known() || shape[i].value() == wanted[i].value();
  }
  if (fits) return absl::OkStatus();
  return InvalidArgument("{} {} must be {}", name, shape.ToString(), wanted.ToString());
}

Status InferDeformConv(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const DeformSizes sizes, DeformSizes::Parse(context.attributes()));
  const SymbolicShape &x = context.shape(0), &w = context.shape(1);
  for (int i = 0; i < context.num_inputs(); ++i) {
    if (context.has_input(i) && context.dtype(i) != context.dtype(0)) {
      return InvalidArgument("input {} is {} but X is {}", i, DTypeName(context.dtype(i)),
                             DTypeName(context.dtype(0)));
    }
    if (i < 2 && context.shape(i).has_rank() && context.shape(i).rank() != 4) {
      return Unimplemented("{} {} is only supported with 2 spatial dimensions",
                           i == 0 ? "X" : "weights", context.shape(i).ToString());
    }
  }
  if (w.has_rank() && w[0].known() && w[0].value() % sizes.groups != 0) {
    return InvalidArgument("weights {} do not divide into {} groups", w.ToString(), sizes.groups);
  }
  if (x.has_rank() && x[1].known()) {
    const int64_t channels = x[1].value();
    if (channels % sizes.groups != 0 || channels % sizes.offset_groups != 0) {
      return InvalidArgument("{} channels do not divide into {} groups and {} offset groups",
                             channels, sizes.groups, sizes.offset_groups);
    }
    if (w.has_rank() && w[1].known() && w[1].value() != channels / sizes.groups) {
      return InvalidArgument("weights {} do not fit input {} in {} groups", w.ToString(),
                             x.ToString(), sizes.groups);
    }
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::optional<Window> window, DeformWindowOf(context));
  std::vector<Dim> out(4);
  if (x.has_rank()) out[0] = x[0];
  if (w.has_rank()) out[1] = w[0];
  Dim taps = Dim::Unknown(), coordinates = Dim::Unknown();
  if (window) {
    const int64_t count = window->kernel[0] * window->kernel[1];
    if (sizes.offset_groups > (int64_t{1} << 40) / count) {
      return InvalidArgument("offset_group {} is too large", sizes.offset_groups);
    }
    taps = count * sizes.offset_groups;
    coordinates = 2 * taps.value();
    for (int axis = 0; x.has_rank() && axis < 2; ++axis) {
      CHAIRLIFT_ASSIGN_OR_RETURN(out[static_cast<size_t>(axis + 2)],
                                 window->OutputDim(axis, x[axis + 2]));
    }
  }
  CHAIRLIFT_RETURN_IF_ERROR(
      CheckShape(context, 2, "offset", SymbolicShape({out[0], coordinates, out[2], out[3]})));
  CHAIRLIFT_RETURN_IF_ERROR(CheckShape(context, 3, "bias", SymbolicShape({out[1]})));
  CHAIRLIFT_RETURN_IF_ERROR(
      CheckShape(context, 4, "mask", SymbolicShape({out[0], taps, out[2], out[3]})));
  context.set_output(0, context.dtype(0), SymbolicShape(std::move(out)));
  return absl::OkStatus();
}

// Four elements of a plane and their weights.
template <typename T>
struct DeformedSample {
  int64_t at[4] = {};
  T weight[4] = {};
};

template <typename T>
DeformedSample<T> Bilinear(T y, T x, int64_t height, int64_t width, T scale) {
  DeformedSample<T> s;
  // Also if a coordinate is NaN.
  if (!(y > -1 && y < static_cast<T>(height) && x > -1 && x < static_cast<T>(width))) return s;
  const T top = std::floor(y), left = std::floor(x);
  const T down = y - top, across = x - left;
  const auto row = static_cast<int64_t>(top), column = static_cast<int64_t>(left);
  for (int corner = 0; corner < 4; ++corner) {
    const int64_t r = row + corner / 2, c = column + corner % 2;
    if (r < 0 || r >= height || c < 0 || c >= width) continue;
    s.at[corner] = r * width + c;
    s.weight[corner] =
        scale * (corner / 2 == 1 ? down : 1 - down) * (corner % 2 == 1 ? across : 1 - across);
  }
  return s;
}

template <typename T>
class DeformConv final : public Kernel {
 public:
  static StatusOr<std::unique_ptr<Kernel>> CompileDeformConv(const CompileContext& context) {
    auto made = std::make_unique<DeformConv>();
    CHAIRLIFT_ASSIGN_OR_RETURN(made->sizes_, DeformSizes::Parse(context.attributes));
    made->x_ = context.inputs[0].shape;
    made->w_ = context.inputs[1].shape;
    made->y_ = context.outputs[0].shape;
    const Shape& w = made->w_;
    CHAIRLIFT_ASSIGN_OR_RETURN(made->window_, Window::Parse(context.attributes, 2, {{w[2], w[3]}}));
    made->width_ = context.width;
    return std::unique_ptr<Kernel>(std::move(made));
  }

  size_t scratch_bytes() const override { return static_cast<size_t>(width_) * SlotBytes(); }

  Status Run(const KernelArgs& args) const override {
    const int64_t panels = GemmPanels(positions());
    const int64_t jobs = y_[0] * panels * sizes_.groups;
    if (jobs == 0 || y_[1] == 0) return absl::OkStatus();
    const int width = std::min(args.team.width(), width_);
    const double work = static_cast<double>(y_.NumElements()) * static_cast<double>(inner());
    constexpr double kWorthSharing = 2e5;
    const int64_t parts = work < kWorthSharing ? 1 : std::min<int64_t>(jobs, int64_t{width} * 4);
    args.team.For(static_cast<int>(parts), [&](int part, int worker) {
      const size_t slot = args.team.width() == 1 ? 0 : static_cast<size_t>(worker);
      T* taps = reinterpret_cast<T*>(static_cast<std::byte*>(args.scratch) + slot * SlotBytes());
      for (int64_t job = jobs * part / parts; job < jobs * (part + 1) / parts; ++job) {
        RunPanel(args, job / panels / sizes_.groups, job / panels % sizes_.groups,
                 job % panels * kGemmPanel, taps);
      }
    });
    return absl::OkStatus();
  }

 private:
  int64_t kernel_size() const { return w_[2] * w_[3]; }
  int64_t inner() const { return w_[1] * kernel_size(); }  // inner dimension of the product
  int64_t positions() const { return y_[2] * y_[3]; }
  size_t SlotBytes() const {
    const auto bytes = static_cast<size_t>(std::max<int64_t>(inner(), 1) * kGemmPanel) * sizeof(T);
    return (bytes + 63) / 64 * 64;
  }

  // Output positions from `first` on, for one image and one group of channels.
  void RunPanel(const KernelArgs& args, int64_t n, int64_t group, int64_t first, T* taps) const {
    const int64_t count = std::min(kGemmPanel, positions() - first);
    Gather(args, n, group, first, count, taps);
    const int64_t rows = y_[1] / sizes_.groups, k = inner();
    const T* w = static_cast<const T*>(args.inputs[1]) + group * rows * k;
    T* y = static_cast<T*>(args.outputs[0]) + (n * y_[1] + group * rows) * positions() + first;
    if (k == 0) {  // empty sums
      for (int64_t m = 0; m < rows; ++m) std::fill_n(y + m * positions(), count, T{0});
    } else if constexpr (std::is_same_v<T, float>) {
      PackedGemm({.a = w,
                  .a_row_stride = k,
                  .a_k_stride = 1,
                  .packed = taps,
                  .c = y,
                  .c_stride = positions()},
                 rows, k, count, 0, 1, {});
    } else {
      for (int64_t m = 0; m < rows; ++m) {
        for (int64_t i = 0; i < count; ++i) {
          T sum = 0;
          for (int64_t j = 0; j < k; ++j) sum += w[m * k + j] * taps[j * kGemmPanel + i];
          y[m * positions() + i] = sum;
        }
      }
    }
    if (args.inputs.size() <= 3 || args.inputs[3] == nullptr) return;
    const T* bias = static_cast<const T*>(args.inputs[3]) + group * rows;
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t i = 0; i < count; ++i) y[m * positions() + i] += bias[m];
    }
  }

  // Tap j of position first + i, scaled, goes to taps[j · kGemmPanel + i]; 0 for positions past
  // `count`.
  void Gather(const KernelArgs& args, int64_t n, int64_t group, int64_t first, int64_t count,
              T* taps) const {
    const int64_t channels = w_[1], plane = x_[2] * x_[3];
    const int64_t by_offset = x_[1] / sizes_.offset_groups;  // channels that share offsets
    const T* x = static_cast<const T*>(args.inputs[0]) + (n * x_[1] + group * channels) * plane;
    DeformedSample<T> samples[kGemmPanel];
    for (int64_t c = 0; c < channels;) {
      const int64_t own = (group * channels + c) / by_offset;
      const int64_t end = std::min(channels, (own + 1) * by_offset - group * channels);
      for (int64_t tap = 0; tap < kernel_size(); ++tap) {
        Place(args, n, own, tap, first, count, samples);
        for (int64_t channel = c; channel < end; ++channel) {
          const T* from = x + channel * plane;
          T* to = taps + (channel * kernel_size() + tap) * kGemmPanel;
          for (int64_t i = 0; i < count; ++i) {
            const DeformedSample<T>& s = samples[i];
            to[i] = s.weight[0] * from[s.at[0]] + s.weight[1] * from[s.at[1]] +
                    s.weight[2] * from[s.at[2]] + s.weight[3] * from[s.at[3]];
          }
          std::fill(to + count, to + kGemmPanel, T{0});
        }
      }
      c = end;
    }
  }

  // Where one tap of an offset group is, for each position.
  void Place(const KernelArgs& args, int64_t n, int64_t own, int64_t tap, int64_t first,
             int64_t count, DeformedSample<T>* samples) const {
    const int64_t at = (n * sizes_.offset_groups + own) * kernel_size() + tap;
    const T* offset = static_cast<const T*>(args.inputs[2]) + 2 * at * positions() + first;
    const T* mask = args.inputs.size() > 4 && args.inputs[4] != nullptr
                        ? static_cast<const T*>(args.inputs[4]) + at * positions() + first
                        : nullptr;
    const auto start = [&](int axis, int64_t position, int64_t step) {
      return static_cast<T>(position * window_.strides[static_cast<size_t>(axis)] -
                            window_.PadBegin(axis, x_[axis + 2]) +
                            step * window_.dilations[static_cast<size_t>(axis)]);
    };
    for (int64_t i = 0; i < count; ++i) {
      const T y = start(0, (first + i) / y_[3], tap / w_[3]) + offset[i];
      const T x = start(1, (first + i) % y_[3], tap % w_[3]) + offset[positions() + i];
      samples[i] = Bilinear(y, x, x_[2], x_[3], mask == nullptr ? T{1} : mask[i]);
    }
  }

  DeformSizes sizes_;
  Window window_;
  Shape x_, w_, y_;
  int width_ = 1;
};

StatusOr<std::unique_ptr<Kernel>> CompileDeformConv(const CompileContext& context) {
  if (context.inputs[0].dtype == DType::kDouble)
    return DeformConv<double>::CompileDeformConv(context);
  return DeformConv<float>::CompileDeformConv(context);
}

}  // namespace

void RegisterDeformConv(OperatorRegistry& registry) {
  registry.Add({.name = "DeformConv",
                .min_opset = 19,
                .min_inputs = 3,
                .max_inputs = 5,
                .input_types = {kFloatTypes},
                .infer = InferDeformConv,
                .axes = FirstAxis<0, 2, 4>,
                .compile = CompileDeformConv});
}

}  // namespace chairlift
