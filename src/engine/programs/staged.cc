// Models cut into stages: a request is a chain of one node per stage, and batches may be joined,
// merged and split between stages (DVABatch §5–7). Rows stay where their stage wrote them, whatever
// batch they are in, until the next stage reads or gathers them. So each stage computes and writes
// only the rows of its own requests.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/status.h"
#include "device/device.h"
#include "engine/programs/cells/cell_costs.h"
#include "engine/programs/makers.h"
#include "engine/programs/original_model.h"
#include "engine/programs/plan_ahead.h"
#include "engine/programs/stage_exits.h"
#include "engine/programs/stage_plugin.h"
#include "engine/programs/staged_cuts.h"
#include "engine/programs/staged_packed.h"
#include "engine/programs/staged_program.h"
#include "engine/programs/staged_request.h"
#include "engine/programs/staged_task.h"
#include "graph/stages/stages.h"

namespace chairlift {
namespace {

// In a large batch.
constexpr int32_t kManyRows = 32;

using StageCells = std::vector<std::unique_ptr<Cell>>;

class StagedRowsProgram final : public StagedProgram {
 public:
  // `passed`: the graph that was cut, for views of the whole model.
  StagedRowsProgram(Signature signature, ServingPlan plan, StageLayout layout,
                    std::shared_ptr<const StageCells> cells, std::unique_ptr<StepCosts> costs,
                    std::unique_ptr<OriginalModel> passed, std::vector<PassReport> passes,
                    std::vector<std::string> notes, std::unique_ptr<GuardedStagePolicy> policy)
      : StagedProgram(std::move(signature), std::move(plan), std::move(layout), std::move(costs),
                      std::move(policy), kManyRows),
        shared_cells_(std::move(cells)),
        cells_(*shared_cells_),
        passed_(std::move(passed)),
        passes_(std::move(passes)),
        notes_(std::move(notes)),
        leaving_(layout_.stages.size()) {
    for (size_t s = 0; s < leaving_.size(); ++s) {
      leaving_[s] = std::vector<std::atomic<int64_t>>(layout_.exits[s].size());
    }
  }

  const std::string& CellName(int cell) const override {
    return cells_[static_cast<size_t>(cell)]->name();
  }
  StatusOr<ProgramView> View() override {
    ProgramView view;
    CHAIRLIFT_ASSIGN_OR_RETURN(view.executable, passed_->Get());
    for (const auto& cell : cells_) view.cells.push_back(cell.get());
    view.passes = passes_;
    view.notes = notes_;
    return view;
  }

  StatusOr<std::unique_ptr<RequestGraph>> Unfold(ValidatedRequest request,
                                                 bool /*parts*/) override {
    return std::make_unique<StagedRequest>(layout_, signature_, std::move(request));
  }
  void Run(TaskRun& run, TaskDone done) override;

  std::vector<std::string> Remarks() const override;

 private:
  // Runs a stage for these requests, one after the other.
  Status Compute(std::span<const StagedItem> items, TaskRun& run);
  // Outputs of all rows, computed in as many pieces as needed.
  StatusOr<std::vector<Tensor>> RunRows(Cell& cell, int64_t rows,
                                        std::span<const Cell::Rows> inputs, TaskRun& run) const;

