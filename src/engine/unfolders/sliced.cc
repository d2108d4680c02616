// Unfolds requests to a model that was cut into cells automatically: lanes along the batch axis,
// tokens along time, and every cell on each of its rows.
#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "base/status.h"
#include "engine/cell_program.h"
#include "engine/cell_request.h"

namespace chairlift {
namespace {

// Tokens to a node of a token cell: as many as keep its outputs small where all are known at once;
// few where they come one by one out of a recurrence, so that what follows need not wait for the
// last.
constexpr int64_t kKnownChunk = 256;
constexpr int64_t kLateChunk = 16;

// What all requests share.
struct SlicedProgram {
  SlicedModel model;           // without its graphs
  std::vector<int64_t> chunk;  // by cell, of token cells
  std::vector<bool> buffered;  // by value: gathered in one tensor for its readers
  // By cell, of cells over lanes: what it computes has shapes that only the run tells.
  std::vector<bool> tells_shapes;
  std::vector<bool> open;                 // by cell: rows have dimensions that requests tell
  std::vector<std::optional<Shape>> row;  // by value, where known ahead
};

// `tensor` as [lanes, row…] or, where time_axis ≥ 0, [lanes · tokens, row…].
Tensor ToRows(const Tensor& tensor, int batch_axis, int time_axis) {
  const Shape& from = tensor.shape();
  std::vector<int> order = {batch_axis};
  if (time_axis >= 0) order.push_back(time_axis);
  for (int axis = 0; axis < from.rank(); ++axis) {
    if (axis != batch_axis && axis != time_axis) order.push_back(axis);
  }
  Shape rows;
  rows.Append(from[batch_axis] * (time_axis >= 0 ? from[time_axis] : 1));
  for (size_t i = time_axis >= 0 ? 2 : 1; i < order.size(); ++i) rows.Append(from[order[i]]);

  // Dimensions of one entry may be anywhere.
  std::vector<int> moved;
  for (int axis : order) {
    if (from[axis] != 1) moved.push_back(axis);
  }
  if (std::is_sorted(moved.begin(), moved.end()) || tensor.size() == 0) {
    return tensor.Reshaped(rows);
  }
  // Trailing dimensions that stay where they are move together.
  int64_t piece = static_cast<int64_t>(DTypeSize(tensor.dtype()));
  int last = from.rank() - 1;
  for (; !moved.empty() && moved.back() == last; --last) {
    piece *= from[last];
    moved.pop_back();
    while (last > 0 && from[last - 1] == 1) --last;
  }
  std::vector<int64_t> stride(static_cast<size_t>(from.rank()));
  int64_t bytes = static_cast<int64_t>(DTypeSize(tensor.dtype()));
  for (int axis = from.rank() - 1; axis >= 0; --axis) {
    stride[axis] = bytes;
    bytes *= from[axis];
  }
  Tensor out = Tensor::Allocate(tensor.dtype(), rows);
  auto* to = static_cast<std::byte*>(out.raw());
  const auto* base = static_cast<const std::byte*>(tensor.raw());
  std::vector<int64_t> at(moved.size(), 0);
  for (int64_t left = static_cast<int64_t>(out.byte_size()) / piece; left > 0; --left) {
    int64_t offset = 0;
    for (size_t i = 0; i < moved.size(); ++i) offset += at[i] * stride[moved[i]];
    std::memcpy(to, base + offset, static_cast<size_t>(piece));
    to += piece;
    for (size_t i = moved.size(); i-- > 0;) {
      if (++at[i] < from[moved[i]]) break;
      at[i] = 0;
    }
  }
  return out;
}

// The tensor of an output: its row with the batch axis and the time axis put back.
Shape WholeShape(const SlicedOutput& value, const Shape& row, int64_t lanes, int64_t tokens) {
  Shape shape = row;
  if (value.time_axis < 0) {
    shape.Insert(value.batch_axis, lanes);
  } else if (value.time_axis < value.batch_axis) {
    shape.Insert(value.time_axis, tokens);
    shape.Insert(value.batch_axis, lanes);
  } else {
    shape.Insert(value.batch_axis, lanes);
    shape.Insert(value.time_axis, tokens);
  }
  return shape;
}

Tensor Zeros(DType dtype, const Shape& shape) {
  Tensor zeros = Tensor::Allocate(dtype, shape);
  std::memset(zeros.raw(), 0, zeros.byte_size());
  return zeros;
}

// Bytes between neighbours along an axis.
int64_t Stride(const Shape& shape, int axis, DType dtype) {
  return shape.NumElements(axis + 1, shape.rank()) * static_cast<int64_t>(DTypeSize(dtype));
}

class SlicedUnfolder final : public Unfolder {
 public:
  explicit SlicedUnfolder(std::shared_ptr<const SlicedProgram> program)
      : program_(std::move(program)),
        model_(program_->model),
        places_(model_.values.size()),
        rows_(program_->row),
        lengths_(model_.lengths.size(), -1),
        answers_(model_.outputs.size()) {}

