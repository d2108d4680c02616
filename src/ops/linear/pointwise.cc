#include "ops/linear/pointwise.h"

#include <algorithm>
#include <utility>

#include "ops/linear/convolution.h"
#include "ops/linear/huge_tensor.h"

namespace chairlift {
namespace {

class PointwiseKernel final : public Kernel {
 public:
  PointwiseKernel(const Pointwise& shape, const Convolution& c, Tensor packed, int width)
      : s_(shape),
        images_(c.batch * c.groups),
        groups_(c.groups),
        bias_input_(c.bias_input),
        residual_input_(c.residual_input),
        scale_input_(c.scale_input),
        scale_per_image_(c.scale_per_image),
        packed_(std::move(packed)) {
    if (width == 1 || !c.WorthSharing()) return;
    slots_ = width;
    // Each worker gets separate outputs if those are many and weights are most of the data read;
    // otherwise separate pixels.
    const int64_t parts = 2 * int64_t{width};
    const bool by_blocks =
        s_.OutBlocks() >= 4 * parts && s_.out_channels > images_ * s_.OutPixels();
    (by_blocks ? block_parts_ : pixel_parts_) =
        static_cast<int>(by_blocks ? parts : std::min(parts, images_ * s_.OutPixels()));
  }

  size_t scratch_bytes() const override {
    const int64_t scaled = scale_input_ < 0 ? 0 : slots_ * s_.ScaledFloats();
    return static_cast<size_t>(groups_ * s_.OutBlocks() * s_.block + scaled) * sizeof(float);
  }

  Status Run(const KernelArgs& args) const override {
    const auto input = [&](int i) {
      return i < 0 ? nullptr : static_cast<const float*>(args.inputs[static_cast<size_t>(i)]);
    };
    auto* bias = static_cast<float*>(args.scratch);
    const int64_t outputs = s_.OutBlocks() * s_.block;  // per group
    std::fill_n(bias, groups_ * outputs, 0.0f);
    if (bias_input_ >= 0) std::copy_n(input(bias_input_), groups_ * s_.out_channels, bias);
    const float *x = input(0), *residual = input(residual_input_), *scale = input(scale_input_);
    const int64_t of_image = scale_per_image_ ? s_.InBlocks() * s_.block : 0;
    auto* y = static_cast<float*>(args.outputs[0]);
    const int64_t pixels = s_.OutPixels(), all = images_ * pixels;
    args.team.For(block_parts_ * pixel_parts_, [&](int part, int worker) {
      float* scaled = bias + groups_ * outputs;
      if (scale != nullptr && slots_ > 1) scaled += worker * s_.ScaledFloats();
      const int64_t of_blocks = part % block_parts_, of_pixels = part / block_parts_;
      const int64_t first_block = s_.OutBlocks() * of_blocks / block_parts_;
      const int64_t last_block = s_.OutBlocks() * (of_blocks + 1) / block_parts_;
      const int64_t end = all * (of_pixels + 1) / pixel_parts_;
      for (int64_t at = all * of_pixels / pixel_parts_; at < end;) {
        const int64_t image = at / pixels, first = at % pixels;
        const int64_t last = std::min(pixels, first + end - at), to = image * s_.OutImage();
        const int64_t group = image % groups_;
        PointwisePixels(s_, x + image * s_.InImage(),
                        packed_.data<float>() + group * outputs * s_.channels,
                        bias + group * outputs, residual == nullptr ? nullptr : residual + to,
                        scale == nullptr ? nullptr : scale + image * of_image, first, last,
                        first_block, last_block, y + to, scaled);
        at += last - first;
      }
    });
    return absl::OkStatus();
  }