  const std::shared_ptr<const StageCells> shared_cells_;
  const StageCells& cells_;
  const std::unique_ptr<OriginalModel> passed_;
  const std::vector<PassReport> passes_;
  const std::vector<std::string> notes_;
  // Requests that have started, and those that took each exit of each stage.
  std::atomic<int64_t> begun_{0};
  std::vector<std::vector<std::atomic<int64_t>>> leaving_;
};

std::vector<std::string> StagedRowsProgram::Remarks() const {
  std::vector<std::string> remarks;
  for (size_t s = 0; s < leaving_.size(); ++s) {
    for (size_t e = 0; e < leaving_[s].size(); ++e) {
      const LayoutExit& exit = layout_.exits[s][e];
      const bool leaves = exit.next == num_cells();
      remarks.push_back(fmt::format("{} of {} requests {} after '{}'", leaving_[s][e].load(),
                                    begun_.load(), leaves ? "left" : "skipped stages", exit.name));
    }
  }
  for (std::string& remark : StagedProgram::Remarks()) remarks.push_back(std::move(remark));
  return remarks;
}

StatusOr<std::vector<Tensor>> StagedRowsProgram::RunRows(Cell& cell, int64_t rows,
                                                         std::span<const Cell::Rows> inputs,
                                                         TaskRun& run) const {
  WorkerMemory& memory = run.memory;
  int64_t piece = std::min<int64_t>(rows, plan_.scheduling.max_batch_size);
  std::vector<Tensor> whole;
  for (int64_t first = 0;;) {
    const int64_t count = std::min(piece, rows - first);
    absl::InlinedVector<Cell::Rows, 6> own(inputs.begin(), inputs.end());
    for (Cell::Rows& input : own) input.rows += first;
    StatusOr<std::vector<Tensor>> outputs =
        cell.Run(count, own, run.team, run.worker, memory.compute, memory.staging, memory.stop,
                 memory.timer);
    if (absl::IsOutOfRange(outputs.status()) && count > 1) {
      piece = (count + 1) / 2;
      continue;
    }
    if (!outputs.ok() || count == rows) return outputs;
    for (size_t i = 0; i < outputs->size(); ++i) {
      const Tensor& part = (*outputs)[i];
      if (first == 0) {
        Shape shape = part.shape();
        shape[0] = rows;
        whole.push_back(Tensor::Allocate(part.dtype(), shape));
      }
      if (part.byte_size() == 0) continue;
      std::memcpy(whole[i].Rows(first, count).raw(), part.raw(), part.byte_size());
    }
    first += count;
    if (first == rows) return whole;
  }
}

Status StagedRowsProgram::Compute(std::span<const StagedItem> items, TaskRun& run) {
  Cell& cell = *cells_[static_cast<size_t>(run.cell)];
  const std::vector<int>& values = layout_.stages[static_cast<size_t>(run.cell)].inputs;
  std::vector<std::vector<const std::byte*>> places(values.size());
  absl::InlinedVector<Cell::Rows, 6> inputs;
  int64_t rows = 0;
  for (const StagedItem& item : items) rows += item.request->rows();
  for (size_t i = 0; i < values.size(); ++i) {
    places[i].reserve(static_cast<size_t>(rows));
    const int64_t bytes = cell.inputs()[i].row_bytes;
    for (const StagedItem& item : items) {
      const auto* row = static_cast<const std::byte*>(item.request->value(values[i]).raw());
      for (int64_t r = 0; r < item.request->rows(); ++r, row += bytes) places[i].push_back(row);
    }
    Shape row = items[0].request->value(values[i]).shape();
    row.Erase(0);
    inputs.push_back({row, places[i].data()});
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, RunRows(cell, rows, inputs, run));
  const SharedStageMemory memory = MemoryOf(items);
  if (run.cell == 0) begun_ += static_cast<int64_t>(items.size());
  int64_t first = 0;
  for (const StagedItem& item : items) {
    const StatusOr<int> exit = item.request->Complete(run.cell, outputs, {first}, memory);
    item.node->status = exit.status();
    if (exit.ok() && *exit >= 0) {
      ++leaving_[static_cast<size_t>(run.cell)][static_cast<size_t>(*exit)];
    }
    first += item.request->rows();
  }
  return absl::OkStatus();
}

void StagedRowsProgram::Run(TaskRun& run, TaskDone done) {
  done(RunStagedTask(run, num_cells(),
                     [&](std::span<const StagedItem> items) { return Compute(items, run); }));
}

// The shapes of a batch of one row, if nothing else varies.
StatusOr<std::vector<Shape>> OneRow(const std::vector<SymbolicSpec>& inputs) {
  std::vector<Shape> shapes;
  for (const SymbolicSpec& input : inputs) {
    Shape& shape = shapes.emplace_back();
    if (!input.shape.has_rank()) return Unimplemented("the rank of '{}' varies", input.name);
    for (int axis = 0; axis < input.shape.rank(); ++axis) {
      const Dim& dim = input.shape[axis];
      if (axis > 0 && !dim.known()) {
        return Unimplemented("input '{}' varies in dimension {}: its rows are not of one size",
                             input.name, axis);
      }
      shape.Append(axis == 0 ? 1 : dim.value());
    }
  }
  return shapes;
}

// "stage2: 24% of the time, 12 nodes, up to 'conv_4'; leaves 'a' [64,56,56] and 'b' [128]"
std::string NoteOf(const StagedModel& model, const ModelStage& stage, const Cell& cell) {
  std::vector<std::string> leaves;
  for (size_t i = 0; i < stage.outputs.size(); ++i) {
    leaves.push_back(fmt::format("'{}' {}", model.values[static_cast<size_t>(stage.outputs[i])],
                                 cell.outputs()[i].row.ToString()));
  }
  return fmt::format("{}: {:.0f}% of the time, {} node{}, up to '{}'; leaves {}", stage.name,
                     100 * stage.share, stage.graph.nodes.size(),
                     stage.graph.nodes.size() == 1 ? "" : "s", stage.until,
                     fmt::join(leaves, ", "));
}

// By value. Unimplemented has the name of one whose rows vary in size.
StatusOr<std::vector<StageLayout::Unit>> UnitsOf(const StagedModel& model,
                                                 const StageCells& cells) {
  std::vector<StageLayout::Unit> units(model.values.size());
  for (size_t s = 0; s < cells.size(); ++s) {
    const std::vector<int>& outputs = model.stages[s].outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto value = static_cast<size_t>(outputs[i]);
      units[value].bytes = cells[s]->outputs()[i].row_bytes;
      if (units[value].bytes < 0) {
        return Unimplemented("rows of '{}' vary in size", model.values[value]);
      }
    }
  }
  return units;
}

struct MadeStages {
  std::vector<CellCosts> costs;  // by stage; empty: they must be timed
  StageLayout layout;
  std::unique_ptr<GuardedStagePolicy> policy;
  StageCells cells;
  std::vector<std::string> names;
  std::vector<std::string> notes;
};

// Zeros with one row of these shapes each.
StageInputs ZerosOfRows(const std::vector<Shape>& shapes) {
  const auto make = [shapes](const Executable& whole, int rows) -> StatusOr<std::vector<Tensor>> {
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < shapes.size(); ++i) {
      Shape shape = shapes[i];
      shape[0] = rows;
      const DType dtype = whole.inputs()[i].dtype;
      CHAIRLIFT_RETURN_IF_ERROR(shape.Checked(DTypeSize(dtype)).status());
      inputs.push_back(Tensor::Allocate(dtype, shape));
      std::memset(inputs.back().raw(), 0, inputs.back().byte_size());
    }
    return inputs;
  };
  return {.make = make, .max_rows = kDefaultMaxStagedRows};
}

