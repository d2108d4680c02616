// Moves requests through the engine: admission, the models' schedulers, workers.
//
// Each model has a lock (ModelQueue::mutex()), held for microseconds. It is never held while the
// model computes, while a callback runs (requests/response_sequencer.h runs those), or while a
// user's unfolder runs. There is one short lock for state shared by models (active_models.h). No
// thread holds two models' locks. Every change of a model (arrival, completion, cancellation, time)
// gives its tasks to idle workers. A worker that has finished its task asks all models, one by one.
// Tasks are formed as late as possible: a worker has one task.
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

// As in EngineOptions.
struct DispatcherOptions {
  int max_requests = 4096;
  Duration max_queue_wait{0};
  size_t max_task_bytes = std::numeric_limits<size_t>::max();  // of intermediates and outputs
};

// Thread-safe.
class Dispatcher {
 public:
  // `pool` must outlive Stop(). It must be destroyed, or its last jobs must have ended, before the
  // dispatcher is: jobs look for another task after their last answer.
  Dispatcher(WorkerPool& pool, const DispatcherOptions& options);
  ~Dispatcher();

  // The first step of admission: whether a request of `rows` rows, with model, caller and
  // input_bytes set, is accepted. It is refused if its expected wait is too long, in its model's
  // queue or in those of the models that it calls. From then on its work counts there, by its size
  // (Request::coming, Request::admission). kResourceExhausted: retry later. `place`: from
  // Reserve(), or null; it is given back. A request whose work it covers is not checked again.
  Status Admit(Request& request, int64_t rows, const std::shared_ptr<Admission>& place);
  // Engine::Reserve().
  StatusOr<std::shared_ptr<Admission>> Reserve(const std::shared_ptr<Model>& model,
                                               const FairShare::Client& caller,
                                               const UnreadBody& body);
  // Calls the callback of a refused request with that status, on the calling thread.
  static void Refuse(Request& request, Status refused);

  // Takes a valid request that Admit() has admitted or that is part of an accepted one. Its
  // callback runs exactly once: on the calling thread before Submit() returns if the request is
  // refused, otherwise on a worker or the timer's thread.
  //
  // `caller_waits`: the caller only waits for the answer. Then its thread runs tasks of that
  // request alone, in place of an idle worker's thread. For a small model, two thread wake-ups take
  // longer than the computation. Other workers help if that is worthwhile. No other request's
  // callback runs there, because the caller may hold locks.
  RequestId Submit(std::shared_ptr<Request> request, bool caller_waits = false);

  // As UnfoldRequest() (unfold_request.h).
  using Unfold = absl::AnyInvocable<StatusOr<std::optional<InferResponse>>(Request&)>;
  // Like Submit(), for a request that `unfold` will unfold on a separate thread, after earlier such
  // requests of the same model. The request is accepted before that: it counts against limits, and
  // may be cancelled or expire meanwhile.
  RequestId SubmitToUnfold(const std::shared_ptr<Request>& request, Unfold unfold);
  // Whether it must be submitted that way to keep its order: requests of one client start in order
  // of arrival.
  static bool MustFollow(const Request& request);
  void Cancel(RequestId number);

  // Refuses new requests, waits up to `drain` for the accepted ones, and fails those that still
  // wait or run (kUnavailable). Returns when every callback has returned.
  void Stop(std::chrono::milliseconds drain);
  // After Stop(): waits until no task is being computed anywhere.
  void WaitForTasks();

  // The record of what the workers ran, if tracing is on.
  TraceRecorder& trace() { return trace_; }

 private:
  // A task that was started.
  struct Batch {
    std::shared_ptr<Model> model;
    Task task;
    int cell = 0;
    absl::InlinedVector<Request*, 4> requests;  // by the task's nodes; valid until they have left
    absl::InlinedVector<TaskNode, 4> nodes;
    Ride ride;
    Duration charged{0};

    // While it runs:
    std::shared_ptr<Batch> self;  // until it has completed
    TimePoint start;
    std::optional<TaskRun> run;
    TaskResult result;
    bool helped = false;                // by workers that had nothing to do
    std::optional<NodeRuns> nodes_ran;  // if nodes are traced
    // Run() returns and the task completes in either order; the second event continues.
    std::atomic<bool> half_done{false};

    bool IsOf(RequestId number) const;  // and of no other
    Duration time() const {
      return result.compute_input + result.compute_infer + result.compute_output;
    }
  };
  // The part of an ended request that statistics use.
  struct Outcome {
    std::shared_ptr<Model> model;
    std::string failure;  // the reason; empty: it succeeded
    bool step = false;    // part of another request
    int32_t rows = 0;
    StatisticsRecorder::Times times;
  };
  // Work to do when no lock is held.
  struct Actions {
    std::vector<std::shared_ptr<Batch>> batches;
    std::vector<std::shared_ptr<Batch>> in_lanes;  // for Program::lanes
    std::vector<WorkerId> searching;               // must look for a task at all models
    // In lanes, completed before their Run() returned.
    std::vector<std::shared_ptr<Batch>> completed;
    std::vector<std::shared_ptr<Request>> left;  // RequestGraph::Leave()
    std::vector<Outcome> outcomes;
    ResponseSequencer::Ready answers;
    // To be freed.
    std::vector<std::shared_ptr<Request>> ended;
    std::shared_ptr<Model> released;
  };
  using Lock = std::unique_lock<AdaptiveMutex>;  // of a model

