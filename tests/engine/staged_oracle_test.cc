// Whatever was stretched, merged or split between the stages of a model, each answer is the one
// that the request gets alone.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <future>
#include <mutex>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/retry_after.h"
#include "chairlift/engine.h"
#include "engine/test_models.h"

namespace chairlift {
namespace staged_oracle_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kFloat;
using testing::ModelBuilder;
using testing::TempFolder;
using testing::WriteFile;

StatusOr<std::unique_ptr<Engine>> Load(const ModelBuilder& model, const TempFolder& folder,
                                       const ModelConfig& config,
                                       const EngineOptions& options = {.workers = 1,
                                                                       .autotune = false}) {
  auto engine = Engine::Create(options);
  if (!engine.ok()) return engine;
  const std::string file = WriteFile(folder / "model.onnx", model.Bytes());
  const Status loaded = (*engine)->LoadModel("model", file, config);
  if (!loaded.ok()) return loaded;
  return engine;
}

std::string Refusal(const ModelBuilder& model, const ModelConfig& config) {
  const TempFolder folder;
  return std::string(Load(model, folder, config).status().message());
}

Tensor RandomTensor(const Shape& shape, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  for (int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = normal(random);
  return t;
}

InferRequest AskSkipModel(int64_t rows, std::mt19937& random) {
  InferRequest request;
  request.model = "model";
  request.inputs = {{"image", RandomTensor(Shape{rows, 3, 16, 16}, random)},
                    {"gain", RandomTensor(Shape{rows, 24}, random)}};
  return request;
}

// A batch of another size may sum in another order.
void ExpectClose(const InferResponse& got, const InferResponse& want) {
  ASSERT_EQ(got.outputs.size(), want.outputs.size());
  for (size_t o = 0; o < got.outputs.size(); ++o) {
    EXPECT_EQ(got.outputs[o].name, want.outputs[o].name);
    const Tensor &a = got.outputs[o].tensor, &b = want.outputs[o].tensor;
    ASSERT_EQ(a.shape(), b.shape());
    float largest = 0;
    for (float v : b.values<float>()) largest = std::max(largest, std::abs(v));
    for (int64_t i = 0; i < a.size(); ++i) {
      ASSERT_NEAR(a.data<float>()[i], b.data<float>()[i], 2e-6f * (1 + largest)) << "at " << i;
    }
  }
}

struct Asked {
  InferRequest request;
  StatusOr<InferResponse> alone = absl::UnknownError("not asked");
};

std::vector<Asked> AskAlone(const TempFolder& folder) {
  std::mt19937 random(7);
  std::vector<Asked> asked(40);
  auto alone = Load(testing::SkipModel(), folder, {.policy = "none"});
  EXPECT_TRUE(alone.ok()) << alone.status();
  for (Asked& a : asked) {
    a.request = AskSkipModel(static_cast<int64_t>(random() % 4), random);
    a.alone = (*alone)->Infer(a.request);
    EXPECT_TRUE(a.alone.ok()) << a.alone.status();
  }
  return asked;
}

// From several threads, after pauses at random, and some of them giving up.
void Check(const ModelConfig& config, int workers) {
  const TempFolder folder;
  const std::vector<Asked> asked = AskAlone(folder);
  auto engine =
      Load(testing::SkipModel(), folder, config, {.workers = workers, .autotune = workers == 1});
  ASSERT_TRUE(engine.ok()) << engine.status();
  constexpr int kThreads = 6;
  constexpr int kRequests = 120;
  std::mutex mutex;
  int shared = 0, answered = 0;
  // Again until some had company.
  for (int round = 0; round < 50 && shared == 0; ++round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t, round] {
        std::mt19937 own(static_cast<unsigned>(100 * (round + 1) + t));
        for (int i = 0; i < kRequests; ++i) {
          const Asked& a = asked[own() % asked.size()];
          InferRequest request = a.request;
          if (own() % 8 == 0) request.timeout = std::chrono::microseconds(1 + own() % 300);
          if (own() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 400));
          const StatusOr<InferResponse> got = (*engine)->Infer(request);
          const std::lock_guard<std::mutex> lock(mutex);
          const bool late = absl::IsDeadlineExceeded(got.status()) ||
                            absl::IsResourceExhausted(got.status());  // at once
          if (request.timeout && late) continue;
          ASSERT_TRUE(got.ok()) << got.status();
          ExpectClose(*got, *a.alone);
          shared += got->batch_rows > a.request.inputs[0].tensor.shape()[0];
          ++answered;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_GT(shared, 0) << "no request had company";
  const auto statistics = (*engine)->Statistics("model");
  ASSERT_TRUE(statistics.ok());
  EXPECT_EQ((*statistics)[0].success.count, static_cast<uint64_t>(answered));
}

TEST(StagedOracleTest, OneWorker) { Check({.policy = "staged", .max_batch_size = 8}, 1); }

TEST(StagedOracleTest, TwoWorkersAndThreeStages) {
  Check({.policy = "staged", .max_batch_size = 8, .stages = 3}, 2);
}

TEST(StagedOracleTest, OneBufferPairAndStagesByHand) {
  Check({.policy = "staged",
         .max_batch_size = 6,
         .queue_delay_us = 200,
         .stages_after = {"down", "up"},
         .buffer_pairs = 1},
        2);
}

TEST(StagedOracleTest, ManyBufferPairs) {
  Check({.max_batch_size = 5, .latency_objective_us = 2000, .stages = 5, .buffer_pairs = 6}, 2);
}

TEST(StagedOracleTest, CellularOverStages) {
  Check({.policy = "cellular", .max_batch_size = 8}, 1);
  Check({.policy = "cellular", .max_batch_size = 4, .stages = 4}, 2);
}

// Stages are cells to the policies that cellular is compared with.
TEST(StagedOracleTest, BaselinesOverStages) {
  for (const char* policy : {"bucketed", "graph_merge", "ideal"}) {
    SCOPED_TRACE(policy);
    Check({.policy = policy, .max_batch_size = 8, .stages = 3}, 2);
  }
}

TEST(StagedProgramTest, ARequestOfMoreRowsThanABatchTakesIsComputedInPieces) {
  const TempFolder folder;
  std::mt19937 random(3);
  const InferRequest request = AskSkipModel(75, random);
  auto alone = Load(testing::SkipModel(), folder, {.policy = "none"});
  auto staged = Load(testing::SkipModel(), folder, {.policy = "staged"});
  ASSERT_TRUE(alone.ok() && staged.ok()) << staged.status();
  const auto want = (*alone)->Infer(request), got = (*staged)->Infer(request);
  ASSERT_TRUE(want.ok() && got.ok()) << got.status();
  ExpectClose(*got, *want);
}

// Between stages a row leaves at most a few dozen KiB, and computing it takes as much again.
TEST(StagedProgramTest, MemoryIsBoundedFromTheFirstStageOn) {
  const TempFolder folder;
  std::mt19937 random(3);
  constexpr int64_t kMiB = 1 << 20;
  auto alone = Load(testing::SkipModel(), folder, {.policy = "none"});
  auto staged = Load(testing::SkipModel(), folder, {.policy = "staged", .stages = 2},
                     {.workers = 1, .memory_budget = 2 * kMiB, .autotune = false});
  ASSERT_TRUE(alone.ok() && staged.ok()) << staged.status();
  const InferRequest fits = AskSkipModel(20, random);
  const auto want = (*alone)->Infer(fits), got = (*staged)->Infer(fits);
  ASSERT_TRUE(want.ok() && got.ok()) << got.status();
  ExpectClose(*got, *want);
  const Status refused = (*staged)->Infer(AskSkipModel(400, random)).status();
  EXPECT_TRUE(absl::IsOutOfRange(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("400 rows leave between stages"), HasSubstr("--memory-budget")));
  EXPECT_TRUE((*staged)->Infer(fits).ok());  // what it took was given back
}

TEST(StagedProgramTest, OutputsMayBeChosen) {
  const TempFolder folder;
  std::mt19937 random(3);
  auto engine = Load(testing::SkipModel(), folder, {.policy = "staged", .stages = 3});
  ASSERT_TRUE(engine.ok()) << engine.status();
  InferRequest request = AskSkipModel(2, random);
  request.outputs = {"scores"};
  const auto got = (*engine)->Infer(request);
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_EQ(got->outputs.size(), 1u);
  EXPECT_EQ(got->outputs[0].name, "scores");
  EXPECT_EQ(got->outputs[0].tensor.shape(), (Shape{2, 7}));
}

TEST(StagedProgramTest, TheModelSaysWhatItsStagesAre) {
  const TempFolder folder;
  auto engine = Load(testing::SkipModel(), folder, {.stages = 3});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const StatusOr<ModelMetadata> metadata = (*engine)->Metadata("model");
  ASSERT_TRUE(metadata.ok());
  EXPECT_EQ(metadata->cells.size(), 3u);
  EXPECT_EQ(metadata->programs.back().kind, "staged");
  EXPECT_EQ(metadata->diagnosis, "cut into 3 stages; staged policy, up to 32 rows");
}

TEST(StagedProgramTest, WithoutASettingAModelIsServedAsAWhole) {
  const TempFolder folder;
  auto engine = Load(testing::SkipModel(), folder, {});
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ((*engine)->Metadata("model")->programs.back().kind, "whole");
}

// One node is left of it.
TEST(StagedProgramTest, AModelWithoutAPlaceToCutIsServedAsAWhole) {
  for (const ModelConfig& config :
       {ModelConfig{.policy = "staged", .latency_objective_us = 1000},
        ModelConfig{.policy = "cellular"}, ModelConfig{.stages = 3, .buffer_pairs = 3}}) {
    const TempFolder folder;
    auto engine = Load(testing::DoublingModel(), folder, config);
    ASSERT_TRUE(engine.ok()) << engine.status();
    const auto metadata = (*engine)->Metadata("model");
    EXPECT_EQ(metadata->programs.back().kind, "whole");
    EXPECT_THAT(metadata->diagnosis,
                HasSubstr("not in stages, as its settings ask: there is no place to cut it"));
    InferRequest request{.model = "model",
                         .inputs = {{"x", Tensor::Allocate(DType::kFloat, {2, 4})}}};
    std::fill_n(request.inputs[0].tensor.data<float>(), 8, 3.0f);
    const auto got = (*engine)->Infer(request);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->outputs[0].tensor.data<float>()[7], 6.0f);
  }
}

// The only worker is held while many wait, of eight rows each: all of them together take far longer
// than the last one's timeout, which is enough for that one alone.
TEST(StagedProgramTest, WhatCannotEndByItsDeadlineIsRefusedAtOnce) {
  const TempFolder folder;
  std::mt19937 random(3);
  auto engine =
      Load(testing::SkipModel(), folder, {.policy = "staged", .stages = 2}, {.workers = 1});
  ASSERT_TRUE(engine.ok()) << engine.status();
  InferRequest hopeless = AskSkipModel(8, random);
  hopeless.timeout = std::chrono::microseconds(1);
  const Status never = (*engine)->Infer(hopeless).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(never)) << never;
  EXPECT_THAT(std::string(never.message()), HasSubstr("at the least"));

  const StatusOr<ModelMetadata> metadata = (*engine)->Metadata("model");
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  Duration row(0);  // through all stages
  for (const CellBatching& cell : metadata->cells) {
    ASSERT_FALSE(cell.costs.empty()) << cell.name;
    row += cell.costs.begin()->second;
  }
  InferRequest one = AskSkipModel(8, random);
  constexpr int kAhead = 400;
  std::promise<void> is_held, release;
  std::mutex mutex;
  std::condition_variable all_answered;
  int answered = 0;
  (*engine)->InferAsync(one, [&](const StatusOr<InferResponse>& answer) {
    EXPECT_TRUE(answer.ok()) << answer.status();
    is_held.set_value();
    release.get_future().wait();
  });
  is_held.get_future().wait();
  for (int i = 0; i < kAhead; ++i) {
    (*engine)->InferAsync(one, [&](StatusOr<InferResponse> answer) {
      const std::lock_guard<std::mutex> lock(mutex);
      EXPECT_TRUE(answer.ok()) << answer.status();
      if (++answered == kAhead) all_answered.notify_one();
    });
  }
  one.timeout = std::chrono::duration_cast<std::chrono::microseconds>(16 * row);
  const Status late = (*engine)->Infer(one).status();  // while the worker is held
  release.set_value();
  {
    std::unique_lock<std::mutex> lock(mutex);
    all_answered.wait(lock, [&] { return answered == kAhead; });
  }
  engine->reset();  // no callback still uses what is above
  EXPECT_TRUE(absl::IsResourceExhausted(late)) << late;
  EXPECT_THAT(std::string(late.message()), HasSubstr("retry in"));
  const std::optional<Duration> after = RetryAfterOf(late);
  ASSERT_TRUE(after);
  EXPECT_GT(*after, Duration(0));
}

// As `chairlift run` loads a model, whatever its model.yaml says of stages.
TEST(StagedProgramTest, WhereUnusedSettingsAreDroppedStagesHaveNoEffectWithPolicyNone) {
  const TempFolder folder;
  auto engine =
      Load(testing::SkipModel(), folder,
           {.policy = "none", .stages = 3, .stage_plugin = {"gone.so"}, .drop_unused = true});
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ((*engine)->Metadata("model")->programs.back().kind, "whole");
  EXPECT_THAT((*engine)->Metadata("model")->diagnosis,
              HasSubstr("stages have no effect with policy 'none'"));
}

TEST(StagedProgramTest, WhatCannotBeStagedIsRefusedByName) {
  EXPECT_THAT(Refusal(testing::FixedModel(), {.policy = "staged"}),
              HasSubstr("policy 'staged' cannot serve this model: dimension 0 of input 'x' is "
                        "fixed to 1"));
  EXPECT_THAT(Refusal(testing::ConvModel(), {.policy = "staged"}),
              HasSubstr("input 'image' varies in dimension 2"));
  EXPECT_THAT(Refusal(testing::ConvModel(), {.stages = 2}),
              HasSubstr("stages are set, but the model cannot be cut into stages"));
  EXPECT_THAT(Refusal(testing::SkipModel(), {.policy = "window", .stages = 2}),
              HasSubstr("policy 'window' does not use them; 'staged' and 'cellular' do"));
  for (const ModelConfig& config :
       {ModelConfig{.policy = "none", .stages = 2},
        ModelConfig{.policy = "none", .stages_after = {"up"}},
        ModelConfig{.policy = "none", .exits = {{.output = "y", .at_least = 1}}},
        ModelConfig{.policy = "none", .stage_plugin = {"gone.so"}}}) {
    EXPECT_THAT(Refusal(testing::SkipModel(), config),
                HasSubstr("stages are set, but policy 'none' does not use them"));
  }
  EXPECT_THAT(Refusal(testing::SkipModel(), {.policy = "none", .buffer_pairs = 3}),
              HasSubstr("buffer_pairs is 3, but policy 'none' does not use it; 'staged' does"));
  EXPECT_THAT(Refusal(testing::SkipModel(), {.stages_after = {"conv1"}}),
              HasSubstr("'conv1' is computed within a fused operator"));
  EXPECT_THAT(Refusal(testing::SkipModel(), {.stages = 1}), HasSubstr("stages is 1; it must be"));
  EXPECT_THAT(Refusal(testing::SkipModel(), {.stages = 2, .stages_after = {"up"}}),
              HasSubstr("set one of them"));
  EXPECT_THAT(Refusal(testing::SkipModel(), {.policy = "window", .buffer_pairs = 3}),
              HasSubstr("'staged' does"));
}

// Two inputs that the first stage does nothing with but put them side by side.
TEST(StagedOracleTest, AModelThatBeginsByJoiningItsInputsIsCut) {
  ModelBuilder m(17);
  m.Input("a", kFloat, {"batch", 3}).Input("b", kFloat, {"batch", 5}).Output("t2", kFloat);
  m.Node("Concat", {"a", "b"}, {"c"}).Int("axis", 1);
  std::string last = "c";
  for (int i = 0; i < 3; ++i) {
    const std::string n = std::to_string(i);
    testing::RandomWeights(m, "w" + n, {8, 8}, static_cast<unsigned>(i));
    m.Node("MatMul", {last, "w" + n}, {"m" + n});
    last = "t" + n;
    m.Node("Tanh", {"m" + n}, {last});
  }
  std::mt19937 random(5);
  const InferRequest request{.model = "model",
                             .inputs = {{"a", RandomTensor(Shape{2, 3}, random)},
                                        {"b", RandomTensor(Shape{2, 5}, random)}}};
  const TempFolder folder;
  auto alone = Load(m, folder, {.policy = "none"});
  ASSERT_TRUE(alone.ok()) << alone.status();
  const StatusOr<InferResponse> want = (*alone)->Infer(request);
  ASSERT_TRUE(want.ok()) << want.status();
  for (const ModelConfig& config :
       {ModelConfig{.policy = "staged"}, ModelConfig{.stages_after = {"t0"}}}) {
    auto engine = Load(m, folder, config);
    ASSERT_TRUE(engine.ok()) << engine.status();
    const StatusOr<InferResponse> got = (*engine)->Infer(request);
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectClose(*got, *want);
  }
}

}  // namespace staged_oracle_test
}  // namespace chairlift
