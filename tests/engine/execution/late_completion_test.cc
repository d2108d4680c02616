// Tasks that complete after Run() has returned, on threads that are not the engine's: what a stream
// of a device or another process does.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <random>
#include <thread>

#include "engine/execution/dispatcher.h"
#include "engine/execution/unfold_request.h"

namespace chairlift {
namespace {

// Threads that complete tasks after a while.
class Device {
 public:
  explicit Device(int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, i] { Main(static_cast<uint32_t>(i)); });
    }
  }
  ~Device() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void Add(absl::AnyInvocable<void()> job) {
    const std::lock_guard<std::mutex> lock(mutex_);
    jobs_.push_back(std::move(job));
    changed_.notify_one();
  }

 private:
  void Main(uint32_t seed) {
    std::mt19937 random(seed);
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      absl::AnyInvocable<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      for (uint32_t i = random() % 64; i > 0; --i) std::this_thread::yield();
      job();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<absl::AnyInvocable<void()>> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

// A chain of as many nodes as the first element of x says, each of which adds 1 to the second; the
// last half of them grows while it runs.
class Chain final : public RequestGraph {
 public:
  explicit Chain(ValidatedRequest request)
      : RequestGraph(std::move(request)),
        total_(static_cast<int32_t>(x()[0])),
        known_((total_ + 1) / 2),
        value_(x()[1]) {}

  int32_t num_nodes() const override { return (total_ + 1) / 2; }
  GraphNode run(int32_t node) const override {
    GraphNode own;
    own.dependencies = DependsOn(node);
    return own;
  }
  std::vector<GrownNode> TakeGrown() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(grown_, {});
  }
  bool done() const override { return ran_ == total_; }
  StatusOr<std::vector<NamedTensor>> TakeOutputs() override {
    return std::vector<NamedTensor>{{"y", Tensor::Of<float>({1}, {value_})}};
  }

  Status RunNode() {
    if (value_ < 0) return Internal("negative");
    value_ += 1;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (++ran_ == known_ && known_ < total_) {
      GrownNode& next = grown_.emplace_back();
      next.rows = 1;
      next.dependencies.push_back(known_ - 1);
      ++known_;
    }
    return absl::OkStatus();
  }

 private:
  const float* x() const { return request().inputs[0].data<float>(); }
  std::span<const int32_t> DependsOn(int32_t node) const {
    static const std::vector<int32_t> kNumbers = [] {
      std::vector<int32_t> numbers(64);
      for (int32_t i = 0; i < 64; ++i) numbers[static_cast<size_t>(i)] = i;
      return numbers;
    }();
    return node == 0 ? std::span<const int32_t>()
                     : std::span(kNumbers).subspan(static_cast<size_t>(node) - 1, 1);
  }

  const int32_t total_;
  std::mutex mutex_;
  int32_t known_;
  int32_t ran_ = 0;
  float value_;
  std::vector<GrownNode> grown_;
};

class LateProgram final : public Program {
 public:
  LateProgram(Device& device, const char* policy)
      : Program("late", Takes(), Plan(policy)), device_(device) {}

  StatusOr<ProgramView> View() override { return ProgramView(); }
  StatusOr<std::unique_ptr<RequestGraph>> Unfold(ValidatedRequest request,
                                                 bool /*parts*/) override {
    return std::make_unique<Chain>(std::move(request));
  }
  void Run(TaskRun& run, TaskDone done) override {
    auto compute = [&run, done = std::move(done)]() mutable {
      TaskResult result;
      for (TaskNode& node : run.nodes) {
        node.units = 1;
        ++result.rows;
        node.status = static_cast<Chain*>(node.graph)->RunNode();
      }
      done(result);
    };
    if (tasks_++ % 5 == 0) return compute();
    device_.Add(std::move(compute));
  }

 private:
  static Signature Takes() {
    return {.inputs = {{"x", DType::kFloat, SymbolicShape(Shape{2})}},
            .outputs = {{"y", DType::kFloat, SymbolicShape(Shape{1})}}};
  }
  static ServingPlan Plan(const char* policy) {
    ServingPlan plan;
    plan.config.policy = policy;
    plan.scheduling.max_batch_size = 8;
    plan.scheduling.queue_delay = std::chrono::microseconds(100);
    return plan;
  }

  Device& device_;
  std::atomic<int> tasks_{0};
};

class LateCompletionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WorkerPoolOptions options;
    options.workers = 3;
    auto pool = WorkerPool::Create(options);
    ASSERT_TRUE(pool.ok()) << pool.status();
    pool_ = *std::move(pool);
    dispatcher_ = std::make_unique<Dispatcher>(*pool_, DispatcherOptions{});
    for (const char* policy : {"cellular", "window", "none", "cellular"}) {
      ModelMetadata metadata;
      metadata.name = policy;
      auto model =
          Model::Create(std::move(metadata), std::make_unique<LateProgram>(device_, policy));
      ASSERT_TRUE(model.ok()) << model.status();
      models_.push_back(*std::move(model));
    }
  }
  void TearDown() override {
    dispatcher_->Stop(std::chrono::milliseconds(0));
    dispatcher_->WaitForTasks();
    pool_.reset();
  }

  RequestId Submit(size_t model, float nodes, float value, InferCallback callback,
                   int64_t timeout_us = 0, ClientId client = 0) {
    auto request = std::make_shared<Request>();
    request->model = models_[model];
    request->reply.callback = std::move(callback);
    request->reply.client = client;
    if (timeout_us > 0) request->timeout = std::chrono::microseconds(timeout_us);
    Asked asked;
    asked.request.inputs = {{"x", Tensor::Of<float>({2}, {nodes, value})}};
    const auto unfolded = UnfoldRequest(std::move(asked), *request);
    EXPECT_TRUE(unfolded.ok()) << unfolded.status();
    return dispatcher_->Submit(std::move(request));
  }

  Device device_{3};
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::vector<std::shared_ptr<Model>> models_;
};

TEST_F(LateCompletionTest, EveryRequestIsAnsweredAsAlone) {
  constexpr int kRequests = 1000;  // below max_queue_size
  std::mt19937 random(3);
  std::mutex mutex;
  std::condition_variable changed;
  int answered = 0, succeeded = 0;
  for (int i = 0; i < kRequests; ++i) {
    const auto nodes = static_cast<float>(1 + random() % 20);
    const bool fails = random() % 16 == 0, cancels = random() % 16 == 0;
    const float value = fails ? -100 : static_cast<float>(random() % 1000);
    const int64_t timeout = random() % 16 == 0 ? 1 + random() % 2000 : 0;
    const RequestId number = Submit(
        random() % models_.size(), nodes, value,
        [&, nodes, value, fails, cancels, timeout](StatusOr<InferResponse> answer) {
          if (answer.ok()) {
            EXPECT_FALSE(fails);
            EXPECT_EQ(answer->outputs[0].tensor.data<float>()[0], value + nodes);
          } else {
            EXPECT_TRUE(fails || cancels || timeout > 0) << answer.status();
          }
          const std::lock_guard<std::mutex> lock(mutex);
          succeeded += answer.ok() ? 1 : 0;
          if (++answered == kRequests) changed.notify_one();
        },
        timeout, random() % 4);
    if (cancels) dispatcher_->Cancel(number);
    if (random() % 8 == 0) std::this_thread::yield();
  }
  std::unique_lock<std::mutex> lock(mutex);
  ASSERT_TRUE(
      changed.wait_for(lock, std::chrono::seconds(120), [&] { return answered == kRequests; }));
  EXPECT_GT(succeeded, kRequests / 2);
  for (const std::shared_ptr<Model>& model : models_) {
    ModelStatistics statistics = model->statistics().Read();
    // A request that is late has its answer before its task ends.
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
         statistics.running > 0 && std::chrono::steady_clock::now() < end;) {
      std::this_thread::yield();
      statistics = model->statistics().Read();
    }
    EXPECT_EQ(statistics.waiting, 0);
    EXPECT_EQ(statistics.running, 0);
  }
}

// Workers become idle, and models get and lose requests, all the time: a request that arrives just
// then must not be missed, since no other event makes a worker look again.
TEST_F(LateCompletionTest, WhoeverArrivesWhileWorkersBecomeIdleIsServed) {
  std::vector<std::thread> clients;
  for (uint32_t seed = 0; seed < 4; ++seed) {
    clients.emplace_back([this, seed] {
      std::mt19937 random(seed);
      for (int i = 0; i < 500; ++i) {
        const float value = static_cast<float>(random() % 1000);
        std::promise<StatusOr<InferResponse>> promise;
        auto answered = promise.get_future();
        Submit(random() % models_.size(), 2, value,
               [&](StatusOr<InferResponse> answer) { promise.set_value(std::move(answer)); });
        if (answered.wait_for(std::chrono::seconds(60)) != std::future_status::ready) std::abort();
        const StatusOr<InferResponse> answer = answered.get();
        ASSERT_TRUE(answer.ok()) << answer.status();
        EXPECT_EQ(answer->outputs[0].tensor.data<float>()[0], value + 2);
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

TEST_F(LateCompletionTest, TheEngineMayGoWhileTasksAreElsewhere) {
  std::atomic<int> answered{0};
  for (int i = 0; i < 200; ++i) {
    Submit(static_cast<size_t>(i) % models_.size(), 20, static_cast<float>(i),
           [&](StatusOr<InferResponse> /*answer*/) { ++answered; });
  }
  dispatcher_->Stop(std::chrono::milliseconds(0));
  EXPECT_EQ(answered, 200);
  dispatcher_->WaitForTasks();
}

}  // namespace
}  // namespace chairlift
