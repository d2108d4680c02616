// Functions that yield: their answers come step by step.
#include <gmock/gmock.h>

#include <atomic>
#include <mutex>

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

}  // namespace
}  // namespace chairlift
