// Functions that ask other models while they compute.
#include <gmock/gmock.h>
#include <signal.h>

#include "engine/programs/process/functions.h"

namespace chairlift {
namespace {

using ::testing::ElementsAre;
using testing::FunctionTest;
using ::testing::HasSubstr;
using testing::ModelBuilder;
using testing::WriteFile;

class CallsTest : public FunctionTest {
 protected:
  void SetUp() override {
    FunctionTest::SetUp();
    if (IsSkipped()) return;
    // doubled = x + x, [batch, 2].
    ModelBuilder m(17);
    m.Input("x", testing::kFloat, {"batch", 2}).Output("doubled", testing::kFloat, {"batch", 2});
    m.Node("Add", {"x", "x"}, {"doubled"});
    WriteFile(folder_ / "double/1/model.onnx", m.Bytes());
  }
  void Put(const std::string& name, const std::string& python, const std::string& settings = "") {
    WriteFile(folder_ / name / "1/f.py", "import asyncio, numpy as np, chairlift\n" + python);
    WriteFile(folder_ / name / "model.yaml", "python: f.py:predict\n" + settings);
  }
  // Answers once "gate" is there, one request after the other.
  void PutGated(const std::string& name) {
    Put(name,
        "import os, time\n"
        "def predict(x):\n"
        "  while not os.path.exists('" +
            (folder_ / "gate").string() +
            "'): time.sleep(0.001)\n"
            "  return x\n",
        "max_batch_size: 1\nbatches_in_flight: 1\n");
  }
  // That what a gated model has not begun is taken back; and what it has begun ends.
  void ExpectOnlyWhatHasBegun(const std::string& name, uint64_t most) {
    EXPECT_TRUE(Soon([&] { return (*engine_->Statistics(name))[0].waiting == 0; }));
    WriteFile(folder_ / "gate", "");
    EXPECT_TRUE(Soon([&] { return (*engine_->Statistics(name))[0].running == 0; }));
    EXPECT_LE((*engine_->Statistics(name))[0].inference_count, most);
  }
  Status LoadCalling(const std::string& python, const std::string& calls = "calls: [double]\n") {
    return Load("import asyncio, chairlift\n" + python, calls);
  }
};

TEST_F(CallsTest, AModelAnswersWithinAFunction) {
  ASSERT_TRUE(LoadCalling("async def predict(x):\n"
                          "  y = await chairlift.infer('double', x=x)\n"
                          "  return y['doubled'] + 1\n")
                  .ok());  // the model is loaded with it
  EXPECT_THAT(Values(Infer(Rows({1, 2, 3, 4}, 2))), ElementsAre(3, 5, 7, 9));
  EXPECT_EQ((*engine_->Statistics("double"))[0].inference_count, 2u);
}

TEST_F(CallsTest, ManyAtOnceAreAnsweredEach) {
  ASSERT_TRUE(
      LoadCalling("async def predict(x):\n"
                  "  parts = await asyncio.gather(*(chairlift.infer('double', {'x': x + i})"
                  " for i in range(60)))\n"
                  "  large = await chairlift.infer('double', x=np.ones((9000, 2), 'float32'))\n"
                  "  assert (large['doubled'] == 2).all()\n"
                  "  return sum(part['doubled'] * i for i, part in enumerate(parts))\n")
          .ok());
  float wanted = 0;
  for (int i = 0; i < 60; ++i) wanted += static_cast<float>(2 * (5 + i) * i);
  std::vector<Answer> answers;
  for (int i = 0; i < 20; ++i) answers.push_back(Submit(Rows({5, 5}, 1)));
  for (Answer& answer : answers) EXPECT_THAT(Values(answer.get()), ElementsAre(wanted, wanted));
}

TEST_F(CallsTest, TextsGoBothWays) {
  Put("upper", "def predict(text: list[str]) -> list[str]: return [t.upper() for t in text]\n");
  ASSERT_TRUE(
      LoadCalling(
          "async def predict(x):\n"
          "  texts = ['a', '', 'é' * 3, 'zero\\0']\n"
          "  lists = await chairlift.infer('upper', text=texts)\n"
          "  large = ['x' * 70000, 'y']\n"
          "  arrays = await chairlift.infer('upper', text=np.array(large))\n"
          "  assert arrays['output'].tolist() == [t.upper().encode() for t in large]\n"
          "  assert lists['output'].tolist() == [t.upper().encode() for t in texts], lists\n"
          "  try: await chairlift.infer('upper', text=['a', 1])\n"
          "  except TypeError as error: assert 'int' in str(error) and 'text' in str(error), "
          "error\n"
          "  else: assert False\n"
          "  return x\n",
          "calls: [upper]\n")
          .ok());
  EXPECT_THAT(Values(Infer(Rows({1, 2}, 1))), ElementsAre(1, 2));
}

// As a worker might that wants to read, or have read, what is not its own.
TEST_F(CallsTest, TextsOutsideOfTheMemoryGivenAreRefused) {
  Put("length",
      "def predict(text: list[bytes]) -> np.ndarray:\n"
      "  return np.array([len(t) for t in text], 'float32')\n");
  ASSERT_TRUE(LoadCalling("import sys\n"
                          "async def predict(x):\n"
                          "  worker = sys.modules['__main__']\n"
                          "  head = {0: [0, 1 << 40], 1: [5, 3], 2: [0, -1], 3: [1, 2],"
                          " 4: [0, 3]}[int(x[0, 0])]\n"
                          "  worker.packed_texts = lambda name, texts: np.frombuffer(\n"
                          "      np.array(head).tobytes() + b'abc', np.uint8)\n"
                          "  answer = await chairlift.infer('length', text=['abc'])\n"
                          "  return answer['output'][:, None]\n",
                          "calls: [length]\n")
                  .ok());
  for (const float wrong : {0, 1, 2, 3}) {
    EXPECT_THAT(MessageOf(Infer(Rows({wrong, 0}, 1)).status()),
                HasSubstr("do not lie in the memory given"))
        << wrong;
  }
  EXPECT_THAT(Values(Infer(Rows({4, 0}, 1))), ElementsAre(3));
}

TEST_F(CallsTest, WhatIsWrongIsRaised) {
  ASSERT_TRUE(
      LoadCalling("async def predict(x):\n"
                  "  if x[0, 0] == 0: await chairlift.infer('other', x=x)\n"
                  "  if x[0, 0] == 1: await chairlift.infer('double', z=x)\n"
                  "  if x[0, 0] == 2:\n"
                  "    await asyncio.gather(*(chairlift.infer('double', x=x)"
                  " for i in range(700)))\n"
                  "  if x[0, 0] == 3: chairlift.infer('double', x=x)\n"
                  "  if x[0, 0] == 4: asyncio.ensure_future(chairlift.infer('double', x=x))\n"
                  "  return x\n")
          .ok());
  const auto message = [&](float what) { return MessageOf(Infer(Rows({what, 0}, 1)).status()); };
  EXPECT_THAT(message(0),
              HasSubstr("calls model 'other', which `calls` in its model.yaml does not"));
  EXPECT_THAT(message(1), HasSubstr("'z'"));
  EXPECT_THAT(Values(Infer(Rows({2, 0}, 1))), ElementsAre(2, 0));  // 64 at a time
  EXPECT_THAT(Values(Infer(Rows({3, 0}, 1))), ElementsAre(3, 0));
  EXPECT_THAT(Values(Infer(Rows({4, 0}, 1))), ElementsAre(4, 0));
  EXPECT_THAT(Values(Infer(Rows({5, 0}, 1))), ElementsAre(5, 0));
}

TEST_F(CallsTest, CallsThatLeadBackAreRefused) {
  EXPECT_THAT(MessageOf(Load("def predict(x): return x", "calls: [my]\n")),
              HasSubstr("leads back to"));
  Put("a", "def predict(x): return x", "calls: [b]\n");
  Put("b", "def predict(x): return x", "calls: [c]\n");
  WriteFile(folder_ / "c/model.yaml", "steps: [{model: a}]\n");
  EXPECT_THAT(MessageOf(engine_->LoadFromRepository("a")), HasSubstr("leads back to itself"));
  Put("b", "def predict(x): return x");
  ASSERT_TRUE(engine_->LoadFromRepository("a").ok());
  EXPECT_THAT(MessageOf(Load("def predict(x): return x", "calls: [missing]\n")),
              HasSubstr("missing"));
}

TEST_F(CallsTest, TheDeadlineIsPassedOn) {
  PutGated("slow");
  ASSERT_TRUE(LoadCalling("async def predict(x):\n"
                          "  try: await chairlift.infer('slow', x=x, timeout=0.05)\n"
                          "  except TimeoutError: return x + 1\n"
                          "  return x\n",
                          "calls: [slow]\n")
                  .ok());
  EXPECT_THAT(Values(Infer(Rows({1, 1}, 1))), ElementsAre(2, 2));  // by its own timeout
  ASSERT_TRUE(
      LoadCalling("async def predict(x):\n"
                  "  await asyncio.gather(*(chairlift.infer('slow', x=x) for _ in range(9)))\n"
                  "  return x\n",
                  "calls: [slow]\n")
          .ok());
  InferRequest request = Request(Rows({1, 1}, 1));
  request.timeout = std::chrono::milliseconds(100);
  EXPECT_TRUE(absl::IsDeadlineExceeded(engine_->Infer(request).status()));
  ExpectOnlyWhatHasBegun("slow", 2);
}

TEST_F(CallsTest, AWorkerThatDiesTakesItsCallsAlong) {
  PutGated("slow");
  ASSERT_TRUE(LoadCalling("import os\n"
                          "async def predict(x):\n"
                          "  calls = [asyncio.ensure_future(chairlift.infer('slow', x=x))"
                          " for _ in range(20)]\n"
                          "  await asyncio.wait(calls, timeout=0.05)\n"
                          "  os._exit(3)\n",
                          "calls: [slow]\n")
                  .ok());
  EXPECT_THAT(MessageOf(Infer(Rows({1, 1}, 1)).status()), HasSubstr("exited with code 3"));
  ExpectOnlyWhatHasBegun("slow", 2);
}

}  // namespace
}  // namespace chairlift
