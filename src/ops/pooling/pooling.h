// The operators of this folder, one function each, and common helpers.
#ifndef CHAIRLIFT_OPS_POOLING_POOLING_H_
#define CHAIRLIFT_OPS_POOLING_POOLING_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/operator.h"
#include "ops/window.h"

namespace chairlift {

void RegisterPool(OperatorRegistry& registry);
void RegisterGlobalPool(OperatorRegistry& registry);
void RegisterMaxUnpool(OperatorRegistry& registry);

// The taps of one window that are inside the input, along one axis: `count` taps from input index
// `first` on, `dilation` apart.
struct Taps {
  int64_t first = 0;
  int64_t count = 0;
  int64_t with_padding = 0;  // taps inside the input or its padding
};

// A pooling bound to shapes. Always three spatial axes: inputs with fewer have leading axes of one.
struct PoolGeometry {
  int64_t planes = 0;  // stored images × channels
  std::array<int64_t, 3> in{}, out{}, dilation{};
  std::array<std::vector<Taps>, 3> taps;  // one per output index

  static PoolGeometry Make(const Window& window, int64_t planes, const Shape& in, const Shape& out);
  int64_t InSize() const { return in[0] * in[1] * in[2]; }
  int64_t OutSize() const { return out[0] * out[1] * out[2]; }
  // The approximate number of reads of all windows.
  double Work() const;
  // Whether windows overlap so much that it is better to fold the rows of each output row into one
  // row of input first, and then that row along the last axis.
  bool FoldsRows() const;
};

enum class PoolKind : uint8_t { kMax, kAverage, kAverageWithPadding, kLp };

// A blocked form with float32 input and output in blocks of channels, for operators of one output.
std::optional<BlockedForm> PoolBlockedForm(const Attributes& attributes,
                                           std::span<const ValueInfo> inputs,
                                           std::span<const ValueInfo> outputs);

// kMax or an average over float32 planes [first, last) of `block` (8 or 16) interleaved channels
// each. `row`, in[2] · block floats, is scratch memory if the geometry folds rows.
void PoolBlocked(PoolKind kind, const PoolGeometry& geometry, int block, const float* in,
                 float* out, int64_t first, int64_t last, float* row);
// The mean or maximum of each of the `block` interleaved channels of planes [first, last), with
// `size` positions each. Block 1: of each plane.
void GlobalPoolFloat(PoolKind kind, int64_t size, int block, const float* in, float* out,
                     int64_t first, int64_t last);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_POOLING_POOLING_H_
