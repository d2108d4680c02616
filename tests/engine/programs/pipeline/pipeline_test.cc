// Models made of other models: answers as from the steps one after another, whichever requests are
// batched; and what becomes of a request in the middle.
#include <gmock/gmock.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <thread>

#include "chairlift/text.h"
#include "engine/programs/pipeline/pipeline_run.h"
#include "engine/programs/process/functions.h"
#include "engine/test_models.h"

namespace chairlift {
namespace {

using ::testing::AllOf;
using testing::FunctionTest;
using ::testing::HasSubstr;
using testing::ModelBuilder;
using testing::RandomWeights;
using testing::TempFolder;
using testing::WriteFile;

// y = x · weights − x, element by element: [batch, 4] to the same.
ModelBuilder Layer(unsigned seed, const std::string& x = "x", const std::string& y = "y") {
  ModelBuilder m(17);
  m.Input(x, testing::kFloat, {"batch", 4}).Output(y, testing::kFloat, {"batch", 4});
  RandomWeights(m, "weights", {1, 4}, seed);
  m.Node("Mul", {x, "weights"}, {"product"});
  m.Node("Sub", {"product", x}, {y});
  return m;
}
// sum = p + q.
ModelBuilder Adding() {
  ModelBuilder m(17);
  m.Input("p", testing::kFloat, {"batch", 4}).Input("q", testing::kFloat, {"batch", 4});
  m.Output("sum", testing::kFloat, {"batch", 4});
  m.Node("Add", {"p", "q"}, {"sum"});
  return m;
}

// Holds a request until there are two rows.
constexpr const char* kWaitsForTwo = "max_batch_size: 2\nqueue_delay_us: 3600000000\n";

class PipelineTest : public FunctionTest {
 protected:
  void SetUp() override {
    engine_ = *Engine::Create({.workers = 2});
    ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok());
  }
  void Put(const std::string& name, const ModelBuilder& model, const std::string& yaml = "") {
    WriteFile(folder_ / name / "1/model.onnx", model.Bytes());
    PutSettings(name, yaml);
  }
  void PutSettings(const std::string& name, const std::string& yaml) {
    WriteFile(folder_ / name / "model.yaml", yaml);
  }
  Status LoadAs(const std::string& name, const std::string& yaml) {
    PutSettings(name, yaml);
    return engine_->LoadFromRepository(name);
  }
  // a, b and c, one after the other; b waits for two rows.
  void LoadThree() {
    Put("a", Layer(1, "x", "h"));
    Put("b", Layer(2, "h", "g"), kWaitsForTwo);
    Put("c", Layer(3, "g", "y"));
    const Status loaded = LoadAs("p", "steps: [{model: a}, {model: b}, {model: c}]\n");
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
  static InferRequest Ask(const std::string& model, const std::string& input,
                          std::vector<float> values) {
    InferRequest request;
    request.model = model;
    request.inputs = {{input, Rows(values, static_cast<int64_t>(values.size()) / 4)}};
    return request;
  }
  std::vector<float> Alone(const std::string& model, const std::string& input,
                           const std::vector<float>& values) {
    return Values(engine_->Infer(Ask(model, input, values)));
  }
  int Waiting(const std::string& model) { return (*engine_->Statistics(model))[0].waiting; }
  void Loads(const std::string& name) {
    const Status loaded = engine_->LoadFromRepository(name);
    EXPECT_TRUE(loaded.ok()) << loaded;
  }
};

TEST_F(PipelineTest, AnswersAsItsStepsOneAfterAnother) {
  Put("left", Layer(1), "queue_delay_us: 200\n");
  Put("right", Layer(2));
  Put("add", Adding(), "max_batch_size: 5\n");
  Put("last", Layer(3), "queue_delay_us: 100\n");
  const Status loaded = LoadAs("p",
                               "steps:\n"
                               "- {model: left, outputs: {y: p}}\n"
                               "- {model: right, outputs: {y: q}}\n"
                               "- model: add\n"
                               "- {model: last, inputs: {x: sum}}\n"
                               "outputs: [y, sum]\n");
  ASSERT_TRUE(loaded.ok()) << loaded;
  const auto metadata = engine_->Metadata("p");
  EXPECT_EQ(metadata->platform, "pipeline_chairlift");
  EXPECT_THAT(metadata->diagnosis, HasSubstr("left, right, add, last"));

  struct Asked {
    std::vector<float> x, sum, y;
  };
  std::vector<Asked> asked(40);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (Asked& one : asked) {
    one.x.resize(4 * (1 + random() % 5));
    for (float& value : one.x) value = normal(random);
    InferRequest add = Ask("add", "p", Alone("left", "x", one.x));
    const auto rows = static_cast<int64_t>(one.x.size()) / 4;
    add.inputs.push_back({"q", Rows(Alone("right", "x", one.x), rows)});
    one.sum = Values(engine_->Infer(add));
    one.y = Alone("last", "x", one.sum);
  }
  constexpr int kThreads = 4, kRequests = 60;
  std::atomic<uint64_t> rows{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 choice(static_cast<unsigned>(t));
      std::vector<std::pair<const Asked*, Answer>> answers;
      for (int i = 0; i < kRequests; ++i) {
        const Asked& one = asked[choice() % asked.size()];
        if (choice() % 4 == 0) {  // beside them, the steps' own
          answers.emplace_back(nullptr, Submit(Ask("last", "x", one.x)));
          continue;
        }
        rows += one.x.size() / 4;
        answers.emplace_back(&one, Submit(Ask("p", "x", one.x)));
      }
      for (auto& [one, answer] : answers) {
        const StatusOr<InferResponse> response = answer.get();
        ASSERT_TRUE(response.ok()) << response.status();
        if (one == nullptr) continue;
        ASSERT_EQ(response->outputs.size(), 2u);
        EXPECT_EQ(response->outputs[0].name, "y");
        EXPECT_EQ(Values(response), one->y);
        const auto sum = response->outputs[1].tensor.values<float>();
        EXPECT_EQ(std::vector<float>(sum.begin(), sum.end()), one->sum);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const ModelStatistics statistics = (*engine_->Statistics("p"))[0];
  EXPECT_EQ(statistics.inference_count, rows);
  EXPECT_EQ(statistics.fail.count, 0u);
  EXPECT_EQ(statistics.waiting + statistics.running, 0);
}

TEST_F(PipelineTest, AStepSharesBatchesWithWhoeverIsThere) {
  LoadThree();
  Answer piped = Submit(Ask("p", "x", {1, 2, 3, 4}));
  ASSERT_TRUE(Soon([&] { return Waiting("b") == 1; }));
  const StatusOr<InferResponse> beside = engine_->Infer(Ask("b", "h", {4, 3, 2, 1}));
  ASSERT_TRUE(beside.ok()) << beside.status();
  EXPECT_EQ(beside->batch_rows, 2);
  EXPECT_TRUE(piped.get().ok());
}

TEST_F(PipelineTest, StepsThatNobodyAskedForDoNotRun) {
  Put("a", Layer(1, "x", "h"));
  Put("b", Layer(2, "h", "y"));
  Put("c", Layer(3, "h", "z"));
  ASSERT_TRUE(LoadAs("p", "steps: [{model: a}, {model: b}, {model: c}]\noutputs: [y, z]\n").ok());
  InferRequest request = Ask("p", "x", {1, 2, 3, 4});
  request.outputs = {"z"};
  const StatusOr<InferResponse> response = engine_->Infer(request);
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->outputs.size(), 1u);
  EXPECT_EQ(response->outputs[0].name, "z");
  EXPECT_EQ((*engine_->Statistics("b"))[0].success.count, 0u);
  EXPECT_EQ((*engine_->Statistics("c"))[0].success.count, 1u);
  EXPECT_EQ((*engine_->Statistics("c"))[0].steps.success, 1u);
  EXPECT_EQ((*engine_->Statistics("p"))[0].steps.success, 0u);
  ASSERT_TRUE(engine_->Infer(Ask("c", "h", {1, 2, 3, 4})).ok());  // by a caller
  EXPECT_EQ((*engine_->Statistics("c"))[0].success.count, 2u);
  EXPECT_EQ((*engine_->Statistics("c"))[0].steps.success, 1u);
}

TEST_F(PipelineTest, ErrorsNameTheStep) {
  LoadThree();
  const Status status = engine_->Infer(Ask("p", "x", std::vector<float>(12))).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageOf(status),
              AllOf(HasSubstr("step 2 (b): "), HasSubstr("3 rows"), HasSubstr("max_batch_size")));
  EXPECT_EQ((*engine_->Statistics("p"))[0].fail.count, 1u);
  EXPECT_EQ((*engine_->Statistics("p"))[0].steps.fail, 0u);
  EXPECT_EQ((*engine_->Statistics("b"))[0].steps.fail, 1u);
  EXPECT_EQ((*engine_->Statistics("b"))[0].steps.failures.at("invalid"), 1u);
}

// Each refusal frees a place for the next request, which is refused at once as well.
TEST_F(PipelineTest, ManyThatAreRefusedAtOnceAreAnswered) {
  Put("a", Layer(1), "max_batch_size: 2\n");
  ASSERT_TRUE(LoadAs("p", "steps: [{model: a}]\nmax_queue_size: 4000\n").ok());
  std::vector<Answer> answers;
  for (int i = 0; i < 3000; ++i) answers.push_back(Submit(Ask("p", "x", std::vector<float>(12))));
  for (Answer& answer : answers) {
    EXPECT_EQ(answer.get().status().code(), absl::StatusCode::kInvalidArgument);
  }
}

// Admission is at the front, once: what was accepted counts in the queues of later steps though
// nothing has come there, and is never refused there.
TEST_F(PipelineTest, WhatWasAcceptedCountsInTheQueuesOfItsSteps) {
  engine_ = *Engine::Create({.workers = 1});
  ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok());
  Put("a", Layer(1, "x", "h"));
  Put("b", Layer(2, "h", "y"), "max_queue_wait_us: 1\n");
  Put("held", Layer(3));
  ASSERT_TRUE(LoadAs("p", "steps: [{model: a}, {model: b}]\n").ok());
  ASSERT_TRUE(LoadAs("over", "steps: [{model: p}]\n").ok());
  Loads("held");
  const std::vector<float> many(size_t{4} * 4096, 1.0F);    // they take longer than a microsecond
  const std::vector<float> wanted = Alone("p", "x", many);  // what they cost is known from now on

