// How a request becomes cells: the interface of unfolders, Chairlift's own and user-defined ones.
//
// A *cell* is a small ONNX graph whose inputs and outputs have the batch as their first dimension:
// its result for a row depends only on that row. A *node* is a cell to be run on some rows of one
// request. An unfolder adds a request's nodes and says where each finds its inputs. From then on
// nodes of all requests that run the same cell share batches. The request is answered when its last
// node has run. (Gao et al., "Low Latency RNN Inference with Cellular Batching", EuroSys 2018,
// §4.2.)
//
//   class Chain : public Unfolder {  // x [1, length, features] → the state after the last row
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

// A node of one request, numbered from 0 in the order of AddNode().
using NodeId = int32_t;

// Where a node of `rows` rows reads an input: from `rows` consecutive rows of another node's output
// or of one of the request's tensors.
struct RowSource {
  NodeId node = -1;   // −1: a tensor
  int32_t index = 0;  // the node's output, or the number that AddTensor() returned
  int64_t row = 0;    // the first row, counted in rows of the reader's input
  int64_t step = 1;   // from one row to the next: 1, or 0 if all rows of the node read the same row

  static RowSource OfNode(NodeId node, int output = 0, int64_t row = 0) {
    return {node, output, row};
  }
  static RowSource OfTensor(int tensor, int64_t row = 0) { return {-1, tensor, row}; }
};

// Where rows of a node's output are copied to, in bytes of a tensor. Row r goes to [offset +
// r·row_stride, + row bytes). If `chunk` is less than a row, it goes in pieces of `chunk` bytes
// that are `chunk_stride` apart.
struct RowTarget {
  int tensor = 0;  // the number that AddBuffer() returned
  int64_t offset = 0;
  int64_t row_stride = 0;
  int64_t chunk = 0;  // 0: whole rows
  int64_t chunk_stride = 0;
};

// The axes of rows and time steps in an answer. time −1: no time axis.
struct AnswerAxes {
  int batch = 0;
  int time = -1;
};

// Entries [first, first + count) along the time axis of row `row` of the model's output `output`.
struct AnswerPart {
  int output = 0;
  int64_t row = 0;
  int64_t first = 0;
  int64_t count = 1;
};

// One request being built. An invalid call (a cell, node or tensor that does not exist, rows past
// an end) fails the request with kInternal and the message of the first such call; later calls do
// nothing. Used by one thread at a time.
class CellGraphBuilder {
 public:
  virtual ~CellGraphBuilder() = default;

  // A tensor whose rows along dimension 0 are read by nodes. Shared, not copied.
  virtual int AddTensor(Tensor tensor) = 0;
  // A tensor of zeros that Deliver() writes. The shape must be valid (Shape::Checked).
  virtual int AddBuffer(DType dtype, const Shape& shape) = 0;

  // Runs cell `cell` (its index in the model) on `rows` rows, once every node that it reads and
  // every node in `after` has run. `sources` has one entry for each input of the cell. `row_shapes`
  // has one for each input if the cell leaves dimensions of its rows open, else it is empty.
  virtual NodeId AddNode(int cell, std::span<const RowSource> sources, int rows = 1,
                         std::span<const NodeId> after = {},
                         std::span<const Shape> row_shapes = {}) = 0;

  // Copies rows [row, row + rows) of an output to a buffer as soon as the node has run. Call it
  // before the node runs.
  virtual void Deliver(NodeId node, int output, int64_t row, int64_t rows,
                       const RowTarget& target) = 0;
  // Calls Unfolder::Ran() when the node has run. Call it before the node runs.
  virtual void Watch(NodeId node) = 0;
  // Keeps a node's outputs until the request ends, for nodes that are added after it has run. Call
  // it before the node runs.
  virtual void Keep(NodeId node) = 0;
  // An output [rows, row…] of a node that is kept, or of a watched node from its Ran() on.
  virtual Tensor Output(NodeId node, int output) = 0;

  // Sets the model's output `output` to a tensor that is complete when the last node has run.
  virtual void SetAnswer(int output, int tensor, const AnswerAxes& axes = {}) = 0;

  // For clients that read tokens as they are produced (InferRequest::on_parts); without such
  // clients, nothing happens. Announce: a part of an answer that was set with a time axis is ready
  // when the node has run. It is sent once all earlier parts of its row were sent. Call it before
  // the node runs. Emit: a part [count, …] is ready now; parts of a row must come in order.
  virtual void Announce(NodeId node, const AnswerPart& part) = 0;
  virtual void Emit(const AnswerPart& part, Tensor entries) = 0;
  // Whether a client of this request reads parts of this output.
  virtual bool Wants(int output) const = 0;
};

// Unfolds one request. Errors fail the request: InvalidArgument for unusable inputs.
class Unfolder {
 public:
  virtual ~Unfolder() = default;
  // Adds the nodes that follow from the request's inputs, which are in the model's order.
  virtual Status Unfold(std::span<const Tensor> inputs, CellGraphBuilder& graph) = 0;
  // Called when a watched node has run, to add nodes that depend on its outputs. It delays a worker
  // and all requests of the node's batch.
  virtual Status Ran(NodeId node, CellGraphBuilder& graph);
};

inline Status Unfolder::Ran(NodeId /*node*/, CellGraphBuilder& /*graph*/) {
  return absl::OkStatus();
}

// Makes the unfolder of one request. Thread-safe.
using UnfolderFactory = std::function<std::unique_ptr<Unfolder>()>;

// A user-defined unfold function is a shared library in the model's folder that its model.yaml
// names (docs/concepts/cells.md). It is compiled against this header and links to nothing: the
// program that loads it has the symbols. It contains once, outside of all namespaces:
//
//   CHAIRLIFT_UNFOLD_PLUGIN(MakeMine)
//
// where MakeMine has the type of UnfoldPlugin::make. Build it with the standard library and the
// Abseil that the server was built with. It is never unloaded, because memory that it allocated may
// outlive the model.
struct UnfoldPlugin {
  // Incremented when this header changes.
  static constexpr uint32_t kAbi = 3;

  struct Port {
    std::string name;
    DType dtype = DType::kUndefined;
    std::vector<int64_t> row;  // dimensions of a row; −1 for one that varies
  };
  struct CellPorts {
    std::vector<Port> inputs;
    std::vector<Port> outputs;
  };
  struct Model {
    std::span<const std::string> cells;                 // their names, in the numbering of
                                                        // AddNode()
    const std::map<std::string, std::string>& options;  // from `options` of the model.yaml
    std::span<const CellPorts> ports;                   // by cell
    std::span<const std::string> outputs;               // names of the model's outputs, in the
                                                        // numbering of SetAnswer()
  };

  uint32_t abi = kAbi;
  uint32_t tensor_bytes = sizeof(Tensor);
  // Called once when the model is loaded. An error refuses the model.
  StatusOr<UnfolderFactory> (*make)(const Model& model) = nullptr;
};

// Makes the unfolder factory of a model: UnfoldPlugin::make, or a function of the embedding program
// (ModelConfig::unfold).
using MakeUnfolders = std::function<StatusOr<UnfolderFactory>(const UnfoldPlugin::Model& model)>;

#define CHAIRLIFT_UNFOLD_PLUGIN(function)                \
  extern "C" __attribute__((visibility("default")))      \
  const chairlift::UnfoldPlugin chairlift_unfold_plugin; \
  const chairlift::UnfoldPlugin chairlift_unfold_plugin = {.make = (function)};

}  // namespace chairlift

#endif  // CHAIRLIFT_UNFOLD_H_
