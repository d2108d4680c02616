// Models that draw random numbers: an answer follows from the request and its seed alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chairlift/engine.h"
#include "engine/test_models.h"

namespace chairlift {
namespace {

using ::testing::HasSubstr;
using testing::kFloat;
using testing::kInt64;
using testing::ModelBuilder;
using testing::TempFolder;
using testing::WriteFile;

// y = x + noise like x.
ModelBuilder Noisy(const testing::DeclaredDim& batch = std::string("batch")) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {batch, "length"}).Output("y", kFloat, {batch, "length"});
  m.Node("RandomNormalLike", {"x"}, {"noise"});
  m.Node("Add", {"x", "noise"}, {"y"});
  return m;
}

class RandomModelsTest : public ::testing::Test {
 protected:
  void Load(const ModelBuilder& model, const ModelConfig& config = {}) {
    engine_ = *Engine::Create({.workers = 2});
    const Status loaded =
        engine_->LoadModel("m", WriteFile(folder_ / "m.onnx", model.Bytes()), config);
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
  static InferRequest Ask(std::optional<int64_t> seed, Shape shape = {1, 6}, float value = 0) {
    InferRequest request;
    request.model = "m";
    request.seed = seed;
    Tensor x = Tensor::Allocate(DType::kFloat, shape);
    std::fill_n(x.data<float>(), x.size(), value);
    request.inputs = {{"x", x}};
    return request;
  }
  static std::vector<float> Values(const StatusOr<InferResponse>& response) {
    EXPECT_TRUE(response.ok()) << response.status();
    if (!response.ok()) return {};
    const auto values = response->outputs.at(0).tensor.values<float>();
    return {values.begin(), values.end()};
  }
  std::vector<float> Infer(InferRequest request) {
    return Values(engine_->Infer(std::move(request)));
  }
  // All at once; the rows of the largest batch.
  int InferTogether(const std::vector<InferRequest>& requests,
                    std::vector<std::vector<float>>* answers) {
    std::vector<std::future<StatusOr<InferResponse>>> futures;
    for (const InferRequest& request : requests) {
      auto promise = std::make_shared<std::promise<StatusOr<InferResponse>>>();
      futures.push_back(promise->get_future());
      engine_->InferAsync(request, [promise](StatusOr<InferResponse> response) {
        promise->set_value(std::move(response));
      });
    }
    int most = 0;
    for (auto& future : futures) {
      const StatusOr<InferResponse> response = future.get();
      answers->push_back(Values(response));
      if (response.ok()) most = std::max(most, response->batch_rows);
    }
    return most;
  }

  TempFolder folder_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(RandomModelsTest, TheSameSeedGivesTheSameAnswerInAnyBatch) {
  Load(Noisy(), {.max_batch_size = 16, .queue_delay_us = 30'000'000});
  ASSERT_TRUE(engine_->Metadata("m")->batches) << engine_->Metadata("m")->diagnosis;
  // Four requests of four rows fill a batch, which then starts.
  const auto four = [](int64_t seed) { return Ask(seed, {4, 6}); };
  std::vector<std::vector<float>> first, second;
  EXPECT_EQ(InferTogether({four(1), four(2), four(3), four(4)}, &first), 16);
  EXPECT_EQ(InferTogether({four(9), four(4), four(1), four(2)}, &second), 16);
  EXPECT_EQ(first[0], second[2]);
  EXPECT_EQ(first[1], second[3]);
  EXPECT_EQ(first[3], second[1]);
  EXPECT_NE(first[0], first[1]);

  Load(Noisy(), {.policy = "none"});
  EXPECT_EQ(Infer(four(1)), first[0]);
  EXPECT_EQ(Infer(four(2)), first[1]);
  // A row has the number that it has in its request.
  const std::vector<float> one = Infer(Ask(1));
  EXPECT_EQ(one, std::vector<float>(first[0].begin(), first[0].begin() + 6));
  EXPECT_NE(one, std::vector<float>(first[0].begin() + 6, first[0].begin() + 12));
}

TEST_F(RandomModelsTest, WithoutASeedAnswersDiffer) {
  Load(Noisy());
  EXPECT_NE(Infer(Ask({})), Infer(Ask({})));
  EXPECT_NE(Infer(Ask(1)), Infer(Ask(2)));
  EXPECT_EQ(Infer(Ask(-1)), Infer(Ask(-1)));
}

TEST_F(RandomModelsTest, ASeedOfTheNodeHoldsUnlessARequestHasOne) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", "length"}).Output("y");
  m.Node("RandomNormalLike", {"x"}, {"noise"}).Float("seed", 4);
  m.Node("Add", {"x", "noise"}, {"y"});
  Load(m);
  EXPECT_EQ(Infer(Ask({})), Infer(Ask({})));
  EXPECT_NE(Infer(Ask({})), Infer(Ask(1)));
  EXPECT_NE(Infer(Ask(2)), Infer(Ask(1)));
}

TEST_F(RandomModelsTest, TheSeedsAreNotAnInputOfClients) {
  Load(Noisy());
  const ModelMetadata metadata = *engine_->Metadata("m");
  ASSERT_EQ(metadata.inputs.size(), 1u);
  EXPECT_EQ(metadata.inputs[0].name, "x");
  InferRequest request = Ask(1);
  request.inputs.push_back({"seeds", Tensor::Of<int64_t>({1, 3}, {1, 2, 3})});
  EXPECT_THAT(std::string(engine_->Infer(request).status().message()),
              HasSubstr("filled by the server"));
}

TEST_F(RandomModelsTest, ASeedMayBeGivenLikeAnInput) {
  Load(Noisy());
  const auto with = [](Tensor seed, std::optional<int64_t> field = {}) {
    InferRequest request = Ask(field);
    request.inputs.push_back({"seed", std::move(seed)});
    return request;
  };
  const std::vector<float> expected = Infer(Ask(7));
  EXPECT_EQ(Infer(with(Tensor::Scalar<int64_t>(7))), expected);
  EXPECT_EQ(Infer(with(Tensor::Of<int32_t>({1}, {7}), 7)), expected);
  EXPECT_THAT(std::string(engine_->Infer(with(Tensor::Scalar<int64_t>(7), 8)).status().message()),
              HasSubstr("give one of them"));
  EXPECT_THAT(std::string(engine_->Infer(with(Tensor::Scalar(7.0f))).status().message()),
              HasSubstr("one number of type int64"));
}

// The model's own input of that name is an input as any other.
TEST_F(RandomModelsTest, AnInputOfTheModelMayBeCalledSeed) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", "length"}).Input("seed", kFloat, {"batch", 1}).Output("y");
  m.Node("RandomNormalLike", {"x"}, {"noise"});
  m.Node("Add", {"seed", "noise"}, {"y"});
  Load(m);
  const auto ask = [](float value) {
    InferRequest request = Ask(3);
    request.inputs.push_back({"seed", Tensor::Of<float>({1, 1}, {value})});
    return request;
  };
  const std::vector<float> at_zero = Infer(ask(0)), at_ten = Infer(ask(10));
  EXPECT_NEAR(at_ten[0] - at_zero[0], 10, 1e-5);
}

