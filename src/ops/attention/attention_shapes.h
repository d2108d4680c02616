// The sizes and strides of ONNX's Attention for concrete shapes.
#ifndef CHAIRLIFT_OPS_ATTENTION_ATTENTION_SHAPES_H_
#define CHAIRLIFT_OPS_ATTENTION_ATTENTION_SHAPES_H_

#include <cstdint>
#include <span>

#include "ops/implementations.h"
#include "ops/operator.h"

namespace chairlift {

// Strides along batch, head and row, in elements; columns are contiguous.
struct HeadStrides {
  int64_t batch = 0, head = 0, row = 0;
  int64_t column = 1;  // for a mask: may be 0
  int64_t At(int64_t b, int64_t h) const { return b * batch + h * head; }
};

struct AttentionSizes {
  int64_t batch = 0, heads = 0, kv_heads = 1;
  int64_t queries = 0;
  int64_t past = 0, total = 0;  // keys: earlier ones, and all
  int64_t head_size = 0, value_size = 0;
  int64_t mask_columns = 0;  // keys that the mask covers; all keys without a mask
  HeadStrides q, k, v, y;    // k and v: for new keys
  HeadStrides mask;

  // InvalidArgument names the input that does not fit the others.
  static StatusOr<AttentionSizes> Of(const CompileContext& context);
};

// All implementations of ONNX's Attention, in the order in which they are tried.
std::span<const Implementation<AttentionSizes>> AttentionImplementations();

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_ATTENTION_ATTENTION_SHAPES_H_
