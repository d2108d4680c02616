// Functions that yield: their answers come step by step.
#include <gmock/gmock.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/programs/process/functions.h"

namespace chairlift {
namespace {

using ::testing::ElementsAre;
using testing::FunctionTest;
using ::testing::HasSubstr;

using GeneratorTest = FunctionTest;

constexpr const char* kCounts =
    "from typing import Iterator\n"
    "from numpy.typing import NDArray\n"
    "def predict(x: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:\n"
    "  for i in range(4):\n"
    "    yield x * 10 + i\n";

TEST_F(GeneratorTest, TheAnswerHasAllSteps) {
  ASSERT_TRUE(Load(kCounts).ok());
  const auto response = Infer(Rows({1, 2, 3, 4}, 2));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->outputs[0].tensor.shape(), (Shape{2, 4, 2}));
  EXPECT_THAT(Values(response), ElementsAre(10, 20, 11, 21, 12, 22, 13, 23,  //
                                            30, 40, 31, 41, 32, 42, 33, 43));
}

// Requests share batches, and each hears its own rows' steps, in order, before the answer.
TEST_F(GeneratorTest, StepsAreSentAsTheyAreYielded) {
  ASSERT_TRUE(Load(kCounts, "max_batch_size: 4\nqueue_delay_us: 20000\n").ok());
  struct Heard {
    std::mutex mutex;
    std::vector<InferPart> parts;
  };
  std::vector<Answer> answers;
  std::vector<std::shared_ptr<Heard>> heard;
  for (int i = 0; i < 20; ++i) {
    InferRequest request = Request(Rows({static_cast<float>(i), 0.5F}, 2));
    heard.push_back(std::make_shared<Heard>());
    request.on_parts = [own = heard.back()](std::span<const InferPart> parts) {
      const std::lock_guard<std::mutex> lock(own->mutex);
      own->parts.insert(own->parts.end(), parts.begin(), parts.end());
    };
    answers.push_back(Submit(std::move(request)));
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    const auto response = answers[i].get();
    const std::vector<float> values = Values(response);
    ASSERT_EQ(values.size(), 8u);
    EXPECT_GE(response->batch_rows, 2);
    const std::lock_guard<std::mutex> lock(heard[i]->mutex);
    int64_t next[2] = {0, 0};
    for (const InferPart& part : heard[i]->parts) {
      ASSERT_EQ(part.first, next[part.row]++);
      ASSERT_EQ(part.outputs[0].tensor.shape(), (Shape{1, 1}));
      EXPECT_EQ(part.outputs[0].tensor.data<float>()[0],
                values[static_cast<size_t>(4 * part.row + part.first)]);
    }
    EXPECT_EQ(next[0] + next[1], 8);
  }
}

// The first step is heard while the function waits for leave to yield the second.
TEST_F(GeneratorTest, AStepIsNotHeldBackForTheNext) {
  ASSERT_TRUE(Load("import os, time\n"
                   "def predict(x):\n"
                   "  yield x\n"
                   "  while not os.path.exists('" +
                   (folder_ / "go").string() +
                   "'): time.sleep(0.001)\n"
                   "  yield x + 1\n")
                  .ok());
  std::atomic<int> steps = 0;
  InferRequest request = Request(Rows({1}));
  request.on_parts = [&](std::span<const InferPart> parts) {
    steps += static_cast<int>(parts.size());
  };
  Answer answer = Submit(std::move(request));
  EXPECT_TRUE(Soon([&] { return steps == 1; }));
  testing::WriteFile(folder_ / "go", "");
  EXPECT_THAT(Values(answer.get()), ElementsAre(1, 2));
  EXPECT_EQ(steps, 2);
}

TEST_F(GeneratorTest, ManyAndLargeStepsGrowTheMemory) {
  ASSERT_TRUE(Load("def predict(x):\n"
                   "  for i in range(int(x[0, 0])): yield np.full((len(x), 5000), i, 'float32')\n")
                  .ok());
  const auto response = Infer(Rows({300}));
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->outputs[0].tensor.shape(), (Shape{1, 300, 5000}));
  const auto values = response->outputs[0].tensor.values<float>();
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<float>(i / 5000));
}

