// Small ONNX models, written to files that go with the test.
#ifndef CHAIRLIFT_TESTS_ENGINE_TEST_MODELS_H_
#define CHAIRLIFT_TESTS_ENGINE_TEST_MODELS_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "graph/model_builder.h"

namespace chairlift::testing {

// A folder that is removed with all in it.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "chairlift-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no temporary folder " << name;
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  std::string string() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// Writes text or bytes, making the folders on the way; returns the file's name.
inline std::string WriteFile(const std::filesystem::path& file, const std::string& bytes) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::binary);
  out << bytes;
  EXPECT_TRUE(out.good()) << file;
  return file.string();
}

inline void RandomWeights(GraphProtoBuilder& m, const std::string& name,
                          std::initializer_list<int64_t> dims, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.3f);
  auto* tensor = m.Tensor(name, kFloat, dims);
  int64_t size = 1;
  for (int64_t d : dims) size *= d;
  for (int64_t i = 0; i < size; ++i) tensor->add_float_data(normal(random));
}

// y = relu(x + x): [batch, 4] to the same.
inline ModelBuilder DoublingModel() {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", 4}).Output("y", kFloat, {"batch", 4});
  m.Node("Add", {"x", "x"}, {"sum"});
  m.Node("Relu", {"sum"}, {"y"});
  return m;
}

// y = -x, of fixed shape [1, 2].
inline ModelBuilder FixedModel() {
  ModelBuilder m(17);
  m.Input("x", kFloat, {1, 2}).Output("y", kFloat, {1, 2});
  m.Node("Neg", {"x"}, {"y"});
  return m;
}

// Two layers over [batch, 24], with two outputs.
inline ModelBuilder MlpModel() {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", 24}).Output("hidden", kFloat).Output("y", kFloat);
  RandomWeights(m, "w1", {24, 40}, 1);
  RandomWeights(m, "b1", {40}, 2);
  RandomWeights(m, "w2", {7, 40}, 3);
  RandomWeights(m, "b2", {7}, 4);
  m.Node("MatMul", {"x", "w1"}, {"p"});
  m.Node("Add", {"p", "b1"}, {"s"});
  m.Node("Relu", {"s"}, {"hidden"});
  m.Node("Gemm", {"hidden", "w2", "b2"}, {"y"}).Int("transB", 1);
  return m;
}

// Convolutions over images of any size, [batch, 3, height, width], to 5 classes.
inline ModelBuilder ConvModel() {
  ModelBuilder m(17);
  m.Input("image", kFloat, {"batch", 3, "height", "width"}).Output("y", kFloat);
  RandomWeights(m, "k1", {8, 3, 3, 3}, 1);
  RandomWeights(m, "c1", {8}, 2);
  RandomWeights(m, "k2", {16, 8, 3, 3}, 3);
  RandomWeights(m, "w", {5, 16}, 4);
  m.Node("Conv", {"image", "k1", "c1"}, {"a"}).Ints("pads", {1, 1, 1, 1});
  m.Node("Relu", {"a"}, {"b"});
  m.Node("Conv", {"b", "k2"}, {"c"}).Ints("strides", {2, 2});
  m.Node("Relu", {"c"}, {"d"});
  m.Node("GlobalAveragePool", {"d"}, {"e"});
  m.Node("Flatten", {"e"}, {"f"});
  m.Node("Gemm", {"f", "w"}, {"y"}).Int("transB", 1);
  return m;
}

