// Attention between QuantizeLinear and DequantizeLinear.
#ifndef CHAIRLIFT_GRAPH_RAGGED_QUANTIZED_ATTENTION_H_
#define CHAIRLIFT_GRAPH_RAGGED_QUANTIZED_ATTENTION_H_

#include "graph/ir.h"

namespace chairlift::ragged {

// Fuses softmax(mask + scale · q · kᵀ) · v to chairlift::Attention where scores and weights are
// quantised and dequantised in between, with one scale each. These become its attribute `steps`.
// QLinearMatMul of two computed matrices counts as a product between such pairs. Scores that are
// quantised after a mask was added are left: no key would be hidden.
Status FuseQuantizedAttention(Graph& graph);

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_QUANTIZED_ATTENTION_H_