  Status Unfold(std::span<const Tensor> inputs, CellGraphBuilder& graph) override {
    const CellValue& first = model_.values[model_.inputs[0]];
    lanes_ = inputs[0].shape()[first.batch_axis];
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int id = model_.inputs[i];
      const CellValue& value = model_.values[id];
      const Shape& shape = inputs[i].shape();
      if (shape[value.batch_axis] != lanes_) {
        return InvalidArgument("input '{}' has {} sequences (dimension {}), input '{}' has {}",
                               value.name, shape[value.batch_axis], value.batch_axis, first.name,
                               lanes_);
      }
      if (value.time_axis >= 0) {
        int64_t& length = lengths_[value.length];
        if (length < 0) length = shape[value.time_axis];
        if (length != shape[value.time_axis]) {
          return InvalidArgument("input '{}' has {} time steps (dimension {}), others have {}",
                                 value.name, shape[value.time_axis], value.time_axis, length);
        }
      }
      places_[id].rows = ToRows(inputs[i], value.batch_axis, value.time_axis);
      places_[id].tensor = graph.AddTensor(places_[id].rows);
      Shape row = inputs[i].shape();
      row.Erase(std::max(value.batch_axis, value.time_axis));
      if (value.time_axis >= 0) row.Erase(std::min(value.batch_axis, value.time_axis));
      rows_[id] = row;
    }
    for (size_t o = 0; o < model_.outputs.size(); ++o) {
      const int id = model_.outputs[o].value;
      if (places_[id].tensor >= 0) HandOver(static_cast<int>(o), graph);
    }
    inputs_ = inputs;
    Status status = Continue(graph);
    inputs_ = {};
    return status;
  }

  Status Ran(NodeId node, CellGraphBuilder& graph) override {
    const SlicedCell& cell = model_.cells[next_ - 1];
    const auto lane = static_cast<int64_t>(node - watched_);
    for (size_t o = 0; o < cell.outputs.size(); ++o) {
      const int id = cell.outputs[o];
      const CellValue& value = model_.values[id];
      const Tensor output = graph.Output(node, static_cast<int>(o));
      Shape row = output.shape();
      row.Erase(0);
      if (value.length >= 0) {
        if (row.rank() == 0) return Internal("'{}' has no time axis", value.name);
        int64_t& length = lengths_[value.length];
        if (length >= 0 && length != row[0]) {
          return InvalidArgument("'{}' has {} time steps where others have {}", value.name, row[0],
                                 length);
        }
        length = row[0];
        row.Erase(0);
      }
      if (rows_[id] && !(*rows_[id] == row)) {
        return InvalidArgument("'{}' has entries of shape {} in one lane and {} in another",
                               value.name, row.ToString(), rows_[id]->ToString());
      }
      rows_[id] = row;
      ForEachOutput(id, [&](int o_model) {
        const AnswerTensor& answer = Answer(o_model, graph);
        CopyRow(output, LaneTarget(o_model, lane), answer.tensor);
      });
    }
    if (--watching_ > 0) return absl::OkStatus();
    return Continue(graph);
  }

