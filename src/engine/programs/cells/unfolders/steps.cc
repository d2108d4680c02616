#include "engine/programs/cells/unfolders/steps.h"

#include "base/status.h"
#include "engine/programs/cells/cell_request.h"

namespace chairlift {

StatusOr<Steps> Steps::Make(const StepsUnfold& manifest, const std::string& lengths,
                            NamedCells& cells, ModelSide& inputs) {
  Steps steps;
  CHAIRLIFT_ASSIGN_OR_RETURN(steps.cell, cells.Take(manifest.cell));
  CHAIRLIFT_ASSIGN_OR_RETURN(steps.token_input, cells.Feed(steps.cell, manifest.tokens.input));
  const Cell::Port& token = cells.input(steps.cell, steps.token_input);
  CHAIRLIFT_ASSIGN_OR_RETURN(const Shape token_row, cells.Row(steps.cell, token));
  const Dim batch = Dim::Symbol("batch");
  CHAIRLIFT_ASSIGN_OR_RETURN(steps.tokens,
                             inputs.Add(manifest.tokens.request, token.dtype,
                                        ShapeOf({batch, Dim::Symbol("length")}, token_row)));
  if (!lengths.empty()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(steps.lengths,
                               inputs.Add(lengths, DType::kInt64, SymbolicShape({batch})));
  }
  for (const StateFeed& feed : manifest.states) {
    State state;
    CHAIRLIFT_ASSIGN_OR_RETURN(state.input, cells.Feed(steps.cell, feed.input));
    CHAIRLIFT_ASSIGN_OR_RETURN(state.output, cells.Output(steps.cell, feed.output));
    const Cell::Port& port = cells.input(steps.cell, state.input);
    CHAIRLIFT_RETURN_IF_ERROR(
        cells.CheckFits(steps.cell, cells.output(steps.cell, state.output), steps.cell, port));
    CHAIRLIFT_ASSIGN_OR_RETURN(const Shape row, cells.Row(steps.cell, port));
    if (feed.initial.empty()) {
      state.zeros = ZeroRow(port.dtype, row);
    } else {
      CHAIRLIFT_ASSIGN_OR_RETURN(state.initial,
                                 inputs.Add(feed.initial, port.dtype, ShapeOf({batch}, row)));
    }
    steps.states.push_back(std::move(state));
  }
  return steps;
}

std::vector<int> Steps::Feeds(const NamedCells& cells) const {
  std::vector<int> feeds(cells.cell(cell).inputs().size(), -1);
  for (const State& state : states) feeds[static_cast<size_t>(state.input)] = state.output;
  return feeds;
}

Status LaneSteps::Begin(std::span<const Tensor> inputs, CellGraphBuilder& graph) {
  const Tensor& tokens = inputs[steps_.tokens];
  lanes_ = tokens.shape()[0];
  longest_ = tokens.shape()[1];
  // Checked before anything is allocated by these numbers; rows may have zero bytes.
  if (lanes_ > CellRequest::kMaxNodes || longest_ > CellRequest::kMaxNodes ||
      lanes_ * longest_ > CellRequest::kMaxNodes) {
    return InvalidArgument("the request has {} sequences of {} tokens; at most {} cells can run",
                           lanes_, longest_, CellRequest::kMaxNodes);
  }
  if (steps_.lengths >= 0) {
    lengths_tensor_ = inputs[steps_.lengths];
    lengths_ = lengths_tensor_.data<int64_t>();
    for (int64_t lane = 0; lane < lanes_; ++lane) {
      if (lengths_[lane] >= 0 && lengths_[lane] <= longest_) continue;
      return InvalidArgument("the length of row {} is {}; the row has {} tokens", lane,
                             lengths_[lane], longest_);
    }
  }
  tokens_ = graph.AddTensor(tokens);
  for (const Steps::State& state : steps_.states) {
    initial_.push_back(graph.AddTensor(state.initial < 0 ? state.zeros : inputs[state.initial]));
  }
  return absl::OkStatus();
}

Status LaneSteps::CheckNoneEmpty() const {
  for (int64_t lane = 0; lane < lanes_; ++lane) {
    if (length(lane) == 0) return InvalidArgument("row {} has no tokens", lane);
  }
  return absl::OkStatus();
}

void LaneSteps::StartLane(int64_t lane) {
  sources_.resize(steps_.states.size() + 1);
  for (size_t s = 0; s < steps_.states.size(); ++s) {
    const Steps::State& state = steps_.states[s];
    sources_[state.input] = RowSource::OfTensor(initial_[s], state.initial < 0 ? 0 : lane);
  }
}

NodeId LaneSteps::AddStep(int64_t lane, int64_t step, CellGraphBuilder& graph) {
  sources_[steps_.token_input] = RowSource::OfTensor(tokens_, lane * longest_ + step);
  const NodeId node = graph.AddNode(steps_.cell, sources_);
  for (const Steps::State& state : steps_.states) {
    sources_[state.input] = RowSource::OfNode(node, state.output);
  }
  return node;
}

}  // namespace chairlift
