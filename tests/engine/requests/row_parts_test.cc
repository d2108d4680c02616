// Requests with more rows than a task takes, or than memory has room for.
#include "engine/requests/row_parts.h"

#include <gmock/gmock.h>

#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "chairlift/engine.h"
#include "chairlift/text.h"
#include "engine/test_models.h"

namespace chairlift {
namespace row_parts_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kFloat;
using testing::kInt64;
using testing::ModelBuilder;
using testing::TempFolder;

using Answer = StatusOr<InferResponse>;

ValidatedRequest OfRows(int32_t rows) {
  ValidatedRequest request;
  request.rows = rows;
  request.outputs = {0};
  Tensor x = Tensor::Allocate(DType::kFloat, {rows, 2});
  for (int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = static_cast<float>(i);
  request.inputs = {x};
  return request;
}

std::vector<int32_t> Rows(const RowParts& parts) {
  std::vector<int32_t> rows;
  rows.reserve(static_cast<size_t>(parts.count()));
  for (int i = 0; i < parts.count(); ++i) rows.push_back(parts.range(i).rows);
  return rows;
}

constexpr size_t kPlenty = size_t{1} << 30;

TEST(RowPartsTest, HaveAtMostTheLoadButOneRow) {
  const ValidatedRequest seven = OfRows(7);
  EXPECT_THAT(Rows(RowParts(seven, 3)), ElementsAre(3, 3, 1));
  EXPECT_THAT(Rows(RowParts(seven, 7)), ElementsAre(7));
  EXPECT_THAT(Rows(RowParts(seven, 0)), ElementsAre(1, 1, 1, 1, 1, 1, 1));
  ValidatedRequest packed = OfRows(5);
  packed.tokens = {4, 9, 2, 2, 0};
  EXPECT_THAT(Rows(RowParts(packed, 5)), ElementsAre(1, 1, 3));
}

TEST(RowPartsTest, TakeTheirRowsOfEverything) {
  ValidatedRequest packed = OfRows(3);
  packed.length = 2;
  packed.tokens = {2, 1, 2};
  packed.num_tokens = 5;
  packed.left_out = {false, false, false, true, false, false};
  const ValidatedRequest part = RowsOf(packed, {.first = 1, .rows = 2});
  EXPECT_EQ(part.rows, 2);
  EXPECT_EQ(part.load(), 3);
  EXPECT_THAT(part.tokens, ElementsAre(1, 2));
  EXPECT_THAT(part.left_out, ElementsAre(false, true, false, false));
  EXPECT_THAT(part.inputs[0].values<float>(), ElementsAre(2, 3, 4, 5));
}

TEST(RowPartsTest, AreTheWholeAgainWhateverTheirOrder) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    // Rows along some axis of input and output.
    const int in_axis = static_cast<int>(random() % 3), out_axis = static_cast<int>(random() % 3);
    auto axes = std::make_shared<BatchAxes>();
    axes->inputs = {in_axis};
    axes->outputs = {out_axis};
    const auto size = [&] { return static_cast<int64_t>(random() % 4); };
    ValidatedRequest whole;
    whole.rows = static_cast<int32_t>(1 + random() % 9);
    whole.outputs = {0};
    if (in_axis > 0 || out_axis > 0) whole.axes = axes;
    Shape shape{size(), size(), size()};
    shape[in_axis] = whole.rows;
    Tensor x = Tensor::Allocate(DType::kFloat, shape);
    for (int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = static_cast<float>(i);
    whole.inputs = {x};

    // The model: its input with the axes of rows exchanged.
    const auto swapped = [&](const Tensor& from) {
      Shape to = from.shape();
      std::swap(to[in_axis], to[out_axis]);
      Tensor result = Tensor::Allocate(DType::kFloat, to);
      int64_t at = 0;
      for (int64_t a = 0; a < from.shape()[0]; ++a) {
        for (int64_t b = 0; b < from.shape()[1]; ++b) {
          for (int64_t c = 0; c < from.shape()[2]; ++c) {
            int64_t index[] = {a, b, c};
            std::swap(index[in_axis], index[out_axis]);
            result.data<float>()[(index[0] * to[1] + index[1]) * to[2] + index[2]] =
                from.data<float>()[at++];
          }
        }
      }
      return result;
    };
    RowParts parts(whole, static_cast<int32_t>(1 + random() % 4));
    std::vector<int> order(static_cast<size_t>(parts.count()));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (const int part : order) {
      const NamedTensor output{"y", swapped(parts.Part(part).inputs[0])};
      const Status put = parts.Put(part, {&output, 1}, {kPlenty, nullptr});
      ASSERT_TRUE(put.ok()) << put;
    }
    const Tensor got = parts.Take()[0].tensor, want = swapped(x);
    ASSERT_EQ(got.shape(), want.shape());
    EXPECT_TRUE(std::equal(got.values<float>().begin(), got.values<float>().end(),
                           want.values<float>().begin()));
  }
}

TEST(RowPartsTest, RefuseWhatIsNotOfTheirRows) {
  const ValidatedRequest whole = OfRows(4);
  RowParts parts(whole, 2);
  const NamedTensor wrong{"y", Tensor::Of<float>({3}, {1, 2, 3})};
  EXPECT_EQ(parts.Put(0, {&wrong, 1}, {kPlenty, nullptr}).code(), absl::StatusCode::kInternal);
  const NamedTensor two{"y", Tensor::Of<float>({2}, {1, 2})};
  EXPECT_TRUE(parts.Put(0, {&two, 1}, {kPlenty, nullptr}).ok());
  const NamedTensor wider{"y", Tensor::Of<float>({2, 1}, {1, 2})};
  EXPECT_EQ(parts.Put(1, {&wider, 1}, {kPlenty, nullptr}).code(), absl::StatusCode::kInternal);
  RowParts small(whole, 2);
  EXPECT_TRUE(absl::IsOutOfRange(small.Put(0, {&two, 1}, {15, nullptr})));  // four floats: 16 bytes
}

TEST(RowPartsTest, AnswersShareABudgetUntilTheyAreTaken) {
  const ValidatedRequest whole = OfRows(4);
  const NamedTensor two{"y", Tensor::Of<float>({2}, {1, 2})};
  const auto budget = std::make_shared<ByteBudget>(40);
  const RowParts::Limits limits{1 << 20, budget};
  {
    RowParts first(whole, 2), second(whole, 2), third(whole, 2);
    EXPECT_TRUE(first.Put(0, {&two, 1}, limits).ok());
    EXPECT_TRUE(second.Put(1, {&two, 1}, limits).ok());
    EXPECT_TRUE(first.Put(1, {&two, 1}, limits).ok());
    EXPECT_EQ(budget->held(), 32);
    EXPECT_TRUE(absl::IsResourceExhausted(third.Put(0, {&two, 1}, limits)));
    EXPECT_EQ(budget->held(), 32);
  }
  EXPECT_EQ(budget->held(), 0);
}

TEST(RowPartsTest, KeepTheStringsOfAnswers) {
  const ValidatedRequest whole = OfRows(3);
  const auto budget = std::make_shared<ByteBudget>(4096);
  const RowParts::Limits limits{4096, budget};
  RowParts parts(whole, 2);
  const auto put = [&](int part, std::vector<std::string> texts) {
    const Shape shape{static_cast<int64_t>(texts.size())};
    const NamedTensor output{"y", TextTensor(shape, std::move(texts))};
    return parts.Put(part, {&output, 1}, limits);
  };
  const std::string longer(1000, 'x');
  ASSERT_TRUE(put(1, {longer}).ok());
  ASSERT_TRUE(put(0, {"a", longer + "y"}).ok());
  EXPECT_GT(budget->held(), 2001);
  const std::vector<NamedTensor> answer = parts.Take();
  EXPECT_THAT(TextsOf(answer[0].tensor), ElementsAre("a", longer + "y", longer));

  RowParts large(whole, 2);
  const NamedTensor output{"y", TextTensor({1}, {std::string(5000, 'x')})};
  EXPECT_TRUE(absl::IsOutOfRange(large.Put(1, {&output, 1}, limits)));
}

// y = mean over 1 K copies of x, which are there all at once: 4 KiB a row and feature.
ModelBuilder Wide(bool apart) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", 4}).Output("y", kFloat);
  m.Ints("axis", {2});
  auto* ones = m.Tensor("ones", kFloat, {1, 1, 1024});
  for (int i = 0; i < 1024; ++i) ones->add_float_data(1.0f);
  m.Node("Unsqueeze", {"x", "axis"}, {"column"});
  m.Node("Mul", {"column", "ones"}, {"copies"});
  m.Node("Softmax", {"copies"}, {"weights"}).Int("axis", apart ? 2 : 0);
  m.Node("Mul", {"copies", "weights"}, {"weighted"});
  m.Node("ReduceSum", {"weighted", "axis"}, {"y"}).Int("keepdims", 0);
  return m;
}

