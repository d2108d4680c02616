// Runs a model of one kind: how requests are validated, unfolded into nodes, and computed.
//
// A kind of model is a class here and a row in programs/makers.cc. Code outside programs/ does not
// depend on the kind of a model.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PROGRAM_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PROGRAM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "batching/scheduler.h"
#include "chairlift/engine.h"
#include "device/cpu/team.h"
#include "engine/programs/model_calls.h"
#include "engine/programs/serving_plan.h"
#include "engine/requests/answer_parts.h"
#include "engine/requests/index_bounds.h"
#include "engine/requests/request_rules.h"
#include "engine/requests/validate.h"
#include "graph/cells/sliced_model.h"
#include "graph/ragged/ragged.h"
#include "runtime/cell.h"
#include "runtime/worker_memory.h"

namespace chairlift {

struct PartStream;  // requests/reply.h

// A node of a request's graph as its scheduler sees it, or a run of them (CellGraph::Run).
struct GraphNode {
  int cell = 0;                           // number in the program
  int32_t rows = 1;                       // rows of the cell; tokens if tokens are packed
  std::span<const int64_t> key;           // nodes with the same cell and key may share a task
  std::span<const int32_t> dependencies;  // earlier nodes that it reads or follows; may repeat
  // The node whose task may run it as a further step; −1: none.
  int32_t follows = -1;
  int32_t count = 1;  // nodes
  // CellGraph::AddDivisible; only for a request of a single node.
  bool divisible = false;
};

// A node, or a run of them, added to a request's graph after it was unfolded.
struct GrownNode {
  int cell = 0;
  int32_t rows = 0;
  absl::InlinedVector<int32_t, 4> dependencies;
  absl::InlinedVector<int64_t, 4> key;
  int32_t follows = -1;
  int32_t count = 1;
  bool divisible = false;  // CellGraph::AddDivisible
  // Work that an earlier node was to do and did not: its rows were counted with that node's.
  bool left_over = false;
};

// A request as unfolded by its program. The results of the first functions are constant. The
// others may be called while tasks of the request run only if they say so.
class RequestGraph {
 public:
  explicit RequestGraph(ValidatedRequest request) : request_(std::move(request)) {}
  virtual ~RequestGraph() = default;
  RequestGraph(const RequestGraph&) = delete;
  RequestGraph& operator=(const RequestGraph&) = delete;

  const ValidatedRequest& request() const { return request_; }

  // The nodes after unfolding.
  virtual int32_t num_nodes() const = 0;
  // The number of runs that they are stored as, in order.
  virtual int32_t num_runs() const { return num_nodes(); }
  virtual GraphNode run(int32_t index) const = 0;
  // The minimum length that each row is padded to in a batch; 0: rows are not padded.
  virtual int32_t length() const { return 0; }
  // Units of state that it may grow to (CellGraph::state).
  virtual int64_t state() const { return 0; }
  virtual int32_t state_rows() const { return 0; }  // CellGraph::state_rows

  // Runs of nodes added since the last call, in order. Thread-safe; never waits for a user's code.
  virtual std::vector<GrownNode> TakeGrown() { return {}; }
  // Passes on completed parts of the answer. Thread-safe: calls do not overtake each other.
  using SendParts = absl::FunctionRef<void(std::vector<ReadyPart>)>;
  virtual void TakeParts(SendParts /*send*/) {}

  // The answer is no longer needed, though a task of it runs. Thread-safe; called without locks.
  virtual void Leave() {}

  // Whether every node has run. Call it only while none runs.
  virtual bool done() const = 0;
  // The requested outputs of a completed request. Called once.
  virtual StatusOr<std::vector<NamedTensor>> TakeOutputs() = 0;

