// Requests that take long to make ready: the threads that do it, while no other request waits.
#include "engine/execution/unfold_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <map>
#include <random>
#include <string>

#include "chairlift/engine.h"
#include "engine/test_models.h"

namespace chairlift {
namespace {

std::mutex hook_mutex;
std::function<void(const std::string&)> hook;  // guarded by hook_mutex

}  // namespace
}  // namespace chairlift

// What watched_plugin.cc calls.
extern "C" __attribute__((visibility("default"))) void ChairliftTestUnfolding(const char* where) {
  std::function<void(const std::string&)> call;
  {
    const std::lock_guard<std::mutex> lock(chairlift::hook_mutex);
    call = chairlift::hook;
  }
  if (call) call(where);
}

namespace chairlift {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using testing::FixedModel;
using ::testing::HasSubstr;
using testing::TempFolder;
using testing::WriteFile;

TEST(UnfoldThreads, JobsOfALaneRunInOrderAndOneAtATime) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    std::map<int, std::vector<int>> ran;  // by lane; written by one job of it at a time
    std::map<int, int> added;
    std::array<std::atomic<int>, 5> running{};
    for (int lane = 0; lane < 5; ++lane) ran[lane];
    const std::array<char, 5> keys{};
    UnfoldThreads preparation(1 + round % 3);
    for (int i = 0; i < 200; ++i) {
      const int lane = static_cast<int>(random() % 5);
      preparation.Add(&keys[static_cast<size_t>(lane)], [&, lane, number = added[lane]++] {
        EXPECT_EQ(running[static_cast<size_t>(lane)]++, 0);
        ran[lane].push_back(number);
        --running[static_cast<size_t>(lane)];
      });
    }
    preparation.Stop();
    for (int lane = 0; lane < 5; ++lane) {
      ASSERT_EQ(static_cast<int>(ran[lane].size()), added[lane]);
      for (int i = 0; i < added[lane]; ++i) EXPECT_EQ(ran[lane][static_cast<size_t>(i)], i);
    }
  }
}

TEST(UnfoldThreads, ALaneThatBlocksHoldsUpNoOther) {
  const char slow = 0;
  const char quick = 0;
  std::promise<void> release;
  std::promise<void> ran;
  UnfoldThreads preparation(2);  // ends before what its jobs use
  preparation.Add(&slow, [&] { release.get_future().wait(); });
  preparation.Add(&slow, [] {});  // takes no second thread
  preparation.Add(&quick, [&] { ran.set_value(); });
  ran.get_future().wait();
  release.set_value();
}

using Answer = StatusOr<InferResponse>;

// Model "slow" runs a user's code that the test holds up; "quick" is any other.
class SlowUnfolderTest : public ::testing::Test {
 protected:
  void TearDown() override {
    Release();
    engine_.reset();
    const std::lock_guard<std::mutex> lock(hook_mutex);
    hook = nullptr;
  }

  void Start(int workers, int max_requests = 4096, bool endless = false) {
    engine_ = *Engine::Create({.workers = workers,
                               .max_requests = max_requests,
                               .autotune = false,
                               .allow_plugins = true});
    testing::ModelBuilder pair(17);
    pair.Input("left", testing::kFloat, {"batch", 4})
        .Input("right", testing::kFloat, {"batch", 4})
        .Output("both", testing::kFloat, {"batch", 4});
    pair.Node("Add", {"left", "right"}, {"both"});
    WriteFile(folder_ / "slow/1/pair.onnx", pair.Bytes());
    fs::copy_file(CHAIRLIFT_WATCHED_PLUGIN, folder_ / "slow/watched.so");
    WriteFile(folder_ / "slow/model.yaml",
              std::string("cells: {pair: {}}\nunfold:\n  plugin: watched.so\n") +
                  (endless ? "  options: {endless: \"yes\"}\n" : "") +
                  "  inputs: {x: {type: float32, shape: [length, 4]}}\n"
                  "  outputs: {y: {type: float32, shape: [1, 4]}}\n");
    const Status slow = engine_->LoadModel("slow", folder_ / "slow/1", {});
    ASSERT_TRUE(slow.ok()) << slow;
    const std::string file = WriteFile(folder_ / "quick.onnx", FixedModel().Bytes());
    ASSERT_TRUE(engine_->LoadModel("quick", file, {}).ok());
  }

  static InferRequest Slow() {
    Tensor x = Tensor::Allocate(DType::kFloat, {2, 4});
    std::fill_n(x.data<float>(), x.size(), 1.0F);
    return {.model = "slow", .inputs = {{"x", x}}};
  }
  static InferRequest Quick() {
    return {.model = "quick", .inputs = {{"x", Tensor::Of<float>({1, 2}, {1, 2})}}};
  }
  std::future<Answer> Send(InferRequest request, RequestId* id = nullptr) {
    auto promise = std::make_shared<std::promise<Answer>>();
    const RequestId number = engine_->InferAsync(
        std::move(request), [promise](Answer answer) { promise->set_value(std::move(answer)); });
    if (id != nullptr) *id = number;
    return promise->get_future();
  }
  // From now on, the first user's code that comes to `where` stays there until Release().
  void HoldAt(const std::string& where) {
    const std::lock_guard<std::mutex> lock(hook_mutex);
    hook = [this, where, held = std::make_shared<std::atomic<bool>>(false)](const std::string& at) {
      if (at != where || held->exchange(true)) return;
      there_.set_value();
      release_.wait();
    };
  }
  void AwaitHeld() { there_.get_future().wait(); }
  void Release() {
    if (!released_) releaser_.set_value();
    released_ = true;
  }