StatusOr<MadeStages> MakeStages(const Graph& graph, const OtherNames& others,
                                const std::set<std::string>& rows, const std::vector<Shape>& shapes,
                                const LoadingModel& loading, const ExecutableOptions& options) {
  MadeStages made;
  CHAIRLIFT_ASSIGN_OR_RETURN(CutModel cut, CutStagedModel(graph, rows, CutsOf(loading, others),
                                                          ZerosOfRows(shapes), loading, options));
  const StagedModel& model = cut.model;
  made.costs = std::move(cut.costs);
  if (!cut.tried.empty()) made.notes.push_back(cut.tried);
  for (const ModelStage& stage : model.stages) {
    CHAIRLIFT_ASSIGN_OR_RETURN(std::unique_ptr<Cell> cell,
                               Cell::Create(stage.name, stage.graph, options));
    made.names.push_back(stage.name);
    made.notes.push_back(NoteOf(model, stage, *cell));
    made.cells.push_back(std::move(cell));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(UsersStaging users, LoadUsersStaging(loading, made.names));
  made.policy = std::move(users.policy);
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<std::vector<LayoutExit>> exits,
                             ExitsOf(model, made.cells, users.exits, others));
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<StageLayout::Unit> units, UnitsOf(model, made.cells));
  made.layout = StageLayout::Of(model, std::move(units), std::move(exits));
  return made;
}

