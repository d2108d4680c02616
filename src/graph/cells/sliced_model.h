// A model cut into cells that batch below the request.
//
// A request to the model consists of *lanes*: the entries along the batch axis of its inputs.
// Within a lane, time varies: a *token* is one time step of one lane. A cell is a graph that runs
// over rows. A row is a lane or a token of any request:
//
//   kLanes      a row is a whole lane, sequences included; lanes of equal shapes share a batch.
//   kTokens     a row is one token, and depends on that token alone (and on its lane's values):
//               tokens of all requests, lengths and positions share a batch.
//   kRecurrent  a row is one lane at one of its time steps; its state outputs are the inputs of the
//               lane's next step.
//
// Cells exchange *values* with each other and with the model's inputs and outputs. The rows of a
// value have the same shape for every lane or for every token. Cells are in topological order.
// (Cells, cell types: Gao et al., "Low Latency RNN Inference with Cellular Batching", EuroSys 2018,
// §3.)
#ifndef CHAIRLIFT_GRAPH_CELLS_SLICED_MODEL_H_
#define CHAIRLIFT_GRAPH_CELLS_SLICED_MODEL_H_

#include <string>
#include <vector>

#include "graph/ir.h"

namespace chairlift {

struct CellValue {
  std::string name;
  DType dtype = DType::kUndefined;
  // The shape of one row: that of the model's tensor without its batch axis and, for a value of
  // tokens, without its time axis, in the order of the tensor's dimensions.
  SymbolicShape row;
  // For a value of tokens: the sequence it runs along, an index into SlicedModel::lengths. −1 for a
  // value of lanes.
  int length = -1;
  // The axes of the rows in the model's own tensor, for values that are its inputs.
  int batch_axis = 0;
  int time_axis = -1;
};

// An output of the model: a value with its own shape. Two outputs may have the same value.
struct SlicedOutput {
  std::string name;
  int value = 0;
  SymbolicShape row;  // as many elements as the value's row, in the same order
  int batch_axis = 0;
  int time_axis = -1;
};

// The number of tokens in each lane of a request; the same for all of its lanes.
struct SequenceLength {
  std::string name;  // the symbol in the model, for messages
  // The value whose tokens are counted: an input of the model, or an output of a kLanes cell. In
  // the second case the length is known only once that cell has run.
  int value = 0;
};

struct CellState {
  // The input of a lane's first step: a value of lanes, or −1 for `constant`, one row for all
  // lanes.
  int initial = -1;
  Tensor constant;
  int input = 0;   // of the cell's graph
  int output = 0;  // of the cell's graph
  // The value of lanes that holds the last step's state; −1 if nothing reads it.
  int final_value = -1;
  // The row that a lane without steps yields: zeros for LSTM, GRU and RNN, as in onnxruntime.
  // Absent: the input of its first step, as for Scan and Loop.
  Tensor without_steps;
};

struct SlicedCell {
  enum class Kind { kLanes, kTokens, kRecurrent };
  Kind kind = Kind::kLanes;
  std::string name;  // unique in the model: "encoder/lstm.forward"
  // All inputs and outputs have rows along dimension 0: [rows, row…]. A value of tokens that enters
  // or leaves a kLanes cell is [rows, length, row…]. Shapes are inferred; the row dimension is a
  // symbol. If the dimensions of a row are all numbers, the graph may have the same elements with
  // other dimensions ([1, 4] for the value's [4]).
  std::shared_ptr<Graph> graph;
  // The values of graph inputs and outputs; −1 for states.
  std::vector<int> inputs;
  std::vector<int> outputs;

  // For kTokens and kRecurrent.
  int length = -1;

  // For kRecurrent.
  bool reverse = false;  // from the last token to the first
  std::vector<CellState> states;
  // A value of lanes, int32 or int64 scalar: the number of valid tokens; −1 if all are valid. No
  // step runs for the others, and token outputs are zero there (ONNX LSTM, sequence_lens).
  int tokens_that_count = -1;
};

struct SlicedModel {
  std::vector<CellValue> values;
  std::vector<SequenceLength> lengths;
  std::vector<SlicedCell> cells;
  std::vector<int> inputs;  // values, by index of the model's inputs
  std::vector<SlicedOutput> outputs;
  std::vector<std::string> notes;  // changes made to the model, in words
};

struct SliceOptions {
  // An embedding that only a layer's input projection reads becomes a table of projected rows, if
  // all its tables take at most this many bytes. This saves the projection; the table is [V,
  // gates·H] instead of [V, E]. 0: never.
  int64_t max_folded_embedding_bytes = 0;
};

// Cuts the graph at its recurrences: LSTM, GRU, RNN, and Scan and Loop with a carried state. Input
// projections that do not depend on the recurrence become part of a token cell. Each layer and
// direction becomes a separate cell. The graph must have passed InferShapes() and must not have
// been through the passes. Unimplemented, with the reason, if there is no recurrence, or if lanes
// cannot be proved independent.
StatusOr<SlicedModel> SliceIntoCells(const Graph& graph, const SliceOptions& options = {});

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_CELLS_SLICED_MODEL_H_
