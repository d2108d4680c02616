// What runs a model of one kind: how requests are validated, unfolded into nodes, and computed.
//
// A kind of model is a class here and a row in programs/makers.cc. Nothing outside of programs/
// asks which kind a model is of.
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

// A node of a request's graph, as its scheduler sees it, or a run of them (CellGraph::Run).
struct GraphNode {
  int cell = 0;                           // of the program
  int32_t rows = 1;                       // of the cell; where tokens are packed, tokens
  std::span<const int64_t> key;           // nodes of one cell and key may share a task
  std::span<const int32_t> dependencies;  // earlier nodes that it reads or follows; may repeat
  int32_t follows = -1;                   // whose task may run it as a further step; −1: none's
  int32_t count = 1;                      // nodes
  bool divisible = false;                 // CellGraph::AddDivisible; of a request of this one node
};

// A node, or a run of them, that a request's graph has grown by since it was unfolded.
struct GrownNode {
  int cell = 0;
  int32_t rows = 0;
  absl::InlinedVector<int32_t, 4> dependencies;
  absl::InlinedVector<int64_t, 4> key;
  int32_t follows = -1;
  int32_t count = 1;
  bool divisible = false;  // CellGraph::AddDivisible
  // What an earlier node was to compute and has not: its rows were counted with that one's.
  bool left_over = false;
};

// A request as its program unfolded it. What the first functions say is constant; of the others
// those that say so may be called while tasks of the request run.
class RequestGraph {
 public:
  explicit RequestGraph(ValidatedRequest request) : request_(std::move(request)) {}
  virtual ~RequestGraph() = default;
  RequestGraph(const RequestGraph&) = delete;
  RequestGraph& operator=(const RequestGraph&) = delete;

  const ValidatedRequest& request() const { return request_; }

  // The nodes that it was unfolded into.
  virtual int32_t num_nodes() const = 0;
  // They are kept as so many runs, in order.
  virtual int32_t num_runs() const { return num_nodes(); }
  virtual GraphNode run(int32_t index) const = 0;
  // What each row is padded to in a batch, at least; 0: rows are not padded.
  virtual int32_t length() const { return 0; }
  // Units of state that it may grow to hold (CellGraph::state).
  virtual int64_t state() const { return 0; }
  virtual int32_t state_rows() const { return 0; }  // CellGraph::state_rows

  // Runs of nodes added since the last call, in order. Thread-safe; never waits for a user's code.
  virtual std::vector<GrownNode> TakeGrown() { return {}; }
  // Passes on parts of the answer that have become complete. Thread-safe: calls do not overtake
  // each other.
  using SendParts = absl::FunctionRef<void(std::vector<ReadyPart>)>;
  virtual void TakeParts(SendParts /*send*/) {}

  // Nobody waits for the answer any more, though a task of it runs. Thread-safe; under no lock.
  virtual void Leave() {}

  // Whether every node has run. Only while none runs.
  virtual bool done() const = 0;
  // The wanted outputs, of a request that is done. Called once.
  virtual StatusOr<std::vector<NamedTensor>> TakeOutputs() = 0;

 private:
  const ValidatedRequest request_;
};

// A node in a task.
struct TaskNode {
  RequestGraph* graph = nullptr;
  uint64_t number = 0;  // of the request, as no other has it
  int32_t node = 0;
  int32_t steps = 1;                       // it and those that follow it (NodeRef)
  int32_t rows = 0;                        // likewise
  bool set_back = false;                   // likewise
  std::optional<TimePoint> deadline = {};  // of its request
  const PartStream* parts = nullptr;       // who takes parts of its answer; null: nobody
  // What the requests that it makes to other models go with (ModelCalls::Begin). May be null.
  std::shared_ptr<Admission> admission = {};
  // Set by Run():
  Status status;        // what failed its request
  int64_t units = 0;    // in the queue's time: its rows, times their length where they are padded
  int64_t skipped = 0;  // further ones, that need not be computed any more
  double share = 1;     // of its request, which takes so much of an execution of the model
};

// One task: nodes of one cell and key.
struct TaskRun {
  int cell = 0;
  int32_t padding_rows = 0;   // that nobody asked for
  bool padded_steps = false;  // each step has as many rows as the first (Task)
  // In the order of their rows, and of their steps, the most first; empty where there is padding
  // only.
  std::span<TaskNode> nodes;
  Team& team;
  int worker = 0;                  // below LoadOptions::workers
  WorkerMemory& memory;            // the worker's; all lanes': of that only its limits
  const StopFlag* stop = nullptr;  // of a task in a lane, as WorkerMemory::stop
  // Of a task in a lane: parts of the answer of a node's request, by index, are there to be sent
  // (RequestGraph::TakeParts) before it ends. By one thread at a time.
  std::function<void(size_t)> send_parts = {};
};

// Of a program whose tasks run elsewhere than on the engine's workers.
struct TaskLanes {
  int tasks = 0;    // at once: a lane each; 0: tasks run on the engine's workers
  int at_work = 1;  // of them that are computed at the same time; the others wait behind
};

struct TaskResult {
  int32_t rows = 0;  // of its requests; of cells, of its nodes in the first step
  Duration compute_input{0};
  Duration compute_infer{0};
  Duration compute_output{0};
};

// What a program is made of, for people and tools. Lives as long as the program.
// Keys and values of a model that generates.
struct CacheView {
  int64_t blocks = 0, block_tokens = 0, token_bytes = 0;
  int64_t max_length = 0;  // tokens of prompt and answer
  int64_t max_source = 0;  // of a source; 0: there is none
};

