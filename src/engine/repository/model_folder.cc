#include "engine/repository/model_folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>

#include "base/closest.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "engine/repository/model_config.h"
#include "engine/repository/triton_config.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxVersionDigits = 18;
constexpr const char* kYaml = "model.yaml";
constexpr const char* kTriton = "config.pbtxt";

StatusOr<FolderConfig> ParseYaml(const std::string& text) {
  FolderConfig folder;
  CHAIRLIFT_ASSIGN_OR_RETURN(const YamlValue settings, YamlValue::Parse(text));
  CHAIRLIFT_ASSIGN_OR_RETURN(folder.config, ReadModelConfig(settings));
  CHAIRLIFT_ASSIGN_OR_RETURN(folder.cells, ReadCellManifest(settings));
  CHAIRLIFT_ASSIGN_OR_RETURN(folder.versions, ReadVersionPolicy(settings));
  CHAIRLIFT_ASSIGN_OR_RETURN(folder.function, ReadFunctionConfig(settings));
  if (folder.cells && folder.function) {
    return InvalidArgument("a model is made of `cells` or is a function (`python`), not both");
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(folder.pipeline, ReadPipelineConfig(settings));
  CHAIRLIFT_ASSIGN_OR_RETURN(folder.texts, ReadTextSettings(settings));
  if (folder.cells) folder.file = kAnyOnnxFile;
  if (folder.function) folder.file = folder.function->file;
  return folder;
}

StatusOr<FolderConfig> ReadFile(const fs::path& file, const fs::path& folder) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(file, kMaxSettingsBytes + 1));
  return file.filename() == kTriton ? ParseTritonConfig(text, folder) : ParseYaml(text);
}

Status CheckTensors(const std::vector<TensorSpec>& named, const std::vector<TensorSpec>& model,
                    std::string_view kind) {
  for (const TensorSpec& tensor : named) {
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

StatusOr<FolderConfig> ReadModelFolder(const fs::path& folder) {
  for (const char* name : {kYaml, kTriton}) {
    const fs::path file = folder / name;
    std::error_code error;
    // A link to nowhere is there: reading it says what is wrong.
    if (fs::symlink_status(file, error).type() == fs::file_type::not_found) continue;
    StatusOr<FolderConfig> read = ReadFile(file, folder);
    if (!read.ok()) return Annotate(read.status(), file.string());
    return read;
  }
  return FolderConfig{};
}

bool HasSettings(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / kYaml, error) || fs::is_regular_file(folder / kTriton, error);
}

Status CheckTensors(const FolderConfig& folder, const ModelMetadata& model) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckTensors(folder.inputs, model.inputs, "input"));
  return CheckTensors(folder.outputs, model.outputs, "output");
}

bool IsVersion(const std::string& text) {
  return !text.empty() && text.size() <= kMaxVersionDigits && (text == "0" || text[0] != '0') &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

fs::path ModelFile(const fs::path& version, std::string_view file) {
  std::error_code error;
  if (file != kModelFile || fs::exists(version / file, error) ||
      !fs::is_regular_file(version / "encoder_model.onnx", error)) {
    return version / file;
  }
  for (const char* decoder : {"decoder_model.onnx", "decoder_model_merged.onnx"}) {
    if (fs::is_regular_file(version / decoder, error)) return version / decoder;
  }
  return version / file;
}

bool HasModel(const fs::path& version, std::string_view file) {
  std::error_code error;
  if (file != kAnyOnnxFile) return fs::is_regular_file(ModelFile(version, file), error);
  for (fs::directory_iterator it(version, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".onnx") return true;
  }
  return false;
}

std::string OnnxFilesIn(const fs::path& folder) {
  constexpr size_t kMost = 5;
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".onnx") names.push_back(it->path().filename().string());
  }
  if (names.empty()) return "";
  std::sort(names.begin(), names.end());
  const bool more = names.size() > kMost;
  if (more) names.resize(kMost);
  return fmt::format("; {} has {}{}: serve one by its path, or name it model.onnx", folder.string(),
                     fmt::join(names, ", "), more ? ", …" : "");
}

std::vector<std::string> VersionsIn(const fs::path& folder, std::string_view file) {
  std::vector<std::string> versions = VersionFolders(folder);
  std::erase_if(versions,
                [&](const std::string& version) { return !HasModel(folder / version, file); });
  return versions;
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