class LargeRequestsTest : public ::testing::Test {
 protected:
  void Start(const ModelBuilder& model, EngineOptions options, const ModelConfig& config = {}) {
    options.autotune = false;
    engine_ = *Engine::Create(options);
    Load("model", model, config);
    Load("other", testing::DoublingModel());
  }
  void Load(const std::string& name, const ModelBuilder& model, const ModelConfig& config = {}) {
    const std::string file = testing::WriteFile(folder_ / (name + ".onnx"), model.Bytes());
    const Status loaded = engine_->LoadModel(name, file, config);
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
  static InferRequest Ask(int64_t rows, const char* model = "model") {
    Tensor x = Tensor::Allocate(DType::kFloat, {rows, 4});
    for (int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = static_cast<float>(i % 97);
    return {.model = model, .inputs = {{"x", x}}};
  }
  static void ExpectRows(const Answer& answer, int64_t rows) {
    ASSERT_TRUE(answer.ok()) << answer.status();
    const Tensor& y = answer->outputs[0].tensor;
    ASSERT_EQ(y.shape(), Shape({rows, 4}));
    for (int64_t i = 0; i < y.size(); ++i) {
      ASSERT_NEAR(y.data<float>()[i], static_cast<float>(i % 97), 1e-3) << i;
    }
  }

  TempFolder folder_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(LargeRequestsTest, RunAsSeveralTasks) {
  Start(Wide(true), {.workers = 2}, {.policy = "window"});
  const int most = engine_->Metadata("model")->config.max_batch_size;
  engine_->StartTrace();
  std::promise<Answer> promise;
  const RequestId number = engine_->InferAsync(
      Ask(10 * most + 3), [&](const Answer& a) { promise.set_value(std::move(a)); });
  ExpectRows(promise.get_future().get(), 10 * most + 3);
  const ModelStatistics statistics = (*engine_->Statistics("model"))[0];
  EXPECT_EQ(statistics.execution_count, 11u);
  EXPECT_EQ(statistics.inference_count, static_cast<uint64_t>(10 * most + 3));
  EXPECT_EQ(statistics.success.count, 1u);
  EXPECT_EQ(statistics.waiting, 0);
  EXPECT_EQ(statistics.running, 0);
  // The trace names each task by the request that came.
  const Trace trace = engine_->StopTrace();
  EXPECT_EQ(trace.tasks, 11u);
  std::set<std::string> requests;
  const nlohmann::json events = nlohmann::json::parse(trace.json)["traceEvents"];
  for (const auto& event : events) {
    if (event.contains("args") && event["args"].contains("requests")) {
      requests.insert(event["args"]["requests"].dump());
    }
  }
  EXPECT_THAT(requests, ElementsAre("[" + std::to_string(number) + "]"));
}

TEST_F(LargeRequestsTest, OthersComeBetweenTheirTasks) {
  Start(Wide(true), {.workers = 1}, {.policy = "window"});
  std::promise<void> is_held, both_wait, large, small;
  engine_->InferAsync(Ask(1, "other"), [&](const Answer& a) {  // holds the worker
    EXPECT_TRUE(a.ok()) << a.status();
    is_held.set_value();
    both_wait.get_future().wait();
  });
  is_held.get_future().wait();
  std::atomic<bool> ended{false};
  engine_->InferAsync(Ask(5000), [&](const Answer& a) {
    ExpectRows(a, 5000);
    ended = true;
    large.set_value();
  });
  bool before = false;
  engine_->InferAsync(Ask(1, "other"), [&](const Answer& a) {
    EXPECT_TRUE(a.ok()) << a.status();
    before = !ended;
    small.set_value();
  });
  both_wait.set_value();
  small.get_future().get();
  EXPECT_TRUE(before);
  large.get_future().get();
}

TEST_F(LargeRequestsTest, KeepNobodyOutOfTheirModel) {
  Start(Wide(true), {.workers = 1, .max_queue_wait_us = 500'000}, {.policy = "window"});
  ExpectRows(engine_->Infer(Ask(200)), 200);  // what its batches cost is learnt
  std::promise<Answer> large;
  const RequestId number =
      engine_->InferAsync(Ask(200'000), [&](Answer answer) { large.set_value(std::move(answer)); });
  for (int i = 0; i < 5; ++i) ExpectRows(engine_->Infer(Ask(2)), 2);
  engine_->Cancel(number);
  large.get_future().wait();
}

TEST_F(LargeRequestsTest, RunInPartsWhereMemoryIsShort) {
  // 32 rows take some MiB; a worker has less.
  Start(Wide(true), {.workers = 1, .memory_budget = 300 << 10}, {.policy = "window"});
  ExpectRows(engine_->Infer(Ask(32)), 32);
  ExpectRows(engine_->Infer(Ask(100)), 100);
}

TEST_F(LargeRequestsTest, AreRefusedWhereRowsAreNotApart) {
  Start(Wide(false), {.workers = 1, .memory_budget = 300 << 10});
  const Answer refused = engine_->Infer(Ask(100));
  ASSERT_TRUE(absl::IsOutOfRange(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()),
              ::testing::AllOf(HasSubstr("'x' of shape [100,4]"), HasSubstr("MiB")));
  EXPECT_TRUE(engine_->Infer(Ask(1)).ok());
  EXPECT_TRUE(engine_->Infer(Ask(1, "other")).ok());
}

TEST_F(LargeRequestsTest, AreRefusedWhereOneRowIsTooMuch) {
  Start(Wide(true), {.workers = 1, .memory_budget = 4 << 10}, {.policy = "window"});
  EXPECT_TRUE(absl::IsOutOfRange(engine_->Infer(Ask(40)).status()));
  EXPECT_TRUE(absl::IsOutOfRange(engine_->Infer(Ask(1)).status()));
  EXPECT_TRUE(engine_->Infer(Ask(1, "other")).ok());
}

// y = x, stacked by a loop as often as n says: what it needs only data tell.
TEST_F(LargeRequestsTest, AreRefusedWhatTheirDataAskFor) {
  ModelBuilder m(17);
  m.Input("n", kInt64, {}).Input("x", kFloat, {1, "size"}).Output("y", kFloat);
  testing::NodeBuilder loop = m.Node("Loop", {"n", "", "x"}, {"last", "y"});
  testing::GraphProtoBuilder body(loop.Body("body"));
  body.Input("i", kInt64, {}).Input("on", testing::kBool, {}).Input("a", kFloat, {1, "size"});
  body.Output("on_next").Output("a_next").Output("a_out");
  body.Node("Identity", {"on"}, {"on_next"});
  body.Node("Abs", {"a"}, {"a_next"});
  body.Node("Neg", {"a"}, {"a_out"});
  Start(m, {.workers = 1, .memory_budget = 1 << 20});
  const auto ask = [](int64_t n) {
    return InferRequest{.model = "model",
                        .inputs = {{"n", Tensor::Scalar<int64_t>(n)},
                                   {"x", Tensor::Allocate(DType::kFloat, {1, 1024})}}};
  };
  EXPECT_TRUE(engine_->Infer(ask(10)).ok());
  EXPECT_TRUE(absl::IsOutOfRange(engine_->Infer(ask(1 << 20)).status()));
  // Steps of nothing are kept, too.
  InferRequest empty = ask(1 << 20);
  empty.inputs[1].tensor = Tensor::Allocate(DType::kFloat, {1, 0});
  EXPECT_TRUE(absl::IsOutOfRange(engine_->Infer(std::move(empty)).status()));
}

// A random mixture of large requests and small ones, cancelled, late or left alone: each is
// answered once, each answer has its request's rows, and nothing stays behind.
TEST_F(LargeRequestsTest, AreAnsweredWhateverHappensToOthers) {
  std::mt19937 random(11);
  Start(Wide(true), {.workers = 2, .memory_budget = 4 << 20}, {.policy = "window"});
  for (int round = 0; round < 8; ++round) {
    std::mutex mutex;
    std::condition_variable told;
    int left = 30;
    std::vector<RequestId> numbers;
    for (int i = 0; i < 30; ++i) {
      const int64_t rows = random() % 3 == 0 ? 1 + random() % 400 : 1 + random() % 5;
      InferRequest request = Ask(rows);
      request.client = random() % 4;
      const bool hurried = random() % 5 == 0;
      if (hurried) request.timeout = std::chrono::microseconds(random() % 3000);
      const RequestId number =
          engine_->InferAsync(std::move(request), [&, rows](const Answer& answer) {
            if (answer.ok()) {
              ExpectRows(answer, rows);
            } else {
              EXPECT_TRUE(absl::IsCancelled(answer.status()) ||
                          absl::IsDeadlineExceeded(answer.status()))
                  << answer.status();
            }
            const std::lock_guard<std::mutex> lock(mutex);
            if (--left == 0) told.notify_one();
          });
      numbers.push_back(number);
      if (random() % 4 == 0) engine_->Cancel(numbers[random() % numbers.size()]);
      if (random() % 4 == 0) engine_->Cancel(number + 1 + random() % 3);  // of another, or unknown
    }
    std::unique_lock<std::mutex> lock(mutex);
    ASSERT_TRUE(told.wait_for(lock, std::chrono::seconds(60), [&] { return left == 0; }));
  }
  ModelStatistics statistics = (*engine_->Statistics("model"))[0];
  // A request that was cancelled, or late, has its answer before its task ends.
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
       statistics.running > 0 && std::chrono::steady_clock::now() < end;) {
    std::this_thread::yield();
    statistics = (*engine_->Statistics("model"))[0];
  }
  EXPECT_EQ(statistics.waiting, 0);
  EXPECT_EQ(statistics.running, 0);
  EXPECT_EQ(statistics.success.count + statistics.fail.count, 240u);
  engine_->Shutdown(std::chrono::seconds(10));
}

TEST_F(LargeRequestsTest, StopWithTheEngine) {
  Start(Wide(true), {.workers = 2}, {.policy = "window"});
  std::promise<Answer> promise;
  engine_->InferAsync(Ask(100'000), [&](const Answer& a) { promise.set_value(std::move(a)); });
  engine_->Shutdown(std::chrono::milliseconds(0));
  const Answer answer = promise.get_future().get();
  EXPECT_TRUE(absl::IsUnavailable(answer.status())) << answer.status();
}

}  // namespace row_parts_test
}  // namespace chairlift
