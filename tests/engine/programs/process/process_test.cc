// Functions in worker processes, as an engine serves them: what they take and give, and batches.
#include <gmock/gmock.h>
#include <sys/types.h>

#include <numeric>
#include <random>

#include "engine/programs/process/functions.h"

namespace chairlift {
namespace {

using ::testing::ElementsAre;
using testing::FunctionTest;
using ::testing::HasSubstr;
using testing::WriteFile;

using ProcessTest = FunctionTest;

TEST_F(ProcessTest, AnswersRowByRow) {
  ASSERT_TRUE(Load("def predict(x): return x * 2 + 1").ok());
  const auto response = Infer(Rows({1, 2, 3, 4}, 2));
  EXPECT_THAT(Values(response), ElementsAre(3, 5, 7, 9));
  EXPECT_EQ(response->outputs[0].name, "output");
  EXPECT_EQ(response->outputs[0].tensor.shape(), (Shape{2, 2}));
  const auto metadata = engine_->Metadata("my");
  ASSERT_TRUE(metadata.ok());
  EXPECT_EQ(metadata->platform, "python_chairlift");
  EXPECT_TRUE(metadata->batches);
  EXPECT_EQ(metadata->programs.back().kind, "python");
  EXPECT_THAT(metadata->diagnosis, HasSubstr("function 'predict'"));
}

TEST_F(ProcessTest, AFileIsServedWithoutAModelYaml) {
  const std::string file = WriteFile(folder_ / "other.py", "def scale(x):\n  return x * 10\n");
  ASSERT_TRUE(engine_->LoadModel("my", file + ":scale", {}).ok());
  EXPECT_THAT(Values(Infer(Rows({1, 2}))), ElementsAre(10, 20));
  EXPECT_THAT(MessageOf(engine_->LoadModel("no", file + ":skale", {})),
              HasSubstr("has no 'skale'; it has: scale"));
}

TEST_F(ProcessTest, RepositoriesNeedPermission) {
  auto strict = Engine::Create({.workers = 1});
  ASSERT_TRUE(strict.ok());
  WriteFile(folder_ / "my/1/my.py", "def predict(x): return x");
  WriteFile(folder_ / "my/model.yaml", "python: my.py:predict");
  ASSERT_TRUE((*strict)->AddRepository(folder_.string()).ok());
  EXPECT_THAT(MessageOf((*strict)->LoadFromRepository("my")), HasSubstr("--allow-plugins"));
  ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok());
  ASSERT_TRUE(engine_->LoadFromRepository("my").ok());
  EXPECT_THAT(Values(Infer(Rows({1, 2}))), ElementsAre(1, 2));
}

TEST_F(ProcessTest, TypesComeFromAnnotations) {
  ASSERT_TRUE(
      Load("from numpy.typing import NDArray\n"
           "from typing import Annotated\n"
           "def predict(a: NDArray[np.int64], b: Annotated[np.ndarray, np.float32, (None, 2)])"
           " -> tuple[NDArray[np.int64], NDArray[np.bool_]]:\n"
           "  return a + 1, b.sum(1) > 0\n")
          .ok());
  InferRequest request;
  request.model = "my";
  request.inputs = {{"a", Tensor::Of<int64_t>({2}, {5, 6})},
                    {"b", Tensor::Of<float>({2, 2}, {1, 1, -1, -1})}};
  const auto response = engine_->Infer(request);
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->outputs.size(), 2u);
  EXPECT_THAT(response->outputs[0].tensor.values<int64_t>(), ElementsAre(6, 7));
  EXPECT_THAT(response->outputs[1].tensor.values<bool>(), ElementsAre(true, false));
  request.inputs[1].tensor = Tensor::Of<float>({2, 3}, {1, 1, 1, 1, 1, 1});
  EXPECT_THAT(MessageOf(engine_->Infer(request).status()), HasSubstr("input 'b'"));
  request.inputs[1].tensor = Tensor::Of<float>({1, 2}, {1, 1});
  EXPECT_THAT(MessageOf(engine_->Infer(request).status()), HasSubstr("the same number"));
}

