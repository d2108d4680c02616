// Encoders as exporters write them, served on packed tokens: every answer equals the one that the
// padded model gives the request alone, whoever rides beside it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <random>
#include <thread>

#include "chairlift/engine.h"

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

class RaggedOracleTest : public ::testing::TestWithParam<const char*> {};

TEST_P(RaggedOracleTest, EveryAnswerIsTheOneAlone) {
  const auto alone = Load(GetParam(), {.policy = "none"});
  const auto engine = Load(GetParam(), {.max_batch_tokens = 100});
  ASSERT_TRUE(alone.ok() && engine.ok()) << alone.status() << engine.status();
  const StatusOr<ModelMetadata> metadata = (*engine)->Metadata("encoder");
  ASSERT_TRUE(metadata.ok());
  ASSERT_EQ(metadata->config.policy, "tokens") << metadata->diagnosis;
  std::mt19937 random(11);
  std::vector<Asked> asked(40);
  for (Asked& a : asked) {
    a.request = RandomRequest(*metadata, random);
    a.alone = (*alone)->Infer(a.request);
    ASSERT_TRUE(a.alone.ok()) << a.alone.status();
  }
  std::mutex mutex;
  int shared = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 own(t);
      for (int i = 0; i < 60; ++i) {
        const Asked& a = asked[own() % asked.size()];
        const StatusOr<InferResponse> got = (*engine)->Infer(a.request);
        const std::lock_guard<std::mutex> lock(mutex);
        ASSERT_TRUE(got.ok()) << got.status();
        ASSERT_EQ(got->outputs.size(), a.alone->outputs.size());
        for (size_t o = 0; o < got->outputs.size(); ++o) {
          EXPECT_EQ(got->outputs[o].name, a.alone->outputs[o].name);
          ExpectClose(got->outputs[o].tensor, a.alone->outputs[o].tensor);
        }
        shared += got->batch_rows > a.request.inputs[0].tensor.shape()[0];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(shared, 0) << "no request had company";
}

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

}  // namespace
}  // namespace chairlift