  static void SetDeadline(Request& request);
  // Functions below are called under the lock of the request's or the task's model, unless they say
  // otherwise.

  // Whether there is a place for it; Admit() does not check that.
  Status Place(const Request& request);
  // The same for the model's queue, for requests that are not part of another.
  static Status PlaceInQueue(Model& model, const FairShare::Client& caller, TimePoint now);
  // The longest allowed wait for its requests; 0: no bound.
  Duration MaxWait(const Model& model) const;
  // The longest that a request may wait for others' state; 0: no bound. Unlike the time in a queue,
  // it cannot be expected: answers end when their tokens say so.
  Duration MaxWaitForState(const Model& model) const;
  // A model that a request asks: itself, or one that it calls.
  struct AskedModel {
    std::shared_ptr<Model> model;
    int64_t times = 1;
    Duration work{0};     // expected, of all these times
    Duration counted{0};  // for requests after it: less if no request of its size ever ran
    bool waits = true;    // for its turn there
    Coming coming = {};   // once it is counted
    Duration wait{0};     // expected; 0 where that is not worth knowing
  };
  using AskedModels = absl::InlinedVector<AskedModel, 4>;
  // `bytes`: of the request's inputs.
  AskedModels ModelsAskedBy(const std::shared_ptr<Model>& model, int64_t rows, int64_t bytes) const;
  // What a request to the model, with that many bytes of inputs, counts as if nothing is known of
  // its cost: little enough that an ordinary burst to an unused model is admitted, and enough that
  // its queue is bounded.
  Duration UnknownWork(const Model& model, int64_t bytes) const;
  // The expected work of a request at its own model.
  Duration WorkAsItself(const Request& request) const;
  // Under no lock: the longest time that a request, which is counted, would wait for its turn at
  // these models, one after the other. If that is at most `least`, the result may be any time up to
  // `least`.
  Duration WaitAt(std::span<const AskedModel> asked, Duration least) const;
  // Likewise: counts a request at the models that it asks (AskedModel::coming), and whether it is
  // admitted to the queue of `model` and to that of each model that it calls.
  Status AdmitWait(Model& model, AskedModels& asked, const FairShare::Client& caller) const;
  // Checks the expected wait of a request at these models against the bound of `model`. Returns the
  // wait; 0 if it is not worth knowing.
  StatusOr<Duration> CheckWait(Model& model, std::span<const AskedModel> asked,
                               const FairShare::Client& caller) const;
  // Refuses a request that, by measured costs, cannot end by its deadline even if all workers serve
  // it and the requests before it.
  Status AdmitDeadline(const Request& request) const;
  // An admitted request enters the engine.
  void Accept(std::shared_ptr<Request> request, RequestId number);
  using UnitsByType = absl::InlinedVector<QueueTime::Work, 4>;
  static UnitsByType WorkOf(const CellGraph& graph);
  // Its graph, prepared for the scheduler as far as is worthwhile before the lock is taken.
  struct Entry {
    std::optional<CellGraph> graph;
    UnitsByType work;  // of the graph
    std::unique_ptr<PreparedGraph> prepared;
  };
  // Without locks. kResourceExhausted if there is no memory.
  static Status MakeEntry(Request& request, Entry& entry);
  // Passes it to its scheduler.
  void Enter(Request& request, Entry entry, TimePoint now, Lock& lock, Actions& actions);
  // Updates the counts of waiting requests.
  void NoteWaiting(Model& model);
  // A request of the model has been unfolded, or has left before.
  void Unfolded(Model& model);
  // On its unfold thread, without locks.
  void RunUnfold(const std::shared_ptr<Request>& request, Unfold& unfold);
  // Answers those whose deadline has passed, in any state, and those that waited for state too
  // long.
  void Expire(Model& model, TimePoint now, Actions& actions);
  // Its `start_by` has passed.
  void CheckStart(Request* request, TimePoint now, Actions& actions);
  void FinishLate(Request* request, TimePoint now, Actions& actions);
  // The request must leave: none of its waiting nodes runs any more. Returns whether none is
  // running either.
  static bool Leave(Request& request, TimePoint now);
  // Ends a request with running nodes. Batches without another request stop early.
  static void Abandon(Request& request, Status why, Actions& actions);
  // A batch of the request has run: forgets it.
  static void GetOff(Request& request, const Ride& ride);
  // Answers a request that leaves before its running nodes have ended: they may still read its
  // inputs.
  void AnswerEarly(Request& request, TimePoint now, Actions& actions);
  // A request has left its scheduler after its last node, whose task ended at `now`.
  void End(Request* request, TimePoint now, Actions& actions);
  // Removes a request with nothing running from the engine; its answer goes to `actions`, unless it
  // was already answered.
  void Finish(Request* request, StatusOr<InferResponse>&& value, Actions& actions);
  void FinishWaiting(Request* request, Status status, const std::string& reason, TimePoint now,
                     Actions& actions);
  // The model has changed: answers late requests and gives tasks to idle workers, to `first` before
  // the others.
  void Pump(const std::shared_ptr<Model>& model, TimePoint now, Actions& actions,
            std::optional<WorkerId> first = std::nullopt);
  // For models whose tasks do not run on the workers: gives tasks to free lanes.
  void FillLanes(const std::shared_ptr<Model>& model, TimePoint now, Actions& actions);
  // A task of the model for that worker; null if there is none.
  std::shared_ptr<Batch> NextBatch(const std::shared_ptr<Model>& model, WorkerId worker,
                                   TimePoint now);
  // Records what has changed at the model. `change`: everything except `wake` and `requests`.
  void Settle(Model& model, ActiveModels::Change change, TimePoint now, Actions& actions);
  // Without locks: a task of any model for the worker. Null: there is none, and the worker is now
  // idle.
  std::shared_ptr<Batch> FindBatch(WorkerId worker);

