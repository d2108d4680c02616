// Strings of different requests in one batch, and of one request in several batches: each answer
// owns its strings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <thread>
#include <vector>

#include "chairlift/engine.h"
#include "chairlift/text.h"
#include "engine/test_models.h"

namespace chairlift {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::ModelBuilder;
using testing::TempFolder;
using testing::WriteFile;
using Words = std::vector<std::string>;

constexpr int kText = onnx::TensorProto::STRING;
const Words kColours = {"red", "a colour whose name is too long for a short string", ""};
const Words kNames = {"rouge", "une couleur dont le nom est trop long pour une petite", "rien"};

// echo: the input twice, side by side. name: that of each colour. code: its number.
ModelBuilder Colours() {
  ModelBuilder m(17);
  auto* import = m.model().add_opset_import();
  import->set_domain("ai.onnx.ml");
  import->set_version(3);
  m.Input("t", kText, {"n", 2});
  const auto encode = [&](const char* output, const char* values, int64_t number) {
    auto node = m.Node("LabelEncoder", {"t"}, {output});
    node.Domain("ai.onnx.ml");
    auto* keys = node.Attribute("keys_strings", onnx::AttributeProto::STRINGS);
    for (const std::string& colour : kColours) keys->add_strings(colour);
    if (number == 0) {
      auto* names = node.Attribute(values, onnx::AttributeProto::STRINGS);
      for (const std::string& name : kNames) names->add_strings(name);
    } else {
      auto* numbers = node.Attribute(values, onnx::AttributeProto::INTS);
      for (int64_t i = 0; i < 3; ++i) numbers->add_ints(number * i);
    }
  };
  encode("name", "values_strings", 0);
  encode("code", "values_int64s", 10);
  m.Node("Concat", {"t", "t"}, {"echo"}).Int("axis", 1);
  m.Output("name").Output("code").Output("echo");
  return m;
}

Words RandomWords(std::mt19937& random, int64_t count) {
  Words words;
  for (int64_t i = 0; i < count; ++i) {
    const auto kind = random() % 4;
    words.push_back(kind < 3 ? kColours[kind] : std::string(random() % 60, 'x'));
  }
  return words;
}

void ExpectAnswer(const StatusOr<InferResponse>& answer, const Words& words) {
  ASSERT_TRUE(answer.ok()) << answer.status();
  const Tensor &name = answer->outputs[0].tensor, &code = answer->outputs[1].tensor,
               &echo = answer->outputs[2].tensor;
  ASSERT_EQ(name.size(), std::ssize(words));
  ASSERT_EQ(echo.size(), 2 * std::ssize(words));
  for (size_t i = 0; i < words.size(); ++i) {
    size_t known = 0;
    while (known < kColours.size() && kColours[known] != words[i]) ++known;
    EXPECT_EQ(TextsOf(name)[i], known < 3 ? kNames[known] : "_Unused");
    EXPECT_EQ(code.data<int64_t>()[i], known < 3 ? 10 * static_cast<int64_t>(known) : -1);
    EXPECT_EQ(TextsOf(echo)[i / 2 * 4 + i % 2], words[i]);
    EXPECT_EQ(TextsOf(echo)[i / 2 * 4 + 2 + i % 2], words[i]);
  }
}

class TextBatchTest : public ::testing::Test {
 protected:
  void Load(const ModelBuilder& model, const ModelConfig& config) {
    EngineOptions options;
    options.workers = 2;
    auto engine = Engine::Create(options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    const std::string file = WriteFile(folder_ / "model.onnx", model.Bytes());
    loaded_ = engine_->LoadModel("model", file, config);
  }
  // The request's strings are gone when this returns.
  StatusOr<InferResponse> Ask(const Words& words) {
    InferRequest request;
    request.model = "model";
    request.inputs = {{"t", TextTensor({std::ssize(words) / 2, 2}, words)}};
    return engine_->Infer(std::move(request));
  }

  TempFolder folder_;
  std::unique_ptr<Engine> engine_;
  Status loaded_;
};

TEST_F(TextBatchTest, RequestsShareBatchesAndKeepTheirStrings) {
  Load(Colours(), {.queue_delay_us = 300});
  ASSERT_TRUE(loaded_.ok()) << loaded_;
  const StatusOr<ModelMetadata> metadata = engine_->Metadata("model");
  ASSERT_TRUE(metadata.ok());
  EXPECT_TRUE(metadata->batches) << metadata->diagnosis;
  std::vector<std::thread> clients;
  for (uint32_t client = 0; client < 4; ++client) {
    clients.emplace_back([this, client] {
      std::mt19937 random(client);
      for (int i = 0; i < 20; ++i) {
        // More rows than a batch has, too.
        const Words words = RandomWords(random, 2 * static_cast<int64_t>(1 + random() % 90));
        ExpectAnswer(Ask(words), words);
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

TEST_F(TextBatchTest, RowsInAnotherDimensionKeepTheirStrings) {
  ModelBuilder m(17);
  m.Input("t", kText, {2, "n"});
  m.Node("Transpose", {"t"}, {"turned"});
  m.Node("Transpose", {"turned"}, {"y"});
  m.Output("y");
  Load(m, {.max_batch_size = 4, .queue_delay_us = 300});
  ASSERT_TRUE(loaded_.ok()) << loaded_;
  std::vector<std::thread> clients;
  for (uint32_t client = 0; client < 3; ++client) {
    clients.emplace_back([this, client] {
      std::mt19937 random(client);
      for (int i = 0; i < 10; ++i) {
        const auto columns = static_cast<int64_t>(1 + random() % 9);
        const Words words = RandomWords(random, 2 * columns);
        InferRequest request;
        request.model = "model";
        request.inputs = {{"t", TextTensor({2, columns}, words)}};
        const auto answer = engine_->Infer(std::move(request));
        ASSERT_TRUE(answer.ok()) << answer.status();
        const auto got = TextsOf(answer->outputs[0].tensor);
        EXPECT_TRUE(std::equal(got.begin(), got.end(), words.begin(), words.end()));
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

TEST_F(TextBatchTest, RepeatedStringsCountAgainstTheMemoryBudget) {
  EngineOptions options;
  options.workers = 1;
  options.memory_budget = int64_t{256} << 20;
  // The shape is a constant, or an input of the request.
  const auto refused = [&](size_t bytes, int64_t times, bool constant) {
    ModelBuilder m(17);
    m.Input("t", kText, {"n", 1});
    if (constant) {
      m.Node("Constant", {}, {"shape"});
      auto* shape = m.model().mutable_graph()->mutable_node(0)->add_attribute();
      shape->set_name("value_ints");
      shape->set_type(onnx::AttributeProto::INTS);
      for (const int64_t dim : {int64_t{1}, times}) shape->add_ints(dim);
    } else {
      m.Input("shape", testing::kInt64, {2});
    }
    m.Node("Expand", {"t", "shape"}, {"y"});
    m.Output("y");
    auto engine = Engine::Create(options);
    EXPECT_TRUE(engine.ok());
    const std::string file = WriteFile(folder_ / "model.onnx", m.Bytes());
    EXPECT_TRUE((*engine)->LoadModel("model", file, {}).ok());
    InferRequest request;
    request.model = "model";
    request.inputs = {{"t", TextTensor({1, 1}, {std::string(bytes, 'x')})}};
    if (!constant) request.inputs.push_back({"shape", Tensor::Of<int64_t>({2}, {1, times})});
    return Message((*engine)->Infer(std::move(request)).status());
  };
  for (const bool constant : {false, true}) {
    const auto said = AnyOf(HasSubstr("--memory-budget"), HasSubstr("larger than the limit of"));
    EXPECT_THAT(refused(1 << 20, 100000, constant), said);  // 100 GB of answer
    // Each string takes little, but the run holds it and so does the answer: 258 MiB.
    EXPECT_THAT(refused(0, 8'450'000, constant), said);
  }
}

}  // namespace
}  // namespace chairlift
