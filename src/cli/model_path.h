// A model as the command line names it: an ONNX file, a function of a Python file, a model's
// folder, or one version's.
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
  std::string name;  // that it is served under: the file's, or that of the folder with the versions
  std::string version = "1";   // of the folder of a version, its own
  std::filesystem::path path;  // as Engine::LoadModel() takes it: of cells, the version's folder
  std::optional<CellManifest> cells;
  std::optional<FunctionConfig> function;  // its `path` is then as it was named: "my.py:predict"
  std::optional<PipelineConfig> pipeline;  // its `path` is then its folder
  ModelConfig config;                      // of the model.yaml, where a folder was named
};

// The error for a file or folder that does not exist, with the closest name; empty if it exists.
std::string WhyNoPath(const std::string& path);

// The names of the models in a folder of models, in order; empty where it holds none.
std::vector<std::string> ModelsIn(const std::filesystem::path& folder);

// Whether it is a folder of models, rather than a model's.
bool IsRepository(const std::string& path);

// InvalidArgument where the folder is one model's.
Status CheckRepository(const std::string& path);

// The latest of several versions. NotFound, or InvalidArgument, says what was found instead, and
// what to name. Pipelines are found `in_repository` only: their steps are other models of it.
StatusOr<ModelPath> FindModel(const std::string& name, bool in_repository = false);

// A setting of a model.yaml, as YAML, that whoever names the model gives; it comes before those of
// its file. Unless the model is `one_of_many`, its kind must have it.
Status ApplyGiven(const std::string& name, const std::string& value, bool one_of_many,
                  ModelPath& model);

// The models that it needs beside itself: of a pipeline's steps, or those that a function calls.
std::vector<std::string> NamedModels(const ModelPath& model);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_MODEL_PATH_H_
