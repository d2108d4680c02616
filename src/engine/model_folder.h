// How a model lies on disk: <name>/model.yaml, and a folder with a number for a name for each
// version.
#ifndef CHAIRLIFT_ENGINE_MODEL_FOLDER_H_
#define CHAIRLIFT_ENGINE_MODEL_FOLDER_H_

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "chairlift/engine.h"
#include "engine/cell_manifest.h"

namespace chairlift {

// What a model.yaml says.
struct ModelYaml {
  ModelConfig config;
  std::optional<CellManifest> cells;
};

// The model.yaml in the folder; nothing where there is none.
StatusOr<ModelYaml> ReadModelFolder(const std::filesystem::path& folder);

// A number, as a folder's name: "1", "12".
bool IsVersion(const std::string& text);
// Whether the folder of a version has a model.onnx or, of a model made of cells, any .onnx file.
bool HasModel(const std::filesystem::path& version, bool of_cells);
// The versions that lie in a model's folder, "9" before "10".
std::vector<std::string> VersionsIn(const std::filesystem::path& folder, bool of_cells);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_MODEL_FOLDER_H_
