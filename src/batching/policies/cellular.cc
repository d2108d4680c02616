#include "batching/policies/cellular.h"

#include <algorithm>
#include <cassert>
#include <tuple>
#include <utility>
#include <vector>

#include "batching/batch_sizes.h"
#include "batching/ready_queue.h"
#include "batching/request_table.h"
#include "batching/type_phases.h"

namespace chairlift {
namespace {

// Adaptive run-ahead: tasks without a new request, counted in full run-aheads, before one is made.
constexpr int kCalmRounds = 4;
// A full batch that could be larger waits for this many steps of types with their largest batch.
constexpr int kPatienceForMore = 2;
// For the largest batches: this many batches per worker must be ready before one is started. A
// request in it then waits no longer for its own task than it would for others.
constexpr int kLargestBatchesWaiting = 2;
// How many times longer a task may last if at least as many requests or nodes wait as it has rows.
// New requests would find no free place when it ends anyway.
constexpr int kSlicesWhereABatchWaits = 5;
// Few rows count as good as many if their steps reach this share of the type's best rows per
// second.
constexpr double kAsGoodAsMany = 0.95;

using State = LiveNode::State;

class CellularScheduler final : public RequestTable {
 public:
  explicit CellularScheduler(const PolicyOptions& options)
      : RequestTable({.deadline_until_end = true}), options_(options) {}

 private:
  struct TypeState {
    BatchSizes sizes;
    int priority = 0;
    int32_t deep = 0;    // number of rows from which a task may have many steps; 0: unknown
    int32_t enough = 0;  // number of ready rows that fill a task, according to the last task
    int running_tasks = 0;
    int passed_over = 0;  // consecutive steps of other types while nodes of this type were ready
    // List 0: any worker may take them; list 1 + w: only worker w.
    ReadyQueue queue;
    std::vector<int64_t> sizes_ready;  // by list: sum of the sizes of its ready nodes
  };
  struct WorkerState {
    int in_flight = 0;     // running tasks
    CellType decided = 0;  // fixed run-ahead: the type that it was last given
    int left = 0;          // fixed run-ahead: how many more tasks of that type it may have
  };

  std::optional<Task> NextTask(WorkerId worker) override;
  void Arrived(Slot slot, const CellGraph& graph) override;
  void Ready(std::span<const Member> nodes) override;
  void Gone(Slot slot) override;
  void Released(Slot slot) override;
  void Grew(Slot slot, int32_t node, std::span<const int32_t> dependencies) override;
  void Ended(const Running& task) override;

  void AddType(CellType type);
  int32_t DeepOf(CellType type, int32_t max) const;
  WorkerState& WorkerOf(WorkerId worker);
  static int64_t Takeable(const TypeState& type, WorkerId worker);
  // The most rows of a task.
  int32_t Limit(const TypeState& type, WorkerId worker) const;

  bool IsCalm() const;
  std::optional<CellType> Decide(WorkerId worker);
  std::optional<CellType> Choose(WorkerId worker, bool committed) const;
  // When a task counts as full: at `limit` rows, or at fewer if their steps, up to `steps` each,
  // sum to `row_steps`. If `steps` is 1, only `limit` counts.
  struct Fill {
    int32_t limit = 0;
    int32_t steps = 1;
    int64_t row_steps = 0;
  };
  Fill FillOf(CellType type, WorkerId worker) const;
  // How much longer than one step a task of `rows` rows may last if `waiting` others wait.
  Duration SliceOf(int64_t waiting, int64_t rows) const;
  void Collect(TypeState& type, WorkerId worker, const Fill& fill, std::vector<Member>& members);
  // Moves the subgraph to the list that its state requires.
  void File(const Request& request, const Subgraph& subgraph);
  // Appends it to its type's queue.
  void Enqueue(Slot slot, int32_t subgraph);

