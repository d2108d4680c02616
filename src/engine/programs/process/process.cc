// Functions of a user's own, computed by worker processes: a request is rows of arrays, a batch the
// rows of several, and a task ends when a worker has answered.
#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/out_of_memory.h"
#include "base/status.h"
#include "engine/programs/makers.h"
#include "engine/programs/process/worker_group.h"
#include "engine/programs/rows_graph.h"

namespace chairlift {
namespace {

using FunctionRequests = absl::InlinedVector<const ValidatedRequest*, 8>;

// Copied, because the worker may write there even now; what is no bool becomes one.
void CopyOut(const Tensor& from, int64_t first_row, Tensor& to) {
  if (to.byte_size() == 0) return;
  const Tensor rows = from.Rows(first_row, to.shape()[0]);
  if (to.dtype() != DType::kBool) {
    std::memcpy(to.raw(), rows.raw(), to.byte_size());
    return;
  }
  const auto* const bytes = static_cast<const volatile uint8_t*>(rows.raw());
  auto* const bools = static_cast<bool*>(to.raw());
  for (size_t i = 0; i < to.byte_size(); ++i) bools[i] = bytes[i] != 0;
}

// What of a function's inputs and outputs is ragged.
struct RaggedParts {
  explicit RaggedParts(const WorkerReady& ready)
      : inputs(ready.ragged_inputs),
        outputs(ready.ragged_outputs),
        input(static_cast<int>(std::find(inputs.begin(), inputs.end(), true) - inputs.begin())),
        any(static_cast<size_t>(input) < inputs.size()) {}
  // Of the request's rows: as it brings them as one tensor, all have one length.
  int64_t Length(const ValidatedRequest& request) const {
    return any ? request.inputs[static_cast<size_t>(input)].shape()[1] : 0;
  }

  const std::vector<bool> inputs, outputs;
  const int input;  // the first ragged one
  const bool any;
};

// A task: its requests together and, where that raised, each of them alone.
class FunctionTask : public std::enable_shared_from_this<FunctionTask> {
 public:
  FunctionTask(WorkerGroup& group, const Signature& signature, const RaggedParts& ragged,
               bool retry_alone, TaskRun& run, Program::TaskDone done)
      : group_(group),
        signature_(signature),
        ragged_(ragged),
        retry_alone_(retry_alone),
        run_(run),
        done_(std::move(done)) {
    for (TaskNode& node : run.nodes) {
      requests_.push_back(&GraphOf(node)->rows(node.node));  // until it has completed
      node.units = requests_.back()->load();
      times_.rows += requests_.back()->rows;
    }
    outputs_.resize(requests_.size());
  }

  void Begin() { Submit(0, requests_.size()); }

 private:
  // Requests [first, first + count) of the task.
  class Batch final : public FunctionBatch {
   public:
    Batch(std::shared_ptr<FunctionTask> task, size_t first, size_t count)
        : task_(std::move(task)), first_(first), count_(count) {
      const RaggedParts& ragged = task_->ragged_;
      if (ragged.any) offsets_.push_back(0);
      for (const ValidatedRequest* request : requests()) {
        rows_ += request->rows;
        const int64_t length = ragged.Length(*request);
        for (int32_t row = 0; ragged.any && row < request->rows; ++row) {
          offsets_.push_back(tokens_ += length);
        }
      }
      for (size_t i = 0; i < ragged.inputs.size(); ++i) {
        const Tensor& input = requests()[0]->inputs[i];
        Shape shape = input.shape();
        if (ragged.inputs[i]) shape.Erase(1);
        shape[0] = ragged.inputs[i] ? tokens_ : rows_;
        inputs_.push_back({input.dtype(), shape});
      }
      if (ragged.any) inputs_.push_back({DType::kInt64, Shape{rows_ + 1}});
    }

