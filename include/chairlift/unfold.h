// How a request becomes cells: the interface that unfolders are written against, Chairlift's own
// and a user's.
//
// A *cell* is a small ONNX graph whose inputs and outputs have the batch as their first dimension:
// what it computes for one row follows from that row alone. A *node* is a cell to be run on some
// rows of one request. An unfolder adds a request's nodes and says where each finds its inputs;
// from then on nodes of all requests that run the same cell share batches, each leaves when it is
// done, and the request is answered when its last node has run. (Gao et al., "Low Latency RNN
// Inference with Cellular Batching", EuroSys 2018, §4.2.)
//
//   class Chain : public Unfolder {        // x [1, length, features] → the state after the last
//   row
//     Status Unfold(std::span<const Tensor> inputs, CellGraphBuilder& graph) override {
//       const int64_t length = inputs[0].shape()[1];
//       const int x = graph.AddTensor(inputs[0].Reshaped({length, kFeatures}));
//       const int zero = graph.AddTensor(Zeros({1, kHidden}));
//       RowSource h = RowSource::OfTensor(zero);
//       for (int t = 0; t < length; ++t) {
//         const NodeId step = graph.AddNode(0, {{RowSource::OfTensor(x, t), h}});
//         h = RowSource::OfNode(step, 0);
//       }
//       ...
#ifndef CHAIRLIFT_UNFOLD_H_
#define CHAIRLIFT_UNFOLD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "chairlift/status.h"
#include "chairlift/tensor.h"

namespace chairlift {

// A node of one request: 0, 1, … in the order of adding.
using NodeId = int32_t;

// Where a node of `rows` rows finds an input: in as many rows that follow each other, of another
// node's output or of a tensor of the request's.
struct RowSource {
  NodeId node = -1;   // −1: a tensor
  int32_t index = 0;  // the node's output, or the tensor as AddTensor() numbered it
  int64_t row = 0;    // the first row, in rows of the reader's input
  int64_t step = 1;  // from one row to the next: 1, or 0 where all of the node's rows read the same

  static RowSource OfNode(NodeId node, int output = 0, int64_t row = 0) {
    return {node, output, row};
  }
  static RowSource OfTensor(int tensor, int64_t row = 0) { return {-1, tensor, row}; }
};

// Where rows of a node's output are copied to, in bytes of a tensor: row r to
// [offset + r·row_stride, + row bytes), or, where `chunk` is less than a row, in pieces of `chunk`
// bytes that lie `chunk_stride` apart.
struct RowTarget {
  int tensor = 0;  // as AddBuffer() numbered it
  int64_t offset = 0;
  int64_t row_stride = 0;
  int64_t chunk = 0;  // 0: whole rows
  int64_t chunk_stride = 0;
};

// Where rows and time steps lie in an answer. time −1: it has none.
struct AnswerAxes {
  int batch = 0;
  int time = -1;
};

// Entries [first, first + count) along time of row `row` of the model's output `output`.
struct AnswerPart {
  int output = 0;
  int64_t row = 0;
  int64_t first = 0;
  int64_t count = 1;
};

// One request under way. What is wrong with a call (a cell, node or tensor that does not exist,
// rows past an end) fails the request with kInternal and the first such message; calls after that
// do nothing. Used by one thread at a time.
class CellGraphBuilder {
 public:
  virtual ~CellGraphBuilder() = default;

  // Rows along dimension 0, to be read by nodes. Shared, not copied.
  virtual int AddTensor(Tensor tensor) = 0;
  // Likewise, of zeros, to be written by Deliver(). The shape must be valid (Shape::Checked).
  virtual int AddBuffer(DType dtype, const Shape& shape) = 0;

  // Runs cell `cell` (by its place in the model) on `rows` rows once every node that it reads and
  // every node in `after` has run. One source for each input of the cell. `row_shapes`, one for
  // each input, where the cell leaves dimensions of its rows open; else empty.
  virtual NodeId AddNode(int cell, std::span<const RowSource> sources, int rows = 1,
                         std::span<const NodeId> after = {},
                         std::span<const Shape> row_shapes = {}) = 0;

