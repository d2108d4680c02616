#include "engine/repository/model_folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <system_error>

#include "base/closest.h"
#include "base/regular_file.h"
#include "base/renamed.h"
#include "base/status.h"
#include "engine/repository/model_config.h"
#include "engine/repository/triton/triton_config.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;

constexpr const char* kYaml = "model.yaml";
constexpr const char* kTriton = "config.pbtxt";
constexpr const char* kFile = "file";

// `file` of a model.yaml.
Status ReadFileName(const YamlValue& settings, FolderConfig& folder) {
  if (!settings.Has(kFile)) return absl::OkStatus();
  const YamlValue value = settings.At(kFile);
  const std::string name = value.Text("the name of an ONNX file in the model's folder");
  const fs::path file(name);
  const bool inside = file.has_filename() && file.is_relative() &&
                      std::find(file.begin(), file.end(), "..") == file.end();
  if (!inside) value.RefuseAllBut("the name of an ONNX file in the model's folder");
  CHAIRLIFT_RETURN_IF_ERROR(settings.status());
  if (folder.cells || folder.function || folder.pipeline) {
    return InvalidArgument(
        "`file` is for models of one ONNX file; leave it out for a model made of `cells`, `python` "
        "or `steps`");
  }
  folder.file = name;
  return absl::OkStatus();
}

// The only ONNX file in a folder.
std::optional<fs::path> OnlyOnnxFile(const fs::path& folder) {
  std::optional<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() != ".onnx") continue;
    if (found) return std::nullopt;
    found = it->path();
  }
  return found;
}

StatusOr<FolderConfig> ParseYaml(const std::string& text, const std::string& file) {
  FolderConfig folder;
  CHAIRLIFT_ASSIGN_OR_RETURN(const YamlValue settings, YamlValue::Parse(text));
  settings.RenameKeys([&](const std::string& name) { return CurrentSetting(name, file); });
  CHAIRLIFT_ASSIGN_OR_RETURN(folder.config, ReadModelConfig(settings));
  CHAIRLIFT_ASSIGN_OR_RETURN(folder.cells, ReadCellManifest(settings));
  CHAIRLIFT_ASSIGN_OR_RETURN(folder.versions, ReadVersionPolicy(settings));
  CHAIRLIFT_ASSIGN_OR_RETURN(folder.function, ReadFunctionConfig(settings));
  if (folder.cells && folder.function) {
    return InvalidArgument("a model has either `cells` or a Python function (`python`), not both");
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(folder.pipeline, ReadPipelineConfig(settings));
  CHAIRLIFT_ASSIGN_OR_RETURN(folder.texts, ReadTextSettings(settings));
  if (folder.cells) folder.file = kAnyOnnxFile;
  if (folder.function) folder.file = folder.function->file;
  CHAIRLIFT_RETURN_IF_ERROR(ReadFileName(settings, folder));
  return folder;
}

Status CheckSide(const std::vector<DeclaredPort>& named, const std::vector<TensorSpec>& model,
                 std::string_view kind) {
  for (const DeclaredPort& tensor : named) {
    const auto found = std::find_if(model.begin(), model.end(), [&](const TensorSpec& spec) {
      return spec.name == tensor.name;
    });
    if (found == model.end()) {
      return InvalidArgument("{}: the model has no {} '{}'{}", kTriton, kind, tensor.name,
                             KnownNames(tensor.name, NamesOf(model, &TensorSpec::name)));
    }
    if (tensor.dtype != DType::kUndefined && tensor.dtype != found->dtype) {
      return InvalidArgument("{}: {} '{}' is {} there, and {} in the model", kTriton, kind,
                             tensor.name, DTypeName(tensor.dtype), DTypeName(found->dtype));
    }
  }
  return absl::OkStatus();
}

bool NumberOrder(const std::string& x, const std::string& y) {
  return x.size() != y.size() ? x.size() < y.size() : x < y;
}

}  // namespace

StatusOr<FolderConfig> ReadConfigFile(const fs::path& file, const fs::path& folder) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(file, kMaxSettingsBytes + 1));
  if (file.extension() != ".pbtxt") return ParseYaml(text, file.string());
  CHAIRLIFT_ASSIGN_OR_RETURN(FolderConfig read, ParseTritonConfig(text, folder));
  read.config.config_file = file.string();
  return read;
}

