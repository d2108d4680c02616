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
#include "chairlift/text.h"
#include "engine/programs/makers.h"
#include "engine/programs/process/streamed_graph.h"
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

// What of a function's inputs and outputs does not come as equal rows.
struct TensorForms {
  explicit TensorForms(const WorkerReady& ready)
      : inputs(ready.ragged_inputs),
        outputs(ready.ragged_outputs),
        input(static_cast<int>(std::find(inputs.begin(), inputs.end(), true) - inputs.begin())),
        any(static_cast<size_t>(input) < inputs.size()) {
    for (size_t i = 0; i < ready.inputs.size(); ++i) {
      if (ready.inputs[i].dtype == kBytes) texts.push_back(i);
    }
    for (size_t i = 0; i < ready.outputs.size(); ++i) {
      own_offsets.push_back(ready.own_offsets[i] ? static_cast<int>(num_own++) : -1);
    }
  }
  // Of the request's rows: as it brings them as one tensor, all have one length.
  int64_t Length(const ValidatedRequest& request) const {
    return any ? request.inputs[static_cast<size_t>(input)].shape()[1] : 0;
  }

  const std::vector<bool> inputs, outputs;
  const int input;  // the first ragged one
  const bool any;
  std::vector<size_t> texts;     // inputs of kBytes
  std::vector<int> own_offsets;  // by output: which of the offsets behind the outputs are its; −1
  size_t num_own = 0;
};

// A copy, which the worker cannot change, of the offsets of rows in so many values.
StatusOr<std::vector<int64_t>> TakeOffsets(const Tensor& offsets, int64_t values,
                                           const std::string& output) {
  const std::span<const int64_t> there = offsets.values<int64_t>();
  std::vector<int64_t> own(there.begin(), there.end());
  if (own.front() == 0 && own.back() == values && std::is_sorted(own.begin(), own.end())) {
    return own;
  }
  return Internal("the offsets of output '{}' do not divide its {} values into rows", output,
                  values);
}

// A task: its requests together and, where that raised, each of them alone.
class FunctionTask : public std::enable_shared_from_this<FunctionTask> {
 public:
  FunctionTask(WorkerGroup& group, const Signature& signature, const TensorForms& forms,
               bool retry_alone, bool streams, TaskRun& run, Program::TaskDone done)
      : group_(group),
        signature_(signature),
        forms_(forms),
        retry_alone_(retry_alone),
        streams_(streams),
        run_(run),
        done_(std::move(done)) {
    for (TaskNode& node : run.nodes) {
      requests_.push_back(&GraphOf(node)->rows(node.node));  // until it has completed
      node.units = requests_.back()->load();
      times_.rows += requests_.back()->rows;
    }
    outputs_.resize(requests_.size());
    statuses_.resize(requests_.size());
    steps_.resize(requests_.size());
  }

  void Begin() { Submit(0, requests_.size()); }

 private:
  // Requests [first, first + count) of the task.
  class Batch final : public FunctionBatch {
   public:
    Batch(std::shared_ptr<FunctionTask> task, size_t first, size_t count)
        : task_(std::move(task)), first_(first), count_(count) {
      const TensorForms& forms = task_->forms_;
      if (forms.any) offsets_.push_back(0);
      for (const ValidatedRequest* request : requests()) {
        rows_ += request->rows;
        const int64_t length = forms.Length(*request);
        for (int32_t row = 0; forms.any && row < request->rows; ++row) {
          offsets_.push_back(tokens_ += length);
        }
      }
      for (size_t i = 0; i < forms.inputs.size(); ++i) {
        const Tensor& input = requests()[0]->inputs[i];
        if (input.dtype() == kBytes) {
          int64_t bytes = 0;
          for (const ValidatedRequest* request : requests()) {
            for (const std::string_view text : TextsOf(request->inputs[i])) {
              bytes += static_cast<int64_t>(text.size());
            }
          }
          inputs_.push_back({DType::kUInt8, Shape{bytes}});
          continue;
        }
        Shape shape = input.shape();
        if (forms.inputs[i]) shape.Erase(1);
        shape[0] = forms.inputs[i] ? tokens_ : rows_;
        inputs_.push_back({input.dtype(), shape});
      }
      inputs_.insert(inputs_.end(), forms.texts.size() + (forms.any ? 1 : 0),
                     {DType::kInt64, Shape{rows_ + 1}});
    }

