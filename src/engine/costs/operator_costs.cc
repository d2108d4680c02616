#include "engine/costs/operator_costs.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "engine/costs/store.h"
#include "runtime/cost_table.h"
#include "runtime/node_timer.h"

namespace chairlift {
namespace {

constexpr double kOfTheBestRate = 0.95;
constexpr TimingEffort kEffort = {.rounds = 3, .each = std::chrono::milliseconds(50)};

// The minimum time of each node of a graph over several runs.
class LeastOfNodes final : public NodeTimer {
 public:
  explicit LeastOfNodes(const Graph& graph) : graph_(graph), least_(graph.nodes.size()) {}

  void Report(const PlannedNode& planned, TimePoint start, TimePoint end) override {
    const Node* const first = graph_.nodes.data();
    const std::less<> before;
    if (before(&planned.node, first) || !before(&planned.node, first + least_.size())) return;
    Duration& least = least_[static_cast<size_t>(&planned.node - first)];
    const Duration took = std::max(end - start, Duration(1));
    least = least == Duration(0) ? took : std::min(least, took);
  }
  // 0 for nodes that did not run.
  const std::vector<Duration>& least() const { return least_; }

 private:
  const Graph& graph_;
  std::vector<Duration> least_;
};

CostTable::Key KeyOf(const Executable& executable, const OperatorProfiling& profiling,
                     std::span<const Tensor> one_row) {
  std::string text = fmt::format("operators up to {} rows of", profiling.max_rows);
  for (const Tensor& input : one_row) text += " " + input.shape().ToString();
  DescribeForCosts(executable.graph(), text);
  return CostTableKeyOf(text, profiling.workers);
}

// By node; in the table, lengths are node numbers.
std::vector<CostByRows> Kept(const CostTable::Key& key, size_t nodes, int max_rows) {
  std::vector<CostByRows> costs(nodes);
  const auto table = CostTable::Load(CostTablePath(key));
  if (!table.ok() || table->key() != key) return costs;
  for (const auto& [at, cost] : table->costs()) {
    const auto& [rows, node] = at;
    if (node < 0 || static_cast<size_t>(node) >= nodes || rows < 1 || rows > max_rows) {
      return std::vector<CostByRows>(nodes);
    }
    costs[static_cast<size_t>(node)][static_cast<int>(rows)] = cost;
  }
  return costs;
}

void Keep(const CostTable::Key& key, std::span<const CostByRows> costs) {
  CostTable table(key);
  for (size_t node = 0; node < costs.size(); ++node) {
    for (const auto& [rows, cost] : costs[node]) {
      table.Set(rows, static_cast<int64_t>(node), cost);
    }
  }
  WarnNotKept(table.Save(CostTablePath(key)));
}

// Whether a batch of these inputs fits in memory.
bool Fits(Executable& executable, std::span<const Tensor> inputs, size_t max_bytes) {
  std::vector<Shape> shapes;
  for (const Tensor& input : inputs) shapes.push_back(input.shape());
  const auto plan = executable.Prepare(shapes, 1);
  return plan.ok() && plan->arena_bytes <= max_bytes;
}

// Adds the nodes of one batch to `costs`. Returns the time of the whole batch; absent if it does
// not run.
std::optional<Duration> TimeBatch(Executable& executable, int rows,
                                  const std::vector<Tensor>& inputs, int workers, TimePoint until,
                                  const std::function<void()>& tick,
                                  std::vector<CostByRows>& costs) {
  LeastOfNodes times(executable.graph());
  const TimedRun run = [&](int worker, WorkerMemory& memory) {
    SoloTeam team(worker);
    return executable
        .Run(inputs, team, worker, memory.compute, memory.stop, worker == 0 ? &times : nullptr)
        .status();
  };
  const std::optional<Duration> took = TimeRuns({&run, 1}, workers, kEffort, until, tick)[0];
  if (!took) return std::nullopt;
  for (size_t node = 0; node < costs.size(); ++node) {
    const Duration least = times.least()[node];
    if (least > Duration(0)) costs[node][rows] = least;
  }
  return took;
}

}  // namespace

bool AnyKnown(std::span<const CostByRows> costs) {
  return std::any_of(costs.begin(), costs.end(),
                     [](const CostByRows& of_node) { return !of_node.empty(); });
}

int PreferredRows(const CostByRows& costs) {
  const auto rate = [](const auto& cost) {
    return cost.first / static_cast<double>(std::max(cost.second, Duration(1)).count());
  };
  double best = 0;
  for (const auto& cost : costs) best = std::max(best, rate(cost));
  for (const auto& cost : costs) {
    if (rate(cost) >= kOfTheBestRate * best) return cost.first;
  }
  return 1;
}

CostByRows SumOfCosts(std::span<const CostByRows> costs) {
  CostByRows sum;
  bool first = true;
  for (const CostByRows& one : costs) {
    if (one.empty()) continue;  // it does not run
    if (std::exchange(first, false)) {
      sum = one;
      continue;
    }
    std::erase_if(sum, [&](const auto& cost) { return !one.contains(cost.first); });
    for (auto& [rows, cost] : sum) cost += one.at(rows);
  }
  return sum;
}

StatusOr<std::vector<CostByRows>> FindOperatorCosts(
    Executable& executable, const OperatorProfiling& profiling, bool measure,
    absl::FunctionRef<StatusOr<std::vector<Tensor>>(int rows)> make) {
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> inputs, make(1));
  const CostTable::Key key = KeyOf(executable, profiling, inputs);
  std::vector<CostByRows> costs = Kept(key, executable.graph().nodes.size(), profiling.max_rows);
  if (AnyKnown(costs) || !measure) return costs;
  const TimePoint until = Clock::Steady().Now() + profiling.budget;
  const std::function<void()> tick = ProgressUntil(until, profiling.progress);
  Duration last{0};
  for (int rows = 1; rows <= profiling.max_rows; rows *= 2) {
    // It takes up to twice as long as half the rows did, and runs once more than it is timed.
    if (rows > 1) {
      if (Clock::Steady().Now() + 2 * (kEffort.rounds + 1) * last > until) break;
      CHAIRLIFT_ASSIGN_OR_RETURN(inputs, make(rows));
    }
    if (!Fits(executable, inputs, profiling.max_bytes)) break;
    const auto took = TimeBatch(executable, rows, inputs, profiling.workers, until, tick, costs);
    if (!took) break;
    last = *took;
  }
  if (!AnyKnown(costs)) return Unavailable("not even one row runs, so that nothing can be timed");
  Keep(key, costs);
  return costs;
}

}  // namespace chairlift