TEST_F(GeneratorTest, WhatGoesWrongFailsTheRequest) {
  ASSERT_TRUE(Load("def predict(x):\n"
                   "  what = int(x[0, 0])\n"
                   "  if what == 0: return\n"
                   "  yield x\n"
                   "  if what == 1: raise RuntimeError('at step 2')\n"
                   "  if what == 2: yield x[:, :0]\n"
                   "  if what == 3: yield x[:0]\n"
                   "  if what == 4: import os; os._exit(3)\n")
                  .ok());
  EXPECT_THAT(MessageOf(Infer(Rows({0})).status()), HasSubstr("yielded nothing"));
  EXPECT_THAT(MessageOf(Infer(Rows({1})).status()), HasSubstr("at step 2"));
  EXPECT_THAT(MessageOf(Infer(Rows({2})).status()), HasSubstr("differ in shape"));
  EXPECT_THAT(MessageOf(Infer(Rows({3})).status()), HasSubstr("0 rows"));
  EXPECT_THAT(MessageOf(Infer(Rows({4})).status()), HasSubstr("exited with code 3"));
  EXPECT_THAT(Values(Infer(Rows({5}))), ElementsAre(5));
}

// Yields for ever where the first number is negative, and notes its steps when it is closed.
class EndlessTest : public GeneratorTest {
 protected:
  Status LoadEndless(const std::string& settings = "", const std::string& step = "") {
    return Load(
        "import time\n"
        "def predict(x):\n"
        "  steps = 0\n"
        "  try:\n"
        "    while x[0, 0] < 0 or steps == 0:\n"
        "      steps += 1\n"
        "      yield np.full((len(x), 5000), steps, 'float32')\n" +
            step + "  finally:\n    open('" + (folder_ / "closed").string() +
            "', 'a').write(f'{steps}\\n')\n",
        settings);
  }
  // Lines that the generators wrote.
  std::vector<int> Closed() const {
    std::ifstream file(folder_ / "closed");
    std::vector<int> all;
    for (int steps = 0; file >> steps;) all.push_back(steps);
    return all;
  }
  struct Stream {
    RequestId id = 0;
    Answer answer;
    std::shared_ptr<std::atomic<int>> steps = std::make_shared<std::atomic<int>>(0);
    // Bytes of a step that no request reads.
    std::shared_ptr<std::atomic<int64_t>> unread = std::make_shared<std::atomic<int64_t>>(0);
  };
  Stream Begin(float value, int64_t unread = 0,
               std::optional<std::chrono::microseconds> timeout = std::nullopt) {
    Stream stream;
    *stream.unread = unread;
    InferRequest request = Request(Rows({value}));
    request.timeout = timeout;
    request.parts_once = true;
    request.on_parts = [steps = stream.steps](std::span<const InferPart> parts) {
      *steps += static_cast<int>(parts.size());
    };
    request.unread = [steps = stream.steps, unread = stream.unread] { return *steps * *unread; };
    auto promise = std::make_shared<std::promise<StatusOr<InferResponse>>>();
    stream.answer = promise->get_future();
    stream.id = engine_->InferAsync(
        std::move(request),
        [promise](StatusOr<InferResponse> response) { promise->set_value(std::move(response)); });
    return stream;
  }
};

