// However a model is served, it takes what it takes as it is: requests of odd shapes and values, of
// none at all among them, are answered as they are under policy `none`, or refused like that.
#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "chairlift/engine.h"
#include "engine/recurrent_models.h"
#include "engine/test_models.h"

namespace chairlift {
namespace {

using testing::kFloat;
using testing::kInt64;
using testing::ModelBuilder;
using testing::TempFolder;

struct Served {
  const char* name;
  std::function<std::string()> bytes;  // of the model
  ModelConfig config;
  const char* policy;  // that it comes to
  // Tokens that the mask hides are not computed, whatever is wrong with them.
  bool leaves_out = false;
};
void PrintTo(const Served& served, std::ostream* out) { *out << served.name; }

std::string Encoder(const char* name) {
  std::ifstream file(std::filesystem::path(CHAIRLIFT_ENCODERS) / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Σ |ids · mask|, by an operator that the proof of packing does not know.
ModelBuilder SumOfCounted() {
  ModelBuilder m(17);
  m.Input("ids", kInt64, {"batch", "time"}).Input("attention_mask", kInt64, {"batch", "time"});
  m.Output("y", kFloat, {"batch"});
  m.Node("Mul", {"ids", "attention_mask"}, {"counted"});
  m.Node("Cast", {"counted"}, {"numbers"}).Int("to", 1);
  m.Node("ReduceL1", {"numbers"}, {"y"}).Ints("axes", {1}).Int("keepdims", 0);
  return m;
}

// Rows of two inputs that the file does not say are equally many: one row goes with any number.
ModelBuilder Sum() {
  ModelBuilder m(17);
  m.Input("a", kFloat, {"batch", 3}).Input("b", kFloat, {"other", 3}).Output("y", kFloat);
  m.Node("Add", {"a", "b"}, {"y"});
  return m;
}

class OddRequests {
 public:
  OddRequests(std::vector<TensorSpec> inputs, std::vector<TensorSpec> outputs, uint32_t seed)
      : inputs_(std::move(inputs)), outputs_(std::move(outputs)), random_(seed) {}

  InferRequest Next() {
    InferRequest request;
    request.model = "model";
    // What dimensions vary by; where inputs share them is up to the model.
    const int64_t sizes[] = {Size(), Size(), Size()};
    for (const TensorSpec& input : inputs_) {
      Shape shape;
      for (size_t axis = 0; axis < input.shape.size(); ++axis) {
        int64_t size = input.shape[axis];
        if (size < 0) size = sizes[std::min<size_t>(RoleOf(input, axis), 2)];
        if (OneIn(40)) size = Size();
        shape.Append(size);
      }
      if (OneIn(40)) shape.Append(1);
      if (OneIn(40) && shape.rank() > 0) shape.Erase(0);
      request.inputs.push_back({input.name, Values(input, shape)});
    }
    if (OneIn(30)) request.inputs.pop_back();
    if (OneIn(4)) request.outputs = {outputs_[random_() % outputs_.size()].name};
    return request;
  }

 private:
  bool OneIn(uint32_t n) { return random_() % n == 0; }
  int64_t Size() {
    static constexpr int64_t kSizes[] = {0, 1, 1, 2, 2, 3, 4, 5, 8, 13, 41, 45};
    return kSizes[random_() % std::size(kSizes)];
  }
  // 0: the batch, 1: the time.
  static size_t RoleOf(const TensorSpec& input, size_t axis) {
    size_t role = 0;
    for (size_t i = 0; i < axis; ++i) role += input.shape[i] < 0;
    return role;
  }
  Tensor Values(const TensorSpec& input, const Shape& shape) {
    Tensor t = Tensor::Allocate(input.dtype, shape);
    const bool mask = input.name.find("mask") != std::string::npos;
    const bool types = input.name == "token_type_ids";
    const bool odd = OneIn(12);
    const bool all = mask && OneIn(2);
    for (int64_t i = 0; i < t.size(); ++i) {
      int64_t v = all ? 1 : static_cast<int64_t>(random_() % (mask || types ? 2 : 11));
      if (input.name == "lengths") v = static_cast<int64_t>(random_() % 4);
      if (odd && OneIn(5)) v = static_cast<int64_t>(random_() % 60) - 5;
      if (input.dtype == DType::kInt64) t.data<int64_t>()[i] = v;
      if (input.dtype == DType::kInt32) t.data<int32_t>()[i] = static_cast<int32_t>(v);
      if (input.dtype == DType::kFloat) t.data<float>()[i] = normal_(random_);
    }
    return t;
  }

  const std::vector<TensorSpec> inputs_, outputs_;
  std::mt19937 random_;
  std::normal_distribution<float> normal_{0.0f, 1.0f};
};

std::string Describe(const InferRequest& request) {
  std::string text;
  for (const NamedTensor& input : request.inputs) {
    text += input.name + " " + input.tensor.shape().ToString() + " ";
    for (int64_t i = 0; i < input.tensor.size() && input.tensor.dtype() == DType::kInt64; ++i) {
      text += std::to_string(input.tensor.data<int64_t>()[i]) + " ";
    }
  }
  return text;
}

void ExpectSame(const StatusOr<InferResponse>& got, const StatusOr<InferResponse>& want,
                bool leaves_out) {
  if (leaves_out && got.ok() && absl::IsInvalidArgument(want.status())) return;
  ASSERT_EQ(got.status().code(), want.status().code()) << got.status() << " not " << want.status();
  if (!want.ok()) return;
  ASSERT_EQ(got->outputs.size(), want->outputs.size());
  for (size_t o = 0; o < want->outputs.size(); ++o) {
    const Tensor &g = got->outputs[o].tensor, &w = want->outputs[o].tensor;
    EXPECT_EQ(got->outputs[o].name, want->outputs[o].name);
    ASSERT_EQ(g.shape(), w.shape()) << want->outputs[o].name;
    ASSERT_EQ(g.dtype(), w.dtype());
    ASSERT_EQ(w.dtype(), DType::kFloat);
    float range = 1e-3f;
    for (const float v : w.values<float>())
      range = std::isfinite(v) ? std::max(range, std::abs(v)) : range;
    for (int64_t i = 0; i < w.size(); ++i) {
      const float a = g.data<float>()[i], b = w.data<float>()[i];
      if (std::isnan(b) && std::isnan(a)) continue;
      if (a == b) continue;
      ASSERT_NEAR(a, b, 1e-4f * range) << want->outputs[o].name << " at " << i;
    }
  }
}

class OddRequestsTest : public ::testing::TestWithParam<Served> {
 protected:
  std::unique_ptr<Engine> Load(const ModelConfig& config) {
    auto engine = Engine::Create({.workers = 2, .autotune = false});
    EXPECT_TRUE(engine.ok()) << engine.status();
    const std::string file = testing::WriteFile(folder_ / "model.onnx", GetParam().bytes());
    const Status loaded = (*engine)->LoadModel("model", file, config);
    EXPECT_TRUE(loaded.ok()) << loaded;
    return loaded.ok() ? *std::move(engine) : nullptr;
  }

  TempFolder folder_;
};

TEST_P(OddRequestsTest, AreAnsweredAsTheModelAloneAnswersThem) {
  const auto alone = Load({.policy = "none"});
  const auto engine = Load(GetParam().config);
  ASSERT_TRUE(alone != nullptr && engine != nullptr);
  const StatusOr<ModelMetadata> metadata = engine->Metadata("model");
  ASSERT_EQ(metadata->config.policy, GetParam().policy) << metadata->diagnosis;
  OddRequests odd(metadata->inputs, metadata->outputs, 5);
  constexpr int kBursts = 30, kTogether = 10;
  int answered = 0;
  for (int burst = 0; burst < kBursts; ++burst) {
    std::vector<InferRequest> asked;
    std::vector<StatusOr<InferResponse>> want;
    for (int i = 0; i < kTogether; ++i) {
      asked.push_back(odd.Next());
      want.push_back(alone->Infer(asked.back()));
      answered += want.back().ok();
    }
    std::mutex mutex;
    std::condition_variable told;
    int answers = 0;
    for (size_t i = 0; i < asked.size(); ++i) {
      engine->InferAsync(asked[i], [&, i](const StatusOr<InferResponse>& got) {
        const std::lock_guard<std::mutex> lock(mutex);
        SCOPED_TRACE(Describe(asked[i]));
        ExpectSame(got, want[i], GetParam().leaves_out);
        ++answers;
        told.notify_one();
      });
    }
    std::unique_lock<std::mutex> lock(mutex);
    ASSERT_TRUE(
        told.wait_for(lock, std::chrono::seconds(120), [&] { return answers == kTogether; }));
    if (HasFailure()) return;
  }
  EXPECT_GT(answered, 10);
}

std::vector<Served> AllServed() {
  const auto of = [](ModelBuilder (*make)()) { return [make] { return make().Bytes(); }; };
  return {
      {"rows", of(testing::MlpModel), {}, "window"},
      {"images", of(testing::ConvModel), {}, "window"},
      {"rows_of_two", of(Sum), {}, "window"},
      {"packed", [] { return Encoder("bert_hf4_torchscript_eager_11.onnx"); }, {}, "packed", true},
      {"packed_sums", [] { return Encoder("minilm_hf5_dynamo_sdpa_18.onnx"); }, {}, "packed", true},
      {"padded",
       [] { return Encoder("minilm_hf5_torchscript_sdpa_14.onnx"); },
       {.policy = "length_dp"},
       "length_dp"},
      {"padded_on_trust", of(SumOfCounted), {.padding_mask = "attention_mask"}, "length_dp"},
      {"equal_lengths", of(SumOfCounted), {}, "window"},
      {"cells", of(testing::Tagger), {}, "cellular"},
      {"cells_of_lanes", of(testing::MeanOverTime), {}, "cellular"},
      {"cells_behind_tokens", of(testing::ConvolutionBehindAnEmbedding), {}, "cellular"},
      {"cells_bucketed", of(testing::Tagger), {.policy = "bucketed"}, "bucketed"},
      {"cells_merged", of(testing::TokenClassifier), {.policy = "graph_merge"}, "graph_merge"},
  };
}

INSTANTIATE_TEST_SUITE_P(Served, OddRequestsTest, ::testing::ValuesIn(AllServed()),
                         [](const auto& info) { return std::string(info.param.name); });

// No rows are answered with none, of the shapes that rows have.
TEST(NoRowsTest, HaveTheShapesOfOthers) {
  struct Case {
    ModelBuilder model;
    NamedTensor input;
    std::vector<Shape> want;
  };
  const auto floats = [](const Shape& shape) { return Tensor::Allocate(DType::kFloat, shape); };
  for (const auto& [model, input, want] :
       {Case{testing::MlpModel(), {"x", floats({0, 24})}, {{0, 40}, {0, 7}}}}) {
    TempFolder folder;
    const std::string file = testing::WriteFile(folder / "model.onnx", model.Bytes());
    for (const char* policy : {"", "none"}) {
      auto engine = Engine::Create({.workers = 1, .autotune = false});
      ASSERT_TRUE((*engine)->LoadModel("model", file, {.policy = policy}).ok());
      const auto answer = (*engine)->Infer({.model = "model", .inputs = {input}});
      ASSERT_TRUE(answer.ok()) << answer.status();
      for (size_t o = 0; o < want.size(); ++o) {
        EXPECT_EQ(answer->outputs[o].tensor.shape(), want[o]);
      }
    }
  }
}

// The refusal names the largest input, but only if the model has inputs.
TEST(NoInputsTest, MoreThanTheMemoryBudgetIsRefused) {
  ModelBuilder m(17);
  m.Node("Constant", {}, {"shape"});
  auto* shape = m.model().mutable_graph()->mutable_node(0)->add_attribute();
  shape->set_name("value_ints");
  shape->set_type(onnx::AttributeProto::INTS);
  shape->add_ints(int64_t{1} << 27);
  m.Node("ConstantOfShape", {"shape"}, {"zeros"});
  m.Node("Neg", {"zeros"}, {"y"});
  m.Output("y");
  TempFolder folder;
  const std::string file = testing::WriteFile(folder / "model.onnx", m.Bytes());
  auto engine = Engine::Create({.workers = 1, .memory_budget = 1 << 20, .autotune = false});
  ASSERT_TRUE((*engine)->LoadModel("model", file, {}).ok());
  const auto answer = (*engine)->Infer({.model = "model"});
  EXPECT_THAT(Message(answer.status()), ::testing::HasSubstr("--memory-budget"));
}

}  // namespace
}  // namespace chairlift