    int64_t rows() const override { return rows_; }
    int64_t tokens() const override { return tokens_; }
    const std::vector<TensorDesc>& inputs() const override { return inputs_; }
    std::optional<TimePoint> deadline() const override {
      // The last of its requests to be given up.
      TimePoint last = TimePoint::min();
      for (size_t i = first_; i < first_ + count_; ++i) {
        const std::optional<TimePoint>& own = task_->run_.nodes[i].deadline;
        if (!own) return std::nullopt;
        last = std::max(last, *own);
      }
      return last;
    }
    size_t max_output_bytes() const override { return task_->run_.memory.compute.limit(); }
    void Write(size_t input, std::byte* place) override {
      const TensorForms& forms = task_->forms_;
      if (input == forms.inputs.size() + forms.texts.size()) {
        std::memcpy(place, offsets_.data(), offsets_.size() * sizeof(offsets_[0]));
        return;
      }
      if (input >= forms.inputs.size()) {
        return WriteTextOffsets(forms.texts[input - forms.inputs.size()], place);
      }
      for (const ValidatedRequest* request : requests()) {
        const Tensor& part = request->inputs[input];
        if (part.dtype() == kBytes) {
          for (const std::string_view text : TextsOf(part)) {
            if (!text.empty()) std::memcpy(place, text.data(), text.size());
            place += text.size();
          }
          continue;
        }
        if (part.byte_size() == 0) continue;
        std::memcpy(place, part.raw(), part.byte_size());
        place += part.byte_size();
      }
    }
    Status Take(std::span<const Tensor> outputs) override {
      if (task_->streams_) return task_->JoinAll(outputs, first_, count_);
      const TensorForms& forms = task_->forms_;
      const size_t num_outputs = forms.outputs.size();
      std::vector<std::vector<int64_t>> own_offsets;
      for (size_t i = 0; i < num_outputs; ++i) {
        if (forms.own_offsets[i] < 0) continue;
        CHAIRLIFT_ASSIGN_OR_RETURN(
            std::vector<int64_t> offsets,
            TakeOffsets(outputs[num_outputs + own_offsets.size()], outputs[i].shape()[0],
                        task_->signature_.outputs[i].name));
        own_offsets.push_back(std::move(offsets));
      }
      int64_t first_row = 0, first_token = 0;
      for (size_t i = first_; i < first_ + count_; ++i) {
        const ValidatedRequest& request = *task_->requests_[i];
        const int64_t length = task_->forms_.Length(request);
        for (const int wanted : request.outputs) {
          const auto index = static_cast<size_t>(wanted);
          const std::string& name = task_->signature_.outputs[index].name;
          if (forms.own_offsets[index] >= 0) {
            const auto& offsets = own_offsets[static_cast<size_t>(forms.own_offsets[index])];
            StatusOr<Tensor> own =
                RowsWithOffsets(outputs[index], task_->signature_.outputs[index],
                                std::span(offsets).subspan(static_cast<size_t>(first_row),
                                                           static_cast<size_t>(request.rows) + 1));
            task_->statuses_[i].Update(own.status());
            if (own.ok()) task_->outputs_[i].push_back({name, *std::move(own)});
            continue;
          }
          const bool ragged = forms.outputs[index];
          Shape shape = outputs[index].shape();
          shape[0] = ragged ? request.rows * length : request.rows;
          Tensor own = Tensor::Allocate(outputs[index].dtype(), shape);
          CopyOut(outputs[index], ragged ? first_token : first_row, own);
          if (ragged) {
            shape[0] = length;
            shape.Insert(0, request.rows);
            own = own.Reshaped(shape);
          }
          task_->outputs_[i].push_back({name, std::move(own)});
        }
        first_row += request.rows;
        first_token += request.rows * length;
      }
      return absl::OkStatus();
    }
    void TakePart(std::span<const Tensor> outputs) override {
      task_->TakeSteps(outputs, first_, count_);
    }
    void Done(Failure failure, Status status, const Times& times) override {
      task_->Ended(first_, count_, failure, status, times);
    }