 private:
  const Pointwise s_;
  const int64_t images_, groups_;  // images of one group each
  const int bias_input_, residual_input_, scale_input_;
  const bool scale_per_image_;
  const Tensor packed_;
  int64_t slots_ = 1;                      // workers that may need scratch memory
  int block_parts_ = 1, pixel_parts_ = 1;  // over all images
};

// [out_channels, channels] to [out blocks, channels, block], for all groups.
Tensor PackPointwiseWeights(const Tensor& weights, const Pointwise& s, int64_t groups) {
  Tensor packed = HugeTensor(DType::kFloat, Shape{groups * s.OutBlocks(), s.channels, s.block});
  std::fill_n(packed.data<float>(), packed.size(), 0.0f);
  for (int64_t o = 0; o < groups * s.out_channels; ++o) {
    for (int64_t c = 0; c < s.channels; ++c) {
      packed.data<float>()[(o / s.block * s.channels + c) * s.block + o % s.block] =
          weights.data<float>()[o * s.channels + c];
    }
  }
  return packed;
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> CompilePointwise(const Convolution& c,
                                                   const CompileContext& context) {
  const Tensor* weights = context.constant(1);
  const auto blocked = [](const TensorDesc& d) { return d.layout == Layout::kChannelBlocked; };
  const auto all = [](const std::vector<int64_t>& values, int64_t wanted) {
    return std::all_of(values.begin(), values.end(), [=](int64_t v) { return v == wanted; });
  };
  const bool strided = !all(c.strides, 1);
  if (c.transposed || c.dtype != DType::kFloat || c.KernelSize() != 1 || !all(c.pads_begin, 0) ||
      weights == nullptr || c.channels == 0 || (strided && c.spatial_rank() > 2) ||
      !blocked(context.inputs[0]) || !blocked(context.outputs[0]) ||
      (c.residual_input >= 0 && !blocked(context.inputs[c.residual_input])) ||
      (c.scale_input >= 0 && !blocked(context.inputs[c.scale_input]))) {
    return Unimplemented("it is for one tap without padding, on blocked channels");
  }
  if (context.outputs[0].filled_up() && Activate(c.activation, 0.0f) != 0) {
    return Unimplemented("its activation makes other than zero of what fills up the last block");
  }
  const auto whole = [&](int64_t all_groups) {
    return all_groups / c.groups % ChannelBlock() == 0;
  };
  if (c.groups > 1 && !(whole(c.channels) && whole(c.out_channels))) {
    return Unimplemented("its groups do not fill whole blocks of channels");
  }
  Pointwise s;
  s.block = ChannelBlock();
  s.channels = c.channels / c.groups;
  s.out_channels = c.out_channels / c.groups;
  s.in_pixels = c.InSize();
  s.row_pixels = s.row_stride = c.OutSize();
  if (strided) {
    s.row_pixels = c.out.back();
    s.rows = c.OutSize() / s.row_pixels;
    s.stride = c.strides.back();
    s.row_stride = c.in.back() * c.strides.front();
  }
  for (size_t i = 0; i < c.in.size(); ++i) {
    if ((c.out[i] - 1) * c.strides[i] >= c.in[i]) {
      return Unimplemented("it is for one tap without padding, on blocked channels");
    }
  }
  s.activation = c.activation;
  // With one block of outputs this kernel waits for its inputs; oneDNN's takes 0.8 of the time.
  const bool plain = c.activation.kind == ActivationKind::kNone ||
                     c.activation.kind == ActivationKind::kRelu ||
                     c.activation.kind == ActivationKind::kClip;
  if (s.OutBlocks() == 1 && c.groups == 1 && s.channels % s.block == 0 && plain &&
      c.scale_input < 0 && c.batch >= context.width) {
    return Unimplemented("oneDNN is faster for one block of outputs");
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(
      Tensor packed, context.weights.Get(*weights, fmt::format("pointwise {}", c.groups), [&] {
        return StatusOr<Tensor>(PackPointwiseWeights(*weights, s, c.groups));
      }));
  return std::make_unique<PointwiseKernel>(s, c, std::move(packed), context.width);
}

}  // namespace chairlift
