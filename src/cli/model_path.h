// A model argument of the command line: an ONNX file, a function of a Python file, a model's
// folder, or a version's folder.
#ifndef CHAIRLIFT_CLI_MODEL_PATH_H_
#define CHAIRLIFT_CLI_MODEL_PATH_H_

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "chairlift/engine.h"
#include "engine/programs/cells/cell_manifest.h"
#include "engine/programs/pipeline/pipeline_config.h"
#include "engine/programs/process/function_config.h"

namespace chairlift {

struct ModelPath {
  // The name to serve it under: that of the file, or of the folder with the versions.
  std::string name;
  std::string version = "1";  // for a version's folder, its name
  // For Engine::LoadModel(); for a model of cells, the version's folder.
  std::filesystem::path path;
  std::optional<CellManifest> cells;
  std::optional<FunctionConfig> function;  // `path` is then as given: "my.py:predict"
  std::optional<PipelineConfig> pipeline;  // `path` is then its folder
  ModelConfig config;                      // from the model.yaml, if a folder was given
};

// The error for a file or folder that does not exist, with the closest name; empty if it exists.
std::string WhyNoPath(const std::string& path);

// The sorted names of the models in a folder of models; empty if there are none.
std::vector<std::string> ModelsIn(const std::filesystem::path& folder);

// The sorted names of ONNX files that lie in a folder of models itself, where none is served.
std::vector<std::string> LooseModelFiles(const std::filesystem::path& folder);

// Whether it is a folder of models instead of one model's folder.
bool IsRepository(const std::string& path);

// InvalidArgument if the folder is one model's.
Status CheckRepository(const std::string& path);

// Selects the latest of several versions. NotFound or InvalidArgument says what was found instead,
// and what to give. Pipelines are found only with `in_repository`, because their steps are other
// models of the repository.
StatusOr<ModelPath> FindModel(const std::string& name, bool in_repository = false);

// Sets a setting of model.yaml, given as YAML. It replaces that of the model's own file. Unless the
// model is `one_of_many`, its kind must have it.
Status ApplyGiven(const std::string& given_name, const std::string& value, bool one_of_many,
                  ModelPath& model);

// The other models that it needs: those of a pipeline's steps, or those that a Python model calls.
std::vector<std::string> NamedModels(const ModelPath& model);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_MODEL_PATH_H_
