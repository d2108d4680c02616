// How a model lies on disk: <name>/model.yaml or <name>/config.pbtxt, and a folder with a number
// for a name for each version. Or, without versions, <name>/model.onnx or <name>/onnx/model.onnx.
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

// Stands for any .onnx file, where a model is made of cells.
inline constexpr std::string_view kAnyOnnxFile = "*.onnx";
inline constexpr std::string_view kModelFile = "model.onnx";

// What else makes a version, for errors that miss model.onnx.
inline constexpr std::string_view kOrEncoderDecoder =
    " (or encoder_model.onnx beside decoder_model.onnx)";

// What the files in a model's folder say of how it is served.
struct FolderConfig {
  ModelConfig config;
  std::optional<CellManifest> cells;
  std::optional<FunctionConfig> function;
  std::optional<PipelineConfig> pipeline;  // it has no version folders
  VersionPolicy versions;
  TextSettings texts;
  // In a version's folder; of a model made of cells kAnyOnnxFile, of a function its own.
  std::string file{kModelFile};

  // Of a config.pbtxt:
  DeclaredPorts ports;  // inputs and outputs, as clients see them
  RequestRules rules;
  std::vector<InferRequest> warm_up;  // to be run once a version is ready; id: the sample's name
  std::vector<std::string> ignored;   // what in it has no effect here
};

// Reads model.yaml or, where there is none, config.pbtxt; all defaults where there is neither.
// `config_name`: not empty: configs/<config_name>.pbtxt comes before both, where it is there.
StatusOr<FolderConfig> ReadModelFolder(const std::filesystem::path& folder,
                                       const std::string& config_name = "");
// Reads one of the two, of the model in `folder`.
StatusOr<FolderConfig> ReadConfigFile(const std::filesystem::path& file,
                                      const std::filesystem::path& folder);
// Whether a model's folder has one of the two.
bool HasSettings(const std::filesystem::path& folder);

// InvalidArgument where the model has no input or output that its folder names, or of another type.
Status CheckTensors(const FolderConfig& folder, const ModelMetadata& model);

// Where `file` is in a version's folder. If that has no model.onnx but encoder_model.onnx and
// decoder_model.onnx or decoder_model_merged.onnx, as exporters write a model with an encoder, the
// decoder stands for it. Both may lie in its folder `onnx`, where an only file stands for
// model.onnx.
std::filesystem::path ModelFile(const std::filesystem::path& version, std::string_view file);
// Whether a version's folder has `file` (kAnyOnnxFile: any), or what stands for it.
bool HasModel(const std::filesystem::path& version, std::string_view file);
// "; DIR has a.onnx, b.onnx", or nothing where it has no such files; for errors.
std::string OnnxFilesIn(const std::filesystem::path& folder);
// The versions in a model's folder that have `file`, "9" before "10".
std::vector<std::string> VersionsIn(const std::filesystem::path& folder, std::string_view file);
// All folders with a number for a name.
std::vector<std::string> VersionFolders(const std::filesystem::path& folder);
// The version of a model that lies in its folder without one.
inline constexpr const char* kOnlyVersion = "1";
// Where a version of the model in `folder` lies: in a folder of its own, else in `folder` itself.
std::filesystem::path VersionFolder(const std::filesystem::path& folder, const std::string& version,
                                    std::string_view file);
// Whether it is a model's folder: it has settings, versions, or the file of a model without them.
bool IsModelFolder(const std::filesystem::path& folder);

// What a model is called whose ONNX file lies in `folder`: as its own folder, which is not `onnx`
// nor a version's. Of a snapshot in the hub's cache, as the repository. Empty: it has no name.
std::string NameOfModelIn(const std::filesystem::path& folder);
// Of a repository in the hub's cache (models--OWNER--NAME), the folder of the snapshot that its
// main branch names, or of the only one; else `folder` itself.
std::filesystem::path HubSnapshot(const std::filesystem::path& folder);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REPOSITORY_MODEL_FOLDER_H_
