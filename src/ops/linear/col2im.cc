#include "ops/linear/col2im.h"

#include <algorithm>
#include <utility>

#include "ops/linear/convolution.h"
#include "ops/linear/huge_tensor.h"
#include "ops/linear/packed_gemm.h"

namespace chairlift {
namespace {

// Floats that should fit in the second-level cache together: the columns of a block of pixels, and
// its products, have kBlockFloats each. A band of output rows has about kBandFloats.
constexpr int64_t kBlockFloats = 32 << 10;
constexpr int64_t kBandFloats = 256 << 10;

// One group, with two spatial axes: the first is 1 if there is only one.
struct Shape2d {
  int64_t channels = 0, out_channels = 0;
  int64_t height = 1, width = 1, out_height = 1;
  int64_t taps_y = 1, stride_y = 1, dilation_y = 1, pad_y = 0;
  Col2imRow row;

  int64_t Taps() const { return taps_y * row.taps; }
  int64_t InPlane() const { return height * width; }
  int64_t OutPlane() const { return out_height * row.out; }
};

Shape2d ShapeOf(const Convolution& c) {
  Shape2d s;
  s.channels = c.channels / c.groups;
  s.out_channels = c.out_channels / c.groups;
  const int last = c.spatial_rank() - 1;
  if (last == 1) {
    s.height = c.in[0];
    s.out_height = c.out[0];
    s.taps_y = c.kernel[0];
    s.stride_y = c.strides[0];
    s.dilation_y = c.dilations[0];
    s.pad_y = c.pads_begin[0];
  }
  s.width = c.in[last];
  s.row = {.out = c.out[last],
           .taps = c.kernel[last],
           .stride = c.strides[last],
           .dilation = c.dilations[last],
           .pad = c.pads_begin[last]};
  return s;
}

// Floats from one row of weights to the next, so that their tiles do not share a cache set.
int64_t RowStride(int64_t channels) {
  return PacksRows(kGemmRowBlock, channels, 1) ? channels + 16 : channels;
}

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

class Col2imKernel final : public Kernel {
 public:
  // `weights`: for all groups, [out_channels · taps, RowStride(channels)].
  Col2imKernel(const Convolution& c, Tensor weights, int width)
      : s_(ShapeOf(c)),
        row_stride_(RowStride(s_.channels)),
        images_(c.batch),
        groups_(c.groups),
        bias_input_(c.bias_input),
        activation_(c.activation),
        weights_(std::move(weights)),
        shared_(width > 1 && c.WorthSharing()),
        slots_(shared_ ? width : 1) {
    block_ = std::clamp(kBlockFloats / std::max<int64_t>(s_.channels, 1) / kGemmPanel, int64_t{1},
                        int64_t{16}) *
             kGemmPanel;
    block_ = std::clamp(RoundUp(s_.InPlane(), kGemmPanel), kGemmPanel, block_);
    chunk_ = std::clamp<int64_t>(kBlockFloats / (s_.Taps() * block_), 1, s_.out_channels);
    // Neighbouring bands both read some input rows if taps overlap. Bands are then made high.
    const int64_t extent = (s_.taps_y - 1) * s_.dilation_y + 1;
    const int64_t least = extent > s_.stride_y ? 4 * extent : s_.stride_y;
    const int64_t fits = kBandFloats / (s_.out_channels * s_.row.out);
    const int64_t rows = std::max(fits / s_.stride_y * s_.stride_y, least);
    bands_ = (s_.out_height + rows - 1) / rows;
    if (shared_) bands_ = std::max(bands_, std::min<int64_t>(slots_, s_.out_height / least));
    bands_ = std::max<int64_t>(bands_, 1);
    const int64_t parts = images_ * groups_ * bands_;
    if (shared_ && parts < slots_) {
      channel_parts_ = std::min<int64_t>((slots_ + parts - 1) / parts, s_.out_channels);
    }
  }

  size_t scratch_bytes() const override {
    return static_cast<size_t>(slots_ * SlotFloats()) * sizeof(float);
  }

  Status Run(const KernelArgs& args) const override {
    const auto parts = static_cast<int>(images_ * groups_ * bands_ * channel_parts_);
    auto* const scratch = static_cast<float*>(args.scratch);
    if (!shared_) {
      for (int part = 0; part < parts; ++part) RunPart(args, part, scratch);
      return absl::OkStatus();
    }
    const bool alone = args.team.width() == 1;
    args.team.For(parts, [&](int part, int worker) {
      RunPart(args, part, scratch + (alone ? 0 : worker) * SlotFloats());
    });
    return absl::OkStatus();
  }

 private:
  // Part of one group of one image: output rows [top, bottom) of channels [first, last).
  struct Part {
    const float* x;
    const float* weights;
    const float* bias;
    float* y;
    int64_t top, bottom;
    int64_t first, last;
  };

  int64_t ColumnFloats() const { return PackedGemmSize(s_.channels, block_); }
  int64_t SlotFloats() const { return RoundUp(ColumnFloats() + chunk_ * s_.Taps() * block_, 16); }

  void RunPart(const KernelArgs& args, int64_t index, float* scratch) const {
    const int64_t piece = index % channel_parts_, band = index / channel_parts_ % bands_;
    const int64_t image_group = index / channel_parts_ / bands_;
    const int64_t group = image_group % groups_;
    Part part{};
    part.x = static_cast<const float*>(args.inputs[0]) + image_group * s_.channels * s_.InPlane();
    part.weights = weights_.data<float>() + group * s_.out_channels * s_.Taps() * row_stride_;
    if (bias_input_ >= 0) {
      part.bias = static_cast<const float*>(args.inputs[bias_input_]) + group * s_.out_channels;
    }
    part.y = static_cast<float*>(args.outputs[0]) + image_group * s_.out_channels * s_.OutPlane();
    // Bands begin at multiples of the stride, so that no two need the same input row if taps do not
    // overlap.
    const int64_t steps = (s_.out_height + s_.stride_y - 1) / s_.stride_y;
    part.top = steps * band / bands_ * s_.stride_y;
    part.bottom = std::min(steps * (band + 1) / bands_ * s_.stride_y, s_.out_height);
    part.first = s_.out_channels * piece / channel_parts_;
    part.last = s_.out_channels * (piece + 1) / channel_parts_;
    Compute(part, scratch);
  }

