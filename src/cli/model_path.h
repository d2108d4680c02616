// A model as the command line names it: an ONNX file, a model's folder, or one version's.
#ifndef CHAIRLIFT_CLI_MODEL_PATH_H_
#define CHAIRLIFT_CLI_MODEL_PATH_H_

#include <filesystem>
#include <optional>
#include <string>

#include "chairlift/engine.h"
#include "engine/cell_manifest.h"

namespace chairlift {

struct ModelPath {
  std::filesystem::path path;  // as Engine::LoadModel() takes it: of cells, the version's folder
  std::optional<CellManifest> cells;
  ModelConfig config;  // of the model.yaml, where a folder was named
};

// Of several versions the latest. NotFound, or InvalidArgument, says what lies there instead, and
// what to name.
StatusOr<ModelPath> FindModel(const std::string& name);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_MODEL_PATH_H_
