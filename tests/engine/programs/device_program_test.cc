// Programs on a device whose streams run on threads of their own: tasks are enqueued, complete from
// the stream's event, and fail one by one.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "engine/execution/dispatcher.h"
#include "engine/execution/unfold_request.h"
#include "runtime/sliced_models.h"
#include "support/test_device.h"
#include "support/test_kernels.h"

namespace chairlift {
namespace {

using testing::kFeatures;
using testing::kSlicedHidden;
using testing::ModelMaker;
using testing::TestDevice;
using testing::TestKernels;

// h' = tanh(x W + h U) of rows.
Graph StepGraph() {
  ModelMaker m;
  const auto rows = [](int64_t size) { return testing::Dims({testing::B(), size}); };
  const ValueId x = m.Input("x", DType::kFloat, rows(kFeatures));
  const ValueId h = m.Input("h", DType::kFloat, rows(kSlicedHidden));
  const ValueId input = m.Op("MatMul", {x, m.Weights({kFeatures, kSlicedHidden})});
  const ValueId state = m.Op("MatMul", {h, m.Weights({kSlicedHidden, kSlicedHidden})});
  m.Output(m.Op("Tanh", {m.Op("Add", {input, state})}));
  return std::move(m).Done();
}

// A request of x [steps, kFeatures]: as many nodes, one after the other.
class DeviceChain final : public RequestGraph {
 public:
  explicit DeviceChain(ValidatedRequest request) : RequestGraph(std::move(request)) {
    for (int32_t i = 0; i < num_nodes(); ++i) numbers_.push_back(i);
  }

  int32_t num_nodes() const override { return static_cast<int32_t>(x().shape()[0]); }
  GraphNode run(int32_t node) const override {
    GraphNode own;
    if (node > 0) own.dependencies = std::span(numbers_).subspan(static_cast<size_t>(node) - 1, 1);
    return own;
  }
  bool done() const override { return ran == num_nodes(); }
  StatusOr<std::vector<NamedTensor>> TakeOutputs() override {
    return std::vector<NamedTensor>{{"h", answer}};
  }
  const Tensor& x() const { return request().inputs[0]; }

  Tensor there;  // x on the device; absent until the first node
  Tensor state;  // on the device, where row `row` is this request's
  int64_t row = 0;
  int32_t ran = 0;
  Tensor answer;

 private:
  std::vector<int32_t> numbers_;
};

// Runs each task on the worker's own stream of the device.
class DeviceProgram final : public Program {
 public:
  DeviceProgram(TestDevice& device, int workers) : Program("device", Takes(), Plan()) {
    auto cell = Cell::Create("step", StepGraph(), {.device = &device});
    EXPECT_TRUE(cell.ok()) << cell.status();
    cell_ = *std::move(cell);
    for (int i = 0; i < workers; ++i) workers_.push_back(std::make_unique<Worker>(device));
  }

  StatusOr<ProgramView> View() override { return ProgramView{.cells = {cell_.get()}}; }
  StatusOr<std::unique_ptr<RequestGraph>> Unfold(ValidatedRequest request,
                                                 bool /*parts*/) override {
    return std::make_unique<DeviceChain>(std::move(request));
  }
  void Run(TaskRun& run, TaskDone done) override {
    Worker& worker = *workers_[static_cast<size_t>(run.worker)];
    const Status enqueued = Enqueue(run, worker);
    worker.stream->Record()->Then(
        [&run, enqueued, done = std::move(done)](const Status& ran) mutable {
          TaskResult result;
          for (TaskNode& node : run.nodes) {
            auto& chain = static_cast<DeviceChain&>(*node.graph);
            node.units = 1;
            ++result.rows;
            ++chain.ran;
            // Each has a status of its own: they are read and freed on different threads.
            const Status& status = enqueued.ok() ? ran : enqueued;
            node.status = Status(status.code(), status.message());
          }
          done(result);
        });
  }

 private:
  struct Worker {
    explicit Worker(TestDevice& device) {
      auto made = device.NewStream();
      EXPECT_TRUE(made.ok()) << made.status();
      stream = *std::move(made);
      compute = std::make_unique<Arena>(*stream);
      staging = std::make_unique<Arena>(*stream);
    }
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Arena> compute, staging;
  };

