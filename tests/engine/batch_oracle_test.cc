// The promise that matters most: the other requests of a batch do not change a request's answer.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <random>
#include <thread>

#include "chairlift/engine.h"
#include "engine/engine_device.h"
#include "engine/test_models.h"

namespace chairlift {
namespace {

using testing::ModelBuilder;
using testing::TempFolder;
using testing::WriteFile;

Tensor RandomTensor(const Shape& shape, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  for (int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = normal(random);
  return t;
}

// A batch of another size may sum in another order: a few units in the last place of the largest.
void ExpectClose(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.shape(), want.shape());
  float largest = 0;
  for (float v : want.values<float>()) largest = std::max(largest, std::abs(v));
  for (int64_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got.data<float>()[i], want.data<float>()[i], 2e-6f * (1 + largest)) << "at " << i;
  }
}

struct BatchAsked {
  Tensor input;
  StatusOr<InferResponse> alone = absl::UnknownError("not asked");
};

StatusOr<std::unique_ptr<Engine>> Load(const ModelBuilder& model, const TempFolder& folder,
                                       ModelConfig config, int workers) {
  if (config.policy != "none") config.device = testing::EngineDevice();
  EngineOptions options;
  options.workers = workers;
  auto engine = Engine::Create(options);
  if (!engine.ok()) return engine;
  const std::string file = WriteFile(folder / "model.onnx", model.Bytes());
  const Status loaded = (*engine)->LoadModel("model", file, config);
  if (!loaded.ok()) return loaded;
  return engine;
}

InferRequest Ask(const std::string& input, const Tensor& tensor) {
  InferRequest request;
  request.model = "model";
  request.inputs = {{input, tensor}};
  return request;
}

// Asks everything alone, then everything at random from several threads, several at once, until
// some had company.
void Check(const ModelBuilder& model, const std::string& input,
           const std::function<Shape(std::mt19937&)>& shape) {
  TempFolder folder;
  std::mt19937 random(7);
  std::vector<BatchAsked> asked(60);
  auto alone = Load(model, folder, {.policy = "none"}, 1);
  ASSERT_TRUE(alone.ok()) << alone.status();
  for (BatchAsked& a : asked) {
    a.input = RandomTensor(shape(random), random);
    a.alone = (*alone)->Infer(Ask(input, a.input));
    ASSERT_TRUE(a.alone.ok()) << a.alone.status();
  }
  auto engine = Load(model, folder, {.max_batch_size = 8, .queue_delay_us = 300}, 2);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const StatusOr<ModelMetadata> metadata = (*engine)->Metadata("model");
  ASSERT_TRUE(metadata.ok());
  ASSERT_TRUE(metadata->batches) << metadata->diagnosis;

  constexpr int kThreads = 4;
  constexpr int kRequests = 150;
  std::mutex mutex;
  int shared = 0, rounds = 0;
  for (; rounds < 50 && shared == 0; ++rounds) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 own(static_cast<unsigned>(100 * (rounds + 1) + t));
        for (int i = 0; i < kRequests; ++i) {
          const BatchAsked& a = asked[own() % asked.size()];
          const StatusOr<InferResponse> got = (*engine)->Infer(Ask(input, a.input));
          const std::lock_guard<std::mutex> lock(mutex);
          ASSERT_TRUE(got.ok()) << got.status();
          ASSERT_EQ(got->outputs.size(), a.alone->outputs.size());
          for (size_t o = 0; o < got->outputs.size(); ++o) {
            EXPECT_EQ(got->outputs[o].name, a.alone->outputs[o].name);
            ExpectClose(got->outputs[o].tensor, a.alone->outputs[o].tensor);
          }
          shared += got->batch_rows > a.input.shape()[0];
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_GT(shared, 0) << "no request had company";
  const auto statistics = (*engine)->Statistics("model");
  ASSERT_TRUE(statistics.ok());
  EXPECT_EQ((*statistics)[0].success.count, static_cast<uint64_t>(rounds * kThreads * kRequests));
  EXPECT_LT((*statistics)[0].execution_count, (*statistics)[0].success.count);
}

TEST(BatchOracleTest, Mlp) {
  Check(testing::MlpModel(), "x", [](std::mt19937& random) {
    return Shape{static_cast<int64_t>(random() % 4), 24};
  });
}

TEST(BatchOracleTest, ImagesOfSeveralSizes) {
  Check(testing::ConvModel(), "image", [](std::mt19937& random) {
    const int64_t side = 6 + 3 * static_cast<int64_t>(random() % 3);
    return Shape{1 + static_cast<int64_t>(random() % 2), 3, side, side + 1};
  });
}

}  // namespace
}  // namespace chairlift
