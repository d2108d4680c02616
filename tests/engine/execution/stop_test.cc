// Requests that leave while they run: cancelled, or past their deadline. The model runs for ever,
// so that these tests end only where its run does not.
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <random>
#include <thread>

#include "chairlift/engine.h"
#include "engine/recurrent_models.h"
#include "engine/test_models.h"

namespace chairlift {
namespace {

using std::chrono::microseconds;
using testing::GraphProtoBuilder;
using testing::NodeBuilder;
using testing::TempFolder;
using testing::WriteFile;

using Answer = StatusOr<InferResponse>;

// y = x, after a loop in a loop: 2^40 iterations.
testing::ModelBuilder Endless() {
  testing::ModelBuilder m(17);
  m.Input("x", testing::kFloat, {2}).Output("y", testing::kFloat, {2});
  m.Ints("trips", {1 << 20});
  NodeBuilder outer = m.Node("Loop", {"trips", "", "x"}, {"y"});
  GraphProtoBuilder outer_body(outer.Body("body"));
  outer_body.Input("i", testing::kInt64, {})
      .Input("on", testing::kBool, {})
      .Input("a", testing::kFloat, {2})
      .Output("on_next")
      .Output("a_next");
  outer_body.Node("Identity", {"on"}, {"on_next"});
  NodeBuilder inner = outer_body.Node("Loop", {"trips", "", "a"}, {"a_next"});
  GraphProtoBuilder body(inner.Body("body"));
  body.Input("j", testing::kInt64, {})
      .Input("going", testing::kBool, {})
      .Input("b", testing::kFloat, {2})
      .Output("going_next")
      .Output("b_next");
  body.Node("Identity", {"going"}, {"going_next"});
  body.Node("Abs", {"b"}, {"b_next"});
  return m;
}

class StopTest : public ::testing::Test {
 protected:
  void Start(int workers) {
    engine_ = *Engine::Create({.workers = workers, .autotune = false});
    Load("endless", Endless());
    Load("quick", testing::DoublingModel());
  }
  void Load(const std::string& name, const testing::ModelBuilder& model) {
    const Status loaded =
        engine_->LoadModel(name, WriteFile(folder_ / (name + ".onnx"), model.Bytes()), {});
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
  static InferRequest Ask(const std::string& model) {
    return {.model = model,
            .inputs = {{"x", model == "endless" ? Tensor::Of<float>({2}, {1, 2})
                                                : Tensor::Of<float>({1, 4}, {1, 2, 3, 4})}}};
  }
  std::future<Answer> Send(InferRequest request, RequestId* id = nullptr) {
    auto promise = std::make_shared<std::promise<Answer>>();
    const RequestId number = engine_->InferAsync(
        std::move(request), [promise](Answer answer) { promise->set_value(std::move(answer)); });
    if (id != nullptr) *id = number;
    return promise->get_future();
  }
  void AwaitRunning(const std::string& model) {
    while ((*engine_->Statistics(model))[0].running == 0) std::this_thread::yield();
  }
  uint64_t Failures(const std::string& model, const std::string& reason) {
    const ModelStatistics statistics = (*engine_->Statistics(model))[0];
    const auto found = statistics.failures.find(reason);
    return found == statistics.failures.end() ? 0 : found->second;
  }

  TempFolder folder_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(StopTest, ACancelledRequestStopsRunningInsideItsLoops) {
  Start(1);
  RequestId id = 0;
  std::future<Answer> endless = Send(Ask("endless"), &id);
  AwaitRunning("endless");
  engine_->Cancel(id);
  EXPECT_TRUE(absl::IsCancelled(endless.get().status()));
  EXPECT_TRUE(engine_->Infer(Ask("quick")).ok());  // the worker is free
  EXPECT_EQ(Failures("endless", "cancelled"), 1u);
  EXPECT_EQ(Failures("endless", "error"), 0u);
}

TEST_F(StopTest, ADeadlineThatPassesWhileItRunsIsATimeout) {
  Start(1);
  InferRequest hurried = Ask("endless");
  hurried.timeout = microseconds(5000);
  EXPECT_TRUE(absl::IsDeadlineExceeded(Send(std::move(hurried)).get().status()));
  EXPECT_TRUE(engine_->Infer(Ask("quick")).ok());
  EXPECT_EQ(Failures("endless", "timeout"), 1u);
  EXPECT_EQ((*engine_->Statistics("endless"))[0].success.count, 0u);
}

TEST_F(StopTest, BorrowedInputsAreReadNoMoreOnceTheAnswerIsThere) {
  Start(1);
  std::vector<float> mine = {1, 2};
  InferRequest hurried = Ask("endless");
  hurried.inputs[0].tensor = Tensor::Wrap(DType::kFloat, {2}, mine.data());
  hurried.timeout = microseconds(5000);
  EXPECT_TRUE(absl::IsDeadlineExceeded(Send(std::move(hurried)).get().status()));
  mine.clear();
  EXPECT_TRUE(engine_->Infer(Ask("quick")).ok());
}

TEST_F(StopTest, ShutdownEndsWhatRuns) {
  Start(2);
  std::future<Answer> endless = Send(Ask("endless"));
  AwaitRunning("endless");
  engine_->Shutdown(std::chrono::milliseconds(0));
  EXPECT_TRUE(absl::IsUnavailable(endless.get().status()));
  EXPECT_EQ(Failures("endless", "shutdown"), 1u);
}

// Workers find out about deadlines as they look for tasks; clients give up at the same moments.
TEST_F(StopTest, CancelsMeetDeadlines) {
  Start(2);
  Load("steps", testing::LoopOverTime());
  Tensor x = Tensor::Allocate(DType::kFloat, {40, 1, 6});
  std::fill_n(x.data<float>(), x.size(), 0.1F);
  Tensor h = Tensor::Allocate(DType::kFloat, {1, 6});
  std::fill_n(h.data<float>(), h.size(), 0.0F);
  std::mt19937 random(5);
  for (int round = 0; round < 25; ++round) {
    std::vector<std::future<Answer>> answers;
    std::vector<std::pair<std::chrono::steady_clock::time_point, RequestId>> cancels;
    for (int i = 0; i < 60; ++i) {
      const auto timeout = microseconds(200 + random() % 3000);
      InferRequest request{.model = "steps", .inputs = {{"x", x}, {"h0", h}}, .timeout = timeout};
      RequestId id = 0;
      answers.push_back(Send(std::move(request), &id));
      cancels.emplace_back(std::chrono::steady_clock::now() + timeout, id);
    }
    std::sort(cancels.begin(), cancels.end());
    for (const auto& [when, id] : cancels) {
      std::this_thread::sleep_until(when + microseconds(random() % 200) - microseconds(100));
      engine_->Cancel(id);
    }
    for (std::future<Answer>& answer : answers) {
      const Status status = answer.get().status();
      EXPECT_TRUE(status.ok() || absl::IsCancelled(status) || absl::IsDeadlineExceeded(status))
          << status;
    }
  }
}

// Whichever requests leave, and whenever: each is answered once, with its own answer, and all are
// counted.
TEST_F(StopTest, RequestsThatLeaveAtAnyTimeDisturbNoOther) {
  Start(2);
  Load("steps", testing::LoopOverTime());
  std::mt19937 random(11);
  struct Sent {
    RequestId id = 0;
    std::future<Answer> answer;
    std::string model;
    float first = 0;
    bool hurried = false, cancelled = false;
  };
  std::vector<Sent> all;
  for (int i = 0; i < 600; ++i) {
    Sent sent;
    sent.model = random() % 3 != 0 ? "quick" : random() % 4 != 0 ? "steps" : "endless";
    InferRequest request = Ask(sent.model);
    sent.first = static_cast<float>(i);
    if (sent.model == "quick") {
      request.inputs[0].tensor.data<float>()[0] = sent.first;
    } else if (sent.model == "steps") {
      Tensor x = Tensor::Allocate(DType::kFloat, {1 + static_cast<int64_t>(random() % 30), 1, 6});
      std::fill_n(x.data<float>(), x.size(), 0.1F);
      Tensor h = Tensor::Allocate(DType::kFloat, {1, 6});
      std::fill_n(h.data<float>(), h.size(), 0.0F);
      request.inputs = {{"x", x}, {"h0", h}};
    }
    sent.hurried = sent.model == "endless" || random() % 4 == 0;
    if (sent.hurried) request.timeout = microseconds(random() % 3000);
    sent.answer = Send(std::move(request), &sent.id);
    all.push_back(std::move(sent));
    if (random() % 3 == 0) {
      Sent& other = all[random() % all.size()];
      engine_->Cancel(other.id);
      other.cancelled = true;
    }
  }
  std::map<std::string, uint64_t> good;
  std::map<std::string, uint64_t> bad;
  for (Sent& sent : all) {
    const Answer answer = sent.answer.get();
    ++(answer.ok() ? good : bad)[sent.model];
    if (absl::IsDeadlineExceeded(answer.status())) {
      EXPECT_TRUE(sent.hurried);
    } else if (absl::IsCancelled(answer.status())) {
      EXPECT_TRUE(sent.cancelled);
    } else {
      ASSERT_TRUE(answer.ok()) << answer.status();
      EXPECT_NE(sent.model, "endless");
      if (sent.model == "quick") {
        EXPECT_EQ(answer->outputs[0].tensor.data<float>()[0], 2 * sent.first);
      }
    }
  }
  engine_->Shutdown(std::chrono::seconds(60));
  for (const char* model : {"quick", "steps", "endless"}) {
    ModelStatistics statistics = (*engine_->Statistics(model))[0];
    while (statistics.running > 0) {  // a request that was answered early may still run
      std::this_thread::yield();
      statistics = (*engine_->Statistics(model))[0];
    }
    EXPECT_EQ(statistics.success.count, good[model]) << model;
    EXPECT_EQ(statistics.fail.count, bad[model]) << model;
    EXPECT_EQ(statistics.waiting, 0) << model;
  }
}

}  // namespace
}  // namespace chairlift