 private:
  struct AnswerTensor {
    int number = -1;
    Tensor tensor;
  };
  // Where a value's rows are.
  struct Place {
    // One tensor of all lanes' rows, one after the other…
    int tensor = -1;
    Tensor rows;  // of the request's inputs
    // …which nodes write, if not the request: for each lane nodes one after the other, of `chunk`
    // tokens each; in a chain, each follows the one before.
    std::vector<NodeId> writers;
    std::vector<int64_t> steps;  // by lane: tokens written
    bool chain = false;
    bool reverse = false;
    // Or rows of nodes: by lane the row, or the first token's.
    std::vector<RowSource> lanes;
    int64_t chunk = std::numeric_limits<int64_t>::max();
  };

  // A token of a value, and, where it lies in a tensor, the node after which it is there.
  RowSource Token(int id, int64_t lane, int64_t token) const {
    const Place& place = places_[id];
    if (place.tensor >= 0) {
      return RowSource::OfTensor(place.tensor, lane * lengths_[model_.values[id].length] + token);
    }
    RowSource source = place.lanes[lane];
    source.node += static_cast<NodeId>(token / place.chunk);
    source.row += token % place.chunk;
    return source;
  }
  RowSource LaneRow(int id, int64_t lane) const {
    const Place& place = places_[id];
    return place.tensor >= 0 ? RowSource::OfTensor(place.tensor, lane) : place.lanes[lane];
  }
  // The nodes that write tokens [first, last) of a value that lies in a tensor.
  void AppendWriters(int id, int64_t lane, int64_t first, int64_t last,
                     std::vector<NodeId>& nodes) const {
    const Place& place = places_[id];
    if (place.tensor < 0 || place.writers.empty()) return;
    const int64_t written = place.steps[lane];
    last = std::min(last, written);
    if (first >= last) return;
    const NodeId begin = place.writers[lane];
    if (place.chain) {
      const int64_t step = place.reverse ? written - 1 - first : last - 1;
      nodes.push_back(begin + static_cast<NodeId>(step));
      return;
    }
    for (int64_t chunk = first / place.chunk; chunk * place.chunk < last; ++chunk) {
      nodes.push_back(begin + static_cast<NodeId>(chunk));
    }
  }

