// Splits LSTM, GRU and RNN into the projection of their input as ordinary nodes, one layer per
// direction, and the join of the directions.
#ifndef CHAIRLIFT_GRAPH_CELLS_LOWER_RECURRENT_H_
#define CHAIRLIFT_GRAPH_CELLS_LOWER_RECURRENT_H_

#include "graph/ir.h"

namespace chairlift {

// One direction of one layer over whole sequences, with projected input. It exists only until cells
// are made from it: no kernel runs it. Inputs, for T time steps of B lanes:
enum RecurrentLayerInput : int {
  kLayerXw = 0,     // [T, B, gates·H]; attribute layout 1: [B, T, gates·H]
  kLayerR,          // [gates·H, H]
  kLayerRb,         // [gates·H], or absent: all biases are part of XW
  kLayerPeepholes,  // [3·H], or absent
  kLayerLengths,    // [B], or absent
  kLayerH,          // [B, H], or absent
  kLayerC,          // [B, H], or absent
};
// Outputs: h of every step [T, B, H] (layout 1: [B, T, H]), the last h [B, H], and for LSTM the
// last c. Attributes: `cell` "LSTM", "GRU" or "RNN"; `reverse`; `layout`; `hidden_size`; and those
// of the ONNX operators that apply to one direction.
const OperatorDef& RecurrentLayerOperator();
bool IsRecurrentLayer(const Node& node);

// Rewrites all LSTM, GRU and RNN nodes, and returns their number. Shapes must be inferred again
// afterwards.
StatusOr<int> LowerRecurrent(Graph& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_CELLS_LOWER_RECURRENT_H_
