// The engine through its public interface: loading, answering, refusing.
#include "chairlift/engine.h"

#include <gmock/gmock.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "engine/test_models.h"

namespace chairlift {
namespace {

using testing::DoublingModel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempFolder;
using testing::WriteFile;

std::unique_ptr<Engine> MakeEngine(const EngineOptions& options = {.workers = 2}) {
  StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

std::string MessageOf(const Status& status) {
  return std::string(status.message().data(), status.message().size());
}

std::vector<float> Values(const Tensor& tensor) {
  return {tensor.values<float>().begin(), tensor.values<float>().end()};
}

class EngineTest : public ::testing::Test {
 protected:
  TempFolder folder_;
  std::unique_ptr<Engine> engine_ = MakeEngine();

  void LoadDoubling(const ModelConfig& config = {}) {
    const std::string file = WriteFile(folder_ / "doubling.onnx", DoublingModel().Bytes());
    const Status loaded = engine_->LoadModel("doubling", file, config);
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
};

TEST_F(EngineTest, AnswersWithAFileAndNoConfiguration) {
  LoadDoubling();
  InferRequest request;
  request.model = "doubling";
  request.id = "seven";
  request.inputs = {{"x", Tensor::Of<float>({1, 4}, {1, -2, 3, 4})}};
  const StatusOr<InferResponse> response = engine_->Infer(std::move(request));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->model, "doubling");
  EXPECT_EQ(response->version, "1");
  EXPECT_EQ(response->id, "seven");
  ASSERT_EQ(response->outputs.size(), 1u);
  EXPECT_EQ(response->outputs[0].name, "y");
  EXPECT_THAT(Values(response->outputs[0].tensor), ElementsAre(2, 0, 6, 8));
}

TEST_F(EngineTest, AskingForAnUnknownModelNamesIt) {
  const StatusOr<InferResponse> response = engine_->Infer({.model = "nobody"});
  EXPECT_EQ(response.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(MessageOf(response.status()), HasSubstr("'nobody'"));
}

double CpuSeconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Unless it is expected to take long: this one is far from that, and what a pause makes of it is
// forgotten after a few.
TEST_F(EngineTest, WhoWaitsForTheOnlyWorkerRunsItsTask) {
  engine_ = MakeEngine({.workers = 1, .autotune = false});  // nothing is planned ahead
  const std::string file = WriteFile(folder_ / "convolutions.onnx", testing::ConvModel().Bytes());
  ASSERT_TRUE(engine_->LoadModel("convolutions", file, {}).ok());
  const std::string name = (*engine_->Metadata("convolutions")).inputs[0].name;
  Tensor x = Tensor::Allocate(DType::kFloat, {1, 3, 64, 64});
  std::fill_n(x.data<float>(), x.size(), 1.0f);
  const auto ask = [&](int times) {
    for (int i = 0; i < times; ++i) {
      InferRequest request;
      request.model = "convolutions";
      request.inputs = {{name, x}};
      ASSERT_TRUE(engine_->Infer(std::move(request)).ok());
    }
  };
  ask(10);  // costs are learnt
  const double mine = CpuSeconds(CLOCK_THREAD_CPUTIME_ID);
  const double all = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID);
  ask(200);
  EXPECT_GT(CpuSeconds(CLOCK_THREAD_CPUTIME_ID) - mine,
            0.5 * (CpuSeconds(CLOCK_PROCESS_CPUTIME_ID) - all));
}

// A thread that waits for an answer may hold locks that other requests' callbacks take.
TEST_F(EngineTest, NobodyElsesCallbackRunsOnAThreadThatWaits) {
  LoadDoubling({.max_batch_size = 8});
  const auto ask = [](float x) {
    InferRequest request;
    request.model = "doubling";
    request.inputs = {{"x", Tensor::Of<float>({1, 4}, {x, x, x, x})}};
    return request;
  };
  constexpr int kRequests = 2000;
  std::atomic<bool> ended{false};
  std::atomic<int> wrong{0};
  std::thread::id waiter_id;
  std::promise<void> started;
  std::thread waiter([&] {
    waiter_id = std::this_thread::get_id();
    started.set_value();
    for (int i = 0; !ended; i = (i + 1) % 100) {
      const StatusOr<InferResponse> response = engine_->Infer(ask(static_cast<float>(i)));
      if (!response.ok() || Values(response->outputs[0].tensor)[3] != 2 * static_cast<float>(i)) {
        ++wrong;
      }
    }
  });
  started.get_future().wait();
  std::atomic<int> left{kRequests}, there{0};
  for (int i = 0; i < kRequests; ++i) {
    engine_->InferAsync(ask(1), [&](const StatusOr<InferResponse>& response) {
      if (!response.ok()) ++wrong;
      if (std::this_thread::get_id() == waiter_id) ++there;
      --left;
    });
    while (left > kRequests - i + 16) std::this_thread::yield();
  }
  while (left > 0) std::this_thread::yield();
  ended = true;
  waiter.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(there, 0);
}

}  // namespace
}  // namespace chairlift