  std::promise<void> is_held, release;
  std::shared_future<void> released = release.get_future().share();
  engine_->InferAsync(Ask("held", "x", {1, 2, 3, 4}), [&](const auto& /*answer*/) {
    is_held.set_value();
    released.wait();
  });
  is_held.get_future().wait();
  const auto refused = [&](const std::string& model, const std::string& input) {
    Answer answer = Submit(Ask(model, input, many));
    ASSERT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::ready);
    const Status status = answer.get().status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("a request for model 'b' would wait"));
  };
  Answer accepted = Submit(Ask("over", "x", many));
  EXPECT_EQ(Waiting("b"), 0);
  refused("b", "h");
  refused("p", "x");
  refused("over", "x");
  release.set_value();
  EXPECT_EQ(Values(accepted.get()), wanted);
  EXPECT_EQ(Alone("p", "x", many), wanted);
  EXPECT_EQ(Alone("over", "x", many), wanted);
}

TEST_F(PipelineTest, ARequestThatEndsEarlyLeavesTheQueuesOfItsSteps) {
  engine_ = *Engine::Create({.workers = 1});  // others would be free for a request to c
  ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok());
  LoadThree();
  PutSettings("c", "max_queue_wait_us: 1\n");
  Loads("c");
  auto promise = std::make_shared<std::promise<StatusOr<InferResponse>>>();
  Answer answer = promise->get_future();
  const RequestId number = engine_->InferAsync(
      Ask("p", "x", {1, 2, 3, 4}),
      [promise](StatusOr<InferResponse> response) { promise->set_value(std::move(response)); });
  ASSERT_TRUE(Soon([&] { return Waiting("b") == 1; }));
  const auto serves = [&] { return engine_->Infer(Ask("c", "g", {1, 2, 3, 4})).ok(); };
  EXPECT_FALSE(serves()) << "one is to come, and nobody knows yet what that takes";
  engine_->Cancel(number);
  EXPECT_EQ(answer.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(Soon(serves));
}

