// Engines, models and requests as seen from Python.
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

// An engine, shared by its models. Callers of its methods hold the interpreter's lock; slow methods
// release it.
class EngineHandle {
 public:
  explicit EngineHandle(const EngineOptions& options);
  EngineHandle(const EngineHandle&) = delete;
  EngineHandle& operator=(const EngineHandle&) = delete;
  ~EngineHandle();

  // Raises Unavailable after Close(), and in a child of the process that created it.
  std::shared_ptr<Engine> Get() const;
  // Null after Close(), and in a child of the process that created it.
  std::shared_ptr<Engine> GetIfAny() const;
  // Fails running requests, and waits for the engine's threads and interrupted loads to end.
  void Close();
  // Cancelled if a signal handler raised; RaiseInterrupt() then raises the exception. The model is
  // then not loaded, possibly after a delay.
  Status Load(const std::string& name, const std::string& path, ModelConfig config,
              const std::string& version);
  // The same for Engine::LoadTexts().
  Status LoadTexts(const std::string& name, const std::string& path);
  // `stem`, or "stem-2", ...: a name that no other model of the engine has had.
  std::string UnusedName(const std::string& stem);

 private:
  // Runs `load`, which may check whether it must end, and then `undo` if it did not end in time.
  Status RunLoad(const std::function<Status(Engine&, const std::function<bool()>&)>& load,
                 const std::function<void(Engine&)>& undo);

  const pid_t process_ = ::getpid();
  std::shared_ptr<Engine> engine_;
  std::vector<std::string> names_;
  std::vector<std::thread> interrupted_loads_;
};

// A submitted request.
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

// A loaded model; unloaded when destroyed.
class LoadedModel {
 public:
  // Loads `path`, as a MODEL of the command line. `settings` are those of a model.yaml, by name,
  // each as YAML. `in_repository`: for a model in a folder of models, the engine's names of the
  // models that it refers to, by their names there. The model may then be a pipeline, and settings
  // for other kinds of models are ignored. Otherwise None. `unfold`: for a model of cells, the
  // function that unfolds its requests (unfolder.h), or None.
  LoadedModel(std::shared_ptr<EngineHandle> engine, const std::string& path,
              const nanobind::dict& settings, bool allow_plugins, nanobind::handle in_repository,
              nanobind::object unfold);
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;
  ~LoadedModel();

  // Waits for the answer, as arrays by name. `inputs`: values by name; `timeout`: seconds, or None;
  // `outputs`: names of the requested ones, or None.
  nanobind::dict Infer(const nanobind::dict& inputs, nanobind::handle timeout,
                       nanobind::handle outputs);
  // The same for many requests together, which share batches; the first failure raises. If a signal
  // handler raises, the call ends and requests that are not computed yet are cancelled.
  nanobind::list InferMany(const nanobind::list& requests, nanobind::handle timeout,
                           nanobind::handle outputs);
  // Returns at once. The package's thread calls `done(arrays, error)` once, with one of them None.
  // Before that, if `part` is not None, it calls `part(row, first, arrays)` for each part.
  PendingRequest Start(const nanobind::dict& inputs, nanobind::handle timeout,
                       nanobind::handle outputs, nanobind::object done, nanobind::handle part);

  // For a model file with a tokenizer.json beside it: the model that adds text inputs, which ends
  // with this one. The first call loads its tokenizer.
  std::shared_ptr<LoadedModel> Texts();

  const ModelMetadata& metadata() const { return metadata_; }
  nanobind::dict Statistics() const;
  void Unload();

 private:
  // The engine's model `name`, which is not unloaded.
  LoadedModel(std::shared_ptr<EngineHandle> engine, const std::string& name);
  InferRequest RequestOf(const nanobind::dict& inputs, nanobind::handle timeout,
                         nanobind::handle outputs) const;

  const std::shared_ptr<EngineHandle> engine_;
  const bool owned_ = true;  // this object unloads it
  std::string name_;
  std::string file_;  // empty: not a model file
  ModelMetadata metadata_;
};

}  // namespace chairlift::python

#endif  // CHAIRLIFT_PYTHON_MODEL_H_
