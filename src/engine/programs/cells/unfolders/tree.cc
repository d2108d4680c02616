// unfold: tree. A leaf cell for every leaf, and an internal cell for every node with two children,
// as soon as both have run. One request may have several trees; nodes of equal height, including
// those of other requests, share batches. (Gao et al., "Low Latency RNN Inference with Cellular
// Batching", EuroSys 2018, §7.5.)
//
//            [internal] → [head] → the answer
//             ↑      ↑
//       [internal]  [leaf]
//        ↑     ↑       ↑
//     [leaf] [leaf]    x4
//       ↑      ↑
//       x0     x1
#include <algorithm>
#include <utility>

#include "base/closest.h"
#include "base/status.h"
#include "engine/programs/cells/cell_request.h"
#include "engine/programs/cells/unfolders/unfolders.h"

namespace chairlift {
namespace {

struct TreeProgram {
  struct State {
    int leaf = 0;      // the leaf cell's output
    int internal = 0;  // the internal cell's output
    int left = 0;      // the internal cell's inputs
    int right = 0;
  };
  // An output of the model: a state, or an output of the head.
  struct Collected {
    int what = 0;  // the state, or the head's output
    bool all = false;
    DType dtype = DType::kUndefined;
    Shape row;
  };
  int leaf = 0;  // a cell
  int token_input = 0;
  int internal = 0;  // a cell
  int tokens = 0;    // the model's input [nodes, row…]
  int children = 0;  // the model's input [nodes, 2]
  std::vector<State> states;
  std::vector<Collected> of_states;
  int head = -1;  // a cell; −1: none
  bool head_at_all = false;
  std::vector<int> head_reads;  // by the head's input: the state
  std::vector<Collected> of_head;
};

// The forest of a request: the children of each node, checked.
class Forest {
 public:
  static constexpr int32_t kNone = -1;

  // `children` is int64 [nodes, 2].
  static StatusOr<Forest> Of(const Tensor& children) {
    Forest forest;
    const auto nodes = static_cast<int32_t>(children.shape()[0]);
    const int64_t* child = children.data<int64_t>();
    forest.parent_.assign(static_cast<size_t>(nodes), kNone);
    std::vector<int8_t> missing(static_cast<size_t>(nodes), 0);  // children not visited yet
    std::vector<int32_t>& order = forest.order_;
    for (int32_t node = 0; node < nodes; ++node) {
      const int64_t left = child[2 * node], right = child[2 * node + 1];
      if (left == kNone && right == kNone) {
        order.push_back(node);
        continue;
      }
      missing[node] = 2;
      for (const int64_t of : {left, right}) {
        if (of < 0 || of >= nodes) {
          return InvalidArgument(
              "node {} has the children {} and {}; the request has the nodes 0 to {}, and a leaf "
              "has -1 and -1",
              node, left, right, nodes - 1);
        }
        if (forest.parent_[of] != kNone) {
          return InvalidArgument("node {} is a child of node {} and of node {}", of,
                                 forest.parent_[of], node);
        }
        forest.parent_[of] = node;
      }
    }
    for (size_t at = 0; at < order.size(); ++at) {
      const int32_t parent = forest.parent_[order[at]];
      if (parent != kNone && --missing[parent] == 0) order.push_back(parent);
    }
    if (order.size() < static_cast<size_t>(nodes)) {
      const auto in_circle =
          std::find_if(missing.begin(), missing.end(), [](int8_t left) { return left > 0; });
      return InvalidArgument("node {} is a descendant of itself, or has one that is",
                             in_circle - missing.begin());
    }
    return forest;
  }

  // Children before their parents.
  const std::vector<int32_t>& order() const { return order_; }
  bool IsRoot(int32_t node) const { return parent_[node] == kNone; }

 private:
  std::vector<int32_t> parent_;
  std::vector<int32_t> order_;
};

class TreeUnfolder final : public Unfolder {
 public:
  explicit TreeUnfolder(std::shared_ptr<const TreeProgram> program)
      : program_(std::move(program)) {}

