// From files and settings to a model that serves.
#ifndef CHAIRLIFT_ENGINE_REPOSITORY_LOAD_MODEL_H_
#define CHAIRLIFT_ENGINE_REPOSITORY_LOAD_MODEL_H_

#include <memory>
#include <string>

#include "engine/execution/model.h"
#include "engine/programs/loading_model.h"

namespace chairlift {

// Lets the first kind of program that accepts the model compile it and decide how it is served
// (programs/makers.h).
StatusOr<std::shared_ptr<Model>> LoadModel(LoadingModel model, const std::string& version);
// The same, from its files.
StatusOr<std::shared_ptr<Model>> LoadModel(const std::string& name, const std::string& version,
                                           const ModelSource& source, const ModelConfig& config,
                                           const LoadOptions& load);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REPOSITORY_LOAD_MODEL_H_