   private:
    void WriteTextOffsets(size_t input, std::byte* place) const {
      int64_t end = 0;
      const auto put = [&] {
        std::memcpy(place, &end, sizeof(end));
        place += sizeof(end);
      };
      put();
      for (const ValidatedRequest* request : requests()) {
        for (const std::string_view text : TextsOf(request->inputs[input])) {
          end += static_cast<int64_t>(text.size());
          put();
        }
      }
    }
    // Of one request. `offsets` has one more than its rows.
    static StatusOr<Tensor> RowsWithOffsets(const Tensor& all, const SymbolicSpec& spec,
                                            std::span<const int64_t> offsets) {
      const auto rows = static_cast<int64_t>(offsets.size()) - 1;
      if (spec.dtype == kBytes) {
        std::vector<std::string> texts;
        for (size_t row = 1; row < offsets.size(); ++row) {
          texts.emplace_back(static_cast<const char*>(all.raw()) + offsets[row - 1],
                             static_cast<size_t>(offsets[row] - offsets[row - 1]));
        }
        return TextTensor(Shape{rows}, std::move(texts));
      }
      const int64_t length = rows == 0 ? 0 : offsets[1] - offsets[0];
      for (size_t row = 1; row < offsets.size(); ++row) {
        if (offsets[row] - offsets[row - 1] == length) continue;
        return InvalidArgument(
            "its rows have results of different lengths in output '{}' ({} and {}), which one "
            "tensor cannot hold: send them as requests of one row each",
            spec.name, length, offsets[row] - offsets[row - 1]);
      }
      Shape shape = all.shape();
      shape[0] = rows * length;
      Tensor own = Tensor::Allocate(all.dtype(), shape);
      CopyOut(all, offsets[0], own);
      shape[0] = length;
      shape.Insert(0, rows);
      return own.Reshaped(shape);
    }
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

