#include "python/model.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "base/renamed.h"
#include "base/status.h"
#include "cli/model_path.h"
#include "engine/repository/model_config.h"
#include "engine/repository/text_model.h"
#include "python/arrays.h"
#include "python/errors.h"
#include "python/events.h"
#include "python/unfolder.h"

namespace chairlift::python {
namespace {

namespace nb = nanobind;

std::string TextOf(nb::handle object) {
  Py_ssize_t bytes = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(object.ptr(), &bytes);
  if (text == nullptr) throw nb::python_error();
  return {text, static_cast<size_t>(bytes)};
}

std::optional<std::chrono::microseconds> TimeoutOf(nb::handle timeout) {
  if (timeout.is_none()) return std::nullopt;
  const double seconds = PyFloat_AsDouble(timeout.ptr());
  if (PyErr_Occurred() != nullptr || !(seconds >= 0)) {
    PyErr_Clear();
    Check(InvalidArgument("timeout is {}; it must be a number of seconds, 0 or more, or None",
                          TextOf(nb::repr(timeout))));
  }
  constexpr double kLongest = 1e9;  // 30 years: no clock overflows
  if (seconds > kLongest) return std::nullopt;
  return std::chrono::microseconds(static_cast<int64_t>(std::ceil(seconds * 1e6)));
}

nb::dict DictOf(const ModelStatistics::Count& count) {
  nb::dict dict;
  dict["count"] = count.count;
  dict["ns"] = count.ns;
  return dict;
}

constexpr auto kAskInterrupted = std::chrono::milliseconds(50);

// Whether a signal handler raised, checked by a thread without the interpreter's lock. Only the
// main thread runs handlers. RaiseInterrupt() raises the exception.
bool Interrupted() {
  const nb::gil_scoped_acquire acquire;
  return PyErr_CheckSignals() != 0;
}
void RaiseInterrupt() {
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
}

// Shared by many requests for which one thread waits.
struct ManyAnswers {
  std::mutex mutex;
  std::condition_variable came;
  std::vector<std::optional<StatusOr<InferResponse>>> answers;
  size_t left = 0;
};

// A reference to a Python object that threads without the interpreter's lock may hold; Drop() drops
// it, otherwise it is leaked.
class Carried {
 public:
  explicit Carried(nb::object object) : object_(object.release().ptr()) {}
  nb::handle get() const { return object_; }
  void Drop() const { Py_DECREF(object_); }

 private:
  PyObject* object_;
};

// Ensures that an event drops its references even if it throws.
class Dropping {
 public:
  explicit Dropping(const Carried& carried) : carried_(carried) {}
  Dropping(const Dropping&) = delete;
  Dropping& operator=(const Dropping&) = delete;
  ~Dropping() { carried_.Drop(); }

