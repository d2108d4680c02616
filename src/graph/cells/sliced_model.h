// A model cut into cells that batch below the request.
//
// A request to the model is a number of *lanes*: the entries along the batch axis of its inputs.
// What varies within a lane is time: a *token* is one time step of one lane. A cell is a graph that
// runs over rows, and a row is either a lane or a token, of any request:
//
//   kLanes      a row is a whole lane, sequences included; lanes of equal shapes share a batch.
//   kTokens     a row is one token, and follows from that token alone (and from its lane's values):
//               tokens of all requests, lengths and positions share a batch.
//   kRecurrent  a row is one lane at one of its time steps; what it leaves is what the lane's next
//               step starts from.
//
// What passes between cells, and in and out of the model, is *values*, each a row of equal shape
// for every lane or for every token. Cells are in topological order. (Cells, cell types: Gao et
// al., "Low Latency RNN Inference with Cellular Batching", EuroSys 2018, §3.)
#ifndef CHAIRLIFT_GRAPH_CELLS_SLICED_MODEL_H_
#define CHAIRLIFT_GRAPH_CELLS_SLICED_MODEL_H_

#include <string>
#include <vector>

#include "graph/ir.h"

namespace chairlift {

struct CellValue {
  std::string name;
  DType dtype = DType::kUndefined;
  // One row's: what is left of the model's tensor without its batch axis and, of a token's value,
  // its time axis, in the order of the tensor's dimensions.
  SymbolicShape row;
  // Of a token's value, the sequence it runs along: index into SlicedModel::lengths; −1 for a
  // lane's value.
  int length = -1;
  // Where the rows lie in the model's own tensor, for values that are its inputs.
  int batch_axis = 0;
  int time_axis = -1;
};

// An output of the model: a value under a shape of its own, which two outputs may have of one.
struct SlicedOutput {
  std::string name;
  int value = 0;
  SymbolicShape row;  // as many elements as the value's row, in the same order
  int batch_axis = 0;
  int time_axis = -1;
};

// How many tokens each lane of a request has, the same for all of its lanes.
struct SequenceLength {
  std::string name;  // the symbol in the model, for people
  // The value whose tokens are counted: an input of the model, or an output of a kLanes cell, which
  // then gives the length only once it has run.
  int value = 0;
};

struct CellState {
  // What a lane's first step reads: a lane's value, or −1 for `constant`, one row for all lanes.
  int initial = -1;
  Tensor constant;
  int input = 0;         // of the cell's graph
  int output = 0;        // of the cell's graph
  int final_value = -1;  // the lane's value that the last step leaves; −1 where nobody reads it
  // The row that a lane without steps leaves: zeros of LSTM, GRU and RNN, as onnxruntime has it.
  // Absent: what its first step would read, as of Scan and Loop.
  Tensor without_steps;
};

struct SlicedCell {
  enum class Kind { kLanes, kTokens, kRecurrent };
  Kind kind = Kind::kLanes;
  std::string name;  // unique in the model: "encoder/lstm.forward"
  // All inputs and outputs have their rows along dimension 0: [rows, row…]. A token's value that
  // enters or leaves a kLanes cell is [rows, length, row…]. Shapes are inferred; the row dimension
  // is a symbol. Where the dimensions of a row are all numbers, the graph may have the same
  // elements under others ([1, 4] for the value's [4]).
  std::shared_ptr<Graph> graph;
  // The values that graph inputs and outputs are; −1 for those that are states.
  std::vector<int> inputs;
  std::vector<int> outputs;

  // Of kTokens and kRecurrent.
  int length = -1;

  // Of kRecurrent.
  bool reverse = false;  // from the last token to the first
  std::vector<CellState> states;
  // A lane's value, int32 or int64 scalar: how many of its tokens count; −1 where all do. Steps are
  // not run for the others, and token outputs are zero there (ONNX LSTM, sequence_lens).
  int tokens_that_count = -1;
};

struct SlicedModel {
  std::vector<CellValue> values;
  std::vector<SequenceLength> lengths;
  std::vector<SlicedCell> cells;
  std::vector<int> inputs;  // values, by index of the model's inputs
  std::vector<SlicedOutput> outputs;
  std::vector<std::string> notes;  // what was done to the model on the way, for people
};

struct SliceOptions {
  // An embedding that only a layer's input projection reads becomes a table of projected rows,
  // where all its tables take at most so much memory: the projection is saved, at [V, gates·H] in
  // place of [V, E]. 0: never.
  int64_t max_embedding_bytes = 0;
};

// Cuts the graph at its recurrences: LSTM, GRU, RNN, and Scan and Loop with a carried state. Input
// projections that do not depend on the recurrence become part of a token cell, each layer and
// direction a cell of its own. The graph must have passed InferShapes() and must not have been
// through the passes. Unimplemented, with the reason in words, where there is no recurrence, or
// where lanes cannot be proved to be independent of each other.
StatusOr<SlicedModel> SliceIntoCells(const Graph& graph, const SliceOptions& options = {});

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_CELLS_SLICED_MODEL_H_