TEST_F(PipelineTest, ACancelledRequestLeavesTheStepThatItWaitsFor) {
  LoadThree();
  auto promise = std::make_shared<std::promise<StatusOr<InferResponse>>>();
  const RequestId number = engine_->InferAsync(
      Ask("p", "x", {1, 2, 3, 4}),
      [promise](StatusOr<InferResponse> answer) { promise->set_value(std::move(answer)); });
  ASSERT_TRUE(Soon([&] { return Waiting("b") == 1; }));
  engine_->Cancel(number);
  EXPECT_EQ(promise->get_future().get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Waiting("b"), 0);
  EXPECT_EQ((*engine_->Statistics("c"))[0].success.count, 0u);
}

TEST_F(PipelineTest, ADeadlineHoldsForAllSteps) {
  LoadThree();
  InferRequest request = Ask("p", "x", {1, 2, 3, 4});
  request.timeout = std::chrono::milliseconds(50);
  const Status status = engine_->Infer(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_TRUE(Soon([&] { return Waiting("b") == 0; }));
  EXPECT_EQ((*engine_->Statistics("p"))[0].failures["timeout"], 1u);
}

TEST_F(PipelineTest, RequestsUnderWayEndThoughAStepsModelIsUnloaded) {
  LoadThree();
  const std::vector<float> x = {1, 2, 3, 4};
  Answer under_way = Submit(Ask("p", "x", x));
  ASSERT_TRUE(Soon([&] { return Waiting("b") == 1; }));
  const std::vector<float> h = Alone("a", "x", x);
  ASSERT_TRUE(engine_->UnloadModel("c").ok());
  EXPECT_FALSE(engine_->ModelReady("p"));
  const Status refused = engine_->Infer(Ask("p", "x", x)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(MessageOf(refused), AllOf(HasSubstr("step 3 (c)"), HasSubstr("unloaded")));
  const std::vector<float> g = Values(engine_->Infer(Ask("b", "h", h)));
  const std::vector<float> y = Values(under_way.get());
  Loads("c");
  EXPECT_EQ(y, Alone("c", "g", g));
  EXPECT_TRUE(engine_->ModelReady("p"));
}

TEST_F(PipelineTest, AStepsModelMayBeReplacedByOneThatFits) {
  LoadThree();
  PutSettings("b", "");
  Loads("b");
  const std::vector<float> x = {1, 2, 3, 4};
  const std::vector<float> before = Alone("p", "x", x);
  Put("c", Layer(9, "g", "y"));
  Loads("c");
  const std::vector<float> after = Alone("p", "x", x);
  EXPECT_NE(before, after);
  EXPECT_EQ(after, Alone("c", "g", Alone("b", "h", Alone("a", "x", x))));

  Put("c", Layer(3, "g", "other"));
  Loads("c");
  EXPECT_FALSE(engine_->ModelReady("p"));
  EXPECT_THAT(MessageOf(engine_->Infer(Ask("p", "x", x)).status()), HasSubstr("was replaced"));
  Put("c", testing::DoublingModel());
  Loads("c");
  for (const ModelIndexEntry& entry : engine_->Index()) {
    if (entry.name != "p") continue;
    EXPECT_EQ(entry.state, ModelState::kUnavailable);
    EXPECT_THAT(entry.reason, HasSubstr("has changed"));
  }
}

TEST_F(PipelineTest, PipelinesMayBeSteps) {
  LoadThree();
  PutSettings("b", "");
  Loads("b");
  const Status loaded = LoadAs("outer", "steps: [{model: p}, {model: a, inputs: {x: y}}]\n");
  ASSERT_TRUE(loaded.ok()) << loaded;
  const std::vector<float> x = {1, 2, 3, 4};
  EXPECT_EQ(Alone("outer", "x", x), Alone("a", "x", Alone("p", "x", x)));
  // 4 · 17 steps.
  std::string many = "steps:\n";
  for (int i = 0; i < 17; ++i) many += "- {model: outer, outputs: {h: x}}\n";
  EXPECT_THAT(MessageOf(LoadAs("many", many)), AllOf(HasSubstr("68"), HasSubstr("it may have 64")));
}

TEST_F(PipelineTest, StepsAreLoadedWithTheirPipelineAndMustNotLeadBack) {
  Put("a", Layer(1, "x", "y"));
  PutSettings("q", "steps: [{model: a, outputs: {y: x}}]\n");
  ASSERT_TRUE(LoadAs("p", "steps: [{model: q}]\n").ok());
  EXPECT_TRUE(engine_->ModelReady("a"));
  EXPECT_TRUE(engine_->ModelReady("q"));
  // With models that are loaded.
  EXPECT_THAT(MessageOf(LoadAs("q", "steps: [{model: p}]\n")),
              AllOf(HasSubstr("step 1 (p)"), HasSubstr("leads back to 'q'")));
  EXPECT_TRUE(engine_->ModelReady("q")) << "as it was";
  // With models that are not.
  PutSettings("r", "steps: [{model: s}]\n");
  PutSettings("s", "steps: [{model: r}]\n");
  EXPECT_THAT(MessageOf(engine_->LoadFromRepository("r")), HasSubstr("r → s → r"));
  EXPECT_THAT(MessageOf(LoadAs("t", "steps: [{model: t}]\n")), HasSubstr("leads back"));
  EXPECT_THAT(MessageOf(LoadAs("u", "steps: [{model: nowhere}]\n")),
              AllOf(HasSubstr("step 1 (nowhere)"), HasSubstr("no model 'nowhere'")));
  EXPECT_THAT(MessageOf(LoadAs("u", "steps: [{model: a}]\nmax_batch_size: 4\n")),
              HasSubstr("max_batch_size is not for pipelines"));
}

TEST_F(PipelineTest, ShuttingDownLetsAllStepsEnd) {
  Put("a", Layer(1, "x", "h"), "queue_delay_us: 50000\n");
  Put("b", Layer(2, "h", "y"));
  ASSERT_TRUE(LoadAs("p", "steps: [{model: a}, {model: b}]\n").ok());
  Answer answer = Submit(Ask("p", "x", {1, 2, 3, 4}));
  engine_->Shutdown(std::chrono::minutes(1));
  const StatusOr<InferResponse> response = answer.get();
  EXPECT_TRUE(response.ok()) << response.status();
}

TEST_F(PipelineTest, WhatHasNotEndedFailsWhenTheEngineIsShutDown) {
  LoadThree();
  Answer answer = Submit(Ask("p", "x", {1, 2, 3, 4}));
  ASSERT_TRUE(Soon([&] { return Waiting("b") == 1; }));
  engine_->Shutdown(std::chrono::milliseconds(0));
  EXPECT_EQ(answer.get().status().code(), absl::StatusCode::kUnavailable);
}

// Cancellations, deadlines, unloads and reloads at any time: whatever is answered is right.
TEST_F(PipelineTest, RandomLeavesAndReloads) {
  LoadThree();
  PutSettings("b", "queue_delay_us: 300\n");
  Loads("b");
  const std::vector<float> x = {1, -2, 3, 4};
  const std::vector<float> want = Alone("p", "x", x);
  std::atomic<bool> over{false};
  std::thread loader([&] {
    std::mt19937 random(3);
    while (!over) {
      const std::string name(1, static_cast<char>('a' + random() % 3));
      if (random() % 2 == 0) {
        EXPECT_TRUE(engine_->UnloadModel(name).ok());
      }
      Loads(name);
    }
  });
  std::mt19937 random(4);
  for (int round = 0; round < 40; ++round) {
    std::vector<Answer> answers;
    std::vector<RequestId> numbers;
    for (int i = 0; i < 25; ++i) {
      auto promise = std::make_shared<std::promise<StatusOr<InferResponse>>>();
      answers.push_back(promise->get_future());
      InferRequest request = Ask("p", "x", x);
      if (random() % 4 == 0) request.timeout = std::chrono::microseconds(random() % 1500);
      numbers.push_back(
          engine_->InferAsync(std::move(request), [promise](StatusOr<InferResponse> response) {
            promise->set_value(std::move(response));
          }));
      if (random() % 3 == 0) engine_->Cancel(numbers[random() % numbers.size()]);
    }
    for (Answer& answer : answers) {
      const StatusOr<InferResponse> response = answer.get();
      if (response.ok()) {
        EXPECT_EQ(Values(response), want);
      } else {
        EXPECT_THAT(response.status().code(),
                    ::testing::AnyOf(absl::StatusCode::kCancelled, absl::StatusCode::kUnavailable,
                                     absl::StatusCode::kDeadlineExceeded))
            << response.status();
      }
    }
  }
  over = true;
  loader.join();
  EXPECT_EQ(Alone("p", "x", x), want);
}

class FunctionPipelineTest : public FunctionTest {};

TEST_F(FunctionPipelineTest, FunctionsAndGraphsAreMixed) {
  ASSERT_TRUE(Load("def predict(y):\n"
                   "  if (y > 100).any(): raise ValueError('too large')\n"
                   "  return y + 1\n")
                  .ok());
  WriteFile(folder_ / "double/1/model.onnx", testing::DoublingModel().Bytes());
  WriteFile(folder_ / "p/model.yaml",
            "steps: [{model: double}, {model: my}, {model: double, inputs: {x: output}}]\n");
  ASSERT_TRUE(engine_->LoadFromRepository("double").ok());
  const Status loaded = engine_->LoadFromRepository("p");
  ASSERT_TRUE(loaded.ok()) << loaded;
  const auto ask = [&](std::vector<float> values) {
    InferRequest request = Request(Rows(std::move(values), 1));
    request.model = "p";
    return request;
  };
  EXPECT_EQ(Values(engine_->Infer(ask({1, 2, 3, 4}))), (std::vector<float>{6, 10, 14, 18}));
  Answer guilty = Submit(ask({1, 2, 3, 400}));
  Answer innocent = Submit(ask({0, 0, 0, 0}));
  EXPECT_THAT(MessageOf(guilty.get().status()),
              AllOf(HasSubstr("step 2 (my): "), HasSubstr("ValueError: too large")));
  EXPECT_EQ(Values(innocent.get()), (std::vector<float>{2, 2, 2, 2}));
}

// A request of many long rows has few of them under way.
TEST_F(FunctionPipelineTest, ARequestOfManyLongTextsDoesNotHoldUpOthers) {
  const std::string order = (folder_ / "order").string();
  const std::string gate = (folder_ / "gate").string();
  ASSERT_TRUE(Load("import os, time\n"
                   "from typing import Annotated\n"
                   "from chairlift import Ragged\n"
                   "def predict(text: list[str]) -> Annotated[Ragged, np.int64, 'codes']:\n"
                   "  while not os.path.exists('" +
                       gate +
                       "'): time.sleep(0.001)\n"
                       "  open('" +
                       order +
                       "', 'a').write(''.join(t[0] for t in text))\n"
                       "  return Ragged(np.zeros(len(text), np.int64), np.arange(len(text) + 1))\n",
                   "max_batch_size: 1\n")
                  .ok());
  WriteFile(folder_ / "two/1/my.py",
            "import numpy as np\n"
            "from typing import Annotated\n"
            "from chairlift import Ragged\n"
            "def predict(codes: Annotated[Ragged, np.int64]) -> Annotated[Ragged, np.int64]:\n"
            "  return codes\n");
  WriteFile(folder_ / "two/model.yaml", "python: my.py:predict\n");
  WriteFile(folder_ / "p/model.yaml", "steps: [{model: my}, {model: two}]\n");
  ASSERT_TRUE(engine_->LoadFromRepository("two").ok());
  const Status loaded = engine_->LoadFromRepository("p");
  ASSERT_TRUE(loaded.ok()) << loaded;
  const auto ask = [](std::vector<std::string> texts) {
    InferRequest request;
    request.model = "p";
    const auto rows = static_cast<int64_t>(texts.size());
    request.inputs = {{"text", TextTensor({rows}, std::move(texts))}};
    return request;
  };
  Answer many = Submit(ask(std::vector<std::string>(30, std::string(16 << 10, 'm'))));
  Answer one = Submit(ask({"1"}));
  ASSERT_TRUE(Soon([&] { return (*engine_->Statistics("my"))[0].waiting > 0; }));
  WriteFile(gate, "");
  EXPECT_TRUE(one.get().ok());
  const auto all = many.get();
  ASSERT_TRUE(all.ok()) << all.status();
  std::ifstream file(order);
  const std::string done{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_EQ(done.size(), 31u);
  EXPECT_LT(done.find('1'), 5u);
}

// y = x + a random number for each element.
ModelBuilder NoisyRows() {
  ModelBuilder m(17);
  m.Input("x", testing::kFloat, {"batch", 4}).Output("y", testing::kFloat, {"batch", 4});
  m.Node("RandomNormalLike", {"x"}, {"noise"});
  m.Node("Add", {"x", "noise"}, {"y"});
  return m;
}

TEST_F(PipelineTest, ASeedReachesTheStepsAndEachDrawsNumbersOfItsOwn) {
  Put("noisy", NoisyRows(), "queue_delay_us: 200\n");
  Status loaded = LoadAs("p",
                         "steps:\n"
                         "- {model: noisy, outputs: {y: a}}\n"
                         "- {model: noisy, outputs: {y: b}}\n"
                         "outputs: [a, b]\n"
                         "response_cache_bytes: 100000\n");
  ASSERT_TRUE(loaded.ok()) << loaded;
  loaded = LoadAs("outer",
                  "steps:\n"
                  "- {model: p}\n"
                  "- {model: noisy, inputs: {x: a}}\n"
                  "outputs: [a, b, y]\n");
  ASSERT_TRUE(loaded.ok()) << loaded;
  const auto ask = [&](const std::string& model, std::optional<int64_t> seed) {
    InferRequest request = Ask(model, "x", {1, 2, 3, 4, 5, 6, 7, 8});
    request.seed = seed;
    const StatusOr<InferResponse> answer = engine_->Infer(std::move(request));
    EXPECT_TRUE(answer.ok()) << answer.status();
    std::vector<std::vector<float>> values;
    for (const NamedTensor& output : answer->outputs) {
      const auto one = output.tensor.values<float>();
      values.emplace_back(one.begin(), one.end());
    }
    return values;
  };
  for (const std::string model : {"p", "outer"}) {
    const auto seven = ask(model, 7);
    EXPECT_EQ(ask(model, 7), seven);
    EXPECT_NE(ask(model, 8), seven);
    EXPECT_NE(seven[0], seven[1]) << "two steps draw the same numbers";
    EXPECT_NE(ask(model, std::nullopt), ask(model, std::nullopt));
  }
  const auto outer = ask("outer", 7);
  std::vector<float> noise_a, noise_y;
  for (size_t i = 0; i < 8; ++i) {
    noise_a.push_back(outer[0][i] - static_cast<float>(i + 1));
    noise_y.push_back(outer[2][i] - outer[0][i]);
  }
  EXPECT_NE(noise_a, noise_y);
  EXPECT_NE(ask("p", 7)[0], ask("noisy", 7)[0]) << "a step has not the seed of its pipeline";
}

TEST(SeedOfPartTest, PartsAndSeedsHaveUnrelatedSeeds) {
  std::set<int64_t> all;
  for (const int64_t seed : {int64_t{0}, int64_t{1}, int64_t{-1}, INT64_MAX, INT64_MIN}) {
    for (uint64_t part = 0; part < 1000; ++part) all.insert(SeedOfPart(seed, part));
  }
  EXPECT_EQ(all.size(), 5000u);
  EXPECT_EQ(SeedOfPart(3, 4), SeedOfPart(3, 4));
}

}  // namespace
}  // namespace chairlift
