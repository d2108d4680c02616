// Models that run as cells answer as they do whole, whichever requests join and leave.
#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <random>

#include "chairlift/engine.h"
#include "engine/engine_device.h"
#include "engine/recurrent_models.h"

namespace chairlift {
namespace cell_oracle_test {

using ::testing::HasSubstr;
using testing::ModelBuilder;
using testing::TempFolder;
using testing::WriteFile;

using Inputs = std::vector<NamedTensor>;
using MakeInputs = std::function<Inputs(std::mt19937&)>;

Tensor Floats(const Shape& shape, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  for (int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = normal(random);
  return t;
}

int64_t Draw(std::mt19937& random, int64_t first, int64_t last) {
  return std::uniform_int_distribution<int64_t>(first, last)(random);
}

InferRequest Ask(const Inputs& inputs) {
  InferRequest request;
  request.model = "model";
  request.inputs = inputs;
  return request;
}

void ExpectClose(const InferResponse& got, const InferResponse& want) {
  ASSERT_EQ(got.outputs.size(), want.outputs.size());
  for (size_t o = 0; o < got.outputs.size(); ++o) {
    const Tensor& g = got.outputs[o].tensor;
    const Tensor& w = want.outputs[o].tensor;
    EXPECT_EQ(got.outputs[o].name, want.outputs[o].name);
    ASSERT_EQ(g.shape(), w.shape()) << got.outputs[o].name;
    for (int64_t i = 0; i < g.size(); ++i) {
      ASSERT_NEAR(g.data<float>()[i], w.data<float>()[i], 5e-6) << got.outputs[o].name << " " << i;
    }
  }
}

class CellOracle {
 protected:
  void Load(const ModelBuilder& model, const std::string& policy, int workers) {
    file_ = WriteFile(folder_ / "model.onnx", model.Bytes());
    whole_ = LoadAs({.policy = "none"}, 1);
    ModelConfig config{.policy = policy, .max_batch_size = 7};
    // However slow the machine: tasks of many steps.
    if (policy != "ideal") config.time_slice_us = 1'000'000;
    cells_ = LoadAs(config, workers);
    ASSERT_NE(whole_, nullptr);
    ASSERT_NE(cells_, nullptr);
  }
  std::unique_ptr<Engine> LoadAs(ModelConfig config, int workers) {
    if (config.policy != "none") config.device = testing::EngineDevice();
    EngineOptions options;
    options.workers = workers;
    options.autotune = false;
    auto engine = Engine::Create(options);
    if (!engine.ok()) return nullptr;
    const Status loaded = (*engine)->LoadModel("model", file_, config);
    EXPECT_TRUE(loaded.ok()) << loaded;
    return loaded.ok() ? *std::move(engine) : nullptr;
  }

  // Everything alone and whole, then all at once as cells, some of it cancelled on the way.
  void Check(const MakeInputs& make) {
    std::mt19937 random(11);
    std::vector<Inputs> asked;
    std::vector<InferResponse> alone;
    for (int i = 0; i < 80; ++i) {
      asked.push_back(make(random));
      const StatusOr<InferResponse> answer = whole_->Infer(Ask(asked.back()));
      ASSERT_TRUE(answer.ok()) << answer.status();
      alone.push_back(*answer);
    }
    std::mutex mutex;
    std::condition_variable told;
    size_t answered = 0;
    int cancelled = 0;
    int widest = 0;
    cells_->StartTrace();
    for (size_t i = 0; i < asked.size(); ++i) {
      const RequestId id =
          cells_->InferAsync(Ask(asked[i]), [&, i](StatusOr<InferResponse> answer) {
            const std::lock_guard<std::mutex> lock(mutex);
            if (answer.ok()) {
              ExpectClose(*answer, alone[i]);
              widest = std::max(widest, answer->batch_rows);
            } else {
              EXPECT_TRUE(absl::IsCancelled(answer.status())) << answer.status();
              ++cancelled;
            }
            ++answered;
            told.notify_one();
          });
      if (i % 5 == 3) cells_->Cancel(id);
    }
    std::unique_lock<std::mutex> lock(mutex);
    told.wait(lock, [&] { return answered == asked.size(); });
    EXPECT_GT(widest, 1);
    EXPECT_LE(cancelled, 16);
    const std::string trace = cells_->StopTrace().json;
    bool several = false;
    const std::string steps = "\"steps\":";
    for (size_t at = trace.find(steps); at != std::string::npos; at = trace.find(steps, at + 1)) {
      several |= trace.compare(at + steps.size(), 2, "1,") != 0;
    }
    EXPECT_EQ(several, cells_->Metadata("model")->config.policy != "ideal");
  }

  TempFolder folder_;
  std::string file_;
  std::unique_ptr<Engine> whole_, cells_;
};

Tensor Lengths(int64_t batch, int64_t most, std::mt19937& random, int64_t least = 1) {
  Tensor lengths = Tensor::Allocate(DType::kInt32, {batch});
  for (int64_t b = 0; b < batch; ++b) {
    lengths.data<int32_t>()[b] = static_cast<int32_t>(Draw(random, least, most));
  }
  return lengths;
}

class CellOracleTest : public CellOracle, public ::testing::TestWithParam<const char*> {};

TEST_P(CellOracleTest, TokensToAClass) {
  Load(testing::TokenClassifier(), GetParam(), 2);
  EXPECT_NE(cells_->Metadata("model")->diagnosis.find("cells"), std::string::npos)
      << cells_->Metadata("model")->diagnosis;
  Check([](std::mt19937& random) -> Inputs {
    const Shape shape{Draw(random, 1, 3), Draw(random, 1, 20)};
    Tensor tokens = Tensor::Allocate(DType::kInt64, shape);
    for (int64_t i = 0; i < tokens.size(); ++i) tokens.data<int64_t>()[i] = Draw(random, 0, 10);
    return {{"x", tokens}};
  });
}

TEST_P(CellOracleTest, ARequestAloneIsOneExecution) {
  Load(testing::Tagger(), GetParam(), 2);
  for (int i = 1; i <= 5; ++i) {
    const Tensor x = Tensor::Allocate(DType::kFloat, {1, 3 * i, testing::kRecurrentFeatures});
    ASSERT_TRUE(cells_->Infer(Ask({{"x", x}})).ok());
    const ModelStatistics statistics = (*cells_->Statistics("model"))[0];
    EXPECT_EQ(statistics.execution_count, static_cast<uint64_t>(i));
    EXPECT_EQ(statistics.inference_count, static_cast<uint64_t>(i));
  }
}

TEST_P(CellOracleTest, BothDirectionsAndEveryStep) {
  Load(testing::Tagger(), GetParam(), 2);
  Check([](std::mt19937& random) -> Inputs {
    return {{"x", Floats({Draw(random, 1, 3), Draw(random, 1, 40), testing::kRecurrentFeatures},
                         random)}};
  });
}

TEST_P(CellOracleTest, InitialStatesAndAMeanOverTime) {
  Load(testing::MeanOverTime(), GetParam(), 2);
  Check([](std::mt19937& random) -> Inputs {
    const int64_t batch = Draw(random, 1, 3);
    return {{"x", Floats({Draw(random, 1, 20), batch, testing::kRecurrentFeatures}, random)},
            {"h0", Floats({1, batch, 9}, random)}};
  });
}

TEST_P(CellOracleTest, LengthsThatAConvolutionTells) {
  Load(testing::ConvolutionInFront(), GetParam(), 2);
  Check([](std::mt19937& random) -> Inputs {
    return {{"x", Floats({Draw(random, 1, 3), testing::kRecurrentFeatures, Draw(random, 1, 30)},
                         random)}};
  });
}

TEST_P(CellOracleTest, RowsOfTheirOwnLengths) {
  Load(testing::OwnLengths(), GetParam(), 2);
  Check([](std::mt19937& random) -> Inputs {
    const int64_t batch = Draw(random, 1, 4);
    const int64_t time = Draw(random, 1, 20);
    return {{"x", Floats({time, batch, testing::kRecurrentFeatures}, random)},
            {"lengths", Lengths(batch, time, random)}};
  });
}

// One without steps leaves zeros, not its states.
TEST_P(CellOracleTest, RowsOfTheirOwnLengthsFromStates) {
  Load(testing::OwnLengthsFromStates(), GetParam(), 2);
  Check([](std::mt19937& random) -> Inputs {
    const int64_t batch = Draw(random, 1, 4);
    const int64_t time = Draw(random, 0, 6);
    return {{"x", Floats({time, batch, testing::kRecurrentFeatures}, random)},
            {"lengths", Lengths(batch, time, random, 0)},
            {"h0", Floats({2, batch, 5}, random)},
            {"c0", Floats({2, batch, 5}, random)}};
  });
}

// What a convolution reads whole was computed in pieces of many tokens.
TEST_P(CellOracleTest, ALongTextBehindAConvolution) {
  Load(testing::ConvolutionBehindAnEmbedding(), GetParam(), 2);
  Check([](std::mt19937& random) -> Inputs {
    Tensor tokens = Tensor::Allocate(DType::kInt64, {Draw(random, 1, 2), Draw(random, 200, 600)});
    for (int64_t i = 0; i < tokens.size(); ++i) tokens.data<int64_t>()[i] = Draw(random, 0, 10);
    return {{"x", tokens}};
  });
}

TEST_P(CellOracleTest, WhatIsReadWholeAndStepByStep) {
  Load(testing::ResidualAndMean(), GetParam(), 2);
  Check([](std::mt19937& random) -> Inputs {
    return {{"x", Floats({Draw(random, 1, 40), Draw(random, 1, 3), testing::kRecurrentFeatures},
                         random)}};
  });
}

TEST_P(CellOracleTest, RowsOfLengthsThatAreConverted) {
  Load(testing::OwnLengths(onnx::TensorProto::INT64), GetParam(), 2);
  Check([](std::mt19937& random) -> Inputs {
    const int64_t batch = Draw(random, 1, 4);
    const int64_t time = Draw(random, 1, 20);
    Tensor lengths = Tensor::Allocate(DType::kInt64, {batch});
    for (int64_t b = 0; b < batch; ++b) lengths.data<int64_t>()[b] = Draw(random, 1, time);
    return {{"x", Floats({time, batch, testing::kRecurrentFeatures}, random)},
            {"lengths", lengths}};
  });
}

TEST_P(CellOracleTest, RowsOfTheirOwnLengthsBehindAConvolution) {
  Load(testing::OwnLengthsBehindAConvolution(), GetParam(), 2);
  Check([](std::mt19937& random) -> Inputs {
    const int64_t batch = Draw(random, 1, 4);
    const int64_t time = Draw(random, 2, 30);
    return {{"x", Floats({batch, testing::kRecurrentFeatures, time}, random)},
            {"lengths", Lengths(batch, time / 2, random)}};
  });
}

TEST_P(CellOracleTest, RowsOfTheirOwnLengthsOfFixedSteps) {
  Load(testing::OwnLengthsOfFixedSteps(), GetParam(), 2);
  Check([](std::mt19937& random) -> Inputs {
    const int64_t batch = Draw(random, 1, 4);
    return {{"x", Floats({batch, 12, testing::kRecurrentFeatures}, random)},
            {"lengths", Lengths(batch, 12, random)}};
  });
}

TEST_P(CellOracleTest, AScanWithAValueOfTheRowBesideEveryStep) {
  Load(testing::ScanOfACell(), GetParam(), 2);
  EXPECT_NE(cells_->Metadata("model")->diagnosis.find("cells"), std::string::npos)
      << cells_->Metadata("model")->diagnosis;
  Check([](std::mt19937& random) -> Inputs {
    const int64_t batch = Draw(random, 1, 3);
    return {{"x", Floats({batch, Draw(random, 1, 20), testing::kRecurrentFeatures}, random)},
            {"style", Floats({batch, 7}, random)}};
  });
}

TEST_P(CellOracleTest, ALoopOverTime) {
  Load(testing::LoopOverTime(), GetParam(), 2);
  EXPECT_NE(cells_->Metadata("model")->diagnosis.find("cells"), std::string::npos)
      << cells_->Metadata("model")->diagnosis;
  Check([](std::mt19937& random) -> Inputs {
    const int64_t batch = Draw(random, 1, 3);
    return {{"x", Floats({Draw(random, 1, 20), batch, testing::kRecurrentFeatures}, random)},
            {"h0", Floats({batch, testing::kRecurrentFeatures}, random)}};
  });
}

INSTANTIATE_TEST_SUITE_P(Policies, CellOracleTest,
                         ::testing::Values("cellular", "bucketed", "graph_merge", "ideal"));

// Their graphs are made ready before the engine's lock is taken.
TEST_P(CellOracleTest, SequencesOfAThousandSteps) {
  Load(testing::TokenClassifier(), GetParam(), 2);
  Check([](std::mt19937& random) -> Inputs {
    const Shape shape{1, Draw(random, 500, 700)};
    Tensor tokens = Tensor::Allocate(DType::kInt64, shape);
    for (int64_t i = 0; i < tokens.size(); ++i) tokens.data<int64_t>()[i] = Draw(random, 0, 10);
    return {{"x", tokens}};
  });
}

// The table takes 11 rows of 4 · 8 floats.
TEST_P(CellOracleTest, AnEmbeddingFoldedIntoItsProjection) {
  Load(testing::TokenClassifier(), GetParam(), 2);
  ModelConfig config{.policy = GetParam(), .max_folded_embedding_bytes = 1408};
  if (config.policy != "ideal") config.time_slice_us = 1'000'000;
  cells_ = LoadAs(config, 2);
  const auto cost = [this] { return cells_->Metadata("model")->diagnosis; };
  EXPECT_THAT(cost(), HasSubstr("folded into the product after it: 1408 bytes in place of 264"));
  Check([](std::mt19937& random) -> Inputs {
    const Shape shape{Draw(random, 1, 3), Draw(random, 1, 20)};
    Tensor tokens = Tensor::Allocate(DType::kInt64, shape);
    for (int64_t i = 0; i < tokens.size(); ++i) tokens.data<int64_t>()[i] = Draw(random, 0, 10);
    return {{"x", tokens}};
  });
  cells_ = LoadAs({.policy = GetParam(), .max_folded_embedding_bytes = 1407}, 2);
  EXPECT_THAT(cost(), HasSubstr("stays: "));
}

class CellEngineTest : public CellOracleTest {};

// One request's bad data fails it alone, in the middle of a batch.
TEST_P(CellEngineTest, FailsOnlyTheRequestThatIsWrong) {
  Load(testing::TokenClassifier(), GetParam(), 1);
  std::mutex mutex;
  std::condition_variable told;
  int good = 0, bad = 0;
  for (int i = 0; i < 20; ++i) {
    const bool wrong = i % 4 == 1;
    const Tensor tokens = Tensor::Of<int64_t>(Shape{1, 3}, {1, wrong ? int64_t{99} : 2, 3});
    cells_->InferAsync(Ask({{"x", tokens}}), [&, wrong](const StatusOr<InferResponse>& answer) {
      const std::lock_guard<std::mutex> lock(mutex);
      EXPECT_EQ(answer.ok(), !wrong) << answer.status();
      ++(wrong ? bad : good);
      told.notify_one();
    });
  }
  std::unique_lock<std::mutex> lock(mutex);
  told.wait(lock, [&] { return good + bad == 20; });
  EXPECT_EQ(bad, 5);
}

TEST_P(CellEngineTest, SequencesOfNoLength) {
  Load(testing::Tagger(), GetParam(), 1);
  const auto answer = cells_->Infer(
      Ask({{"x", Tensor::Allocate(DType::kFloat, {2, 0, testing::kRecurrentFeatures})}}));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->outputs[0].tensor.shape(), (Shape{2, 0, 4}));
  EXPECT_EQ(answer->outputs[1].tensor.shape(), (Shape{2, 2, 5}));
  for (float v : answer->outputs[1].tensor.values<float>()) EXPECT_EQ(v, 0.0f);
}

TEST_P(CellEngineTest, RefusesSequencesThatAreTooLong) {
  Load(testing::TokenClassifier(), GetParam(), 1);
  const auto answer = cells_->Infer(Ask({{"x", Tensor::Allocate(DType::kInt64, {300, 1000})}}));
  EXPECT_TRUE(absl::IsInvalidArgument(answer.status())) << answer.status();
  EXPECT_NE(answer.status().message().find("300 sequences of 1000"), std::string::npos);
}

TEST_P(CellEngineTest, ShutsDownWhileRequestsRun) {
  Load(testing::TokenClassifier(), GetParam(), 2);
  std::atomic<int> told{0};
  Tensor tokens = Tensor::Allocate(DType::kInt64, {1, 2000});
  std::fill_n(tokens.data<int64_t>(), tokens.size(), 1);
  for (int i = 0; i < 10; ++i) {
    cells_->InferAsync(Ask({{"x", tokens}}), [&](const StatusOr<InferResponse>& answer) {
      EXPECT_TRUE(answer.ok() || absl::IsUnavailable(answer.status())) << answer.status();
      ++told;
    });
  }
  cells_->Shutdown(std::chrono::milliseconds(0));
  EXPECT_EQ(told, 10);
}

INSTANTIATE_TEST_SUITE_P(Policies, CellEngineTest,
                         ::testing::Values("cellular", "bucketed", "graph_merge", "ideal"));

// The baselines cannot stop what they began.
class CellularTest : public CellOracle, public ::testing::Test {};

TEST_F(CellularTest, LeavesAtItsDeadlineInTheMiddle) {
  Load(testing::TokenClassifier(), "cellular", 1);
  Tensor tokens = Tensor::Allocate(DType::kInt64, {1, 50'000});
  std::fill_n(tokens.data<int64_t>(), tokens.size(), 1);
  InferRequest request = Ask({{"x", tokens}});
  request.timeout = std::chrono::milliseconds(20);
  const auto answer = cells_->Infer(std::move(request));
  EXPECT_TRUE(absl::IsDeadlineExceeded(answer.status())) << answer.status();
  // And leaves nothing behind.
  EXPECT_TRUE(cells_->Infer(Ask({{"x", Tensor::Of<int64_t>(Shape{1, 2}, {1, 2})}})).ok());
}

}  // namespace cell_oracle_test
}  // namespace chairlift
