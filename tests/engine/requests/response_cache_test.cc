// The response cache by itself, and in front of an engine.
#include "engine/requests/response_cache.h"

#include <gmock/gmock.h>

#include <cstring>
#include <string>
#include <vector>

#include "chairlift/text.h"
#include "engine/test_models.h"

namespace chairlift {
namespace {

using ::testing::HasSubstr;
using testing::kFloat;
using testing::ModelBuilder;
using testing::TempFolder;
using testing::WriteFile;

ValidatedRequest Request(std::initializer_list<float> x, std::vector<int> outputs = {0}) {
  ValidatedRequest request;
  request.inputs = {Tensor::Of<float>({static_cast<int64_t>(x.size())}, x)};
  request.outputs = std::move(outputs);
  return request;
}

ResponseCache::Key Key(std::initializer_list<float> x, std::vector<int> outputs = {0}) {
  return ResponseCache::KeyOf(Request(x, std::move(outputs)));
}

std::vector<NamedTensor> Answer(float y) { return {{"y", Tensor::Of<float>({1}, {y})}}; }

// What is kept for this key, or −1.
float Kept(ResponseCache& cache, const ResponseCache::Key& key) {
  const auto outputs = cache.Find(key);
  if (!outputs) return -1;
  EXPECT_EQ(outputs->size(), 1u);
  EXPECT_EQ((*outputs)[0].name, "y");
  return (*outputs)[0].tensor.data<float>()[0];
}

TEST(ResponseCacheTest, FindsWhatWasAskedBefore) {
  ResponseCache cache(1 << 20);
  EXPECT_EQ(Kept(cache, Key({1, 2})), -1);
  cache.Insert(Key({1, 2}), Answer(7));
  cache.Insert(Key({1, 3}), Answer(8));
  EXPECT_EQ(Kept(cache, Key({1, 2})), 7);
  EXPECT_EQ(Kept(cache, Key({1, 3})), 8);
  cache.Insert(Key({1, 2}), Answer(9));
  EXPECT_EQ(Kept(cache, Key({1, 2})), 9);
}

TEST(ResponseCacheTest, TellsBytesShapesTypesAndWantedOutputsApart) {
  ResponseCache cache(1 << 20);
  cache.Insert(Key({0, 2}), Answer(7));
  EXPECT_EQ(Kept(cache, Key({-0.0f, 2})), -1);
  EXPECT_EQ(Kept(cache, Key({0, 2}, {1})), -1);
  EXPECT_EQ(Kept(cache, Key({0, 2}, {0, 1})), -1);
  ValidatedRequest other = Request({0, 2});
  other.inputs[0] = other.inputs[0].Reshaped({2, 1});
  EXPECT_EQ(Kept(cache, ResponseCache::KeyOf(other)), -1);
  other.inputs[0] = Tensor::Allocate(DType::kInt32, {2});
  std::memcpy(other.inputs[0].raw(), Request({0, 2}).inputs[0].raw(), 8);
  EXPECT_EQ(Kept(cache, ResponseCache::KeyOf(other)), -1);
}

TEST(ResponseCacheTest, TheSameDigestIsNotEnough) {
  ResponseCache cache(1 << 20);
  ResponseCache::Key a = Key({1});
  ResponseCache::Key b = Key({2});
  b.digest = a.digest;
  cache.Insert(a, Answer(7));
  EXPECT_EQ(Kept(cache, b), -1);
  EXPECT_EQ(Kept(cache, a), 7);
  cache.Insert(b, Answer(8));
  EXPECT_EQ(Kept(cache, b), 8);
  EXPECT_EQ(Kept(cache, a), -1);
  EXPECT_LT(cache.bytes(), 2000);  // one entry
}

TEST(ResponseCacheTest, WhoeverWritesHisTensorsChangesNothing) {
  ResponseCache cache(1 << 20);
  ValidatedRequest request = Request({1, 2});
  std::vector<NamedTensor> answer = Answer(7);
  cache.Insert(ResponseCache::KeyOf(request), answer);
  request.inputs[0].data<float>()[0] = 5;
  answer[0].tensor.data<float>()[0] = 6;
  (*cache.Find(Key({1, 2})))[0].tensor.data<float>()[0] = 8;
  EXPECT_EQ(Kept(cache, Key({1, 2})), 7);
}

TEST(ResponseCacheTest, KeepsToItsBytesAndForgetsTheLeastWanted) {
  const auto large = [](float y) {
    std::vector<float> values(1000, y);
    return std::vector<NamedTensor>{
        {"y", Tensor::Of<float>({1000}, std::span<const float>(values))}};
  };
  ResponseCache cache(12'000);
  cache.Insert(Key({1}), large(1));
  cache.Insert(Key({2}), large(2));
  EXPECT_EQ(Kept(cache, Key({1})), 1);
  cache.Insert(Key({3}), large(3));
  EXPECT_EQ(Kept(cache, Key({2})), -1);
  EXPECT_EQ(Kept(cache, Key({1})), 1);
  EXPECT_EQ(Kept(cache, Key({3})), 3);
  for (float x = 10; x < 100; ++x) {
    cache.Insert(Key({x}), large(x));
    EXPECT_LE(cache.bytes(), 12'000);
    EXPECT_EQ(Kept(cache, Key({x})), x);
  }
}

// A short text takes several times its characters.
TEST(ResponseCacheTest, CountsWhatTextsTakeBesidesTheirCharacters) {
  ResponseCache cache(1 << 20);
  constexpr int64_t kTexts = 1000;
  const std::vector<std::string> texts(kTexts, "sixteen letters.");
  cache.Insert(Key({1}), {{"y", TextTensor({kTexts}, texts)}});
  EXPECT_GT(cache.bytes(), kTexts * static_cast<int64_t>(sizeof(std::string) + 32));
}

TEST(ResponseCacheTest, AnAnswerLargerThanAllIsNotKept) {
  ResponseCache cache(2000);
  cache.Insert(Key({1}), Answer(1));
  std::vector<float> values(1000);
  cache.Insert(Key({2}), {{"y", Tensor::Of<float>({1000}, std::span<const float>(values))}});
  EXPECT_EQ(Kept(cache, Key({2})), -1);
  EXPECT_EQ(Kept(cache, Key({1})), 1);
}

class CachedEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.workers = 1;
    engine_ = *Engine::Create(options);
    Load(testing::DoublingModel(), {.response_cache_bytes = 1 << 20});
  }
  void Load(const ModelBuilder& model, const ModelConfig& config) {
    const std::string file = WriteFile(folder_ / "m.onnx", model.Bytes());
    const Status loaded = engine_->LoadModel("m", file, config);
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
  static InferRequest Ask(float value, const std::string& id = "") {
    InferRequest request;
    request.model = "m";
    request.id = id;
    Tensor x = Tensor::Allocate(DType::kFloat, {1, 4});
    std::fill_n(x.data<float>(), x.size(), value);
    request.inputs = {{"x", x}};
    return request;
  }
  // The first value of the answer, and whether a batch computed it.
  std::pair<float, bool> Infer(InferRequest request) {
    const std::string id = request.id;
    const auto response = engine_->Infer(std::move(request));
    EXPECT_TRUE(response.ok()) << response.status();
    if (!response.ok()) return {-1, false};
    EXPECT_EQ(response->id, id);
    EXPECT_EQ(response->model, "m");
    EXPECT_EQ(response->version, "1");
    return {response->outputs.at(0).tensor.data<float>()[0], response->batch_rows > 0};
  }
  ModelStatistics Statistics() { return (*engine_->Statistics("m"))[0]; }

  TempFolder folder_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(CachedEngineTest, ARequestThatComesAgainIsNotComputed) {
  EXPECT_EQ(Infer(Ask(3, "a")), std::pair(6.0f, true));
  EXPECT_EQ(Infer(Ask(4, "b")), std::pair(8.0f, true));
  EXPECT_EQ(Infer(Ask(3, "c")), std::pair(6.0f, false));
  const ModelStatistics statistics = Statistics();
  EXPECT_EQ(statistics.cache_hit.count, 1u);
  EXPECT_EQ(statistics.cache_miss.count, 2u);
  EXPECT_EQ(statistics.success.count, 3u);
  EXPECT_EQ(statistics.inference_count, 2u);
  EXPECT_EQ(statistics.execution_count, 2u);
}

TEST_F(CachedEngineTest, IsOffUnlessItIsAskedFor) {
  Load(testing::DoublingModel(), {});
  EXPECT_TRUE(Infer(Ask(3)).second);
  EXPECT_TRUE(Infer(Ask(3)).second);
  EXPECT_EQ(Statistics().cache_miss.count, 0u);
}

TEST_F(CachedEngineTest, AVersionThatWasReplacedAnswersNoMore) {
  EXPECT_EQ(Infer(Ask(-3)).first, 0.0f);
  ModelBuilder without_relu(17);
  without_relu.Input("x", kFloat, {"batch", 4}).Output("y", kFloat, {"batch", 4});
  without_relu.Node("Add", {"x", "x"}, {"y"});
  Load(without_relu, {.response_cache_bytes = 1 << 20});
  EXPECT_EQ(Infer(Ask(-3)), std::pair(-6.0f, true));
  EXPECT_EQ(Infer(Ask(-3)), std::pair(-6.0f, false));
  ASSERT_TRUE(engine_->UnloadModel("m").ok());
  EXPECT_EQ(engine_->Infer(Ask(-3)).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(CachedEngineTest, ClientsThatKeepOrderAndStreamsAreComputed) {
  Infer(Ask(3));
  InferRequest ordered = Ask(3);
  ordered.client = 5;
  EXPECT_TRUE(Infer(std::move(ordered)).second);
  InferRequest streamed = Ask(3);
  streamed.on_parts = [](std::span<const InferPart>) {};
  EXPECT_TRUE(Infer(std::move(streamed)).second);
  EXPECT_EQ(Statistics().cache_hit.count, 0u);
  EXPECT_FALSE(Infer(Ask(3)).second);
}

TEST_F(CachedEngineTest, RefusedRequestsAndThoseAfterShutdownAreNot) {
  InferRequest wrong = Ask(3);
  wrong.inputs[0].name = "z";
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(engine_->Infer(wrong).ok());
  EXPECT_EQ(Statistics().cache_miss.count, 0u);
  Infer(Ask(3));
  engine_->Shutdown(std::chrono::milliseconds(0));
  EXPECT_EQ(engine_->Infer(Ask(3)).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(CachedEngineTest, ANegativeSizeIsRefused) {
  const std::string file = WriteFile(folder_ / "m.onnx", testing::DoublingModel().Bytes());
  const Status refused = engine_->LoadModel("m", file, {.response_cache_bytes = -1});
  EXPECT_THAT(std::string(refused.message()), HasSubstr("response_cache_bytes is -1"));
}

}  // namespace
}  // namespace chairlift
