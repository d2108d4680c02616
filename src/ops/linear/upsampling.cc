#include "ops/linear/upsampling.h"

#include <algorithm>
#include <utility>

#include "ops/linear/convolution.h"
#include "ops/linear/huge_tensor.h"
#include "ops/linear/packed_gemm.h"

namespace chairlift {
namespace {

// Pixels that share one pass over the weights.
constexpr int64_t kPixelBlock = 98;

class UpsamplingKernel final : public Kernel {
 public:
  UpsamplingKernel(const Upsampling& shape, int64_t batch, int bias_input, Tensor packed, int width)
      : s_(shape), batch_(batch), bias_input_(bias_input), packed_(std::move(packed)) {
    const int64_t pixels = s_.height * s_.width;
    image_blocks_ = (pixels + kPixelBlock - 1) / kPixelBlock;
    panels_ = s_.Panels();
    const double work = static_cast<double>(batch * pixels * s_.channels) *
                        static_cast<double>(panels_ * kGemmPanel);
    if (width > 1 && work > 5e5) {
      by_panels_ = batch * image_blocks_ < width;
      parts_ =
          static_cast<int>(std::min<int64_t>(width, by_panels_ ? panels_ : batch * image_blocks_));
    }
  }

  size_t scratch_bytes() const override {
    return static_cast<size_t>(parts_ * s_.ScratchFloats(kPixelBlock)) * sizeof(float);
  }

  Status Run(const KernelArgs& args) const override {
    const auto* bias =
        bias_input_ < 0 ? nullptr : static_cast<const float*>(args.inputs[bias_input_]);
    const int64_t pixels = s_.height * s_.width, blocks = batch_ * image_blocks_;
    args.team.For(parts_, [&](int part, int) {
      auto* scratch = static_cast<float*>(args.scratch) + part * s_.ScratchFloats(kPixelBlock);
      const int64_t first = by_panels_ ? 0 : blocks * part / parts_;
      const int64_t last = by_panels_ ? blocks : blocks * (part + 1) / parts_;
      for (int64_t block = first; block < last; ++block) {
        const int64_t image = block / image_blocks_, in_image = block % image_blocks_;
        const int64_t begin = pixels * in_image / image_blocks_;
        const int64_t end = pixels * (in_image + 1) / image_blocks_;
        UpsamplePixels(s_, static_cast<const float*>(args.inputs[0]) + image * s_.InImage(), begin,
                       end - begin, packed_.data<float>(), by_panels_ ? panels_ * part / parts_ : 0,
                       by_panels_ ? panels_ * (part + 1) / parts_ : panels_, bias,
                       static_cast<float*>(args.outputs[0]) + image * s_.OutImage(), scratch);
      }
    });
    return absl::OkStatus();
  }

 private:
  Upsampling s_;
  int64_t batch_;
  int bias_input_;
  Tensor packed_;
  int64_t image_blocks_ = 1, panels_ = 1;
  int parts_ = 1;
  bool by_panels_ = false;  // else by blocks of pixels
};

}  // namespace

StatusOr<std::unique_ptr<Kernel>> CompileUpsampling(const Convolution& c,
                                                    const CompileContext& context) {
  bool apart = c.transposed && c.groups == 1 && c.spatial_rank() == 2 && c.residual_input < 0;
  for (int i = 0; apart && i < 2; ++i) {
    apart = c.kernel[i] == c.strides[i] && c.dilations[i] == 1 && c.pads_begin[i] == 0 &&
            c.out[i] == c.in[i] * c.strides[i];
  }
  const Tensor* weights = context.constant(1);
  if (!apart || weights == nullptr || context.inputs[0].layout != Layout::kChannelBlocked ||
      context.inputs[0].filled_up() || context.outputs[0].filled_up()) {
    return Unimplemented("it is for upsampling by a constant factor of whole blocks of channels");
  }
  Upsampling s;
  s.block = ChannelBlock();
  s.channels = c.channels;
  s.out_channels = c.out_channels;
  s.height = c.in[0];
  s.width = c.in[1];
  s.factor_y = c.kernel[0];
  s.factor_x = c.kernel[1];
  s.blocked_out = context.outputs[0].layout == Layout::kChannelBlocked;
  s.activation = c.activation;
  const char* const form = s.blocked_out ? "upsampling, blocked" : "upsampling";
  CHAIRLIFT_ASSIGN_OR_RETURN(
      Tensor packed, context.weights.Get(*weights, form, [&]() -> StatusOr<Tensor> {
        if (!s.blocked_out) {
          const int64_t columns = s.out_channels * s.Taps();
          Tensor all = HugeTensor(DType::kFloat, Shape{PackedGemmSize(s.channels, columns)});
          PackGemmPanels(weights->data<float>(), columns, 1, s.channels, columns, 0,
                         GemmPanels(columns), 1.0f, all.data<float>());
          return all;
        }
        const int64_t tap_size = PackedGemmSize(s.channels, s.out_channels);
        Tensor all = HugeTensor(DType::kFloat, Shape{s.Taps(), tap_size});
        for (int64_t tap = 0; tap < s.Taps(); ++tap) {
          PackGemmPanels(weights->data<float>() + tap, s.out_channels * s.Taps(), s.Taps(),
                         s.channels, s.out_channels, 0, GemmPanels(s.out_channels), 1.0f,
                         all.data<float>() + tap * tap_size);
        }
        return all;
      }));
  return std::make_unique<UpsamplingKernel>(s, c.batch, c.bias_input, std::move(packed),
                                            context.width);
}

}  // namespace chairlift
