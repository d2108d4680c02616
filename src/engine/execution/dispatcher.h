// Moves requests through the engine: admission, the models' schedulers, workers.
//
// A lock for each model (ModelQueue::mutex()), held for microseconds and never while the model
// computes, a callback runs (requests/response_sequencer.h runs them) or a user's unfolder does;
// and a short one for what models share (active_models.h). No two models' locks are held together.
// Every change at a model (arrival, completion, cancellation, time) gives its tasks to idle
// workers. A worker that has ended its task asks all models, one by one. What runs next is bound as
// late as possible: a worker has one task.
#ifndef CHAIRLIFT_ENGINE_EXECUTION_DISPATCHER_H_
#define CHAIRLIFT_ENGINE_EXECUTION_DISPATCHER_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "base/clock.h"
#include "device/cpu/worker_pool.h"
#include "engine/execution/active_models.h"
#include "engine/execution/request.h"
#include "engine/execution/trace.h"
#include "engine/execution/unfold_threads.h"
#include "engine/requests/response_sequencer.h"

namespace chairlift {

// As EngineOptions says.
struct DispatcherOptions {
  int max_requests = 4096;
  Duration max_queue_wait{0};
  size_t max_task_bytes = std::numeric_limits<size_t>::max();  // of intermediates and outputs
};

// Thread-safe.
class Dispatcher {
 public:
  // `pool` must outlive Stop(), and must have been destroyed, or its last jobs have ended, before
  // the dispatcher is: they still look for a task after their last answer.
  Dispatcher(WorkerPool& pool, const DispatcherOptions& options);
  ~Dispatcher();

  // Admission, which comes before all else: whether a request of `rows` rows, whose model and
  // caller are set, is to be accepted by how long it would wait in its model's queue, or in
  // those of the models that it asks. Counts it in the latter (Request::admission).
  // kResourceExhausted: retry later.
  Status Admit(Request& request, int64_t rows);
  // Has the callback of a request that is not accepted get that status, on the calling thread.
  static void Refuse(Request& request, Status refused);

  // Takes a request that fits its model, and that Admit() has admitted or that is inside one. Its
  // callback runs exactly once: on the calling thread, before Submit() returns, where the request
  // is refused; else on a worker or the timer's thread. Where the caller will do nothing but wait
  // for the answer (`caller_waits`), its thread runs tasks of that request alone, in place of an
  // idle worker's, with the help of others where that is worth it: waking a thread and being woken
  // by it takes longer than a small model. Nobody else's callback runs there: the caller may hold
  // locks that it takes.
  RequestId Submit(std::shared_ptr<Request> request, bool caller_waits = false);

  // As UnfoldRequest() (unfold_request.h).
  using Unfold = absl::AnyInvocable<StatusOr<std::optional<InferResponse>>(Request&)>;
  // As Submit(), of a request that `unfold` is to unfold; it runs on a thread for that, after those
  // of the same model that were submitted so before. The request has been accepted before: it
  // counts against the limits, and may be cancelled or expire meanwhile.
  RequestId SubmitToUnfold(const std::shared_ptr<Request>& request, Unfold unfold);
  // Whether it has to be submitted so to keep its place: requests of one client start in the order
  // they came.
  static bool MustFollow(const Request& request);
  void Cancel(RequestId number);

  // Refuses new requests; waits up to `drain` for the accepted ones, fails those that still wait
  // or run (kUnavailable), and returns when every callback has returned.
  void Stop(std::chrono::milliseconds drain);
  // After Stop(): until no task is computed any more, be it elsewhere than on a worker's thread.
  void WaitForTasks();

  // What the workers ran, where somebody asks.
  TraceRecorder& trace() { return trace_; }

 private:
  // A task that is given out.
  struct Batch {
    std::shared_ptr<Model> model;
    Task task;
    int cell = 0;
    absl::InlinedVector<Request*, 4> requests;  // by the task's nodes; alive until they have left
    absl::InlinedVector<TaskNode, 4> nodes;
    Ride ride;
    Duration charged{0};

    // While it runs:
    std::shared_ptr<Batch> self;  // until it has completed
    TimePoint start;
    std::optional<TaskRun> run;
    TaskResult result;
    bool helped = false;                // by workers that had nothing to do
    std::optional<NodeRuns> nodes_ran;  // where nodes are traced
    // Who comes second of Run()'s return and its completion goes on with what follows.
    std::atomic<bool> half_done{false};

