// The engine's front: what include/chairlift/engine.h promises, put together from its parts.
#include "chairlift/engine.h"

#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "device/cpu/worker_pool.h"
#include "engine/dispatcher.h"
#include "engine/repository.h"

namespace chairlift {
namespace {

// How long Infer() looks for the answer before it sleeps, about what waking it up would take.
constexpr auto kWatch = std::chrono::microseconds(20);

// More that may take long is put off.
constexpr size_t kMaxInBackground = 64;

class EngineImpl : public Engine {
 public:
  EngineImpl(std::unique_ptr<WorkerPool> pool, const EngineOptions& options)
      : pool_(std::move(pool)),
        dispatcher_(std::make_unique<Dispatcher>(*pool_, options.max_requests)),
        repository_({.workers = pool_->size(),
                     .background = &background_,
                     .time_cells = options.time_cells},
                    options.on_load) {}

  ~EngineImpl() override {
    dispatcher_->Stop(std::chrono::milliseconds(0));
    pool_.reset();  // the last jobs end; they still use the dispatcher
  }

  Status LoadModel(const std::string& name, const std::string& path, const ModelConfig& config,
                   const std::string& version) override {
    return repository_.Load(name, path, config, version);
  }
  Status AddRepository(const std::string& directory) override {
    return repository_.AddFolder(directory);
  }
  Status LoadFromRepository(const std::string& name) override {
    return repository_.LoadFromFolders(name);
  }
  Status UnloadModel(const std::string& name, const std::string& version) override {
    return repository_.Unload(name, version);
  }

  RequestId InferAsync(InferRequest request, InferCallback callback) override;
  void Cancel(RequestId request) override { dispatcher_->Cancel(request); }

  std::vector<ModelIndexEntry> Index() const override { return repository_.Index(); }
  StatusOr<ModelMetadata> Metadata(const std::string& name,
                                   const std::string& version) const override;
  StatusOr<std::vector<ModelStatistics>> Statistics(const std::string& name,
                                                    const std::string& version) const override;
  bool ModelReady(const std::string& name, const std::string& version) const override {
    return repository_.Find(name, version).ok();
  }
  int workers() const override { return pool_->size(); }
  void StartTrace(size_t max_bytes) override {
    dispatcher_->trace().Start(max_bytes, Clock::Steady().Now());
  }
  Trace StopTrace() override { return dispatcher_->trace().Stop(pool_->size()); }
  void Shutdown(std::chrono::milliseconds drain) override {
    refusing_ = true;
    dispatcher_->Stop(drain);
  }

 private:
  RequestId Start(std::shared_ptr<Model> model, InferRequest request, InferCallback callback);
  // Answers from the model's response cache and returns true; or has what is computed kept there.
  bool FromCache(const std::shared_ptr<Model>& model, const FittingRequest& fitting,
                 const std::string& id, InferCallback& callback) const;

