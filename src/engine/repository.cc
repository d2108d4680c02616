#include "engine/repository.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "base/status.h"
#include "engine/model_folder.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNameBytes = 256;

// Names come from clients and become folder names.
Status CheckName(const std::string& name) {
  if (name.empty()) return InvalidArgument("a model's name must not be empty");
  if (name.size() > kMaxNameBytes) {
    return InvalidArgument("a model's name has {} bytes; at most {} are possible", name.size(),
                           kMaxNameBytes);
  }
  const bool printable = std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f && c != '/' && c != '\\';
  });
  if (!printable || name[0] == '.') {
    return InvalidArgument(
        "'{}' cannot be a model's name: it must not start with '.', nor have slashes or control "
        "characters",
        name);
  }
  return absl::OkStatus();
}

Status CheckVersion(const std::string& version) {
  if (IsVersion(version)) return absl::OkStatus();
  return InvalidArgument("'{}' cannot be a version: versions are numbers (\"1\", \"12\")", version);
}

}  // namespace

Status Repository::Load(const std::string& name, const fs::path& path, const ModelConfig& config,
                        const std::string& version) {
  ModelSource source{.path = path};
  std::error_code error;
  if (fs::is_directory(path, error)) {
    fs::path folder = fs::absolute(path, error).lexically_normal();
    if (!folder.has_filename()) folder = folder.parent_path();  // it ended in a slash
    const bool here = fs::exists(folder / "model.yaml", error);
    CHAIRLIFT_ASSIGN_OR_RETURN(ModelYaml yaml,
                               ReadModelFolder(here ? folder : folder.parent_path()));
    if (!yaml.cells) {
      return InvalidArgument("{} is a folder without a model.yaml that names cells", path.string());
    }
    source.cells = std::move(yaml.cells);
  }
  const std::lock_guard<std::mutex> loading(load_mutex_);
  return LoadLocked(name, source, config, version);
}

Status Repository::LoadLocked(const std::string& name, const ModelSource& source,
                              const ModelConfig& config, const std::string& version) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckName(name));
  CHAIRLIFT_RETURN_IF_ERROR(CheckVersion(version));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Entry& entry = models_[name][version];
    // A version that is replaced serves until the new one is ready.
    if (entry.model == nullptr) {
      entry.state = ModelState::kLoading;
      entry.reason.clear();
    }
  }
  LoadOptions options = options_;
  if (on_load_ != nullptr) {
    options.progress = [&](const char* step, double done) { on_load_({name, step, done}); };
  }
  StatusOr<std::shared_ptr<Model>> model = Model::Load(name, version, source, config, options);
  options.Tell("");
  std::shared_ptr<Model> replaced;  // freed outside the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = models_[name][version];
  if (!model.ok()) {
    if (entry.model == nullptr) {
      entry.state = ModelState::kUnavailable;
      entry.reason = Message(model.status());
    }
    return Annotate(model.status(), fmt::format("model '{}', version {}", name, version));
  }
  replaced = std::exchange(entry.model, *std::move(model));
  entry.state = ModelState::kReady;
  entry.reason.clear();
  return absl::OkStatus();
}

Status Repository::AddFolder(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return NotFound("the model repository '{}' is not a folder that can be read", folder.string());
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  folders_.push_back(folder);
  return absl::OkStatus();
}

StatusOr<fs::path> Repository::FolderOf(const std::string& name) const {
  CHAIRLIFT_RETURN_IF_ERROR(CheckName(name));
  std::vector<fs::path> folders;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    folders = folders_;
  }
  if (folders.empty()) return NotFound("no model '{}': the engine has no model repository", name);
  for (const fs::path& folder : folders) {
    std::error_code error;
    if (fs::is_directory(folder / name, error)) return folder / name;
  }
  return NotFound("no model '{}' in the model repository {}", name, folders[0].string());
}

