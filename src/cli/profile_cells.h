// Costs of batches of a model, and of its cells, by size.
#ifndef CHAIRLIFT_CLI_PROFILE_CELLS_H_
#define CHAIRLIFT_CLI_PROFILE_CELLS_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/programs/cells/cell_program.h"

namespace chairlift {

using CostsByRows = std::map<int64_t, std::chrono::nanoseconds>;
// One line per name: time of a batch, and rows per second, by rows.
std::string CostsTable(const char* head,
                       std::span<const std::pair<std::string, CostsByRows>> lines);

// The same as lines of CSV: cell,rows,length,microseconds. `chairlift simulate --costs` reads them.
std::string CostLines(const std::string& cell, int64_t length, const CostsByRows& costs);

struct ProfileCellsOptions {
  std::vector<int64_t> batches;
  std::chrono::duration<double> per_point{0.3};
  int workers = 1;
  bool again = false;  // measure saved sizes again
};

// Measures what the saved tables lack (engine/cell_costs.h), saves it, prints everything, and adds
// its CostLines() to `*csv`.
Status ProfileCells(const CellProgram& program, const ProfileCellsOptions& options,
                    std::string* csv);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_PROFILE_CELLS_H_
