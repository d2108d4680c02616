// Masks in QDQ form whose numbers no float holds.
#ifndef CHAIRLIFT_GRAPH_QUANTIZED_MASKS_H_
#define CHAIRLIFT_GRAPH_QUANTIZED_MASKS_H_

#include "graph/ir.h"

namespace chairlift {

// DequantizeLinear, then Add or Mul, then QuantizeLinear becomes chairlift::QLinearAdd or
// QLinearMul where what an operand's 8-bit integers stand for may overflow: (1 − mask) · lowest
// float, as quantisers write it, would be 0 times an infinity. Scales and zero points must be
// constants of one entry, and all integers of one type. Sub-graphs included. Returns how many.
int JoinQuantizedMasks(Graph& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_QUANTIZED_MASKS_H_