  // The tensor of a model output, made when first asked for.
  const AnswerTensor& Answer(int output, CellGraphBuilder& graph) {
    AnswerTensor& answer = answers_[output];
    if (answer.number >= 0) return answer;
    answer.tensor = Zeros(model_.values[model_.outputs[output].value].dtype, AnswerShape(output));
    answer.number = graph.AddTensor(answer.tensor);
    const SlicedOutput& form = model_.outputs[output];
    graph.SetAnswer(output, answer.number, {.batch = form.batch_axis, .time = form.time_axis});
    return answer;
  }
  // Calls visit(output) for every model output that a value is.
  template <typename F>
  void ForEachOutput(int id, const F& visit) const {
    for (size_t o = 0; o < model_.outputs.size(); ++o) {
      if (model_.outputs[o].value == id) visit(static_cast<int>(o));
    }
  }
  // Outputs that no lane writes to are there too.
  void MakeAnswers(int id, CellGraphBuilder& graph) {
    ForEachOutput(id, [&](int output) { Answer(output, graph); });
  }
  Shape AnswerShape(int output) const {
    const SlicedOutput& form = model_.outputs[output];
    const Shape& row = *rows_[form.value];
    // A view of the row may leave one dimension open that the row tells.
    Shape shape;
    int64_t known = 1;
    int open = -1;
    for (int axis = 0; axis < form.row.rank(); ++axis) {
      const Dim& dim = form.row[axis];
      const bool same = !dim.known() && form.row.rank() == row.rank();
      if (!dim.known() && !same) open = axis;
      shape.Append(dim.known() ? dim.value() : same ? row[axis] : 1);
      known *= shape[axis];
    }
    if (open >= 0) shape[open] = known == 0 ? 0 : row.NumElements() / known;
    const int length = model_.values[form.value].length;
    return WholeShape(form, shape, lanes_, length >= 0 ? lengths_[length] : 1);
  }
  // Where the row of a lane (and token) lies in an output.
  RowTarget AnswerTarget(int output, int64_t lane, int64_t token) const {
    const SlicedOutput& form = model_.outputs[output];
    const DType dtype = model_.values[form.value].dtype;
    const Shape shape = AnswerShape(output);
    RowTarget target{.tensor = answers_[output].number};
    target.offset = lane * Stride(shape, form.batch_axis, dtype);
    int last = form.batch_axis;
    if (form.time_axis >= 0) {
      target.row_stride = Stride(shape, form.time_axis, dtype);
      target.offset += token * target.row_stride;
      last = std::max(last, form.time_axis);
    }
    // A row lies in pieces where some of its dimensions come before the batch or time axis.
    for (int axis = 0; axis < last; ++axis) {
      if (axis == form.batch_axis || axis == form.time_axis || shape[axis] == 1) continue;
      target.chunk = Stride(shape, last, dtype);
      target.chunk_stride = Stride(shape, axis, dtype);
    }
    return target;
  }
  // Likewise of a lane's whole sequence, as a cell over lanes leaves it, or of its one row.
  RowTarget LaneTarget(int output, int64_t lane) const {
    const SlicedOutput& form = model_.outputs[output];
    if (form.time_axis < 0) return AnswerTarget(output, lane, 0);
    const DType dtype = model_.values[form.value].dtype;
    const Shape shape = AnswerShape(output);
    RowTarget target{.tensor = answers_[output].number};
    target.offset = lane * Stride(shape, form.batch_axis, dtype);
    if (form.time_axis < form.batch_axis && lanes_ > 1) {
      target.chunk = Stride(shape, form.batch_axis, dtype);
      target.chunk_stride = Stride(shape, form.time_axis, dtype);
    }
    return target;
  }

  static void CopyRow(const Tensor& row, const RowTarget& target, Tensor to_tensor) {
    const auto bytes = static_cast<int64_t>(row.byte_size());
    const int64_t chunk = target.chunk == 0 ? bytes : target.chunk;
    auto* to = static_cast<std::byte*>(to_tensor.raw()) + target.offset;
    const auto* from = static_cast<const std::byte*>(row.raw());
    for (int64_t done = 0; done < bytes; done += chunk, to += target.chunk_stride) {
      std::memcpy(to, from + done, static_cast<size_t>(chunk));
    }
  }
  // An input that is an output too.
  void HandOver(int output, CellGraphBuilder& graph) {
    const int id = model_.outputs[output].value;
    const AnswerTensor& answer = Answer(output, graph);
    const int length = model_.values[id].length;
    const int64_t tokens = length >= 0 ? lengths_[length] : 1;
    for (int64_t lane = 0; lane < lanes_; ++lane) {
      for (int64_t token = 0; token < tokens; ++token) {
        CopyRow(places_[id].rows.Rows(lane * tokens + token, 1), AnswerTarget(output, lane, token),
                answer.tensor);
      }
    }
  }
  // What a lane's last step leaves, or, where it has none, what the first would have read.
  void DeliverFinal(int id, int64_t lane, const RowSource& source, const CellState& state,
                    CellGraphBuilder& graph) {
    ForEachOutput(id, [&](int output) {
      const AnswerTensor& answer = Answer(output, graph);
      const RowTarget target = AnswerTarget(output, lane, 0);
      if (source.node >= 0) {
        graph.Deliver(source.node, source.index, 0, 1, target);
      } else if (state.initial < 0) {
        CopyRow(state.constant, target, answer.tensor);
      } else {
        CopyRow(places_[state.initial].rows.Rows(lane, 1), target, answer.tensor);
      }
    });
  }

