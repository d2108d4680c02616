// Dynamically quantised models that are not packed: requests share batches, and each answer is
// bit-equal to the imported model's for the request alone.
#include <gmock/gmock.h>

#include <cstring>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "chairlift/engine.h"
#include "engine/test_models.h"

namespace chairlift {
namespace row_scales_test {

// Two layers over [batch, 6, 8], with a scale for each column of weights.
std::string Layers() {
  testing::ModelBuilder m(17);
  m.Input("x", testing::kFloat, {"batch", 6, 8});
  m.Output("y", testing::kFloat, {"batch", 6, 8});
  const auto product = [&](const std::string& x, const std::string& y) {
    auto* weights = m.Tensor(y + "_weights", onnx::TensorProto::INT8, {8, 8});
    auto* zeros = m.Tensor(y + "_weight_zeros", onnx::TensorProto::INT8, {8});
    auto* scales = m.Tensor(y + "_weight_scales", testing::kFloat, {8});
    for (int i = 0; i < 64; ++i) weights->add_int32_data(i * 37 % 251 - 125);
    for (int i = 0; i < 8; ++i) {
      zeros->add_int32_data(i - 3);
      scales->add_float_data(0.01f * static_cast<float>(i + 1));
    }
    m.Node("DynamicQuantizeLinear", {x}, {y + "_q", y + "_scale", y + "_zero"});
    m.Node("MatMulInteger", {y + "_q", y + "_weights", y + "_zero", y + "_weight_zeros"},
           {y + "_sums"});
    m.Node("Cast", {y + "_sums"}, {y + "_numbers"}).Int("to", 1);
    m.Node("Mul", {y + "_scale", y + "_weight_scales"}, {y + "_scales"});
    m.Node("Mul", {y + "_numbers", y + "_scales"}, {y});
  };
  product("x", "hidden");
  m.Node("Relu", {"hidden"}, {"positive"});
  product("positive", "y");
  return m.Bytes();
}

InferRequest Request(int64_t rows, std::mt19937& random) {
  // Ranges differ much.
  const auto range = static_cast<float>(1 + random() % 1000);
  Tensor x = Tensor::Allocate(DType::kFloat, {rows, 6, 8});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.data<float>()[i] = range * (static_cast<float>(random() % 2000) * 1e-3f - 1.0f);
  }
  InferRequest request;
  request.model = "model";
  request.inputs = {{"x", std::move(x)}};
  return request;
}

StatusOr<std::unique_ptr<Engine>> Load(const std::string& file, const ModelConfig& config) {
  auto engine = Engine::Create({.workers = 2, .autotune = false});
  if (!engine.ok()) return engine;
  const Status loaded = (*engine)->LoadModel("model", file, config);
  if (!loaded.ok()) return loaded;
  return engine;
}

TEST(RowScalesTest, EachRequestHasTheScalesThatItHasAlone) {
  testing::TempFolder folder;
  const std::string file = testing::WriteFile(folder / "model.onnx", Layers());
  const auto alone = Load(file, {.policy = "none"}), engine = Load(file, {});
  ASSERT_TRUE(alone.ok() && engine.ok()) << engine.status();
  EXPECT_THAT((*engine)->Metadata("model")->diagnosis,
              ::testing::HasSubstr("each has the dynamic scales that it has alone"));
  std::mt19937 random(3);
  std::vector<InferRequest> requests;
  std::vector<Tensor> want;
  for (int i = 0; i < 12; ++i) {
    requests.push_back(Request(i % 4 == 3 ? 3 : 1, random));
    const auto response = (*alone)->Infer(requests.back());
    ASSERT_TRUE(response.ok()) << response.status();
    want.push_back(response->outputs.at(0).tensor);
  }
  int shared = 0;
  for (int round = 0; round < 200 && (round < 3 || shared == 0); ++round) {
    std::vector<std::future<StatusOr<InferResponse>>> answers;
    for (const InferRequest& request : requests) {
      auto promise = std::make_shared<std::promise<StatusOr<InferResponse>>>();
      answers.push_back(promise->get_future());
      (*engine)->InferAsync(request, [promise](StatusOr<InferResponse> response) {
        promise->set_value(std::move(response));
      });
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto got = answers[i].get();
      ASSERT_TRUE(got.ok()) << got.status();
      const Tensor& have = got->outputs.at(0).tensor;
      EXPECT_EQ(have.shape(), want[i].shape());
      EXPECT_EQ(std::memcmp(have.raw(), want[i].raw(), want[i].byte_size()), 0);
      shared += have.shape()[0] == 1 && got->batch_rows > 1;
    }
  }
  EXPECT_GT(shared, 0) << "no request had company";
}

}  // namespace row_scales_test
}  // namespace chairlift
