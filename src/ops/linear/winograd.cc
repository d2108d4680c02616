#include "ops/linear/winograd.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "device/cpu/isa.h"
#include "ops/linear/huge_tensor.h"
#include "ops/linear/packed_gemm.h"

namespace chairlift {
namespace {

// Tiles computed together: few enough that V and Z stay in the second-level cache, and a multiple
// of the register tile's rows. A small image is one block, so that U is read once.
constexpr int64_t kTileBlock = 28;
constexpr int64_t kWholeImage = 49;
// Below this, too much of the 4×4 tiles is outside the image.
constexpr int64_t kMinExtent = 12;
// Except if there are many tiles that overhang by at most this.
constexpr int64_t kManyTiles = 24;
constexpr double kMinCovered = 0.55;
// Or if an image is low and wide, such as a line of text, for which oneDNN has no Winograd. From
// this many saved multiplications per pair of channels on, reading four times the weights is worth
// it.
constexpr int64_t kLow = 6;
constexpr double kMinSaved = 400;
constexpr int64_t kMinChannels = 24;
constexpr int64_t kPartsAWorker = 8;

// U[ξ] = G g Gᵀ of one 3×3 filter, in double.
void TransformFilter(const float* filter, double (&u)[kWinogradPoints]) {
  constexpr double kP2 = 0.390625, kQ2 = 2.25;
  constexpr double kAtP = 1.0 / (2 * kP2 * (kP2 - kQ2)), kAtQ = 1.0 / (2 * kQ2 * (kQ2 - kP2));
  constexpr double kG[6][3] = {{1.0 / (kP2 * kQ2), 0, 0},         {kAtP, 0.625 * kAtP, kP2 * kAtP},
                               {kAtP, -0.625 * kAtP, kP2 * kAtP}, {kAtQ, 1.5 * kAtQ, kQ2 * kAtQ},
                               {kAtQ, -1.5 * kAtQ, kQ2 * kAtQ},   {0, 0, 1}};
  double half[6][3];
  for (int i = 0; i < 6; ++i) {
    for (int j = 0; j < 3; ++j) {
      half[i][j] = kG[i][0] * filter[j] + kG[i][1] * filter[3 + j] + kG[i][2] * filter[6 + j];
    }
  }
  for (int i = 0; i < 6; ++i) {
    for (int j = 0; j < 6; ++j) {
      u[6 * i + j] = half[i][0] * kG[j][0] + half[i][1] * kG[j][1] + half[i][2] * kG[j][2];
    }
  }
}

// [out_channels, channels, 3, 3] to the panels of WinogradMultiply, with `stored` channels
// including padding.
Tensor PackFilters(const Tensor& weights, const Convolution& c, int64_t stored) {
  const int64_t out_channels = c.out_channels, channels = c.channels;
  const int64_t panels = GemmPanels(out_channels);
  Tensor packed = HugeTensor(DType::kFloat, Shape{panels, kWinogradPoints, stored, kGemmPanel});
  auto* to = packed.data<float>();
  std::memset(to, 0, packed.byte_size());
  double u[kWinogradPoints];
  for (int64_t o = 0; o < out_channels; ++o) {
    for (int64_t c = 0; c < channels; ++c) {
      TransformFilter(weights.data<float>() + (o * channels + c) * 9, u);
      for (int64_t point = 0; point < kWinogradPoints; ++point) {
        to[((o / kGemmPanel * kWinogradPoints + point) * stored + c) * kGemmPanel +
           o % kGemmPanel] = static_cast<float>(u[point]);
      }
    }
  }
  return packed;
}

// Two ways to distribute the work. With enough tiles, each part computes a range of them from input
// to output. With few tiles, all parts first transform some of the input, then each computes some
// of the output panels. There are several parts per worker, so that one whose core is shared takes
// fewer.
class WinogradKernel final : public Kernel {
 public:
  WinogradKernel(const WinogradGeometry& geometry, int64_t tiles, int width, Tensor filters,
                 int64_t biases, int bias_input, int residual_input)
      : g_(geometry),
        biases_(biases),
        tiles_(tiles),
        panels_(GemmPanels(geometry.out_channels)),
        filters_(std::move(filters)),
        bias_input_(bias_input),
        residual_input_(residual_input),
        width_(width) {
    by_tiles_ = width == 1 || tiles >= 2 * kTileBlock * width || panels_ == 1;
    const int64_t pieces = by_tiles_ ? tiles / (kTileBlock * width) : panels_ / (2 * width);
    const int64_t parts = width == 1 ? 1 : width * std::clamp<int64_t>(pieces, 1, kPartsAWorker);
    parts_ = static_cast<int>(std::min(parts, by_tiles_ ? tiles : panels_));
    const int64_t most = by_tiles_ ? (tiles + parts_ - 1) / parts_ : tiles;
    blocks_ = most <= kWholeImage ? 1 : (most + kTileBlock - 1) / kTileBlock;
    capacity_ = (most + blocks_ - 1) / blocks_;
    v_floats_ = Aligned(kWinogradPoints * capacity_ * g_.TileStride());
    z_floats_ = Aligned(kWinogradPoints * capacity_ * kGemmPanel);
  }

