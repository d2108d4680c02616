// The layout of a model on disk: <name>/model.yaml or <name>/config.pbtxt, and one numbered folder
// per version. Or, without versions, <name>/model.onnx or <name>/onnx/model.onnx.
#ifndef CHAIRLIFT_ENGINE_REPOSITORY_MODEL_FOLDER_H_
#define CHAIRLIFT_ENGINE_REPOSITORY_MODEL_FOLDER_H_

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chairlift/engine.h"
#include "engine/programs/cells/cell_manifest.h"
#include "engine/programs/model_files.h"
#include "engine/programs/pipeline/pipeline_config.h"
#include "engine/programs/process/function_config.h"
#include "engine/repository/text_model.h"
#include "engine/repository/version_policy.h"
#include "engine/requests/request_rules.h"
#include "graph/ports/declared_ports.h"

namespace chairlift {

// Matches any .onnx file, for a model made of cells.
inline constexpr std::string_view kAnyOnnxFile = "*.onnx";
inline constexpr std::string_view kModelFile = "model.onnx";

// Other files that form a version, for errors about a missing model.onnx.
inline constexpr std::string_view kOrEncoderDecoder =
    " (or encoder_model.onnx beside decoder_model.onnx)";

// The settings in a model's folder.
struct FolderConfig {
  ModelConfig config;
  std::optional<CellManifest> cells;
  std::optional<FunctionConfig> function;
  std::optional<PipelineConfig> pipeline;  // it has no version folders
  VersionPolicy versions;
  TextSettings texts;
  // In a version's folder; for a model made of cells kAnyOnnxFile, for a Python model its own file.
  std::string file{kModelFile};

  // From a config.pbtxt:
  DeclaredPorts ports;  // inputs and outputs, as clients see them
  RequestRules rules;
  std::vector<InferRequest> warm_up;  // run once a version is ready; id: the sample's name
  std::vector<std::string> ignored;   // its parts that have no effect here
};

// Reads model.yaml or, if there is none, config.pbtxt; all defaults without either. `config_name`:
// if not empty, configs/<config_name>.pbtxt takes precedence over both if it exists.
StatusOr<FolderConfig> ReadModelFolder(const std::filesystem::path& folder,
                                       const std::string& config_name = "");
// Reads one of the two, for the model in `folder`.
StatusOr<FolderConfig> ReadConfigFile(const std::filesystem::path& file,
                                      const std::filesystem::path& folder);
// Whether a model's folder has one of the two.
bool HasSettings(const std::filesystem::path& folder);

// InvalidArgument if a config.pbtxt names an input or output that the model does not have, or gives
// it another type.
Status CheckTensors(const DeclaredPorts& ports, const ModelMetadata& model);

// The path of `file` in a version's folder. If there is no model.onnx but encoder_model.onnx and
// decoder_model.onnx or decoder_model_merged.onnx, as exporters write a model with an encoder, the
// decoder is used. These may also be in its folder `onnx`, where a single file counts as
// model.onnx.
std::filesystem::path ModelFile(const std::filesystem::path& version, std::string_view file);
// Whether a version's folder has `file` (kAnyOnnxFile: any), or a file that counts as it.
bool HasModel(const std::filesystem::path& version, std::string_view file);
// The versions in a model's folder that have `file`, "9" before "10".
std::vector<std::string> VersionsIn(const std::filesystem::path& folder, std::string_view file);
// All folders whose name is a number.
std::vector<std::string> VersionFolders(const std::filesystem::path& folder);
// The version number of a model without version folders.
inline constexpr const char* kOnlyVersion = "1";
// The folder of a version of the model in `folder`: its own folder, or `folder` itself if there are
// none.
std::filesystem::path VersionFolder(const std::filesystem::path& folder, const std::string& version,
                                    std::string_view file);
// Whether it is a model's folder: it has settings, versions, or a model file without versions.
bool IsModelFolder(const std::filesystem::path& folder);

// The name of the model whose ONNX file is in `folder`: that of its own folder, skipping `onnx` and
// version folders. For a snapshot in the hub's cache, that of the repository. Empty: no name.
std::string NameOfModelIn(const std::filesystem::path& folder);
// For a repository in the hub's cache (models--OWNER--NAME): the folder of the snapshot of its main
// branch, or of the only snapshot. Otherwise `folder` itself.
std::filesystem::path HubSnapshot(const std::filesystem::path& folder);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REPOSITORY_MODEL_FOLDER_H_
