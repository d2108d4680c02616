#include "engine/repository/repository.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <optional>
#include <system_error>
#include <utility>

#include "base/closest.h"
#include "base/out_of_memory.h"
#include "base/status.h"
#include "engine/programs/process/worker_script.h"
#include "engine/repository/folder_contents.h"
#include "engine/repository/load_model.h"
#include "engine/repository/model_folder.h"
#include "engine/repository/text_model.h"
#include "engine/repository/triton/triton_config.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNameBytes = 256;
constexpr const char* kPipelineVersion = kOnlyVersion;  // it has no version folders
// Limit on the names that an unknown name is compared with, because clients wait meanwhile.
constexpr size_t kMaxCompared = 64;

Status CheckVersion(const std::string& version) {
  if (IsVersion(version)) return absl::OkStatus();
  return InvalidArgument("'{}' cannot be a version: versions are numbers (\"1\", \"12\")", version);
}

// The models that must exist before it, as steps: those of a pipeline, or those that a Python model
// calls.
std::optional<PipelineConfig> CalledBy(const std::optional<PipelineConfig>& pipeline,
                                       const std::optional<FunctionConfig>& function) {
  if (pipeline || !function || function->calls.empty()) return pipeline;
  PipelineConfig called;
  for (const auto& [name, model] : function->calls) called.steps.push_back({.model = model});
  return called;
}

// The text settings in the model.yaml for the model's file.
TextSettings TextSettingsBeside(const fs::path& path) {
  for (const fs::path& folder : FoldersOfModel(path.parent_path())) {
    if (!HasSettings(folder)) continue;
    const StatusOr<FolderConfig> read = ReadModelFolder(folder);
    return read.ok() ? read->texts : TextSettings();
  }
  return {};
}

// The text models that there may be for the model `name`.
std::array<std::string, 6> TextNames(const std::string& name) {
  return {EmbedName(name),    RerankName(name),    PredictName(name),
          CompleteName(name), TokenizerName(name), DetokenizerName(name)};
}

// Makes a warm-up request a sequence. The engine fills in the controls, whatever it contains.
void MakeSequence(const RequestRules& rules, InferRequest& request) {
  for (const SequenceControl& control : rules.controls) {
    std::erase_if(request.inputs,
                  [&](const NamedTensor& input) { return input.name == control.input; });
  }
  request.sequence = "warm-up";
  request.sequence_start = request.sequence_end = true;
}

}  // namespace

