// An ensemble of a config.pbtxt as a pipeline.
#ifndef CHAIRLIFT_ENGINE_REPOSITORY_TRITON_TRITON_ENSEMBLE_H_
#define CHAIRLIFT_ENGINE_REPOSITORY_TRITON_TRITON_ENSEMBLE_H_

#include "engine/programs/pipeline/pipeline_config.h"
#include "engine/repository/triton/model_config.pb.h"

namespace chairlift {

// Its steps in an order in which each reads results of earlier ones; unneeded steps are omitted.
// InvalidArgument has a tensor that no step computes, or that two compute.
StatusOr<PipelineConfig> ReadEnsemble(const triton::ModelConfig& from);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REPOSITORY_TRITON_TRITON_ENSEMBLE_H_
