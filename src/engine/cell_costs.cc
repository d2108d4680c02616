#include "engine/cell_costs.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/status.h"
#include "batching/batch_sizes.h"
#include "engine/batch.h"
#include "graph/batch_axis.h"
#include "runtime/cost_table.h"

namespace chairlift {
namespace {

constexpr int kMaxRows = 512;
// What the engine itself takes for a task, whatever its rows: its lock, its scheduler, memory for
// what comes out, the way to the next one. (Measured under full load: 8 to 12 µs.)
constexpr Duration kTaskOverhead = std::chrono::microseconds(10);

constexpr Duration kBudget = std::chrono::milliseconds(1000);  // of all cells together
constexpr Duration kPerSize = std::chrono::milliseconds(3);
constexpr int kMinRuns = 5;
constexpr int kMaxRuns = 200;
// More rows that make the machine faster by less than this make it no faster,
constexpr double kFaster = 1.03;
// and where so many sizes in a row do not, larger ones are not tried.
constexpr int kNotFaster = 3;
constexpr int64_t kMaxBytes = int64_t{64} << 20;  // of inputs

// What a cell's costs depend on: its operators and shapes, not its weights.
void Describe(const Graph& graph, std::string& text) {
  const auto append = [&](ValueId id) {
    if (id == kNoValue) {
      text += " -";
      return;
    }
    const Value& value = graph.values[id];
    text += fmt::format(" {}[", DTypeName(value.dtype));
    if (!value.shape.has_rank()) text += '?';
    for (const Dim& dim : value.shape.dims()) {
      text += dim.known() ? fmt::format("{},", dim.value()) : "?,";
    }
    text += value.is_constant() ? "]c" : "]";
  };
  for (ValueId id : graph.inputs) append(id);
  for (const Node& node : graph.nodes) {
    text += fmt::format("\n{}.{}", node.def->domain, node.def->name);
    for (ValueId id : node.inputs) append(id);
    text += " ->";
    for (ValueId id : node.outputs) append(id);
    for (const auto& [name, body] : Subgraphs(node)) {
      text += " {";
      Describe(*body, text);
      text += '}';
    }
  }
}

// Runs a cell on rows of zeros.
class ZeroRows {
 public:
  ZeroRows(Cell& cell, int64_t rows) : cell_(&cell), rows_(rows) {
    for (const Cell::Port& port : cell.inputs()) {
      Shape row;
      for (const Dim& dim : port.row.dims()) row.Append(dim.value());
      Shape shape = row;
      shape.Insert(0, rows);
      Tensor zeros = Tensor::Allocate(port.dtype, shape);
      std::memset(zeros.raw(), 0, zeros.byte_size());
      auto& at = places_.emplace_back();
      for (int64_t r = 0; r < rows; ++r) {
        at.push_back(static_cast<const std::byte*>(zeros.raw()) + r * port.row_bytes);
      }
      tensors_.push_back(std::move(zeros));
      shapes_.push_back(row);
    }
    for (size_t i = 0; i < places_.size(); ++i) inputs_.push_back({shapes_[i], places_[i].data()});
  }

  // Thread-safe: each worker has its own number and memory.
  Status Run(int worker, WorkerMemory& memory) const {
    SoloTeam team(worker);
    return cell_->Run(rows_, inputs_, team, worker, memory.compute, memory.staging).status();
  }

 private:
  Cell* cell_;
  int64_t rows_;
  std::vector<Tensor> tensors_;
  std::vector<Shape> shapes_;
  std::vector<std::vector<const std::byte*>> places_;
  std::vector<Cell::Rows> inputs_;
};

// Of this thread: what other programs take of its core does not count.
Duration ThreadTime() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + Duration(now.tv_nsec);
}

int64_t BytesOfOneRow(const Cell& cell) {
  int64_t bytes = 0;
  for (const Cell::Port& port : cell.inputs()) bytes += port.row_bytes;
  return bytes;
}

// Of cells whose rows are known.
std::vector<CellCosts> Measure(std::span<Cell* const> cells, int workers) {
  const TimePoint until = Clock::Steady().Now() + kBudget;
  struct State {
    double best = 0;  // rows a nanosecond
    int not_faster = 0;
    bool done = false;
  };
  std::vector<State> states(cells.size());
  std::vector<CellCosts> costs(cells.size());
  for (int rows = 1; rows <= kMaxRows; rows *= 2) {
    std::vector<size_t> which;
    std::vector<Cell*> timed;
    Duration last{0};
    for (size_t i = 0; i < cells.size(); ++i) {
      if (states[i].done || BytesOfOneRow(*cells[i]) > kMaxBytes / rows) continue;
      which.push_back(i);
      timed.push_back(cells[i]);
      if (rows > 1) last += costs[i].back().cost;
    }
    // They take up to twice as long as half the rows did, and run twice at least.
    if (which.empty() || Clock::Steady().Now() + 4 * last > until) break;
    const auto times = TimeCells(timed, rows, workers, kPerSize, until);
    for (size_t t = 0; t < which.size(); ++t) {
      State& state = states[which[t]];
      if (!times[t]) {
        state.done = true;
        continue;
      }
      const Duration cost = std::max(*times[t], Duration(1));
      costs[which[t]].push_back({rows, cost});
      const double rate = rows / static_cast<double>(cost.count());
      state.not_faster = rate > kFaster * state.best ? 0 : state.not_faster + 1;
      state.best = std::max(state.best, rate);
      state.done = state.not_faster == kNotFaster;
    }
  }
  return costs;
}

CellCosts Kept(const CostTable::Key& key) {
  const auto table = CostTable::Load(CostTablePath(key));
  CellCosts costs;
  if (!table.ok() || table->key() != key) return costs;
  for (const auto& [shape, cost] : table->costs()) {
    if (shape.second != 0 || shape.first > kMaxBatchRows || cost <= Duration(0)) return {};
    costs.push_back({static_cast<int32_t>(shape.first), cost});
  }
  return costs;
}

Status Keep(const CostTable::Key& key, const CellCosts& costs) {
  CostTable table(key);
  for (const auto& [rows, cost] : costs) table.Set(rows, 0, cost);
  return table.Save(CostTablePath(key));
}

// By cell.
std::vector<CostTable::Key> KeysOf(std::span<const std::unique_ptr<Cell>> cells, int workers) {
  std::vector<std::string> descriptions(cells.size());
  std::string all;
  for (size_t i = 0; i < cells.size(); ++i) {
    Describe(cells[i]->executable().graph(), descriptions[i]);
    all += fmt::format("\ncell {}", descriptions[i]);
  }
  std::vector<CostTable::Key> keys;
  keys.reserve(cells.size());
  for (const std::string& own : descriptions) {
    keys.push_back(CostTableKeyOf(fmt::format("cell {} among{}", own, all), workers));
  }
  return keys;
}

}  // namespace

