// State common to all requests to a model that was cut into cells automatically.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_CELLS_UNFOLDERS_SLICED_PROGRAM_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_CELLS_UNFOLDERS_SLICED_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "chairlift/unfold.h"
#include "graph/cells/sliced_model.h"

namespace chairlift {

struct SlicedProgram {
  SlicedModel model;           // without its graphs
  std::vector<int64_t> chunk;  // by cell, for token cells
  std::vector<bool> buffered;  // by value: collected in one tensor for its readers
  std::vector<bool> whole;     // by value: a reader takes all of a lane's tokens together
  // By cell, for cells over lanes: shapes of its results are known only after it has run.
  std::vector<bool> computed_shapes;
  std::vector<bool> open;                 // by cell: rows have dimensions that vary by request
  std::vector<std::optional<Shape>> row;  // by value, if known in advance
};

// Unfolds one request.
std::unique_ptr<Unfolder> MakeSlicedUnfolder(std::shared_ptr<const SlicedProgram> program);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_CELLS_UNFOLDERS_SLICED_PROGRAM_H_
