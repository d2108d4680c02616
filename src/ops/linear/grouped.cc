#include "ops/linear/grouped.h"

#include <algorithm>
#include <utility>

#include "ops/linear/convolution.h"
#include "ops/linear/huge_tensor.h"

namespace chairlift {
namespace {

// The limit for groups with more inputs than a block, and few outputs. Row by row, oneDNN reaches
// less than a quarter of the peak.
constexpr double kMostWaste = 4;

class GroupedKernel final : public Kernel {
 public:
  GroupedKernel(const Grouped& shape, const Convolution& c, Tensor filters, int width)
      : s_(shape),
        planes_(c.batch * shape.OutBlocks()),
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
    return static_cast<size_t>(s_.OutBlocks() * s_.rows.block + slots_ * s_.ScratchFloats()) *
           sizeof(float);
  }

  Status Run(const KernelArgs& args) const override {
    const auto input = [&](int i) {
      return i < 0 ? nullptr : static_cast<const float*>(args.inputs[static_cast<size_t>(i)]);
    };
    const int64_t blocks = s_.OutBlocks();
    float* bias = nullptr;
    if (bias_input_ >= 0) {
      // Whole blocks: the last may be wider than the number of channels.
      bias = static_cast<float*>(args.scratch);
      std::copy_n(input(bias_input_), s_.out_channels, bias);
      std::fill(bias + s_.out_channels, bias + blocks * s_.rows.block, 0.0f);
    }
    const float *x = input(0), *residual = input(residual_input_);
    auto* y = static_cast<float*>(args.outputs[0]);
    float* const copies = static_cast<float*>(args.scratch) + blocks * s_.rows.block;
    const int64_t plane_parts = parts_ / row_parts_;
    args.team.For(parts_, [&](int part, int worker) {
      const int64_t of_planes = part / row_parts_, of_rows = part % row_parts_;
      for (int64_t p = planes_ * of_planes / plane_parts;
           p < planes_ * (of_planes + 1) / plane_parts; ++p) {
        const int64_t block = p % blocks, to = p * s_.OutPlane();
        GroupedRows(s_, block, x + p / blocks * s_.InBlocks() * s_.rows.InPlane(),
                    filters_.data<float>() + block * s_.FilterFloats(),
                    bias == nullptr ? nullptr : bias + block * s_.rows.block,
                    residual == nullptr ? nullptr : residual + to,
                    s_.rows.y.out * of_rows / row_parts_,
                    s_.rows.y.out * (of_rows + 1) / row_parts_, y + to,
                    copies + (slots_ == 1 ? 0 : worker) * s_.ScratchFloats());
      }
    });
    return absl::OkStatus();
  }

 private:
  const Grouped s_;
  const int64_t planes_;  // blocks of outputs of all images
  const int bias_input_, residual_input_;
  const Tensor filters_;
  int64_t slots_ = 1;      // workers that may need scratch memory
  int64_t row_parts_ = 1;  // of each plane
  int parts_ = 1;
};

// [out_channels, in_group, taps…] to [blocks, planes, taps, block].
Tensor PackGroupedFilters(const Tensor& weights, const Grouped& s) {
  const int64_t taps = s.rows.Taps(), block = s.rows.block;
  Tensor packed = HugeTensor(DType::kFloat, Shape{s.OutBlocks(), s.FilterFloats()});
  std::fill_n(packed.data<float>(), packed.size(), 0.0f);
  for (int64_t o = 0; o < s.out_channels; ++o) {
    float* to = packed.data<float>() + o / block * s.FilterFloats() + o % block;
    const int64_t first =
        s.by_lanes ? 0 : o / s.out_group * s.in_group - s.Channels(o / block).first;
    for (int64_t k = 0; k < s.in_group; ++k) {
      for (int64_t t = 0; t < taps; ++t) {
        to[((first + k) * taps + t) * block] =
            weights.data<float>()[(o * s.in_group + k) * taps + t];
      }
    }
  }
  return packed;
}

// Whether the channels that a vector of outputs is multiplied with together are in two vectors of
// inputs.
bool InTwoVectors(const Grouped& s, int64_t lanes) {
  if (s.in_group >= s.rows.block) return false;
  for (int64_t first = 0; first < s.out_channels; first += lanes) {
    const int64_t last = std::min(s.out_channels, first + lanes) - 1;
    for (int64_t k = 0; k < s.in_group; ++k) {
      const auto vector = [&](int64_t output) {
        return (output / s.out_group * s.in_group + k) / lanes;
      };
      int64_t met = 1;
      for (int64_t o = first + 1; o <= last; ++o) met += vector(o) != vector(o - 1);
      if (met > 2) return false;
    }
  }
  return true;
}

Grouped OfChannels(int64_t groups, int64_t channels, int64_t out_channels) {
  Grouped s;
  s.rows.block = ChannelBlock();
  s.channels = channels;
  s.out_channels = out_channels;
  s.in_group = channels / groups;
  s.out_group = out_channels / groups;
  s.by_lanes = InTwoVectors(s, GroupedLanes());
  return s;
}

}  // namespace