  const PolicyOptions options_;
  TypePhases phases_;
  std::vector<TypeState> types_;
  std::vector<WorkerState> workers_;
  int tasks_since_start_ = 0;  // tasks started since a request last started
};

void CellularScheduler::AddType(CellType type) {
  if (type >= types_.size()) types_.resize(type + 1);
  TypeState& state = types_[type];
  state.sizes = SizesOf(options_, type);
  state.priority = phases_.Of(type);
  if (type < options_.cell_types.size()) {
    state.priority = options_.cell_types[type].priority.value_or(state.priority);
  }
  state.deep = DeepOf(type, state.sizes.max);
  state.enough = state.sizes.max;
}

int32_t CellularScheduler::DeepOf(CellType type, int32_t max) const {
  if (options_.step_costs == nullptr) return 0;
  const auto rate = [&](int32_t rows) {
    const Duration cost = options_.step_costs->Cost(type, rows, 0);
    const Duration step = cost - options_.step_costs->FixedCost(type);
    return step > Duration(0) ? rows / static_cast<double>(step.count()) : 0;
  };
  double best = 0;
  for (int32_t rows = 1; rows <= max; rows *= 2) best = std::max(best, rate(rows));
  if (best == 0) return 0;
  int32_t rows = 1;
  while (rate(rows) < kAsGoodAsMany * best) rows *= 2;
  // A batch of many steps narrows as its rows end.
  return std::min(2 * rows, max);
}

CellularScheduler::WorkerState& CellularScheduler::WorkerOf(WorkerId worker) {
  assert(worker >= 0);
  if (static_cast<size_t>(worker) >= workers_.size()) workers_.resize(worker + 1);
  return workers_[worker];
}

int64_t CellularScheduler::Takeable(const TypeState& type, WorkerId worker) {
  const auto own = static_cast<size_t>(worker) + 1;
  return (type.sizes_ready.empty() ? 0 : type.sizes_ready[0]) +
         (own < type.sizes_ready.size() ? type.sizes_ready[own] : 0);
}

void CellularScheduler::Enqueue(Slot slot, int32_t index) {
  const auto moved = [this](const ReadyQueue::Entry& entry, int32_t position) {
    request(entry.request).subgraphs[entry.subgraph].position = position;
  };
  Subgraph& subgraph = request(slot).subgraphs[index];
  subgraph.position = types_[subgraph.type].queue.Add(slot, index, moved);
}

void CellularScheduler::Arrived(Slot slot, const CellGraph& graph) {
  const std::vector<Subgraph>& subgraphs = request(slot).subgraphs;
  for (int32_t i = 0; i < static_cast<int32_t>(subgraphs.size()); ++i) {
    // The first node of a type is the first node of its first subgraph.
    const int32_t first = request(slot).nodes[subgraphs[i].first_node].first;
    if (phases_.Learn(graph, graph.run(graph.RunOf(first)))) AddType(subgraphs[i].type);
    Enqueue(slot, i);
  }
}

void CellularScheduler::Grew(Slot slot, int32_t index, std::span<const int32_t> dependencies) {
  const Request& grown = request(slot);
  const LiveNode& node = grown.nodes[index];
  int phase = 0;
  for (const int32_t dependency : dependencies) {
    phase = std::max(phase, phases_.Of(grown.nodes[grown.EntryOf(dependency)].type) + 1);
  }
  if (phases_.Learn(node.type, phase)) AddType(node.type);
  if (grown.subgraphs[node.subgraph].first_node == index) Enqueue(slot, node.subgraph);
}

void CellularScheduler::Gone(Slot slot) {
  for (const Subgraph& subgraph : request(slot).subgraphs) {
    TypeState& type = types_[subgraph.type];
    const int32_t list = type.queue.at(subgraph.position).list;
    if (list != ReadyQueue::kUnfiled) type.sizes_ready[list] -= subgraph.ready_size;
    type.queue.Remove(subgraph.position);
  }
}

void CellularScheduler::Released(Slot slot) {
  const Request& released = request(slot);
  for (const Subgraph& subgraph : released.subgraphs) File(released, subgraph);
}

void CellularScheduler::Ready(std::span<const Member> nodes) {
  for (const Member member : nodes) {
    Request& of = request(member.slot);
    LiveNode& node = of.nodes[member.node];
    Subgraph& subgraph = of.subgraphs[node.subgraph];
    if (node.state == State::kReady) {  // so far only on one worker
      node.tied = false;
      --subgraph.pins;
      File(of, subgraph);
      continue;
    }
    if (node.not_complete > 0) {
      if (node.worker == kSeveralWorkers) continue;
      if (subgraph.pins > 0 && subgraph.pinned != node.worker) continue;
      node.tied = true;
      ++subgraph.pins;
      subgraph.pinned = node.worker;
    }
    of.PushReady(member.node);
    TypeState& type = types_[subgraph.type];
    const int32_t list = type.queue.at(subgraph.position).list;
    if (list != ReadyQueue::kUnfiled) type.sizes_ready[list] += node.size();
    File(of, subgraph);
  }
}

void CellularScheduler::File(const Request& request, const Subgraph& subgraph) {
  int32_t list = subgraph.pins > 0 ? 1 + subgraph.pinned : 0;
  if (subgraph.first_ready < 0 || request.held()) list = ReadyQueue::kUnfiled;
  TypeState& type = types_[subgraph.type];
  const int32_t from = type.queue.at(subgraph.position).list;
  if (list == from) return;
  type.queue.File(subgraph.position, list);
  if (from != ReadyQueue::kUnfiled) type.sizes_ready[from] -= subgraph.ready_size;
  if (list == ReadyQueue::kUnfiled) return;
  if (static_cast<size_t>(list) >= type.sizes_ready.size()) type.sizes_ready.resize(list + 1);
  type.sizes_ready[list] += subgraph.ready_size;
}

int32_t CellularScheduler::Limit(const TypeState& type, WorkerId worker) const {
  if (type.sizes.most == type.sizes.max) return type.sizes.max;
  const auto workers = static_cast<int64_t>(workers_.size());
  int64_t waits = 0;
  for (const TypeState& any : types_) waits += Takeable(any, worker);
  return waits >= kLargestBatchesWaiting * workers * type.sizes.most ? type.sizes.most
                                                                     : type.sizes.max;
}

CellularScheduler::Fill CellularScheduler::FillOf(CellType index, WorkerId worker) const {
  const TypeState& type = types_[index];
  Fill fill{.limit = Limit(type, worker)};
  if (type.deep == 0 || type.deep >= type.sizes.max) return fill;
  const CostModel& costs = *options_.step_costs;
  const Duration step = costs.Cost(index, type.deep, 0) - costs.FixedCost(index);
  if (step <= Duration(0)) return fill;
  const Duration slice = SliceOf(Takeable(type, worker) - type.deep, type.deep);
  fill.steps = static_cast<int32_t>(1 + std::min<int64_t>(slice / step, kMostSteps - 1));
  fill.row_steps = int64_t{fill.steps} * type.deep;
  return fill;
}

Duration CellularScheduler::SliceOf(int64_t waiting, int64_t rows) const {
  return options_.time_slice * (waiting >= rows ? kSlicesWhereABatchWaits : 1);
}

bool CellularScheduler::IsCalm() const {
  return waiting() == 0 && tasks_since_start_ >= kCalmRounds * options_.max_tasks_to_submit;
}

std::optional<CellType> CellularScheduler::Choose(WorkerId worker, bool committed) const {
  // The best type by (impatience, rule, priority).
  std::optional<CellType> best;
  std::tuple<int, int, int> best_rank;
  for (CellType i = 0; i < types_.size(); ++i) {
    const TypeState& type = types_[i];
    const int64_t takeable = Takeable(type, worker);
    const int impatience = type.passed_over >= kCellularPatience ? type.passed_over : 0;
    if (takeable < (committed && impatience == 0 ? type.sizes.min : 1)) continue;
    const bool full = takeable >= type.enough;
    const bool large = takeable >= type.sizes.most || type.enough < type.sizes.max ||
                       type.passed_over >= kPatienceForMore;
    const int rule = full && large ? 3 : full ? 2 : type.running_tasks == 0 ? 1 : 0;
    const std::tuple<int, int, int> rank(impatience, rule, type.priority);
    if (best && rank <= best_rank) continue;
    best = i;
    best_rank = rank;
  }
  return best;
}

std::optional<CellType> CellularScheduler::Decide(WorkerId worker) {
  WorkerState& state = WorkerOf(worker);
  const bool committed = state.in_flight > 0;
  if (options_.adaptive_run_ahead) {
    if (state.in_flight >= (IsCalm() ? options_.max_tasks_to_submit : 1)) return std::nullopt;
    return Choose(worker, committed);
  }
  if (!committed) {
    const std::optional<CellType> type = Choose(worker, false);
    if (type) state = {.in_flight = 0, .decided = *type, .left = options_.max_tasks_to_submit - 1};
    return type;
  }
  if (state.left == 0) return std::nullopt;
  const TypeState& type = types_[state.decided];
  if (Takeable(type, worker) < type.sizes.min) {
    state.left = 0;
    return std::nullopt;
  }
  --state.left;
  return state.decided;
}

std::optional<Task> CellularScheduler::NextTask(WorkerId worker) {
  const std::optional<CellType> chosen = Decide(worker);
  if (!chosen) return std::nullopt;
  TypeState& type = types_[*chosen];
  std::vector<Member> members = TakeList();
  const int before = waiting();
  const Fill fill = FillOf(*chosen, worker);
  Collect(type, worker, fill, members);
  const int64_t left = Takeable(type, worker);
  const int32_t places = type.enough < type.sizes.max ? type.enough : fill.limit;
  const int32_t steps = AddSteps(*chosen, worker, options_.step_costs,
                                 SliceOf(std::max<int64_t>(waiting(), left), places),
                                 left > 0 ? Waiting::kForPlaces : Waiting::kNobody, members);
  type.passed_over = 0;
  for (CellType i = 0; i < types_.size(); ++i) {
    if (i != *chosen && Takeable(types_[i], worker) > 0) types_[i].passed_over += steps;
  }
  tasks_since_start_ = waiting() < before ? 0 : tasks_since_start_ + 1;
  ++type.running_tasks;
  ++WorkerOf(worker).in_flight;
  return Give(*chosen, worker, std::move(members));
}

// Takes the oldest ready nodes that the worker may take, as many as fit.
void CellularScheduler::Collect(TypeState& type, WorkerId worker, const Fill& fill,
                                std::vector<Member>& members) {
  const int32_t own = 1 + worker;
  int32_t size = 0;
  int64_t row_steps = 0;
  type.enough = type.sizes.max;
  const auto full = [&] {
    if (size >= fill.limit) return true;
    if (fill.steps == 1 || size < type.deep || row_steps < fill.row_steps) return false;
    type.enough = std::min(size, type.enough);
    return true;
  };
  int32_t next_any = type.queue.Next(0, 0);
  int32_t next_own = type.queue.Next(own, 0);
  while (next_any != ReadyQueue::kNone || next_own != ReadyQueue::kNone) {
    const bool from_any =
        next_own == ReadyQueue::kNone || (next_any != ReadyQueue::kNone && next_any < next_own);
    const int32_t position = from_any ? next_any : next_own;
    const ReadyQueue::Entry entry = type.queue.at(position);
    Request& from = request(entry.request);
    Subgraph& subgraph = from.subgraphs[entry.subgraph];
    if (subgraph.first_ready < 0) {  // its nodes were taken by an earlier task
      type.queue.File(position, ReadyQueue::kUnfiled);
      (from_any ? next_any : next_own) = type.queue.Next(entry.list, position + 1);
      continue;
    }
    const auto fits = [&] {
      const int32_t needed = from.nodes[subgraph.first_ready].size();
      return size == 0 || size + needed <= fill.limit;
    };
    if (!fits()) return;
    subgraph.pinned = worker;
    do {
      const int32_t index = from.PopReady(subgraph);
      LiveNode& node = from.nodes[index];
      size += node.size();
      type.sizes_ready[entry.list] -= node.size();
      if (!node.tied)
        // Otherwise the pin that it had as a ready node becomes this pin.
        ++subgraph.pins;
      node.tied = false;
      if (fill.steps > 1) row_steps += from.Steps(index, worker, fill.steps);
      members.push_back({entry.request, index});
    } while (subgraph.first_ready >= 0 && fits());
    // If no node is left it stays in the list: usually its next nodes are ready very soon.
    if (subgraph.first_ready >= 0) File(from, subgraph);
    if (!from.started)
      Start(entry.request);  // may add its client's next request, which is later in the queue
    if (subgraph.first_ready >= 0 || full()) return;
    (from_any ? next_any : next_own) = type.queue.Next(entry.list, position + 1);
  }
}

void CellularScheduler::Ended(const Running& task) {
  --types_[task.type].running_tasks;
  --WorkerOf(task.worker).in_flight;
  for (const Member member : task.members) {
    Request& of = request(member.slot);
    if (of.leaving) continue;
    Subgraph& subgraph = of.subgraphs[of.nodes[member.node].subgraph];
    --subgraph.pins;
    File(of, subgraph);
  }
}

}  // namespace

StatusOr<std::unique_ptr<Scheduler>> MakeCellularScheduler(const PolicyOptions& options) {
  return std::make_unique<CellularScheduler>(options);
}

}  // namespace chairlift
