// The models an engine has: which versions, in which state, and from where.
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

#include "chairlift/engine.h"
#include "engine/execution/model.h"
#include "engine/programs/loading_model.h"
#include "engine/repository/model_folder.h"

namespace chairlift {

// Thread-safe. Loads run one at a time, on the caller's thread; look-ups go on meanwhile.
class Repository {
 public:
  Repository(const LoadOptions& options, std::function<void(const LoadProgress&)> on_load)
      : options_(options), on_load_(std::move(on_load)) {}

  // `path` is an ONNX file, or the version's folder of a model made of cells, which the model.yaml
  // there or in the folder above lists, or a pipeline's folder; all other settings are those of
  // `config`.
  Status Load(const std::string& name, const std::filesystem::path& path, const ModelConfig& config,
              const std::string& version);
  Status AddFolder(const std::filesystem::path& folder);
  // The versions in the model's folder that its settings choose (the latest); others that were
  // loaded are unloaded. Fails where any version does; the others serve. Of a pipeline also the
  // models of its steps, where they are not loaded. Returns the requests that the folders ask to be
  // run before others come.
  // `config`: as Engine::LoadFromRepository() has it.
  StatusOr<std::vector<InferRequest>> LoadFromFolders(const std::string& name,
                                                      const std::string& config);
  // Engine::LoadTexts().
  Status LoadTexts(const std::string& name, const std::filesystem::path& path,
                   const std::function<bool()>& interrupted);
  // `reason` is what the index then says of it.
  Status Unload(const std::string& name, const std::string& version,
                const std::string& reason = "unloaded");

  // A model that is ready. Empty version: the latest that is.
  StatusOr<std::shared_ptr<Model>> Find(const std::string& name, const std::string& version) const;
  // All that are ready, of one name or (empty) of all.
  std::vector<std::shared_ptr<Model>> Ready(const std::string& name) const;
  std::vector<ModelIndexEntry> Index() const;

 private:
  struct Entry {
    ModelState state = ModelState::kUnavailable;
    std::string reason;
    std::shared_ptr<Model> model;  // where ready
    std::weak_ptr<Model> leaving;  // unloaded, while its last requests run
  };
  // "9" before "10".
  struct VersionOrder {
    bool operator()(const std::string& a, const std::string& b) const {
      return a.size() != b.size() ? a.size() < b.size() : a < b;
    }
  };
  using Versions = std::map<std::string, Entry, VersionOrder>;

  // `loading`: the pipelines that this is loaded for, each of which is a step of the one before.
  StatusOr<std::vector<InferRequest>> LoadFolderLocked(const std::string& name,
                                                       const std::vector<std::string>& loading,
                                                       const std::string& config = "");
  // Loads the models of the pipeline's steps that are not loaded.
  StatusOr<std::vector<InferRequest>> LoadSteps(const std::string& name,
                                                const PipelineConfig& pipeline,
                                                std::vector<std::string> loading);
  // That no step leads back to the pipeline.
  Status CheckSteps(const std::string& name, const PipelineConfig& pipeline) const;
  // Where it is a model file with a tokenizer.json beside it, the models that take texts for it
  // (text_model.h). What is wrong with these is said to who asks for them.
  Status LoadTextsLocked(const std::string& name, const ModelSource& source,
                         const TextSettings& settings, const std::function<bool()>& interrupted);
  // The same, if models serve texts; what is wrong is logged.
  void ServeTextsLocked(const std::string& name, const ModelSource& source,
                        const TextSettings& settings);
  // Takes the models of texts for `name` out of what is served, but for the one that clients ask,
  // `served`, and those that it is made of.
  std::vector<std::shared_ptr<Model>> RemoveTexts(const std::string& name,
                                                  const std::string& served = "");
  Status LoadLocked(const std::string& name, const ModelSource& source, const FolderConfig& folder,
                    const std::string& version);
  // What is to be loaded of a model's folder, or why nothing can be.
  static StatusOr<std::vector<std::string>> ChooseVersions(const std::filesystem::path& folder,
                                                           const FolderConfig& config);
  // The folder of a model, where some repository has it.
  StatusOr<std::filesystem::path> FolderOf(const std::string& name) const;
  static ModelState StateOf(const Entry& entry);

  const LoadOptions options_;
  const std::function<void(const LoadProgress&)> on_load_;  // may be null
  std::mutex load_mutex_;                                   // one load or unload at a time
  mutable std::mutex mutex_;  // guards all below; never held while a model loads
  std::vector<std::filesystem::path> folders_;
  std::map<std::string, Versions> models_;
  std::map<std::string, std::string> unusable_;  // why, by folder without a version to load
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REPOSITORY_REPOSITORY_H_