 private:
  const ValidatedRequest request_;
};

// A node in a task.
struct TaskNode {
  RequestGraph* graph = nullptr;
  uint64_t number = 0;  // a unique number of the request
  int32_t node = 0;
  int32_t steps = 1;                       // the node and its followers (NodeRef)
  int32_t rows = 0;                        // as in NodeRef
  bool set_back = false;                   // as in NodeRef
  std::optional<TimePoint> deadline = {};  // of its request
  // The receiver of parts of its answer; null: there is none.
  const PartStream* parts = nullptr;
  // Passed with its requests to other models (ModelCalls::Begin). May be null.
  std::shared_ptr<Admission> admission = {};
  // Set by Run():
  Status status;        // the error of its request
  int64_t units = 0;    // for the queue time: its rows, times their length if they are padded
  int64_t skipped = 0;  // further units that need not be computed any more
  double share = 1;     // its request's share of one execution of the model
};

// One task: nodes with the same cell and key.
struct TaskRun {
  int cell = 0;
  int32_t padding_rows = 0;
  bool padded_steps = false;  // each step has as many rows as the first (Task)
  // In the order of their rows, by descending steps; empty if there is only padding.
  std::span<TaskNode> nodes;
  Team& team;
  int worker = 0;  // below LoadOptions::workers
  // The worker's; for lanes a shared one, of which only the limits apply.
  WorkerMemory& memory;
  const StopFlag* stop = nullptr;  // for a task in a lane; as WorkerMemory::stop
  // For a task in a lane. send_parts(n): parts of the answer of node n's request can be sent before
  // the task ends (RequestGraph::TakeParts). Called by one thread at a time.
  std::function<void(size_t)> send_parts = {};
};

// For a program whose tasks do not run on the engine's workers.
struct TaskLanes {
  int tasks = 0;    // concurrent tasks, one per lane; 0: tasks run on the engine's workers
  int at_work = 1;  // how many of them are computed at the same time; the others wait
};

struct TaskResult {
  int32_t rows = 0;  // of its requests; for cells, of its nodes in the first step
  Duration compute_input{0};
  Duration compute_infer{0};
  Duration compute_output{0};
};

// The keys and values of a model that generates, as sizes.
struct CacheView {
  int64_t blocks = 0, block_tokens = 0, token_bytes = 0;
  int64_t max_length = 0;  // tokens of prompt and answer
  int64_t max_source = 0;  // of a source; 0: there is none
};

struct ProgramView {
  // The whole model: on packed tokens if it runs that way; as imported if it runs as cells; null if
  // it is made of cells.
  Executable* executable = nullptr;
  // How requests are packed for it; empty: they are not.
  std::span<const RaggedInput> packed = {};
  // If requests do not determine the shapes of its inputs: the shapes in a typical batch, and its
  // description. Otherwise empty.
  std::vector<Shape> batch = {};
  std::string batch_of = {};
  std::vector<Cell*> cells = {};
  const SlicedModel* sliced = nullptr;      // how it was cut into cells; null if it was not
  std::span<const PassReport> passes = {};  // run before the executable's
  std::vector<std::string> notes = {};      // what was proved at load
  std::optional<CacheView> cache = {};      // if it generates
};

class Program {
 public:
  virtual ~Program() = default;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Constant.
  std::string_view kind() const { return kind_; }
  const Signature& signature() const { return signature_; }
  const ServingPlan& plan() const { return plan_; }
  // The name of a cell, for messages; empty if the model runs as a whole.
  virtual const std::string& CellName(int cell) const;
  virtual int num_cells() const { return 1; }
  // Batch sizes and costs, by cell.
  virtual std::vector<CellBatching> CellBatchings() const { return {}; }
  // Whether answers can be sent in parts.
  virtual bool SendsParts() const { return false; }
  // Where its tasks run. With lanes, the task's worker number is its lane, and Run() must start a
  // task without waiting for anything.
  virtual TaskLanes lanes() const { return {}; }
  // The platform in the protocol's metadata.
  virtual std::string_view platform() const { return "onnx_chairlift"; }

  // Everything below is thread-safe unless it says otherwise.

  // For a program that makes requests to other models: how many requests one of its own makes, and
  // whether any of them, or of those that they make in turn, is to that model.
  virtual int steps() const { return 1; }
  virtual bool Calls(const std::string& /*model*/) const { return false; }
  // Whether its answers depend on random numbers that a request's seed determines.
  virtual bool Draws() const { return !rules().seeds.empty(); }
  // Whether its requests may make others that CallsOf() knows.
  virtual bool CallsOthers() const { return false; }
  // The requests to other models that a request of `rows` rows makes, as far as known before it is
  // unfolded. If there are any, it waits in their queues and has no queue of its own.
  virtual std::vector<ExpectedCalls> CallsOf(int64_t /*rows*/) const { return {}; }

