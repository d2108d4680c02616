#include "ops/linear/window_rows.h"

#include "ops/linear/convolution.h"

namespace chairlift {

WindowRows WindowRows::Of(const Convolution& c) {
  const auto axis = [&](size_t i) {
    return Axis{.in = c.in[i],
                .out = c.out[i],
                .taps = c.kernel[i],
                .stride = c.strides[i],
                .dilation = c.dilations[i],
                .pad = c.pads_begin[i]};
  };
  WindowRows rows;
  rows.block = ChannelBlock();
  rows.x = axis(c.in.size() - 1);
  if (c.spatial_rank() == 2) rows.y = axis(0);
  return rows;
}

}  // namespace chairlift