Status CheckModelName(const std::string& name) {
  if (name.empty()) return InvalidArgument("a model's name must not be empty");
  if (name.size() > kMaxNameBytes) {
    return InvalidArgument("a model's name has {} bytes; it may have {}", name.size(),
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

Status Repository::Load(const std::string& name, const fs::path& path, const ModelConfig& config,
                        const std::string& version) {
  ModelSource source{.path = path};
  std::error_code error;
  source.function = ParseFunction(path.string());
  if (source.function) {
    source.path = source.function->file;
    source.named_by_user = true;
    if (!fs::is_regular_file(source.path, error)) {
      return NotFound("there is no file '{}'", source.path.string());
    }
  } else if (fs::is_directory(path, error)) {
    fs::path folder = fs::absolute(path, error).lexically_normal();
    if (!folder.has_filename()) folder = folder.parent_path();  // it ended in a slash
    const bool here =
        fs::symlink_status(folder / "model.yaml", error).type() != fs::file_type::not_found;
    CHAIRLIFT_ASSIGN_OR_RETURN(FolderConfig read,
                               ReadModelFolder(here ? folder : folder.parent_path()));
    if (!read.cells && !read.function && !read.pipeline) {
      return InvalidArgument(
          "{} is a folder without a model.yaml that names cells, a function, or steps",
          path.string());
    }
    source.cells = std::move(read.cells);
    source.function = std::move(read.function);
    source.pipeline = std::move(read.pipeline);
    if (source.function) source.path = folder / source.function->file;
  }
  if (source.function) {
    CHAIRLIFT_RETURN_IF_ERROR(ApplyFunctionSettings(config.function, *source.function));
  }
  const auto rename = [&](std::string& model) {
    const auto own = config.model_names.find(model);
    if (own != config.model_names.end()) model = own->second;
  };
  if (source.function) {
    for (auto& [named, model] : source.function->calls) rename(model);
  }
  if (source.pipeline) {
    for (StepConfig& step : source.pipeline->steps) rename(step.model);
  }
  FolderConfig given;
  if (!config.config_file.empty() && !source.pipeline) {
    const fs::path file = config.config_file;
    CHAIRLIFT_ASSIGN_OR_RETURN(given, ReadConfigFile(file, file.parent_path()));
    source.ports = given.ports;
    source.rules = given.rules;
  }
  given.config = config;
  const std::lock_guard<std::mutex> loading(load_mutex_);
  CHAIRLIFT_RETURN_IF_ERROR(CheckModelName(name));
  const auto texts_load = MarkTextsLoading(name);
  CHAIRLIFT_RETURN_IF_ERROR(LoadLocked(name, source, given, version));
  if (options_.serve_texts) ServeTextsLocked(name, source, TextSettingsBeside(path));
  return absl::OkStatus();
}

Status Repository::LoadTexts(const std::string& name, const fs::path& path,
                             const std::function<bool()>& interrupted) {
  const std::lock_guard<std::mutex> loading(load_mutex_);
  return LoadTextsLocked(name, {.path = path}, TextSettingsBeside(path), interrupted);
}

Status Repository::LoadLocked(const std::string& name, const ModelSource& source,
                              const FolderConfig& folder, const std::string& version) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckVersion(version));
  {
    const MemoryReserve::Use use;
    const std::lock_guard<std::mutex> lock(mutex_);
    Entry& entry = models_[name][version];
    // A version that is replaced serves until the new one is ready.
    if (entry.model == nullptr) {
      entry.state = ModelState::kLoading;
      entry.reason.clear();
    }
  }
  LoadOptions options = options_;
  options.allow_plugins |= folder.config.allow_plugins;
  if (on_load_ != nullptr) {
    options.progress = [&](const char* step, double done) { on_load_({name, step, done}); };
  }
  using Loaded = StatusOr<std::shared_ptr<Model>>;
  Loaded model = CatchOutOfMemory([&]() -> Loaded {
    if (const auto called = CalledBy(source.pipeline, source.function)) {
      CHAIRLIFT_RETURN_IF_ERROR(CheckSteps(name, *called));
    }
    return LoadModel(name, version, source, folder.config, options);
  });
  const MemoryReserve::Use use;
  options.Report("");
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
  if (!folder.ignored.empty()) {
    entry.reason = fmt::format("config.pbtxt: ignored: {}", fmt::join(folder.ignored, ", "));
  }
  return absl::OkStatus();
}

void Repository::ServeTextsLocked(const std::string& name, const ModelSource& source,
                                  const TextSettings& settings) {
  if (!options_.serve_texts || source.cells || source.function || source.pipeline) return;
  const Status loaded = LoadTextsLocked(name, source, settings, nullptr);
  if (loaded.ok() || absl::IsNotFound(loaded)) return;
  spdlog::warn("model '{}' takes no text inputs: {}", name, Message(loaded));
}

Status Repository::LoadTextsLocked(const std::string& name, const ModelSource& source,
                                   const TextSettings& settings,
                                   const std::function<bool()>& interrupted) {
  std::string served;  // the text model that clients use
  const auto load = [&]() -> Status {
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::shared_ptr<Model> model, Find(name, ""));
    const Status none = NotFound("there is no tokenizer.json beside its file");
    const StatusOr<fs::path> script = FindWorkerScript();
    if (!script.ok()) {
      std::error_code error;
      const fs::path tokenizer = FileOfModel(source.path.parent_path(), "tokenizer.json");
      return fs::exists(tokenizer, error) ? Unavailable("{}", Message(script.status())) : none;
    }
    const fs::path folder = script->parent_path();
    const Program& program = model->program();
    std::vector<fs::path> folders = {FoldersOfModel(source.path.parent_path()).back()};
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      folders.insert(folders.end(), folders_.begin(), folders_.end());
    }
    const auto load_function = [&](const std::string& own, FunctionConfig function) -> Status {
      function.data_folders = folders;
      FolderConfig given;
      given.config.interrupted = interrupted;
      Status loaded =
          LoadLocked(own, {.path = function.file, .function = function}, given, kPipelineVersion);
      // A missing Python must be reported, not treated like a missing tokenizer.
      return absl::IsNotFound(loaded) ? Unavailable("{}", Message(loaded)) : loaded;
    };
    if (program.Generation()) {
      CHAIRLIFT_ASSIGN_OR_RETURN(
          const auto found, FindCompletionModel(name, source.path, program.signature(), folder));
      if (!found) return none;
      CHAIRLIFT_RETURN_IF_ERROR(load_function(TokenizerName(name), found->tokenizer));
      CHAIRLIFT_RETURN_IF_ERROR(load_function(DetokenizerName(name), found->detokenizer));
      served = CompleteName(name);
      return LoadLocked(served, {.path = {}, .completion = found->completion}, FolderConfig(),
                        kPipelineVersion);
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(
        const auto found, FindTextModel(name, source.path, settings, program.signature(), folder));
    if (!found) return none;
    if (!found->ignored.empty()) {
      spdlog::warn("model '{}': these settings of its tokenizer files have no effect: {}", name,
                   fmt::join(found->ignored, ", "));
    }
    CHAIRLIFT_RETURN_IF_ERROR(load_function(TokenizerName(name), found->tokenizer));
    served = found->pairs ? RerankName(name) : found->classes ? PredictName(name) : EmbedName(name);
    return LoadLocked(served, {.path = {}, .pipeline = found->pipeline}, FolderConfig(),
                      kPipelineVersion);
  };
  Status loaded = CatchOutOfMemory(load);
  // Freed outside the lock.
  const auto replaced = RemoveTexts(name, loaded.ok() ? served : "");
  struct Kind {
    std::string name;
    const char* gives;
  };
  const Kind kinds[] = {{EmbedName(name), "embeddings"},
                        {RerankName(name), "scores of pairs"},
                        {PredictName(name), "classes of text"},
                        {CompleteName(name), "generated text"}};
  const auto kind = std::find_if(std::begin(kinds), std::end(kinds),
                                 [&](const Kind& one) { return one.name == served; });
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Kind& own : kinds) {
    if (!loaded.ok()) {
      unusable_[own.name] = Message(loaded);
    } else if (own.name != served) {
      unusable_[own.name] = fmt::format("it gives {}, not {}", kind->gives, own.gives);
    }
  }
  return loaded;
}