  size_t scratch_bytes() const override {
    const int64_t v_copies = by_tiles_ ? width_ : 1;
    return static_cast<size_t>(v_copies * v_floats_ + width_ * z_floats_ + panels_ * kGemmPanel) *
           sizeof(float);
  }

  Status Run(const KernelArgs& args) const override {
    const auto* x = static_cast<const float*>(args.inputs[0]);
    auto* v = static_cast<float*>(args.scratch);
    float* z = v + (by_tiles_ ? width_ : 1) * v_floats_;
    WinogradOperands operands{};
    operands.capacity = capacity_;
    operands.u = filters_.data<float>();
    operands.y = static_cast<float*>(args.outputs[0]);
    if (residual_input_ >= 0)
      operands.residual = static_cast<const float*>(args.inputs[residual_input_]);
    if (bias_input_ >= 0) {
      // Whole panels: the last may be wider than the number of channels.
      float* bias = z + width_ * z_floats_;
      std::fill_n(bias, panels_ * kGemmPanel, 0.0f);
      std::copy_n(static_cast<const float*>(args.inputs[bias_input_]), biases_, bias);
      operands.bias = bias;
    }
    const auto slot = [this](int worker) { return width_ == 1 ? 0 : worker; };
    if (by_tiles_) {
      args.team.For(parts_, [&](int part, int worker) {
        WinogradOperands mine = operands;
        float* my_v = v + slot(worker) * v_floats_;
        mine.v = my_v;
        mine.z = z + slot(worker) * z_floats_;
        const int64_t begin = tiles_ * part / parts_, end = tiles_ * (part + 1) / parts_;
        for (int64_t block = 0; block < blocks_; ++block) {
          const int64_t first = begin + (end - begin) * block / blocks_;
          const int64_t count = begin + (end - begin) * (block + 1) / blocks_ - first;
          WinogradTransformInput(g_, x, first, count, capacity_, my_v);
          WinogradMultiply(g_, mine, first, count, 0, panels_);
        }
      });
      return absl::OkStatus();
    }
    operands.v = v;
    for (int64_t block = 0; block < blocks_; ++block) {
      const int64_t first = tiles_ * block / blocks_;
      const int64_t count = tiles_ * (block + 1) / blocks_ - first;
      args.team.For(parts_, [&](int part, int) {
        const int64_t begin = count * part / parts_, end = count * (part + 1) / parts_;
        WinogradTransformInput(g_, x, first + begin, end - begin, capacity_,
                               v + begin * g_.TileStride());
      });
      args.team.For(parts_, [&](int part, int worker) {
        WinogradOperands mine = operands;
        mine.z = z + slot(worker) * z_floats_;
        WinogradMultiply(g_, mine, first, count, panels_ * part / parts_,
                         panels_ * (part + 1) / parts_);
      });
    }
    return absl::OkStatus();
  }