StatusOr<FolderConfig> ReadModelFolder(const fs::path& folder, const std::string& config_name) {
  std::vector<fs::path> files = {folder / kYaml, folder / kTriton};
  if (!config_name.empty()) {
    files.insert(files.begin(), folder / "configs" / (config_name + ".pbtxt"));
  }
  for (const fs::path& file : files) {
    std::error_code error;
    // A broken link counts as existing: reading it reports the error.
    if (fs::symlink_status(file, error).type() == fs::file_type::not_found) continue;
    StatusOr<FolderConfig> read = ReadConfigFile(file, folder);
    if (!read.ok()) return Annotate(read.status(), file.string());
    if (file.filename() == kYaml && fs::exists(folder / kTriton, error)) {
      read->ignored.emplace_back("all, because model.yaml is read instead");
    }
    return read;
  }
  return FolderConfig{};
}

bool HasSettings(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / kYaml, error) || fs::is_regular_file(folder / kTriton, error);
}

Status CheckTensors(const DeclaredPorts& ports, const ModelMetadata& model) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckSide(ports.inputs, model.inputs, "input"));
  return CheckSide(ports.outputs, model.outputs, "output");
}

fs::path ModelFile(const fs::path& version, std::string_view file) {
  if (file != kModelFile) return version / file;
  std::error_code error;
  for (const fs::path& folder : {version, version / kOnnxFolder}) {
    if (fs::exists(folder / kModelFile, error)) return folder / kModelFile;
    if (!fs::is_regular_file(folder / "encoder_model.onnx", error)) continue;
    for (const char* decoder : {"decoder_model.onnx", "decoder_model_merged.onnx"}) {
      if (fs::is_regular_file(folder / decoder, error)) return folder / decoder;
    }
  }
  return OnlyOnnxFile(version / kOnnxFolder).value_or(version / kModelFile);
}

bool HasModel(const fs::path& version, std::string_view file) {
  std::error_code error;
  if (file != kAnyOnnxFile) return fs::is_regular_file(ModelFile(version, file), error);
  for (fs::directory_iterator it(version, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".onnx") return true;
  }
  return false;
}

std::vector<std::string> VersionsIn(const fs::path& folder, std::string_view file) {
  std::vector<std::string> versions = VersionFolders(folder);
  std::erase_if(versions,
                [&](const std::string& version) { return !HasModel(folder / version, file); });
  return versions;
}

fs::path VersionFolder(const fs::path& folder, const std::string& version, std::string_view file) {
  return HasModel(folder / version, file) ? folder / version : folder;
}

bool IsModelFolder(const fs::path& path) {
  const fs::path folder = HubSnapshot(path);
  return HasSettings(folder) || !VersionsIn(folder, kAnyOnnxFile).empty() ||
         HasModel(folder, kModelFile) || HasModel(folder / kOnnxFolder, kAnyOnnxFile);
}

std::string NameOfModelIn(const fs::path& folder) {
  constexpr std::string_view kHub = "models--";
  const fs::path own = FoldersOfModel(folder).back();
  const fs::path above = own.parent_path();
  const std::string repository = above.parent_path().filename().string();
  if (above.filename() == "snapshots" && repository.starts_with(kHub)) {
    return repository.substr(repository.rfind("--") + 2);
  }
  return own.filename().string();
}

fs::path HubSnapshot(const fs::path& folder) {
  constexpr size_t kMaxRevisionBytes = 256;
  const fs::path snapshots = folder / "snapshots";
  std::error_code error;
  if (!folder.filename().string().starts_with("models--") || !fs::is_directory(snapshots, error)) {
    return folder;
  }
  std::string main = ReadRegularFile(folder / "refs/main", kMaxRevisionBytes).value_or("");
  while (!main.empty() && std::isspace(static_cast<unsigned char>(main.back()))) main.pop_back();
  std::vector<fs::path> found;
  for (fs::directory_iterator it(snapshots, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename() == main) return it->path();
    found.push_back(it->path());
  }
  return found.size() == 1 ? found[0] : folder;
}

std::vector<std::string> VersionFolders(const fs::path& folder) {
  std::vector<std::string> versions;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (IsVersion(name) && fs::is_directory(it->path(), ignored)) versions.push_back(name);
  }
  std::sort(versions.begin(), versions.end(), NumberOrder);
  return versions;
}

}  // namespace chairlift