std::vector<std::shared_ptr<Model>> Repository::RemoveTexts(const std::string& name,
                                                            const std::string& served) {
  std::vector<std::shared_ptr<Model>> removed;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const std::string& own : TextNames(name)) {
    const bool needed = own == TokenizerName(name) ||
                        (own == DetokenizerName(name) && served == CompleteName(name));
    if (!served.empty() && (own == served || needed)) continue;
    unusable_.erase(own);
    const auto found = models_.find(own);
    if (found == models_.end()) continue;
    for (auto& [version, entry] : found->second) removed.push_back(std::move(entry.model));
    models_.erase(found);
  }
  return removed;
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
  CHAIRLIFT_RETURN_IF_ERROR(CheckModelName(name));
  std::vector<fs::path> folders;
  bool known = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    folders = folders_;
    known = models_.contains(name);
  }
  if (folders.empty() && known) {
    return InvalidArgument(
        "model '{}' was named on the command line, so clients cannot load it; they can load models "
        "of a --model-repository",
        name);
  }
  if (folders.empty()) {
    return NotFound("no model '{}': there is no model repository (--model-repository)", name);
  }
  for (const fs::path& folder : folders) {
    std::error_code error;
    if (fs::is_directory(folder / name, error)) return HubSnapshot(folder / name);
  }
  std::vector<std::string> names;
  for (const fs::path& folder : folders) {
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      if (it->is_directory(error)) names.push_back(it->path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return NotFound("no model '{}' in the model repository {}{}", name, folders[0].string(),
                  KnownNames(name, names));
}

StatusOr<std::vector<std::string>> Repository::ChooseVersions(const fs::path& folder,
                                                              const FolderConfig& config) {
  if (config.pipeline) return std::vector<std::string>{kPipelineVersion};
  const std::vector<std::string> available = VersionsIn(folder, config.file);
  if (!available.empty()) return config.versions.Select(available);
  if (HasModel(folder, config.file)) return config.versions.Select({kOnlyVersion});
  for (const std::string& version : VersionFolders(folder)) {
    const std::string_view backend = OtherBackend(folder / version);
    if (backend.empty()) continue;
    return Unimplemented(
        "{} is a model of {}; only ONNX models are served: export it (docs/reference/exporters.md)",
        (folder / version).string(), backend);
  }
  if (VersionFolders(folder).empty()) {
    return NotFound("it has no version folder; versions are numbers, as {}{}",
                    (folder.filename() / kOnlyVersion / config.file).string(),
                    WhatFolderHas(folder));
  }
  const fs::path latest = folder / VersionFolders(folder).back();
  return NotFound("it has no version: {} has no {}{}{}", latest.string(), config.file,
                  config.file == kModelFile ? kOrEncoderDecoder : "", WhatFolderHas(latest));
}

StatusOr<std::vector<InferRequest>> Repository::LoadFromFolders(const std::string& name,
                                                                const std::string& config) {
  const std::lock_guard<std::mutex> loading(load_mutex_);
  return LoadFolderLocked(name, {}, config);
}

Status Repository::CheckSteps(const std::string& name, const PipelineConfig& pipeline) const {
  for (size_t i = 0; i < pipeline.steps.size(); ++i) {
    const std::string& step = pipeline.steps[i].model;
    const StatusOr<std::shared_ptr<Model>> model = Find(step, pipeline.steps[i].version);
    if (step != name && (!model.ok() || !(*model)->program().Calls(name))) continue;
    return InvalidArgument("{}: it leads back to '{}': a pipeline must not be a step of itself",
                           StepName(pipeline, i), name);
  }
  return absl::OkStatus();
}

StatusOr<std::vector<InferRequest>> Repository::LoadSteps(const std::string& name,
                                                          const PipelineConfig& pipeline,
                                                          std::vector<std::string> loading) {
  loading.push_back(name);
  std::vector<InferRequest> warm_up;
  for (size_t i = 0; i < pipeline.steps.size(); ++i) {
    const std::string& step = pipeline.steps[i].model;
    if (std::find(loading.begin(), loading.end(), step) != loading.end()) {
      return InvalidArgument("{}: it leads back to itself ({} → {}): order the models without that",
                             StepName(pipeline, i), fmt::join(loading, " → "), step);
    }
    if (Find(step, pipeline.steps[i].version).ok()) continue;
    StatusOr<std::vector<InferRequest>> loaded = LoadFolderLocked(step, loading);
    if (!loaded.ok()) return Annotate(loaded.status(), StepName(pipeline, i));
    std::move(loaded->begin(), loaded->end(), std::back_inserter(warm_up));
  }
  return warm_up;
}

StatusOr<std::vector<InferRequest>> Repository::LoadFolderLocked(
    const std::string& name, const std::vector<std::string>& loading, const std::string& given) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const fs::path folder, FolderOf(name));
  StatusOr<FolderConfig> config = given.empty() ? ReadModelFolder(folder, options_.config_name)
                                                : ParseTritonJson(given, folder);
  const StatusOr<std::vector<std::string>> versions =
      config.ok() ? ChooseVersions(folder, *config) : config.status();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    unusable_.erase(name);
    if (!versions.ok()) unusable_[name] = Message(versions.status());
  }
  if (!versions.ok()) return Annotate(versions.status(), fmt::format("model '{}'", name));
  if (!config->ignored.empty()) {
    spdlog::warn("model '{}': config.pbtxt: ignored fields: {}", name,
                 fmt::join(config->ignored, ", "));
  }
  std::vector<InferRequest> warm_up;
  if (const auto called = CalledBy(config->pipeline, config->function)) {
    auto steps = LoadSteps(name, *called, loading);
    if (!steps.ok()) {
      const std::lock_guard<std::mutex> lock(mutex_);
      unusable_[name] = Message(steps.status());
      return Annotate(steps.status(), fmt::format("model '{}'", name));
    }
    warm_up = *std::move(steps);
  }
  const auto texts_load = MarkTextsLoading(name);
  Status first_error;
  for (const std::string& version : *versions) {
    const fs::path in = VersionFolder(folder, version, config->file);
    const fs::path path = config->cells ? in : ModelFile(in, config->file);
    const ModelSource source{.path = path,
                             .cells = config->cells,
                             .function = config->function,
                             .pipeline = config->pipeline,
                             .ports = config->ports,
                             .rules = config->rules};
    first_error.Update(LoadLocked(name, source, *config, version));
    if (version == versions->back() && first_error.ok()) {
      ServeTextsLocked(name, source, config->texts);
    }
  }
  const MemoryReserve::Use use;
  std::vector<std::shared_ptr<Model>> gone;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [version, entry] : models_[name]) {
    if (std::find(versions->begin(), versions->end(), version) != versions->end()) continue;
    entry.leaving = entry.model;
    entry.state = ModelState::kUnavailable;
    entry.reason = "not, or no longer, a version to be served";
    gone.push_back(std::move(entry.model));
  }
  if (!first_error.ok()) return first_error;
  for (const std::string& version : *versions) {
    for (InferRequest request : config->warm_up) {
      request.model = name;
      request.version = version;
      if (config->rules.sequences_only) MakeSequence(config->rules, request);
      warm_up.push_back(std::move(request));
    }
  }
  return warm_up;
}