  // Everything below is called without locks, unless it says otherwise.

  void Start(std::shared_ptr<Batch> batch);  // on its worker
  void Perform(Actions actions);
  // A request as its scheduler sees it. Holds the types of its nodes. If the model's lock is not
  // held, takes it for each type that the request has not used before.
  static CellGraph GraphOf(Request& request, Lock& lock);
  static CellType HoldType(Request& request, int cell, std::span<const int64_t> key, Lock& lock);
  static void ReleaseTypes(Request& request);  // under its model's lock

  // Runs tasks on a worker until there are none. `only`: just those of that request; the rest is
  // left to the worker's own thread.
  void RunOnWorker(std::shared_ptr<Batch> batch, int worker,
                   std::optional<RequestId> only = std::nullopt);
  // Like Start(), for a task of that request, on the calling thread if that is better.
  void StartHere(std::shared_ptr<Batch> batch, RequestId number);
  // Starts a task of a program with lanes, on the calling thread.
  void RunInLane(const std::shared_ptr<Batch>& batch);
  // Runs a task. Returns the worker's next one; null if there is none yet.
  std::shared_ptr<Batch> RunTask(const std::shared_ptr<Batch>& batch, int worker,
                                 Duration worth_a_team);
  // Sends the ready parts of an answer that a task in a lane still computes.
  void SendParts(Batch& batch, size_t node);
  std::shared_ptr<Batch> FinishTask(Batch& batch);
  // Lets the timer's thread perform the actions. False, with the actions unchanged, if that thread
  // has ended.
  bool GiveToTimer(Actions& actions, Model& model);
  // Like FinishTask(), for a task that completed on another thread after Run() returned.
  void FinishLateTask(std::shared_ptr<Batch> batch);
  // Handles the requests whose nodes ran: under the model's lock.
  void FinishNodes(Batch& batch, Lock& lock, Actions& actions);
  // Updates costs with its time: under the model's lock.
  void Learn(const Batch& batch) const;
  // Updates costs by size, when the request leaves; `complete`: after its last node.
  static void LearnCost(Request& request, bool complete);
  // Whether idle workers should help with it.
  bool WorthSharing(const Batch& batch, Duration worth_a_team) const;
  void Record(const Batch& batch);
  void TimerMain();
  // Releases memory that idle workers and the buffer pool did not need since the last call.
  void ReleaseIdleMemory();

  WorkerPool& pool_;
  const DispatcherOptions options_;
  const Clock& clock_ = Clock::Steady();
  TraceRecorder trace_;
  std::vector<std::unique_ptr<WorkerMemory>> memory_;  // by worker; each is used by its thread
  // The `memory` of tasks in lanes; only its limits are used.
  WorkerMemory lanes_memory_;
  SoloTeam lanes_team_;
  std::atomic<int> waiting_{0};  // over all models

  ResponseSequencer sequencer_;
  ActiveModels models_;
  std::atomic<RequestId> next_number_{1};

  std::mutex for_timer_mutex_;
  // Actions to perform when no engine thread is available; guarded by for_timer_mutex_.
  std::vector<Actions> for_timer_;
  bool timer_ended_ = false;  // nothing may be added any more; guarded by for_timer_mutex_
  std::mutex late_mutex_;
  int late_ = 0;  // tasks that complete after Run() returned; guarded by late_mutex_
  std::condition_variable none_late_;

  std::mutex stop_mutex_;  // taken before all other locks
  std::thread timer_;      // joined under stop_mutex_
  UnfoldThreads unfold_threads_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_EXECUTION_DISPATCHER_H_
