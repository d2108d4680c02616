#include "ops/movement/channel_moves.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"

namespace chairlift {
namespace {

constexpr int64_t kFloatsWorthSharing = 1 << 16;

}  // namespace

ChannelMoves::ChannelMoves(std::span<const int64_t> input_channels,
                           std::span<const ChannelOf> channels, const TensorDesc& output)
    : images_(output.size() == 0 ? 0 : output.shape[0]),
      positions_(output.shape.NumElements(2, output.shape.rank())) {
  const int lanes = ChannelBlock();
  for (const int64_t count : input_channels) {
    input_image_.push_back(ChannelBlocks(count) * positions_ * lanes);
  }
  parts_.resize(static_cast<size_t>(ChannelBlocks(static_cast<int64_t>(channels.size()))));
  for (size_t i = 0; i < channels.size(); ++i) {
    std::vector<BlockPart>& parts = parts_[i / static_cast<size_t>(lanes)];
    const size_t lane = i % static_cast<size_t>(lanes);
    const int input = channels[i].input;
    const int64_t channel = channels[i].channel;
    auto part = std::find_if(parts.begin(), parts.end(), [&](const BlockPart& p) {
      return p.input == input && p.block == channel / lanes;
    });
    if (part == parts.end()) {
      part = parts.insert(part, {.input = input, .block = channel / lanes});
    }
    part->from[lane] = static_cast<int32_t>(channel % lanes);
    part->mask[lane] = -1;
  }
}

void ChannelMoves::Run(std::span<const void* const> inputs, void* output, Team& team) const {
  const int lanes = ChannelBlock();
  const auto blocks = static_cast<int64_t>(parts_.size());
  const int64_t all = images_ * blocks;
  const int64_t block_floats = positions_ * lanes;
  const int parts = all * block_floats < kFloatsWorthSharing
                        ? 1
                        : static_cast<int>(std::min<int64_t>(all, 2 * int64_t{team.width()}));
  team.For(parts, [&](int part, int) {
    absl::InlinedVector<const float*, 8> of_image(inputs.size());
    for (int64_t at = all * part / parts, end = all * (part + 1) / parts; at < end;) {
      const int64_t image = at / blocks, first = at % blocks;
      const int64_t last = std::min(blocks, first + end - at);
      for (size_t i = 0; i < inputs.size(); ++i) {
        of_image[i] = static_cast<const float*>(inputs[i]) + image * input_image_[i];
      }
      MoveChannels(parts_, first, last, of_image, positions_, lanes,
                   static_cast<float*>(output) + image * blocks * block_floats);
      at += last - first;
    }
  });
}

}  // namespace chairlift
