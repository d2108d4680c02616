// Users' Python models, computed by worker processes: a request is rows of arrays, a batch the rows
// of several requests, and a task ends when a worker has answered.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "chairlift/text.h"
#include "engine/programs/makers.h"
#include "engine/programs/process/function_task.h"
#include "engine/programs/process/interpreter.h"
#include "engine/programs/process/streamed_graph.h"
#include "engine/programs/rows_graph.h"

namespace chairlift {
namespace {

// The number over all stages, if the computing one has that many workers.
int ProcessesOf(const FunctionConfig& config, int workers) {
  return workers + static_cast<int>(config.separate_hooks.size()) * config.hook_workers;
}

class ProcessProgram final : public Program {
 public:
  ProcessProgram(Signature signature, ServingPlan plan, const FunctionConfig& config,
                 FunctionStages stages, const LoadOptions& load)
      : Program("python", std::move(signature), std::move(plan)),
        config_(config),
        background_(load.background),
        calls_(load.calls),
        stages_(std::move(stages)),
        forms_(stages_.first().forms) {}

  ~ProcessProgram() override {
    if (std::none_of(stages_.all.begin(), stages_.all.end(),
                     [](const FunctionStage& stage) { return stage.group->OnOwnThread(); })) {
      return;
    }
    // The last request's answer destroys its model: the thread that answered cannot wait for
    // itself.
    auto stages = std::make_shared<FunctionStages>(std::move(stages_));
    const auto end = [stages] { stages->all.clear(); };
    if (background_ == nullptr || !background_->Run(end)) std::thread(end).detach();
  }

  StatusOr<ProgramView> View() override {
    ProgramView view;
    view.notes.push_back(fmt::format("function '{}' of {}, in {} worker processes of its own",
                                     config_.function, config_.file, config_.workers));
    for (const std::string& hook : config_.separate_hooks) {
      view.notes.push_back(fmt::format("its {}(item), in {} others", hook, config_.hook_workers));
    }
    return view;
  }
  TaskLanes lanes() const override {
    return {.tasks = MostProcesses() * config_.batches_in_flight,
            .at_work = ProcessesOf(config_, config_.workers)};
  }
  std::string_view platform() const override { return "python_chairlift"; }
  Status Ready() const override {
    for (const FunctionStage& stage : stages_.all) {
      CHAIRLIFT_RETURN_IF_ERROR(stage.group->Ready());
    }
    return absl::OkStatus();
  }
  bool SendsParts() const override { return stages_.streams(); }
  bool Calls(const std::string& name) const override {
    return std::any_of(config_.calls.begin(), config_.calls.end(), [&](const auto& called) {
      if (called.second == name) return true;
      const StatusOr<CalledModel> model = calls_->Find(called.second);
      return model.ok() && model->program->Calls(name);
    });
  }
  void EndTasks() override {
    for (const FunctionStage& stage : stages_.all) stage.group->End();
  }

