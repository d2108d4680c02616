// Moves requests through the engine: admission, the models' schedulers, workers.
//
// One lock over all of it; it is held for microseconds and never while a model computes or a
// callback runs (engine/answer_teller.h runs them). Every change (arrival, completion,
// cancellation, time) ends in Pump(), which gives tasks to workers that have room. A worker has
// room when it has no task: what runs next is bound as late as possible.
#ifndef CHAIRLIFT_ENGINE_DISPATCHER_H_
#define CHAIRLIFT_ENGINE_DISPATCHER_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "device/cpu/worker_pool.h"
#include "engine/answer_teller.h"
#include "engine/batch.h"
#include "engine/cell_batch.h"
#include "engine/request.h"
#include "engine/trace.h"

namespace chairlift {

// Thread-safe.
class Dispatcher {
 public:
  // `pool` must outlive Stop().
  Dispatcher(WorkerPool& pool, int max_requests);
  ~Dispatcher();

  // Takes a request that fits its model. Its callback runs exactly once: on the calling thread,
  // before Submit() returns, where the request is refused; else on a worker or the timer's thread.
  RequestId Submit(std::unique_ptr<Request> request);
  void Cancel(RequestId number);

  // Refuses new requests; waits up to `drain` for the accepted ones, fails those that still wait
  // (kUnavailable), and returns when every callback has returned.
  void Stop(std::chrono::milliseconds drain);

  // What the workers ran, where somebody asks.
  TraceRecorder& trace() { return trace_; }

 private:
  struct Batch {
    std::shared_ptr<Model> model;
    Task task;
    int cell = 0;                    // of the model, where it runs as cells
    std::vector<Request*> requests;  // by the task's nodes; alive until they have left
    Duration charged{0};
    bool helped = false;  // by workers that had nothing to do
  };
  // What is to be done once the lock is released.
  struct Actions {
    std::vector<std::shared_ptr<Batch>> batches;
    AnswerTeller::Ready answers;
    // Memory to be freed outside the lock.
    std::vector<std::unique_ptr<Request>> ended;
    std::vector<std::shared_ptr<Model>> released;
  };
  using Lock = std::unique_lock<std::mutex>;

  // A worker's own, used by its thread.
  struct WorkerState {
    WorkerMemory memory;
    CellBatch cells;
  };

  static void SetDeadline(Request& request);
  Status Admit(const Request& request) const;
  // Ends a request: its answer goes to `actions`.
  void Finish(Request* request, StatusOr<InferResponse> value, Actions& actions);
  void FinishWaiting(Request* request, Status status, const std::string& reason, TimePoint now,
                     Actions& actions);
  void Pump(TimePoint now, Actions& actions);
  std::shared_ptr<Batch> NextBatch(WorkerId worker, TimePoint now);
  void Activate(const std::shared_ptr<Model>& model);
  // Lets go of models that nobody waits for, and tells the timer when to look next.
  void Settle(TimePoint now, Actions& actions);
  void Perform(Actions actions);
  // A request as its scheduler sees it. Holds the types of its nodes: takes the lock where that is
  // not held, for each type that is new to the request.
  static CellGraph GraphOf(Request& request, Lock& lock);
  static CellType HoldType(Request& request, NodeId node, Lock& lock);
  static void ReleaseTypes(Request& request);

  // Runs batches on a worker until it has no more.
  void RunOnWorker(std::shared_ptr<Batch> batch, int worker);
  void RunWhole(Batch& batch, int worker);
  void Charge(const Batch& batch, Duration compute);
  // Of a batch for that worker out of `actions`, which need not go through its queue.
  static std::shared_ptr<Batch> TakeOwn(int worker, Actions& actions);
  // Finds the rows of a batch; under the lock.
  void LoadCells(const Batch& batch, int worker);
  // Whether idle workers are to help with it.
  bool WorthSharing(const Batch& batch, Duration worth_a_team) const;
  // Runs a batch that was loaded. Returns what is to be done next; this worker's next cells are
  // loaded.
  Actions RunCells(Batch& batch, int worker, Duration worth_a_team);
  void CompleteNode(Request& request, CellBatch::Item& item, TimePoint now, Actions& actions);
  // The nodes that the request's scheduler does not know yet.
  static void AppendGrowth(Request& request, std::vector<Scheduler::Growth>& grown, Lock& lock);
  static StatusOr<InferResponse> CellAnswer(Request& request, TimePoint now);
  void Record(const Batch& batch, TimePoint start, TimePoint end);
  std::vector<StatusOr<InferResponse>> Compute(Batch& batch, int worker, Duration& compute);
  void TimerMain();

  WorkerPool& pool_;
  const int max_requests_;
  const Clock& clock_ = Clock::Steady();
  TraceRecorder trace_;
  std::vector<std::unique_ptr<WorkerState>> workers_;  // by worker
  std::atomic<int> waiting_{0};                        // over all models

  AnswerTeller teller_;
  std::mutex stop_mutex_;  // before mutex_
  std::mutex mutex_;
  // All below is guarded by mutex_.
  RequestId next_number_ = 1;
  bool refusing_ = false;
  absl::flat_hash_map<RequestId, std::unique_ptr<Request>> requests_;
  std::vector<std::shared_ptr<Model>> active_;  // with requests
  std::vector<WorkerId> idle_;      // the last one was busy most recently: its caches are warmest
  Duration most_used_{0};           // the largest charge of any model
  Actions for_timer_;               // answers to tell, where no thread of the engine is at hand
  std::optional<TimePoint> armed_;  // when the timer wakes by itself
  bool timer_due_ = false;          // it has something to do now
  bool stopping_ = false;
  std::condition_variable timer_wakes_;
  std::thread timer_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_DISPATCHER_H_
