// Models that run as cells: a request is a graph of cells, and is batched with other requests at
// every cell.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "base/out_of_memory.h"
#include "base/status.h"
#include "batching/length_costs.h"
#include "batching/task_cost.h"
#include "engine/programs/cells/cell_batch.h"
#include "engine/programs/cells/cell_costs.h"
#include "engine/programs/cells/cell_places.h"
#include "engine/programs/cells/cell_program.h"
#include "engine/programs/cells/cell_request.h"
#include "engine/programs/makers.h"
#include "engine/programs/original_model.h"
#include "engine/programs/single_node.h"
#include "engine/requests/request_size.h"
#include "graph/cells/sliced_model.h"

namespace chairlift {
namespace {

// Cells that unfold within a millisecond with room to spare, at up to 2 µs each.
constexpr int64_t kQuickCells = 256;
// Memory is reserved for at most this many.
constexpr int64_t kCellsReserved = 4096;
// Rows in a task on a GPU if settings do not say (512 in BatchMaker, section 7.1).
constexpr int kRowsOnDevice = 512;

// The imported model as one more cell, which runs every request by itself.
class OriginalCell final : public SingleNodeProgram {
 public:
  OriginalCell(const Signature& signature, int cell, Graph graph, const ExecutableOptions& options)
      : SingleNodeProgram("original", signature, {}, 1, cell),
        original_(std::move(graph), options) {}

 protected:
  StatusOr<Batch> Join(RequestSpan requests) override {
    CHAIRLIFT_ASSIGN_OR_RETURN(Executable* const executable, Original());
    return Batch{executable,
                 std::make_unique<LoneRequest>(signature_, std::span<const int>(), *requests[0])};
  }
  StatusOr<Executable*> Original() override { return original_.Get(); }

 private:
  OriginalModel original_;
};

class CellsProgram final : public Program {
 public:
  CellsProgram(Signature signature, ServingPlan plan, std::shared_ptr<const CellProgram> cells,
               std::unique_ptr<StepCosts> costs, std::unique_ptr<OriginalCell> original,
               int workers, std::unique_ptr<DeviceLanes> device)
      : Program("cells", std::move(signature), std::move(plan)),
        cells_(std::move(cells)),
        costs_(std::move(costs)),
        original_(std::move(original)),
        device_(std::move(device)),
        batches_(static_cast<size_t>(device_ == nullptr ? workers : device_->lanes().tasks)) {}

  int num_cells() const override { return static_cast<int>(cells_->cells.size()); }
  const std::string& CellName(int cell) const override {
    return cell < num_cells() ? cells_->cells[static_cast<size_t>(cell)]->name()
                              : original_->CellName(cell);
  }
  std::vector<CellBatching> CellBatchings() const override {
    return CellBatchingsOf(NamesOfCells(cells_->cells), costs_->timed(),
                           plan_.scheduling.cell_types, plan_.scheduling.max_batch_size);
  }
  bool SendsParts() const override { return true; }
  TaskLanes lanes() const override { return device_ == nullptr ? TaskLanes() : device_->lanes(); }
  StatusOr<ProgramView> View() override;

  bool TakesLong(const InferRequest& request) const override {
    if (cells_->users_unfolder) return true;
    const int64_t each = cells_per_place_;
    return each == 0 || OpenPlaces(signature_, request) > kQuickCells / each;
  }
  StatusOr<std::unique_ptr<RequestGraph>> Unfold(ValidatedRequest request, bool parts) override;
  void Run(TaskRun& run, TaskDone done) override;

  Duration Cost(int cell, const Task& task) const override {
    double ns = 0;
    ForEachStepOf(task, [&](int32_t rows, int32_t padding) { ns += CostNs(cell, rows + padding); });
    return Duration(static_cast<int64_t>(ns));
  }
  void Learn(const Task& task, bool helped, Duration measured) override {
    if (!helped) costs_->Learn(task, measured);
  }
  double UnitCostNs(int cell) const override {
    constexpr int32_t kRows = 32;
    return CostNs(cell, kRows) / kRows;
  }

 private:
  void RunHere(TaskRun& run, TaskDone done);
  // On another device than the CPU: copies the inputs of requests there, and the answers of
  // completed ones back.
  static Status Place(TaskRun& run);
  static void Return(TaskRun& run);
  double CostNs(int cell, int32_t rows) const {
    const auto at = static_cast<size_t>(cell);
    const std::vector<CellCosts>& timed = costs_->timed();
    return at >= timed.size() || timed[at].empty() ? 0 : CostNsOfRows(timed[at], rows);
  }
  int64_t Places(const ValidatedRequest& request) const;