  static Signature Takes() {
    return {.inputs = {{"x", DType::kFloat, testing::Dims({Dim::Symbol("time"), kFeatures})}},
            .outputs = {{"h", DType::kFloat, SymbolicShape(Shape{1, kSlicedHidden})}}};
  }
  static ServingPlan Plan() {
    ServingPlan plan;
    plan.config.policy = "cellular";
    plan.scheduling.max_batch_size = 8;
    return plan;
  }

  Status Enqueue(TaskRun& run, Worker& worker) {
    Stream& stream = *worker.stream;
    std::vector<const std::byte*> x_rows, h_rows;
    for (TaskNode& node : run.nodes) {
      auto& chain = static_cast<DeviceChain&>(*node.graph);
      if (!chain.there.present()) {
        CHAIRLIFT_ASSIGN_OR_RETURN(chain.there, stream.Upload(chain.x()));
        const Tensor zeros =
            Tensor::Of<float>({1, kSlicedHidden}, std::vector<float>(kSlicedHidden, 0.0f));
        CHAIRLIFT_ASSIGN_OR_RETURN(chain.state, stream.Upload(zeros));
      }
      const auto at = [](const Tensor& t, int64_t row) {
        return static_cast<const std::byte*>(t.Rows(row, 1).raw());
      };
      x_rows.push_back(at(chain.there, node.node));
      h_rows.push_back(at(chain.state, chain.row));
    }
    const auto rows = static_cast<int64_t>(run.nodes.size());
    const std::vector<Cell::Rows> inputs = {{Shape{kFeatures}, x_rows.data()},
                                            {Shape{kSlicedHidden}, h_rows.data()}};
    CHAIRLIFT_ASSIGN_OR_RETURN(
        const std::vector<Tensor> outputs,
        cell_->Run(rows, inputs, run.team, run.worker, *worker.compute, *worker.staging));
    for (int64_t r = 0; r < rows; ++r) {
      auto& chain = static_cast<DeviceChain&>(*run.nodes[static_cast<size_t>(r)].graph);
      // Its last state may be of another stream: it is dropped when the request's next task, or the
      // request, comes after this one.
      stream.Keep(std::make_shared<Tensor>(std::exchange(chain.state, outputs[0])));
      chain.row = r;
      if (chain.ran + 1 < chain.num_nodes()) continue;
      chain.answer = Tensor::Allocate(DType::kFloat, {1, kSlicedHidden});
      const Tensor own = outputs[0].Rows(r, 1);
      CHAIRLIFT_RETURN_IF_ERROR(stream.CopyOut(chain.answer.raw(), own.raw(), own.byte_size()));
    }
    return absl::OkStatus();
  }

  std::unique_ptr<Cell> cell_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

class DeviceProgramTest : public ::testing::Test {
 protected:
  static constexpr int kWorkers = 2;

  void SetUp() override {
    WorkerPoolOptions options;
    options.workers = kWorkers;
    auto pool = WorkerPool::Create(options);
    ASSERT_TRUE(pool.ok()) << pool.status();
    pool_ = *std::move(pool);
    dispatcher_ = std::make_unique<Dispatcher>(*pool_, DispatcherOptions{});
    ModelMetadata metadata;
    metadata.name = "device";
    auto model =
        Model::Create(std::move(metadata), std::make_unique<DeviceProgram>(device_, kWorkers));
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    auto cell = Cell::Create("step", StepGraph(), {});
    ASSERT_TRUE(cell.ok()) << cell.status();
    on_the_cpu_ = *std::move(cell);
  }
  void TearDown() override {
    dispatcher_->Stop(std::chrono::milliseconds(0));
    dispatcher_->WaitForTasks();
    pool_.reset();  // its last jobs end, which use the dispatcher
    dispatcher_.reset();
    // Nor does a stream's thread still hold it, which would then have to end itself.
    EXPECT_EQ(model_.use_count(), 1);
    model_.reset();
    EXPECT_EQ(device_.counts().live, 0);
  }

  void Submit(const Tensor& x, InferCallback callback) {
    auto request = std::make_shared<Request>();
    request->model = model_;
    request->reply.callback = std::move(callback);
    Asked asked;
    asked.request.inputs = {{"x", x}};
    const auto unfolded = UnfoldRequest(std::move(asked), *request);
    ASSERT_TRUE(unfolded.ok()) << unfolded.status();
    dispatcher_->Submit(std::move(request));
  }

