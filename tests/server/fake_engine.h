// An Engine for tests: answers by a function of the test's, on the caller's thread, on a thread of
// its own, or when the test says so.
#ifndef CHAIRLIFT_TESTS_SERVER_FAKE_ENGINE_H_
#define CHAIRLIFT_TESTS_SERVER_FAKE_ENGINE_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "chairlift/engine.h"

namespace chairlift {

// One model, "identity" version "1": output "y" is input "x".
class FakeEngine : public Engine {
 public:
  enum class Answer { kOnCallersThread, kOnOwnThread, kWhenReleased };

  explicit FakeEngine(Answer answer = Answer::kOnOwnThread)
      : answer_(answer), thread_([this] { Run(); }) {}
  ~FakeEngine() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // What the next requests are answered with instead.
  void set_status(Status status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    status_ = std::move(status);
  }
  void set_output(Tensor tensor) {
    const std::lock_guard<std::mutex> lock(mutex_);
    output_ = std::move(tensor);
  }

  // Changes what the metadata of "identity" says.
  void set_model(std::function<void(ModelMetadata&)> change) {
    const std::lock_guard<std::mutex> lock(mutex_);
    change_model_ = std::move(change);
  }

  // Waits until `count` requests have come in all, ended or not.
  void AwaitRequests(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return requests_ >= count; });
  }
  void AwaitRepositoryCalls(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return repository_calls_.size() >= count; });
  }
  void AwaitCancelled(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return cancelled_ >= count; });
  }
  void Release() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      released_ = true;
    }
    changed_.notify_all();
  }
  // Tells a part to the oldest request that waits, on the caller's thread.
  void Tell(const InferPart& part) {
    PartsCallback on_parts;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (queue_.empty()) return;  // it was cancelled
      on_parts = queue_.front().on_parts;
    }
    on_parts({&part, 1});
  }
  InferRequest last_request() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return last_request_;
  }
  std::vector<std::string> repository_calls() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return repository_calls_;
  }

  Status LoadModel(const std::string&, const std::string&, const ModelConfig&,
                   const std::string&) override {
    return absl::OkStatus();
  }
  Status AddRepository(const std::string&) override { return absl::OkStatus(); }
  Status LoadFromRepository(const std::string& name, const std::string& config) override {
    std::unique_lock<std::mutex> lock(mutex_);
    repository_calls_.push_back("load " + name + config);
    changed_.notify_all();
    changed_.wait(lock, [this] { return answer_ != Answer::kWhenReleased || released_; });
    return name == "identity" ? absl::OkStatus() : NotFound("no model '{}' in a repository", name);
  }
  Status LoadTexts(const std::string&, const std::string&, const std::function<bool()>&) override {
    return NotFound("there is no tokenizer.json beside its file");
  }
  Status UnloadModel(const std::string& name, const std::string&) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    repository_calls_.push_back("unload " + name);
    return absl::OkStatus();
  }

  // Statistics() gives these too.
  void set_parts(std::vector<ModelStatistics> parts) {
    const std::lock_guard<std::mutex> lock(mutex_);
    parts_ = std::move(parts);
  }
  // Another model, with text inputs, and a suffix in its name; it has the tensors of "identity".
  void add_text_model(const std::string& name) {
    const std::lock_guard<std::mutex> lock(names_mutex_);
    text_models_.insert(name);
  }
  void add_loading_model(const std::string& name) {
    const std::lock_guard<std::mutex> lock(names_mutex_);
    loading_.insert(name);
  }
  // The models that places were asked for at.
  std::vector<std::string> reserved() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return reserved_;
  }
  // The next answer of Reserve(): an error, or places.
  void set_reserve(Status status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    reserve_ = std::move(status);
  }
  // Places that are held now.
  int places() const { return static_cast<int>(places_.use_count()) - 1; }
  StatusOr<std::shared_ptr<Admission>> Reserve(const std::string& name, const std::string& version,
                                               const InferRequest::Caller&,
                                               const UnreadBody&) override {
    if (!Known(name, version).ok()) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex_);
    reserved_.push_back(name);
    if (!reserve_.ok()) return reserve_;
    return std::shared_ptr<Admission>(places_, reinterpret_cast<Admission*>(places_.get()));
  }

  RequestId InferAsync(InferRequest request, InferCallback callback) override {
    std::unique_lock<std::mutex> lock(mutex_);
    const RequestId id = ++requests_;
    last_request_ = request;
    PartsCallback on_parts = request.on_parts;
    StatusOr<InferResponse> response = Respond(std::move(request));
    if (answer_ == Answer::kOnCallersThread) {
      lock.unlock();
      callback(std::move(response));
    } else {
      queue_.push_back({id, std::move(response), std::move(callback), std::move(on_parts)});
      lock.unlock();
    }
    changed_.notify_all();
    return id;
  }
  void Cancel(RequestId id) override {
    std::unique_lock<std::mutex> lock(mutex_);
    for (auto it = queue_.begin(); it != queue_.end(); ++it) {
      if (it->id != id) continue;
      const InferCallback callback = std::move(it->callback);
      queue_.erase(it);
      ++cancelled_;
      lock.unlock();
      changed_.notify_all();
      callback(absl::CancelledError("cancelled"));
      return;
    }
  }

  std::vector<ModelIndexEntry> Index() const override {
    std::vector<ModelIndexEntry> entries = {
        {"identity", "1", ModelState::kReady, ""},
        {"broken", "1", ModelState::kUnavailable, "node 'n': no such operator"}};
    const std::lock_guard<std::mutex> lock(names_mutex_);
    for (const std::string& name : text_models_) {
      entries.push_back({name, "1", ModelState::kReady, ""});
    }
    return entries;
  }
  StatusOr<ModelMetadata> Metadata(const std::string& name,
                                   const std::string& version) const override {
    CHAIRLIFT_RETURN_IF_ERROR(Known(name, version));
    ModelMetadata metadata;
    metadata.name = "identity";
    metadata.version = "1";
    metadata.platform = "onnx_chairlift";
    metadata.versions = {"1"};
    metadata.inputs = {{"x", DType::kFloat, {8, 4}}};
    metadata.outputs = {{"y", DType::kFloat, {8, 4}}};
    metadata.batches = true;
    metadata.config.policy = "window";
    metadata.config.max_batch_size = 8;
    metadata.config.queue_delay_us = 100;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (change_model_) change_model_(metadata);
    return metadata;
  }
  StatusOr<std::vector<ModelStatistics>> Statistics(const std::string& name,
                                                    const std::string& version) const override {
    if (!name.empty()) CHAIRLIFT_RETURN_IF_ERROR(Known(name, version));
    const std::lock_guard<std::mutex> lock(mutex_);
    ModelStatistics statistics;
    statistics.name = "identity";
    statistics.version = "1";
    statistics.queue.count = static_cast<uint64_t>(requests_);
    statistics.success = {static_cast<uint64_t>(requests_), 5000};
    statistics.batches[2] = {3, 400};
    statistics.failures["timeout"] = 7;
    statistics.cache_hit = {4, 90};
    statistics.cache_miss = {5, 60};
    std::vector<ModelStatistics> all = parts_;
    all.insert(all.begin(), statistics);
    return all;
  }
  bool ModelReady(const std::string& name, const std::string& version) const override {
    return Known(name, version).ok();
  }
  int workers() const override { return 1; }
  void StartTrace(const TraceOptions&) override {}
  Trace StopTrace() override { return {}; }
  void Shutdown(std::chrono::milliseconds) override {}

 private:
  const std::shared_ptr<int> places_ = std::make_shared<int>(0);
  Status reserve_;
  std::vector<std::string> reserved_;
  mutable std::mutex names_mutex_;  // may be taken inside mutex_
  std::set<std::string> text_models_, loading_;
  struct Waiting {
    RequestId id;
    StatusOr<InferResponse> response;
    InferCallback callback;
    PartsCallback on_parts;
  };

  Status Known(const std::string& name, const std::string& version) const {
    if (name == "identity" && (version.empty() || version == "1")) return absl::OkStatus();
    const std::lock_guard<std::mutex> lock(names_mutex_);
    if (text_models_.contains(name)) return absl::OkStatus();
    if (loading_.contains(name)) return Unavailable("model '{}' is not ready", name);
    return NotFound("model '{}' is not known", name);
  }

  StatusOr<InferResponse> Respond(InferRequest request) {
    CHAIRLIFT_RETURN_IF_ERROR(status_);
    CHAIRLIFT_RETURN_IF_ERROR(Known(request.model, request.version));
    InferResponse response;
    response.model = "identity";
    response.version = "1";
    response.id = request.id;
    response.batch_rows = 1;
    response.queue_time = std::chrono::microseconds(20);
    for (NamedTensor& input : request.inputs) {
      response.outputs.push_back({input.name == "x" ? "y" : "y_" + input.name, input.tensor});
      if (output_.present()) response.outputs.back().tensor = output_;
    }
    return response;
  }

  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] {
        const bool may_answer = answer_ != Answer::kWhenReleased || released_;
        return stopping_ || (may_answer && !queue_.empty());
      });
      if (queue_.empty()) return;
      Waiting next = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      next.callback(std::move(next.response));
      next.callback = nullptr;
      lock.lock();
    }
  }

  const Answer answer_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> queue_;
  Status status_;
  Tensor output_;
  std::vector<ModelStatistics> parts_;
  std::function<void(ModelMetadata&)> change_model_;
  InferRequest last_request_;
  std::vector<std::string> repository_calls_;
  int requests_ = 0;
  int cancelled_ = 0;
  bool released_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_TESTS_SERVER_FAKE_ENGINE_H_
