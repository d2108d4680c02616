// Shapes of tensors whose channels come last: [batch, spatial..., channels].
#ifndef CHAIRLIFT_OPS_QUANTIZATION_CHANNELS_LAST_H_
#define CHAIRLIFT_OPS_QUANTIZATION_CHANNELS_LAST_H_

#include "tensor/symbolic_shape.h"

namespace chairlift {

// Returns the shape [batch, channels, spatial...] of the same tensor with channels first.
inline SymbolicShape WithChannelsFirst(const SymbolicShape& last) {
  SymbolicShape first = last;
  for (int i = 1; last.has_rank() && i < last.rank(); ++i) {
    first[i] = last[i == 1 ? last.rank() - 1 : i - 1];
  }
  return first;
}
// Returns the shape [batch, spatial..., channels] of the same tensor with channels last.
inline SymbolicShape WithChannelsLast(const SymbolicShape& first) {
  SymbolicShape last = first;
  for (int i = 1; first.has_rank() && i < first.rank(); ++i) {
    last[i] = first[i + 1 == first.rank() ? 1 : i + 1];
  }
  return last;
}

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_QUANTIZATION_CHANNELS_LAST_H_
