#include "cli/model_path.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/closest.h"
#include "base/renamed.h"
#include "base/status.h"
#include "engine/repository/folder_contents.h"
#include "engine/repository/model_config.h"
#include "engine/repository/model_folder.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;

// Sets its name and version from the folder of its file.
void Place(const fs::path& folder, ModelPath& model) {
  const std::vector<fs::path> folders = FoldersOfModel(folder);
  model.name = NameOfModelIn(folder);
  for (const fs::path& one : folders) {
    const std::string number = one.filename().string();
    if (IsVersion(number) && one != folders.back()) model.version = number;
  }
}

// Whether a model file has the usual name of exported files instead of the model's name.
bool HasExportersName(const fs::path& file) {
  const std::string stem = file.stem().string();
  return stem == "model" || stem.starts_with("model_") || stem.starts_with("decoder_model");
}

// An ONNX file given by its path.
ModelPath OfFile(const fs::path& file) {
  std::error_code error;
  const std::vector<fs::path> folders = FoldersOfModel(file.parent_path());
  const bool beside = fs::exists(folders[0] / "tokenizer.json", error);
  ModelPath found;
  if (HasExportersName(file) && (folders.size() > 1 || beside)) Place(folders[0], found);
  if (found.name.empty()) found.name = file.stem().string();
  found.path = file;
  return found;
}

// A folder whose settings, there or above, have been read.
StatusOr<ModelPath> Resolve(const fs::path& folder, bool of_model, bool in_repository,
                            FolderConfig read) {
  if (read.pipeline && in_repository) {
    return ModelPath{.name = folder.filename().string(),
                     .path = folder,
                     .cells = {},
                     .function = {},
                     .pipeline = std::move(read.pipeline),
                     .config = std::move(read.config)};
  }
  if (read.pipeline) {
    return InvalidArgument(
        "{} is a pipeline, whose steps are models of a repository: serve the folder of models it "
        "is in",
        folder.string());
  }
  std::vector<std::string> versions;
  if (of_model) {
    versions = VersionsIn(folder, read.file);
    if (versions.empty() && HasModel(folder, read.file)) versions = {kOnlyVersion};
    CHAIRLIFT_ASSIGN_OR_RETURN(versions, read.versions.Select(versions));
  }
  const fs::path version =
      versions.empty() ? folder : VersionFolder(folder, versions.back(), read.file);
  if (!HasModel(version, read.file)) {
    const fs::path in = VersionFolders(folder).empty() ? folder / kOnlyVersion
                                                       : folder / VersionFolders(folder).back();
    return NotFound("{} has no version: {} in {}{}", folder.string(),
                    read.cells ? "its cells' .onnx files belong"
                               : fmt::format("there is no {}, which belongs", read.file),
                    in.string(), WhatFolderHas(folder));
  }
  ModelPath found;
  found.path = read.cells || read.function ? version : ModelFile(version, read.file);
  found.cells = std::move(read.cells);
  found.function = std::move(read.function);
  found.config = std::move(read.config);
  Place(version, found);
  return found;
}

}  // namespace

std::string WhyNoPath(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error)) return {};
  if (const auto function = ParseFunction(path)) return WhyNoPath(function->file);
  fs::path wanted(path);
  if (!wanted.has_filename()) wanted = wanted.parent_path();  // it ended in a slash
  const fs::path folder = wanted.has_parent_path() ? wanted.parent_path() : fs::path(".");
  std::vector<std::string> names;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  if (path.find("://") != std::string::npos) {
    return fmt::format("'{}' is an address: download the model, then name its file or folder",
                       path);
  }
  std::string text = fmt::format("there is no file or folder '{}'", path);
  if (path[0] == '~') {
    return text + "; a shell expands ~ only outside of quotes: write the whole path";
  }
  if (path.find_first_of("*?[") != std::string::npos) {
    return text + "; a shell expands patterns only outside of quotes, and to files that exist";
  }
  const bool is_hub_name = std::count(path.begin(), path.end(), '/') == 1 && path[0] != '/' &&
                           path[0] != '.' && !fs::exists(folder, error);
  if (is_hub_name) {
    text += fmt::format(
        "; models are not downloaded: `hf download {} --local-dir {}`, then serve that folder",
        path, wanted.filename().string());
  } else if (const auto closest = Closest(wanted.filename().string(), names)) {
    text += fmt::format("; did you mean '{}'?", (wanted.parent_path() / *closest).string());
  }
  return text;
}

std::vector<std::string> ModelsIn(const fs::path& folder) {
  std::vector<std::string> models;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name[0] != '.' && IsModelFolder(it->path())) models.push_back(name);
  }
  std::sort(models.begin(), models.end());
  return models;
}