  StatusOr<ValidatedRequest> Validate(const InferRequest& request) override {
    for (const NamedTensor& input : request.inputs) {
      if (input.tensor.present() && input.tensor.shape().rank() == 0) {
        return InvalidArgument(
            "input '{}' is a single number; its first dimension must be the rows", input.name);
      }
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(ValidatedRequest validated, Program::Validate(request));
    for (size_t i = 0; i < validated.inputs.size(); ++i) {
      if (validated.inputs[i].shape()[0] == validated.inputs[0].shape()[0]) continue;
      return InvalidArgument(
          "input '{}' has {} rows, and input '{}' has {}; they must have the same number",
          signature_.inputs[i].name, validated.inputs[i].shape()[0], signature_.inputs[0].name,
          validated.inputs[0].shape()[0]);
    }
    if (!signature_.batches) {
      validated.rows =
          static_cast<int32_t>(std::min<int64_t>(validated.inputs[0].shape()[0], kMaxBatchRows));
    }
    if (validated.inputs[0].shape()[0] > kMaxBatchRows) {
      return InvalidArgument("the request has {} rows; it may have {}",
                             validated.inputs[0].shape()[0], kMaxBatchRows);
    }
    if (forms_.any) CHAIRLIFT_RETURN_IF_ERROR(FitRagged(validated));
    CHAIRLIFT_RETURN_IF_ERROR(CountBytes(validated));
    return validated;
  }

  StatusOr<std::unique_ptr<RequestGraph>> Unfold(ValidatedRequest request, bool parts) override {
    const auto leaves = [this] {
      for (const FunctionStage& stage : stages_.all) stage.group->NoteLeft();
    };
    if (stages_.streams()) {
      auto graph =
          std::make_unique<StreamedGraph>(std::move(request), signature_.outputs.size(), parts);
      graph->set_on_leave(leaves);
      return graph;
    }
    const int32_t most = plan_.scheduling.max_batch_size;
    // Strings and rows of different lengths are one answer, not divided into parts.
    const bool in_parts = plan_.batches && request.rows > most && stages_.last().forms.num_own == 0;
    std::unique_ptr<RowsGraph> graph = MakeRowsGraph(
        std::move(request), {.max_load = in_parts ? most : 0, .at_once = lanes().tasks});
    graph->set_on_leave(leaves);
    return graph;
  }

  void Run(TaskRun& run, TaskDone done) override {
    RunFunctionTask(stages_, signature_, config_.retry_alone, run, std::move(done));
  }

  bool BeginsAnother(int begun, int waiting) const override {
    // A batch behind a running one gains nothing from an early start, unless it is already full or
    // the running one is about to end.
    return begun < MostProcesses() || waiting >= plan_.scheduling.max_batch_size;
  }

 private:
  int MostProcesses() const {
    return ProcessesOf(config_, std::max(config_.workers, config_.max_workers));
  }

  // Checks the size of a request, and makes large ones count as more rows in a batch.
  Status CountBytes(ValidatedRequest& validated) const {
    if (config_.max_batch_bytes == 0) return absl::OkStatus();
    int64_t bytes = 0;
    for (const Tensor& input : validated.inputs) {
      bytes += static_cast<int64_t>(ContentBytes(input));
    }
    const int64_t most = validated.rows > 1 ? config_.max_batch_bytes : config_.max_request_bytes;
    if (bytes > most) {
      return InvalidArgument(
          "the request has {} rows of {} bytes in total; it may have {} bytes: send requests of "
          "one row each",
          validated.rows, bytes, most);
    }
    const int64_t share = bytes * plan_.scheduling.max_batch_size / config_.max_batch_bytes;
    validated.room =
        static_cast<int32_t>(std::min<int64_t>(share, plan_.scheduling.max_batch_size));
    return absl::OkStatus();
  }

  // Requests of any lengths share batches.
  Status FitRagged(ValidatedRequest& validated) const {
    constexpr int64_t kMostTokens = int64_t{1} << 40;
    validated.key.clear();
    for (size_t i = 0; i < validated.inputs.size(); ++i) {
      const Shape& shape = validated.inputs[i].shape();
      validated.key.push_back(shape.rank());
      if (!forms_.inputs[i]) {
        validated.key.insert(validated.key.end(), shape.begin() + 1, shape.end());
        continue;
      }
      if (shape.rank() < 2) {
        return InvalidArgument("input '{}' has shape {}; it takes [rows, length, …]",
                               signature_.inputs[i].name, shape.ToString());
      }
      const int64_t length = forms_.Length(validated);
      if (shape[1] != length || length > kMostTokens / kMaxBatchRows) {
        return InvalidArgument(
            "input '{}' has length {}, and input '{}' has {}; they must be equal",
            signature_.inputs[i].name, shape[1],
            signature_.inputs[static_cast<size_t>(forms_.input)].name, length);
      }
      validated.key.insert(validated.key.end(), shape.begin() + 2, shape.end());
    }
    return absl::OkStatus();
  }

  const FunctionConfig config_;
  Background* const background_;
  ModelCalls* const calls_;
  FunctionStages stages_;
  const TensorForms& forms_;  // of a request's tensors
};

// Stages: a hook, or the main method and the hooks that run in its process.
std::vector<std::string> PartsOf(const FunctionConfig& config) {
  const auto apart = [&](const char* hook) {
    return std::count(config.separate_hooks.begin(), config.separate_hooks.end(), hook) > 0;
  };
  std::vector<std::string> parts;
  std::string computes = kPredict;
  if (apart(kPreprocess)) {
    parts.emplace_back(kPreprocess);
  } else {
    computes = fmt::format("{},{}", kPreprocess, computes);
  }
  if (!apart(kPostprocess)) computes = fmt::format("{},{}", computes, kPostprocess);
  parts.push_back(std::move(computes));
  if (apart(kPostprocess)) parts.emplace_back(kPostprocess);
  return parts;
}

bool MayBeEqual(const SymbolicShape& a, const SymbolicShape& b) {
  if (!a.has_rank() || !b.has_rank()) return true;
  if (a.rank() != b.rank()) return false;
  for (int axis = 1; axis < a.rank(); ++axis) {
    if (a[axis].known() && b[axis].known() && a[axis].value() != b[axis].value()) return false;
  }
  return true;
}

// Checks that each stage accepts the previous one's results.
Status CheckStages(const FunctionStages& stages) {
  for (size_t i = 1; i < stages.all.size(); ++i) {
    const WorkerReady& before = stages.all[i - 1].group->signature();
    const WorkerReady& next = stages.all[i].group->signature();
    for (const WorkerReady* stage : {&before, &next}) {
      for (size_t k = 0; k < stage->outputs.size(); ++k) {
        if (!stage->streams && (!stage->own_offsets[k] || stage->outputs[k].dtype == DType::kBytes))
          continue;
        return InvalidArgument(
            "separate_hooks needs rows of equal shape, or text; '{}' is a Ragged, or yielded",
            stage->outputs[k].name);
      }
      if (std::count(stage->ragged_inputs.begin(), stage->ragged_inputs.end(), true) > 0) {
        return InvalidArgument(
            "separate_hooks needs rows of equal shape, or text; it takes a Ragged");
      }
    }
    if (before.outputs.size() != next.inputs.size()) {
      return InvalidArgument(
          "separate_hooks: {} values are given by one process, and the next takes {}",
          before.outputs.size(), next.inputs.size());
    }
    for (size_t k = 0; k < before.outputs.size(); ++k) {
      const SymbolicSpec& given = before.outputs[k];
      const SymbolicSpec& taken = next.inputs[k];
      if (given.dtype == taken.dtype && MayBeEqual(given.shape, taken.shape)) continue;
      return InvalidArgument(
          "separate_hooks: '{}' is taken as {} {}, and comes from the process before as {} {}: "
          "annotate "
          "what it takes, or what the other returns",
          taken.name, DTypeName(taken.dtype), taken.shape.ToString(), DTypeName(given.dtype),
          given.shape.ToString());
    }
  }
  return absl::OkStatus();
}

StatusOr<FunctionStages> StartStages(const LoadingModel& model) {
  FunctionConfig function = *model.source.function;
  // A user's Python model already runs code of its folder.
  CHAIRLIFT_ASSIGN_OR_RETURN(
      function.python_executable,
      FindInterpreter(function, model.source.path, !function.trusted || model.load.allow_plugins));
  const std::vector<std::string> parts = PartsOf(function);
  FunctionStages stages;
  for (const std::string& part : parts) {
    const bool hook = part == kPreprocess || part == kPostprocess;
    WorkerGroup::Options options{.name = model.name,
                                 .config = function,
                                 .file = model.source.path,
                                 .parts = part,
                                 .calls = model.load.calls,
                                 .interrupted = model.config.interrupted};
    if (hook) options.name += " " + part;
    if (hook) options.config.workers = function.hook_workers;
    if (hook) options.config.max_workers = 0;
    CHAIRLIFT_ASSIGN_OR_RETURN(std::unique_ptr<WorkerGroup> group,
                               WorkerGroup::Start(std::move(options)));
    stages.all.emplace_back(std::move(group));
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckStages(stages));
  return stages;
}

}  // namespace

StatusOr<std::unique_ptr<Program>> MakeProcess(LoadingModel& model, std::string& /*refused*/) {
  const FunctionConfig& function = *model.source.function;
  if (!model.load.allow_plugins && !model.source.named_by_user && !function.trusted) {
    return InvalidArgument(
        "it is a Python function ({}:{}), which is allowed with --allow-plugins (in Python: "
        "allow_plugins=True) only: it runs with the rights of this process",
        function.file, function.function);
  }
  BatchAxisReport rows;
  rows.batches = true;
  rows.why =
      fmt::format("function '{}' of {}, in {} of its own; rows are apart, as its author says",
                  function.function, model.source.path.filename().string(),
                  function.workers == 1 ? std::string("a process")
                                        : fmt::format("{} processes", function.workers));
  const int processes = ProcessesOf(function, std::max(function.workers, function.max_workers));
  CHAIRLIFT_ASSIGN_OR_RETURN(
      ServingPlan plan, PlanServing(model.config, rows, processes * function.batches_in_flight));
  if (!function.calls.empty() && model.load.calls == nullptr) {
    return InvalidArgument(
        "the function calls other models, which needs an engine, and this model has no engine");
  }
  model.load.Report("loading the function");
  CHAIRLIFT_ASSIGN_OR_RETURN(FunctionStages stages, StartStages(model));
  const WorkerReady& takes = stages.first().group->signature();
  const WorkerReady& gives = stages.last().group->signature();
  Signature signature{.inputs = takes.inputs,
                      .outputs = gives.outputs,
                      .batches = plan.batches,
                      .max_rows = plan.batches ? model.config.max_batch_size : 0};
  const auto as_clients_see = [](SymbolicSpec& spec, bool ragged) {
    if (!spec.shape.has_rank()) return;
    std::vector<Dim> dims = spec.shape.dims();
    dims[0] = Dim::Symbol("batch");
    if (ragged) dims.insert(dims.begin() + 1, Dim::Symbol("length"));
    spec.shape = SymbolicShape(std::move(dims));
  };
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    as_clients_see(signature.inputs[i], takes.ragged_inputs[i]);
  }
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    const bool own = gives.own_offsets[i] && signature.outputs[i].dtype != DType::kBytes;
    signature.own_lengths |= own;
    as_clients_see(signature.outputs[i], own || gives.ragged_outputs[i]);
  }
  return std::make_unique<ProcessProgram>(std::move(signature), std::move(plan), function,
                                          std::move(stages), model.load);
}

}  // namespace chairlift
