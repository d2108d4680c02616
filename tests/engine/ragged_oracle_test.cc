// Encoders as exporters write them, served on packed tokens: every answer equals the one that the
// padded model gives the request alone, whichever requests are batched with it.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <random>
#include <thread>

#include "chairlift/engine.h"
#include "engine/engine_device.h"
#include "engine/test_models.h"

namespace chairlift {
namespace ragged_oracle_test {

struct Asked {
  InferRequest request;
  StatusOr<InferResponse> alone = absl::UnknownError("not asked");
};

std::filesystem::path Encoder(const std::string& name) {
  return std::filesystem::path(CHAIRLIFT_ENCODERS) / (name + ".onnx");
}

StatusOr<std::unique_ptr<Engine>> Load(const std::string& name, ModelConfig config) {
  if (config.policy != "none") config.device = testing::EngineDevice();
  auto engine = Engine::Create({.workers = 2, .autotune = false});
  if (!engine.ok()) return engine;
  const Status loaded = (*engine)->LoadModel("encoder", Encoder(name).string(), config);
  if (!loaded.ok()) return loaded;
  return engine;
}

// Up to `most` sequences of one length; of their tokens the mask may leave out some at either end.
InferRequest RandomRequest(const ModelMetadata& model, unsigned most, std::mt19937& random) {
  const auto rows = static_cast<int64_t>(1 + random() % most);
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

// How it is served, whatever it holds. `rows`: of a request, at most.
void Check(const std::string& encoder, const ModelConfig& config, unsigned rows = 3) {
  const auto alone = Load(encoder, {.policy = "none"});
  const auto engine = Load(encoder, config);
  ASSERT_TRUE(alone.ok() && engine.ok()) << alone.status() << engine.status();
  const StatusOr<ModelMetadata> metadata = (*engine)->Metadata("encoder");
  ASSERT_TRUE(metadata.ok());
  ASSERT_EQ(metadata->config.policy, config.policy.empty() ? "packed" : config.policy)
      << metadata->diagnosis;
  std::mt19937 random(11);
  std::vector<Asked> asked(40);
  for (Asked& a : asked) {
    a.request = RandomRequest(*metadata, rows, random);
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
TEST_P(RaggedOracleTest, InStages) {
  Check(GetParam(), {.policy = "staged", .max_batch_tokens = 100});
}
TEST_P(RaggedOracleTest, InStagesAsCells) {
  Check(GetParam(), {.policy = "cellular", .stages = 3});
}
// Requests of more tokens than a batch takes go through the model as a whole.
TEST_P(RaggedOracleTest, InStagesAndBesideThem) {
  Check(GetParam(), {.policy = "staged", .max_batch_tokens = 30, .stages = 5, .buffer_pairs = 1});
}
TEST_P(RaggedOracleTest, NaivelyPadded) { Check(GetParam(), {.policy = "naive"}); }
TEST_P(RaggedOracleTest, PaddedByLength) { Check(GetParam(), {.policy = "length_dp"}); }
// A task takes 32 rows, or a budget of tokens that is found by measuring.
TEST_P(RaggedOracleTest, PackedInParts) { Check(GetParam(), {}, 60); }
TEST_P(RaggedOracleTest, PaddedInParts) { Check(GetParam(), {.policy = "length_dp"}, 60); }
TEST_P(RaggedOracleTest, NaivelyPaddedInParts) { Check(GetParam(), {.policy = "naive"}, 60); }

INSTANTIATE_TEST_SUITE_P(Encoders, RaggedOracleTest,
                         ::testing::Values("bert_hf4_torchscript_eager_11",
                                           "minilm_hf5_dynamo_sdpa_18",
                                           "roberta_hf5_torchscript_eager_17",
                                           "distilbert_hf5_dynamo_eager_21",
                                           "mpnet_hf5_torchscript_eager_17"));

// With the same company, none, stages give the unsliced answer bit by bit.
TEST(StagedEncoderTest, AnswersAreThoseOfTheModelUncut) {
  const std::string name = "bert_hf4_torchscript_eager_11";
  const auto uncut = Load(name, {}), staged = Load(name, {.stages = 4});
  ASSERT_TRUE(uncut.ok() && staged.ok()) << staged.status();
  const StatusOr<ModelMetadata> metadata = (*staged)->Metadata("encoder");
  ASSERT_TRUE(metadata.ok());
  EXPECT_EQ(metadata->programs.back().kind, "staged");
  EXPECT_EQ(metadata->cells.size(), 4u);
  EXPECT_EQ(metadata->diagnosis,
            "inputs vary in length; requests' tokens are packed, nothing is padded; cut "
            "into 4 stages; staged policy, up to 1024 tokens");
  std::mt19937 random(2);
  for (int i = 0; i < 12; ++i) {
    const InferRequest request = RandomRequest(*metadata, 4, random);
    const auto want = (*uncut)->Infer(request), got = (*staged)->Infer(request);
    ASSERT_TRUE(want.ok() && got.ok()) << got.status();
    ASSERT_EQ(got->outputs.size(), want->outputs.size());
    for (size_t o = 0; o < got->outputs.size(); ++o) {
      const Tensor &a = got->outputs[o].tensor, &b = want->outputs[o].tensor;
      ASSERT_EQ(a.shape(), b.shape());
      EXPECT_EQ(std::memcmp(a.raw(), b.raw(), a.byte_size()), 0);
    }
  }
}

TEST(StagedEncoderTest, WhatItCannotDoIsRefusedByName) {
  const std::string name = "bert_hf4_torchscript_eager_11";
  const auto refusal = [&](const ModelConfig& config) {
    return std::string(Load(name, config).status().message());
  };
  EXPECT_THAT(refusal({.exits = {{.output = "last_hidden_state"}}}),
              ::testing::HasSubstr("it has exits, and runs on packed tokens"));
  EXPECT_THAT(refusal({.stages_after = {"nowhere"}}),
              ::testing::HasSubstr("there is no node or tensor 'nowhere'"));
}

TEST(RaggedOracleTest, WhatDoesNotFitIsRefusedByName) {
  const auto engine = Load("bert_hf4_torchscript_eager_11", {});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const StatusOr<ModelMetadata> metadata = (*engine)->Metadata("encoder");
  std::mt19937 random(1);
  InferRequest request = RandomRequest(*metadata, 3, random);
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
    InferRequest request = RandomRequest(*metadata, 3, random);
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
                                            const ModelConfig& config,
                                            int64_t memory_budget = int64_t{1} << 40) {
  auto engine = Engine::Create({.workers = 2, .memory_budget = memory_budget, .autotune = false});
  if (!engine.ok()) return engine;
  const std::string file = testing::WriteFile(folder / "model.onnx", model.Bytes());
  const Status loaded = (*engine)->LoadModel("model", file, config);
  if (!loaded.ok()) return loaded;
  return engine;
}

// Attention in which each token sees those that the mask counts; with a window, those less than 90
// places away, which is no mask of keys.
testing::ModelBuilder Attention(bool window) {
  testing::ModelBuilder m(17);
  m.Input("ids", testing::kInt64, {"batch", "length"});
  m.Input("attention_mask", testing::kInt64, {"batch", "length"});
  m.Output("tokens", testing::kFloat, {"batch", "length", 8});
  m.Output("first", testing::kFloat, {"batch", 8});
  testing::RandomWeights(m, "table", {24, 8}, 1);
  m.Node("Gather", {"table", "ids"}, {"x"});
  const auto ints = [&](const std::string& name, std::initializer_list<int64_t> values) {
    auto* tensor = m.Tensor(name, testing::kInt64, {static_cast<int64_t>(values.size())});
    for (const int64_t v : values) tensor->add_int64_data(v);
  };
  const auto number = [&](const std::string& name, int64_t value) {
    m.Tensor(name, testing::kInt64, {})->add_int64_data(value);
  };
  ints("heads", {0, 0, 2, 4});
  ints("together", {0, 0, 8});
  ints("of_heads", {1, 2});
  ints("of_queries", {1});
  for (const std::string name : {"q", "k", "v"}) {
    testing::RandomWeights(m, name + "_weights", {8, 8}, static_cast<unsigned>(name[0]));
    m.Node("MatMul", {"x", name + "_weights"}, {name + "_flat"});
    m.Node("Reshape", {name + "_flat", "heads"}, {name + "_heads"});
    auto turn = m.Node("Transpose", {name + "_heads"}, {name});
    if (name == "k") turn.Ints("perm", {0, 2, 3, 1});
    if (name != "k") turn.Ints("perm", {0, 2, 1, 3});
  }
  number("zero", 0);
  number("one", 1);
  number("window", window ? 90 : -1);
  m.Node("Shape", {"ids"}, {"sizes"});
  m.Node("Gather", {"sizes", "one"}, {"length"}).Int("axis", 0);
  m.Node("Range", {"zero", "length", "one"}, {"keys"});
  m.Node("Unsqueeze", {"keys", "of_queries"}, {"queries"});
  m.Node("Sub", {"keys", "queries"}, {"ahead"});
  m.Node("Abs", {"ahead"}, {"apart"});
  // Every place is past −1.
  m.Node(window ? "Less" : "Greater", {window ? "apart" : "queries", "window"}, {"near"});
  m.Node("Cast", {"attention_mask"}, {"counts"}).Int("to", 9);
  m.Node("Unsqueeze", {"counts", "of_heads"}, {"counts_of_keys"});
  m.Node("And", {"near", "counts_of_keys"}, {"seen"});
  m.Tensor("nothing", testing::kFloat, {})->add_float_data(0.0f);
  m.Tensor("hidden", testing::kFloat, {})->add_float_data(-1e9f);
  m.Node("Where", {"seen", "nothing", "hidden"}, {"added"});
  m.Node("MatMul", {"q", "k"}, {"products"});
  m.Node("Add", {"products", "added"}, {"scores"});
  m.Node("Softmax", {"scores"}, {"weights"}).Int("axis", -1);
  m.Node("MatMul", {"weights", "v"}, {"mixed"});
  m.Node("Transpose", {"mixed"}, {"by_token"}).Ints("perm", {0, 2, 1, 3});
  m.Node("Reshape", {"by_token", "together"}, {"tokens"});
  m.Node("Gather", {"tokens", "zero"}, {"first"}).Int("axis", 1);
  return m;
}

// The last tokens but one in ten are of a kind of their own; `counted` of all count.
InferRequest LongRequest(int64_t rows, int64_t length, int64_t counted, int64_t mark = 1) {
  std::vector<int64_t> ids, mask;
  for (int64_t i = 0; i < rows * length; ++i) {
    const int64_t place = i % length;
    ids.push_back(place > length * 4 / 5 && place % 10 != 0 ? 23 : i * 7 % 23);
    mask.push_back(place < counted ? mark : 0);
  }
  InferRequest request;
  request.model = "model";
  request.inputs = {{"ids", Tensor::Of<int64_t>({rows, length}, ids)},
                    {"attention_mask", Tensor::Of<int64_t>({rows, length}, mask)}};
  return request;
}

// Asks everything alone, then all of it at once, twice.
void CheckLong(const testing::ModelBuilder& model, const ModelConfig& config,
               std::vector<InferRequest> requests) {
  testing::TempFolder folder;
  const auto alone = LoadBuilt(model, folder, {.policy = "none"});
  const auto engine = LoadBuilt(model, folder, config);
  ASSERT_TRUE(alone.ok() && engine.ok()) << alone.status() << engine.status();
  std::vector<Asked> asked;
  for (InferRequest& request : requests) {
    asked.push_back({.request = std::move(request)});
    asked.back().alone = (*alone)->Infer(asked.back().request);
    ASSERT_TRUE(asked.back().alone.ok()) << asked.back().alone.status();
  }
  std::mutex mutex;
  std::condition_variable told;
  size_t answers = 0;
  for (int round = 0; round < 2; ++round) {
    for (const Asked& a : asked) {
      (*engine)->InferAsync(a.request, [&](const StatusOr<InferResponse>& got) {
        const std::lock_guard<std::mutex> lock(mutex);
        ++answers;
        told.notify_one();
        ASSERT_TRUE(got.ok()) << got.status();
        for (size_t o = 0; o < 2; ++o) {
          ExpectClose(got->outputs[o].tensor, a.alone->outputs[o].tensor);
        }
      });
    }
  }
  std::unique_lock<std::mutex> lock(mutex);
  ASSERT_TRUE(
      told.wait_for(lock, std::chrono::seconds(300), [&] { return answers == 2 * asked.size(); }));
}

TEST(LongRequestTest, AMaskSpreadOverQueriesIsProvedForEveryLength) {
  CheckLong(Attention(false), {.policy = "packed", .max_batch_tokens = 20000},
            {LongRequest(1, 5, 5), LongRequest(1, 3000, 2900), LongRequest(2, 7, 4),
             LongRequest(2, 2049, 9), LongRequest(1, 40, 40)});
}

// Two products as ONNX Runtime's dynamic quantiser writes them, of tokens and then of the first
// one.
testing::ModelBuilder DynamicallyQuantized() {
  testing::ModelBuilder m(17);
  m.Input("ids", testing::kInt64, {"batch", "length"});
  m.Output("tokens", testing::kFloat, {"batch", "length", 8});
  m.Output("first", testing::kFloat, {"batch", 8});
  testing::RandomWeights(m, "table", {24, 8}, 1);
  m.Tensor("zero", testing::kInt64, {})->add_int64_data(0);
  m.Node("Gather", {"table", "ids"}, {"x"});
  const auto product = [&](const std::string& x, const std::string& y) {
    auto* weights = m.Tensor(y + "_weights", onnx::TensorProto::INT8, {8, 8});
    for (int i = 0; i < 64; ++i) weights->add_int32_data(i * 37 % 251 - 125);
    m.Tensor(y + "_weight_scale", testing::kFloat, {})->add_float_data(0.01f);
    m.Node("DynamicQuantizeLinear", {x}, {y + "_q", y + "_scale", y + "_zero"});
    m.Node("MatMulInteger", {y + "_q", y + "_weights", y + "_zero"}, {y + "_sums"});
    m.Node("Cast", {y + "_sums"}, {y + "_numbers"}).Int("to", 1);
    m.Node("Mul", {y + "_scale", y + "_weight_scale"}, {y + "_scales"});
    m.Node("Mul", {y + "_numbers", y + "_scales"}, {y});
  };
  product("x", "hidden");
  m.Node("Relu", {"hidden"}, {"positive"});
  product("positive", "tokens");
  m.Node("Gather", {"tokens", "zero"}, {"head"}).Int("axis", 1);
  product("head", "first");
  return m;
}

// Unequal requests in one batch, bit-equal to the imported model's answers for each alone. Requests
// of many rows keep one scale, so they are not divided.
void CheckDynamicScales(const ModelConfig& config) {
  testing::TempFolder folder;
  const auto alone = LoadBuilt(DynamicallyQuantized(), folder, {.policy = "none"});
  const auto engine = LoadBuilt(DynamicallyQuantized(), folder, config);
  ASSERT_TRUE(alone.ok() && engine.ok()) << alone.status() << engine.status();
  EXPECT_THAT((*engine)->Metadata("model")->diagnosis, ::testing::HasSubstr("are packed"));
  std::vector<Asked> asked(12);
  std::mt19937 random(3);
  for (size_t i = 0; i < asked.size(); ++i) {
    const auto rows = static_cast<int64_t>(i == 5 ? 70 : 1 + i % 3);
    const auto length = static_cast<int64_t>(1 + 2 * i);
    Tensor ids = Tensor::Allocate(DType::kInt64, {rows, length});
    for (int64_t k = 0; k < ids.size(); ++k) {
      ids.data<int64_t>()[k] = static_cast<int64_t>(random() % 24);
    }
    asked[i].request.model = "model";
    asked[i].request.inputs = {{"ids", std::move(ids)}};
    asked[i].alone = (*alone)->Infer(asked[i].request);
    ASSERT_TRUE(asked[i].alone.ok()) << asked[i].alone.status();
  }
  std::mutex mutex;
  std::condition_variable told;
  size_t answers = 0;
  constexpr size_t kRounds = 20;
  for (size_t round = 0; round < kRounds; ++round) {
    for (const Asked& a : asked) {
      (*engine)->InferAsync(a.request, [&](const StatusOr<InferResponse>& got) {
        const std::lock_guard<std::mutex> lock(mutex);
        ++answers;
        told.notify_one();
        ASSERT_TRUE(got.ok()) << got.status();
        for (size_t o = 0; o < 2; ++o) {
          const Tensor &have = got->outputs[o].tensor, &want = a.alone->outputs[o].tensor;
          ASSERT_EQ(have.shape(), want.shape());
          EXPECT_EQ(std::memcmp(have.raw(), want.raw(), want.byte_size()), 0);
        }
      });
    }
  }
  std::unique_lock<std::mutex> lock(mutex);
  ASSERT_TRUE(told.wait_for(lock, std::chrono::seconds(120),
                            [&] { return answers == kRounds * asked.size(); }));
}

TEST(DynamicScalesTest, PackedEachRequestHasItsOwn) {
  CheckDynamicScales({.policy = "packed", .max_batch_tokens = 300});
}
TEST(DynamicScalesTest, InStagesEachRequestHasItsOwn) {
  CheckDynamicScales({.policy = "staged", .max_batch_tokens = 300, .stages = 2});
}

// The model that is padded has one scale for its batch.
TEST(DynamicScalesTest, WithoutPackingTheyAreNotPadded) {
  testing::ModelBuilder m(17);
  m.Input("ids", testing::kInt64, {"batch", "length"});
  m.Input("attention_mask", testing::kInt64, {"batch", "length"});
  m.Output("y", testing::kFloat, {"batch", 8});
  testing::RandomWeights(m, "table", {24, 8}, 1);
  m.Tensor("last", testing::kInt64, {1})->add_int64_data(2);
  m.Tensor("tokens", testing::kInt64, {1})->add_int64_data(1);
  m.Node("Gather", {"table", "ids"}, {"x"});
  m.Node("Cast", {"attention_mask"}, {"counts"}).Int("to", 1);
  m.Node("Unsqueeze", {"counts", "last"}, {"columns"});
  m.Node("Mul", {"x", "columns"}, {"counted"});
  m.Node("ReduceSum", {"counted", "tokens"}, {"sums"}).Int("keepdims", 0);
  auto* weights = m.Tensor("weights", onnx::TensorProto::INT8, {8, 8});
  for (int i = 0; i < 64; ++i) weights->add_int32_data(i * 37 % 251 - 125);
  m.Node("DynamicQuantizeLinear", {"sums"}, {"q", "scale", "zero"});
  m.Node("MatMulInteger", {"q", "weights", "zero"}, {"integers"});
  m.Node("Cast", {"integers"}, {"numbers"}).Int("to", 1);
  m.Node("Mul", {"numbers", "scale"}, {"y"});
  testing::TempFolder folder;
  const auto padded = LoadBuilt(m, folder, {.policy = "length_dp"});
  EXPECT_THAT(padded.status().message(), ::testing::HasSubstr("cannot serve this model"));
  const auto packed = LoadBuilt(m, folder, {});
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ((*packed)->Metadata("model")->config.policy, "packed");
}

class TrustedMaskTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TrustedMaskTest, PaddedBesideOthersAnswersAreThoseOfTheModelAlone) {
  CheckLong(Attention(true), {.policy = GetParam(), .padding_mask = "attention_mask"},
            {LongRequest(1, 5, 5), LongRequest(1, 300, 290), LongRequest(2, 7, 4),
             LongRequest(2, 204, 200), LongRequest(1, 40, 40), LongRequest(1, 204, 180),
             LongRequest(1, 11, 0), LongRequest(1, 12, 6, 2)});
}

INSTANTIATE_TEST_SUITE_P(Policies, TrustedMaskTest, ::testing::Values("", "length_dp", "naive"));

TEST(LongRequestTest, AMaskByDistanceIsProved) {
  CheckLong(Attention(true), {.policy = "packed"},
            {LongRequest(1, 5, 5), LongRequest(1, 300, 290), LongRequest(2, 7, 4),
             LongRequest(2, 204, 200), LongRequest(1, 40, 40), LongRequest(1, 204, 180),
             LongRequest(1, 11, 0), LongRequest(1, 12, 6, 2)});
}

TEST(LongRequestTest, WhatWouldTakeTooMuchMemoryIsRefusedByName) {
  testing::TempFolder folder;
  const auto engine = LoadBuilt(Attention(false), folder, {.policy = "packed"}, int64_t{4} << 30);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const Status status = (*engine)->Infer(LongRequest(1, 40'000, 40'000, 2)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
  EXPECT_THAT(Message(status), ::testing::HasSubstr("[1,40000]"));
  EXPECT_TRUE((*engine)->Infer(LongRequest(1, 2500, 2500, 2)).ok());
}

TEST(PaddedOracleTest, WhereItIsNotProvedPaddingIsNoDefault) {
  testing::TempFolder folder;
  const auto engine = LoadBuilt(SumOfCounted(true), folder, {});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const StatusOr<ModelMetadata> metadata = (*engine)->Metadata("model");
  EXPECT_EQ(metadata->config.policy, "window");
  EXPECT_THAT(
      metadata->diagnosis,
      ::testing::AllOf(::testing::HasSubstr("equal lengths"), ::testing::HasSubstr("ReduceL1"),
                       ::testing::HasSubstr("'padding_mask: attention_mask'")));
  const auto refused = LoadBuilt(SumOfCounted(true), folder, {.policy = "length_dp"});
  EXPECT_THAT(refused.status().message(),
              ::testing::AllOf(::testing::HasSubstr("not proved"), ::testing::HasSubstr("ReduceL1"),
                               ::testing::HasSubstr("padding_mask")));
}

TEST(PaddedOracleTest, AMaskThatIsTrustedByNameHidesPadding) {
  testing::TempFolder folder;
  const auto engine = LoadBuilt(SumOfCounted(true), folder, {.padding_mask = "attention_mask"});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const StatusOr<ModelMetadata> metadata = (*engine)->Metadata("model");
  EXPECT_EQ(metadata->config.policy, "length_dp");
  EXPECT_THAT(metadata->diagnosis, ::testing::AllOf(::testing::HasSubstr("'attention_mask'"),
                                                    ::testing::HasSubstr("not proved"),
                                                    ::testing::HasSubstr("ReduceL1")));
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

TEST(PaddedOracleTest, TrustThatATrialShowsToBeMisplacedIsRefused) {
  testing::TempFolder folder;
  const auto refusal = [&](const std::string& mask) {
    return Message(LoadBuilt(SumOfCounted(false), folder, {.padding_mask = mask}).status());
  };
  EXPECT_THAT(refusal("attention_mask"), ::testing::HasSubstr("does not hide padding"));
  EXPECT_THAT(refusal("mask"),
              ::testing::HasSubstr("padding_mask is 'mask': the model has no such input"));
  testing::ModelBuilder rows = testing::MlpModel();
  EXPECT_THAT(Message(LoadBuilt(rows, folder, {.padding_mask = "x"}).status()),
              ::testing::HasSubstr("a mask is [batch, length]"));
}

}  // namespace ragged_oracle_test
}  // namespace chairlift