  const std::shared_ptr<const CellProgram> cells_;
  const std::unique_ptr<StepCosts> costs_;        // also used by the scheduler
  const std::unique_ptr<OriginalCell> original_;  // null if the model is made of cells
  const std::unique_ptr<DeviceLanes> device_;     // null: the cells run on the CPU
  std::vector<CellBatch> batches_;                // by worker, or by lane
  // The maximum number of cells that a request has unfolded into per open place; 0: none so far.
  std::atomic<int64_t> cells_per_place_{0};
  std::atomic<float> runs_per_place_{0};  // the same for runs
  // The most runs of a request so far; a chain of any length is one run.
  std::atomic<int64_t> most_runs_{0};
};

StatusOr<ProgramView> CellsProgram::View() {
  ProgramView view;
  if (original_ != nullptr) {
    CHAIRLIFT_ASSIGN_OR_RETURN(view, original_->View());
  }
  for (const auto& cell : cells_->cells) view.cells.push_back(cell.get());
  view.sliced = cells_->sliced.get();
  if (view.sliced != nullptr) view.notes = view.sliced->notes;
  return view;
}

int64_t CellsProgram::Places(const ValidatedRequest& request) const {
  int64_t places = 1;
  for (size_t i = 0; i < signature_.inputs.size(); ++i) {
    places = std::max(places, OpenPlaces(signature_.inputs[i], request.inputs[i].shape()));
  }
  return places;
}

StatusOr<std::unique_ptr<RequestGraph>> CellsProgram::Unfold(ValidatedRequest request, bool parts) {
  auto cells = std::make_unique<CellRequest>(cells_, std::move(request));
  if (parts) cells->CollectParts(cells->request().outputs);
  const int64_t places = Places(cells->request());
  const auto expected = static_cast<int64_t>(runs_per_place_ * static_cast<float>(places));
  cells->Reserve(static_cast<int32_t>(std::min({expected, most_runs_.load(), kCellsReserved})));
  const Status begun = cells->Begin(cells->request().inputs);
  const bool fits = !absl::IsFailedPrecondition(begun);
  if (original_ != nullptr && (!fits || (begun.ok() && cells->num_nodes() == 0))) {
    ValidatedRequest alone = cells->request();
    alone.runs_alone = true;
    return original_->Unfold(std::move(alone), parts);
  }
  CHAIRLIFT_RETURN_IF_ERROR(begun);
  const int64_t each = (cells->num_nodes() + places - 1) / places;
  if (each > cells_per_place_) cells_per_place_ = each;
  const float runs = static_cast<float>(cells->num_runs()) / static_cast<float>(places);
  if (runs > runs_per_place_) runs_per_place_ = runs;
  if (cells->num_runs() > most_runs_) most_runs_ = cells->num_runs();
  return cells;
}

void CellsProgram::Run(TaskRun& run, TaskDone done) {
  if (device_ == nullptr) return RunHere(run, std::move(done));
  device_->Run(run, std::move(done),
               [this](TaskRun& there, TaskDone ran) { RunHere(there, std::move(ran)); });
}

Status CellsProgram::Place(TaskRun& run) {
  std::vector<CellRequest*> requests;
  for (const TaskNode& node : run.nodes) {
    requests.push_back(static_cast<CellRequest*>(node.graph));
  }
  return PlaceTensors(requests, run.memory.stream());
}

void CellsProgram::Return(TaskRun& run) {
  std::vector<CellRequest*> requests;
  std::vector<TaskNode*> nodes;
  for (TaskNode& node : run.nodes) {
    auto& request = static_cast<CellRequest&>(*node.graph);
    const std::lock_guard<std::mutex> own(request.mutex());
    // A request with several nodes in the task is returned with one of them.
    const bool known = !requests.empty() &&
                       std::find(requests.begin(), requests.end(), &request) != requests.end();
    if (!node.status.ok() || !request.done() || known) continue;
    requests.push_back(&request);
    nodes.push_back(&node);
  }
  const Status returned = ReturnAnswers(requests, run.memory.stream());
  if (returned.ok()) return;
  // Each has a separate status: they are read and freed on different threads.
  for (TaskNode* node : nodes) node->status = Status(returned.code(), returned.message());
}

void CellsProgram::RunHere(TaskRun& run, TaskDone done) {
  if (run.cell == num_cells()) return original_->Run(run, std::move(done));
  const Clock& clock = Clock::Steady();
  CellBatch& batch = batches_[static_cast<size_t>(run.worker)];
  const TimePoint start = clock.Now();
  const auto cell = static_cast<size_t>(run.cell);
  const auto lasting = std::find_if(run.nodes.begin(), run.nodes.end(),
                                    [](const TaskNode& node) { return node.steps == 1; });
  // Nodes of several steps have one row each; if these are padded, all nodes do.
  const bool padded = run.padded_steps && !run.nodes.empty();
  batch.Begin(*cells_->cells[cell], cells_->FeedsOf(run.cell),
              padded ? static_cast<int32_t>(run.nodes.size()) + run.padding_rows
                     : static_cast<int32_t>(lasting - run.nodes.begin()),
              run.nodes.empty() ? 1 : run.nodes[0].steps, run.memory.stream());
  const Status placed = device_ == nullptr ? absl::OkStatus() : Place(run);
  if (!placed.ok()) {
    for (TaskNode& node : run.nodes) node.status = Status(placed.code(), placed.message());
    return done({});
  }
  constexpr size_t kAhead = 8;  // reading weights has evicted the requests from the caches
  for (size_t i = 0; i < run.nodes.size(); ++i) {
    if (i + kAhead < run.nodes.size()) {
      static_cast<CellRequest&>(*run.nodes[i + kAhead].graph).PrefetchSources();
    }
    const TaskNode& node = run.nodes[i];
    auto& request = static_cast<CellRequest&>(*node.graph);
    if (batch.AddNext(request, node.number, node.node, node.steps)) continue;
    const std::lock_guard<std::mutex> own(request.mutex());
    batch.Add(request, node.number, node.node, node.steps);
  }
  batch.Pad(run.padding_rows, padded);
  const TimePoint gathered = clock.Now();
  batch.Run(run.team, run.worker, run.memory);
  const TimePoint ran = clock.Now();
  TaskResult result;
  const auto prefetch = [&](size_t i) {
    if (i < run.nodes.size()) static_cast<CellRequest&>(*run.nodes[i].graph).Prefetch();
  };
  for (size_t i = 0; i < kAhead; ++i) prefetch(i);
  for (size_t i = 0; i < run.nodes.size(); ++i) {
    prefetch(i + kAhead);
    TaskNode& node = run.nodes[i];
    CellBatch::Item& item = batch.items()[i];
    result.rows += static_cast<int32_t>(item.rows);
    node.units = item.rows * item.steps;
    node.share = 0;
    node.status = std::move(item.status);
    if (!node.status.ok()) continue;
    auto& request = static_cast<CellRequest&>(*node.graph);
    const std::lock_guard<std::mutex> own(request.mutex());
    node.share = 1.0 * item.steps / request.num_nodes();
    if (device_ != nullptr) request.Use(run.memory.stream());
    node.status = CatchOutOfMemory(
        [&] { return request.Complete(item.node, item.steps, item.outputs, item.first_row); });
  }
  if (device_ != nullptr) Return(run);
  result.compute_input = gathered - start;
  result.compute_infer = ran - gathered;
  result.compute_output = clock.Now() - ran;
  done(result);
}

}  // namespace

StatusOr<std::unique_ptr<Program>> MakeCells(LoadingModel& model, std::string& refused) {
  Signature signature;
  std::shared_ptr<const CellProgram> cells;
  std::vector<CellTypeOptions> types;
  std::string what = "made of cells";
  std::unique_ptr<OriginalCell> original;
  if (model.source.cells) {
    CHAIRLIFT_ASSIGN_OR_RETURN(
        ManifestProgram made,
        MakeCellProgram(*model.source.cells, model.source.path, model.executable,
                        model.load.allow_plugins, model.config.unfold));
    signature.inputs = std::move(made.inputs);
    signature.outputs = std::move(made.outputs);
    types = std::move(made.types);
    cells = std::make_shared<const CellProgram>(std::move(made.program));
  } else {
    StatusOr<SlicedModel> sliced = SliceIntoCells(
        model.graph, {.max_folded_embedding_bytes = model.config.max_folded_embedding_bytes});
    const std::vector<std::string> notes = sliced.ok() ? sliced->notes : std::vector<std::string>();
    StatusOr<CellProgram> made =
        sliced.ok() ? MakeCellProgram(*std::move(sliced), model.executable) : sliced.status();
    if (!made.ok()) {
      refused = Message(made.status());
      return nullptr;
    }
    signature = SignatureOf(model.graph);
    made->outputs.clear();
    for (const SymbolicSpec& output : signature.outputs) made->outputs.push_back(output.name);
    what = "sequences vary in length and go through recurrences: cut into cells";
    for (const std::string& note : notes) what += "; " + note;
    cells = std::make_shared<const CellProgram>(*std::move(made));
    original = std::make_unique<OriginalCell>(signature, static_cast<int>(cells->cells.size()),
                                              std::move(model.graph), model.executable);
  }
  const bool on_host = model.executable.device->is_host();
  if (!on_host && model.config.max_batch_size == 0) model.config.max_batch_size = kRowsOnDevice;
  const ModelConfig& config = model.config;
  // Sizes are measured only if they are used.
  const bool open =
      config.max_batch_size == 0 && (config.policy.empty() || config.policy == "cellular");
  std::vector<CellCosts> costs(cells->cells.size());
  if (on_host) {
    costs = FindCellCosts(cells->cells, model.load.workers, model.load.autotune && open,
                          model.load.ReportTiming());
  }
  ChooseCellSizes(costs, config.max_batch_size, types);
  std::vector<std::string> names;
  names.reserve(cells->cells.size());
  for (const auto& cell : cells->cells) names.push_back(cell->name());
  CHAIRLIFT_ASSIGN_OR_RETURN(ServingPlan plan,
                             PlanCellServing(config, what, names, std::move(types)));
  auto step_costs = std::make_unique<StepCosts>(std::move(costs));
  plan.scheduling.step_costs = step_costs.get();
  CHAIRLIFT_ASSIGN_OR_RETURN(auto lanes, DeviceLanes::Create(*model.executable.device));
  return std::make_unique<CellsProgram>(std::move(signature), std::move(plan), std::move(cells),
                                        std::move(step_costs), std::move(original),
                                        model.load.workers, std::move(lanes));
}

}  // namespace chairlift