Status PlanStagesAhead(const std::shared_ptr<const StageCells>& cells, const ServingPlan& plan,
                       const LoadOptions& load) {
  std::vector<BatchPlanner> planners;
  for (size_t i = 0; i < cells->size(); ++i) {
    Cell& cell = *(*cells)[i];
    // Inputs of the executable: one may be several of the cell's inputs, side by side.
    CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Shape> one_row, OneRow(cell.executable().inputs()));
    // With `staged`, the batch size is chosen for all stages together.
    const bool own_sizes = plan.config.policy != "staged";
    const int own = own_sizes ? plan.scheduling.cell_types[i].max_batch_size : 0;
    planners.push_back(PlannerOf(cell.executable(), std::move(one_row),
                                 own > 0 ? own : plan.scheduling.max_batch_size));
    CHAIRLIFT_RETURN_IF_ERROR(PlanOneRow(planners.back(), load.workers));
  }
  PlanBatchesAhead(std::move(planners), cells, load);
  return absl::OkStatus();
}

// Why a model is not cut; empty: it is.
std::string NotAsked(LoadingModel& model) {
  if (!model.not_cut.empty()) return model.not_cut;
  if (model.config.policy.empty() && !SetsStages(model.config)) {
    return "neither policy 'staged' nor stages are set";
  }
  if (!model.executable.device->is_host()) return "stages run on the CPU only";
  return {};
}

}  // namespace

StatusOr<std::unique_ptr<Program>> MakeStaged(LoadingModel& model, std::string& refused) {
  refused = NotAsked(model);
  if (!refused.empty()) return nullptr;
  if (model.Ragged().ok()) return MakeStagedPacked(model, refused);
  const BatchAxisReport& batching = model.Batching();
  if (!batching.batches) {
    refused = batching.why;
    return nullptr;
  }
  const ModelConfig& config = model.config;
  Signature signature = SignatureOf(model.graph);
  signature.batches = true;
  signature.max_rows = config.max_batch_size;
  const StatusOr<std::vector<Shape>> shapes = OneRow(signature.inputs);
  if (!shapes.ok()) {
    refused = Message(shapes.status());
    return nullptr;
  }
  const std::set<std::string> rows = NamesOfRows(model.graph);
  Graph graph = model.graph;  // another kind may need the original
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<PassReport> passes,
                             RunPasses(graph, model.executable.disabled_passes));
  const OtherNames others = RestoreNamesOfOutputs(NamesOfOutputs(model.graph), graph);
  ExecutableOptions options = model.executable;
  options.passed = true;
  StatusOr<MadeStages> made = MakeStages(graph, others, rows, *shapes, model, options);
  if (absl::IsUnimplemented(made.status()) && config.exits.empty()) {
    refused = Message(made.status());
    ServeUncut(refused, model);
    return nullptr;
  }
  CHAIRLIFT_RETURN_IF_ERROR(made.status());
  model.graph = Graph();
  const int workers = model.load.workers;
  std::vector<CellTypeOptions> types;
  if (made->costs.empty()) {
    made->costs =
        FindCellCosts(made->cells, workers, model.load.autotune, model.load.ReportTiming());
  }
  auto costs = std::make_unique<StepCosts>(std::move(made->costs));
  ChooseCellSizes(costs->timed(), config.max_batch_size, types);
  CHAIRLIFT_ASSIGN_OR_RETURN(
      ServingPlan plan,
      PlanStagedServing(config, made->names, std::move(types), costs.get(), workers));
  auto cells = std::make_shared<const StageCells>(std::move(made->cells));
  CHAIRLIFT_RETURN_IF_ERROR(PlanStagesAhead(cells, plan, model.load));
  return std::make_unique<StagedRowsProgram>(
      std::move(signature), std::move(plan), std::move(made->layout), std::move(cells),
      std::move(costs), std::make_unique<OriginalModel>(std::move(graph), std::move(options)),
      std::move(passes), std::move(made->notes), std::move(made->policy));
}

}  // namespace chairlift