    int64_t rows() const override { return rows_; }
    int64_t tokens() const override { return tokens_; }
    const std::vector<TensorDesc>& inputs() const override { return inputs_; }
    size_t max_output_bytes() const override { return task_->run_.memory.compute.limit(); }
    void Write(size_t input, std::byte* place) override {
      if (input == task_->ragged_.inputs.size()) {
        std::memcpy(place, offsets_.data(), offsets_.size() * sizeof(offsets_[0]));
        return;
      }
      for (const ValidatedRequest* request : requests()) {
        const Tensor& part = request->inputs[input];
        if (part.byte_size() == 0) continue;
        std::memcpy(place, part.raw(), part.byte_size());
        place += part.byte_size();
      }
    }
    void Take(std::span<const Tensor> outputs) override {
      int64_t first_row = 0, first_token = 0;
      for (size_t i = first_; i < first_ + count_; ++i) {
        const ValidatedRequest& request = *task_->requests_[i];
        const int64_t length = task_->ragged_.Length(request);
        for (const int wanted : request.outputs) {
          const auto index = static_cast<size_t>(wanted);
          const bool ragged = task_->ragged_.outputs[index];
          Shape shape = outputs[index].shape();
          shape[0] = ragged ? request.rows * length : request.rows;
          Tensor own = Tensor::Allocate(outputs[index].dtype(), shape);
          CopyOut(outputs[index], ragged ? first_token : first_row, own);
          if (ragged) {
            shape[0] = length;
            shape.Insert(0, request.rows);
            own = own.Reshaped(shape);
          }
          task_->outputs_[i].push_back({task_->signature_.outputs[index].name, std::move(own)});
        }
        first_row += request.rows;
        first_token += request.rows * length;
      }
    }
    void Done(Failure failure, Status status, const Times& times) override {
      task_->Ended(first_, count_, failure, status, times);
    }

   private:
    std::span<const ValidatedRequest* const> requests() const {
      return std::span(task_->requests_).subspan(first_, count_);
    }

    const std::shared_ptr<FunctionTask> task_;
    const size_t first_, count_;
    int64_t rows_ = 0;
    int64_t tokens_ = 0;
    std::vector<int64_t> offsets_;
    std::vector<TensorDesc> inputs_;
  };

  static RowsGraph* GraphOf(const TaskNode& node) { return static_cast<RowsGraph*>(node.graph); }

  void Submit(size_t first, size_t count) {
    group_.Submit(std::make_unique<Batch>(shared_from_this(), first, count));
  }

  void Ended(size_t first, size_t count, FunctionBatch::Failure failure, const Status& status,
             const FunctionBatch::Times& times) {
    times_.compute_input += times.write;
    times_.compute_infer += times.compute;
    times_.compute_output += times.take;
    const bool wanted = run_.stop == nullptr || !*run_.stop;
    if (failure == FunctionBatch::Failure::kRaised && count > 1 && retry_alone_ && wanted) {
      alone_ = true;
      return Submit(0, 1);
    }
    for (size_t i = first; i < first + count; ++i) {
      TaskNode& node = run_.nodes[i];
      if (status.ok()) {
        node.status = CatchOutOfMemory([&] {
          return GraphOf(node)->Complete(
              node.node, std::move(outputs_[i]),
              {run_.memory.compute.limit(), run_.memory.partial_answers});
        });
      } else {
        // Each has a status of its own: they are read and freed on different threads.
        node.status = Status(status.code(), status.message());
      }
    }
    if (alone_ && first + 1 < requests_.size()) return Submit(first + 1, 1);
    done_(times_);  // what `run_` refers to goes
  }

  WorkerGroup& group_;
  const Signature& signature_;
  const RaggedParts& ragged_;
  const bool retry_alone_;
  TaskRun& run_;
  Program::TaskDone done_;
  FunctionRequests requests_;
  std::vector<std::vector<NamedTensor>> outputs_;  // by request
  TaskResult times_;
  bool alone_ = false;
};

class ProcessProgram final : public Program {
 public:
  ProcessProgram(Signature signature, ServingPlan plan, const FunctionConfig& config,
                 std::unique_ptr<WorkerGroup> group, Background* background)
      : Program("process", std::move(signature), std::move(plan)),
        config_(config),
        background_(background),
        group_(std::move(group)),
        ragged_(group_->signature()) {}

  ~ProcessProgram() override {
    if (!group_->OnOwnThread()) return;
    // The last request's answer destroys its model: the thread that answered cannot wait for
    // itself.
    auto group = std::make_shared<std::unique_ptr<WorkerGroup>>(std::move(group_));
    const auto end = [group] { group->reset(); };
    if (background_ == nullptr || !background_->Run(end)) std::thread(end).detach();
  }