  void Compute(const Part& part, float* scratch) const {
    const auto row = [&](int64_t channel, int64_t y) {
      return part.y + channel * s_.OutPlane() + y * s_.row.out;
    };
    const int64_t band = (part.bottom - part.top) * s_.row.out;
    for (int64_t c = part.first; c < part.last; ++c) {
      std::fill_n(row(c, part.top), band, part.bias == nullptr ? 0.0f : part.bias[c]);
    }
    // Input rows with a tap in the band.
    const int64_t reach = (s_.taps_y - 1) * s_.dilation_y - s_.pad_y;
    const int64_t above = part.top - reach;  // from the first output row where tap 0 may be
    const int64_t begin =
        std::clamp<int64_t>(above <= 0 ? 0 : (above + s_.stride_y - 1) / s_.stride_y, 0, s_.height);
    const int64_t below = part.bottom - 1 + s_.pad_y;
    const int64_t end = std::clamp<int64_t>(below / s_.stride_y + 1, begin, s_.height);
    for (int64_t first = begin * s_.width; first < end * s_.width; first += block_) {
      AddPixels(part, first, std::min(block_, end * s_.width - first), scratch);
    }
    if (activation_.kind == ActivationKind::kNone) return;
    for (int64_t c = part.first; c < part.last; ++c) {
      ActivateInPlace(activation_, row(c, part.top), band);
    }
  }

  // Adds the contributions of input pixels [first, first + pixels).
  void AddPixels(const Part& part, int64_t first, int64_t pixels, float* scratch) const {
    float* const products = scratch + ColumnFloats();
    const int64_t panels = GemmPanels(pixels);
    PackGemmPanels(part.x + first, s_.InPlane(), 1, s_.channels, pixels, 0, panels, 1.0f, scratch);
    for (int64_t channel = part.first; channel < part.last; channel += chunk_) {
      const int64_t channels = std::min(chunk_, part.last - channel);
      PackedGemm({part.weights + channel * s_.Taps() * row_stride_, row_stride_, 1, scratch,
                  products, block_},
                 channels * s_.Taps(), s_.channels, pixels, 0, panels, {});
      for (int64_t c = 0; c < channels; ++c) {
        AddProducts(part, channel + c, products + c * s_.Taps() * block_, first, pixels);
      }
    }
  }

  void AddProducts(const Part& part, int64_t channel, const float* products, int64_t first,
                   int64_t pixels) const {
    for (int64_t at = first; at < first + pixels;) {
      const int64_t y = at / s_.width, x = at % s_.width;
      const int64_t run = std::min(s_.width - x, first + pixels - at);
      for (int64_t tap = 0; tap < s_.taps_y; ++tap) {
        const int64_t out = y * s_.stride_y + tap * s_.dilation_y - s_.pad_y;
        if (out < part.top || out >= part.bottom) continue;
        AddTaps(s_.row, products + tap * s_.row.taps * block_ + (at - first), block_, x, run,
                part.y + channel * s_.OutPlane() + out * s_.row.out);
      }
      at += run;
    }
  }

  const Shape2d s_;
  const int64_t row_stride_;
  const int64_t images_, groups_;
  const int bias_input_;
  const Activation activation_;
  const Tensor weights_;
  const bool shared_;
  const int64_t slots_;  // workers that may need scratch memory
  int64_t block_ = 0;    // input pixels together, in whole panels
  int64_t chunk_ = 0;    // output channels together
  int64_t bands_ = 1;    // of output rows
  int64_t channel_parts_ = 1;
};

}  // namespace

StatusOr<std::unique_ptr<Kernel>> CompileCol2im(const Convolution& c,
                                                const CompileContext& context) {
  const Tensor* weights = context.constant(1);
  if (!c.transposed || c.dtype != DType::kFloat || c.spatial_rank() > 2 || c.channels == 0 ||
      c.residual_input >= 0 || weights == nullptr ||
      context.inputs[0].layout != Layout::kRowMajor ||
      context.outputs[0].layout != Layout::kRowMajor) {
    return Unimplemented("it is for transposed convolutions of row-major float32, by constants");
  }
  const int64_t channels = c.channels / c.groups, rows = c.out_channels / c.groups * c.KernelSize();
  const int64_t stride = RowStride(channels);
  const auto pack = [&]() -> StatusOr<Tensor> {
    Tensor all = HugeTensor(DType::kFloat, Shape{c.groups, rows, stride});
    for (int64_t g = 0; g < c.groups; ++g) {
      const float* from = weights->data<float>() + g * channels * rows;
      float* to = all.data<float>() + g * rows * stride;
      for (int64_t k = 0; k < channels; ++k) {
        for (int64_t r = 0; r < rows; ++r) to[r * stride + k] = from[k * rows + r];
      }
    }
    return all;
  };
  CHAIRLIFT_ASSIGN_OR_RETURN(
      Tensor packed,
      context.weights.Get(*weights, fmt::format("col2im {} groups", c.groups), pack));
  return std::make_unique<Col2imKernel>(c, std::move(packed), context.width);
}

}  // namespace chairlift
