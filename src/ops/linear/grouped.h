// Grouped convolutions on blocked channels whose groups are not whole blocks. There are two
// methods. By lanes: a register combines the k-th input channel of each output lane's group, so no
// multiplication is wasted. This requires that the inputs of a vector's groups are in at most two
// vectors. By channels, in all other cases: each input channel of an output block's groups is
// multiplied with all lanes of the block. Weights are zero in lanes of other groups. An infinity or
// NaN then also reaches the outputs of a neighbouring group in that block.
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
  int64_t in_group = 1, out_group = 1;  // channels per group
  bool by_lanes = false;
  Activation activation;

  struct Range {
    int64_t first, last;
    int64_t size() const { return last - first; }
  };

  int64_t OutBlocks() const { return (out_channels + rows.block - 1) / rows.block; }
  int64_t InBlocks() const { return (channels + rows.block - 1) / rows.block; }
  int64_t OutPlane() const { return rows.y.out * rows.x.out * rows.block; }  // floats of a block
  // The input channels of the groups in a block of outputs.
  Range Channels(int64_t out_block) const {
    const int64_t last = std::min(out_channels, (out_block + 1) * rows.block) - 1;
    return {out_block * rows.block / out_group * in_group, (last / out_group + 1) * in_group};
  }
  // Channels that each lane of a block is multiplied with.
  int64_t Planes(int64_t out_block) const {
    return by_lanes ? in_group : Channels(out_block).size();
  }
  int64_t MostPlanes() const;
  int64_t FilterFloats() const { return MostPlanes() * rows.Taps() * rows.block; }  // per block
  // Computed multiplications divided by necessary ones.
  double Waste() const;

  // The number of output rows whose inputs fit in the first-level cache.
  int64_t RowsAtOnce() const;
  int64_t ScratchFloats() const;

 private:
  int64_t MostChannels() const;  // read by a block of outputs
};

// Channels per vector on this machine.
int64_t GroupedLanes();

// Computes output rows [first, last) of block `out_block` from an image `x`. The block has the
// filters `w` [planes, taps, block], and `bias` is its block of biases. Both `residual` and `y` are
// planes of outputs. `bias` and `residual` may be null. `scratch` has ScratchFloats(). The padding
// of the last block is set to zero.
void GroupedRows(const Grouped& shape, int64_t out_block, const float* x, const float* w,
                 const float* bias, const float* residual, int64_t first, int64_t last, float* y,
                 float* scratch);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_GROUPED_H_