TEST_F(EndlessTest, ItIsClosedAtTheNextStepOnceNobodyWaits) {
  ASSERT_TRUE(LoadEndless().ok());
  Stream stream = Begin(-1);
  ASSERT_TRUE(Soon([&] { return *stream.steps > 2; }));
  engine_->Cancel(stream.id);
  EXPECT_EQ(stream.answer.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(Values(Infer(Rows({7}))), ::testing::SizeIs(5000));
  EXPECT_EQ(Closed().size(), 2u);
}

TEST_F(EndlessTest, ADeadlineEndsIt) {
  ASSERT_TRUE(LoadEndless().ok());
  // Until one has begun before its deadline.
  int steps = 0;
  for (std::chrono::microseconds timeout(50'000); steps == 0 && timeout < std::chrono::minutes(1);
       timeout *= 2) {
    Stream stream = Begin(-1, 0, timeout);
    EXPECT_EQ(stream.answer.get().status().code(), absl::StatusCode::kDeadlineExceeded);
    steps = *stream.steps;
  }
  EXPECT_GT(steps, 0);
  EXPECT_TRUE(Infer(Rows({7})).ok());
  EXPECT_GE(Closed().size(), 2u);
}

TEST_F(EndlessTest, AStreamHasADeadline) {
  ASSERT_TRUE(LoadEndless("stream_timeout_us: 200000\n").ok());
  Stream stream = Begin(-1);
  const Status status = stream.answer.get().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(MessageOf(status), HasSubstr("stream_timeout_us"));
  EXPECT_TRUE(Soon([&] { return Infer(Rows({7})).ok(); }));  // it has the same deadline
}

TEST_F(EndlessTest, AWorkerThatDoesNotEndItIsReplaced) {
  ASSERT_TRUE(
      LoadEndless("cancel_timeout_us: 100000\n", "      if x[0, 0] < 0: time.sleep(1000)\n").ok());
  for (int i = 0; i < 3; ++i) {  // which says nothing of the function
    Stream stream = Begin(-1);
    ASSERT_TRUE(Soon([&] { return *stream.steps > 0; }));
    engine_->Cancel(stream.id);
    EXPECT_FALSE(stream.answer.get().ok());
    EXPECT_TRUE(Infer(Rows({7})).ok());
  }
  EXPECT_TRUE(engine_->ModelReady("my"));
}

TEST_F(EndlessTest, ItWaitsUntilWhatItMadeIsRead) {
  ASSERT_TRUE(LoadEndless().ok());
  Stream stream = Begin(-1, 100'000);
  // More than 2^20 bytes are not read.
  ASSERT_TRUE(Soon([&] { return *stream.steps > 10; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const int steps = *stream.steps;
  EXPECT_LT(steps, 30);
  *stream.unread = 0;
  ASSERT_TRUE(Soon([&] { return *stream.steps > steps + 30; }));
  engine_->Cancel(stream.id);
  stream.answer.wait();
}

// One that is not read ends after some time; the other goes on.
TEST_F(EndlessTest, WhoDoesNotReadHoldsUpOthersOfItsBatchNotForLong) {
  ASSERT_TRUE(LoadEndless("max_batch_size: 2\nqueue_delay_us: 50000000\n").ok());
  Stream slow = Begin(-1, 100'000);
  Stream other = Begin(-1);
  ASSERT_TRUE(Soon([&] { return *other.steps > 200; }));
  EXPECT_LT(*slow.steps, 30);
  engine_->Cancel(other.id);
  EXPECT_THAT(MessageOf(slow.answer.get().status()), HasSubstr("read its stream too slowly"));
}

TEST_F(EndlessTest, WhatIsKeptForAnAnswerIsBounded) {
  auto engine = Engine::Create({.workers = 1, .memory_budget = 1 << 20, .allow_plugins = true});
  ASSERT_TRUE(engine.ok());
  engine_ = *std::move(engine);
  ASSERT_TRUE(LoadEndless().ok());
  EXPECT_THAT(MessageOf(Infer(Rows({-1})).status()), HasSubstr("memory-budget"));
  EXPECT_TRUE(Infer(Rows({7})).ok());
  // What is sent is not kept.
  Stream stream = Begin(-1);
  ASSERT_TRUE(Soon([&] { return *stream.steps > 200; }));
  engine_->Cancel(stream.id);
  stream.answer.wait();
}

TEST_F(EndlessTest, AnAnswerLeavesOutWhatWasSent) {
  ASSERT_TRUE(LoadEndless().ok());
  Stream stream = Begin(7);
  const auto response = stream.answer.get();
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_TRUE(response->outputs.empty());
  EXPECT_EQ(*stream.steps, 1);
}

// An async function is cancelled where it waits.
TEST_F(GeneratorTest, AnAsyncFunctionIsCancelled) {
  ASSERT_TRUE(Load("import asyncio\n"
                   "async def predict(x):\n"
                   "  if x[0, 0] < 0: await asyncio.sleep(1000)\n"
                   "  return x\n")
                  .ok());
  InferRequest request = Request(Rows({-1}));
  request.timeout = std::chrono::milliseconds(50);
  EXPECT_EQ(engine_->Infer(request).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Values(Infer(Rows({7}))), ElementsAre(7));
}

}  // namespace
}  // namespace chairlift
