// The engine's implementation of include/chairlift/engine.h, composed of its parts.
#include "chairlift/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "base/out_of_memory.h"
#include "base/status.h"
#include "device/cpu/memory.h"
#include "device/cpu/worker_pool.h"
#include "device/devices.h"
#include "engine/execution/dispatcher.h"
#include "engine/execution/unfold_request.h"
#include "engine/programs/model_calls.h"
#include "engine/repository/repository.h"
#include "engine/requests/request_size.h"
#include "graph/batch_axis.h"

namespace chairlift {
namespace {

// How long Infer() polls for the answer before it sleeps: about the time that a wake-up takes.
constexpr auto kWatch = std::chrono::microseconds(20);

// Time limit of one warm-up request.
constexpr auto kMaxWarmUp = std::chrono::minutes(1);

// If more slow tasks are waiting, further ones are postponed.
constexpr size_t kMaxInBackground = 64;

// Bytes of intermediates and outputs per task, from a budget for all workers.
size_t TaskBytes(int64_t budget, int workers) {
  if (budget == 0) budget = UsableMemoryBytes() / 2;
  return static_cast<size_t>(budget / workers);
}

// Dimension 0 of its first input, if there is one.
int64_t RowsAsked(const InferRequest& request) {
  if (request.inputs.empty() || request.inputs[0].tensor.shape().rank() == 0) return 1;
  return std::clamp<int64_t>(request.inputs[0].tensor.shape()[0], 1, kMaxBatchRows);
}

// How often a waiting thread checks for interruption.
constexpr auto kAskInterrupted = std::chrono::milliseconds(50);

// Waits for the answer of the request that `begin` starts. After an interruption, `cancel` cancels
// it.
StatusOr<InferResponse> WaitForAnswer(const std::function<bool()>& interrupted,
                                      absl::FunctionRef<RequestId(InferCallback)> begin,
                                      absl::FunctionRef<void(RequestId)> cancel) {
  // Shared, because the answering thread may still be inside set_value() when get() returns.
  auto promise = std::make_shared<std::promise<StatusOr<InferResponse>>>();
  std::future<StatusOr<InferResponse>> future = promise->get_future();
  const RequestId id = begin(
      [promise](StatusOr<InferResponse> response) { promise->set_value(std::move(response)); });
  // A small model answers faster than a sleeping thread wakes.
  const auto watch_until = std::chrono::steady_clock::now() + kWatch;
  while (future.wait_for(std::chrono::seconds(0)) != std::future_status::ready &&
         std::chrono::steady_clock::now() < watch_until) {
    std::this_thread::yield();
  }
  if (interrupted == nullptr) return future.get();
  while (future.wait_for(kAskInterrupted) != std::future_status::ready) {
    if (!interrupted()) continue;
    cancel(id);
    return absl::CancelledError("the call was interrupted");
  }
  return future.get();
}

// Makes the callback receive the largest scores instead of outputs.
InferCallback WithClasses(const std::shared_ptr<Model>& model, std::map<std::string, int> classes,
                          InferCallback callback) {
  return [model, classes = std::move(classes),
          callback = std::move(callback)](StatusOr<InferResponse> answer) {
    const Status replaced = CatchOutOfMemory([&]() -> Status {
      CHAIRLIFT_RETURN_IF_ERROR(answer.status());
      const auto& all_labels = model->program().rules().labels;
      for (NamedTensor& output : answer->outputs) {
        const auto wanted = classes.find(output.name);
        if (wanted == classes.end()) continue;
        const auto labels = all_labels.find(output.name);
        StatusOr<Tensor> largest = LargestClasses(
            output.tensor, wanted->second, model->metadata().has_batch(),
            labels == all_labels.end() ? std::vector<std::string>() : labels->second);
        if (!largest.ok()) {
          return Annotate(largest.status(), fmt::format("classes of output '{}'", output.name));
        }
        output.tensor = *std::move(largest);
      }
      return absl::OkStatus();
    });
    if (replaced.ok()) {
      callback(std::move(answer));
    } else {
      callback(replaced);
    }
  };
}

class EngineImpl final : public Engine, private ModelCalls {
 public:
  EngineImpl(std::unique_ptr<WorkerPool> pool, const EngineOptions& options)
      : pool_(std::move(pool)),
        dispatcher_(std::make_unique<Dispatcher>(
            *pool_,
            DispatcherOptions{
                .max_requests = options.max_requests,
                .max_queue_wait = std::chrono::microseconds(options.max_queue_wait_us),
                .max_task_bytes = TaskBytes(options.memory_budget, pool_->size())})),
        repository_({.workers = pool_->size(),
                     .background = &background_,
                     .autotune = options.autotune,
                     .allow_plugins = options.allow_plugins,
                     .serve_texts = options.serve_texts,
                     .device = options.device,
                     .precision = options.precision,
                     .config_name = options.model_config_name,
                     .calls = this},
                    options.on_load) {}