  // Copies rows [row, row + rows) of an output to a buffer, as soon as the node has run. To be
  // called before it runs.
  virtual void Deliver(NodeId node, int output, int64_t row, int64_t rows,
                       const RowTarget& target) = 0;
  // Has Unfolder::Ran() called when the node has run. To be called before it runs.
  virtual void Watch(NodeId node) = 0;
  // Keeps a node's outputs until the request ends, for nodes to be added after it has run. To be
  // called before it runs.
  virtual void Keep(NodeId node) = 0;
  // Of a watched node, from its Ran() on, or of one that is kept: [rows, row…].
  virtual Tensor Output(NodeId node, int output) = 0;

  // The model's output `output`: a tensor, complete when the last node has run.
  virtual void SetAnswer(int output, int tensor, const AnswerAxes& axes = {}) = 0;

  // For clients that want tokens as they are produced (InferRequest::on_parts); nothing happens
  // where none does. Announce: a part of an answer that was set with a time axis is there when
  // the node has run; it is sent once all of its row before it has been. To be called before the
  // node runs. Emit: a part is there now, [count, …]; those of a row must come in order.
  virtual void Announce(NodeId node, const AnswerPart& part) = 0;
  virtual void Emit(const AnswerPart& part, Tensor entries) = 0;
  // Whether any client of this request does.
  virtual bool Wants(int output) const = 0;
};

// Unfolds one request. Errors fail the request: InvalidArgument for inputs that make no sense.
class Unfolder {
 public:
  virtual ~Unfolder() = default;
  // Adds what is known of the request from its inputs, in the model's order.
  virtual Status Unfold(std::span<const Tensor> inputs, CellGraphBuilder& graph) = 0;
  // A watched node has run: adds what follows from its outputs. It holds up a worker and those who
  // shared the node's batch.
  virtual Status Ran(NodeId node, CellGraphBuilder& graph);
};

inline Status Unfolder::Ran(NodeId /*node*/, CellGraphBuilder& /*graph*/) {
  return absl::OkStatus();
}

// Makes the unfolder of a request. Thread-safe.
using UnfolderFactory = std::function<std::unique_ptr<Unfolder>()>;

// An unfold function of a user's own is a shared library in the model's folder that its model.yaml
// names (docs/concepts/cells.md). It includes this header, links to nothing (the program that
// loads it has the symbols), and says once, outside of all namespaces:
//
//   CHAIRLIFT_UNFOLD_PLUGIN(MakeMine)
//
// where MakeMine is a function of UnfoldPlugin::make's type. It must be built with the compiler's
// standard library and the Abseil that the server was built with. It is never unloaded: what it
// allocated may outlive the model.
struct UnfoldPlugin {
  // Raised when anything in this header changes.
  static constexpr uint32_t kAbi = 3;

  struct Port {
    std::string name;
    DType dtype = DType::kUndefined;
    std::vector<int64_t> row;  // dimensions of a row; −1 where one varies
  };
  struct CellPorts {
    std::vector<Port> inputs;
    std::vector<Port> outputs;
  };
  struct Model {
    std::span<const std::string> cells;                 // their names, as AddNode() numbers them
    const std::map<std::string, std::string>& options;  // `options` of the model.yaml
    std::span<const CellPorts> ports;                   // by cell
    std::span<const std::string> outputs;               // of the model, as SetAnswer() numbers them
  };

  uint32_t abi = kAbi;
  uint32_t tensor_bytes = sizeof(Tensor);
  // Called once when the model is loaded. An error refuses the model.
  StatusOr<UnfolderFactory> (*make)(const Model& model) = nullptr;
};

// Makes the unfolders of a model: UnfoldPlugin::make, or a function of the program that embeds the
// engine (ModelConfig::unfold).
using MakeUnfolders = std::function<StatusOr<UnfolderFactory>(const UnfoldPlugin::Model& model)>;

#define CHAIRLIFT_UNFOLD_PLUGIN(function)                \
  extern "C" __attribute__((visibility("default")))      \
  const chairlift::UnfoldPlugin chairlift_unfold_plugin; \
  const chairlift::UnfoldPlugin chairlift_unfold_plugin = {.make = (function)};

}  // namespace chairlift

#endif  // CHAIRLIFT_UNFOLD_H_
