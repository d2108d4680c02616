#include "ops/linear/dilated.h"

#include <algorithm>
#include <utility>

#include "ops/linear/convolution.h"
#include "ops/linear/huge_tensor.h"

namespace chairlift {
namespace {

// If more taps than this meet the input, skipping the others costs more than it saves, because
// pixels must be gathered.
constexpr double kMostMet = 0.75;
class DilatedKernel final : public Kernel {
 public:
  DilatedKernel(const Dilated& shape, const Convolution& c, Tensor packed, int width)
      : s_(shape),
        images_(c.batch),
        panels_(GemmPanels(c.out_channels)),
        bias_input_(c.bias_input),
        residual_input_(c.residual_input),
        packed_(std::move(packed)),
        slots_(c.WorthSharing() ? width : 1),
        chunks_((s_.rows.y.out + s_.RowsAtOnce() - 1) / s_.RowsAtOnce()) {}

  size_t scratch_bytes() const override {
    return static_cast<size_t>(panels_ * kGemmPanel + s_.Pixels() * s_.PixelStride() +
                               slots_ * s_.SumFloats()) *
           sizeof(float);
  }

  Status Run(const KernelArgs& args) const override {
    const auto input = [&](int i) {
      return i < 0 ? nullptr : static_cast<const float*>(args.inputs[static_cast<size_t>(i)]);
    };
    auto* bias = static_cast<float*>(args.scratch);
    float* const pixels = bias + panels_ * kGemmPanel;
    float* const sums = pixels + s_.Pixels() * s_.PixelStride();
    std::fill_n(bias, panels_ * kGemmPanel, 0.0f);
    if (bias_input_ >= 0) std::copy_n(input(bias_input_), s_.out_channels, bias);
    const float* residual = input(residual_input_);
    const int64_t in_image = s_.Blocks() * s_.rows.InPlane();
    const int64_t out_image = (s_.out_channels + s_.rows.block - 1) / s_.rows.block * s_.OutPlane();
    for (int64_t image = 0; image < images_; ++image) {
      const float* x = input(0) + image * in_image;
      const int64_t to = image * out_image;
      auto* y = static_cast<float*>(args.outputs[0]) + to;
      args.team.For(static_cast<int>(slots_), [&](int part, int) {
        GatherPixels(s_, x, s_.Pixels() * part / slots_, s_.Pixels() * (part + 1) / slots_, pixels);
      });
      const auto tasks = static_cast<int>(slots_ == 1 ? 1 : panels_ * chunks_);
      args.team.For(tasks, [&](int task, int worker) {
        const int64_t first = panels_ * chunks_ * task / tasks;
        const int64_t last = panels_ * chunks_ * (task + 1) / tasks;
        float* own = sums + (slots_ == 1 ? 0 : worker) * s_.SumFloats();
        for (int64_t i = first; i < last; ++i) {
          const int64_t row = i % chunks_ * s_.RowsAtOnce();
          DilatedRows(s_, pixels, packed_.data<float>(), i / chunks_, bias,
                      residual == nullptr ? nullptr : residual + to, row,
                      std::min(s_.rows.y.out, row + s_.RowsAtOnce()), own, y);
        }
      });
    }
    return absl::OkStatus();
  }

 private:
  const Dilated s_;
  const int64_t images_, panels_;
  const int bias_input_, residual_input_;
  const Tensor packed_;
  const int64_t slots_;   // workers that may need scratch memory
  const int64_t chunks_;  // of output rows
};

// The share of all outputs' taps that meet the input.
double Met(const Dilated& s) {
  double met = 1;
  for (const WindowRows::Axis& a : {s.rows.y, s.rows.x}) {
    int64_t count = 0;
    for (int64_t t = 0; t < a.taps; ++t) {
      const int64_t at = t * a.dilation - a.pad;
      count += std::max<int64_t>(0, std::min(a.out, a.in - at) - std::max<int64_t>(0, -at));
    }
    met *= static_cast<double>(count) / static_cast<double>(a.out * a.taps);
  }
  return met;
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> CompileDilated(const Convolution& c,
                                                 const CompileContext& context) {
  const Tensor* weights = context.constant(1);
  const auto blocked = [](const TensorDesc& d) { return d.layout == Layout::kChannelBlocked; };
  const auto one = [](const std::vector<int64_t>& values) {
    return std::all_of(values.begin(), values.end(), [](int64_t v) { return v == 1; });
  };
  if (c.transposed || c.dtype != DType::kFloat || c.spatial_rank() > 2 || c.groups != 1 ||
      c.scale_input >= 0 || weights == nullptr || !one(c.strides) || one(c.dilations) ||
      !blocked(context.inputs[0]) || !blocked(context.outputs[0]) ||
      (c.residual_input >= 0 && !blocked(context.inputs[c.residual_input]))) {
    return Unimplemented("it is for dilations of stride 1, on blocked channels");
  }
  if (context.outputs[0].filled_up() && Activate(c.activation, 0.0f) != 0) {
    return Unimplemented("its activation makes other than zero of what fills up the last block");
  }
  Dilated s;
  s.rows = WindowRows::Of(c);
  s.channels = c.channels;
  s.out_channels = c.out_channels;
  s.activation = c.activation;
  if (Met(s) > kMostMet) return Unimplemented("most of its taps meet the input");
  const auto pack = [&]() -> StatusOr<Tensor> {
    const int64_t taps = s.rows.Taps(), of_tap = PackedGemmSize(c.channels, c.out_channels);
    Tensor all = HugeTensor(DType::kFloat, Shape{taps, of_tap});
    for (int64_t tap = 0; tap < taps; ++tap) {
      PackGemmPanels(weights->data<float>() + tap, taps, c.channels * taps, c.channels,
                     c.out_channels, 0, GemmPanels(c.out_channels), 1.0f,
                     all.data<float>() + tap * of_tap);
    }
    return all;
  };
  CHAIRLIFT_ASSIGN_OR_RETURN(Tensor packed, context.weights.Get(*weights, "dilated", pack));
  return std::make_unique<DilatedKernel>(s, c, std::move(packed), context.width);
}

}  // namespace chairlift