  TempFolder folder_;
  std::promise<void> there_;
  std::promise<void> releaser_;
  std::shared_future<void> release_ = releaser_.get_future().share();
  bool released_ = false;
  std::unique_ptr<Engine> engine_;
};

TEST_F(SlowUnfolderTest, NeitherItsCallerNorAnotherModelWaitsForOneThatUnfolds) {
  Start(2);
  HoldAt("unfold");
  std::future<Answer> slow = Send(Slow());  // returns
  AwaitHeld();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(engine_->Infer(Quick()).ok());
  EXPECT_EQ((*engine_->Statistics("slow"))[0].waiting, 1);
  Release();
  const Answer answer = slow.get();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_THAT(answer->outputs[0].tensor.values<float>(), ElementsAre(2, 2, 2, 2));
}

TEST_F(SlowUnfolderTest, AnotherModelIsAnsweredWhileOneLooksAtWhatRan) {
  Start(2);
  HoldAt("ran");
  std::future<Answer> slow = Send(Slow());
  AwaitHeld();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(engine_->Infer(Quick()).ok());
  EXPECT_EQ((*engine_->Statistics("slow"))[0].running, 1);
  Release();
  EXPECT_TRUE(slow.get().ok());
}

TEST_F(SlowUnfolderTest, ADeadlineThatPassesWhileItsCodeRunsIsAnsweredAtOnce) {
  Start(2);
  HoldAt("ran");
  InferRequest hurried = Slow();
  hurried.timeout = std::chrono::milliseconds(20);
  EXPECT_TRUE(absl::IsDeadlineExceeded(engine_->Infer(std::move(hurried)).status()));
  Release();
  EXPECT_TRUE(engine_->Infer(Slow()).ok());
}

TEST_F(SlowUnfolderTest, ARequestLeavesWhileItIsPrepared) {
  Start(2);
  HoldAt("unfold");
  RequestId id = 0;
  std::future<Answer> held = Send(Slow(), &id);
  AwaitHeld();
  InferRequest hurried = Slow();
  hurried.timeout = std::chrono::microseconds(1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(engine_->Infer(std::move(hurried)).status()));
  std::future<Answer> kept = Send(Slow());
  engine_->Cancel(id);
  EXPECT_TRUE(absl::IsCancelled(held.get().status()));
  Release();
  EXPECT_TRUE(kept.get().ok());
  const ModelStatistics statistics = (*engine_->Statistics("slow"))[0];
  EXPECT_EQ(statistics.inference_count, 1u);
  EXPECT_EQ(statistics.failures.at("timeout"), 1u);
  EXPECT_EQ(statistics.failures.at("cancelled"), 1u);
}

TEST_F(SlowUnfolderTest, RequestsThatArePreparedCountAgainstTheLimit) {
  Start(1, 2);
  HoldAt("unfold");
  std::future<Answer> first = Send(Slow());
  AwaitHeld();
  std::future<Answer> second = Send(Slow());
  EXPECT_TRUE(absl::IsResourceExhausted(engine_->Infer(Slow()).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(engine_->Infer(Quick()).status()));
  Release();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
}

TEST_F(SlowUnfolderTest, AnswersToAClientKeepTheirOrder) {
  Start(2);
  HoldAt("unfold");
  std::vector<int> order;  // callbacks to one client run one after the other
  std::promise<void> all;
  const auto ask = [&](InferRequest request, int number) {
    request.client = 7;
    engine_->InferAsync(std::move(request), [&, number](const Answer& answer) {
      EXPECT_TRUE(answer.ok()) << answer.status();
      order.push_back(number);
      if (order.size() == 3) all.set_value();
    });
  };
  ask(Slow(), 0);
  AwaitHeld();
  ask(Quick(), 1);
  ask(Slow(), 2);
  EXPECT_TRUE(engine_->Infer(Quick()).ok());
  Release();
  all.get_future().wait();
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
}

TEST_F(SlowUnfolderTest, ShutdownFailsWhatIsPreparedAndWaitsForTheUsersCode) {
  Start(2);
  HoldAt("unfold");
  std::future<Answer> held = Send(Slow());
  AwaitHeld();
  std::thread shutdown([this] { engine_->Shutdown(std::chrono::milliseconds(0)); });
  EXPECT_TRUE(absl::IsUnavailable(held.get().status()));
  Release();
  shutdown.join();
}

TEST_F(SlowUnfolderTest, GrowingWithoutEndIsTheRequestsOwnFault) {
  Start(1, 4096, true);
  const Answer answer = engine_->Infer(Slow());
  EXPECT_TRUE(absl::IsInvalidArgument(answer.status())) << answer.status();
  EXPECT_THAT(std::string(answer.status().message()),
              HasSubstr("unfolds into more than 262144 cells"));
}

}  // namespace
}  // namespace chairlift
