#include "engine/programs/cells/cell_costs.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "batching/batch_sizes.h"
#include "batching/task_cost.h"
#include "engine/costs/measure.h"

namespace chairlift {
namespace {

constexpr int kMaxRows = 512;
// The weight of the latest task in the prediction of the next.
constexpr double kStepLearningRate = 0.25;

constexpr int64_t kMaxBytes = int64_t{64} << 20;  // of inputs

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

  Status Run(int worker, WorkerMemory& memory) const {
    SoloTeam team(worker);
    return cell_->Run(rows_, inputs_, team, worker, memory.compute, memory.staging, memory.stop)
        .status();
  }

 private:
  Cell* cell_;
  int64_t rows_;
  std::vector<Tensor> tensors_;
  std::vector<Shape> shapes_;
  std::vector<std::vector<const std::byte*>> places_;
  std::vector<Cell::Rows> inputs_;
};

TimedRun OnZeros(Cell& cell, int64_t rows) {
  return [zeros = std::make_shared<ZeroRows>(cell, rows)](int worker, WorkerMemory& memory) {
    return zeros->Run(worker, memory);
  };
}

int64_t BytesOfOneRow(const Cell& cell) {
  int64_t bytes = 0;
  for (const Cell::Port& port : cell.inputs()) bytes += port.row_bytes;
  return bytes;
}

// For cells with known rows.
std::vector<CellCosts> Measure(std::span<Cell* const> cells, int workers, Duration budget,
                               const TimingProgress& progress) {
  return MeasureCosts(
      cells.size(),
      {.max_rows = kMaxRows, .workers = workers, .budget = budget, .progress = progress},
      [&](size_t i, int rows) {
        return BytesOfOneRow(*cells[i]) > kMaxBytes / rows ? TimedRun() : OnZeros(*cells[i], rows);
      });
}

size_t SizeOf(int32_t rows) {
  return static_cast<size_t>(std::bit_width(static_cast<uint32_t>(std::max(rows, 1) - 1)));
}

// By cell.
std::vector<CostTable::Key> KeysOf(std::span<const std::unique_ptr<Cell>> cells, int workers) {
  std::vector<std::string> descriptions(cells.size());
  std::string all;
  for (size_t i = 0; i < cells.size(); ++i) {
    DescribeForCosts(cells[i]->executable().graph(), descriptions[i]);
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
                                               int workers, const TimingEffort& effort,
                                               TimePoint until) {
  std::vector<TimedRun> runs;
  runs.reserve(cells.size());
  for (Cell* cell : cells) runs.push_back(OnZeros(*cell, rows));
  return TimeRuns(runs, workers, effort, until, [] {});
}

std::vector<CellCosts> FindCellCosts(std::span<const std::unique_ptr<Cell>> cells, int workers,
                                     bool measure, const TimingProgress& progress,
                                     Duration budget) {
  const std::vector<CostTable::Key> keys = KeysOf(cells, workers);
  std::vector<CellCosts> found(cells.size());
  std::vector<size_t> closed;
  std::vector<Cell*> to_time;
  bool missing = false;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (cells[i]->open()) continue;
    closed.push_back(i);
    to_time.push_back(cells[i].get());
    found[i] = KeptCosts(keys[i]);
    missing |= found[i].empty();
  }
  if (!missing || !measure) return found;
  std::vector<CellCosts> measured = Measure(to_time, workers, budget, progress);
  for (size_t c = 0; c < closed.size(); ++c) {
    if (!measured[c].empty()) WarnNotKept(KeepCosts(keys[closed[c]], measured[c]));
    found[closed[c]] = std::move(measured[c]);
  }
  return found;
}

Status KeepCellCosts(std::span<const std::unique_ptr<Cell>> cells, int workers,
                     std::span<const CellCosts> costs) {
  const std::vector<CostTable::Key> keys = KeysOf(cells, workers);
  for (size_t i = 0; i < cells.size(); ++i) {
    if (!costs[i].empty()) CHAIRLIFT_RETURN_IF_ERROR(KeepCosts(keys[i], costs[i]));
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
    LengthCosts table;
    if (!table.AddType(costs[i]).ok()) continue;
    const BatchSizes sizes = ChooseBatchSizes(table, 0, kMaxRows, kTaskOverhead);
    if (type.max_batch_size == 0) {
      type.max_batch_size = sizes.max;
      type.most_batch_size = sizes.most;
    }
    if (type.min_batch_size == 0) {
      type.min_batch_size = std::min(sizes.min, type.max_batch_size);
    }
  }
}

std::vector<std::string> NamesOfCells(std::span<const std::unique_ptr<Cell>> cells) {
  std::vector<std::string> names;
  names.reserve(cells.size());
  for (const auto& cell : cells) names.push_back(cell->name());
  return names;
}

std::vector<CellBatching> CellBatchingsOf(std::span<const std::string> cells,
                                          std::span<const CellCosts> costs,
                                          std::span<const CellTypeOptions> types,
                                          int max_batch_size) {
  std::vector<CellBatching> batchings;
  for (size_t i = 0; i < cells.size(); ++i) {
    CellBatching& own = batchings.emplace_back();
    own.name = cells[i];
    own.min_batch_size = std::max(types[i].min_batch_size, 1);
    own.max_batch_size = types[i].max_batch_size > 0 ? types[i].max_batch_size : max_batch_size;
    own.most_batch_size = std::max(types[i].most_batch_size, own.max_batch_size);
    for (const auto& sample : costs[i]) own.costs[sample.rows] = sample.cost;
  }
  return batchings;
}

StepCosts::StepCosts(std::vector<CellCosts> timed)
    : timed_(std::move(timed)), learnt_ns_(timed_.size()) {}

Duration StepCosts::FixedCost(CellType /*type*/) const { return kTaskOverhead; }

Duration StepCosts::Cost(CellType type, int32_t rows, int32_t /*length*/) const {
  if (type >= timed_.size()) return Duration(0);
  if (!timed_[type].empty()) {
    return kTaskOverhead + Duration(static_cast<int64_t>(CostNsOfRows(timed_[type], rows)));
  }
  // Cost for this number of rows or slightly more; else in proportion to fewer.
  const Learnt& learnt = learnt_ns_[type];
  const size_t own = SizeOf(rows);
  size_t at = own;
  while (at < learnt.size() && learnt[at] == 0) ++at;
  double scale = 1;
  if (at == learnt.size()) {
    for (at = own; at > 0 && learnt[at] == 0;) --at;
    scale = static_cast<double>(int64_t{1} << (own - at));
  }
  if (learnt[at] == 0) return Duration(0);
  return kTaskOverhead + Duration(static_cast<int64_t>(learnt[at] * scale));
}

void StepCosts::Learn(const Task& task, Duration took) {
  if (task.type >= timed_.size() || !timed_[task.type].empty() || task.rows == 0) return;
  double rows = 0;
  ForEachStepOf(task, [&](int32_t asked, int32_t padding) { rows += asked + padding; });
  const int32_t first = task.rows + task.padding_rows;
  const double step = std::max(1.0, static_cast<double>(took.count()) * first / rows);
  double& mean = learnt_ns_[task.type][SizeOf(first)];
  mean = mean == 0 ? step : mean + kStepLearningRate * (step - mean);
}

}  // namespace chairlift
