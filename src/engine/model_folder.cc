#include "engine/model_folder.h"

#include <algorithm>
#include <system_error>

#include "base/status.h"
#include "engine/model_config.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxVersionDigits = 18;

StatusOr<ModelYaml> ParseYaml(const std::string& text) {
  ModelYaml yaml;
  CHAIRLIFT_ASSIGN_OR_RETURN(yaml.config, ParseModelConfig(text));
  CHAIRLIFT_ASSIGN_OR_RETURN(yaml.cells, ParseCellManifest(text));
  return yaml;
}

}  // namespace

StatusOr<ModelYaml> ReadModelFolder(const fs::path& folder) {
  const fs::path file = folder / "model.yaml";
  std::error_code error;
  if (!fs::exists(file, error)) return ModelYaml{};
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::string text, ReadModelYaml(file));
  StatusOr<ModelYaml> yaml = ParseYaml(text);
  if (!yaml.ok()) return Annotate(yaml.status(), file.string());
  return yaml;
}

bool IsVersion(const std::string& text) {
  return !text.empty() && text.size() <= kMaxVersionDigits && (text == "0" || text[0] != '0') &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool HasModel(const fs::path& version, bool of_cells) {
  std::error_code error;
  if (!of_cells) return fs::is_regular_file(version / "model.onnx", error);
  for (fs::directory_iterator it(version, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".onnx") return true;
  }
  return false;
}

std::vector<std::string> VersionsIn(const fs::path& folder, bool of_cells) {
  std::vector<std::string> versions;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (IsVersion(name) && HasModel(it->path(), of_cells)) versions.push_back(name);
  }
  std::sort(versions.begin(), versions.end(), [](const std::string& x, const std::string& y) {
    return x.size() != y.size() ? x.size() < y.size() : x < y;
  });
  return versions;
}

}  // namespace chairlift
