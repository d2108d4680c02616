// Memory runs out at every point of a load: it fails, what serves goes on, and the next load
// succeeds.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/recurrent_models.h"
#include "out_of_memory/engine_fixture.h"

namespace chairlift {
namespace {

using testing::FailingAllocator;
using testing::SmallEngine;
using testing::TempFolder;
using testing::WriteFile;

class LoadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!FailingAllocator::Available()) GTEST_SKIP();
    const std::string serving = WriteFile(folder_ / "d.onnx", testing::DoublingModel().Bytes());
    ASSERT_TRUE(engine_->LoadModel("serving", serving, {}).ok());
  }

  void ExpectServes(const std::string& model) {
    InferRequest request;
    request.model = model;
    request.inputs = {{"x", Tensor::Of<float>({1, 4}, {1, -2, 3, 4})}};
    const auto answer = engine_->Infer(std::move(request));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->outputs[0].tensor.data<float>()[2], 6);
  }

  // Each attempt of a load of this file fails once, `stride` apart; another one then succeeds.
  void FailEach(const std::string& file, int64_t first, int64_t stride) {
    ASSERT_TRUE(engine_->LoadModel("m", file, {}).ok());  // what a process sets up once
    ASSERT_TRUE(engine_->UnloadModel("m").ok());
    int failed = 0;
    for (int64_t n = first;; n += stride) {
      FailingAllocator::FailNth(n);
      const Status loaded = engine_->LoadModel("m", file, {});
      const int64_t attempts = FailingAllocator::Stop();
      if (!loaded.ok()) {
        ++failed;
        ASSERT_EQ(loaded.code(), absl::StatusCode::kResourceExhausted) << loaded << " at " << n;
        ASSERT_FALSE(engine_->ModelReady("m")) << n;
      } else {
        ASSERT_TRUE(engine_->UnloadModel("m").ok());
      }
      if (n % 16 == 0) ExpectServes("serving");
      if (attempts < n) break;
      const Status again = engine_->LoadModel("m", file, {});
      ASSERT_TRUE(again.ok()) << again << " at " << n;
      ASSERT_TRUE(engine_->UnloadModel("m").ok());
    }
    EXPECT_GT(failed, 10);
  }

  TempFolder folder_;
  std::unique_ptr<Engine> engine_ = SmallEngine(2);
};

TEST_F(LoadTest, AnyAllocationOfAWholeModelMayFail) {
  FailEach(WriteFile(folder_ / "m.onnx", testing::DoublingModel().Bytes()), 1, 1);
}

TEST_F(LoadTest, AnyAllocationOfAModelOfCellsMayFail) {
  FailEach(WriteFile(folder_ / "m.onnx", testing::TokenClassifier().Bytes()), 1, 13);
}

TEST_F(LoadTest, AnyAllocationOfAnEncoderMayFail) {
  FailEach((std::filesystem::path(CHAIRLIFT_ENCODERS) / "distilbert_hf5_torchscript_eager_11.onnx")
               .string(),
           1, 1009);
}

TEST_F(LoadTest, TheVersionThatServesStaysWhereItsReplacementFails) {
  const std::string file = WriteFile(folder_ / "m.onnx", testing::DoublingModel().Bytes());
  for (int64_t n = 1; n < 4000; n += 97) {
    FailingAllocator::FailNth(n);
    const Status loaded = engine_->LoadModel("serving", file, {});
    FailingAllocator::Stop();
    ASSERT_NO_FATAL_FAILURE(ExpectServes("serving"));
  }
}

}  // namespace
}  // namespace chairlift
