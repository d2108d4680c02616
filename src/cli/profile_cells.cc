#include "cli/profile_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>

#include "cli/csv.h"
#include "cli/terminal.h"
#include "engine/programs/cells/cell_costs.h"

namespace chairlift {
namespace {

void Print(const std::vector<std::unique_ptr<Cell>>& cells, std::span<const CostsByRows> costs,
           int workers) {
  std::vector<std::pair<std::string, CostsByRows>> lines;
  for (size_t i = 0; i < cells.size(); ++i) lines.emplace_back(cells[i]->name(), costs[i]);
  PrintText("time of a batch, while all {} work (rows per second):\n{}", Counted(workers, "worker"),
            CostsTable("cell", lines));
  for (size_t i = 0; i < cells.size(); ++i) {
    if (cells[i]->open()) {
      PrintText("cell {} is not measured: requests decide the size of its rows\n",
                cells[i]->name());
    } else if (costs[i].empty()) {
      PrintText("cell {} is not measured: it fails with zeros as inputs\n", cells[i]->name());
    }
  }
}

}  // namespace

std::string CostsTable(const char* head,
                       std::span<const std::pair<std::string, CostsByRows>> lines) {
  std::set<int64_t> sizes;
  for (const auto& [name, costs] : lines) {
    for (const auto& [rows, cost] : costs) sizes.insert(rows);
  }
  std::vector<std::string> heads = {head};
  for (const int64_t rows : sizes) heads.push_back(fmt::format("b={}", rows));
  Table table(std::move(heads));
  for (const auto& [name, costs] : lines) {
    std::vector<std::string> line = {name};
    for (const int64_t rows : sizes) {
      std::string& cell = line.emplace_back();
      const auto cost = costs.find(rows);
      if (cost == costs.end()) continue;
      const double seconds = std::chrono::duration<double>(cost->second).count();
      cell = fmt::format("{} ({}/s)", HumanSeconds(seconds),
                         HumanNumber(std::round(static_cast<double>(rows) / seconds)));
    }
    table.Add(std::move(line));
  }
  return table.ToString();
}

std::string CostLines(const std::string& cell, int64_t length, const CostsByRows& costs) {
  std::string lines;
  for (const auto& [rows, cost] : costs) {
    lines += CsvLine(std::array{cell, std::to_string(rows), std::to_string(length),
                                fmt::format("{:.3f}", static_cast<double>(cost.count()) * 1e-3)});
  }
  return lines;
}

Status ProfileCells(const CellProgram& program, const ProfileCellsOptions& options,
                    std::string* csv) {
  const std::vector<std::unique_ptr<Cell>>& cells = program.cells;
  // The sizes used to choose batch sizes, and the requested ones.
  std::vector<CellCosts> kept;
  {
    constexpr int64_t kWhole = 1000;
    ProgressBar bar("choosing batch sizes", kWhole);
    kept = FindCellCosts(cells, options.workers, true,
                         [&](double done) { bar.Set(static_cast<int64_t>(done * kWhole)); });
  }
  std::vector<CostsByRows> costs(cells.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    for (const auto& sample : kept[i]) costs[i][sample.rows] = sample.cost;
  }
  std::set<int64_t> sizes(options.batches.begin(), options.batches.end());
  if (options.again) {
    for (const CostsByRows& cell : costs) {
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
      kept[i].push_back({static_cast<int32_t>(rows), 0, cost});
    }
  }
  Print(cells, costs, options.workers);
  for (size_t i = 0; i < cells.size(); ++i) *csv += CostLines(cells[i]->name(), 0, costs[i]);
  return Annotate(KeepCellCosts(cells, options.workers, kept), "not kept");
}

}  // namespace chairlift
