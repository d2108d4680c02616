// One request of a pipeline, from its inputs to its outputs: each step is a separate request to its
// model, started once its inputs have arrived.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_PIPELINE_RUN_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_PIPELINE_RUN_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/byte_budget.h"
#include "base/clock.h"
#include "engine/programs/model_calls.h"
#include "engine/programs/pipeline/wiring.h"

namespace chairlift {

struct WiredPipeline {
  PipelineConfig config;
  PipelineWiring wiring;
  int num_steps = 0;  // including those of pipelines in it
  // Some step's rows have results of different lengths, so each row is a run.
  bool by_rows = false;
  bool draws = false;  // some step's answers depend on a seed (Program::Draws)
};

// The seed of a part of a request with this seed: parts with other numbers get unrelated ones.
int64_t SeedOfPart(int64_t seed, uint64_t part);

// Thread-safe.
class PipelineRun : public std::enable_shared_from_this<PipelineRun> {
 public:
  // `inputs` and `outputs` as in ValidatedRequest; `models`: by step. Steps that no requested
  // output depends on do not run. `calls` must outlive it.
  PipelineRun(std::shared_ptr<const WiredPipeline> pipeline, std::vector<CalledModel> models,
              ModelCalls& calls, const std::vector<Tensor>& inputs, std::vector<int> outputs);
  ~PipelineRun();
  PipelineRun(const PipelineRun&) = delete;
  PipelineRun& operator=(const PipelineRun&) = delete;

  struct Limits {
    std::optional<TimePoint> deadline;
    // Bounds the results of steps that others still have to read, over all requests. Null:
    // unlimited.
    std::shared_ptr<ByteBudget> bytes;
    std::shared_ptr<Admission> admission = {};  // TaskNode::admission
    // The seeds of the steps' requests derive from it and from the step's number.
    std::optional<int64_t> seed = {};
  };
  // Call it once. `done` is called when no step runs any more: before this returns, or on another
  // thread. The status is that of the first failure and names its step. kResourceExhausted if
  // intermediate results exceed the limit.
  using Done = absl::AnyInvocable<void(const Status&)>;
  void Begin(const Limits& limits, Done done);
  // The answer is no longer needed: starts no more steps, and cancels the running ones.
  void Stop();

  // Call it once, after `done` was called with OK.
  std::vector<NamedTensor> TakeOutputs();

 private:
  struct Step {
    bool needed = false;
    bool ended = false;
    size_t missing = 0;    // values that it reads and that have not arrived
    RequestId number = 0;  // of its request, while it runs and once it is known
  };
  struct Value {
    Tensor tensor;
    size_t readers = 0;  // steps that have not ended, plus one for the answer
    int64_t taken = 0;   // bytes of the budget
  };
  using Lock = std::unique_lock<std::mutex>;

  const PipelineWiring& wiring() const { return pipeline_->wiring; }
  // Starts what is ready; calls `done_` at the end. Returns with the lock released.
  void Advance(Lock lock);
  InferRequest RequestOf(size_t step);
  void Answered(size_t step, StatusOr<InferResponse> answer);
  Status Take(size_t step, InferResponse& answer);
  void GiveUp(Value& value);  // removes a reader
  // Starts nothing more; returns the requests to cancel without the lock.
  std::vector<RequestId> Fail(Status why);

  const std::shared_ptr<const WiredPipeline> pipeline_;
  const std::vector<CalledModel> models_;
  ModelCalls& calls_;
  const std::vector<int> wanted_;
  Limits limits_;
  Done done_;

  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<Step> steps_;
  std::vector<Value> values_;
  std::vector<size_t> ready_;
  size_t left_ = 0;         // needed steps that have not ended
  size_t running_ = 0;      // started, not answered
  bool advancing_ = false;  // a thread is in Advance()
  Status status_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_PIPELINE_RUN_H_