  std::atomic<bool> refusing_{false};
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<Dispatcher> dispatcher_;
  Background background_{kMaxInBackground};  // outlives the models
  Repository repository_;
};

RequestId EngineImpl::InferAsync(InferRequest request, InferCallback callback) {
  StatusOr<std::shared_ptr<Model>> model = repository_.Find(request.model, request.version);
  if (!model.ok()) {
    callback(model.status());
    return 0;
  }
  if (request.sequence.empty())
    return Start(*std::move(model), std::move(request), std::move(callback));
  const std::shared_ptr<Sequences>& sequences = (*model)->sequences();
  if (sequences == nullptr) {
    callback(InvalidArgument(
        "model '{}' keeps no state between requests: its model.yaml has no sequence_state",
        request.model));
    return 0;
  }
  return sequences->Submit(std::move(request), std::move(callback),
                           [this, model = *model](InferRequest chunk, InferCallback told) {
                             return Start(model, std::move(chunk), std::move(told));
                           });
}

RequestId EngineImpl::Start(std::shared_ptr<Model> model, InferRequest request,
                            InferCallback callback) {
  StatusOr<FittingRequest> fitting = Fit(model->signature(), request);
  if (!fitting.ok()) {
    model->statistics().Failed("invalid", Duration(0));
    callback(fitting.status());
    return 0;
  }
  const bool may_be_kept = request.client == 0 && request.sequence.empty() && !request.on_parts;
  if (may_be_kept && model->response_cache() != nullptr && !refusing_ &&
      FromCache(model, *fitting, request.id, callback)) {
    return 0;
  }
  if (model->forms() != nullptr) model->forms()->Place(*fitting);
  auto accepted = std::make_unique<Request>();
  accepted->id = std::move(request.id);
  accepted->model = std::move(model);
  accepted->fitting = *std::move(fitting);
  accepted->client = request.client;
  accepted->callback = std::move(callback);
  accepted->timeout = request.timeout;
  if (const auto& program = accepted->model->cells()) {
    accepted->cells = std::make_unique<CellRequest>(program);
    if (request.on_parts) {
      accepted->parts = std::make_shared<PartStream>();
      accepted->parts->model = accepted->model;
      accepted->parts->on_parts = std::move(request.on_parts);
      accepted->cells->CollectParts(accepted->fitting.outputs);
    }
    const Status unfolded = accepted->cells->Begin(accepted->fitting.inputs);
    if (!unfolded.ok()) {
      accepted->model->statistics().Failed("invalid", Duration(0));
      accepted->callback(unfolded);
      return 0;
    }
  }
  return dispatcher_->Submit(std::move(accepted));
}

bool EngineImpl::FromCache(const std::shared_ptr<Model>& model, const FittingRequest& fitting,
                           const std::string& id, InferCallback& callback) const {
  const Clock& clock = Clock::Steady();
  const TimePoint start = clock.Now();
  auto key = std::make_shared<const ResponseCache::Key>(ResponseCache::KeyOf(fitting));
  std::optional<std::vector<NamedTensor>> outputs = model->response_cache()->Find(*key);
  if (outputs) {
    InferResponse response;
    response.model = model->metadata().name;
    response.version = model->metadata().version;
    response.id = id;
    response.outputs = *std::move(outputs);
    model->statistics().CacheHit(clock.Now() - start);
    callback(std::move(response));
    return true;
  }
  model->statistics().CacheMiss(clock.Now() - start);
  callback = [cache = model->response_cache(), key = std::move(key),
              callback = std::move(callback)](StatusOr<InferResponse> answer) {
    if (answer.ok()) cache->Insert(*key, answer->outputs);
    callback(std::move(answer));
  };
  return false;
}

StatusOr<ModelMetadata> EngineImpl::Metadata(const std::string& name,
                                             const std::string& version) const {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::shared_ptr<Model> model, repository_.Find(name, version));
  ModelMetadata metadata = model->metadata();
  if (model->forms() != nullptr) {
    for (const std::string& refusal : model->forms()->Refusals()) {
      metadata.diagnosis += "; " + refusal;
    }
  }
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
    }
  }
  return statistics;
}

}  // namespace

StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  if (options.max_requests < 1) {
    return InvalidArgument("max_requests is {}; it must be at least 1", options.max_requests);
  }
  WorkerPoolOptions pool_options;
  pool_options.workers = options.workers;
  pool_options.cores = options.cores;
  CHAIRLIFT_ASSIGN_OR_RETURN(std::unique_ptr<WorkerPool> pool, WorkerPool::Create(pool_options));
  return std::make_unique<EngineImpl>(std::move(pool), options);
}

StatusOr<InferResponse> Engine::Infer(InferRequest request) {
  // Shared: the answering thread may still be inside set_value() when get() returns.
  auto promise = std::make_shared<std::promise<StatusOr<InferResponse>>>();
  std::future<StatusOr<InferResponse>> future = promise->get_future();
  InferAsync(std::move(request), [promise](StatusOr<InferResponse> response) {
    promise->set_value(std::move(response));
  });
  // A small model answers sooner than a sleeping thread is woken.
  const auto watch_until = std::chrono::steady_clock::now() + kWatch;
  while (future.wait_for(std::chrono::seconds(0)) != std::future_status::ready &&
         std::chrono::steady_clock::now() < watch_until) {
    std::this_thread::yield();
  }
  return future.get();
}

}  // namespace chairlift
