// chairlift::ByteMaxPool: MaxPool of bytes with channels last, [batch, spatial..., channels].
#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "ops/axis_map.h"
#include "ops/element_type.h"
#include "ops/quantization/channels_last.h"
#include "ops/quantization/quantization.h"
#include "ops/ranges.h"
#include "ops/window.h"

namespace chairlift {
namespace {

Status InferByteMaxPool(InferContext& context) {
  const SymbolicShape& x = context.shape(0);
  if (!x.has_rank()) {
    context.set_output(0, context.dtype(0), x);
    return absl::OkStatus();
  }
  if (x.rank() < 3) return InvalidArgument("input {} needs a spatial axis", x.ToString());
  CHAIRLIFT_ASSIGN_OR_RETURN(const Window window,
                             Window::Parse(context.attributes(), x.rank() - 2, {}));
  SymbolicShape y = x;
  for (int i = 0; i < window.rank(); ++i) {
    if (window.pads_begin[i] >= window.Extent(i) || window.pads_end[i] >= window.Extent(i)) {
      return InvalidArgument("pads must be smaller than the window of {}", window.Extent(i));
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(y[i + 1], window.OutputDim(i, x[i + 1]));
  }
  context.set_output(0, context.dtype(0), std::move(y));
  return absl::OkStatus();
}

template <typename Q>
class ByteMaxPoolKernel final : public Kernel {
 public:
  ByteMaxPoolKernel(Window window, const Shape& x, const Shape& y)
      : window_(std::move(window)), channels_(x[x.rank() - 1]), positions_(y[0]) {
    for (int i = 0; i < window_.rank(); ++i) {
      in_.push_back(x[i + 1]);
      out_.push_back(y[i + 1]);
      pads_.push_back(window_.PadBegin(i, x[i + 1]));
      in_size_ *= x[i + 1];
      positions_ *= y[i + 1];
      taps_ *= window_.kernel[i];
    }
  }

  Status Run(const KernelArgs& args) const override {
    const auto* x = static_cast<const Q*>(args.inputs[0]);
    auto* y = static_cast<Q*>(args.outputs[0]);
    constexpr int64_t kMinToShare = int64_t{1} << 17;
    ForRanges(args.team, positions_, positions_ * channels_ * taps_, kMinToShare,
              [&](int64_t first, int64_t last) {
                for (int64_t i = first; i < last; ++i) Fold(x, i, y + i * channels_);
              });
    return absl::OkStatus();
  }

 private:
  void Fold(const Q* x, int64_t position, Q* __restrict y) const {
    bool any = false;
    for (int64_t tap = 0; tap < taps_; ++tap) {
      int64_t rest = position, which = tap, offset = 0, size = 1;
      bool inside = true;
      for (int i = window_.rank(); i-- > 0;) {
        const int64_t at = rest % out_[i] * window_.strides[i] - pads_[i] +
                           which % window_.kernel[i] * window_.dilations[i];
        inside = inside && at >= 0 && at < in_[i];
        offset += at * size;
        size *= in_[i];
        rest /= out_[i];
        which /= window_.kernel[i];
      }
      if (!inside) continue;
      const Q* from = x + (rest * in_size_ + offset) * channels_;
      if (any) {
        for (int64_t c = 0; c < channels_; ++c) y[c] = from[c] > y[c] ? from[c] : y[c];
      } else {
        std::memcpy(y, from, static_cast<size_t>(channels_));
        any = true;
      }
    }
    if (!any) std::fill_n(y, channels_, std::numeric_limits<Q>::lowest());
  }

  const Window window_;
  const int64_t channels_;
  int64_t positions_, in_size_ = 1, taps_ = 1;
  std::vector<int64_t> in_, out_, pads_;
};

StatusOr<std::unique_ptr<Kernel>> CompileByteMaxPool(const CompileContext& context) {
  const Shape& x = context.inputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(Window window, Window::Parse(context.attributes, x.rank() - 2, {}));
  return DispatchTypes<int8_t, uint8_t>(context.inputs[0].dtype,
                                        [&]<typename Q>() -> StatusOr<std::unique_ptr<Kernel>> {
                                          return std::make_unique<ByteMaxPoolKernel<Q>>(
                                              std::move(window), x, context.outputs[0].shape);
                                        });
}

}  // namespace

void RegisterByteMaxPool(OperatorRegistry& registry) {
  OperatorDef def;
  def.domain = "chairlift";
  def.name = "ByteMaxPool";
  def.input_types = {{DType::kInt8, DType::kUInt8}};
  def.infer = InferByteMaxPool;
  def.axes = FirstAxis<0>;
  def.compile = CompileByteMaxPool;
  registry.Add(std::move(def));
}

}  // namespace chairlift