  // Whether its requests join running ones, so that they do not wait until those end.
  virtual bool JoinsOthers() const { return false; }

  // Compiles parts that were not needed before.
  virtual StatusOr<ProgramView> View() = 0;

  // Whether Validate() and Unfold() may take more than about a millisecond.
  virtual bool TakesLong(const InferRequest& /*request*/) const { return false; }
  // kInvalidArgument has the wrong tensor, what is wrong, and what would be correct.
  virtual StatusOr<ValidatedRequest> Validate(const InferRequest& request);
  // `parts`: whether parts of the answer are requested. May run a user's code.
  virtual StatusOr<std::unique_ptr<RequestGraph>> Unfold(ValidatedRequest request, bool parts) = 0;

  // Computes a task: gathers rows, runs, scatters outputs, completes its nodes. `done` is called
  // once: on the calling thread before Run() returns, or later on any thread. Until then `run` and
  // everything it refers to stay valid, except its team, which ends when Run() returns. Nodes fail
  // separately: none because of another's data. A task that is stopped (WorkerMemory::stop) ends
  // early, with kCancelled for all.
  using TaskDone = absl::AnyInvocable<void(const TaskResult&)>;
  virtual void Run(TaskRun& run, TaskDone done) = 0;

  // Not thread-safe: called under the lock that the model is scheduled under.

  // For a program with lanes: whether to start another task now while `begun` tasks run and
  // `waiting` requests wait, or to wait for a fuller batch. Must return true if `begun` is 0.
  virtual bool BeginsAnother(int /*begun*/, int /*waiting*/) const { return true; }
  // The expected time of a task; 0: unknown.
  virtual Duration Cost(int /*cell*/, const Task& /*task*/) const { return Duration(0); }
  // The cost of a unit (a row, or a row times its length) in a large batch; 0: unknown.
  virtual double UnitCostNs(int /*cell*/) const { return 0; }
  // Learns from a task's time; `helped`: more than one worker ran it.
  virtual void Learn(const Task& /*task*/, bool /*helped*/, Duration /*measured*/) {}
  // Saves what was learnt for the next load.
  virtual Status KeepCosts() const { return absl::OkStatus(); }

  // Rewords a failure in terms of the request's inputs, if a value in them is the cause.
  // Thread-safe.
  Status Explain(Status failed, const ValidatedRequest& request) const;
  // Called once, before requests arrive.
  void set_index_bounds(std::vector<IndexBound> bounds) { index_bounds_ = std::move(bounds); }

  // Called once, before requests arrive. OK if the model's inputs match the rules.
  Status SetRules(RequestRules rules);
  const RequestRules& rules() const { return rules_; }

  // Adds to the diagnosis, before requests arrive.
  void Note(const std::string& text) { plan_.dropped += "; " + text; }

  // The minimum time of a request by measured costs, if it runs alone, from its first task on; 0:
  // unknown. Thread-safe.
  virtual Duration LeastTime(const RequestGraph& /*request*/) const { return Duration(0); }

  // The engine shuts down and does not need tasks that still run in lanes: they may fail.
  virtual void EndTasks() {}
  // Whether it can run tasks now; otherwise kUnavailable with the reason. Thread-safe.
  virtual Status Ready() const { return absl::OkStatus(); }

  // For a program whose requests generate. Thread-safe.
  virtual std::optional<GenerationStatistics> Generation() const { return std::nullopt; }

  // Findings since the model was loaded, for its diagnosis. Thread-safe.
  virtual std::vector<std::string> Remarks() const { return {}; }

 protected:
  Program(std::string_view kind, Signature signature, ServingPlan plan);

  Signature signature_;
  ServingPlan plan_;

 private:
  const std::string_view kind_;  // a literal
  std::vector<IndexBound> index_bounds_;
  RequestRules rules_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROGRAM_H_