std::vector<std::string> LooseModelFiles(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name[0] != '.' && it->path().extension() == ".onnx") files.push_back(name);
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool IsRepository(const std::string& path) {
  std::error_code error;
  // A model with settings that are wrong is still one: its versions are not models.
  return fs::is_directory(path, error) && !IsModelFolder(path) && !FindModel(path).ok() &&
         !ModelsIn(path).empty();
}

Status CheckRepository(const std::string& path) {
  if (FindModel(path).ok()) {
    return InvalidArgument(
        "{} is one model's folder, not a folder of models; serve it as `chairlift serve {}`", path,
        path);
  }
  return absl::OkStatus();
}

StatusOr<ModelPath> FindModel(const std::string& name, bool in_repository) {
  std::error_code error;
  if (std::optional<FunctionConfig> function = ParseFunction(name)) {
    if (const std::string why = WhyNoPath(function->file); !why.empty()) return NotFound("{}", why);
    ModelPath found;
    found.name = fs::path(function->file).stem().string();
    found.path = name;
    found.function = std::move(function);
    return found;
  }
  if (fs::path(name).extension() == ".py") {
    return InvalidArgument("'{}' is a Python file: name its function too, as {}:predict", name,
                           name);
  }
  if (const std::string why = WhyNoPath(name); !why.empty()) return NotFound("{}", why);
  if (!fs::is_directory(name, error)) {
    if (fs::path(name).filename() == "model.yaml") {
      return InvalidArgument("'{}' is a model's settings: name the folder it is in", name);
    }
    return OfFile(name);
  }
  (void)fs::directory_iterator(name, error);
  if (error) {
    return NotFound(
        "cannot read '{}': {}{}", name, error.message(),
        error == std::errc::permission_denied ? "; give this user the right to read it" : "");
  }
  fs::path folder = fs::absolute(name, error).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // it ended in a slash
  folder = HubSnapshot(folder);
  if (HasSettings(folder) || !VersionsIn(folder, kModelFile).empty()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(FolderConfig read, ReadModelFolder(folder));
    return Resolve(folder, true, in_repository, std::move(read));
  }
  if (HasModel(folder, kAnyOnnxFile) && HasSettings(folder.parent_path())) {
    CHAIRLIFT_ASSIGN_OR_RETURN(FolderConfig read, ReadModelFolder(folder.parent_path()));
    return Resolve(folder, false, in_repository, std::move(read));
  }
  if (HasModel(folder, kModelFile)) return Resolve(folder, false, false, {});
  if (const std::vector<std::string> models = ModelsIn(folder); !models.empty()) {
    return InvalidArgument("'{}' is a folder of models: name one of them, as {} (there are: {})",
                           name, (fs::path(name) / models[0]).string(), fmt::join(models, ", "));
  }
  return NotFound(
      "'{}' is not a model's folder: it has no model.onnx, onnx/model.onnx, <version>/model.onnx{} "
      "or model.yaml{}",
      name, kOrEncoderDecoder, WhatFolderHas(name));
}

Status ApplyGiven(const std::string& given_name, const std::string& value, bool one_of_many,
                  ModelPath& model) {
  const std::string name = CurrentSetting(given_name, "settings");
  if (IsFunctionSetting(name)) {
    if (model.function) {
      model.config.function[name] = value;
      return ApplyFunctionSettings({{name, value}}, *model.function);
    }
    if (one_of_many) return absl::OkStatus();
    return InvalidArgument("setting '{}' applies only to Python models; {} is not one", name,
                           model.path.string());
  }
  ModelConfig unused;
  ModelConfig& config = model.pipeline && !IsPipelineOption(name) ? unused : model.config;
  CHAIRLIFT_ASSIGN_OR_RETURN(const bool known, ApplySetting(name, value, config));
  if (known) return absl::OkStatus();
  std::vector<std::string> names = SettingNames();
  for (const std::string& own : FunctionSettingNames()) names.push_back(own);
  const std::string meant = DidYouMean(name, names);
  return InvalidArgument("there is no setting '{}'{}", name,
                         meant.empty() ? "; `chairlift serve --help` lists the settings, and "
                                         "docs/guides/python-models.md those of Python models"
                                       : meant);
}

std::vector<std::string> NamedModels(const ModelPath& model) {
  std::vector<std::string> names;
  if (model.pipeline) {
    for (const StepConfig& step : model.pipeline->steps) names.push_back(step.model);
  }
  if (model.function) {
    for (const auto& [name, own] : model.function->calls) names.push_back(name);
  }
  return names;
}

}  // namespace chairlift
