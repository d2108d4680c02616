// Which device a model is computed on, and in what precision: what settings say, and what is
// refused.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "chairlift/engine.h"
#include "device/devices.h"
#include "engine/recurrent_models.h"
#include "engine/test_models.h"
#include "support/test_device.h"
#include "support/test_kernels.h"

namespace chairlift {
namespace device_settings_test {

using ::testing::HasSubstr;
using testing::TempFolder;
using testing::TestDevice;
using testing::TestKernels;
using testing::WriteFile;

// Known as "settings_test" and "few_kernels", for as long as the program runs.
TestDevice& WholeDevice() {
  static TestDevice& device = *new TestDevice(new TestKernels());
  NameDevice("settings_test", device);
  return device;
}
TestDevice& FewKernels() {
  static TestDevice& device = *new TestDevice(new TestKernels({"Relu", "FusedElementwise"}));
  NameDevice("few_kernels", device);
  return device;
}

class DeviceSettingsTest : public ::testing::Test {
 protected:
  Status Load(const EngineOptions& options, const ModelConfig& config) {
    auto made = Engine::Create(options);
    if (!made.ok()) return made.status();
    engine_ = *std::move(made);
    return engine_->LoadModel("model", file_, config);
  }
  // The model doubles.
  void ExpectAnswers() {
    InferRequest request;
    request.model = "model";
    request.inputs = {{"x", Tensor::Of<float>({1, 4}, {1, 2, 3, -4})}};
    const auto answer = engine_->Infer(std::move(request));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_THAT(answer->outputs[0].tensor.values<float>(), ::testing::ElementsAre(2, 4, 6, 0));
  }

  TempFolder folder_;
  const std::string file_ = WriteFile(folder_ / "model.onnx", testing::DoublingModel().Bytes());
  std::unique_ptr<Engine> engine_;
};

TEST_F(DeviceSettingsTest, TheModelsOwnDeviceComesBeforeTheEngines) {
  const TestDevice::Counts& counts = WholeDevice().counts();
  ASSERT_TRUE(Load({.device = "settings_test"}, {}).ok());
  ExpectAnswers();
  const int launches = counts.launches;
  EXPECT_GT(launches, 0);
  ASSERT_TRUE(Load({.device = "settings_test"}, {.device = "cpu"}).ok());
  ExpectAnswers();
  EXPECT_EQ(counts.launches, launches);
  ASSERT_TRUE(Load({}, {.device = "settings_test", .precision = "float16"}).ok());
  ExpectAnswers();
  EXPECT_GT(counts.launches, launches);
}

TEST_F(DeviceSettingsTest, WhatIsNoDeviceOrPrecisionIsRefusedByName) {
  WholeDevice();
  EXPECT_THAT(Load({.device = "gpu"}, {}).message(), HasSubstr("there is no device 'gpu'"));
  EXPECT_THAT(Load({}, {.device = "gpu"}).message(), HasSubstr("there is no device 'gpu'"));
  EXPECT_THAT(
      Load({}, {.device = "settings_test", .precision = "half"}).message(),
      HasSubstr("precision is 'half'; it must be float32, tf32, float16, bfloat16 or int8"));
  EXPECT_THAT(Load({.precision = "half"}, {}).message(), HasSubstr("precision is 'half'"));
  for (const char* gpus : {"tf32", "float16"}) {
    EXPECT_THAT(Load({}, {.precision = gpus}).message(),
                HasSubstr("is for GPUs; on the CPU it must be float32, bfloat16 or int8"));
  }
  EXPECT_THAT(Load({}, {.device = "settings_test", .precision = "int8"}).message(),
              HasSubstr("precision 'int8' is for CPUs; on a GPU it must be"));
}

TEST_F(DeviceSettingsTest, TheCpuComputesProductsInInt8OnRequest) {
  ASSERT_TRUE(Load({}, {.precision = "int8"}).ok());
  EXPECT_THAT(engine_->Metadata("model")->diagnosis,
              HasSubstr("; products with constant weights in int8 ("));
}

TEST_F(DeviceSettingsTest, TheCpuComputesProductsInBFloat16OnRequest) {
  const std::string said = "; products with constant weights in bfloat16 (";
  const auto diagnosis = [&] { return engine_->Metadata("model")->diagnosis; };
  ASSERT_TRUE(Load({}, {}).ok());
  EXPECT_THAT(diagnosis(), ::testing::Not(HasSubstr(said)));
  ASSERT_TRUE(Load({}, {.precision = "bfloat16"}).ok());
  EXPECT_THAT(diagnosis(), HasSubstr(said));
  ASSERT_TRUE(Load({.precision = "bfloat16"}, {}).ok());
  EXPECT_THAT(diagnosis(), HasSubstr(said));
  ExpectAnswers();
  ASSERT_TRUE(Load({.precision = "bfloat16"}, {.precision = "float32"}).ok());
  EXPECT_THAT(diagnosis(), ::testing::Not(HasSubstr(said)));
}

TEST_F(DeviceSettingsTest, ModelsThatGenerateStayInFloat32) {
  auto engine = Engine::Create({.workers = 1, .autotune = false});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const std::string decoder =
      std::string(CHAIRLIFT_SOURCE) + "/tests/models/decoders/llama_hf5_torchscript_eager_14.onnx";
  const Status loaded = (*engine)->LoadModel("model", decoder, {.precision = "bfloat16"});
  ASSERT_TRUE(loaded.ok()) << loaded;
  const std::string diagnosis = (*engine)->Metadata("model")->diagnosis;
  EXPECT_THAT(diagnosis, HasSubstr("it generates"));
  EXPECT_THAT(diagnosis, HasSubstr("precision bfloat16 has no effect on a model that generates"));
}

TEST_F(DeviceSettingsTest, AnOperatorWithoutAKernelRefusesTheModelByName) {
  FewKernels();
  const Status status = Load({}, {.device = "few_kernels"});
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("has no kernel for device 'test'"));
}

// Cells, encoded tokens: whatever is short of memory, every request is answered, and later ones
// well.
TEST_F(DeviceSettingsTest, MemoryThatRunsOutThereFailsTheTasksThatNeedIt) {
  TestDevice& device = WholeDevice();
  const std::string cells = WriteFile(folder_ / "cells.onnx", testing::TokenClassifier().Bytes());
  auto engine = Engine::Create({.workers = 2, .autotune = false});
  ASSERT_TRUE(engine.ok()) << engine.status();
  ASSERT_TRUE((*engine)->LoadModel("model", cells, {.device = "settings_test"}).ok());
  const auto answers = [&](int requests) {
    std::atomic<int> good = 0, short_of_memory = 0, other = 0;
    for (int i = 0; i < requests; ++i) {
      InferRequest request;
      request.model = "model";
      request.inputs = {{"x", Tensor::Of<int64_t>({1, 4}, {1, 2, 3, int64_t{4} + i % 4})}};
      (*engine)->InferAsync(std::move(request), [&](const StatusOr<InferResponse>& answer) {
        ++(answer.ok()                                  ? good
           : absl::IsResourceExhausted(answer.status()) ? short_of_memory
                                                        : other);
      });
    }
    while (good + short_of_memory + other < requests) std::this_thread::yield();
    EXPECT_EQ(other, 0);
    return good.load();
  };
  ASSERT_EQ(answers(20), 20);
  for (const int n : {1, 2, 3, 5, 8, 13, 21}) {
    SCOPED_TRACE(n);
    device.FailAllocation(n);
    answers(30);
    device.FailAllocation(0);
    EXPECT_EQ(answers(10), 10);
  }
}

}  // namespace device_settings_test
}  // namespace chairlift
