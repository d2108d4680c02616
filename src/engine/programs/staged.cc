// Models that are cut into stages: a request is a chain of one node a stage, and a batch may be
// joined, merged and split between two of them (DVABatch §5–7). Rows stay where their stage left
// them, whatever batch they are in, until the next stage reads them there or gathers them: so each
// stage computes and writes the rows of its own requests only.
#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/clock.h"
#include "base/out_of_memory.h"
#include "base/status.h"
#include "device/device.h"
#include "engine/programs/cells/cell_costs.h"
#include "engine/programs/makers.h"
#include "engine/programs/original_model.h"
#include "engine/programs/staged_request.h"
#include "graph/stages/stages.h"
#include "runtime/node_timer.h"

namespace chairlift {
namespace {

class StagedProgram final : public Program {
 public:
  // `passed`: the graph that was cut, for views of the whole model.
  StagedProgram(Signature signature, ServingPlan plan, StageLayout layout,
                std::vector<std::unique_ptr<Cell>> cells, std::unique_ptr<StepCosts> costs,
                std::unique_ptr<OriginalModel> passed, std::vector<PassReport> passes,
                std::vector<std::string> notes)
      : Program("staged", std::move(signature), std::move(plan)),
        layout_(std::move(layout)),
        cells_(std::move(cells)),
        costs_(std::move(costs)),
        passed_(std::move(passed)),
        passes_(std::move(passes)),
        notes_(std::move(notes)) {}

