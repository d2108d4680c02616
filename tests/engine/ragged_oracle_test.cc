// Encoders as exporters write them, served on packed tokens: every answer equals the one that the
// padded model gives the request alone, whoever rides beside it.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <random>
#include <thread>

#include "chairlift/engine.h"
#include "engine/test_models.h"

namespace chairlift {
namespace {

struct Asked {
  InferRequest request;
  StatusOr<InferResponse> alone = absl::UnknownError("not asked");
};

std::filesystem::path Encoder(const std::string& name) {
  return std::filesystem::path(CHAIRLIFT_ENCODERS) / (name + ".onnx");
}

StatusOr<std::unique_ptr<Engine>> Load(const std::string& name, const ModelConfig& config) {
  auto engine = Engine::Create({.workers = 2, .time_cells = false});
  if (!engine.ok()) return engine;
  const Status loaded = (*engine)->LoadModel("encoder", Encoder(name).string(), config);
  if (!loaded.ok()) return loaded;
  return engine;
}

// Some sequences of one length; of their tokens the mask may leave out some at either end.
InferRequest RandomRequest(const ModelMetadata& model, std::mt19937& random) {
  const auto rows = static_cast<int64_t>(1 + random() % 3);
  const auto length = static_cast<int64_t>(3 + random() % 20);
  std::vector<int64_t> mask(static_cast<size_t>(rows * length), 1);
  for (int64_t row = 0; row < rows; ++row) {
    const auto hidden = static_cast<int64_t>(random() % 3 == 0 ? random() % length : 0);
    const bool left = random() % 4 == 0;
    for (int64_t i = 0; i < hidden; ++i) {
      mask[static_cast<size_t>(row * length + (left ? i : length - 1 - i))] = 0;
    }
  }
  InferRequest request;
  request.model = "encoder";
  for (const TensorSpec& input : model.inputs) {
    Tensor t = Tensor::Allocate(DType::kInt64, {rows, length});
    for (int64_t i = 0; i < t.size(); ++i) {
      t.data<int64_t>()[i] = input.name == "attention_mask" ? mask[static_cast<size_t>(i)]
                             : input.name == "token_type_ids"
                                 ? static_cast<int64_t>(random() % 2)
                                 : static_cast<int64_t>(1 + random() % 23);
    }
    request.inputs.push_back({input.name, std::move(t)});
  }
  if (random() % 2 == 0) request.outputs = {model.outputs[random() % model.outputs.size()].name};
  return request;
}

void ExpectClose(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.shape(), want.shape());
  float largest = 0;
  for (const float v : want.values<float>()) largest = std::max(largest, std::abs(v));
  for (int64_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got.data<float>()[i], want.data<float>()[i], 1e-4f * (largest + 1e-3f))
        << "at " << i;
  }
}

