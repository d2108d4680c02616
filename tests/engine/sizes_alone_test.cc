// Values that a model reads for their sizes alone: a request that the model refuses because of them
// is refused in any batch, and the others are answered.
#include <gmock/gmock.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chairlift/engine.h"
#include "engine/test_models.h"

namespace chairlift {
namespace sizes_alone_test {

using testing::ModelBuilder;

struct Case {
  const char* name;
  // Writes value 'v' from x [batch, length, 6], ids [batch, length], and 'L', the length, as [1].
  std::function<void(ModelBuilder&)> write;
};

// 'n': the length minus 4.
void Shorter(ModelBuilder& m) {
  m.Ints("four", {4});
  m.Node("Sub", {"L", "four"}, {"n"});
}

std::vector<Case> Cases() {
  return {
      {"Gather",
       [](ModelBuilder& m) {
         m.Ints("table", {7, 8, 9});
         m.Node("Add", {"ids", "ids"}, {"twice"});
         m.Node("Gather", {"table", "twice"}, {"v"});
       }},
      {"GatherElements",
       [](ModelBuilder& m) {
         m.Node("GatherElements", {"ids", "ids"}, {"v"}).Int("axis", 1);
       }},
      {"Range",
       [](ModelBuilder& m) {
         Shorter(m);
         m.Ints("start", {0});
         m.Ints("axis", {0});
         for (const char* name : {"start", "L", "n"}) {
           m.Node("Squeeze", {name, "axis"}, {std::string(name) + "0"});
         }
         m.Node("Range", {"start0", "L0", "n0"}, {"v"});
       }},
      {"Expand",
       [](ModelBuilder& m) {
         m.Ints("shape", {1, 3, 1});
         m.Node("Expand", {"x", "shape"}, {"v"});
       }},
      {"Reshape",
       [](ModelBuilder& m) {
         m.Ints("shape", {0, 3, 6});
         m.Node("Reshape", {"x", "shape"}, {"v"});
       }},
      {"Squeeze",
       [](ModelBuilder& m) {
         m.Ints("axes", {1});
         m.Node("Squeeze", {"x", "axes"}, {"v"});
       }},
      {"Tile",
       [](ModelBuilder& m) {
         Shorter(m);
         m.Ints("ones", {1, 1});
         m.Node("Concat", {"ones", "n"}, {"repeats"}).Int("axis", 0);
         m.Node("Tile", {"x", "repeats"}, {"v"});
       }},
      {"ConstantOfShape",
       [](ModelBuilder& m) {
         Shorter(m);
         m.Node("ConstantOfShape", {"n"}, {"v"});
       }},
      {"Pad",
       [](ModelBuilder& m) {
         m.Ints("none", {0, 0, 0, 0, 0});
         m.Node("Neg", {"L"}, {"less"});
         m.Node("Concat", {"none", "less"}, {"pads"}).Int("axis", 0);
         m.Node("Pad", {"x", "pads"}, {"v"});
       }},
      {"Resize",
       [](ModelBuilder& m) {
         Shorter(m);
         m.Node("Shape", {"x"}, {"two"}).Int("start", 0).Int("end", 2);
         m.Node("Concat", {"two", "n"}, {"wanted"}).Int("axis", 0);
         m.Node("Resize", {"x", "", "", "wanted"}, {"v"}).String("mode", "nearest");
       }},
      {"TopK",
       [](ModelBuilder& m) {
         m.Node("TopK", {"x", "L"}, {"v", "at"}).Int("axis", 2);
       }},
      {"Split",
       [](ModelBuilder& m) {
         m.Ints("parts", {2, 1});
         m.Node("Split", {"x", "parts"}, {"v", "rest"}).Int("axis", 1);
       }},
      {"Slice",
       [](ModelBuilder& m) {
         Shorter(m);
         m.Ints("zero", {0});
         m.Ints("axis", {2});
         m.Node("Slice", {"x", "zero", "L", "axis", "n"}, {"v"});
       }},
      {"OneHot",
       [](ModelBuilder& m) {
         Shorter(m);
         m.Ints("values", {0, 1});
         m.Node("OneHot", {"ids", "n", "values"}, {"v"});
       }},
      {"MatMul",
       [](ModelBuilder& m) {
         m.Ints("shape", {3, 2});
         m.Node("Expand", {"one", "shape"}, {"w"});
         m.Node("Transpose", {"x"}, {"t"}).Ints("perm", {0, 2, 1});
         m.Node("MatMul", {"t", "w"}, {"v"});
       }},
      {"Concat",
       [](ModelBuilder& m) {
         m.Ints("shape", {1, 3, 6});
         m.Node("Expand", {"one", "shape"}, {"w"});
         m.Node("Concat", {"x", "w"}, {"v"}).Int("axis", 2);
       }},
      {"SpaceToDepth",
       [](ModelBuilder& m) {
         m.Ints("axes", {1});
         m.Node("Unsqueeze", {"x", "axes"}, {"image"});
         m.Node("SpaceToDepth", {"image"}, {"v"}).Int("blocksize", 2);
       }},
      {"Add",
       [](ModelBuilder& m) {
         m.Ints("three", {1, 2, 3});
         m.Node("Add", {"ids", "three"}, {"v"});
       }},
      {"GatherND",
       [](ModelBuilder& m) {
         m.Ints("table", {7, 8, 9});
         m.Ints("axes", {2});
         m.Node("Add", {"ids", "ids"}, {"twice"});
         m.Node("Unsqueeze", {"twice", "axes"}, {"places"});
         m.Node("GatherND", {"table", "places"}, {"v"});
       }},
  };
}

InferRequest Request(int64_t length, int64_t id) {
  Tensor x = Tensor::Allocate(DType::kFloat, {1, length, 6});
  for (int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = static_cast<float>(i % 7);
  Tensor ids = Tensor::Allocate(DType::kInt64, {1, length});
  std::fill_n(ids.data<int64_t>(), length, id);
  InferRequest request;
  request.model = "m";
  request.inputs = {{"x", std::move(x)}, {"ids", std::move(ids)}};
  return request;
}

TEST(SizesAloneTest, WhatIsRefusedAloneIsRefusedInABatch) {
  const testing::TempFolder folder;
  int64_t refused = 0;
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    ModelBuilder m(17);
    m.Input("x", testing::kFloat, {"batch", "length", 6})
        .Input("ids", testing::kInt64, {"batch", "length"});
    m.Output("y", testing::kFloat);
    m.Floats("one", {1}, {1});
    m.Node("Shape", {"ids"}, {"L"}).Int("start", 1).Int("end", 2);
    c.write(m);
    m.Node("Shape", {"v"}, {"sizes"});
    m.Node("Size", {"sizes"}, {"rank"});
    m.Node("Cast", {"rank"}, {"factor"}).Int("to", 1);
    m.Node("Mul", {"x", "factor"}, {"y"});
    const std::string file =
        testing::WriteFile(folder / (std::string(c.name) + ".onnx"), m.Bytes());
    const auto engine = Engine::Create({.workers = 1, .autotune = false});
    const auto alone = Engine::Create({.workers = 1, .autotune = false});
    ASSERT_TRUE(engine.ok() && alone.ok());
    const Status loaded = (*engine)->LoadModel("m", file, {});
    ASSERT_TRUE(loaded.ok()) << loaded;
    ASSERT_TRUE((*alone)->LoadModel("m", file, {.policy = "none"}).ok());
    std::vector<InferRequest> requests;
    for (const int64_t length : {3, 1, 5, 8, 4, 3}) {
      for (const int64_t id : {0, 1, 5}) requests.push_back(Request(length, id));
    }
    std::vector<std::future<StatusOr<InferResponse>>> answers;
    for (const InferRequest& request : requests) {
      auto promise = std::make_shared<std::promise<StatusOr<InferResponse>>>();
      answers.push_back(promise->get_future());
      (*engine)->InferAsync(request, [promise](StatusOr<InferResponse> response) {
        promise->set_value(std::move(response));
      });
    }
    int answered = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto got = answers[i].get();
      const auto want = (*alone)->Infer(requests[i]);
      EXPECT_EQ(got.ok(), want.ok())
          << "request " << i << ": " << got.status() << " and " << want.status();
      if (!got.ok() || !want.ok()) continue;
      ++answered;
      const auto a = got->outputs[0].tensor.values<float>();
      const auto b = want->outputs[0].tensor.values<float>();
      EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
    }
    EXPECT_GT(answered, 0);
    refused += std::ssize(requests) - answered;
  }
  EXPECT_GT(refused, 0);
}

}  // namespace sizes_alone_test
}  // namespace chairlift