Status Repository::LoadFromFolders(const std::string& name) {
  const std::lock_guard<std::mutex> loading(load_mutex_);
  CHAIRLIFT_ASSIGN_OR_RETURN(const fs::path folder, FolderOf(name));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ModelYaml yaml, ReadModelFolder(folder));
  const std::vector<std::string> versions = VersionsIn(folder, yaml.cells.has_value());
  if (versions.empty()) {
    return NotFound("model '{}' has no version: {} has no <number>/{}", name, folder.string(),
                    yaml.cells ? "*.onnx" : "model.onnx");
  }
  Status first_error;
  for (const std::string& version : versions) {
    const fs::path path = yaml.cells ? folder / version : folder / version / "model.onnx";
    first_error.Update(LoadLocked(name, {path, yaml.cells}, yaml.config, version));
  }
  std::vector<std::shared_ptr<Model>> gone;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [version, entry] : models_[name]) {
    if (std::find(versions.begin(), versions.end(), version) != versions.end()) continue;
    entry.leaving = entry.model;
    entry.state = ModelState::kUnavailable;
    entry.reason = "gone from the model repository";
    gone.push_back(std::move(entry.model));
  }
  return first_error;
}

Status Repository::Unload(const std::string& name, const std::string& version) {
  const std::lock_guard<std::mutex> loading(load_mutex_);
  std::vector<std::shared_ptr<Model>> unloaded;  // freed outside the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = models_.find(name);
  if (found == models_.end()) return NotFound("no model '{}' is loaded", name);
  for (auto& [number, entry] : found->second) {
    if (entry.model == nullptr || (!version.empty() && number != version)) continue;
    entry.leaving = entry.model;
    entry.state = ModelState::kUnavailable;
    entry.reason = "unloaded";
    unloaded.push_back(std::move(entry.model));
  }
  if (unloaded.empty()) {
    return version.empty() ? NotFound("no version of model '{}' is loaded", name)
                           : NotFound("version {} of model '{}' is not loaded", version, name);
  }
  return absl::OkStatus();
}

StatusOr<std::shared_ptr<Model>> Repository::Find(const std::string& name,
                                                  const std::string& version) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = models_.find(name);
  if (found == models_.end()) return NotFound("no model '{}' is loaded", name);
  const Versions& versions = found->second;
  if (!version.empty()) {
    const auto entry = versions.find(version);
    if (entry == versions.end()) return NotFound("model '{}' has no version '{}'", name, version);
    if (entry->second.model != nullptr) return entry->second.model;
    const std::string& reason = entry->second.reason;
    return Unavailable("version {} of model '{}' is not ready: {}", version, name,
                       reason.empty() ? "it is loading" : reason);
  }
  for (auto it = versions.rbegin(); it != versions.rend(); ++it) {
    if (it->second.model != nullptr) return it->second.model;
  }
  const std::string& reason = versions.rbegin()->second.reason;
  return Unavailable("model '{}' is not ready: {}", name,
                     reason.empty() ? "it is loading" : reason);
}

std::vector<std::shared_ptr<Model>> Repository::Ready(const std::string& name) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<Model>> ready;
  for (const auto& [model, versions] : models_) {
    if (!name.empty() && model != name) continue;
    for (const auto& [version, entry] : versions) {
      if (entry.model != nullptr) ready.push_back(entry.model);
    }
  }
  return ready;
}

ModelState Repository::StateOf(const Entry& entry) {
  if (entry.state == ModelState::kUnavailable && !entry.leaving.expired()) {
    return ModelState::kUnloading;
  }
  return entry.state;
}

std::vector<ModelIndexEntry> Repository::Index() const {
  std::vector<ModelIndexEntry> index;
  std::vector<fs::path> folders;
  std::map<std::string, Versions> models;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    folders = folders_;
    models = models_;
  }
  for (const auto& [name, versions] : models) {
    for (const auto& [version, entry] : versions) {
      index.push_back({name, version, StateOf(entry), entry.reason});
    }
  }
  // What lies in the folders and was never loaded.
  for (const fs::path& folder : folders) {
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (!CheckName(name).ok() || models.contains(name)) continue;
      if (VersionsIn(it->path(), true).empty()) continue;
      models[name];
      index.push_back({name, "", ModelState::kUnavailable, "not loaded"});
    }
  }
  return index;
}

}  // namespace chairlift
