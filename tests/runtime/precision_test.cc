// Whole models in 16 bits, and on the device that CHAIRLIFT_TEST_DEVICE names: what they answer is
// what they answer in float32 on the CPU, as far as their element type goes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/test_models.h"
#include "runtime/sliced_models.h"
#include "runtime/worker_memory.h"
#include "support/device_under_test.h"

namespace chairlift {
namespace precision_test {

using testing::ModelMaker;
using Tensors = std::vector<Tensor>;

Graph Imported(StatusOr<ImportedModel> model) {
  EXPECT_TRUE(model.ok()) << model.status();
  return std::move(model->graph);
}

Graph Encoder(const std::string& name) {
  return Imported(ImportOnnxFile(std::filesystem::path(CHAIRLIFT_ENCODERS) / (name + ".onnx")));
}

Graph Recurrent(const char* op) {
  ModelMaker m;
  const ValueId x =
      m.Input("x", DType::kFloat, testing::Dims({testing::T(), testing::B(), testing::kFeatures}));
  ModelMaker::Options options;
  options.op = op;
  options.direction = "bidirectional";
  m.Output(m.Recurrent(x, testing::kFeatures, std::move(options))[0]);
  return std::move(m).Done();
}

std::map<std::string, Graph> Models() {
  return {
      {"mlp", Imported(testing::MlpModel().Import())},
      {"conv", Imported(testing::ConvModel().Import())},
      {"LSTM", Recurrent("LSTM")},
      {"GRU", Recurrent("GRU")},
      {"minilm", Encoder("minilm_hf5_torchscript_sdpa_14")},
      {"albert", Encoder("albert_hf4_torchscript_eager_11")},
      {"distilbert", Encoder("distilbert_hf5_dynamo_eager_21")},
  };
}

Tensors RandomInputs(const Graph& graph, std::mt19937& random) {
  if (graph.values[graph.inputs[0]].shape.rank() == 4) {
    Tensor image = Tensor::Allocate(DType::kFloat, {2, 3, 9, 11});
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < image.size(); ++i) image.data<float>()[i] = normal(random);
    return {image};
  }
  Tensors inputs = testing::RandomRequest(graph, random, 2);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (graph.values[graph.inputs[i]].name == "attention_mask") {
      std::fill_n(inputs[i].data<int64_t>(), inputs[i].size(), 1);
    }
  }
  return inputs;
}

// Each output's largest difference over its largest element.
void ExpectClose(const Tensors& got, const Tensors& want, float within) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t o = 0; o < got.size(); ++o) {
    ASSERT_EQ(got[o].shape(), want[o].shape());
    ASSERT_EQ(got[o].dtype(), want[o].dtype());
    float largest = 1e-3f, off = 0;
    for (int64_t i = 0; i < want[o].size(); ++i) {
      const float g = got[o].data<float>()[i], w = want[o].data<float>()[i];
      largest = std::max(largest, std::abs(w));
      off = std::isfinite(g) ? std::max(off, std::abs(g - w)) : 1e30f;
    }
    EXPECT_LE(off, within * largest) << "output " << o;
  }
}

void Check(Device& device, DType narrow_to, float within) {
  std::mt19937 random(3);
  auto stream = device.NewStream();
  ASSERT_TRUE(stream.ok()) << stream.status();
  for (const auto& [name, graph] : Models()) {
    SCOPED_TRACE(name);
    auto here = Executable::Create(graph, {});
    ASSERT_TRUE(here.ok()) << here.status();
    auto there = Executable::Create(graph, {.device = &device, .narrow_to = narrow_to});
    EXPECT_TRUE(there.ok()) << there.status();
    if (!there.ok()) continue;
    SoloTeam team;
    WorkerMemory on_host, on_device(**stream);
    for (int request = 0; request < 6; ++request) {
      const Tensors inputs = RandomInputs(graph, random);
      const auto want = RunFromHost(**here, inputs, team, 0, on_host);
      const auto got = RunFromHost(**there, inputs, team, 0, on_device);
      ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
      ExpectClose(*got, *want, within);
    }
  }
}

TEST(PrecisionTest, HalvesOnTheCpuAnswerAlmostAsFloat32) {
  Check(CpuDevice(), DType::kFloat16, 0.01f);
  Check(CpuDevice(), DType::kBFloat16, 0.08f);
}

double Cosine(const Tensor& a, const Tensor& b) {
  double ab = 0, aa = 0, bb = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    const double x = a.data<float>()[i], y = b.data<float>()[i];
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  return ab / std::sqrt(aa * bb);
}

// Compares products whose operands are rounded to `type` with float32.
void CheckProducts(DType type, float within, double cosine) {
  std::mt19937 random(4);
  for (const auto& [name, graph] : Models()) {
    SCOPED_TRACE(name);
    auto wide = Executable::Create(graph, {});
    auto narrow = Executable::Create(graph, {.round_products_to = type});
    ASSERT_TRUE(wide.ok() && narrow.ok()) << wide.status() << narrow.status();
    SoloTeam team;
    WorkerMemory memory;
    for (int request = 0; request < 4; ++request) {
      const Tensors inputs = RandomInputs(graph, random);
      const auto want = RunFromHost(**wide, inputs, team, 0, memory);
      const auto got = RunFromHost(**narrow, inputs, team, 0, memory);
      ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
      ExpectClose(*got, *want, within);
      for (size_t o = 0; o < want->size(); ++o) {
        EXPECT_GE(Cosine((*got)[o], (*want)[o]), cosine) << "output " << o;
      }
    }
  }
}

TEST(PrecisionTest, ProductsInBFloat16AnswerAlmostAsFloat32) {
  CheckProducts(DType::kBFloat16, 0.05f, 0.9999);
}

TEST(PrecisionTest, ProductsInInt8AnswerNearlyAsFloat32) {
  CheckProducts(DType::kInt8, 0.2f, 0.999);
}

TEST(PrecisionTest, ModelsOnTheDeviceUnderTestAnswerAsOnTheCpu) {
  Device* const device = testing::DeviceUnderTest();
  if (device == nullptr) GTEST_SKIP() << "CHAIRLIFT_TEST_DEVICE names none";
  Check(*device, DType::kUndefined, 2e-5f);
}

TEST(PrecisionTest, HalvesOnTheDeviceUnderTestAnswerAlmostAsFloat32) {
  Device* const device = testing::DeviceUnderTest();
  if (device == nullptr) GTEST_SKIP() << "CHAIRLIFT_TEST_DEVICE names none";
  Check(*device, DType::kFloat16, 0.01f);
  Check(*device, DType::kBFloat16, 0.08f);
}

}  // namespace precision_test
}  // namespace chairlift