Status Repository::Unload(const std::string& name, const std::string& version,
                          const std::string& reason) {
  const std::lock_guard<std::mutex> loading(load_mutex_);
  const MemoryReserve::Use use;
  std::vector<std::shared_ptr<Model>> unloaded;  // freed outside the lock
  std::vector<std::shared_ptr<Model>> texts;
  if (version.empty()) texts = RemoveTexts(name);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = models_.find(name);
  if (found == models_.end()) return NotFound("no model '{}' is loaded", name);
  for (auto& [number, entry] : found->second) {
    if (entry.model == nullptr || (!version.empty() && number != version)) continue;
    entry.leaving = entry.model;
    entry.state = ModelState::kUnavailable;
    entry.reason = reason;
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
  std::unique_lock<std::mutex> lock(mutex_);
  const auto found = models_.find(name);
  if (found == models_.end()) {
    std::vector<std::string> names;
    for (const auto& [other, versions] : models_) {
      const bool loaded = std::any_of(versions.begin(), versions.end(), [](const auto& version) {
        return version.second.model != nullptr;
      });
      const bool part = other.find('/') != std::string::npos;  // of a text model
      if (loaded && !part && names.size() < kMaxCompared) names.push_back(other);
    }
    if (const auto why = unusable_.find(name); why != unusable_.end()) {
      return NotFound("no model '{}' is loaded: {}", name, why->second);
    }
    if (!loading_texts_.empty()) {
      const auto texts = TextNames(loading_texts_);
      if (std::find(texts.begin(), texts.end(), name) != texts.end()) {
        return Unavailable("model '{}' is not ready: it is loading", name);
      }
    }
    lock.unlock();
    constexpr size_t kMostListed = 16;
    return NotFound("no model '{}' is loaded{}", name,
                    names.size() > kMostListed ? DidYouMean(name, names) : KnownNames(name, names));
  }
  const Versions& versions = found->second;
  if (!version.empty()) {
    const auto entry = versions.find(version);
    if (entry == versions.end()) {
      std::vector<std::string> known;
      for (const auto& [number, unused] : versions) known.push_back(number);
      return NotFound("model '{}' has no version '{}'{}", name, version, KnownNames("", known));
    }
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
  std::map<std::string, std::string> unusable;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    folders = folders_;
    models = models_;
    unusable = unusable_;
  }
  for (const auto& [name, versions] : models) {
    for (const auto& [version, entry] : versions) {
      index.push_back({name, version, StateOf(entry), entry.reason});
      if (entry.model == nullptr) continue;
      if (const Status ready = entry.model->program().Ready(); !ready.ok()) {
        index.back().state = ModelState::kUnavailable;
        index.back().reason = Message(ready);
      }
    }
  }
  // Models in the folders that were never loaded.
  for (const fs::path& folder : folders) {
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      std::error_code ignored;
      if (!CheckModelName(name).ok() || models.contains(name) || !it->is_directory(ignored))
        continue;
      models[name];
      const auto why = unusable.find(name);
      index.push_back(
          {name, "", ModelState::kUnavailable, why == unusable.end() ? "not loaded" : why->second});
    }
  }
  std::stable_sort(index.begin(), index.end(),
                   [](const auto& a, const auto& b) { return a.name < b.name; });
  return index;
}

}  // namespace chairlift
