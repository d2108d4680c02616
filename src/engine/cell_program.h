// A model as cells: what can run, and how a request unfolds into it.
#ifndef CHAIRLIFT_ENGINE_CELL_PROGRAM_H_
#define CHAIRLIFT_ENGINE_CELL_PROGRAM_H_

#include <memory>
#include <vector>

#include "chairlift/unfold.h"
#include "graph/cells/sliced_model.h"
#include "runtime/cell.h"

namespace chairlift {

// Thread-safe once made.
struct CellProgram {
  std::vector<std::unique_ptr<Cell>> cells;  // what AddNode() numbers
  UnfolderFactory unfolder;
  int num_outputs = 0;  // the model's
};

// The cells of a model that was cut automatically.
StatusOr<CellProgram> MakeCellProgram(SlicedModel model, const ExecutableOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_CELL_PROGRAM_H_
