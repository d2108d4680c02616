#include "cli/profile_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "cli/terminal.h"
#include "engine/cell_costs.h"

namespace chairlift {
namespace {

// By rows.
using Costs = std::map<int64_t, Duration>;

void Print(const std::vector<std::unique_ptr<Cell>>& cells, const std::vector<Costs>& costs,
           int workers) {
  std::set<int64_t> sizes;
  for (const Costs& cell : costs) {
    for (const auto& [rows, cost] : cell) sizes.insert(rows);
  }
  std::vector<std::string> head = {"cell"};
  for (const int64_t rows : sizes) head.push_back(fmt::format("b={}", rows));
  Table table(head);
  for (size_t i = 0; i < cells.size(); ++i) {
    std::vector<std::string> line = {cells[i]->name()};
    for (const int64_t rows : sizes) {
      const auto at = costs[i].find(rows);
      if (at == costs[i].end()) {
        line.emplace_back("");
        continue;
      }
      const double seconds = static_cast<double>(at->second.count()) * 1e-9;
      line.push_back(
          fmt::format("{} ({:.0f}/s)", HumanSeconds(seconds), static_cast<double>(rows) / seconds));
    }
    table.Add(std::move(line));
  }
  fmt::print("time of a batch on one of {} workers, all at work (rows a second):\n{}", workers,
             table.ToString());
  for (size_t i = 0; i < cells.size(); ++i) {
    if (cells[i]->open()) {
      fmt::print("cell {} is not timed: its rows have dimensions that requests tell\n",
                 cells[i]->name());
    } else if (costs[i].empty()) {
      fmt::print("cell {} is not timed: it fails on zeros\n", cells[i]->name());
    }
  }
}

}  // namespace

Status ProfileCells(const CellProgram& program, const ProfileCellsOptions& options) {
  const std::vector<std::unique_ptr<Cell>>& cells = program.cells;
  // The sizes that batch sizes are chosen by, and those asked for.
  std::vector<CellCosts> kept;
  {
    constexpr int64_t kWhole = 1000;
    ProgressBar bar("choosing sizes", kWhole);
    kept = FindCellCosts(cells, options.workers, true,
                         [&](double done) { bar.Set(static_cast<int64_t>(done * kWhole)); });
  }
  std::vector<Costs> costs(cells.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    for (const auto& [rows, cost] : kept[i]) costs[i][rows] = cost;
  }
  std::set<int64_t> sizes(options.batches.begin(), options.batches.end());
  if (options.again) {
    for (const Costs& cell : costs) {
      for (const auto& [rows, cost] : cell) sizes.insert(rows);
    }
  }
  ProgressBar bar("measuring", static_cast<int64_t>(sizes.size()));
  int64_t done = 0;
  for (const int64_t rows : sizes) {
    bar.Set(done++);
    std::vector<size_t> which;
    std::vector<Cell*> timed;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (cells[i]->open() || (!options.again && costs[i].contains(rows))) continue;
      which.push_back(i);
      timed.push_back(cells[i].get());
    }
    const auto times = TimeCells(timed, rows, options.workers,
                                 {.each = std::chrono::duration_cast<Duration>(options.per_point)},
                                 TimePoint::max());
    for (size_t t = 0; t < which.size(); ++t) {
      if (times[t]) costs[which[t]][rows] = std::max(*times[t], Duration(1));
    }
  }
  for (size_t i = 0; i < cells.size(); ++i) {
    kept[i].clear();
    for (const auto& [rows, cost] : costs[i]) {
      kept[i].push_back({static_cast<int32_t>(rows), cost});
    }
  }
  CHAIRLIFT_RETURN_IF_ERROR(KeepCellCosts(cells, options.workers, kept));
  Print(cells, costs, options.workers);
  return absl::OkStatus();
}

}  // namespace chairlift