TEST_F(ProcessTest, TypesComeFromAnExample) {
  ASSERT_TRUE(Load("def predict(inputs: dict):\n"
                   "  return {'sum': inputs['a'] + inputs['b'], 'most': inputs['a'].argmax(1)}\n"
                   "predict.example = {'a': np.zeros((1, 3), 'float32'), 'b': [[1.0, 2.0, 3.0]]}\n")
                  .ok());
  InferRequest request;
  request.model = "my";
  request.inputs = {{"b", Tensor::Of<float>({1, 3}, {1, 1, 1})},
                    {"a", Tensor::Of<float>({1, 3}, {1, 7, 3})}};
  const auto response = engine_->Infer(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(response->outputs[0].tensor.values<float>(), ElementsAre(2, 8, 4));
  EXPECT_EQ(response->outputs[1].name, "most");
  EXPECT_THAT(response->outputs[1].tensor.values<int64_t>(), ElementsAre(1));
}

TEST_F(ProcessTest, ListsGoToLists) {
  ASSERT_TRUE(Load("def predict(x: list[float]) -> list[int]:\n"
                   "  assert type(x) is list and type(x[0]) is float\n"
                   "  return [int(v) * 3 for v in x]\n")
                  .ok());
  const auto response = Infer(Tensor::Of<float>({3}, {1.5, 2.5, -3}));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(response->outputs[0].tensor.values<int64_t>(), ElementsAre(3, 6, -9));
}

// Rows of any lengths share batches, packed: none is computed before all wait.
TEST_F(ProcessTest, RaggedRowsArePacked) {
  const std::string gate = (folder_ / "gate").string();
  ASSERT_TRUE(
      Load("import os, time\n"
           "from typing import Annotated\n"
           "from numpy.typing import NDArray\n"
           "from chairlift import Ragged\n"
           "def predict(x: Ragged, y: NDArray[np.int64]) -> tuple[Ragged, NDArray[np.float32]]:\n"
           "  while not os.path.exists('" +
               gate +
               "'): time.sleep(0.001)\n"
               "  assert x.offsets[-1] == len(x.values) and len(y) == len(x.offsets) - 1 <= 8\n"
               "  lengths = np.diff(x.offsets)\n"
               "  sums = np.add.reduceat(np.append(x.values, 0), x.offsets[:-1]) * (lengths > 0)\n"
               "  return Ragged(x.values + 1, x.offsets), (sums + y).astype('float32')\n",
           "max_batch_size: 8\n")
          .ok());
  std::mt19937 random(9);
  std::vector<Answer> answers;
  std::vector<std::vector<float>> values, sums;
  std::vector<Shape> shapes;
  for (int i = 0; i < 300; ++i) {
    const auto rows = std::uniform_int_distribution<int64_t>(1, 3)(random);
    const auto length = std::uniform_int_distribution<int64_t>(1, 9)(random);
    shapes.push_back({rows, length});
    std::vector<float>& own = values.emplace_back(static_cast<size_t>(rows * length));
    for (float& value : own) value = static_cast<float>(random() % 10);
    std::vector<int64_t> add(static_cast<size_t>(rows), i);
    InferRequest request;
    request.model = "my";
    request.inputs = {{"x", Tensor::Of<float>(shapes.back(), std::span<const float>(own))},
                      {"y", Tensor::Of<int64_t>({rows}, std::span<const int64_t>(add))}};
    answers.push_back(Submit(std::move(request)));
    std::vector<float>& own_sums = sums.emplace_back();
    for (auto row = own.begin(); row != own.end(); row += length) {
      own_sums.push_back(std::accumulate(row, row + length, static_cast<float>(i)));
    }
    for (float& value : own) value += 1;
  }
  WriteFile(gate, "");
  for (size_t i = 0; i < answers.size(); ++i) {
    const auto answer = answers[i].get();
    EXPECT_EQ(Values(answer), values[i]);
    EXPECT_EQ(answer->outputs[0].tensor.shape(), shapes[i]);
    const auto own = answer->outputs[1].tensor.values<float>();
    EXPECT_EQ(std::vector<float>(own.begin(), own.end()), sums[i]);
  }
  const auto statistics = engine_->Statistics("my");
  EXPECT_LT((*statistics)[0].execution_count, 200u);
  EXPECT_THAT(MessageOf(Infer(Rows({1}, 1)).status()), HasSubstr("'y' is missing"));
}

TEST_F(ProcessTest, AClassIsMadeOnce) {
  ASSERT_TRUE(Load("class predict:\n"
                   "  def __init__(self): self.weight = np.float32(4)\n"
                   "  def preprocess(self, item): return item + 1\n"
                   "  def predict(self, x): return x * self.weight\n"
                   "  def postprocess(self, item): return -item\n")
                  .ok());
  EXPECT_THAT(Values(Infer(Rows({1, 2, 3}))), ElementsAre(-8, -12, -16));
}

// The first batch is held in predict until a second one has been preprocessed.
TEST_F(ProcessTest, HooksApartRunWhileOtherBatchesAreComputed) {
  const std::string prepared = (folder_ / "prepared").string();
  ASSERT_TRUE(Load("import pathlib, time\n"
                   "seen = pathlib.Path('" +
                       prepared +
                       "')\n"
                       "class predict:\n"
                       "  @staticmethod\n"
                       "  def preprocess(item):\n"
                       "    if item[0] == 1: seen.touch()\n"
                       "    return item + 1\n"
                       "  def __init__(self): self.weight = np.float32(4)\n"
                       "  def predict(self, x):\n"
                       "    if (x < 0).any(): raise ValueError('below zero')\n"
                       "    while not seen.exists(): time.sleep(0.001)\n"
                       "    return x * self.weight\n"
                       "  def postprocess(self, item): return -item / self.weight\n",
                   "separate_hooks: [preprocess, postprocess]\nmax_batch_size: 1\n"
                   "batches_in_flight: 1\n")
                  .ok());
  std::vector<Answer> answers;
  for (int i = 0; i < 12; ++i) answers.push_back(Submit(Rows({static_cast<float>(i)})));
  for (int i = 0; i < 12; ++i) {
    EXPECT_THAT(Values(answers[static_cast<size_t>(i)].get()),
                ElementsAre(static_cast<float>(-1 - i)));
  }
  EXPECT_THAT(MessageOf(Infer(Rows({-2})).status()), HasSubstr("ValueError: below zero"));
  EXPECT_EQ((*engine_->Statistics("my"))[0].running, 0);
}

TEST_F(ProcessTest, OnlyTheGuiltyFailThroughAllStages) {
  ASSERT_TRUE(Load("class predict:\n"
                   "  def preprocess(self, item):\n"
                   "    if item[0] == 3: raise ValueError('three')\n"
                   "    return item\n"
                   "  def predict(self, x): return x + 1\n"
                   "  def postprocess(self, item):\n"
                   "    if item[0] == 8: raise ValueError('eight')\n"
                   "    return item\n",
                   "separate_hooks: [preprocess, postprocess]\n")
                  .ok());
  for (int round = 0; round < 20; ++round) {
    std::vector<Answer> answers;
    for (int i = 0; i < 10; ++i) answers.push_back(Submit(Rows({static_cast<float>(i)}, 1)));
    for (int i = 0; i < 10; ++i) {
      const auto answer = answers[static_cast<size_t>(i)].get();
      if (i == 3 || i == 7) {
        EXPECT_THAT(MessageOf(answer.status()), HasSubstr(i == 3 ? "three" : "eight"));
      } else {
        EXPECT_THAT(Values(answer), ElementsAre(static_cast<float>(i + 1)));
      }
    }
  }
}

TEST_F(ProcessTest, HooksApartMustBeOfTheClass) {
  EXPECT_THAT(MessageOf(Load("def predict(x): return x", "separate_hooks: [preprocess]\n")),
              HasSubstr("'predict' is not a class"));
  EXPECT_THAT(MessageOf(Load("class predict:\n  def predict(self, x): return x\n",
                             "separate_hooks: [postprocess]\n")),
              HasSubstr("has no postprocess(item)"));
  EXPECT_THAT(MessageOf(Load("class predict:\n"
                             "  def predict(self, x): yield x\n"
                             "  def postprocess(self, item): return item\n",
                             "separate_hooks: [postprocess]\n")),
              HasSubstr("separate_hooks needs rows of equal shape"));
}

// Each answer is that of its request alone, whichever requests are batched with it; batches have at
// most the rows they may have.
TEST_F(ProcessTest, RequestsThatRideTogetherAnswerAsAlone) {
  ASSERT_TRUE(Load("def predict(x):\n"
                   "  assert len(x) <= 8, len(x)\n"
                   "  return np.concatenate([x.sum(1, keepdims=True), x * x], 1)\n",
                   "workers: 2\nmax_batch_size: 8\n")
                  .ok());
  std::mt19937 random(3);
  std::vector<std::vector<float>> inputs;
  std::vector<int64_t> rows;
  std::vector<Answer> answers;
  for (int i = 0; i < 500; ++i) {
    rows.push_back(std::uniform_int_distribution<int64_t>(1, 4)(random));
    const auto width = std::uniform_int_distribution<int64_t>(1, 3)(random);
    std::vector<float>& values = inputs.emplace_back(static_cast<size_t>(rows.back() * width));
    for (float& value : values) value = static_cast<float>(random() % 100);
    answers.push_back(Submit(Rows(values, rows.back())));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto width = inputs[i].size() / static_cast<size_t>(rows[i]);
    std::vector<float> expected;
    for (auto row = inputs[i].begin(); row != inputs[i].end();
         row += static_cast<ptrdiff_t>(width)) {
      expected.push_back(std::accumulate(row, row + static_cast<ptrdiff_t>(width), 0.0f));
      for (size_t k = 0; k < width; ++k)
        expected.push_back(row[static_cast<ptrdiff_t>(k)] * row[static_cast<ptrdiff_t>(k)]);
    }
    EXPECT_EQ(Values(answers[i].get()), expected);
  }
  const auto statistics = engine_->Statistics("my");
  ASSERT_TRUE(statistics.ok());
  EXPECT_EQ((*statistics)[0].success.count, 500u);
  EXPECT_LT((*statistics)[0].execution_count, 500u);
  EXPECT_EQ((*statistics)[0].running, 0);
}

TEST_F(ProcessTest, ARequestOfManyRowsRunsInParts) {
  ASSERT_TRUE(Load("def predict(x):\n  assert len(x) <= 32\n  return x + 1\n").ok());
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), 0.0f);
  std::vector<float> expected(1000);
  std::iota(expected.begin(), expected.end(), 1.0f);
  EXPECT_EQ(Values(Infer(Rows(values))), expected);
}

