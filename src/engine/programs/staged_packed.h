// Encoders on packed tokens that are cut into stages.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_STAGED_PACKED_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_STAGED_PACKED_H_

#include <memory>
#include <string>

#include "engine/programs/loading_model.h"
#include "engine/programs/program.h"

namespace chairlift {

// For a model that is proved to be one (LoadingModel::Ragged) and whose settings request stages; as
// for the makers (programs/makers.h).
StatusOr<std::unique_ptr<Program>> MakeStagedPacked(LoadingModel& model, std::string& refused);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_STAGED_PACKED_H_
