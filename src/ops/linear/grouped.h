// Convolutions in groups whose channels are no whole blocks, on blocked channels, in two ways. By
// lanes, where a vector's groups have their inputs in two vectors at most: the k-th channels of its
// lanes' groups are brought side by side in registers, and no multiplication is wasted. Otherwise
// by channels: each one of the groups that a block of outputs belongs to is multiplied with all its
// lanes, by zero in those of other groups; an infinity or NaN in it then reaches the neighbouring
// group's outputs of that block.
#ifndef CHAIRLIFT_OPS_LINEAR_GROUPED_H_
#define CHAIRLIFT_OPS_LINEAR_GROUPED_H_

#include <algorithm>
#include <cstdint>

#include "ops/linear/activation.h"
#include "ops/linear/window_rows.h"

namespace chairlift {

struct Grouped {
  WindowRows rows;
  int64_t channels = 0, out_channels = 0;
  int64_t in_group = 1, out_group = 1;  // channels of one group
  bool by_lanes = false;
  Activation activation;

  struct Range {
    int64_t first, last;
    int64_t size() const { return last - first; }
  };

  int64_t OutBlocks() const { return (out_channels + rows.block - 1) / rows.block; }
  int64_t InBlocks() const { return (channels + rows.block - 1) / rows.block; }
  int64_t OutPlane() const { return rows.y.out * rows.x.out * rows.block; }  // floats of a block
  // The input channels of the groups that a block of outputs belongs to.
  Range Channels(int64_t out_block) const {
    const int64_t last = std::min(out_channels, (out_block + 1) * rows.block) - 1;
    return {out_block * rows.block / out_group * in_group, (last / out_group + 1) * in_group};
  }
  // Channels that each of a block's lanes is multiplied with.
  int64_t Planes(int64_t out_block) const {
    return by_lanes ? in_group : Channels(out_block).size();
  }
  int64_t MostPlanes() const;
  int64_t FilterFloats() const { return MostPlanes() * rows.Taps() * rows.block; }  // of a block
  // Multiplications for each one that is needed.
  double Waste() const;

  // As many rows as leave what they read in the first level of cache.
  int64_t RowsAtOnce() const;
  int64_t ScratchFloats() const;

 private:
  int64_t MostChannels() const;  // that a block of outputs reads
};

// Channels to a vector.
int64_t GroupedLanes();

// Rows [first, last) of block `out_block` of the outputs of an image `x`: `w` is its filters
// [planes, taps, block], `bias` its block of biases; `residual` and `y` are planes of outputs.
// `bias` and `residual` may be null. `scratch` is of ScratchFloats(). What fills up the last block
// is made zero.
void GroupedRows(const Grouped& shape, int64_t out_block, const float* x, const float* w,
                 const float* bias, const float* residual, int64_t first, int64_t last, float* y,
                 float* scratch);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_GROUPED_H_