  Status Unfold(std::span<const Tensor> inputs, CellGraphBuilder& graph) override {
    const TreeProgram& program = *program_;
    const Tensor& children = inputs[program.children];
    const int64_t nodes = children.shape()[0];
    if (nodes > CellRequest::kMaxNodes) {
      return InvalidArgument("the request has {} nodes; at most {} cells can run", nodes,
                             CellRequest::kMaxNodes);
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(const Forest forest, Forest::Of(children));
    // Roots in the order of the request.
    std::vector<int64_t> root_row(static_cast<size_t>(nodes), -1);
    int64_t roots = 0;
    for (int32_t node = 0; node < nodes; ++node) {
      if (forest.IsRoot(node)) root_row[node] = roots++;
    }
    int answer = 0;
    for (const std::vector<TreeProgram::Collected>* side : {&program.of_states, &program.of_head}) {
      for (const TreeProgram::Collected& collected : *side) {
        CHAIRLIFT_ASSIGN_OR_RETURN(
            const int buffer, AddAnswer(answer++, collected.dtype, {collected.all ? nodes : roots},
                                        collected.row, {}, graph));
        buffers_.push_back(buffer);
      }
    }
    const int tokens = graph.AddTensor(inputs[program.tokens]);
    const int64_t* child = children.data<int64_t>();
    ran_.resize(static_cast<size_t>(nodes));
    for (const int32_t node : forest.order()) {
      const bool leaf = child[2 * node] == Forest::kNone;
      if (leaf) {
        const RowSource token = RowSource::OfTensor(tokens, node);
        ran_[node] = {graph.AddNode(program.leaf, {&token, 1}), true};
      } else {
        ran_[node] = {AddInternal(ran_[child[2 * node]], ran_[child[2 * node + 1]], graph), false};
      }
      Collect(ran_[node], node, true, graph);
      if (root_row[node] >= 0) Collect(ran_[node], root_row[node], false, graph);
    }
    return absl::OkStatus();
  }

 private:
  struct Placed {
    NodeId node = 0;
    bool leaf = false;
  };

  RowSource StateOf(const Placed& of, int state) const {
    const TreeProgram::State& ports = program_->states[state];
    return RowSource::OfNode(of.node, of.leaf ? ports.leaf : ports.internal);
  }
  NodeId AddInternal(const Placed& left, const Placed& right, CellGraphBuilder& graph) {
    sources_.resize(2 * program_->states.size());
    for (size_t s = 0; s < program_->states.size(); ++s) {
      sources_[program_->states[s].left] = StateOf(left, static_cast<int>(s));
      sources_[program_->states[s].right] = StateOf(right, static_cast<int>(s));
    }
    return graph.AddNode(program_->internal, sources_);
  }
  // Collects the outputs of every node, or of the roots.
  void Collect(const Placed& from, int64_t row, bool all, CellGraphBuilder& graph) {
    for (size_t i = 0; i < program_->of_states.size(); ++i) {
      const TreeProgram::Collected& collected = program_->of_states[i];
      if (collected.all != all) continue;
      const RowSource source = StateOf(from, collected.what);
      graph.Deliver(source.node, source.index, 0, 1, Target(i, collected, row));
    }
    if (program_->head < 0 || program_->head_at_all != all) return;
    sources_.clear();
    for (int state : program_->head_reads) sources_.push_back(StateOf(from, state));
    const NodeId head = graph.AddNode(program_->head, sources_);
    for (size_t i = 0; i < program_->of_head.size(); ++i) {
      const TreeProgram::Collected& collected = program_->of_head[i];
      graph.Deliver(head, collected.what, 0, 1,
                    Target(program_->of_states.size() + i, collected, row));
    }
  }
  RowTarget Target(size_t answer, const TreeProgram::Collected& collected, int64_t row) const {
    return {.tensor = buffers_[answer], .offset = row * RowBytes(collected.dtype, collected.row)};
  }

  const std::shared_ptr<const TreeProgram> program_;
  std::vector<int> buffers_;  // by output of the model
  std::vector<Placed> ran_;   // by the request's nodes
  std::vector<RowSource> sources_;
};

// By name; −1 if there is none.
int FindState(const TreeUnfold& manifest, const std::string& name) {
  for (size_t s = 0; s < manifest.states.size(); ++s) {
    if (manifest.states[s].name == name) return static_cast<int>(s);
  }
  return -1;
}

StatusOr<int> StateNamed(const TreeUnfold& manifest, const std::string& name) {
  const int state = FindState(manifest, name);
  if (state >= 0) return state;
  return InvalidArgument("there is no state '{}'{}", name,
                         KnownNames(name, NamesOf(manifest.states, &TreeState::name)));
}

Status MakeStates(const TreeUnfold& manifest, NamedCells& cells, TreeProgram& program) {
  const int leaf = program.leaf, internal = program.internal;
  for (const TreeState& named : manifest.states) {
    TreeProgram::State state;
    CHAIRLIFT_ASSIGN_OR_RETURN(state.leaf, cells.Output(leaf, named.leaf));
    CHAIRLIFT_ASSIGN_OR_RETURN(state.internal, cells.Output(internal, named.internal));
    CHAIRLIFT_ASSIGN_OR_RETURN(state.left, cells.Feed(internal, named.left));
    CHAIRLIFT_ASSIGN_OR_RETURN(state.right, cells.Feed(internal, named.right));
    for (const int input : {state.left, state.right}) {
      const Cell::Port& to = cells.input(internal, input);
      CHAIRLIFT_RETURN_IF_ERROR(
          cells.CheckFits(leaf, cells.output(leaf, state.leaf), internal, to));
      CHAIRLIFT_RETURN_IF_ERROR(
          cells.CheckFits(internal, cells.output(internal, state.internal), internal, to));
    }
    program.states.push_back(state);
  }
  return absl::OkStatus();
}

StatusOr<TreeProgram::Collected> Collect(const CollectedOutput& manifest, int what, int cell,
                                         const Cell::Port& port, NamedCells& cells,
                                         ModelSide& outputs) {
  TreeProgram::Collected collected{
      .what = what, .all = manifest.all, .dtype = port.dtype, .row = {}};
  CHAIRLIFT_ASSIGN_OR_RETURN(collected.row, cells.Row(cell, port));
  CHAIRLIFT_RETURN_IF_ERROR(
      outputs
          .Add(manifest.name, port.dtype,
               ShapeOf({Dim::Symbol(manifest.all ? "nodes" : "trees")}, collected.row))
          .status());
  return collected;
}

Status MakeHead(const TreeUnfold& manifest, NamedCells& cells, TreeProgram& program,
                ModelSide& outputs) {
  const HeadCell& head = *manifest.head;
  CHAIRLIFT_ASSIGN_OR_RETURN(program.head, cells.Take(head.cell));
  program.head_at_all = head.all;
  program.head_reads.resize(cells.cell(program.head).inputs().size());
  for (const auto& [input, name] : head.inputs) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int to, cells.Feed(program.head, input));
    CHAIRLIFT_ASSIGN_OR_RETURN(const int state, StateNamed(manifest, name));
    program.head_reads[to] = state;
    CHAIRLIFT_RETURN_IF_ERROR(
        cells.CheckFits(program.leaf, cells.output(program.leaf, program.states[state].leaf),
                        program.head, cells.input(program.head, to)));
  }
  for (const CollectedOutput& output : head.outputs) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int what, cells.Output(program.head, output.output));
    CHAIRLIFT_ASSIGN_OR_RETURN(
        TreeProgram::Collected collected,
        Collect(output, what, program.head, cells.output(program.head, what), cells, outputs));
    program.of_head.push_back(std::move(collected));
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<Unfolding> MakeTree(const TreeUnfold& manifest, NamedCells& cells) {
  auto program = std::make_shared<TreeProgram>();
  ModelSide inputs("input"), outputs("output");
  CHAIRLIFT_ASSIGN_OR_RETURN(program->leaf, cells.Take(manifest.leaf));
  CHAIRLIFT_ASSIGN_OR_RETURN(program->internal, cells.Take(manifest.internal));
  CHAIRLIFT_ASSIGN_OR_RETURN(program->token_input,
                             cells.Feed(program->leaf, manifest.tokens.input));
  const Cell::Port& token = cells.input(program->leaf, program->token_input);
  CHAIRLIFT_ASSIGN_OR_RETURN(const Shape token_row, cells.Row(program->leaf, token));
  const Dim nodes = Dim::Symbol("nodes");
  CHAIRLIFT_ASSIGN_OR_RETURN(program->tokens, inputs.Add(manifest.tokens.request, token.dtype,
                                                         ShapeOf({nodes}, token_row)));
  CHAIRLIFT_ASSIGN_OR_RETURN(program->children, inputs.Add(manifest.children, DType::kInt64,
                                                           SymbolicShape({nodes, Dim(2)})));
  CHAIRLIFT_RETURN_IF_ERROR(MakeStates(manifest, cells, *program));
  for (const CollectedOutput& output : manifest.outputs) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int state, StateNamed(manifest, output.output));
    const Cell::Port& port = cells.output(program->leaf, program->states[state].leaf);
    CHAIRLIFT_ASSIGN_OR_RETURN(TreeProgram::Collected collected,
                               Collect(output, state, program->leaf, port, cells, outputs));
    program->of_states.push_back(std::move(collected));
  }
  Unfolding unfolding;
  unfolding.phases.assign(static_cast<size_t>(cells.size()), 0);
  unfolding.phases[program->internal] = 1;
  if (manifest.head) {
    CHAIRLIFT_RETURN_IF_ERROR(MakeHead(manifest, cells, *program, outputs));
    unfolding.phases[program->head] = 2;
  }
  CHAIRLIFT_RETURN_IF_ERROR(cells.CheckComplete());
  unfolding.inputs = inputs.TakeSpecs();
  unfolding.outputs = outputs.TakeSpecs();
  unfolding.unfolder = [program = std::shared_ptr<const TreeProgram>(std::move(program))] {
    return std::make_unique<TreeUnfolder>(program);
  };
  return unfolding;
}

}  // namespace chairlift
