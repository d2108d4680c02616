#include "engine/programs/pipeline/pipeline_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/out_of_memory.h"
#include "base/status.h"
#include "engine/requests/request_size.h"

namespace chairlift {

// The finalizer of SplitMix64 (Steele et al., "Fast splittable pseudorandom number generators",
// 2014).
int64_t SeedOfPart(int64_t seed, uint64_t part) {
  uint64_t mixed = static_cast<uint64_t>(seed) + (part + 1) * 0x9e3779b97f4a7c15;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
  return static_cast<int64_t>(mixed ^ mixed >> 31);
}

PipelineRun::PipelineRun(std::shared_ptr<const WiredPipeline> pipeline,
                         std::vector<CalledModel> models, ModelCalls& calls,
                         const std::vector<Tensor>& inputs, std::vector<int> outputs)
    : pipeline_(std::move(pipeline)),
      models_(std::move(models)),
      calls_(calls),
      wanted_(std::move(outputs)) {
  const std::vector<PipelineWiring::Step>& steps = wiring().steps;
  steps_.resize(steps.size());
  values_.resize(wiring().num_values);
  for (size_t i = 0; i < inputs.size(); ++i) values_[i].tensor = inputs[i];
  for (const int output : wanted_) {
    ++values_[wiring().outputs[static_cast<size_t>(output)]].readers;
  }
  // From last to first: readers come after what they read.
  for (size_t step = steps.size(); step-- > 0;) {
    const auto& gives = steps[step].gives;
    steps_[step].needed = std::any_of(gives.begin(), gives.end(), [&](const auto& given) {
      return values_[given.value].readers > 0;
    });
    if (!steps_[step].needed) continue;
    ++left_;
    for (const auto& [input, value] : steps[step].reads) {
      ++values_[value].readers;
      if (!values_[value].tensor.present()) ++steps_[step].missing;
    }
    if (steps_[step].missing == 0) ready_.push_back(step);
  }
}

PipelineRun::~PipelineRun() {
  for (Value& value : values_) {
    if (value.taken > 0) limits_.bytes->Give(value.taken);
  }
}

void PipelineRun::Begin(const Limits& limits, Done done) {
  Lock lock(mutex_);
  limits_ = limits;
  done_ = std::move(done);
  Advance(std::move(lock));
}

void PipelineRun::Advance(Lock lock) {
  // One thread starts steps; answers that arrive meanwhile leave theirs to it. So calls do not
  // nest, however many answers arrive together.
  if (advancing_) return;
  advancing_ = true;
  while (status_.ok() && !ready_.empty()) {
    const size_t step = ready_.back();
    ready_.pop_back();
    ++running_;
    StatusOr<InferRequest> request =
        CatchOutOfMemory([&]() -> StatusOr<InferRequest> { return RequestOf(step); });
    lock.unlock();
    RequestId number = 0;
    if (request.ok()) {
      number = calls_.Begin(models_[step], *std::move(request), limits_.admission,
                            [run = shared_from_this(), step](StatusOr<InferResponse> answer) {
                              run->Answered(step, std::move(answer));
                            });
    } else {
      Answered(step, request.status());
    }
    lock.lock();
    if (!steps_[step].ended) {
      steps_[step].number = number;
      if (!status_.ok()) {  // its id was not known when the others were cancelled
        lock.unlock();
        calls_.Cancel(number);
        lock.lock();
      }
    }
  }
  advancing_ = false;
  const bool over = running_ == 0 && (left_ == 0 || !status_.ok()) && done_ != nullptr;
  if (!over) return;
  Done done = std::exchange(done_, nullptr);
  const Status status = status_;
  lock.unlock();
  done(status);
}

InferRequest PipelineRun::RequestOf(size_t step) {
  const PipelineWiring::Step& wired = wiring().steps[step];
  InferRequest request;
  request.model = pipeline_->config.steps[step].model;
  for (const auto& [input, value] : wired.reads) {
    request.inputs.push_back({input, values_[value].tensor});
  }
  const bool reads_seed = std::any_of(wired.reads.begin(), wired.reads.end(),
                                      [](const auto& read) { return read.first == "seed"; });
  if (limits_.seed && !reads_seed) request.seed = SeedOfPart(*limits_.seed, step);
  for (const PipelineWiring::Given& given : wired.gives) {
    if (values_[given.value].readers > 0) request.outputs.push_back(given.output);
  }
  if (limits_.deadline) {
    const Duration left = std::max(*limits_.deadline - Clock::Steady().Now(), Duration(0));
    request.timeout = std::chrono::duration_cast<std::chrono::microseconds>(left);
  }
  return request;
}

void PipelineRun::GiveUp(Value& value) {
  if (--value.readers > 0) return;
  value.tensor = Tensor();
  if (value.taken > 0) limits_.bytes->Give(std::exchange(value.taken, 0));
}

Status PipelineRun::Take(size_t step, InferResponse& answer) {
  for (const PipelineWiring::Given& given : wiring().steps[step].gives) {
    Value& value = values_[given.value];
    if (value.readers == 0) continue;
    const auto found =
        std::find_if(answer.outputs.begin(), answer.outputs.end(),
                     [&](const NamedTensor& output) { return output.name == given.output; });
    if (found == answer.outputs.end()) return Internal("it returned no '{}'", given.output);
    const int64_t bytes = HeldBytes(found->tensor);
    if (limits_.bytes != nullptr) {
      if (const ByteBudget* const lacking = limits_.bytes->Take(bytes)) {
        return ResourceExhausted(
            "its output '{}' takes {} bytes, and what waits between the steps of pipelines may "
            "take {} bytes together; retry later",
            given.output, bytes, lacking->limit());
      }
      value.taken = bytes;
    }
    value.tensor = std::move(found->tensor);
  }
  for (size_t other = step + 1; other < steps_.size(); ++other) {
    Step& reader = steps_[other];
    if (!reader.needed || reader.missing == 0) continue;
    for (const auto& [input, value] : wiring().steps[other].reads) {
      const auto& gives = wiring().steps[step].gives;
      const size_t read = value;
      if (std::any_of(gives.begin(), gives.end(),
                      [&](const auto& given) { return given.value == read; })) {
        --reader.missing;
      }
    }
    if (reader.missing == 0) ready_.push_back(other);
  }
  return absl::OkStatus();
}

void PipelineRun::Answered(size_t step, StatusOr<InferResponse> answer) {
  Lock lock(mutex_);
  --running_;
  --left_;
  steps_[step].ended = true;
  steps_[step].number = 0;
  for (const auto& [input, value] : wiring().steps[step].reads) GiveUp(values_[value]);
  Status status = answer.ok() && status_.ok()
                      ? CatchOutOfMemory([&] { return Take(step, *answer); })
                      : answer.status();
  std::vector<RequestId> to_cancel;
  if (!status.ok()) to_cancel = Fail(Annotate(status, StepName(pipeline_->config, step)));
  if (!to_cancel.empty()) {
    lock.unlock();
    for (const RequestId number : to_cancel) calls_.Cancel(number);
    lock.lock();
  }
  Advance(std::move(lock));
}

std::vector<RequestId> PipelineRun::Fail(Status why) {
  std::vector<RequestId> running;
  if (!status_.ok()) return running;
  status_ = std::move(why);
  for (Step& step : steps_) {
    if (step.number != 0) running.push_back(step.number);
  }
  return running;
}

void PipelineRun::Stop() {
  Lock lock(mutex_);
  const std::vector<RequestId> running = Fail(absl::CancelledError("the request was cancelled"));
  lock.unlock();
  for (const RequestId number : running) calls_.Cancel(number);
}

std::vector<NamedTensor> PipelineRun::TakeOutputs() {
  const Lock lock(mutex_);
  std::vector<NamedTensor> outputs;
  for (const int wanted : wanted_) {
    const auto output = static_cast<size_t>(wanted);
    outputs.push_back(
        {wiring().signature.outputs[output].name, values_[wiring().outputs[output]].tensor});
  }
  return outputs;
}

}  // namespace chairlift
