// The way of requests' tensors to the device that their cells run on, and back: one copy for all
// the requests of a task.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_PLACES_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_PLACES_H_

#include <span>

#include "engine/programs/cells/cell_request.h"

namespace chairlift {

// For each request of a task, by node; a request may come more than once. Their mutexes are taken,
// one at a time. On the CPU nothing is to be done.
//
// Before the task: gives their tensors places. An error: none of those got any that had none.
Status PlaceTensors(std::span<CellRequest* const> requests, Stream& stream);
// After it, of requests that are done: has their answers on the host.
Status ReturnAnswers(std::span<CellRequest* const> requests, Stream& stream);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_PLACES_H_