  // Before anything so large is made.
  Status CheckSize(const SlicedCell& cell) const {
    const int64_t tokens = cell.length < 0 ? 1 : std::max<int64_t>(lengths_[cell.length], 1);
    if (lanes_ > CellRequest::kMaxNodes / tokens) {
      return ResourceExhausted(
          "the request brings {} sequences of {} time steps; {} time steps are possible in all",
          lanes_, tokens, CellRequest::kMaxNodes);
    }
    return absl::OkStatus();
  }

  Status Continue(CellGraphBuilder& graph) {
    while (next_ < model_.cells.size()) {
      const size_t index = next_++;
      CHAIRLIFT_RETURN_IF_ERROR(CheckSize(model_.cells[index]));
      switch (model_.cells[index].kind) {
        case SlicedCell::Kind::kLanes:
          AddLanes(static_cast<int>(index), graph);
          if (program_->tells_shapes[index] && lanes_ > 0) return absl::OkStatus();
          break;
        case SlicedCell::Kind::kTokens:
          AddTokens(static_cast<int>(index), graph);
          break;
        case SlicedCell::Kind::kRecurrent:
          CHAIRLIFT_RETURN_IF_ERROR(AddSteps(static_cast<int>(index), graph));
          break;
      }
    }
    return absl::OkStatus();
  }

  void AddLanes(int index, CellGraphBuilder& graph) {
    const SlicedCell& cell = model_.cells[index];
    const bool tells = program_->tells_shapes[index];
    for (int64_t lane = 0; lane < lanes_; ++lane) {
      sources_.clear();
      after_.clear();
      shapes_.clear();
      for (int id : cell.inputs) {
        const CellValue& value = model_.values[id];
        RowSource source = LaneRow(id, lane);
        Shape row = *rows_[id];
        if (value.length >= 0) {
          row.Insert(0, lengths_[value.length]);
          AppendWriters(id, lane, 0, lengths_[value.length], after_);
        }
        sources_.push_back(source);
        if (program_->open[index]) shapes_.push_back(row);
      }
      const NodeId node = graph.AddNode(index, sources_, 1, after_, shapes_);
      if (tells) {
        graph.Watch(node);
        graph.Keep(node);
        if (lane == 0) watched_ = node;
      }
      for (size_t o = 0; o < cell.outputs.size(); ++o) {
        const int id = cell.outputs[o];
        places_[id].lanes.push_back(RowSource::OfNode(node, static_cast<int>(o)));
        if (tells) continue;
        ForEachOutput(id, [&](int output) {
          Answer(output, graph);
          graph.Deliver(node, static_cast<int>(o), 0, 1, LaneTarget(output, lane));
        });
      }
    }
    watching_ = tells ? lanes_ : 0;
  }