  Tensor Alone(const Tensor& x) {
    SoloTeam team;
    Arena arena, staging;
    Tensor state = Tensor::Of<float>({1, kSlicedHidden}, std::vector<float>(kSlicedHidden, 0.0f));
    for (int64_t step = 0; step < x.shape()[0]; ++step) {
      const Tensor row = x.Rows(step, 1);
      const auto* const x_row = static_cast<const std::byte*>(row.raw());
      const auto* const h_row = static_cast<const std::byte*>(state.raw());
      const std::vector<Cell::Rows> inputs = {{Shape{kFeatures}, &x_row},
                                              {Shape{kSlicedHidden}, &h_row}};
      auto outputs = on_the_cpu_->Run(1, inputs, team, 0, arena, staging);
      EXPECT_TRUE(outputs.ok()) << outputs.status();
      state = (*outputs)[0];
    }
    return state;
  }

  Tensor RandomX() {
    const auto steps = std::uniform_int_distribution<int64_t>(1, 12)(random_);
    Tensor x = Tensor::Allocate(DType::kFloat, {steps, kFeatures});
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = normal(random_);
    return x;
  }

  // Submits as many requests, waits, and returns how many failed; those that did not are right.
  int SubmitAndCheck(int requests) {
    std::vector<Tensor> inputs;
    for (int i = 0; i < requests; ++i) inputs.push_back(RandomX());
    std::vector<StatusOr<InferResponse>> answers(inputs.size(), absl::UnknownError("unanswered"));
    std::mutex mutex;
    std::condition_variable changed;
    int answered = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      Submit(inputs[i], [&, i](StatusOr<InferResponse> answer) {
        const std::lock_guard<std::mutex> lock(mutex);
        answers[i] = std::move(answer);
        ++answered;
        changed.notify_one();
      });
    }
    std::unique_lock<std::mutex> lock(mutex);
    EXPECT_TRUE(
        changed.wait_for(lock, std::chrono::seconds(120), [&] { return answered == requests; }));
    int failed = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (answers[i].ok()) {
        testing::ExpectClose(answers[i]->outputs[0].tensor, Alone(inputs[i]));
      } else {
        ++failed;
      }
    }
    return failed;
  }

  std::mt19937 random_{11};
  const TestKernels kernels_;
  TestDevice device_{&kernels_};
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::shared_ptr<Model> model_;
  std::unique_ptr<Cell> on_the_cpu_;
};

TEST_F(DeviceProgramTest, RequestsThatRideTogetherAnswerAsAloneOnTheCpu) {
  EXPECT_EQ(SubmitAndCheck(300), 0);
}

// A worker thread enqueues and goes: it waits for no stream.
TEST_F(DeviceProgramTest, WorkersDoNotWaitForTheDevice) {
  ASSERT_EQ(SubmitAndCheck(1), 0);  // plans are made, for which the device is waited for
  const Tensor x = Tensor::Of<float>({1, kFeatures}, std::vector<float>(kFeatures, 1.0f));
  device_.Hold();
  std::atomic<int> answered = 0;
  const int launches = device_.counts().launches;
  Submit(x, [&](const StatusOr<InferResponse>& answer) { answered += answer.ok() ? 1 : 100; });
  while (device_.counts().launches == launches) std::this_thread::yield();
  std::atomic<bool> ran = false;
  for (int worker = 0; worker < kWorkers; ++worker) {
    ran = false;
    ASSERT_TRUE(pool_->Submit(worker, [&](int /*worker*/) { ran = true; }));
    while (!ran) std::this_thread::yield();
  }
  EXPECT_EQ(answered, 0);
  device_.Resume();
  while (answered == 0) std::this_thread::yield();
  EXPECT_EQ(answered, 1);
}

TEST_F(DeviceProgramTest, FailuresAreOfTheRequestsOfOneTask) {
  constexpr int kRequests = 60, kMostInATask = 8;
  ASSERT_EQ(SubmitAndCheck(20), 0);
  for (int n = 1; n < 30; n += 7) {
    device_.FailAllocation(n);
    int failed = SubmitAndCheck(kRequests);
    EXPECT_GE(failed, 1);
    EXPECT_LE(failed, kMostInATask);
    device_.FailLaunch(n);
    failed = SubmitAndCheck(kRequests);
    EXPECT_GE(failed, 1);
    EXPECT_LE(failed, kMostInATask);
    device_.FailWork(n);
    failed = SubmitAndCheck(kRequests);
    EXPECT_GE(failed, 1);
    EXPECT_LE(failed, kMostInATask);
  }
  EXPECT_EQ(SubmitAndCheck(20), 0);
}

}  // namespace
}  // namespace chairlift