// How it is served, whatever it holds.
void Check(const std::string& encoder, const ModelConfig& config) {
  const auto alone = Load(encoder, {.policy = "none"});
  const auto engine = Load(encoder, config);
  ASSERT_TRUE(alone.ok() && engine.ok()) << alone.status() << engine.status();
  const StatusOr<ModelMetadata> metadata = (*engine)->Metadata("encoder");
  ASSERT_TRUE(metadata.ok());
  ASSERT_EQ(metadata->config.policy, config.policy.empty() ? "tokens" : config.policy)
      << metadata->diagnosis;
  std::mt19937 random(11);
  std::vector<Asked> asked(40);
  for (Asked& a : asked) {
    a.request = RandomRequest(*metadata, random);
    a.alone = (*alone)->Infer(a.request);
    ASSERT_TRUE(a.alone.ok()) << a.alone.status();
  }
  // Bursts from several threads, until some had company.
  std::mutex mutex;
  std::condition_variable told;
  int shared = 0, answers = 0, wanted = 0;
  for (unsigned round = 0; round < 100 && (round < 3 || shared == 0); ++round) {
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 own(3 * round + t);
        for (int i = 0; i < 30; ++i) {
          const Asked& a = asked[own() % asked.size()];
          (*engine)->InferAsync(a.request, [&](const StatusOr<InferResponse>& got) {
            const std::lock_guard<std::mutex> lock(mutex);
            ++answers;
            told.notify_one();
            ASSERT_TRUE(got.ok()) << got.status();
            ASSERT_EQ(got->outputs.size(), a.alone->outputs.size());
            for (size_t o = 0; o < got->outputs.size(); ++o) {
              EXPECT_EQ(got->outputs[o].name, a.alone->outputs[o].name);
              ExpectClose(got->outputs[o].tensor, a.alone->outputs[o].tensor);
            }
            shared += got->batch_rows > a.request.inputs[0].tensor.shape()[0];
          });
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    wanted += 90;
    std::unique_lock<std::mutex> lock(mutex);
    ASSERT_TRUE(told.wait_for(lock, std::chrono::seconds(120), [&] { return answers == wanted; }));
  }
  EXPECT_GT(shared, 0) << "no request had company";
}

class RaggedOracleTest : public ::testing::TestWithParam<const char*> {};

TEST_P(RaggedOracleTest, OnPackedTokens) { Check(GetParam(), {.max_batch_tokens = 100}); }
TEST_P(RaggedOracleTest, NaivelyPadded) { Check(GetParam(), {.policy = "naive"}); }
TEST_P(RaggedOracleTest, PaddedByLength) { Check(GetParam(), {.policy = "length_dp"}); }

INSTANTIATE_TEST_SUITE_P(Encoders, RaggedOracleTest,
                         ::testing::Values("bert_hf4_torchscript_eager_11",
                                           "minilm_hf5_dynamo_sdpa_18",
                                           "roberta_hf5_torchscript_eager_17",
                                           "distilbert_hf5_dynamo_eager_21"));

TEST(RaggedOracleTest, WhatDoesNotFitIsRefusedByName) {
  const auto engine = Load("bert_hf4_torchscript_eager_11", {});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const StatusOr<ModelMetadata> metadata = (*engine)->Metadata("encoder");
  std::mt19937 random(1);
  InferRequest request = RandomRequest(*metadata, random);
  request.inputs[1].tensor = Tensor::Allocate(DType::kInt64, {1, 2});
  EXPECT_EQ((*engine)->Infer(request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(RaggedOracleTest, OneWrongTokenFailsItsRequestAlone) {
  const auto engine = Load("bert_hf4_torchscript_eager_11", {.max_batch_tokens = 200});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const StatusOr<ModelMetadata> metadata = (*engine)->Metadata("encoder");
  std::mt19937 random(5);
  std::mutex mutex;
  std::condition_variable told;
  int answers = 0, wanted = 0;
  for (int i = 0; i < 40; ++i) {
    InferRequest request = RandomRequest(*metadata, random);
    const bool wrong = i % 8 == 3;
    for (NamedTensor& input : request.inputs) {
      if (wrong && input.name == "input_ids") input.tensor.data<int64_t>()[0] = 1'000'000;
    }
    ++wanted;
    (*engine)->InferAsync(std::move(request), [&, wrong](const StatusOr<InferResponse>& got) {
      const std::lock_guard<std::mutex> lock(mutex);
      EXPECT_EQ(got.ok(), !wrong) << got.status();
      ++answers;
      told.notify_one();
    });
  }
  std::unique_lock<std::mutex> lock(mutex);
  ASSERT_TRUE(told.wait_for(lock, std::chrono::seconds(60), [&] { return answers == wanted; }));
}

// Σ |ids · mask| over the tokens, by an operator that the proof of packing does not know.
testing::ModelBuilder SumOfCounted(bool masked) {
  testing::ModelBuilder m(17);
  m.Input("ids", testing::kInt64, {"batch", "length"});
  m.Input("attention_mask", testing::kInt64, {"batch", "length"});
  m.Output("y", testing::kFloat, {"batch"});
  m.Node("Mul", {"ids", "attention_mask"}, {"counted"});
  m.Node("Cast", {"counted"}, {"numbers"}).Int("to", 1);
  m.Node(masked ? "Identity" : "Cos", {"numbers"}, {"terms"});  // cos 0 = 1
  m.Node("ReduceL1", {"terms"}, {"y"}).Ints("axes", {1}).Int("keepdims", 0);
  return m;
}

StatusOr<std::unique_ptr<Engine>> LoadBuilt(const testing::ModelBuilder& model,
                                            const testing::TempFolder& folder,
                                            const ModelConfig& config) {
  auto engine = Engine::Create({.workers = 2, .time_cells = false});
  if (!engine.ok()) return engine;
  const std::string file = testing::WriteFile(folder / "model.onnx", model.Bytes());
  const Status loaded = (*engine)->LoadModel("model", file, config);
  if (!loaded.ok()) return loaded;
  return engine;
}

TEST(PaddedOracleTest, AModelThatCannotRunRaggedIsTriedPadded) {
  testing::TempFolder folder;
  const auto engine = LoadBuilt(SumOfCounted(true), folder, {});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const StatusOr<ModelMetadata> metadata = (*engine)->Metadata("model");
  EXPECT_EQ(metadata->config.policy, "length_dp");
  EXPECT_THAT(metadata->diagnosis, ::testing::HasSubstr("ReduceL1"));
  std::mutex mutex;
  std::condition_variable told;
  int answers = 0, shared = 0, wanted = 0;
  while (wanted < 4000 && shared == 0) {
    for (int64_t length = 1; length <= 40; ++length) {
      const std::vector<int64_t> ids(static_cast<size_t>(length), 2);
      const std::vector<int64_t> ones(static_cast<size_t>(length), 1);
      InferRequest request;
      request.model = "model";
      request.inputs = {{"ids", Tensor::Of<int64_t>({1, length}, ids)},
                        {"attention_mask", Tensor::Of<int64_t>({1, length}, ones)}};
      (*engine)->InferAsync(std::move(request), [&, length](StatusOr<InferResponse> response) {
        const std::lock_guard<std::mutex> lock(mutex);
        ++answers;
        told.notify_one();
        ASSERT_TRUE(response.ok()) << response.status();
        EXPECT_EQ(response->outputs[0].tensor.data<float>()[0], static_cast<float>(2 * length));
        shared += response->batch_rows > 1;
      });
    }
    wanted += 40;
    std::unique_lock<std::mutex> lock(mutex);
    ASSERT_TRUE(told.wait_for(lock, std::chrono::seconds(120), [&] { return answers == wanted; }));
  }
  EXPECT_GT(shared, 0) << "no request had company";
}

TEST(PaddedOracleTest, WhereTheMaskDoesNotHidePaddingOnlyEqualLengthsShareABatch) {
  testing::TempFolder folder;
  const auto engine = LoadBuilt(SumOfCounted(false), folder, {});
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ((*engine)->Metadata("model")->config.policy, "window");
  const auto refused = LoadBuilt(SumOfCounted(false), folder, {.policy = "length_dp"});
  EXPECT_THAT(refused.status().message(), ::testing::HasSubstr("does not hide padding"));
}

}  // namespace
}  // namespace chairlift
