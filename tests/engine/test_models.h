// Small ONNX models, written to files that go with the test.
#ifndef CHAIRLIFT_TESTS_ENGINE_TEST_MODELS_H_
#define CHAIRLIFT_TESTS_ENGINE_TEST_MODELS_H_

#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <variant>
#include <vector>

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

// Builds a model node by node. A dimension is a number, a symbol, or "" for unknown.
class OnnxBuilder {
 public:
  using DimSpec = std::variant<int64_t, std::string>;
  static constexpr int kFloat = onnx::TensorProto::FLOAT;
  static constexpr int kInt64 = onnx::TensorProto::INT64;

  explicit OnnxBuilder(int opset = 17) {
    model_.set_ir_version(8);
    model_.set_producer_name("test");
    model_.add_opset_import()->set_version(opset);
    graph()->set_name("test");
  }

  OnnxBuilder& Input(const std::string& name, int type, const std::vector<DimSpec>& dims) {
    Describe(graph()->add_input(), name, type, dims);
    return *this;
  }
  OnnxBuilder& Output(const std::string& name, int type, const std::vector<DimSpec>& dims) {
    Describe(graph()->add_output(), name, type, dims);
    return *this;
  }
  onnx::NodeProto* Node(const std::string& op, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs) {
    onnx::NodeProto* node = graph()->add_node();
    node->set_op_type(op);
    node->set_name(outputs[0]);
    for (const std::string& input : inputs) node->add_input(input);
    for (const std::string& output : outputs) node->add_output(output);
    return node;
  }
  static void SetInt(onnx::NodeProto* node, const std::string& name, int64_t value) {
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(onnx::AttributeProto::INT);
    attribute->set_i(value);
  }
  static void SetInts(onnx::NodeProto* node, const std::string& name,
                      const std::vector<int64_t>& values) {
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(onnx::AttributeProto::INTS);
    for (int64_t value : values) attribute->add_ints(value);
  }
  OnnxBuilder& Weights(const std::string& name, const std::vector<int64_t>& dims, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, 0.2f);
    onnx::TensorProto* tensor = graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(kFloat);
    int64_t size = 1;
    for (int64_t dim : dims) {
      tensor->add_dims(dim);
      size *= dim;
    }
    for (int64_t i = 0; i < size; ++i) tensor->add_float_data(normal(random));
    return *this;
  }
  OnnxBuilder& Int64s(const std::string& name, const std::vector<int64_t>& values) {
    onnx::TensorProto* tensor = graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(kInt64);
    tensor->add_dims(static_cast<int64_t>(values.size()));
    for (int64_t value : values) tensor->add_int64_data(value);
    return *this;
  }
  onnx::GraphProto* graph() { return model_.mutable_graph(); }

  std::string Serialize() const { return model_.SerializeAsString(); }
  // Writes the model, making the folders on the way.
  std::string Write(const std::filesystem::path& file) const {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream out(file, std::ios::binary);
    out << model_.SerializeAsString();
    EXPECT_TRUE(out.good()) << file;
    return file.string();
  }

 private:
  static void Describe(onnx::ValueInfoProto* info, const std::string& name, int type,
                       const std::vector<DimSpec>& dims) {
    info->set_name(name);
    onnx::TypeProto::Tensor* tensor = info->mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(type);
    tensor->mutable_shape();
    for (const DimSpec& dim : dims) {
      auto* added = tensor->mutable_shape()->add_dim();
      if (const auto* value = std::get_if<int64_t>(&dim)) {
        added->set_dim_value(*value);
      } else if (!std::get<std::string>(dim).empty()) {
        added->set_dim_param(std::get<std::string>(dim));
      }
    }
  }

  onnx::ModelProto model_;
};

// y = relu(x + x): [batch, width] to the same.
inline OnnxBuilder DoublingModel(int64_t width = 4) {
  OnnxBuilder model;
  model.Input("x", OnnxBuilder::kFloat, {"batch", width})
      .Output("y", OnnxBuilder::kFloat, {"batch", width});
  model.Node("Add", {"x", "x"}, {"sum"});
  model.Node("Relu", {"sum"}, {"y"});
  return model;
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_ENGINE_TEST_MODELS_H_