TEST_F(RandomModelsTest, OfAFixedShapeRunAloneAndSaySo) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", 6}).Output("y", kFloat, {"batch", 6});
  m.Node("RandomNormal", {}, {"noise"}).Ints("shape", {1, 6});
  m.Node("Add", {"x", "noise"}, {"y"});
  Load(m);
  const ModelMetadata metadata = *engine_->Metadata("m");
  EXPECT_FALSE(metadata.batches);
  EXPECT_THAT(metadata.diagnosis, HasSubstr("its shape is fixed"));
  EXPECT_EQ(Infer(Ask(1)), Infer(Ask(1)));
  EXPECT_NE(Infer(Ask(1)), Infer(Ask(2)));
}

TEST_F(RandomModelsTest, BatchesOfAFixedSizeAreAnsweredToo) {
  Load(Noisy(int64_t{2}));
  const std::vector<float> y = Infer(Ask(1, {2, 6}));
  EXPECT_EQ(y, Infer(Ask(1, {2, 6})));
  EXPECT_NE(std::vector<float>(y.begin(), y.begin() + 6),
            std::vector<float>(y.begin() + 6, y.end()));
}

TEST_F(RandomModelsTest, RefusesSeedsForAnAbsurdNumberOfRows) {
  Load(Noisy());
  EXPECT_THAT(std::string(engine_->Infer(Ask(1, {int64_t{1} << 40, 0})).status().message()),
              HasSubstr("rows; a model with random numbers takes"));
}

}  // namespace
}  // namespace chairlift
