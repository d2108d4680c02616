// Moves requests' tensors to the device that their cells run on, and back: one copy for all
// requests of a task.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_PLACES_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_PLACES_H_

#include <span>

#include "engine/programs/cells/cell_request.h"

namespace chairlift {

// Called for the requests of a task, by node; a request may occur more than once. Takes their
// mutexes, one at a time. No-op on the CPU.
//
// Before the task: gives their tensors places. On an error, tensors without a place still have
// none.
Status PlaceTensors(std::span<CellRequest* const> requests, Stream& stream);
// After the task: copies the answers of completed requests to the host.
Status ReturnAnswers(std::span<CellRequest* const> requests, Stream& stream);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_PLACES_H_