std::vector<std::optional<Duration>> TimeCells(std::span<Cell* const> cells, int64_t rows,
                                               int workers, Duration at_least, TimePoint until) {
  const Clock& clock = Clock::Steady();
  std::vector<ZeroRows> runs;
  runs.reserve(cells.size());
  for (Cell* cell : cells) runs.emplace_back(*cell, rows);
  WorkerMemory memory;
  std::vector<std::optional<Duration>> fastest(cells.size());
  std::vector<size_t> good;  // that do not fail; the plans are made here
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].Run(0, memory).ok()) good.push_back(i);
  }
  std::atomic<bool> done{false};
  std::vector<std::thread> others;
  for (int worker = 1; worker < workers && !good.empty(); ++worker) {
    others.emplace_back([&runs, &good, &done, worker] {
      WorkerMemory own;
      while (!done.load()) {
        for (size_t i : good) runs[i].Run(worker, own).IgnoreError();
      }
    });
  }
  const TimePoint enough = clock.Now() + at_least * static_cast<int>(good.size());
  for (int round = 0; round < kMaxRuns && !good.empty(); ++round) {
    const TimePoint begin = clock.Now();
    if (round > 0 && (begin > until || (round >= kMinRuns && begin > enough))) break;
    for (size_t i : good) {
      const Duration start = ThreadTime();
      const bool ran = runs[i].Run(0, memory).ok();
      const Duration time = ThreadTime() - start;
      if (ran) fastest[i] = std::min(time, fastest[i].value_or(time));
    }
  }
  done = true;
  for (std::thread& thread : others) thread.join();
  return fastest;
}

std::vector<CellCosts> FindCellCosts(std::span<const std::unique_ptr<Cell>> cells, int workers,
                                     bool measure) {
  const std::vector<CostTable::Key> keys = KeysOf(cells, workers);
  std::vector<CellCosts> found(cells.size());
  std::vector<size_t> closed;
  std::vector<Cell*> to_time;
  bool missing = false;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (cells[i]->open()) continue;
    closed.push_back(i);
    to_time.push_back(cells[i].get());
    found[i] = Kept(keys[i]);
    missing |= found[i].empty();
  }
  if (!missing || !measure) return found;
  std::vector<CellCosts> measured = Measure(to_time, workers);
  for (size_t c = 0; c < closed.size(); ++c) {
    // Where the folder cannot be written, the next load measures again.
    if (!measured[c].empty()) Keep(keys[closed[c]], measured[c]).IgnoreError();
    found[closed[c]] = std::move(measured[c]);
  }
  return found;
}

Status KeepCellCosts(std::span<const std::unique_ptr<Cell>> cells, int workers,
                     std::span<const CellCosts> costs) {
  const std::vector<CostTable::Key> keys = KeysOf(cells, workers);
  for (size_t i = 0; i < cells.size(); ++i) {
    if (!costs[i].empty()) CHAIRLIFT_RETURN_IF_ERROR(Keep(keys[i], costs[i]));
  }
  return absl::OkStatus();
}

void ChooseCellSizes(std::span<const CellCosts> costs, int given,
                     std::vector<CellTypeOptions>& types) {
  types.resize(std::max(types.size(), costs.size()));
  for (size_t i = 0; i < costs.size(); ++i) {
    CellTypeOptions& type = types[i];
    if (type.max_batch_size == 0) type.max_batch_size = given;
    if (costs[i].empty()) continue;
    TabulatedCosts table;
    if (!table.AddType(costs[i]).ok()) continue;
    const BatchSizes sizes = ChooseBatchSizes(table, 0, kMaxRows, kTaskOverhead);
    if (type.max_batch_size == 0) type.max_batch_size = sizes.max;
    if (type.min_batch_size == 0) {
      type.min_batch_size = std::min(sizes.min, type.max_batch_size);
    }
  }
}

}  // namespace chairlift