  int num_cells() const override { return static_cast<int>(cells_.size()); }
  const std::string& CellName(int cell) const override {
    return cells_[static_cast<size_t>(cell)]->name();
  }
  std::vector<CellBatching> CellBatchings() const override {
    return CellBatchingsOf(cells_, costs_->timed(), plan_.scheduling.cell_types,
                           plan_.scheduling.max_batch_size);
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

  Duration Cost(int cell, const Task& task) const override {
    return costs_->Cost(static_cast<CellType>(cell), task.rows, 0);
  }
  void Learn(const Task& task, bool helped, Duration measured) override {
    if (!helped) costs_->Learn(task, measured);
  }
  double UnitCostNs(int cell) const override {
    constexpr int32_t kRows = 32;
    return static_cast<double>(costs_->Cost(static_cast<CellType>(cell), kRows, 0).count()) / kRows;
  }

 private:
  struct Item {
    StagedRequest* request = nullptr;
    TaskNode* node = nullptr;
  };
  // A stage for these requests, one after the other.
  Status Compute(std::span<const Item> items, TaskRun& run) const;
  // Outputs of all rows, computed in as many pieces as are needed.
  StatusOr<std::vector<Tensor>> RunRows(Cell& cell, int64_t rows,
                                        std::span<const Cell::Rows> inputs, TaskRun& run) const;

  const StageLayout layout_;
  const std::vector<std::unique_ptr<Cell>> cells_;
  const std::unique_ptr<StepCosts> costs_;  // the scheduler's, too
  const std::unique_ptr<OriginalModel> passed_;
  const std::vector<PassReport> passes_;
  const std::vector<std::string> notes_;
};

StatusOr<std::vector<Tensor>> StagedProgram::RunRows(Cell& cell, int64_t rows,
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

Status StagedProgram::Compute(std::span<const Item> items, TaskRun& run) const {
  Cell& cell = *cells_[static_cast<size_t>(run.cell)];
  const std::vector<int>& values = layout_.stages[static_cast<size_t>(run.cell)].inputs;
  std::vector<std::vector<const std::byte*>> places(values.size());
  absl::InlinedVector<Cell::Rows, 6> inputs;
  int64_t rows = 0;
  for (const Item& item : items) rows += item.request->rows();
  for (size_t i = 0; i < values.size(); ++i) {
    places[i].reserve(static_cast<size_t>(rows));
    const int64_t bytes = cell.inputs()[i].row_bytes;
    for (const Item& item : items) {
      const auto* row = static_cast<const std::byte*>(item.request->value(values[i]).raw());
      for (int64_t r = 0; r < item.request->rows(); ++r, row += bytes) places[i].push_back(row);
    }
    Shape row = items[0].request->value(values[i]).shape();
    row.Erase(0);
    inputs.push_back({row, places[i].data()});
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, RunRows(cell, rows, inputs, run));
  int64_t first = 0;
  for (const Item& item : items) {
    item.request->Complete(run.cell, outputs, first);
    first += item.request->rows();
  }
  return absl::OkStatus();
}

void StagedProgram::Run(TaskRun& run, TaskDone done) {
  const Clock& clock = Clock::Steady();
  const TimePoint start = clock.Now();
  absl::InlinedVector<Item, 8> items;
  TaskResult result;
  for (TaskNode& node : run.nodes) {
    auto& request = static_cast<StagedRequest&>(*node.graph);
    node.units = request.rows();
    node.share = 1.0 / num_cells();
    node.status = request.Begin(run.cell, run.memory);
    if (!node.status.ok()) continue;
    items.push_back({&request, &node});
    result.rows += static_cast<int32_t>(request.rows());
  }
  const auto compute = [&](std::span<const Item> some) {
    return CatchOutOfMemory([&] { return Compute(some, run); });
  };
  const TimePoint begun = clock.Now();
  if (!items.empty()) {
    const Status together = compute(items);
    const bool stopped = run.memory.stop != nullptr && *run.memory.stop;
    for (const Item& item : items) {
      if (together.ok()) break;
      // None for another's data.
      item.node->status = items.size() == 1 || stopped ? together : compute({&item, 1});
    }
  }
  result.compute_input = begun - start;
  result.compute_infer = clock.Now() - begun;
  done(result);
}

// The shapes of a batch of one row, where nothing else varies.
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

// The least that each node of a graph took, of several runs.
class LeastTimes final : public NodeTimer {
 public:
  explicit LeastTimes(const Graph& graph)
      : graph_(graph), ns_(graph.nodes.size(), std::numeric_limits<double>::infinity()) {}

  void Report(const PlannedNode& planned, TimePoint start, TimePoint end) override {
    for (size_t n = 0; n < ns_.size(); ++n) {
      if (&graph_.nodes[n] != &planned.node) continue;
      ns_[n] = std::min(ns_[n], static_cast<double>((end - start).count()));
    }
  }
  // 0 of nodes that are not computed.
  std::vector<double> Take() {
    for (double& ns : ns_) ns = ns < std::numeric_limits<double>::infinity() ? ns : 0;
    return std::move(ns_);
  }

 private:
  const Graph& graph_;
  std::vector<double> ns_;
};

// What the nodes of a graph that has been through the passes take on a row of zeros; all the same
// where it does not run on zeros.
std::vector<double> TimeNodes(const Graph& graph, const std::vector<Shape>& shapes,
                              const ExecutableOptions& options) {
  constexpr int kRuns = 4;  // the first one makes the plan
  constexpr Duration kEnough = std::chrono::milliseconds(500);
  std::vector<double> equal(graph.nodes.size(), 1);
  const StatusOr<std::unique_ptr<Executable>> whole = Executable::Create(graph, options);
  if (!whole.ok()) return equal;
  std::vector<Tensor> zeros;
  for (size_t i = 0; i < shapes.size(); ++i) {
    zeros.push_back(Tensor::Allocate((*whole)->inputs()[i].dtype, shapes[i]));
    std::memset(zeros.back().raw(), 0, zeros.back().byte_size());
  }
  LeastTimes times((*whole)->graph());
  SoloTeam team(0);
  Arena arena;
  const TimePoint begun = Clock::Steady().Now();
  for (int run = 0; run < kRuns; ++run) {
    if (run > 1 && Clock::Steady().Now() - begun > kEnough) break;
    const Status ran = (*whole)->Run(zeros, team, 0, arena, nullptr, &times).status();
    if (!ran.ok()) return equal;
  }
  return times.Take();
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

struct MadeStages {
  StageLayout layout;
  std::vector<std::unique_ptr<Cell>> cells;
  std::vector<std::string> names;
  std::vector<std::string> notes;
};

// `graph` has been through the passes; `shapes`: of its inputs, of one row.
StatusOr<MadeStages> MakeStages(const Graph& graph, const std::set<std::string>& rows,
                                const std::vector<Shape>& shapes, const ModelConfig& config,
                                const ExecutableOptions& options) {
  CHAIRLIFT_ASSIGN_OR_RETURN(
      const StagedModel model,
      CutIntoStages(graph, rows, TimeNodes(graph, shapes, options),
                    {.stages = config.stages, .after = config.stages_after}));
  MadeStages made;
  for (const ModelStage& stage : model.stages) {
    CHAIRLIFT_ASSIGN_OR_RETURN(std::unique_ptr<Cell> cell,
                               Cell::Create(stage.name, stage.graph, options));
    made.names.push_back(stage.name);
    made.notes.push_back(NoteOf(model, stage, *cell));
    made.cells.push_back(std::move(cell));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(made.layout, StageLayout::Of(model, made.cells));
  return made;
}

// Why a model is not to be cut; empty: it is.
std::string NotAsked(LoadingModel& model) {
  if (model.config.policy.empty() && !SetsStages(model.config)) {
    return "neither policy 'staged' nor stages are set";
  }
  const BatchAxisReport& batching = model.Batching();
  if (!batching.batches) return batching.why;
  if (!model.executable.device->is_host()) return "stages run on the CPU only";
  return {};
}

}  // namespace

StatusOr<std::unique_ptr<Program>> MakeStaged(LoadingModel& model, std::string& refused) {
  refused = NotAsked(model);
  if (!refused.empty()) return nullptr;
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
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<PassReport> passes,
                             RunPasses(model.graph, model.executable.disabled_passes));
  ExecutableOptions options = model.executable;
  options.passed = true;
  StatusOr<MadeStages> made = MakeStages(model.graph, rows, *shapes, config, options);
  if (absl::IsUnimplemented(made.status())) {
    // The passes have been over the graph, so that no other kind of program can take it.
    return InvalidArgument("the model cannot be cut into stages: {}", Message(made.status()));
  }
  CHAIRLIFT_RETURN_IF_ERROR(made.status());
  const int workers = model.load.workers;
  std::vector<CellTypeOptions> types;
  auto costs = std::make_unique<StepCosts>(
      FindCellCosts(made->cells, workers, model.load.time_cells, model.load.ReportTiming()));
  ChooseCellSizes(costs->timed(), config.max_batch_size, types);
  CHAIRLIFT_ASSIGN_OR_RETURN(
      ServingPlan plan,
      PlanStagedServing(config, made->names, std::move(types), costs.get(), workers));
  return std::make_unique<StagedProgram>(
      std::move(signature), std::move(plan), std::move(made->layout), std::move(made->cells),
      std::move(costs), std::make_unique<OriginalModel>(std::move(model.graph), std::move(options)),
      std::move(passes), std::move(made->notes));
}

}  // namespace chairlift