 private:
  const Carried& carried_;
};

}  // namespace

EngineHandle::EngineHandle(const EngineOptions& options) {
  const nb::gil_scoped_release release;
  StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(options);
  const nb::gil_scoped_acquire acquire;
  engine_ = Check(std::move(engine));
}

EngineHandle::~EngineHandle() { Close(); }

std::shared_ptr<Engine> EngineHandle::GetIfAny() const {
  return ::getpid() == process_ ? engine_ : nullptr;
}

std::shared_ptr<Engine> EngineHandle::Get() const {
  if (::getpid() != process_) {
    Check(Unavailable(
        "the engine belongs to process {}, of which this one was forked without its threads: load "
        "the model in this process, or start processes with multiprocessing's method 'spawn'",
        process_));
  }
  if (engine_ == nullptr) Check(Unavailable("the engine is closed"));
  return engine_;
}

void EngineHandle::Close() {
  if (engine_ == nullptr) return;
  if (::getpid() != process_) {
    // Its threads, which its destructor would wait for, do not exist in this process.
    (void)new std::shared_ptr<Engine>(std::move(engine_));
    (void)new std::vector<std::thread>(std::move(interrupted_loads_));
    return;
  }
  std::shared_ptr<Engine> engine = std::move(engine_);
  engine_ = nullptr;
  std::vector<std::thread> loads = std::move(interrupted_loads_);
  const nb::gil_scoped_release release;
  engine->Shutdown(std::chrono::milliseconds(0));
  for (std::thread& load : loads) load.join();
  engine.reset();  // or by the last call that still uses it
}

Status EngineHandle::RunLoad(
    const std::function<Status(Engine&, const std::function<bool()>&)>& load,
    const std::function<void(Engine&)>& undo) {
  struct State {
    std::mutex mutex;
    std::condition_variable ended;
    std::optional<Status> status;
    bool interrupted = false;
  };
  const std::shared_ptr<Engine> engine = Get();
  auto state = std::make_shared<State>();
  nb::gil_scoped_release release;
  std::thread thread([=] {
    const Status status = load(*engine, [state] {
      const std::lock_guard lock(state->mutex);
      return state->interrupted;
    });
    const std::lock_guard lock(state->mutex);
    if (state->interrupted && status.ok()) undo(*engine);
    state->status = status;
    state->ended.notify_one();
  });
  std::unique_lock lock(state->mutex);
  while (!state->status) {
    if (state->ended.wait_for(lock, kAskInterrupted) == std::cv_status::no_timeout) continue;
    lock.unlock();
    const bool interrupted = Interrupted();
    lock.lock();
    if (!interrupted || state->status) continue;
    state->interrupted = true;
    lock.unlock();
    const nb::gil_scoped_acquire acquire;
    interrupted_loads_.push_back(std::move(thread));
    return absl::CancelledError("the load was interrupted");
  }
  Status status = *state->status;
  lock.unlock();
  thread.join();
  return status;
}

Status EngineHandle::Load(const std::string& name, const std::string& path, ModelConfig config,
                          const std::string& version) {
  return RunLoad(
      [=](Engine& engine, const std::function<bool()>& interrupted) mutable {
        config.interrupted = interrupted;
        return engine.LoadModel(name, path, config, version);
      },
      [name](Engine& engine) { (void)engine.UnloadModel(name); });
}

Status EngineHandle::LoadTexts(const std::string& name, const std::string& path) {
  // A load that finishes after an interruption serves the next call.
  return RunLoad(
      [=](Engine& engine, const std::function<bool()>& interrupted) {
        return engine.LoadTexts(name, path, interrupted);
      },
      [](Engine&) {});
}

std::string EngineHandle::UnusedName(const std::string& stem) {
  std::string name = stem;
  for (int number = 2; std::count(names_.begin(), names_.end(), name) > 0; ++number) {
    name = fmt::format("{}-{}", stem, number);
  }
  names_.push_back(name);
  return name;
}

void PendingRequest::Cancel() const {
  const std::shared_ptr<Engine> engine = engine_.lock();
  if (engine == nullptr) return;
  const nb::gil_scoped_release release;
  engine->Cancel(id_);
}

LoadedModel::LoadedModel(std::shared_ptr<EngineHandle> handle, const std::string& path,
                         const nb::dict& settings, bool allow_plugins, nb::handle in_repository,
                         nb::object unfold)
    : engine_(std::move(handle)) {
  const std::shared_ptr<Engine> engine = engine_->Get();
  std::vector<std::pair<std::string, std::string>> given;
  for (const auto& [name, value] : settings) given.emplace_back(TextOf(name), TextOf(value));
  ModelPath found = Check(FindModel(path, !in_repository.is_none()));
  for (const auto& [name, value] : given) {
    Check(ApplyGiven(name, value, !in_repository.is_none(), found));
  }
  if (!in_repository.is_none()) {
    for (const auto& [name, own] : nb::borrow<nb::dict>(in_repository)) {
      found.config.model_names.emplace(TextOf(name), TextOf(own));
    }
  }
  found.config.allow_plugins = allow_plugins;
  Check(CheckConfig(found.config));
  if (!unfold.is_none() && found.cells) {
    if (const auto* plugin = std::get_if<PluginUnfold>(&found.cells->unfold)) {
      std::vector<std::string> inputs;
      for (const SymbolicSpec& input : plugin->inputs) inputs.push_back(input.name);
      found.config.unfold = UnfoldersOf(std::move(unfold), std::move(inputs), plugin->outputs);
    }
  }
  const std::string unused = engine_->UnusedName(found.name);
  if (!found.cells && !found.function && !found.pipeline) file_ = found.path.string();
  const Status loaded =
      engine_->Load(unused, found.path.string(), std::move(found.config), found.version);
  RaiseInterrupt();
  Check(loaded);
  name_ = unused;
  metadata_ = Check(engine->Metadata(name_));
}

LoadedModel::LoadedModel(std::shared_ptr<EngineHandle> handle, const std::string& name)
    : engine_(std::move(handle)),
      owned_(false),
      name_(name),
      metadata_(Check(engine_->Get()->Metadata(name))) {}

LoadedModel::~LoadedModel() { Unload(); }

std::shared_ptr<LoadedModel> LoadedModel::Texts() {
  const std::shared_ptr<Engine> engine = engine_->Get();
  if (file_.empty()) {
    Check(InvalidArgument(
        "model '{}' takes no text: only a model.onnx with a tokenizer.json beside it does", name_));
  }
  const Status loaded = engine_->LoadTexts(name_, file_);
  RaiseInterrupt();
  if (absl::IsNotFound(loaded)) {
    Check(InvalidArgument("model '{}' takes no text: {}", name_, Message(loaded)));
  }
  Check(Annotate(loaded, fmt::format("model '{}' takes no text", name_)));
  for (const std::string& own : {RerankName(name_), CompleteName(name_)}) {
    if (!engine->Metadata(own).ok()) continue;
    // Not make_shared(): the constructor is private.
    return std::shared_ptr<LoadedModel>(new LoadedModel(engine_, own));
  }
  return std::shared_ptr<LoadedModel>(new LoadedModel(engine_, EmbedName(name_)));
}

void LoadedModel::Unload() {
  if (name_.empty() || !owned_) return;
  const std::shared_ptr<Engine> engine = engine_->GetIfAny();
  if (engine == nullptr) return;
  const nb::gil_scoped_release release;
  (void)engine->UnloadModel(name_);  // a closed engine has no models
}

InferRequest LoadedModel::RequestOf(const nb::dict& inputs, nb::handle timeout,
                                    nb::handle outputs) const {
  InferRequest request;
  request.model = name_;
  request.timeout = TimeoutOf(timeout);
  for (const auto& [key, value] : inputs) {
    const std::string name = TextOf(key);
    const auto spec = std::find_if(metadata_.inputs.begin(), metadata_.inputs.end(),
                                   [&](const TensorSpec& input) { return input.name == name; });
    request.inputs.push_back(
        {name, TensorOf(name, value, spec == metadata_.inputs.end() ? nullptr : &*spec)});
  }
  if (!outputs.is_none()) {
    for (const nb::handle name : outputs) request.outputs.push_back(TextOf(name));
  }
  return request;
}

nb::dict LoadedModel::Infer(const nb::dict& inputs, nb::handle timeout, nb::handle outputs) {
  const std::shared_ptr<Engine> engine = engine_->Get();
  InferRequest request = RequestOf(inputs, timeout, outputs);
  // Also held here, so that the buffers are released on this thread.
  const std::vector<NamedTensor> borrowed = request.inputs;
  request.interrupted = Interrupted;
  std::optional<StatusOr<InferResponse>> response;
  {
    const nb::gil_scoped_release release;
    response = engine->Infer(std::move(request));
  }
  RaiseInterrupt();
  return ArraysOf(Check(*std::move(response)).outputs, borrowed);
}

nb::list LoadedModel::InferMany(const nb::list& given, nb::handle timeout, nb::handle outputs) {
  constexpr size_t kInFlight = 512;  // half of the default queue size
  const std::shared_ptr<Engine> engine = engine_->Get();
  std::vector<InferRequest> requests;
  requests.reserve(given.size());
  for (const nb::handle inputs : given) {
    requests.push_back(RequestOf(nb::borrow<nb::dict>(inputs), timeout, outputs));
  }
  std::vector<std::vector<NamedTensor>> borrowed;
  borrowed.reserve(requests.size());
  for (const InferRequest& request : requests) borrowed.push_back(request.inputs);
  const size_t count = requests.size();
  auto shared = std::make_shared<ManyAnswers>();
  shared->answers.resize(count);
  shared->left = count;
  {
    const nb::gil_scoped_release release;
    std::vector<RequestId> ids(count);
    size_t begun = 0;
    bool interrupted = false;
    std::unique_lock lock(shared->mutex);
    while (shared->left > 0 && !interrupted) {
      while (begun < count && begun - (count - shared->left) < kInFlight) {
        lock.unlock();
        ids[begun] = engine->InferAsync(std::move(requests[begun]),
                                        [shared, begun](StatusOr<InferResponse> answer) {
                                          const std::lock_guard locked(shared->mutex);
                                          shared->answers[begun] = std::move(answer);
                                          // The last one, or one after which more may be sent.
                                          if (--shared->left % (kInFlight / 2) == 0) {
                                            shared->came.notify_one();
                                          }
                                        });
        ++begun;
        lock.lock();
      }
      if (shared->left == 0) break;
      if (shared->came.wait_for(lock, kAskInterrupted) == std::cv_status::no_timeout) continue;
      lock.unlock();
      interrupted = Interrupted();
      lock.lock();
    }
    lock.unlock();
    for (size_t i = 0; interrupted && i < begun; ++i) engine->Cancel(ids[i]);
  }
  RaiseInterrupt();
  nb::list answers;
  for (size_t i = 0; i < count; ++i) {
    const StatusOr<InferResponse>& answer = *shared->answers[i];
    if (!answer.ok()) {
      Check(Annotate(answer.status(), fmt::format("row {} of {}", i, count)));
    }
    answers.append(ArraysOf(answer->outputs, borrowed[i]));
  }
  return answers;
}

PendingRequest LoadedModel::Start(const nb::dict& inputs, nb::handle timeout, nb::handle outputs,
                                  nb::object done, nb::handle part) {
  const std::shared_ptr<Engine> engine = engine_->Get();
  InferRequest request = RequestOf(inputs, timeout, outputs);
  Events& events = Events::Own();
  const std::vector<NamedTensor> borrowed = request.inputs;
  const Carried carried_done(std::move(done));
  const bool streams = !part.is_none();
  const Carried carried_part(nb::borrow(part));
  const auto unread = std::make_shared<std::atomic<int64_t>>(0);
  if (streams) {
    request.unread = [unread] { return unread->load(); };
    request.on_parts = [&events, carried_part, unread](std::span<const InferPart> parts) {
      const std::vector<InferPart> kept(parts.begin(), parts.end());
      for (const InferPart& part : parts) {
        for (const NamedTensor& output : part.outputs) {
          *unread += static_cast<int64_t>(output.tensor.byte_size());
        }
      }
      events.Push([carried_part, kept] {
        for (const InferPart& ready : kept) {
          carried_part.get()(ready.row, ready.first, ArraysOf(ready.outputs, {}));
        }
      });
    };
  }
  InferCallback callback = [&events, carried_done, carried_part,
                            borrowed](StatusOr<InferResponse> answer) {
    auto kept = std::make_shared<const StatusOr<InferResponse>>(std::move(answer));
    events.Push([carried_done, carried_part, kept, borrowed] {
      const Dropping drop_done(carried_done);
      const Dropping drop_part(carried_part);
      nb::object arrays = nb::none();
      nb::object error = nb::none();
      if (kept->ok()) {
        try {
          arrays = ArraysOf((*kept)->outputs, borrowed);
        } catch (nb::python_error& failed) {
          error = nb::borrow(failed.value());
        }
      } else {
        error = ErrorOf(kept->status());
      }
      carried_done.get()(arrays, error);
    });
  };
  RequestId id = 0;
  {
    const nb::gil_scoped_release release;
    id = engine->InferAsync(std::move(request), std::move(callback));
  }
  return {engine, id, unread};
}

nb::dict LoadedModel::Statistics() const {
  const ModelStatistics statistics = Check(engine_->Get()->Statistics(name_)).at(0);
  nb::dict dict;
  dict["name"] = statistics.name;
  dict["inference_count"] = statistics.inference_count;
  dict["execution_count"] = statistics.execution_count;
  dict["last_inference_ms"] = statistics.last_inference_ms;
  dict["success"] = DictOf(statistics.success);
  dict["fail"] = DictOf(statistics.fail);
  dict["queue"] = DictOf(statistics.queue);
  dict["compute_input"] = DictOf(statistics.compute_input);
  dict["compute_infer"] = DictOf(statistics.compute_infer);
  dict["compute_output"] = DictOf(statistics.compute_output);
  dict["cache_hit"] = DictOf(statistics.cache_hit);
  dict["cache_miss"] = DictOf(statistics.cache_miss);
  nb::dict failures;
  for (const auto& [reason, count] : statistics.failures) failures[reason.c_str()] = count;
  dict["failures"] = failures;
  nb::dict batches;
  for (const auto& [rows, count] : statistics.batches) batches[nb::int_(rows)] = DictOf(count);
  dict["batches"] = batches;
  dict["padded_rows"] = statistics.padded_rows;
  dict["waiting"] = statistics.waiting;
  dict["running"] = statistics.running;
  if (statistics.generation) {
    const GenerationStatistics& of = *statistics.generation;
    nb::dict generation;
    generation["waiting"] = of.waiting;
    generation["running"] = of.running;
    generation["prompt_tokens"] = of.prompt_tokens;
    generation["generation_tokens"] = of.generation_tokens;
    generation["preemptions"] = of.preemptions;
    generation["blocks"] = of.blocks;
    generation["blocks_used"] = of.blocks_used;
    generation["block_tokens"] = of.block_tokens;
    generation["tokens_used"] = of.tokens_used;
    for (const Renamed& renamed : RenamedFields())
      generation[renamed.from] = generation[renamed.to];
    dict["generation"] = generation;
  }
  return dict;
}

}  // namespace chairlift::python