  ~EngineImpl() override {
    dispatcher_->Stop(std::chrono::milliseconds(0));
    dispatcher_->WaitForTasks();
    pool_.reset();  // the last jobs end; they still use the dispatcher
  }

  Status LoadModel(const std::string& name, const std::string& path, const ModelConfig& config,
                   const std::string& version) override {
    return CatchOutOfMemory([&] { return repository_.Load(name, path, config, version); });
  }
  Status AddRepository(const std::string& directory) override {
    return CatchOutOfMemory([&] { return repository_.AddFolder(directory); });
  }
  Status LoadFromRepository(const std::string& name, const std::string& config) override;
  Status LoadTexts(const std::string& name, const std::string& path,
                   const std::function<bool()>& interrupted) override {
    return CatchOutOfMemory([&] { return repository_.LoadTexts(name, path, interrupted); });
  }
  Status UnloadModel(const std::string& name, const std::string& version) override {
    return CatchOutOfMemory([&] { return repository_.Unload(name, version); });
  }

  RequestId InferAsync(InferRequest request, InferCallback callback) override {
    return Begin(std::move(request), std::move(callback), {});
  }
  StatusOr<std::shared_ptr<Admission>> Reserve(const std::string& name, const std::string& version,
                                               const InferRequest::Caller& caller,
                                               const UnreadBody& body) override;
  StatusOr<InferResponse> Infer(InferRequest request) override;
  void Cancel(RequestId request) override { dispatcher_->Cancel(request); }

  std::vector<ModelIndexEntry> Index() const override { return repository_.Index(); }
  StatusOr<ModelMetadata> Metadata(const std::string& name,
                                   const std::string& version) const override;
  StatusOr<std::vector<ModelStatistics>> Statistics(const std::string& name,
                                                    const std::string& version) const override;
  bool ModelReady(const std::string& name, const std::string& version) const override {
    const StatusOr<std::shared_ptr<Model>> model = repository_.Find(name, version);
    return model.ok() && (*model)->program().Ready().ok();
  }
  int workers() const override { return pool_->size(); }
  void StartTrace(const TraceOptions& options) override {
    dispatcher_->trace().Start(options, Clock::Steady().Now());
  }
  Trace StopTrace() override { return dispatcher_->trace().Stop(pool_->size()); }
  void Shutdown(std::chrono::milliseconds drain) override {
    refusing_ = true;
    dispatcher_->Stop(drain);
  }

 private:
  // How a request arrived.
  struct Origin {
    bool caller_waits = false;
    bool inside = false;  // ModelCalls
    bool warm_up = false;
    uint64_t turn = 0;                          // CalledModel
    std::shared_ptr<Admission> admission = {};  // ModelCalls
  };
  RequestId Begin(InferRequest&& request, InferCallback&& callback, Origin origin);
  RequestId Start(std::shared_ptr<Model> model, InferRequest&& asked_for,
                  Sequences::MissingState state, InferCallback callback, Origin origin);

  StatusOr<CalledModel> Find(const std::string& name, const std::string& version) override {
    CHAIRLIFT_ASSIGN_OR_RETURN(std::shared_ptr<Model> model, repository_.Find(name, version));
    Program* const program = &model->program();
    return CalledModel{std::move(model), program};
  }
  RequestId Begin(const CalledModel& model, InferRequest request,
                  std::shared_ptr<Admission> admission, InferCallback callback) override;

