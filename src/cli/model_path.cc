#include "cli/model_path.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/model_folder.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;

bool HasYaml(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / "model.yaml", error);
}

// The models in a folder of models.
std::vector<std::string> ModelsIn(const fs::path& folder) {
  std::vector<std::string> models;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (HasYaml(it->path()) || !VersionsIn(it->path(), true).empty()) {
      models.push_back(it->path().filename().string());
    }
  }
  std::sort(models.begin(), models.end());
  return models;
}

// A folder whose model.yaml, there or above, has been read.
StatusOr<ModelPath> Resolve(const fs::path& folder, bool of_model, ModelYaml yaml) {
  ModelPath found{.path = {}, .cells = std::move(yaml.cells), .config = std::move(yaml.config)};
  const bool of_cells = found.cells.has_value();
  const std::vector<std::string> versions =
      of_model ? VersionsIn(folder, of_cells) : std::vector<std::string>();
  const fs::path version = versions.empty() ? folder : folder / versions.back();
  if (!HasModel(version, of_cells)) {
    return NotFound("{} has no version: the {} in {}", folder.string(),
                    of_cells ? "cells' .onnx files lie" : "model.onnx lies",
                    (folder / "1").string());
  }
  found.path = of_cells ? version : version / "model.onnx";
  return found;
}

}  // namespace

StatusOr<ModelPath> FindModel(const std::string& name) {
  std::error_code error;
  if (!fs::exists(name, error)) return NotFound("there is no file or folder '{}'", name);
  if (!fs::is_directory(name, error)) {
    if (fs::path(name).filename() == "model.yaml") {
      return InvalidArgument("'{}' is a model's settings: name the folder it is in", name);
    }
    return ModelPath{.path = name, .cells = {}, .config = {}};
  }
  fs::path folder = fs::absolute(name, error).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // it ended in a slash
  if (HasYaml(folder) || !VersionsIn(folder, false).empty()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(ModelYaml yaml, ReadModelFolder(folder));
    return Resolve(folder, true, std::move(yaml));
  }
  if (HasModel(folder, true) && HasYaml(folder.parent_path())) {
    CHAIRLIFT_ASSIGN_OR_RETURN(ModelYaml yaml, ReadModelFolder(folder.parent_path()));
    return Resolve(folder, false, std::move(yaml));
  }
  if (HasModel(folder, false)) return Resolve(folder, false, {});
  if (const std::vector<std::string> models = ModelsIn(folder); !models.empty()) {
    return InvalidArgument("'{}' is a folder of models: name one of them, as {} (there are: {})",
                           name, (fs::path(name) / models[0]).string(), fmt::join(models, ", "));
  }
  return NotFound(
      "'{}' is no model's folder: it has neither a <version>/model.onnx nor a model.yaml that "
      "names cells",
      name);
}

}  // namespace chairlift