struct ProgramView {
  // The model as one: on packed tokens, where it runs so; as it was imported, where it runs as
  // cells; null where it is made of cells.
  Executable* executable = nullptr;
  // How requests go into it; empty: as they are.
  std::span<const RaggedInput> packed = {};
  // Where requests do not say what its inputs look like: their shapes in a likely batch, and what
  // that is of. Else empty.
  std::vector<Shape> batch = {};
  std::string batch_of = {};
  std::vector<Cell*> cells = {};
  const SlicedModel* sliced = nullptr;      // how it was cut into them; null where it was not
  std::span<const PassReport> passes = {};  // that ran before the executable's
  std::vector<std::string> notes = {};      // what was proved on the way
  std::optional<CacheView> cache = {};      // where it generates
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
  // Of a cell, for people; empty where the model runs as a whole.
  virtual const std::string& CellName(int cell) const;
  virtual int num_cells() const { return 1; }
  // What is known of batch sizes and costs, by cell.
  virtual std::vector<CellBatching> CellBatchings() const { return {}; }
  // Whether answers come in parts, for requests that ask for them.
  virtual bool SendsParts() const { return false; }
  // Where its tasks run; the task's worker is its lane then. Run() must begin such a task without
  // waiting for anything.
  virtual TaskLanes lanes() const { return {}; }
  // As the protocol's metadata names it.
  virtual std::string_view platform() const { return "onnx_chairlift"; }

  // All below is thread-safe, but for what says otherwise.

  // Of a program that has other models compute its requests: how many requests of theirs one of its
  // own makes, and whether that model is among them, or among those that they call.
  virtual int steps() const { return 1; }
  virtual bool Calls(const std::string& /*model*/) const { return false; }
  // The requests to other models that one of `rows` rows makes, as far as that is known before it
  // is unfolded. Where there are some, it waits in their queues, and in none of its own.
  virtual std::vector<ExpectedCalls> CallsOf(int64_t /*rows*/) const { return {}; }

  // Whether its requests join those under way, so that they do not wait until these end.
  virtual bool JoinsOthers() const { return false; }

  // Compiles what has not been needed yet.
  virtual StatusOr<ProgramView> View() = 0;

  // Whether Validate() and Unfold() may take more than about a millisecond.
  virtual bool TakesLong(const InferRequest& /*request*/) const { return false; }
  // kInvalidArgument names the tensor that is wrong, in what, and what would be right.
  virtual StatusOr<ValidatedRequest> Validate(const InferRequest& request);
  // `parts`: whether parts of the answer are wanted. May run a user's code.
  virtual StatusOr<std::unique_ptr<RequestGraph>> Unfold(ValidatedRequest request, bool parts) = 0;

  // Computes a task: gathers rows, runs, scatters outputs, completes its nodes. `done` is called
  // once: on the calling thread before Run() returns, or later on any other; until then `run` and
  // all that it refers to stay, but for its team, which goes when Run() returns. Nodes fail apart:
  // none for another's data. A task that is stopped (WorkerMemory::stop) ends early, with
  // kCancelled for all.
  using TaskDone = absl::AnyInvocable<void(const TaskResult&)>;
  virtual void Run(TaskRun& run, TaskDone done) = 0;

  // Not thread-safe: called under the lock under which the model is scheduled.

  // Of a program with lanes: whether one more task is to be begun while `begun` are, of the
  // requests that wait, or whether it does better with the company that comes meanwhile. True at
  // the latest where none is begun.
  virtual bool BeginsAnother(int /*begun*/, int /*waiting*/) const { return true; }
  // What a task is expected to take; 0: unknown.
  virtual Duration Cost(int /*cell*/, const Task& /*task*/) const { return Duration(0); }
  // What a unit (a row, or a row times its length) costs in a batch of many; 0: unknown.
  virtual double UnitCostNs(int /*cell*/) const { return 0; }
  // A task took so long; `helped`: more than one worker ran it.
  virtual void Learn(const Task& /*task*/, bool /*helped*/, Duration /*measured*/) {}
  // Keeps what was learnt for the next load.
  virtual Status KeepCosts() const { return absl::OkStatus(); }

  // A failure in terms of what the request brought, where a value of it is to blame. Thread-safe.
  Status Explain(Status failed, const ValidatedRequest& request) const;
  // Set once, before requests come.
  void set_index_bounds(std::vector<IndexBound> bounds) { index_bounds_ = std::move(bounds); }

  // Likewise. OK where the model's inputs are as the rules say.
  Status SetRules(RequestRules rules);
  const RequestRules& rules() const { return rules_; }

  // Adds to the diagnosis; likewise.
  void Note(const std::string& text) { plan_.dropped += "; " + text; }

  // What a request takes at the least by measured costs, alone and from its first task on; 0:
  // unknown. Thread-safe.
  virtual Duration LeastTime(const RequestGraph& /*request*/) const { return Duration(0); }

  // The engine shuts down, and nobody waits for tasks that still run in lanes: they may fail.
  virtual void EndTasks() {}
  // Whether it can run tasks now; else kUnavailable with the reason. Thread-safe.
  virtual Status Ready() const { return absl::OkStatus(); }

  // Of a program whose requests generate. Thread-safe.
  virtual std::optional<GenerationStatistics> Generation() const { return std::nullopt; }

  // What came to light since the model was loaded, for its diagnosis. Thread-safe.
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