    bool IsOf(RequestId number) const;  // alone
    Duration time() const {
      return result.compute_input + result.compute_infer + result.compute_output;
    }
  };
  // What statistics take of a request that has ended.
  struct Outcome {
    std::shared_ptr<Model> model;
    std::string failure;  // the reason; empty: it succeeded
    int32_t rows = 0;
    StatisticsRecorder::Times times;
  };
  // What is to be done once no lock is held.
  struct Actions {
    std::vector<std::shared_ptr<Batch>> batches;
    std::vector<std::shared_ptr<Batch>> in_lanes;   // Program::lanes
    std::vector<WorkerId> searching;                // that are to look for a task at all models
    std::vector<std::shared_ptr<Batch>> completed;  // in lanes, before their Run() returned
    std::vector<std::shared_ptr<Request>> left;     // RequestGraph::Leave()
    std::vector<Outcome> outcomes;
    ResponseSequencer::Ready answers;
    // Memory to be freed.
    std::vector<std::shared_ptr<Request>> ended;
    std::shared_ptr<Model> released;
  };
  using Lock = std::unique_lock<AdaptiveMutex>;  // of a model

  static void SetDeadline(Request& request);
  // Below, where nothing else is said: under the lock of the request's or the task's model.

  // Whether there is a place for it: what Admit() does not say.
  Status Place(const Request& request);
  // Likewise: whether one that came by itself finds a place in its model's queue.
  static Status PlaceInQueue(const Request& request);
  // The longest wait for its requests; 0: not bounded.
  Duration MaxWait(const Model& model) const;
  using ModelsToWaitFor = absl::InlinedVector<Model*, 4>;
  // Under no lock: how long a new request would wait for its turn at these models, one after the
  // other, at most. Where that is not more than `least`, any time up to it.
  Duration WaitAt(const ModelsToWaitFor& models, Duration least) const;
  // Likewise: whether a request is admitted to the queue of `model`, where it waits for `models`.
  Status AdmitWait(Model& model, const ModelsToWaitFor& models, const Request& request) const;
  // Refuses what cannot end by its deadline, by measured costs, even if all workers serve it and
  // what came before.
  Status AdmitDeadline(const Request& request) const;
  // A request that was admitted is in the engine from now on.
  void Accept(std::shared_ptr<Request> request, RequestId number);
  using UnitsByType = absl::InlinedVector<QueueTime::Work, 4>;
  static UnitsByType WorkOf(const CellGraph& graph);
  // Its graph, made ready for the scheduler as far as that is worth doing before the lock is taken.
  struct Entry {
    std::optional<CellGraph> graph;
    UnitsByType work;  // of the graph
    std::unique_ptr<PreparedGraph> prepared;
  };
  // Under no lock. kResourceExhausted where there is no memory for it.
  static Status MakeEntry(Request& request, Entry& entry);
  // Has it arrive at its scheduler.
  void Enter(Request& request, Entry entry, TimePoint now, Lock& lock, Actions& actions);
  // Keeps count of what waits.
  void NoteWaiting(Model& model);
  // A request of the model has been unfolded, or has left before.
  void Unfolded(Model& model);
  // On the thread for it, under no lock.
  void RunUnfold(const std::shared_ptr<Request>& request, Unfold& unfold);
  // Answers those whose deadline has passed, whatever they are at.
  void Expire(Model& model, TimePoint now, Actions& actions);
  void FinishLate(Request* request, TimePoint now, Actions& actions);
  // The request is to leave: nothing of it that waits is run any more. Returns whether nothing of
  // it runs either.
  static bool Leave(Request& request, TimePoint now);
  // Ends a request with nodes running. Batches without another request stop early.
  static void Abandon(Request& request, Status why, Actions& actions);
  // The batch has run.
  static void GetOff(Request& request, const Ride& ride);
  // Answers a request that leaves, before its nodes in flight have ended: they may still read its
  // inputs.
  void AnswerEarly(Request& request, TimePoint now, Actions& actions);
  // A request has left its scheduler, after its last node, whose task ended at `now`.
  void End(Request* request, TimePoint now, Actions& actions);
  // Takes a request with nothing running out of the engine; its answer goes to `actions`, unless it
  // has been answered.
  void Finish(Request* request, StatusOr<InferResponse>&& value, Actions& actions);
  void FinishWaiting(Request* request, Status status, const std::string& reason, TimePoint now,
                     Actions& actions);
  // The model has changed: answers who is late and gives tasks to idle workers, to `first` before
  // the others.
  void Pump(const std::shared_ptr<Model>& model, TimePoint now, Actions& actions,
            std::optional<WorkerId> first = std::nullopt);
  // Gives tasks of the model, which run elsewhere than on the workers, to its free lanes.
  void FillLanes(const std::shared_ptr<Model>& model, TimePoint now, Actions& actions);
  // A task of the model for that worker; null where it has none.
  std::shared_ptr<Batch> NextBatch(const std::shared_ptr<Model>& model, WorkerId worker,
                                   TimePoint now);
  // Notes what has changed at the model. `change`: but for `wake` and `requests`.
  void Settle(Model& model, ActiveModels::Change change, TimePoint now, Actions& actions);
  // Under no lock: a task of any model for the worker; null: there is none, and it is idle.
  std::shared_ptr<Batch> FindBatch(WorkerId worker);

