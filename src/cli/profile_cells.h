// What the cells of a model take, by batch size.
#ifndef CHAIRLIFT_CLI_PROFILE_CELLS_H_
#define CHAIRLIFT_CLI_PROFILE_CELLS_H_

#include <chrono>
#include <cstdint>
#include <vector>

#include "engine/cell_program.h"

namespace chairlift {

struct ProfileCellsOptions {
  std::vector<int64_t> batches;
  std::chrono::duration<double> per_point{0.3};
  int workers = 1;
  bool again = false;  // also what is kept
};

// Measures what the kept tables lack (engine/cell_costs.h), keeps it, and prints all of it.
Status ProfileCells(const CellProgram& program, const ProfileCellsOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_PROFILE_CELLS_H_