  // Makes the tensors that the outputs of a cell over tokens are gathered in.
  void MakeBuffers(const SlicedCell& cell, bool reverse, int64_t chunk, CellGraphBuilder& graph) {
    for (int id : cell.outputs) {
      if (id < 0 || model_.values[id].length < 0 || !program_->buffered[id]) continue;
      Shape shape = *rows_[id];
      shape.Insert(0, lanes_ * lengths_[cell.length]);
      Place& place = places_[id];
      place.tensor = graph.AddBuffer(model_.values[id].dtype, shape);
      place.chain = cell.kind == SlicedCell::Kind::kRecurrent;
      place.reverse = reverse;
      place.chunk = chunk;
    }
  }
  // Copies the tokens that a node computed to wherever they are wanted in one tensor.
  void DeliverTokens(int id, int output, NodeId node, int64_t lane, int64_t token, int64_t count,
                     CellGraphBuilder& graph) {
    if (program_->buffered[id]) {
      const Shape& row = *rows_[id];
      const int64_t bytes =
          row.NumElements() * static_cast<int64_t>(DTypeSize(model_.values[id].dtype));
      const int64_t first = lane * lengths_[model_.values[id].length] + token;
      graph.Deliver(node, output, 0, count,
                    {.tensor = places_[id].tensor, .offset = first * bytes, .row_stride = bytes});
    }
    ForEachOutput(id, [&](int answer) {
      Answer(answer, graph);
      graph.Deliver(node, output, 0, count, AnswerTarget(answer, lane, token));
      if (model_.outputs[answer].time_axis >= 0) {
        graph.Announce(node, {.output = answer, .row = lane, .first = token, .count = count});
      }
    });
  }

  void AddTokens(int index, CellGraphBuilder& graph) {
    const SlicedCell& cell = model_.cells[index];
    const int64_t length = lengths_[cell.length];
    const int64_t chunk = program_->chunk[index];
    MakeBuffers(cell, false, chunk, graph);
    for (int id : cell.outputs) MakeAnswers(id, graph);
    for (int64_t lane = 0; lane < lanes_; ++lane) {
      NodeId first_node = 0;
      for (int64_t token = 0; token < length; token += chunk) {
        const int64_t count = std::min(chunk, length - token);
        sources_.clear();
        after_.clear();
        shapes_.clear();
        for (int id : cell.inputs) {
          if (model_.values[id].length >= 0) {
            sources_.push_back(Token(id, lane, token));
            AppendWriters(id, lane, token, token + count, after_);
          } else {
            sources_.push_back(LaneRow(id, lane));
            sources_.back().step = 0;
          }
          if (program_->open[index]) shapes_.push_back(*rows_[id]);
        }
        const NodeId node =
            graph.AddNode(index, sources_, static_cast<int>(count), after_, shapes_);
        if (token == 0) first_node = node;
        for (size_t o = 0; o < cell.outputs.size(); ++o) {
          DeliverTokens(cell.outputs[o], static_cast<int>(o), node, lane, token, count, graph);
        }
      }
      for (size_t o = 0; o < cell.outputs.size(); ++o) {
        Place& place = places_[cell.outputs[o]];
        if (place.tensor >= 0) {
          place.writers.push_back(first_node);
          place.steps.push_back(length);
        } else {
          place.lanes.push_back(RowSource::OfNode(first_node, static_cast<int>(o)));
          place.chunk = chunk;
        }
      }
    }
  }

  // How many of a lane's tokens count.
  StatusOr<int64_t> Steps(const SlicedCell& cell, int64_t lane) const {
    const int64_t length = lengths_[cell.length];
    if (cell.tokens_that_count < 0) return length;
    const auto at = std::find(model_.inputs.begin(), model_.inputs.end(), cell.tokens_that_count);
    const Tensor& tensor = inputs_[at - model_.inputs.begin()];
    const int64_t steps = tensor.dtype() == DType::kInt32 ? tensor.data<int32_t>()[lane]
                                                          : tensor.data<int64_t>()[lane];
    if (steps < 0 || steps > length) {
      return InvalidArgument("'{}' says {} time steps for row {}, which has {}",
                             model_.values[cell.tokens_that_count].name, steps, lane, length);
    }
    return steps;
  }

