// One cell over the tokens of a request's sequences, where each step reads the previous step's
// result: used by chains and by encoders.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_CELLS_UNFOLDERS_STEPS_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_CELLS_UNFOLDERS_STEPS_H_

#include <string>
#include <vector>

#include "engine/programs/cells/cell_manifest.h"
#include "engine/programs/cells/unfolders/named_cells.h"

namespace chairlift {

// Shared by all requests.
struct Steps {
  struct State {
    int input = 0;
    int output = 0;
    int initial = -1;  // the model's input; −1: zeros
    Tensor zeros;
  };
  int cell = 0;
  int token_input = 0;
  int tokens = 0;    // the model's input [batch, length, row…]
  int lengths = -1;  // the model's input, int64 [batch]; −1: all tokens are valid
  std::vector<State> states;

  // By input of the cell, as in CellProgram.
  std::vector<int> Feeds(const NamedCells& cells) const;

  static StatusOr<Steps> Make(const StepsUnfold& manifest, const std::string& lengths,
                              NamedCells& cells, ModelSide& inputs);
};

// The steps of one request. `steps` must outlive it.
class LaneSteps {
 public:
  explicit LaneSteps(const Steps& steps) : steps_(steps) {}

  Status Begin(std::span<const Tensor> inputs, CellGraphBuilder& graph);

  int64_t lanes() const { return lanes_; }
  int64_t longest() const { return longest_; }  // the time dimension of the request
  int64_t length(int64_t lane) const { return lengths_ == nullptr ? longest_ : lengths_[lane]; }
  // InvalidArgument if a lane has no token.
  Status CheckNoneEmpty() const;

  // Adds the steps of a lane and calls visit(node, step) for each. Returns the last node.
  template <typename F>
  NodeId AddLane(int64_t lane, CellGraphBuilder& graph, F&& visit) {
    StartLane(lane);
    NodeId node = -1;
    for (int64_t step = 0; step < length(lane); ++step) {
      node = AddStep(lane, step, graph);
      visit(node, step);
    }
    return node;
  }

 private:
  void StartLane(int64_t lane);
  NodeId AddStep(int64_t lane, int64_t step, CellGraphBuilder& graph);

  const Steps& steps_;
  int64_t lanes_ = 0;
  int64_t longest_ = 0;
  Tensor lengths_tensor_;
  const int64_t* lengths_ = nullptr;  // null: all have the full length
  int tokens_ = 0;                    // index of the graph's tensor
  std::vector<int> initial_;          // by state: index of the graph's tensor
  std::vector<RowSource> sources_;    // of the lane's next step
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_CELLS_UNFOLDERS_STEPS_H_
