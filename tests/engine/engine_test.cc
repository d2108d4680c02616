// The engine through its public interface: loading, answering, refusing.
#include "chairlift/engine.h"

#include <gmock/gmock.h>

#include "engine/test_models.h"

namespace chairlift {
namespace {

using testing::DoublingModel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempFolder;
using testing::WriteFile;

std::unique_ptr<Engine> MakeEngine(const EngineOptions& options = {.workers = 2}) {
  StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

std::string MessageOf(const Status& status) {
  return std::string(status.message().data(), status.message().size());
}

std::vector<float> Values(const Tensor& tensor) {
  return {tensor.values<float>().begin(), tensor.values<float>().end()};
}

class EngineTest : public ::testing::Test {
 protected:
  TempFolder folder_;
  std::unique_ptr<Engine> engine_ = MakeEngine();

  void LoadDoubling(const ModelConfig& config = {}) {
    const std::string file = WriteFile(folder_ / "doubling.onnx", DoublingModel().Bytes());
    const Status loaded = engine_->LoadModel("doubling", file, config);
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
};

TEST_F(EngineTest, AnswersWithAFileAndNoConfiguration) {
  LoadDoubling();
  InferRequest request;
  request.model = "doubling";
  request.id = "seven";
  request.inputs = {{"x", Tensor::Of<float>({1, 4}, {1, -2, 3, 4})}};
  const StatusOr<InferResponse> response = engine_->Infer(std::move(request));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->model, "doubling");
  EXPECT_EQ(response->version, "1");
  EXPECT_EQ(response->id, "seven");
  ASSERT_EQ(response->outputs.size(), 1u);
  EXPECT_EQ(response->outputs[0].name, "y");
  EXPECT_THAT(Values(response->outputs[0].tensor), ElementsAre(2, 0, 6, 8));
}

TEST_F(EngineTest, AskingForAnUnknownModelNamesIt) {
  const StatusOr<InferResponse> response = engine_->Infer({.model = "nobody"});
  EXPECT_EQ(response.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(MessageOf(response.status()), HasSubstr("'nobody'"));
}

}  // namespace
}  // namespace chairlift
