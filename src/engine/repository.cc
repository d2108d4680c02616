#include "engine/repository.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/status.h"
#include "engine/model_config.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNameBytes = 256;
constexpr size_t kMaxVersionDigits = 18;

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

bool IsVersion(const std::string& text) {
  return !text.empty() && text.size() <= kMaxVersionDigits && (text == "0" || text[0] != '0') &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Status CheckVersion(const std::string& version) {
  if (IsVersion(version)) return absl::OkStatus();
  return InvalidArgument("'{}' cannot be a version: versions are numbers (\"1\", \"12\")", version);
}

// The versions in a model's folder: sub-folders with a number for a name and a model.onnx inside.
std::vector<std::string> VersionsIn(const fs::path& folder) {
  std::vector<std::string> versions;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (IsVersion(name) && fs::is_regular_file(it->path() / "model.onnx", ignored)) {
      versions.push_back(name);
    }
  }
  return versions;
}

}  // namespace

Status Repository::Load(const std::string& name, const fs::path& file, const ModelConfig& config,
                        const std::string& version) {
  const std::lock_guard<std::mutex> loading(load_mutex_);
  return LoadLocked(name, file, config, version);
}

Status Repository::LoadLocked(const std::string& name, const fs::path& file,
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
  StatusOr<std::shared_ptr<Model>> model = Model::Load(name, version, file, config, workers_);
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
  const std::vector<std::string> versions = VersionsIn(folder);
  if (versions.empty()) {
    return NotFound("model '{}' has no version: {} has no <number>/model.onnx", name,
                    folder.string());
  }
  ModelConfig config;
  std::error_code error;
  if (fs::exists(folder / "model.yaml", error)) {
    CHAIRLIFT_ASSIGN_OR_RETURN(config, ReadModelConfig(folder / "model.yaml"));
  }
  Status first_error;
  for (const std::string& version : versions) {
    first_error.Update(LoadLocked(name, folder / version / "model.onnx", config, version));
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
      if (VersionsIn(it->path()).empty()) continue;
      models[name];
      index.push_back({name, "", ModelState::kUnavailable, "not loaded"});
    }
  }
  return index;
}

}  // namespace chairlift
