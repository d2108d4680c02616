#include "engine/programs/process/function_task.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/out_of_memory.h"
#include "base/status.h"
#include "chairlift/text.h"
#include "engine/programs/process/streamed_graph.h"
#include "engine/programs/rows_graph.h"
#include "engine/requests/reply.h"

namespace chairlift {
namespace {

// Unread bytes of a stream from which it is paused.
constexpr int64_t kMostUnread = int64_t{1} << 20;
// How long in total one request of a batch may pause the streams of the others.
constexpr auto kMayHoldBack = std::chrono::seconds(5);

using FunctionRequests = absl::InlinedVector<const ValidatedRequest*, 8>;

// Copied, because the worker may write there even now; invalid bools are normalised.
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

// A copy of the offsets of rows in `values` values, which the worker cannot change.
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

// A task: its requests together and, if that raised, each of them alone.
class FunctionTask : public std::enable_shared_from_this<FunctionTask> {
 public:
  FunctionTask(const FunctionStages& stages, const Signature& signature, bool retry_alone,
               TaskRun& run, Program::TaskDone done)
      : stages_(stages),
        signature_(signature),
        retry_alone_(retry_alone),
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

  void Begin() { Submit(0, 0, requests_.size()); }

 private:
  // Requests [first, first + count) of the task, for one stage.
  class Batch final : public FunctionBatch {
   public:
    Batch(std::shared_ptr<FunctionTask> task, size_t stage, size_t first, size_t count)
        : task_(std::move(task)),
          stage_(stage),
          first_(first),
          count_(count),
          retried_(task_->worker_ended_) {
      for (const ValidatedRequest* request : requests()) rows_ += request->rows;
      if (stage > 0) {
        carried_ = std::move(task_->carried_);
        for (const Tensor& tensor : carried_) inputs_.push_back({tensor.dtype(), tensor.shape()});
        return;
      }
      const TensorForms& forms = task_->stages_.first().forms;
      if (forms.any) offsets_.push_back(0);
      for (const ValidatedRequest* request : requests()) {
        const int64_t length = forms.Length(*request);
        for (int32_t row = 0; forms.any && row < request->rows; ++row) {
          offsets_.push_back(tokens_ += length);
        }
      }
      for (size_t i = 0; i < forms.inputs.size(); ++i) {
        const Tensor& input = requests()[0]->inputs[i];
        if (input.dtype() == DType::kBytes) {
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
      // The latest deadline of its requests.
      TimePoint last = TimePoint::min();
      for (size_t i = first_; i < first_ + count_; ++i) {
        const std::optional<TimePoint>& own = task_->run_.nodes[i].deadline;
        if (!own) return std::nullopt;
        last = std::max(last, *own);
      }
      return last;
    }
    bool wanted() const override { return task_->AnyWanted(first_, count_); }
    std::vector<CancelledRows> TakeLeft() override {
      std::vector<CancelledRows> left;
      told_.resize(count_);
      uint32_t row = 0;
      for (size_t i = 0; i < count_; ++i) {
        const auto rows = static_cast<uint32_t>(requests()[i]->rows);
        if (!told_[i] && rows > 0 && !task_->Wanted(first_ + i)) {
          told_[i] = true;
          left.push_back({row, rows});
        }
        row += rows;
      }
      return left;
    }
    bool retried() const override { return retried_; }
    bool MayGoOn(TimePoint now) override { return task_->MayGoOn(now, first_, count_); }
    size_t max_output_bytes() const override { return task_->run_.memory.compute.limit(); }
    void Write(size_t input, std::byte* place) override {
      if (stage_ > 0) {
        const Tensor& carried = carried_[input];
        if (carried.byte_size() > 0) std::memcpy(place, carried.raw(), carried.byte_size());
        return;
      }
      const TensorForms& forms = task_->stages_.first().forms;
      if (input == forms.inputs.size() + forms.texts.size()) {
        std::memcpy(place, offsets_.data(), offsets_.size() * sizeof(offsets_[0]));
        return;
      }
      if (input >= forms.inputs.size()) {
        return WriteTextOffsets(forms.texts[input - forms.inputs.size()], place);
      }
      for (const ValidatedRequest* request : requests()) {
        const Tensor& part = request->inputs[input];
        if (part.dtype() == DType::kBytes) {
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
      if (stage_ + 1 < task_->stages_.all.size()) {
        task_->carried_.clear();
        for (const Tensor& output : outputs) {
          CopyOut(output, 0,
                  task_->carried_.emplace_back(Tensor::Allocate(output.dtype(), output.shape())));
        }
        return absl::OkStatus();
      }
      if (task_->stages_.streams()) return task_->JoinAll(outputs, first_, count_);
      const TensorForms& forms = task_->stages_.last().forms;
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
        const int64_t length = task_->stages_.first().forms.Length(request);
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
      task_->Ended(stage_, first_, count_, failure, status, times);
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
    // The rows of one request. `offsets` has one more entry than its rows.
    static StatusOr<Tensor> RowsWithOffsets(const Tensor& all, const SymbolicSpec& spec,
                                            std::span<const int64_t> offsets) {
      const auto rows = static_cast<int64_t>(offsets.size()) - 1;
      if (spec.dtype == DType::kBytes) {
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
    const size_t stage_, first_, count_;
    const bool retried_;
    std::vector<Tensor> carried_;  // the previous stage's results
    int64_t rows_ = 0;
    int64_t tokens_ = 0;
    std::vector<int64_t> offsets_;
    std::vector<TensorDesc> inputs_;
    std::vector<bool> told_;  // by request: that it has left
  };

  // Whether the request's answer is still needed.
  bool Wanted(size_t i) const { return statuses_[i].ok() && !GraphOf(run_.nodes[i])->left(); }
  bool AnyWanted(size_t first, size_t count) const {
    for (size_t i = first; i < first + count; ++i) {
      if (Wanted(i)) return true;
    }
    return false;
  }

  // A stream waits for its readers. A request that is not read pauses the others of its batch, but
  // not for long.
  bool MayGoOn(TimePoint now, size_t first, size_t count) {
    bool slow = false, others = false;
    const auto unread = [&](size_t i) {
      const PartStream* const parts = run_.nodes[i].parts;
      return parts != nullptr && parts->unread != nullptr && parts->unread() > kMostUnread;
    };
    for (size_t i = first; i < first + count; ++i) {
      if (Wanted(i)) (unread(i) ? slow : others) = true;
    }
    if (slow && others && held_since_) held_ += now - *held_since_;
    held_since_ = slow && others ? std::optional(now) : std::nullopt;
    if (!slow) return true;
    if (!others || held_ < kMayHoldBack) return false;
    for (size_t i = first; i < first + count; ++i) {
      if (!Wanted(i) || !unread(i)) continue;
      statuses_[i] = ResourceExhausted(
          "the client read its stream too slowly: other requests of the batch have waited {} s",
          std::chrono::duration_cast<std::chrono::seconds>(kMayHoldBack).count());
    }
    return true;
  }

  // Copies the steps of each request and sends them.
  void TakeSteps(std::span<const Tensor> outputs, size_t first, size_t count) {
    streamed_ = true;
    int64_t first_row = 0;
    for (size_t i = first; i < first + count; ++i) {
      if (Wanted(i)) {
        const Status taken = CatchOutOfMemory([&] { return TakeStepsOf(i, first_row, outputs); });
        statuses_[i].Update(taken);
      }
      first_row += requests_[i]->rows;
    }
    const auto limit = static_cast<int64_t>(run_.memory.compute.limit());
    for (int64_t kept = KeptBytes(); kept > limit; kept = KeptBytes()) {
      const auto most =
          std::max_element(steps_.begin(), steps_.end(),
                           [](const auto& a, const auto& b) { return BytesOf(a) < BytesOf(b); });
      statuses_[static_cast<size_t>(most - steps_.begin())].Update(absl::OutOfRangeError(
          "the steps of its results take more than a batch may have (--memory-budget)"));
      most->clear();
    }
    for (size_t i = first; i < first + count; ++i) {
      if (!Wanted(i)) steps_[i].clear();
    }
  }
  Status TakeStepsOf(size_t i, int64_t first_row, std::span<const Tensor> outputs) {
    const ValidatedRequest& request = *requests_[i];
    const PartStream* const parts = run_.nodes[i].parts;
    steps_[i].resize(request.outputs.size());
    for (size_t k = 0; k < request.outputs.size(); ++k) {
      const auto index = static_cast<size_t>(request.outputs[k]);
      Steps& steps = steps_[i][k];
      Shape shape = outputs[index].shape();
      shape[0] = request.rows;
      Tensor own = Tensor::Allocate(outputs[index].dtype(), shape);
      CopyOut(outputs[index], first_row, own);
      const int64_t count = std::exchange(shape[1], 0);
      if (!steps.shape) steps.shape = shape;
      if (!(*steps.shape == shape)) {
        return Internal("the steps of output '{}' differ in shape: {} and {}",
                        signature_.outputs[index].name, steps.shape->ToString(), shape.ToString());
      }
      static_cast<StreamedGraph*>(run_.nodes[i].graph)->Emit(request.outputs[k], steps.count, own);
      steps.count += count;
      if (parts != nullptr && parts->once) continue;
      steps.bytes += static_cast<int64_t>(own.byte_size());
      steps.parts.push_back(std::move(own));
    }
    if (parts != nullptr && run_.send_parts != nullptr) run_.send_parts(i);
    return absl::OkStatus();
  }
  // `none`: the outputs without steps.
  Status JoinAll(std::span<const Tensor> none, size_t first, size_t count) {
    int64_t first_row = 0;
    for (size_t i = first; i < first + count; ++i) {
      const ValidatedRequest& request = *requests_[i];
      const PartStream* const parts = run_.nodes[i].parts;
      const bool joined = Wanted(i) && (parts == nullptr || !parts->once);
      for (size_t k = 0; joined && k < request.outputs.size(); ++k) {
        const auto index = static_cast<size_t>(request.outputs[k]);
        const Tensor rest = none[index].Rows(first_row, request.rows);
        if (rest.size() > 0) return Internal("a result that comes in parts has steps at its end");
        outputs_[i].push_back(
            {signature_.outputs[index].name, JoinSteps(steps_[i][k].parts, rest)});
      }
      first_row += request.rows;
    }
    return absl::OkStatus();
  }

  static RowsGraph* GraphOf(const TaskNode& node) { return static_cast<RowsGraph*>(node.graph); }

  void Submit(size_t stage, size_t first, size_t count) {
    stages_.all[stage].group->Submit(
        std::make_unique<Batch>(shared_from_this(), stage, first, count));
  }

  void Ended(size_t stage, size_t first, size_t count, FunctionBatch::Failure failure,
             Status status, const FunctionBatch::Times& times) {
    times_.compute_input += times.write;
    times_.compute_infer += times.compute;
    times_.compute_output += times.take;
    const bool wanted = AnyWanted(first, count);
    const bool may_be_another_s =
        failure == FunctionBatch::Failure::kRaised || failure == FunctionBatch::Failure::kEnded;
    if (may_be_another_s && count > 1 && retry_alone_ && wanted && !streamed_) {
      alone_ = true;
      worker_ended_ = failure == FunctionBatch::Failure::kEnded;
      return Submit(0, 0, 1);
    }
    if (status.ok() && stage + 1 < stages_.all.size()) {
      if (wanted) return Submit(stage + 1, first, count);
      status = absl::CancelledError("nobody waits for it any more");
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
        // Each has a separate status: they are read and freed on different threads.
        node.status = Status(status.code(), status.message());
      }
    }
    if (alone_ && first + 1 < requests_.size()) return Submit(0, first + 1, 1);
    done_(times_);  // frees what `run_` refers to
  }

  const FunctionStages& stages_;
  const Signature& signature_;
  const bool retry_alone_;
  TaskRun& run_;
  Program::TaskDone done_;
  FunctionRequests requests_;
  std::vector<std::vector<NamedTensor>> outputs_;  // by request
  std::vector<Status> statuses_;                   // by request: why it has no answer
  // If results are produced step by step: by request and requested output.
  struct Steps {
    std::optional<Shape> shape;  // of all, without steps
    std::vector<Tensor> parts;   // if the answer includes them
    int64_t bytes = 0;           // of the parts
    int64_t count = 0;
  };
  static int64_t BytesOf(const std::vector<Steps>& steps) {
    int64_t bytes = 0;
    for (const Steps& own : steps) bytes += own.bytes;
    return bytes;
  }
  int64_t KeptBytes() const {
    int64_t bytes = 0;
    for (const std::vector<Steps>& steps : steps_) bytes += BytesOf(steps);
    return bytes;
  }
  std::vector<std::vector<Steps>> steps_;
  bool streamed_ = false;  // some steps were sent
  // Since when, and for how long in total, a request has paused others of its batch.
  std::optional<TimePoint> held_since_;
  Duration held_{0};
  TaskResult times_;
  std::vector<Tensor> carried_;  // between two stages, of the only running batch
  bool alone_ = false;
  bool worker_ended_ = false;  // the worker that ran all requests together has ended
};

}  // namespace

TensorForms::TensorForms(const WorkerReady& ready)
    : inputs(ready.ragged_inputs),
      outputs(ready.ragged_outputs),
      input(static_cast<int>(std::find(inputs.begin(), inputs.end(), true) - inputs.begin())),
      any(static_cast<size_t>(input) < inputs.size()) {
  for (size_t i = 0; i < ready.inputs.size(); ++i) {
    if (ready.inputs[i].dtype == DType::kBytes) texts.push_back(i);
  }
  for (size_t i = 0; i < ready.outputs.size(); ++i) {
    own_offsets.push_back(ready.own_offsets[i] ? static_cast<int>(num_own++) : -1);
  }
}

void RunFunctionTask(const FunctionStages& stages, const Signature& signature, bool retry_alone,
                     TaskRun& run, Program::TaskDone done) {
  std::make_shared<FunctionTask>(stages, signature, retry_alone, run, std::move(done))->Begin();
}

}  // namespace chairlift