 private:
  static int64_t Aligned(int64_t floats) { return (floats + 15) / 16 * 16; }

  WinogradGeometry g_;
  int64_t biases_;
  int64_t tiles_, panels_;
  Tensor filters_;
  int bias_input_, residual_input_;
  int width_;
  bool by_tiles_ = false;
  int parts_ = 1;
  int64_t blocks_ = 1, capacity_ = 0, v_floats_ = 0, z_floats_ = 0;
};

}  // namespace

StatusOr<std::unique_ptr<Kernel>> CompileWinogradConvolution(const Convolution& c,
                                                             const CompileContext& context) {
  const auto all = [](const std::vector<int64_t>& v, int64_t value) {
    return std::all_of(v.begin(), v.end(), [value](int64_t x) { return x == value; });
  };
  if (c.transposed || c.dtype != DType::kFloat || c.spatial_rank() != 2 || c.groups != 1 ||
      !all(c.kernel, 3) || !all(c.strides, 1) || !all(c.dilations, 1)) {
    return Unimplemented("it is for 3x3 convolutions of stride 1 in one group");
  }
  if (ActiveCpuIsa() == CpuIsa::kBaseline) return Unimplemented("it needs AVX2");
  if (context.constant(1) == nullptr) return Unimplemented("it needs constant weights");
  bool blocked = context.inputs[0].layout == Layout::kChannelBlocked &&
                 context.outputs[0].layout == Layout::kChannelBlocked;
  if (c.residual_input >= 0) {
    blocked = blocked && context.inputs[c.residual_input].layout == Layout::kChannelBlocked;
  }
  if (!blocked || c.channels < kMinChannels || c.out_channels < kMinChannels) {
    return Unimplemented("it needs channel-blocked operands of {} channels or more", kMinChannels);
  }
  if (context.outputs[0].filled_up() && Activate(c.activation, 0.0f) != 0) {
    return Unimplemented("its activation makes other than zero of what fills up the last block");
  }
  WinogradGeometry g;
  g.channels = ChannelBlocks(c.channels) * ChannelBlock();
  g.out_channels = ChannelBlocks(c.out_channels) * ChannelBlock();
  g.filters = c.out_channels;
  g.height = c.in[0];
  g.width = c.in[1];
  g.out_height = c.out[0];
  g.out_width = c.out[1];
  g.pad_top = c.pads_begin[0];
  g.pad_left = c.pads_begin[1];
  g.tiles_y = (g.out_height + 3) / 4;
  g.tiles_x = (g.out_width + 3) / 4;
  g.activation = c.activation;
  const int64_t tiles = c.batch * g.tiles_y * g.tiles_x;
  const double covered =
      static_cast<double>(c.batch * g.out_height * g.out_width) / static_cast<double>(16 * tiles);
  const bool large = c.out[0] >= kMinExtent && c.out[1] >= kMinExtent;
  const bool many = tiles >= kManyTiles && covered >= kMinCovered;
  const bool low =
      std::min(c.out[0], c.out[1]) < kLow || std::max(c.out[0], c.out[1]) >= kMinExtent;
  const double saved = static_cast<double>(c.batch * g.out_height * g.out_width * 9 - tiles * 36);
  if (!large && !many && !(low && saved >= kMinSaved)) {
    return Unimplemented("its tiles overhang outputs under {0}x{0} too much", kMinExtent);
  }
  const Tensor& weights = *context.constant(1);
  CHAIRLIFT_ASSIGN_OR_RETURN(Tensor filters, context.weights.Get(weights, "winograd 4x4", [&] {
    return StatusOr<Tensor>(PackFilters(weights, c, g.channels));
  }));
  return std::unique_ptr<Kernel>(new WinogradKernel(
      g, tiles, context.width, std::move(filters), c.out_channels, c.bias_input, c.residual_input));
}

}  // namespace chairlift