TEST_F(ProcessTest, LargeAndGrowingMessagesFit) {
  ASSERT_TRUE(Load("def predict(x): return np.repeat(x, 3, axis=1)").ok());
  for (const int64_t size : {1, 100'000, 10, 3'000'000, 1, 4'000'000}) {
    const Tensor x = Tensor::Allocate(DType::kFloat, {1, size});
    std::fill_n(const_cast<float*>(x.values<float>().data()), size, 2.5f);
    const std::vector<float> answer = Values(Infer(x));
    ASSERT_EQ(answer.size(), static_cast<size_t>(3 * size));
    EXPECT_EQ(answer.front(), 2.5f);
    EXPECT_EQ(answer.back(), 2.5f);
  }
}

TEST_F(ProcessTest, NoRowsAreRows) {
  ASSERT_TRUE(Load("def predict(x): return x + 1").ok());
  const auto response = Infer(Tensor::Allocate(DType::kFloat, {0, 3}));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->outputs[0].tensor.shape(), (Shape{0, 3}));
  EXPECT_THAT(MessageOf(Infer(Tensor::Scalar(1.0f)).status()), HasSubstr("single number"));
}

TEST_F(ProcessTest, AnAnswerIsItsOwn) {
  ASSERT_TRUE(Load("def predict(x):\n  y = x + 1\n  x[:] = -1\n  return y\n").ok());
  const Tensor x = Rows({1, 2});
  const auto first = Infer(x);
  const auto second = Infer(Rows({5, 6}));
  EXPECT_THAT(Values(first), ElementsAre(2, 3));
  EXPECT_THAT(Values(second), ElementsAre(6, 7));
  EXPECT_THAT(x.values<float>(), ElementsAre(1, 2));
}

