// The models of an engine: their versions, states and folders.
#ifndef CHAIRLIFT_ENGINE_REPOSITORY_REPOSITORY_H_
#define CHAIRLIFT_ENGINE_REPOSITORY_REPOSITORY_H_

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "chairlift/engine.h"
#include "engine/execution/model.h"
#include "engine/programs/loading_model.h"
#include "engine/repository/model_folder.h"

namespace chairlift {

// Names come from clients and become folder names.
Status CheckModelName(const std::string& name);

// Thread-safe. Loads run one at a time, on the caller's thread; look-ups continue meanwhile.
class Repository {
 public:
  Repository(const LoadOptions& options, std::function<void(const LoadProgress&)> on_load)
      : options_(options), on_load_(std::move(on_load)) {}

  // `path` is an ONNX file; or the version's folder of a model made of cells, whose model.yaml is
  // there or in the folder above; or a pipeline's folder. All other settings are in `config`.
  Status Load(const std::string& name, const std::filesystem::path& path, const ModelConfig& config,
              const std::string& version);
  Status AddFolder(const std::filesystem::path& folder);
  // Loads the versions in the model's folder that its settings select (default: the latest), and
  // unloads other loaded ones. Fails if any version fails; the others serve. For a pipeline, also
  // loads the models of its steps if they are not loaded. Returns the requests that the folders
  // want to run before others. `config`: as in Engine::LoadFromRepository().
  StatusOr<std::vector<InferRequest>> LoadFromFolders(const std::string& name,
                                                      const std::string& config);
  // Engine::LoadTexts().
  Status LoadTexts(const std::string& name, const std::filesystem::path& path,
                   const std::function<bool()>& interrupted);
  // `reason` is shown in the index afterwards.
  Status Unload(const std::string& name, const std::string& version,
                const std::string& reason = "unloaded");

  // A ready model. Empty version: the latest ready one.
  StatusOr<std::shared_ptr<Model>> Find(const std::string& name, const std::string& version) const;
  // All ready models, of one name or (if empty) of all.
  std::vector<std::shared_ptr<Model>> Ready(const std::string& name) const;
  std::vector<ModelIndexEntry> Index() const;

 private:
  struct Entry {
    ModelState state = ModelState::kUnavailable;
    std::string reason;
    std::shared_ptr<Model> model;  // if ready
    std::weak_ptr<Model> leaving;  // unloaded, while its last requests run
  };
  // "9" sorts before "10".
  struct VersionOrder {
    bool operator()(const std::string& a, const std::string& b) const {
      return a.size() != b.size() ? a.size() < b.size() : a < b;
    }
  };
  using Versions = std::map<std::string, Entry, VersionOrder>;

  // `loading`: the pipelines that cause this load, each a step of the one before.
  StatusOr<std::vector<InferRequest>> LoadFolderLocked(const std::string& name,
                                                       const std::vector<std::string>& loading,
                                                       const std::string& config = "");
  // Loads the models of the pipeline's steps that are not loaded.
  StatusOr<std::vector<InferRequest>> LoadSteps(const std::string& name,
                                                const PipelineConfig& pipeline,
                                                std::vector<std::string> loading);
  // Checks that no step leads back to the pipeline.
  Status CheckSteps(const std::string& name, const PipelineConfig& pipeline) const;
  // For a model file with a tokenizer.json beside it: the models that add text inputs
  // (text_model.h). Returns errors to callers that asked for them.
  Status LoadTextsLocked(const std::string& name, const ModelSource& source,
                         const TextSettings& settings, const std::function<bool()>& interrupted);
  // The same if serving of text inputs is enabled; errors are logged.
  void ServeTextsLocked(const std::string& name, const ModelSource& source,
                        const TextSettings& settings);
  // Until the result is destroyed, those for `name` that are not loaded yet count as loading.
  auto MarkTextsLoading(const std::string& name) {
    const auto mark = [this](const std::string& loading) {
      const std::lock_guard<std::mutex> lock(mutex_);
      loading_texts_ = loading;
    };
    mark(options_.serve_texts ? name : "");
    return absl::Cleanup([mark] { mark(""); });
  }
  // Stops serving the text models for `name`, except `served`, which clients use, and those that it
  // consists of.
  std::vector<std::shared_ptr<Model>> RemoveTexts(const std::string& name,
                                                  const std::string& served = "");
  Status LoadLocked(const std::string& name, const ModelSource& source, const FolderConfig& folder,
                    const std::string& version);
  // The versions to load from a model's folder, or why none can be.
  static StatusOr<std::vector<std::string>> ChooseVersions(const std::filesystem::path& folder,
                                                           const FolderConfig& config);
  // The folder of a model, if some repository has it.
  StatusOr<std::filesystem::path> FolderOf(const std::string& name) const;
  static ModelState StateOf(const Entry& entry);

  const LoadOptions options_;
  const std::function<void(const LoadProgress&)> on_load_;  // may be null
  std::mutex load_mutex_;                                   // one load or unload at a time
  mutable std::mutex mutex_;  // guards everything below; never held while a model loads
  std::vector<std::filesystem::path> folders_;
  std::map<std::string, Versions> models_;
  std::map<std::string, std::string> unusable_;  // reason, by folder without a version to load
  std::string loading_texts_;  // the model that is loading, with its text models; empty: none
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REPOSITORY_REPOSITORY_H_
