#include "ops/linear/depthwise.h"

#include <algorithm>
#include <utility>

#include "ops/linear/convolution.h"
#include "ops/linear/huge_tensor.h"

namespace chairlift {
namespace {

class DepthwiseKernel final : public Kernel {
 public:
  DepthwiseKernel(const Depthwise& shape, const Convolution& c, Tensor filters, int width)
      : s_(shape),
        planes_(c.batch * shape.blocks),
        biases_(c.out_channels),
        bias_input_(c.bias_input),
        residual_input_(c.residual_input),
        filters_(std::move(filters)) {
    if (width == 1 || !c.WorthSharing()) return;
    slots_ = width;
    // Each part is some rows of a block, with at least two parts per worker.
    const int64_t wanted = 2 * int64_t{width};
    row_parts_ = std::clamp<int64_t>((wanted + planes_ - 1) / planes_, 1, s_.rows.y.out);
    parts_ = static_cast<int>(std::min(planes_, wanted) * row_parts_);
  }

  size_t scratch_bytes() const override {
    return static_cast<size_t>(s_.blocks * s_.rows.block + slots_ * s_.ScratchFloats()) *
           sizeof(float);
  }

  Status Run(const KernelArgs& args) const override {
    float* bias = nullptr;
    if (bias_input_ >= 0) {
      // Whole blocks: the last may be wider than the number of channels.
      bias = static_cast<float*>(args.scratch);
      std::copy_n(static_cast<const float*>(args.inputs[bias_input_]), biases_, bias);
      std::fill(bias + biases_, bias + s_.blocks * s_.rows.block, 0.0f);
    }
    const auto* x = static_cast<const float*>(args.inputs[0]);
    const auto* residual =
        residual_input_ < 0 ? nullptr : static_cast<const float*>(args.inputs[residual_input_]);
    auto* y = static_cast<float*>(args.outputs[0]);
    float* const edges = static_cast<float*>(args.scratch) + s_.blocks * s_.rows.block;
    const int64_t plane_parts = parts_ / row_parts_;
    args.team.For(parts_, [&](int part, int worker) {
      const int64_t of_planes = part / row_parts_, of_rows = part % row_parts_;
      for (int64_t p = planes_ * of_planes / plane_parts;
           p < planes_ * (of_planes + 1) / plane_parts; ++p) {
        const int64_t block = p % s_.blocks, to = p * s_.OutPlane();
        DepthwiseRows(s_, x + p * s_.rows.InPlane(),
                      filters_.data<float>() + block * s_.rows.Taps() * s_.rows.block,
                      bias == nullptr ? nullptr : bias + block * s_.rows.block,
                      residual == nullptr ? nullptr : residual + to,
                      s_.rows.y.out * of_rows / row_parts_,
                      s_.rows.y.out * (of_rows + 1) / row_parts_, y + to,
                      edges + (slots_ == 1 ? 0 : worker) * s_.ScratchFloats());
      }
    });
    return absl::OkStatus();
  }

 private:
  const Depthwise s_;
  const int64_t planes_;  // blocks of all images
  const int64_t biases_;
  const int bias_input_, residual_input_;
  const Tensor filters_;
  int64_t slots_ = 1;      // workers that may need scratch memory
  int64_t row_parts_ = 1;  // of each plane
  int parts_ = 1;
};

// [channels, 1, taps…] to [blocks, taps, block].
Tensor PackDepthwiseFilters(const Tensor& weights, int64_t channels, const Depthwise& s) {
  Tensor packed = HugeTensor(DType::kFloat, Shape{s.blocks, s.rows.Taps(), s.rows.block});
  std::fill_n(packed.data<float>(), packed.size(), 0.0f);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t t = 0; t < s.rows.Taps(); ++t) {
      packed
          .data<float>()[(c / s.rows.block * s.rows.Taps() + t) * s.rows.block + c % s.rows.block] =
          weights.data<float>()[c * s.rows.Taps() + t];
    }
  }
  return packed;
}

}  // namespace

Depthwise DepthwiseOf(const Convolution& c) {
  Depthwise s;
  s.rows = WindowRows::Of(c);
  s.blocks = ChannelBlocks(c.channels);
  s.activation = c.activation;
  return s;
}

Status DepthwiseAccepts(const Convolution& c, const CompileContext& context) {
  const auto blocked = [](const TensorDesc& d) { return d.layout == Layout::kChannelBlocked; };
  if (c.transposed || c.dtype != DType::kFloat || c.spatial_rank() > 2 || c.groups != c.channels ||
      c.groups != c.out_channels || context.constant(1) == nullptr || !blocked(context.inputs[0]) ||
      !blocked(context.outputs[0]) ||
      (c.residual_input >= 0 && !blocked(context.inputs[c.residual_input]))) {
    return Unimplemented("it needs one constant filter per channel and blocked channels");
  }
  if (context.inputs[0].size() == 0) return Unimplemented("its input is empty");
  if (const Depthwise s = DepthwiseOf(c); !s.rows.EdgesFit(s.RowsAtOnce())) {
    return Unimplemented("its windows reach too far");
  }
  if (context.outputs[0].filled_up() && Activate(c.activation, 0.0f) != 0) {
    return Unimplemented("its activation makes other than zero of what fills up the last block");
  }
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileDepthwise(const Convolution& c,
                                                   const CompileContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(DepthwiseAccepts(c, context));
  const Tensor* weights = context.constant(1);
  const Depthwise s = DepthwiseOf(c);
  CHAIRLIFT_ASSIGN_OR_RETURN(
      Tensor filters, context.weights.Get(*weights, fmt::format("depthwise {}", c.groups), [&] {
        return StatusOr<Tensor>(PackDepthwiseFilters(*weights, c.channels, s));
      }));
  return std::make_unique<DepthwiseKernel>(s, c, std::move(filters), context.width);
}

}  // namespace chairlift