  Status AddSteps(int index, CellGraphBuilder& graph) {
    const SlicedCell& cell = model_.cells[index];
    MakeBuffers(cell, cell.reverse, 1, graph);
    for (int id : cell.outputs) {
      if (id >= 0) MakeAnswers(id, graph);
    }
    std::vector<int> constants;
    for (const CellState& state : cell.states) {
      constants.push_back(state.initial < 0 ? graph.AddTensor(state.constant) : -1);
    }
    for (int64_t lane = 0; lane < lanes_; ++lane) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t steps, Steps(cell, lane));
      std::vector<RowSource> states;
      for (size_t s = 0; s < cell.states.size(); ++s) {
        const int initial = cell.states[s].initial;
        states.push_back(initial < 0 ? RowSource::OfTensor(constants[s]) : LaneRow(initial, lane));
      }
      NodeId first = 0;
      for (int64_t step = 0; step < steps; ++step) {
        const NodeId node =
            AddStep(index, lane, cell.reverse ? steps - 1 - step : step, states, graph);
        if (step == 0) first = node;
      }
      for (size_t o = 0; o < cell.outputs.size(); ++o) {
        const int id = cell.outputs[o];
        if (id < 0 || places_[id].tensor < 0) continue;
        places_[id].writers.push_back(first);
        places_[id].steps.push_back(steps);
      }
      for (size_t s = 0; s < cell.states.size(); ++s) {
        const int id = cell.states[s].final_value;
        if (id < 0) continue;
        places_[id].lanes.push_back(states[s]);
        DeliverFinal(id, lane, states[s], cell.states[s], graph);
      }
    }
    return absl::OkStatus();
  }

  NodeId AddStep(int index, int64_t lane, int64_t token, std::vector<RowSource>& states,
                 CellGraphBuilder& graph) {
    const SlicedCell& cell = model_.cells[index];
    sources_.clear();
    after_.clear();
    for (int id : cell.inputs) {
      if (id < 0) {
        sources_.emplace_back();  // a state, below
      } else if (model_.values[id].length >= 0) {
        sources_.push_back(Token(id, lane, token));
        AppendWriters(id, lane, token, token + 1, after_);
      } else {
        sources_.push_back(LaneRow(id, lane));
      }
    }
    for (size_t s = 0; s < cell.states.size(); ++s) sources_[cell.states[s].input] = states[s];
    const NodeId node = graph.AddNode(index, sources_, 1, after_, {});
    for (size_t s = 0; s < cell.states.size(); ++s) {
      states[s] = RowSource::OfNode(node, cell.states[s].output);
    }
    for (size_t o = 0; o < cell.outputs.size(); ++o) {
      if (cell.outputs[o] >= 0) {
        DeliverTokens(cell.outputs[o], static_cast<int>(o), node, lane, token, 1, graph);
      }
    }
    return node;
  }

  std::shared_ptr<const SlicedProgram> program_;
  const SlicedModel& model_;
  std::span<const Tensor> inputs_;  // while Unfold() runs
  int64_t lanes_ = 0;
  std::vector<Place> places_;
  std::vector<std::optional<Shape>> rows_;
  std::vector<int64_t> lengths_;
  std::vector<AnswerTensor> answers_;  // by the model's outputs
  size_t next_ = 0;                    // the first cell without nodes
  NodeId watched_ = 0;    // the first lane's node of cell next_ − 1, where it is watched
  int64_t watching_ = 0;  // of these, how many have not run
  // One node's, kept for their memory.
  std::vector<RowSource> sources_;
  std::vector<NodeId> after_;
  std::vector<Shape> shapes_;
};

// The row of a value where all of its dimensions are known.
std::optional<Shape> KnownRow(const SymbolicShape& row) {
  if (!row.has_rank()) return std::nullopt;
  Shape shape;
  for (const Dim& dim : row.dims()) {
    if (!dim.known()) return std::nullopt;
    shape.Append(dim.value());
  }
  return shape;
}