  // All below: under no lock, where nothing else is said.

  void Start(std::shared_ptr<Batch> batch);  // on its worker
  void Perform(Actions actions);
  // A request as its scheduler sees it. Holds the types of its nodes: takes the model's lock where
  // that is not held, for each type that is new to the request.
  static CellGraph GraphOf(Request& request, Lock& lock);
  static CellType HoldType(Request& request, int cell, std::span<const int64_t> key, Lock& lock);
  static void ReleaseTypes(Request& request);  // under its model's lock

  // Runs tasks on a worker until it has no more. `only`: those of that request; what follows is
  // left to the worker's own thread.
  void RunOnWorker(std::shared_ptr<Batch> batch, int worker,
                   std::optional<RequestId> only = std::nullopt);
  // As Start(), of a task of that request, on the calling thread where that is better.
  void StartHere(std::shared_ptr<Batch> batch, RequestId number);
  // Begins one of a program with lanes, on the calling thread.
  void RunInLane(const std::shared_ptr<Batch>& batch);
  // Runs one. Returns the worker's next; null where there is none yet.
  std::shared_ptr<Batch> RunTask(const std::shared_ptr<Batch>& batch, int worker,
                                 Duration worth_a_team);
  // It has run: delivers responses. Returns its worker's next task; null where there is none yet.
  // What is ready of the answer of a request that a task in a lane still computes.
  void SendParts(Batch& batch, size_t node);
  std::shared_ptr<Batch> FinishTask(Batch& batch);
  // Has the timer's thread perform them. False, and they are as before, where that has ended.
  bool GiveToTimer(Actions& actions, Model& model);
  // As FinishTask(), of one that completed after Run() returned, on another thread.
  void FinishLateTask(std::shared_ptr<Batch> batch);
  // What becomes of the requests whose nodes ran: under the model's lock.
  void FinishNodes(Batch& batch, Lock& lock, Actions& actions);
  // What its time says of costs: under the model's lock.
  void Learn(const Batch& batch) const;
  // Whether idle workers are to help with it.
  bool WorthSharing(const Batch& batch, Duration worth_a_team) const;
  void Record(const Batch& batch);
  void TimerMain();
  // Hands back what idle workers and the pool of buffers did not need since the last call.
  void ReleaseIdleMemory();

  WorkerPool& pool_;
  const DispatcherOptions options_;
  const Clock& clock_ = Clock::Steady();
  TraceRecorder trace_;
  std::vector<std::unique_ptr<WorkerMemory>> memory_;  // by worker, used by its thread
  // What tasks in lanes take as theirs: only its limits are of use there.
  WorkerMemory lanes_memory_;
  SoloTeam lanes_team_;
  std::atomic<int> waiting_{0};  // over all models

  ResponseSequencer sequencer_;
  ActiveModels models_;
  std::atomic<RequestId> next_number_{1};

  std::mutex for_timer_mutex_;
  // What is to be performed where no thread of the engine is at hand; guarded by for_timer_mutex_.
  std::vector<Actions> for_timer_;
  bool timer_ended_ = false;  // nothing is put there any more; guarded by for_timer_mutex_
  std::mutex late_mutex_;
  int late_ = 0;  // tasks that complete after Run() returned; guarded by late_mutex_
  std::condition_variable none_late_;

  std::mutex stop_mutex_;  // before all others
  std::thread timer_;      // joined under stop_mutex_
  UnfoldThreads unfold_threads_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_EXECUTION_DISPATCHER_H_
