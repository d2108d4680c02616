// Requests of Python code to other models while it computes: from its worker to the engine, and the
// answers back.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_MODEL_CALLER_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_MODEL_CALLER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/programs/model_calls.h"
#include "engine/programs/process/messages.h"
#include "engine/programs/process/shared_region.h"
#include "engine/programs/process/worker_process.h"

namespace chairlift {

// For one worker, whose process must outlive it or its Close(). Thread-safe.
class ModelCaller : public std::enable_shared_from_this<ModelCaller> {
 public:
  // Unanswered calls of a worker; more are refused.
  static constexpr size_t kMostCalls = 64;

  // `calls` may be null; `allowed`: the models that the code may call, mapped to their names in the
  // engine.
  ModelCaller(const WorkerProcess& process, ModelCalls* calls,
              std::map<std::string, std::string> allowed)
      : process_(&process), calls_(calls), allowed_(std::move(allowed)) {}

  // Copies the call's inputs from their region and starts the request. The worker is answered from
  // here, or from another thread. The deadline is the batch's.
  void Begin(const WorkerCall& call, const SharedRegion& region, std::optional<TimePoint> deadline);
  // The batch has ended: cancels its calls, without answers.
  void CancelAll();
  // Nothing is sent after this.
  void Close();

 private:
  StatusOr<InferRequest> RequestOf(const WorkerCall& call, const SharedRegion& region,
                                   std::optional<TimePoint> deadline) const;
  void Answer(uint64_t call, const StatusOr<InferResponse>& answer);

  std::mutex mutex_;
  // Guarded by mutex_.
  const WorkerProcess* process_;                          // null: closed
  std::map<uint64_t, std::optional<RequestId>> running_;  // id once it is known

  ModelCalls* const calls_;
  const std::map<std::string, std::string> allowed_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_MODEL_CALLER_H_
