// What a model's settings say of exits, in terms of its stages.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_STAGE_EXITS_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_STAGE_EXITS_H_

#include <memory>
#include <span>
#include <vector>

#include "chairlift/engine.h"
#include "engine/programs/staged_request.h"
#include "graph/stages/stages.h"
#include "runtime/cell.h"

namespace chairlift {

// Adds the cuts that exits need. `others`: names that they use.
void AddExitCuts(std::span<const StageExit> exits, const OtherNames& others, StageCuts& cuts);

// Exits by stage, of a model that was cut there. InvalidArgument names what is wrong with one: a
// threshold for numbers of another type, nothing that is skipped, a tensor for which nothing or
// more than one stands, or something of another type or size.
StatusOr<std::vector<std::vector<LayoutExit>>> ExitsOf(const StagedModel& model,
                                                       std::span<const std::unique_ptr<Cell>> cells,
                                                       std::span<const StageExit> exits,
                                                       const OtherNames& others);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_STAGE_EXITS_H_