// A network with a skip connection, two inputs and two outputs, over images [batch, 3, 16, 16] and
// gains [batch, 24]. Its channels do not all fill blocks.
inline ModelBuilder SkipModel() {
  ModelBuilder m(17);
  m.Input("image", kFloat, {"batch", 3, 16, 16}).Input("gain", kFloat, {"batch", 24});
  m.Output("map", kFloat).Output("scores", kFloat);
  RandomWeights(m, "k1", {12, 3, 3, 3}, 1);
  RandomWeights(m, "c1", {12}, 2);
  RandomWeights(m, "k2", {24, 12, 3, 3}, 3);
  RandomWeights(m, "k3", {24, 24, 3, 3}, 4);
  RandomWeights(m, "k4", {24, 12, 2, 2}, 5);
  RandomWeights(m, "k5", {5, 24, 3, 3}, 6);
  RandomWeights(m, "w", {7, 24}, 7);
  m.Node("Conv", {"image", "k1", "c1"}, {"conv1"}).Ints("pads", {1, 1, 1, 1}).Name("first");
  m.Node("Relu", {"conv1"}, {"skip"});
  m.Node("Conv", {"skip", "k2"}, {"conv2"}).Ints("pads", {1, 1, 1, 1}).Ints("strides", {2, 2});
  m.Node("Relu", {"conv2"}, {"down"}).Name("relu_2");
  m.Node("Conv", {"down", "k3"}, {"conv3"}).Ints("pads", {1, 1, 1, 1});
  m.Node("Relu", {"conv3"}, {"deep"});
  m.Node("ConvTranspose", {"deep", "k4"}, {"up"}).Ints("strides", {2, 2});
  m.Node("Concat", {"skip", "up"}, {"both"}).Int("axis", 1);
  m.Node("Conv", {"both", "k5"}, {"map"}).Ints("pads", {1, 1, 1, 1}).Name("last");
  m.Node("GlobalAveragePool", {"deep"}, {"pooled"});
  m.Node("Flatten", {"pooled"}, {"flat"});
  m.Node("Mul", {"flat", "gain"}, {"weighted"});
  m.Node("Gemm", {"weighted", "w"}, {"scores"}).Int("transB", 1);
  return m;
}

// A classifier of images [batch, 3, 16, 16] with a head on the way: `early` and `scores` [batch, 7]
// are probabilities. The early head comes last in the file. Without `middle`, convolution b is left
// out: c reads what b would have.
inline ModelBuilder ExitModel(bool middle = true) {
  ModelBuilder m(17);
  m.Input("image", kFloat, {"batch", 3, 16, 16});
  m.Output("early", kFloat).Output("scores", kFloat);
  RandomWeights(m, "ka", {16, 3, 3, 3}, 1);
  RandomWeights(m, "kb", {16, 16, 3, 3}, 2);
  RandomWeights(m, "kc", {16, 16, 3, 3}, 3);
  RandomWeights(m, "we", {7, 16}, 4);
  RandomWeights(m, "ws", {7, 16}, 5);
  m.Node("Conv", {"image", "ka"}, {"conv_a"}).Ints("pads", {1, 1, 1, 1});
  m.Node("Relu", {"conv_a"}, {"a"});
  if (middle) {
    m.Node("Conv", {"a", "kb"}, {"conv_b"}).Ints("pads", {1, 1, 1, 1});
    m.Node("Relu", {"conv_b"}, {"b"});
  }
  m.Node("Conv", {middle ? "b" : "a", "kc"}, {"conv_c"}).Ints("pads", {1, 1, 1, 1});
  m.Node("Relu", {"conv_c"}, {"c"});
  m.Node("GlobalAveragePool", {"c"}, {"pooled_c"});
  m.Node("Flatten", {"pooled_c"}, {"flat_c"});
  m.Node("Gemm", {"flat_c", "ws"}, {"logits_c"}).Int("transB", 1);
  m.Node("Softmax", {"logits_c"}, {"scores"}).Int("axis", -1);
  m.Node("GlobalAveragePool", {"a"}, {"pooled_a"});
  m.Node("Flatten", {"pooled_a"}, {"flat_a"});
  m.Node("Gemm", {"flat_a", "we"}, {"logits_a"}).Int("transB", 1);
  m.Node("Softmax", {"logits_a"}, {"probabilities_a"}).Int("axis", -1);
  m.Node("Identity", {"probabilities_a"}, {"early"});  // which a pass removes
  return m;
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_ENGINE_TEST_MODELS_H_
