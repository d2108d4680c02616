#include "ops/linear/few_outputs.h"

#include <algorithm>
#include <utility>

#include "ops/linear/convolution.h"
#include "ops/linear/huge_tensor.h"

namespace chairlift {
namespace {

class FewOutputsKernel final : public Kernel {
 public:
  FewOutputsKernel(const FewOutputs& shape, const Convolution& c, Tensor filters, int width)
      : s_(shape),
        images_(c.batch),
        bias_input_(c.bias_input),
        residual_input_(c.residual_input),
        filters_(std::move(filters)) {
    if (width == 1 || !c.WorthSharing()) return;
    slots_ = width;
    parts_ = static_cast<int>(std::min(images_ * s_.rows.y.out, 2 * int64_t{width}));
  }

  size_t scratch_bytes() const override {
    return static_cast<size_t>(slots_ * s_.ScratchFloats()) * sizeof(float);
  }

  Status Run(const KernelArgs& args) const override {
    const auto input = [&](int i) {
      return i < 0 ? nullptr : static_cast<const float*>(args.inputs[static_cast<size_t>(i)]);
    };
    const float *x = input(0), *bias = input(bias_input_), *residual = input(residual_input_);
    auto* y = static_cast<float*>(args.outputs[0]);
    const int64_t rows = s_.rows.y.out, all = images_ * rows;
    const int64_t in_image = s_.blocks * s_.rows.InPlane();
    const int64_t out_image = s_.out_channels * s_.OutPlane();
    args.team.For(parts_, [&](int part, int worker) {
      float* scratch =
          static_cast<float*>(args.scratch) + (slots_ == 1 ? 0 : worker) * s_.ScratchFloats();
      const int64_t end = all * (part + 1) / parts_;
      for (int64_t at = all * part / parts_; at < end;) {
        const int64_t image = at / rows, first = at % rows;
        const int64_t last = std::min(rows, first + end - at);
        const int64_t to = image * out_image;
        FewOutputsRows(s_, x + image * in_image, filters_.data<float>(), bias,
                       residual == nullptr ? nullptr : residual + to, first, last, y + to, scratch);
        at += last - first;
      }
    });
    return absl::OkStatus();
  }

 private:
  const FewOutputs s_;
  const int64_t images_;
  const int bias_input_, residual_input_;
  const Tensor filters_;
  int64_t slots_ = 1;  // workers that may need scratch memory
  int parts_ = 1;
};

// [out_channels, channels, taps…] to [out_channels, blocks, taps, block].
Tensor PackFewFilters(const Tensor& weights, int64_t channels, const FewOutputs& s) {
  const int64_t block = s.rows.block, taps = s.rows.Taps();
  Tensor packed = HugeTensor(DType::kFloat, Shape{s.out_channels, s.blocks, taps, block});
  std::fill_n(packed.data<float>(), packed.size(), 0.0f);
  for (int64_t o = 0; o < s.out_channels; ++o) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t t = 0; t < taps; ++t) {
        packed.data<float>()[((o * s.blocks + c / block) * taps + t) * block + c % block] =
            weights.data<float>()[(o * channels + c) * taps + t];
      }
    }
  }
  return packed;
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> CompileFewOutputs(const Convolution& c,
                                                    const CompileContext& context) {
  const Tensor* weights = context.constant(1);
  if (c.transposed || c.dtype != DType::kFloat || c.spatial_rank() > 2 || c.groups != 1 ||
      weights == nullptr || FillsBlocks(c.out_channels) ||
      context.inputs[0].layout != Layout::kChannelBlocked ||
      context.outputs[0].layout != Layout::kRowMajor ||
      (c.residual_input >= 0 && context.inputs[c.residual_input].layout != Layout::kRowMajor)) {
    return Unimplemented("it is for less than half a block of outputs, of blocked channels");
  }
  FewOutputs s;
  s.rows = WindowRows::Of(c);
  s.blocks = ChannelBlocks(c.channels);
  s.out_channels = c.out_channels;
  s.activation = c.activation;
  if (!s.rows.EdgesFit(1)) return Unimplemented("its windows reach too far");
  CHAIRLIFT_ASSIGN_OR_RETURN(Tensor filters, context.weights.Get(*weights, "few outputs", [&] {
    return StatusOr<Tensor>(PackFewFilters(*weights, c.channels, s));
  }));
  return std::make_unique<FewOutputsKernel>(s, c, std::move(filters), context.width);
}

}  // namespace chairlift
