// Engines, models and requests as Python sees them.
#ifndef CHAIRLIFT_PYTHON_MODEL_H_
#define CHAIRLIFT_PYTHON_MODEL_H_

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chairlift/engine.h"

namespace chairlift::python {

// An engine, shared by its models. Its methods hold the interpreter's lock, and let go of it
// where they may take long.
class EngineHandle {
 public:
  explicit EngineHandle(const EngineOptions& options);
  EngineHandle(const EngineHandle&) = delete;
  EngineHandle& operator=(const EngineHandle&) = delete;
  ~EngineHandle();

  // Raises Unavailable after Close(), and in a child of the process that made it.
  std::shared_ptr<Engine> Get() const;
  // Unless this is a child of the process that made it; null after Close().
  std::shared_ptr<Engine> GetIfAny() const;
  // Fails what still runs and waits for the engine's threads, and interrupted loads, to end.
  void Close();
  // Cancelled where a signal's handler raised, as RaiseInterrupt() does then; the model is not
  // loaded then, if not at once.
  Status Load(const std::string& name, const std::string& path, ModelConfig config,
              const std::string& version);
  // Likewise, Engine::LoadTexts().
  Status LoadTexts(const std::string& name, const std::string& path);
  // `stem`, or "stem-2", ...: a name that no other model of the engine has had.
  std::string UnusedName(const std::string& stem);

 private:
  // Runs `load`, which may ask now and then whether it is to end, and then `undo` if it did not.
  Status RunLoad(const std::function<Status(Engine&, const std::function<bool()>&)>& load,
                 const std::function<void(Engine&)>& undo);

  const pid_t process_ = ::getpid();
  std::shared_ptr<Engine> engine_;
  std::vector<std::string> names_;
  std::vector<std::thread> interrupted_loads_;
};

// A request that has been submitted.
class PendingRequest {
 public:
  PendingRequest(std::weak_ptr<Engine> engine, RequestId id,
                 std::shared_ptr<std::atomic<int64_t>> unread)
      : engine_(std::move(engine)), id_(id), unread_(std::move(unread)) {}
  void Cancel() const;
  // That many bytes of its parts have been read.
  void Read(int64_t bytes) const { *unread_ -= bytes; }

 private:
  std::weak_ptr<Engine> engine_;
  RequestId id_;
  std::shared_ptr<std::atomic<int64_t>> unread_;
};

// A loaded model, which is unloaded when it goes.
class LoadedModel {
 public:
  // Loads what `path` names, as the command line's MODEL; `settings` are those of a model.yaml, by
  // name, each as YAML.
  // `in_repository`: of a model in a folder of models, what the engine calls those that it names,
  // by their names there; it may be a pipeline, and settings that are for other kinds of models are
  // left out. Else None.
  // `unfold`: of a model of cells, the function that unfolds its requests (unfolder.h), or None.
  LoadedModel(std::shared_ptr<EngineHandle> engine, const std::string& path,
              const nanobind::dict& settings, bool allow_plugins, nanobind::handle in_repository,
              nanobind::object unfold);
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;
  ~LoadedModel();

  // Waits for the answer, as arrays by name. `inputs`: values by name; `timeout`: seconds, or None;
  // `outputs`: names of those that are wanted, or None.
  nanobind::dict Infer(const nanobind::dict& inputs, nanobind::handle timeout,
                       nanobind::handle outputs);
  // The same of many requests at once, which share batches; the first that fails raises. A signal
  // whose handler raises ends both, and cancels what is not computed yet.
  nanobind::list InferMany(const nanobind::list& requests, nanobind::handle timeout,
                           nanobind::handle outputs);
  // Returns at once. `done(arrays, error)` is called once, by the package's thread, with one of
  // them None; before it, where it is not None, `part(row, first, arrays)` for each part.
  PendingRequest Start(const nanobind::dict& inputs, nanobind::handle timeout,
                       nanobind::handle outputs, nanobind::object done, nanobind::handle part);

  // Of a model file with a tokenizer.json beside it: what takes texts for it, and ends with it. Its
  // tokenizer is loaded by the first call.
  std::shared_ptr<LoadedModel> Texts();

  const ModelMetadata& metadata() const { return metadata_; }
  nanobind::dict Statistics() const;
  void Unload();

 private:
  // What the engine has as `name`, and keeps.
  LoadedModel(std::shared_ptr<EngineHandle> engine, const std::string& name);
  InferRequest RequestOf(const nanobind::dict& inputs, nanobind::handle timeout,
                         nanobind::handle outputs) const;

  const std::shared_ptr<EngineHandle> engine_;
  const bool owned_ = true;  // unloaded by this
  std::string name_;
  std::string file_;  // empty: not a model file
  ModelMetadata metadata_;
};

}  // namespace chairlift::python

#endif  // CHAIRLIFT_PYTHON_MODEL_H_
