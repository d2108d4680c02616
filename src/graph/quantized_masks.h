// Masks in QDQ form whose values exceed the range of floats.
#ifndef CHAIRLIFT_GRAPH_QUANTIZED_MASKS_H_
#define CHAIRLIFT_GRAPH_QUANTIZED_MASKS_H_

#include "graph/ir.h"

namespace chairlift {

// Fuses DequantizeLinear, then Add or Mul, then QuantizeLinear to chairlift::QLinearAdd or
// QLinearMul if the 8-bit integers of an operand may represent an overflow. Quantizers write (1 −
// mask) · lowest float, which would be 0 times an infinity. Scales and zero points must be
// constants of one element, and all integers of one type. Includes sub-graphs. Returns the number
// of fusions.
int JoinQuantizedMasks(Graph& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_QUANTIZED_MASKS_H_