TEST_F(ProcessTest, EqualRequestsComeFromTheResponseCache) {
  ASSERT_TRUE(Load("n = 0\ndef predict(x):\n  global n\n  n += 1\n  return x + n\n",
                   "response_cache_bytes: 1000000\n")
                  .ok());
  EXPECT_THAT(Values(Infer(Rows({1}))), ElementsAre(2));
  EXPECT_THAT(Values(Infer(Rows({1}))), ElementsAre(2));
  EXPECT_THAT(Values(Infer(Rows({2}))), ElementsAre(4));
}

// A task in a lane is a slice of a track of its model's.
TEST_F(ProcessTest, TasksAreTraced) {
  ASSERT_TRUE(Load("def predict(x): return x").ok());
  engine_->StartTrace({});
  EXPECT_TRUE(Infer(Rows({1})).ok());
  const Trace trace = engine_->StopTrace();
  EXPECT_EQ(trace.tasks, 1u);
  EXPECT_THAT(trace.json, HasSubstr("lane 0"));
}

// The answer of the first is whether its worker has been sent the next.
TEST_F(ProcessTest, TheBatchBehindIsThereBeforeTheOneInFrontHasEnded) {
  for (const int in_flight : {1, 2}) {
    ASSERT_TRUE(
        Load("import os, select, time\n"
             "def predict(x):\n"
             "  open('" +
                 (folder_ / "begun").string() +
                 "', 'w')\n"
                 "  while not os.path.exists('" +
                 (folder_ / "go").string() +
                 "'): time.sleep(0.001)\n"
                 "  return np.full(len(x), len(select.select([3], [], [], 0)[0]), 'float32')\n",
             "max_batch_size: 1\nbatches_in_flight: " + std::to_string(in_flight) + "\n")
            .ok());
    Answer first = Submit(Rows({1}));
    ASSERT_TRUE(Soon([&] { return std::filesystem::exists(folder_ / "begun"); }));
    Answer second = Submit(Rows({1}));
    WriteFile(folder_ / "go", "");
    EXPECT_THAT(Values(first.get()), ElementsAre(static_cast<float>(in_flight - 1)));
    EXPECT_TRUE(second.get().ok());
    std::filesystem::remove(folder_ / "go");
    std::filesystem::remove(folder_ / "begun");
  }
}