  std::atomic<bool> refusing_{false};
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<Dispatcher> dispatcher_;
  Background background_{kMaxInBackground};  // outlives the models
  Repository repository_;
};

StatusOr<InferResponse> EngineImpl::Infer(InferRequest request) {
  const std::function<bool()> interrupted = std::move(request.interrupted);
  return WaitForAnswer(
      interrupted,
      [&](InferCallback callback) {
        return Begin(std::move(request), std::move(callback), {.caller_waits = true});
      },
      [&](RequestId id) { Cancel(id); });
}

Status EngineImpl::LoadFromRepository(const std::string& name, const std::string& config) {
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<InferRequest> warm_up, CatchOutOfMemory([&] {
                               return repository_.LoadFromFolders(name, config);
                             }));
  for (InferRequest& request : warm_up) {
    const std::string sample = request.id;
    request.timeout = kMaxWarmUp;
    const Status answered = WaitForAnswer(
                                nullptr,
                                [&](InferCallback callback) {
                                  return Begin(std::move(request), std::move(callback),
                                               {.caller_waits = true, .warm_up = true});
                                },
                                [&](RequestId id) { Cancel(id); })
                                .status();
    if (answered.ok()) continue;
    const Status failed = Annotate(answered, fmt::format("model_warmup '{}'", sample));
    (void)repository_.Unload(name, "", Message(failed));  // it is loaded
    return Annotate(failed, fmt::format("model '{}'", name));
  }
  return absl::OkStatus();
}

RequestId EngineImpl::Begin(const CalledModel& model, InferRequest request,
                            std::shared_ptr<Admission> admission, InferCallback callback) {
  if (!MemoryReserve::Ready()) {
    callback(OutOfMemory());
    return 0;
  }
  const MemoryReserve::Use use;
  if (Status ready = model.program->Ready(); !ready.ok()) {
    model.model->statistics().Failed("unavailable", Duration(0), true);
    callback(std::move(ready));
    return 0;
  }
  return Start(model.model, std::move(request), {}, std::move(callback),
               {.inside = true, .turn = model.turn, .admission = std::move(admission)});
}

StatusOr<std::shared_ptr<Admission>> EngineImpl::Reserve(const std::string& name,
                                                         const std::string& version,
                                                         const InferRequest::Caller& caller,
                                                         const UnreadBody& body) {
  const StatusOr<std::shared_ptr<Model>> model = repository_.Find(name, version);
  if (!model.ok() || (*model)->response_cache() != nullptr) return nullptr;
  const MemoryReserve::Use use;
  return dispatcher_->Reserve(*model, {caller.group, caller.member}, body);
}

RequestId EngineImpl::Begin(InferRequest&& request, InferCallback&& callback, Origin origin) {
  if (!MemoryReserve::Ready()) {
    callback(OutOfMemory());
    return 0;
  }
  const MemoryReserve::Use use;  // allocations that grow with the request must not use the reserve
  StatusOr<std::shared_ptr<Model>> model = repository_.Find(request.model, request.version);
  if (!model.ok()) {
    callback(model.status());
    return 0;
  }
  if (Status ready = (*model)->program().Ready(); !ready.ok()) {
    (*model)->statistics().Failed("unavailable", Duration(0), false);
    callback(Unavailable("model '{}' is not ready: {}", request.model, Message(ready)));
    return 0;
  }
  const RequestRules& rules = (*model)->program().rules();
  if (!origin.warm_up) rules.SetTimeout(request);
  if (!request.classes.empty()) {
    callback = WithClasses(*model, std::move(request.classes), std::move(callback));
  }
  if (request.sequence.empty() && rules.sequences_only) {
    callback(
        InvalidArgument("model '{}' takes requests of sequences only (sequence_batching): send "
                        "\"sequence_id\", the "
                        "first time with \"sequence_start\": true",
                        request.model));
    return 0;
  }
  if (request.sequence.empty()) {
    return Start(*std::move(model), std::move(request), {}, std::move(callback), origin);
  }
  const std::shared_ptr<Sequences>& sequences = (*model)->sequences();
  if (sequences == nullptr) {
    callback(InvalidArgument(
        "model '{}' keeps no state between requests: its model.yaml has no sequence_state",
        request.model));
    return 0;
  }
  return sequences->Submit(std::move(request), std::move(callback),
                           [this, model = *model](InferRequest chunk, Sequences::MissingState state,
                                                  InferCallback done) {
                             return Start(model, std::move(chunk), std::move(state),
                                          std::move(done), {});
                           });
}

RequestId EngineImpl::Start(std::shared_ptr<Model> model, InferRequest&& asked_for,
                            Sequences::MissingState state, InferCallback callback, Origin origin) {
  Asked asked{.request = std::move(asked_for), .state = std::move(state), .cache_key = {}};
  auto request = std::make_shared<Request>();
  request->id = std::move(asked.request.id);
  request->reply.client = asked.request.client;
  request->timeout = asked.request.timeout;
  request->inside = origin.inside;
  request->turn = origin.turn;
  request->caller = {asked.request.caller.group, asked.request.caller.member};
  if (origin.admission != nullptr) {
    request->caller = origin.admission->caller();
    request->admission = std::move(origin.admission);
  }
  if (asked.request.on_parts && model->program().SendsParts()) {
    request->reply.parts = std::make_shared<PartStream>();
    for (const TensorSpec& output : model->metadata().outputs) {
      request->reply.parts->names.push_back(output.name);
    }
    request->reply.parts->on_parts = asked.request.on_parts;
    request->reply.parts->once = asked.request.parts_once;
    request->reply.parts->unread = asked.request.unread;
  }
  const bool may_be_kept = asked.request.client == 0 && asked.request.sequence.empty() &&
                           !asked.request.on_parts && !refusing_;
  if (may_be_kept && model->response_cache() != nullptr) {
    asked.cache_key = std::make_shared<std::optional<ResponseCache::Key>>();
    callback = [cache = model->response_cache(), key = asked.cache_key,
                callback = std::move(callback)](StatusOr<InferResponse> answer) {
      if (answer.ok() && *key) cache->Insert(**key, answer->outputs);
      callback(std::move(answer));
    };
  }
  if (!model->program().rules().output_dims.empty()) {
    callback = [model, callback = std::move(callback)](StatusOr<InferResponse> answer) {
      const Status fits =
          answer.ok() ? model->program().rules().CheckOutputs(answer->outputs) : absl::OkStatus();
      if (fits.ok()) return callback(std::move(answer));
      callback(fits);
    };
  }
  request->reply.callback = std::move(callback);
  request->model = std::move(model);
  request->input_bytes = InputBytes(asked.request);

  // Before anything is computed for it, so that refusing is cheap. A refused request may still be
  // answered by the response cache.
  Status admitted =
      request->inside ? absl::OkStatus()
                      : dispatcher_->Admit(*request, RowsAsked(asked.request), asked.request.place);
  asked.request.place.reset();
  const bool takes_long = TakesLong(*request->model, asked) || dispatcher_->MustFollow(*request);
  if (!admitted.ok() && (takes_long || asked.cache_key == nullptr)) {
    Dispatcher::Refuse(*request, std::move(admitted));
    return 0;
  }
  if (takes_long) {
    return dispatcher_->SubmitToUnfold(request, [asked = std::move(asked)](Request& own) mutable {
      return UnfoldRequest(std::move(asked), own);
    });
  }
  StatusOr<std::optional<InferResponse>> answer =
      CatchOutOfMemory([&] { return UnfoldRequest(std::move(asked), *request); });
  if (!answer.ok()) {
    request->model->statistics().Failed("invalid", Duration(0), request->inside);
    request->reply.callback(answer.status());
    return 0;
  }
  if (*answer) {
    request->reply.callback(**std::move(answer));
    return 0;
  }
  if (!admitted.ok()) {
    Dispatcher::Refuse(*request, std::move(admitted));
    return 0;
  }
  return dispatcher_->Submit(std::move(request), origin.caller_waits);
}

StatusOr<ModelMetadata> EngineImpl::Metadata(const std::string& name,
                                             const std::string& version) const {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::shared_ptr<Model> model, repository_.Find(name, version));
  ModelMetadata metadata = model->metadata();
  for (const std::string& remark : model->program().Remarks()) metadata.diagnosis += "; " + remark;
  for (const auto& other : repository_.Ready(name)) {
    metadata.versions.push_back(other->metadata().version);
  }
  return metadata;
}

