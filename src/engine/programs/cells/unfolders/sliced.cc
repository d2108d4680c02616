// Unfolds requests to a model that was cut into cells automatically: lanes along the batch axis,
// tokens along time, and every cell on each of its rows.
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/status.h"
#include "engine/programs/cells/cell_request.h"
#include "engine/programs/cells/unfolders/sliced_layout.h"
#include "engine/programs/cells/unfolders/sliced_program.h"

namespace chairlift {
namespace {

// For inputs that are not sequences as the cells need them: the model as a whole may support them.
template <typename... Args>
Status DoesNotUnfold(fmt::format_string<Args...> format, Args&&... args) {
  return absl::FailedPreconditionError(fmt::format(format, std::forward<Args>(args)...));
}

// The first step reads other states than the next ones, and two of those are needed for a distance.
constexpr int64_t kStepsThatShowTheWay = 3;

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
        return DoesNotUnfold("input '{}' has {} sequences (dimension {}), input '{}' has {}",
                             value.name, shape[value.batch_axis], value.batch_axis, first.name,
                             lanes_);
      }
      if (value.time_axis >= 0) {
        int64_t& length = lengths_[value.length];
        if (length < 0) length = shape[value.time_axis];
        if (length != shape[value.time_axis]) {
          return DoesNotUnfold("input '{}' has {} time steps (dimension {}), others have {}",
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
    inputs_.assign(inputs.begin(), inputs.end());
    return Continue(graph);
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
        CopyRow(output, answer.Lane(lane), answer.tensor);
      });
    }
    if (--watching_ > 0) return absl::OkStatus();
    return Continue(graph);
  }

 private:
  struct AnswerTensor {
    int number = -1;
    Tensor tensor;
    AnswerLayout layout;

    RowTarget Token(int64_t lane, int64_t token) const {
      RowTarget target = layout.Token(lane, token);
      target.tensor = number;
      return target;
    }
    RowTarget Lane(int64_t lane) const {
      RowTarget target = layout.Lane(lane);
      target.tensor = number;
      return target;
    }
  };
  // Where a value's rows are.
  struct Place {
    // Either one tensor of all lanes' rows, one after the other: an input of the request, or
    // written by nodes.
    int tensor = -1;
    Tensor rows;  // from the request's inputs
    // The nodes that write the tensor; empty for an input. For each lane, consecutive nodes of
    // `chunk` tokens each. In a chain, each follows the previous one.
    std::vector<NodeId> writers;
    std::vector<int64_t> steps;  // by lane: number of tokens written
    bool chain = false;
    bool reverse = false;
    // Or rows of nodes: by lane the row, or the first token's row.
    std::vector<RowSource> lanes;
    int64_t chunk = std::numeric_limits<int64_t>::max();
  };

  // A token of a value and, if it is in a tensor, the node that writes it.
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
  // The nodes that write tokens [first, last) of a value in a tensor.
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

  // The tensor of a model output, created on first use.
  const AnswerTensor& Answer(int output, CellGraphBuilder& graph) {
    AnswerTensor& answer = answers_[output];
    if (answer.number >= 0) return answer;
    const SlicedOutput& form = model_.outputs[output];
    const CellValue& value = model_.values[form.value];
    answer.layout = AnswerLayout(form, value.dtype, *rows_[form.value], lanes_,
                                 value.length >= 0 ? lengths_[value.length] : 1);
    answer.tensor = answer.layout.Zeros();
    answer.number = graph.AddTensor(answer.tensor);
    graph.SetAnswer(output, answer.number, {.batch = form.batch_axis, .time = form.time_axis});
    return answer;
  }
  // Calls visit(output) for every model output that has this value.
  template <typename F>
  void ForEachOutput(int id, const F& visit) const {
    for (size_t o = 0; o < model_.outputs.size(); ++o) {
      if (model_.outputs[o].value == id) visit(static_cast<int>(o));
    }
  }
  // Also creates outputs that no lane writes.
  void MakeAnswers(int id, CellGraphBuilder& graph) {
    ForEachOutput(id, [&](int output) { Answer(output, graph); });
  }
  // An input that is also an output.
  void HandOver(int output, CellGraphBuilder& graph) {
    const int id = model_.outputs[output].value;
    const AnswerTensor& answer = Answer(output, graph);
    const int length = model_.values[id].length;
    const int64_t tokens = length >= 0 ? lengths_[length] : 1;
    for (int64_t lane = 0; lane < lanes_; ++lane) {
      for (int64_t token = 0; token < tokens; ++token) {
        CopyRow(places_[id].rows.Rows(lane * tokens + token, 1), answer.Token(lane, token),
                answer.tensor);
      }
    }
  }
  // The result of a lane's last step, or, if it has no steps, what the first would have read.
  void DeliverFinal(int id, int64_t lane, const RowSource& source, const CellState& state,
                    CellGraphBuilder& graph) {
    // For a lane without steps.
    const auto held = [&] {
      if (state.without_steps.present()) return state.without_steps;
      return state.initial < 0 ? state.constant : places_[state.initial].rows.Rows(lane, 1);
    };
    ForEachOutput(id, [&](int output) {
      const AnswerTensor& answer = Answer(output, graph);
      const RowTarget target = answer.Token(lane, 0);
      if (source.node >= 0) {
        graph.Deliver(source.node, source.index, 0, 1, target);
      } else {
        CopyRow(held(), target, answer.tensor);
      }
    });
  }

  // Checked before anything of that size is allocated.
  Status CheckSize(const SlicedCell& cell) const {
    const int64_t tokens = cell.length < 0 ? 1 : std::max<int64_t>(lengths_[cell.length], 1);
    if (lanes_ > CellRequest::kMaxNodes / tokens) {
      return InvalidArgument(
          "the request has {} sequences of {} time steps; it may have {} time steps in total",
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
          if (program_->computed_shapes[index] && lanes_ > 0) return absl::OkStatus();
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
    const bool computed = program_->computed_shapes[index];
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
      if (computed) {
        graph.Watch(node);
        graph.Keep(node);
        if (lane == 0) watched_ = node;
      }
      for (size_t o = 0; o < cell.outputs.size(); ++o) {
        const int id = cell.outputs[o];
        places_[id].lanes.push_back(RowSource::OfNode(node, static_cast<int>(o)));
        if (computed) continue;
        ForEachOutput(id, [&](int output) {
          graph.Deliver(node, static_cast<int>(o), 0, 1, Answer(output, graph).Lane(lane));
        });
      }
    }
    watching_ = computed ? lanes_ : 0;
  }

  // Creates the tensors that collect the outputs of a cell over tokens, for values that are read as
  // a whole and written by several nodes or by none.
  void MakeBuffers(const SlicedCell& cell, bool reverse, int64_t chunk, CellGraphBuilder& graph) {
    const int64_t length = lengths_[cell.length];
    const bool one_node = length > 0 && length <= chunk;
    for (int id : cell.outputs) {
      if (id < 0 || model_.values[id].length < 0) continue;
      if (!program_->buffered[id] && (one_node || !program_->whole[id])) continue;
      Shape shape = *rows_[id];
      shape.Insert(0, lanes_ * lengths_[cell.length]);
      Place& place = places_[id];
      place.tensor = graph.AddBuffer(model_.values[id].dtype, shape);
      place.chain = cell.kind == SlicedCell::Kind::kRecurrent;
      place.reverse = reverse;
      place.chunk = chunk;
    }
  }
  // Copies a node's tokens to all their destinations in one tensor.
  void DeliverTokens(int id, int output, NodeId node, int64_t lane, int64_t token, int64_t count,
                     CellGraphBuilder& graph) {
    if (places_[id].tensor >= 0) {
      const Shape& row = *rows_[id];
      const int64_t bytes =
          row.NumElements() * static_cast<int64_t>(DTypeSize(model_.values[id].dtype));
      const int64_t first = lane * lengths_[model_.values[id].length] + token;
      graph.Deliver(node, output, 0, count,
                    {.tensor = places_[id].tensor, .offset = first * bytes, .row_stride = bytes});
    }
    ForEachOutput(id, [&](int answer) {
      graph.Deliver(node, output, 0, count, Answer(answer, graph).Token(lane, token));
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

  // The number of valid tokens of a lane.
  StatusOr<int64_t> Steps(const SlicedCell& cell, int64_t lane) const {
    const int64_t length = lengths_[cell.length];
    if (cell.tokens_that_count < 0) return length;
    const auto at = std::find(model_.inputs.begin(), model_.inputs.end(), cell.tokens_that_count);
    const Tensor& tensor = inputs_[at - model_.inputs.begin()];
    const int64_t steps = tensor.dtype() == DType::kInt32 ? tensor.data<int32_t>()[lane]
                                                          : tensor.data<int64_t>()[lane];
    if (steps < 0 || steps > length) {
      return DoesNotUnfold("'{}' says {} time steps for row {}, which has {}",
                           model_.values[cell.tokens_that_count].name, steps, lane, length);
    }
    return steps;
  }

  // Whether all tokens that a cell's steps read come from one node, or from the request.
  bool ReadsOneNode(const SlicedCell& cell) const {
    return std::all_of(cell.inputs.begin(), cell.inputs.end(), [&](int id) {
      return id < 0 || model_.values[id].length < 0 ||
             places_[id].chunk >= lengths_[model_.values[id].length];
    });
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
    auto* const request = ReadsOneNode(cell) ? dynamic_cast<CellRequest*>(&graph) : nullptr;
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
        if (step != kStepsThatShowTheWay - 1 || request == nullptr) continue;
        const int32_t more = request->Repeat(static_cast<int32_t>(steps - 1 - step));
        for (RowSource& state : states) state.node += more;
        step += more;
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
        if (const Tensor& left = cell.states[s].without_steps; steps == 0 && left.present()) {
          states[s] = RowSource::OfTensor(graph.AddTensor(left));
        }
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
        sources_.emplace_back();  // a state, see below
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
  std::vector<Tensor> inputs_;  // some cells are unfolded only after others have run
  int64_t lanes_ = 0;
  std::vector<Place> places_;
  std::vector<std::optional<Shape>> rows_;
  std::vector<int64_t> lengths_;
  std::vector<AnswerTensor> answers_;  // by the model's outputs
  size_t next_ = 0;                    // the first cell without nodes
  NodeId watched_ = 0;    // the first lane's node of cell next_ − 1, if it is watched
  int64_t watching_ = 0;  // the number of those that have not run
  // For one node; kept for reuse.
  std::vector<RowSource> sources_;
  std::vector<NodeId> after_;
  std::vector<Shape> shapes_;
};

}  // namespace

std::unique_ptr<Unfolder> MakeSlicedUnfolder(std::shared_ptr<const SlicedProgram> program) {
  return std::make_unique<SlicedUnfolder>(std::move(program));
}

}  // namespace chairlift