int64_t Grouped::MostPlanes() const {
  int64_t most = 0;
  for (int64_t b = 0; b < OutBlocks(); ++b) most = std::max(most, Planes(b));
  return most;
}

double Grouped::Waste() const {
  int64_t done = 0;
  for (int64_t b = 0; b < OutBlocks(); ++b) done += Planes(b) * rows.block;
  return static_cast<double>(done) / static_cast<double>(out_channels * in_group);
}

int64_t Grouped::MostChannels() const {
  int64_t most = 0;
  for (int64_t b = 0; b < OutBlocks(); ++b) most = std::max(most, Channels(b).size());
  return most;
}

int64_t Grouped::RowsAtOnce() const {
  constexpr int64_t kCachedFloats = 4096;
  const int64_t of_row = MostChannels() * rows.x.Reach(std::min<int64_t>(8, rows.x.out));
  return std::max<int64_t>(1, kCachedFloats / (of_row * rows.y.stride));
}

int64_t Grouped::ScratchFloats() const {
  // A range of channels may begin and end within blocks.
  const int64_t blocks = (MostChannels() + rows.block - 1) / rows.block + 1;
  return blocks * rows.EdgeFloats(RowsAtOnce());
}

bool GroupsFitBlocks(int64_t groups, int64_t channels, int64_t out_channels) {
  return groups > 1 && FillsBlocks(channels) && FillsBlocks(out_channels) &&
         OfChannels(groups, channels, out_channels).Waste() <= kMostWaste;
}

StatusOr<std::unique_ptr<Kernel>> CompileGrouped(const Convolution& c,
                                                 const CompileContext& context) {
  const Tensor* weights = context.constant(1);
  const auto blocked = [](const TensorDesc& d) { return d.layout == Layout::kChannelBlocked; };
  if (c.transposed || c.dtype != DType::kFloat || c.spatial_rank() > 2 || c.scale_input >= 0 ||
      (c.groups == c.channels && c.groups == c.out_channels) || weights == nullptr ||
      !blocked(context.inputs[0]) || !blocked(context.outputs[0]) ||
      (c.residual_input >= 0 && !blocked(context.inputs[c.residual_input])) ||
      !GroupsFitBlocks(c.groups, c.channels, c.out_channels)) {
    return Unimplemented("it is for groups of constant filters, on blocked channels");
  }
  Grouped s = OfChannels(c.groups, c.channels, c.out_channels);
  if (s.in_group % s.rows.block == 0 && s.out_group % s.rows.block == 0) {
    return Unimplemented("its groups are whole blocks");
  }
  s.rows = WindowRows::Of(c);
  s.activation = c.activation;
  if (!s.rows.EdgesFit(s.RowsAtOnce())) return Unimplemented("its windows reach too far");
  CHAIRLIFT_ASSIGN_OR_RETURN(
      Tensor filters, context.weights.Get(*weights, fmt::format("grouped {}", c.groups), [&] {
        return StatusOr<Tensor>(PackGroupedFilters(*weights, s));
      }));
  return std::make_unique<GroupedKernel>(s, c, std::move(filters), context.width);
}

}  // namespace chairlift