StatusOr<std::vector<ModelStatistics>> EngineImpl::Statistics(const std::string& name,
                                                              const std::string& version) const {
  std::vector<ModelStatistics> statistics;
  if (!name.empty()) {
    CHAIRLIFT_RETURN_IF_ERROR(repository_.Find(name, version).status());
  }
  for (const auto& model : repository_.Ready(name)) {
    if (version.empty() || model->metadata().version == version) {
      statistics.push_back(model->statistics().Read());
      statistics.back().queued_work = model->queue().Backlog();
      statistics.back().generation = model->program().Generation();
    }
  }
  return statistics;
}

}  // namespace

StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  if (options.max_queue_wait_us < 0) {
    return InvalidArgument("max_queue_wait_us is {}; it must be 0 (not bounded) or more",
                           options.max_queue_wait_us);
  }
  if (options.memory_budget < 0) {
    return InvalidArgument(
        "memory_budget is {}; it must be 0 (half of what the process may use) or more",
        options.memory_budget);
  }
  if (options.max_requests < 1) {
    return InvalidArgument("max_requests is {}; it must be at least 1", options.max_requests);
  }
  if (!options.device.empty()) CHAIRLIFT_RETURN_IF_ERROR(FindDevice(options.device).status());
  CHAIRLIFT_RETURN_IF_ERROR(CheckPrecision(options.precision));
  OutOfMemory().IgnoreError();  // allocated while there is memory
  MemoryReserve::Install();
  return CatchOutOfMemory([&]() -> StatusOr<std::unique_ptr<Engine>> {
    WorkerPoolOptions pool_options;
    pool_options.workers = options.workers;
    pool_options.cores = options.cores;
    CHAIRLIFT_ASSIGN_OR_RETURN(std::unique_ptr<WorkerPool> pool, WorkerPool::Create(pool_options));
    return std::make_unique<EngineImpl>(std::move(pool), options);
  });
}

StatusOr<InferResponse> Engine::Infer(InferRequest request) {
  const std::function<bool()> interrupted = std::move(request.interrupted);
  return WaitForAnswer(
      interrupted,
      [&](InferCallback callback) { return InferAsync(std::move(request), std::move(callback)); },
      [&](RequestId id) { Cancel(id); });
}

}  // namespace chairlift
