// unfold: chain. One cell along each sequence; the results of its steps, or of a head over them,
// are the answer.
//
//     x0       x1       x2
//     ↓        ↓        ↓
//   [step] → [step] → [step]
//                       ↓
//                     [head] → the answer
#include <optional>
#include <utility>

#include "base/status.h"
#include "engine/programs/cells/unfolders/steps.h"
#include "engine/programs/cells/unfolders/unfolders.h"

namespace chairlift {
namespace {

// An output of the model: rows of a cell's output, from every step or from the last.
struct Collected {
  int output = 0;  // the cell's
  bool all = false;
  DType dtype = DType::kUndefined;
  Shape row;
};

struct ChainProgram {
  Steps steps;
  std::vector<Collected> of_steps;
  int head = -1;  // a cell; −1: none
  bool head_at_all = false;
  std::vector<int> head_reads;  // by the head's input: the step's output
  std::vector<Collected> of_head;
  bool needs_last = false;  // something reads the last step
};

class ChainUnfolder final : public Unfolder {
 public:
  explicit ChainUnfolder(std::shared_ptr<const ChainProgram> program)
      : program_(std::move(program)), lanes_(program_->steps) {}

  Status Unfold(std::span<const Tensor> inputs, CellGraphBuilder& graph) override {
    const ChainProgram& program = *program_;
    CHAIRLIFT_RETURN_IF_ERROR(lanes_.Begin(inputs, graph));
    if (program.needs_last) CHAIRLIFT_RETURN_IF_ERROR(lanes_.CheckNoneEmpty());
    int answer = 0;
    for (const std::vector<Collected>* side : {&program.of_steps, &program.of_head}) {
      for (const Collected& collected : *side) {
        Shape rows{lanes_.lanes()};
        if (collected.all) rows.Append(lanes_.longest());
        CHAIRLIFT_ASSIGN_OR_RETURN(const int buffer,
                                   AddAnswer(answer++, collected.dtype, rows, collected.row,
                                             {.batch = 0, .time = collected.all ? 1 : -1}, graph));
        buffers_.push_back(buffer);
      }
    }
    for (int64_t lane = 0; lane < lanes_.lanes(); ++lane) {
      const NodeId last = lanes_.AddLane(
          lane, graph, [&](NodeId node, int64_t step) { Collect(node, lane, step, true, graph); });
      if (last >= 0) Collect(last, lane, 0, false, graph);
    }
    return absl::OkStatus();
  }

 private:
  // Collects the outputs of every step, or of the last one.
  void Collect(NodeId node, int64_t lane, int64_t step, bool all, CellGraphBuilder& graph) {
    Deliver(program_->of_steps, 0, node, lane, step, all, graph);
    if (program_->head < 0 || program_->head_at_all != all) return;
    sources_.clear();
    for (int output : program_->head_reads) sources_.push_back(RowSource::OfNode(node, output));
    const NodeId head = graph.AddNode(program_->head, sources_);
    Deliver(program_->of_head, program_->of_steps.size(), head, lane, step, all, graph);
  }
  void Deliver(const std::vector<Collected>& side, size_t first, NodeId node, int64_t lane,
               int64_t step, bool all, CellGraphBuilder& graph) {
    for (size_t i = 0; i < side.size(); ++i) {
      if (side[i].all != all) continue;
      const int64_t row = all ? lane * lanes_.longest() + step : lane;
      graph.Deliver(
          node, side[i].output, 0, 1,
          {.tensor = buffers_[first + i], .offset = row * RowBytes(side[i].dtype, side[i].row)});
      if (all) {
        graph.Announce(node, {.output = static_cast<int>(first + i), .row = lane, .first = step});
      }
    }
  }

  const std::shared_ptr<const ChainProgram> program_;
  LaneSteps lanes_;
  std::vector<int> buffers_;  // by output of the model
  std::vector<RowSource> sources_;
};

StatusOr<Collected> Collect(const CollectedOutput& manifest, int cell, NamedCells& cells,
                            ModelSide& outputs) {
  Collected collected;
  collected.all = manifest.all;
  CHAIRLIFT_ASSIGN_OR_RETURN(collected.output, cells.Output(cell, manifest.output));
  const Cell::Port& port = cells.output(cell, collected.output);
  collected.dtype = port.dtype;
  CHAIRLIFT_ASSIGN_OR_RETURN(collected.row, cells.Row(cell, port));
  std::vector<Dim> dims = {Dim::Symbol("batch")};
  if (manifest.all) dims.push_back(Dim::Symbol("length"));
  CHAIRLIFT_RETURN_IF_ERROR(
      outputs.Add(manifest.name, port.dtype, ShapeOf(std::move(dims), collected.row)).status());
  return collected;
}

}  // namespace

StatusOr<Unfolding> MakeChain(const ChainUnfold& manifest, NamedCells& cells) {
  auto program = std::make_shared<ChainProgram>();
  ModelSide inputs("input"), outputs("output");
  CHAIRLIFT_ASSIGN_OR_RETURN(program->steps,
                             Steps::Make(manifest.steps, manifest.lengths, cells, inputs));
  const int step = program->steps.cell;
  for (const CollectedOutput& output : manifest.outputs) {
    CHAIRLIFT_ASSIGN_OR_RETURN(Collected collected, Collect(output, step, cells, outputs));
    program->needs_last |= !output.all;
    program->of_steps.push_back(std::move(collected));
  }
  Unfolding unfolding;
  unfolding.phases.assign(static_cast<size_t>(cells.size()), 0);
  unfolding.feeds.resize(static_cast<size_t>(cells.size()));
  unfolding.feeds[static_cast<size_t>(step)] = program->steps.Feeds(cells);
  if (manifest.head) {
    CHAIRLIFT_ASSIGN_OR_RETURN(program->head, cells.Take(manifest.head->cell));
    program->head_at_all = manifest.head->all;
    program->needs_last |= !manifest.head->all;
    program->head_reads.resize(cells.cell(program->head).inputs().size());
    for (const auto& [input, output] : manifest.head->inputs) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const int to, cells.Feed(program->head, input));
      CHAIRLIFT_ASSIGN_OR_RETURN(program->head_reads[to], cells.Output(step, output));
      CHAIRLIFT_RETURN_IF_ERROR(cells.CheckFits(step, cells.output(step, program->head_reads[to]),
                                                program->head, cells.input(program->head, to)));
    }
    for (const CollectedOutput& output : manifest.head->outputs) {
      CHAIRLIFT_ASSIGN_OR_RETURN(Collected collected,
                                 Collect(output, program->head, cells, outputs));
      program->of_head.push_back(std::move(collected));
    }
    unfolding.phases[program->head] = 1;
  }
  CHAIRLIFT_RETURN_IF_ERROR(cells.CheckComplete());
  unfolding.inputs = inputs.TakeSpecs();
  unfolding.outputs = outputs.TakeSpecs();
  unfolding.unfolder = [program = std::shared_ptr<const ChainProgram>(std::move(program))] {
    return std::make_unique<ChainUnfolder>(program);
  };
  return unfolding;
}

}  // namespace chairlift