  // Copies the steps of each request, and sends them on.
  void TakeSteps(std::span<const Tensor> outputs, size_t first, size_t count) {
    if (!too_large_.ok()) return;
    for (const Tensor& output : outputs) step_bytes_ += output.byte_size();
    if (step_bytes_ > run_.memory.compute.limit()) {
      too_large_ = absl::OutOfRangeError(
          "the steps of its results take more than a batch may have (--memory-budget)");
      return;
    }
    too_large_ = CatchOutOfMemory([&] {
      int64_t first_row = 0;
      for (size_t i = first; i < first + count; ++i) {
        const ValidatedRequest& request = *requests_[i];
        steps_[i].resize(request.outputs.size());
        for (size_t k = 0; k < request.outputs.size(); ++k) {
          const Tensor& all = outputs[static_cast<size_t>(request.outputs[k])];
          Shape shape = all.shape();
          shape[0] = request.rows;
          Tensor own = Tensor::Allocate(all.dtype(), shape);
          CopyOut(all, first_row, own);
          static_cast<StreamedGraph*>(run_.nodes[i].graph)
              ->Emit(request.outputs[k], steps_[i][k].count, own);
          steps_[i][k].count += shape[1];
          steps_[i][k].parts.push_back(std::move(own));
        }
        first_row += request.rows;
        if (run_.send_parts != nullptr) run_.send_parts(i);
      }
      return absl::OkStatus();
    });
  }
  // `none`: the outputs, of no steps.
  Status JoinAll(std::span<const Tensor> none, size_t first, size_t count) {
    CHAIRLIFT_RETURN_IF_ERROR(too_large_);
    int64_t first_row = 0;
    for (size_t i = first; i < first + count; ++i) {
      const ValidatedRequest& request = *requests_[i];
      steps_[i].resize(request.outputs.size());
      for (size_t k = 0; k < request.outputs.size(); ++k) {
        const auto index = static_cast<size_t>(request.outputs[k]);
        const Tensor rest = none[index].Rows(first_row, request.rows);
        if (rest.size() > 0) return Internal("a result that comes in parts has steps at its end");
        for (const Tensor& part : steps_[i][k].parts) {
          Shape shape = part.shape();
          shape[1] = 0;
          if (!(shape == rest.shape())) {
            return Internal("the steps of output '{}' differ in shape: {} and {}",
                            signature_.outputs[index].name, part.shape().ToString(),
                            rest.shape().ToString());
          }
        }
        outputs_[i].push_back(
            {signature_.outputs[index].name, JoinSteps(steps_[i][k].parts, rest)});
      }
      first_row += request.rows;
    }
    return absl::OkStatus();
  }

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
    if (failure == FunctionBatch::Failure::kRaised && count > 1 && retry_alone_ && wanted &&
        step_bytes_ == 0) {
      alone_ = true;
      return Submit(0, 1);
    }
    for (size_t i = first; i < first + count; ++i) {
      TaskNode& node = run_.nodes[i];
      if (!statuses_[i].ok()) {
        node.status = std::exchange(statuses_[i], absl::OkStatus());
      } else if (status.ok()) {
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
  const TensorForms& forms_;
  const bool retry_alone_;
  const bool streams_;
  TaskRun& run_;
  Program::TaskDone done_;
  FunctionRequests requests_;
  std::vector<std::vector<NamedTensor>> outputs_;  // by request
  std::vector<Status> statuses_;                   // likewise: what its answer cannot be
  // Where results come step by step: by request and wanted output.
  struct Steps {
    std::vector<Tensor> parts;
    int64_t count = 0;
  };
  std::vector<std::vector<Steps>> steps_;
  size_t step_bytes_ = 0;
  Status too_large_;
  TaskResult times_;
  bool alone_ = false;
};

class ProcessProgram final : public Program {
 public:
  ProcessProgram(Signature signature, ServingPlan plan, const FunctionConfig& config,
                 std::unique_ptr<WorkerGroup> group, const LoadOptions& load)
      : Program("process", std::move(signature), std::move(plan)),
        config_(config),
        background_(load.background),
        calls_(load.calls),
        group_(std::move(group)),
        forms_(group_->signature()) {}

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
  bool SendsParts() const override { return streams(); }
  bool Calls(const std::string& name) const override {
    return std::any_of(config_.calls.begin(), config_.calls.end(), [&](const std::string& called) {
      if (called == name) return true;
      const StatusOr<CalledModel> model = calls_->Find(called);
      return model.ok() && model->program->Calls(name);
    });
  }
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
    if (forms_.any) CHAIRLIFT_RETURN_IF_ERROR(FitRagged(validated));
    return validated;
  }

  StatusOr<std::unique_ptr<RequestGraph>> Unfold(ValidatedRequest request, bool parts) override {
    if (streams()) {
      return std::make_unique<StreamedGraph>(std::move(request), signature_.outputs.size(), parts);
    }
    const int32_t most = plan_.scheduling.max_batch_size;
    // Texts and rows of lengths of their own are one answer, not parts of one.
    const bool in_parts = plan_.batches && request.rows > most && forms_.num_own == 0;
    return MakeRowsGraph(std::move(request),
                         {.max_load = in_parts ? most : 0, .at_once = lanes().tasks});
  }

  void Run(TaskRun& run, TaskDone done) override {
    std::make_shared<FunctionTask>(*group_, signature_, forms_, config_.retry_alone, streams(), run,
                                   std::move(done))
        ->Begin();
  }

  bool BeginsAnother(int begun, int waiting) const override {
    // A batch behind one that is computed gains nothing by being begun early, unless it is full
    // already, or the one in front is about to end.
    return begun < config_.workers || waiting >= plan_.scheduling.max_batch_size;
  }

 private:
  bool streams() const { return group_->signature().streams; }

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
  std::unique_ptr<WorkerGroup> group_;
  const TensorForms forms_;
};

}  // namespace

StatusOr<std::unique_ptr<Program>> MakeProcess(LoadingModel& model, std::string& /*refused*/) {
  const FunctionConfig& function = *model.source.function;
  if (!model.load.allow_plugins && !model.source.named_by_user && !function.trusted) {
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
  if (!function.calls.empty() && model.load.calls == nullptr) {
    return InvalidArgument("it calls models of an engine, and there is none");
  }
  model.load.Report("loading the function");
  CHAIRLIFT_ASSIGN_OR_RETURN(std::unique_ptr<WorkerGroup> group,
                             WorkerGroup::Start({.name = model.name,
                                                 .config = function,
                                                 .file = model.source.path,
                                                 .calls = model.load.calls}));
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
    const bool own = group->signature().own_offsets[i] && signature.outputs[i].dtype != kBytes;
    signature.own_lengths |= own;
    as_clients_see(signature.outputs[i], own || group->signature().ragged_outputs[i]);
  }
  return std::make_unique<ProcessProgram>(std::move(signature), std::move(plan), function,
                                          std::move(group), model.load);
}

}  // namespace chairlift