// A function that sleeps holds no worker of the engine.
TEST_F(ProcessTest, GraphsRunWhileFunctionsDo) {
  ASSERT_TRUE(Load("import os, time\n"
                   "def predict(x):\n"
                   "  while not os.path.exists('" +
                       (folder_ / "go").string() +
                       "'): time.sleep(0.01)\n"
                       "  return x\n",
                   "workers: 3\nmax_batch_size: 1\n")
                  .ok());
  const std::string file = WriteFile(folder_ / "doubling.onnx", testing::DoublingModel().Bytes());
  ASSERT_TRUE(engine_->LoadModel("doubling", file, {}).ok());
  std::vector<Answer> waiting;
  waiting.reserve(8);
  for (int i = 0; i < 8; ++i) waiting.push_back(Submit(Rows({1})));
  InferRequest request;
  request.model = "doubling";
  request.inputs = {{"x", Tensor::Of<float>({1, 4}, {1, 2, 3, 4})}};
  for (int i = 0; i < 20; ++i)
    EXPECT_THAT(Values(engine_->Infer(request)), ElementsAre(2, 4, 6, 8));
  WriteFile(folder_ / "go", "");
  for (Answer& answer : waiting) EXPECT_THAT(Values(answer.get()), ElementsAre(1));
}

TEST_F(ProcessTest, UnloadingEndsTheWorkers) {
  ASSERT_TRUE(Load("import os\n"
                   "def predict(x) -> np.ndarray[tuple, np.dtype[np.int64]]:\n"
                   "  return np.full(len(x), os.getpid())\n")
                  .ok());
  const auto response = Infer(Rows({1}));
  ASSERT_TRUE(response.ok()) << response.status();
  const auto pid = static_cast<pid_t>(response->outputs[0].tensor.values<int64_t>()[0]);
  EXPECT_EQ(::kill(pid, 0), 0);
  ASSERT_TRUE(engine_->UnloadModel("my").ok());
  EXPECT_TRUE(Soon([pid] { return ::kill(pid, 0) == -1; }));  // it has been reaped
}

}  // namespace
}  // namespace chairlift
