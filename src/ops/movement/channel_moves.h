// Builds tensors in blocks of channels from whole channels of others: the common form of joining,
// slicing, splitting and shuffling channels.
#ifndef CHAIRLIFT_OPS_MOVEMENT_CHANNEL_MOVES_H_
#define CHAIRLIFT_OPS_MOVEMENT_CHANNEL_MOVES_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/operator.h"

namespace chairlift {

// A channel of one of several tensors.
struct ChannelOf {
  int input = 0;
  int64_t channel = 0;
};

// What a block of an output takes from a block of an input: lane i is lane from[i] if mask[i] is
// not 0.
struct BlockPart {
  static constexpr int kMaxLanes = 16;
  int input = 0;
  int64_t block = 0;
  std::array<int32_t, kMaxLanes> from{};
  std::array<int32_t, kMaxLanes> mask{};
};

// Immutable; Run() is thread-safe.
class ChannelMoves {
 public:
  // Output channel i is `channels[i]` of inputs with `input_channels` channels each. All are
  // channel-blocked float32 tensors with the same images, spatial axes and rank as `output`.
  ChannelMoves(std::span<const int64_t> input_channels, std::span<const ChannelOf> channels,
               const TensorDesc& output);

  void Run(std::span<const void* const> inputs, void* output, Team& team) const;

 private:
  int64_t images_, positions_;
  std::vector<int64_t> input_image_;           // floats per image of each input
  std::vector<std::vector<BlockPart>> parts_;  // for each output block
};

// Output blocks [first, last) of one image: `inputs` are that image's part of each input. Lanes in
// no part become zero. Blocks have `lanes` channels at each of `positions`.
void MoveChannels(std::span<const std::vector<BlockPart>> blocks, int64_t first, int64_t last,
                  std::span<const float* const> inputs, int64_t positions, int lanes,
                  float* output);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_MOVEMENT_CHANNEL_MOVES_H_