  StatusOr<ProgramView> View() override {
    ProgramView view;
    view.notes.push_back(fmt::format("function '{}' of {}, in {} worker processes of its own",
                                     config_.function, config_.file, config_.workers));
    return view;
  }
  TaskLanes lanes() const override {
    return {.tasks = config_.workers * config_.batches_in_flight, .at_work = config_.workers};
  }
  std::string_view platform() const override { return "python_chairlift"; }
  Status Ready() const override { return group_->Ready(); }
  void EndTasks() override { group_->End(); }

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
          "input '{}' has {} rows, and input '{}' has {}; they must have as many",
          signature_.inputs[i].name, validated.inputs[i].shape()[0], signature_.inputs[0].name,
          validated.inputs[0].shape()[0]);
    }
    if (!signature_.batches) {
      validated.rows =
          static_cast<int32_t>(std::min<int64_t>(validated.inputs[0].shape()[0], kMaxBatchRows));
    }
    if (validated.inputs[0].shape()[0] > kMaxBatchRows) {
      return InvalidArgument("the request brings {} rows; at most {} are possible",
                             validated.inputs[0].shape()[0], kMaxBatchRows);
    }
    if (ragged_.any) CHAIRLIFT_RETURN_IF_ERROR(FitRagged(validated));
    return validated;
  }

  StatusOr<std::unique_ptr<RequestGraph>> Unfold(ValidatedRequest request,
                                                 bool /*parts*/) override {
    const int32_t most = plan_.scheduling.max_batch_size;
    const bool in_parts = plan_.batches && request.rows > most;
    return MakeRowsGraph(std::move(request),
                         {.max_load = in_parts ? most : 0, .at_once = lanes().tasks});
  }

  void Run(TaskRun& run, TaskDone done) override {
    std::make_shared<FunctionTask>(*group_, signature_, ragged_, config_.retry_alone, run,
                                   std::move(done))
        ->Begin();
  }

  bool BeginsAnother(int begun, int waiting) const override {
    // A batch behind one that is computed gains nothing by being begun early, unless it is full
    // already, or the one in front is about to end.
    return begun < config_.workers || waiting >= plan_.scheduling.max_batch_size;
  }

 private:
  // Requests of any lengths share batches.
  Status FitRagged(ValidatedRequest& validated) const {
    constexpr int64_t kMostTokens = int64_t{1} << 40;
    validated.key.clear();
    for (size_t i = 0; i < validated.inputs.size(); ++i) {
      const Shape& shape = validated.inputs[i].shape();
      validated.key.push_back(shape.rank());
      if (!ragged_.inputs[i]) {
        validated.key.insert(validated.key.end(), shape.begin() + 1, shape.end());
        continue;
      }
      if (shape.rank() < 2) {
        return InvalidArgument("input '{}' has shape {}; it takes [rows, length, …]",
                               signature_.inputs[i].name, shape.ToString());
      }
      const int64_t length = ragged_.Length(validated);
      if (shape[1] != length || length > kMostTokens / kMaxBatchRows) {
        return InvalidArgument(
            "input '{}' has length {}, and input '{}' has {}; they must be equal",
            signature_.inputs[i].name, shape[1],
            signature_.inputs[static_cast<size_t>(ragged_.input)].name, length);
      }
      validated.key.insert(validated.key.end(), shape.begin() + 2, shape.end());
    }
    return absl::OkStatus();
  }

  const FunctionConfig config_;
  Background* const background_;
  std::unique_ptr<WorkerGroup> group_;
  const RaggedParts ragged_;
};

}  // namespace

StatusOr<std::unique_ptr<Program>> MakeProcess(LoadingModel& model, std::string& /*refused*/) {
  const FunctionConfig& function = *model.source.function;
  if (!model.load.allow_plugins && !model.source.named_by_user) {
    return InvalidArgument(
        "it is a Python function ({}:{}), which is allowed with --allow-plugins only: it runs with "
        "the rights of this process",
        function.file, function.function);
  }
  BatchAxisReport rows;
  rows.batches = true;
  rows.why =
      fmt::format("function '{}' of {}, in {} of its own; rows are apart, as its author says",
                  function.function, model.source.path.filename().string(),
                  function.workers == 1 ? std::string("a process")
                                        : fmt::format("{} processes", function.workers));
  CHAIRLIFT_ASSIGN_OR_RETURN(
      ServingPlan plan,
      PlanServing(model.config, rows, function.workers * function.batches_in_flight));
  model.load.Report("loading the function");
  CHAIRLIFT_ASSIGN_OR_RETURN(
      std::unique_ptr<WorkerGroup> group,
      WorkerGroup::Start({.name = model.name, .config = function, .file = model.source.path}));
  Signature signature{.inputs = group->signature().inputs,
                      .outputs = group->signature().outputs,
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
    as_clients_see(signature.inputs[i], group->signature().ragged_inputs[i]);
  }
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    as_clients_see(signature.outputs[i], group->signature().ragged_outputs[i]);
  }
  return std::make_unique<ProcessProgram>(std::move(signature), std::move(plan), function,
                                          std::move(group), model.load.background);
}

}  // namespace chairlift