// Rows whose dimensions lie around both axes would have to be delivered in pieces of pieces.
Status CheckDeliverable(const SlicedModel& model, const SlicedOutput& output) {
  if (output.time_axis < 0) return absl::OkStatus();
  const int first = std::min(output.batch_axis, output.time_axis);
  const int last = std::max(output.batch_axis, output.time_axis);
  int pieces = 0;  // groups of the row's dimensions ahead of the last axis
  bool inside = false;
  for (int axis = 0, of_row = 0; axis < last; ++axis) {
    const bool here =
        axis != first && !(output.row[of_row].known() && output.row[of_row].value() == 1);
    if (axis != first) ++of_row;
    pieces += here && !inside ? 1 : 0;
    inside = here;
  }
  if (pieces > 1) {
    return Unimplemented(
        "output '{}' has its batch and time axes at {} and {}, with others before and between",
        model.values[output.value].name, output.batch_axis, output.time_axis);
  }
  return absl::OkStatus();
}

bool DefinesLength(const SlicedModel& model, int id) {
  return std::any_of(model.lengths.begin(), model.lengths.end(),
                     [id](const SequenceLength& length) { return length.value == id; });
}

Status Check(const SlicedModel& model) {
  const auto is_input = [&](int id) {
    return std::find(model.inputs.begin(), model.inputs.end(), id) != model.inputs.end();
  };
  for (const SlicedOutput& output : model.outputs) {
    CHAIRLIFT_RETURN_IF_ERROR(CheckDeliverable(model, output));
  }
  for (const SlicedCell& cell : model.cells) {
    if (cell.tokens_that_count >= 0 && !is_input(cell.tokens_that_count)) {
      return Unimplemented("the sequence lengths of '{}' are computed by the model", cell.name);
    }
    if (cell.kind == SlicedCell::Kind::kLanes) continue;
    for (int id : cell.outputs) {
      if (id >= 0 && !KnownRow(model.values[id].row)) {
        return Unimplemented("'{}', one time step of '{}', has rows of shape {}",
                             model.values[id].name, cell.name, model.values[id].row.ToString());
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<CellProgram> MakeCellProgram(SlicedModel model, const ExecutableOptions& options) {
  CHAIRLIFT_RETURN_IF_ERROR(Check(model));
  auto shared = std::make_shared<SlicedProgram>();
  CellProgram program;
  program.num_outputs = static_cast<int>(model.outputs.size());
  // Values that come step by step out of a recurrence.
  std::vector<bool> late(model.values.size());
  std::vector<bool> by_steps(model.values.size());
  shared->buffered.resize(model.values.size());
  for (const CellValue& value : model.values) shared->row.push_back(KnownRow(value.row));
  for (SlicedCell& cell : model.cells) {
    CHAIRLIFT_ASSIGN_OR_RETURN(std::unique_ptr<Cell> made,
                               Cell::Create(cell.name, std::move(*cell.graph), options));
    cell.graph = nullptr;
    const bool lanes = cell.kind == SlicedCell::Kind::kLanes;
    bool waits = cell.kind == SlicedCell::Kind::kRecurrent;
    for (int id : cell.inputs) {
      if (id < 0) continue;
      waits |= late[id];
      if (model.values[id].length >= 0) shared->buffered[id] = by_steps[id] || (lanes && late[id]);
    }
    for (size_t o = 0; o < cell.outputs.size(); ++o) {
      const int id = cell.outputs[o];
      if (id < 0 || model.values[id].length < 0) continue;
      late[id] = waits && !lanes;
      by_steps[id] = cell.kind == SlicedCell::Kind::kRecurrent;
    }
    bool tells = false;
    for (int id : cell.outputs) {
      tells |= lanes && (!shared->row[id] || DefinesLength(model, id));
    }
    shared->tells_shapes.push_back(tells);
    shared->open.push_back(made->open());
    shared->chunk.push_back(waits ? kLateChunk : kKnownChunk);
    program.cells.push_back(std::move(made));
  }
  shared->model = std::move(model);
  program.unfolder = [shared = std::shared_ptr<const SlicedProgram>(std::move(shared))] {
    return std::make_unique<SlicedUnfolder>(shared);
  };
  return program;
}

}  // namespace chairlift
