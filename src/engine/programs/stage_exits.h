// Converts the settings of a model's exits to stages.
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

// Adds the cuts that exits need. `others`: alternative names.
void AddExitCuts(std::span<const StageExit> exits, const OtherNames& others, StageCuts& cuts);

// The exits of a cut model, by stage. InvalidArgument if one is wrong: it has a threshold on a type
// that is not a float, or nothing to skip, or not exactly one substitute for a tensor, or a
// substitute of another type or size.
StatusOr<std::vector<std::vector<LayoutExit>>> ExitsOf(const StagedModel& model,
                                                       std::span<const std::unique_ptr<Cell>> cells,
                                                       std::span<const StageExit> exits,
                                                       const OtherNames& others);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_STAGE_EXITS_H_
