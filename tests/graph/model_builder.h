// Builds small ONNX files in tests.
#ifndef CHAIRLIFT_TESTS_GRAPH_MODEL_BUILDER_H_
#define CHAIRLIFT_TESTS_GRAPH_MODEL_BUILDER_H_

#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "graph/onnx/import.h"
#include "onnx/onnx_pb.h"

namespace chairlift::testing {

// A dimension of a declared shape: a number or a name.
using DeclaredDim = std::variant<int64_t, std::string>;

class NodeBuilder {
 public:
  explicit NodeBuilder(onnx::NodeProto* proto) : proto_(proto) {}
  NodeBuilder& Name(const std::string& name) {
    proto_->set_name(name);
    return *this;
  }
  NodeBuilder& Domain(const std::string& domain) {
    proto_->set_domain(domain);
    return *this;
  }
  NodeBuilder& Int(const std::string& name, int64_t value) {
    Attribute(name, onnx::AttributeProto::INT)->set_i(value);
    return *this;
  }
  NodeBuilder& Float(const std::string& name, float value) {
    Attribute(name, onnx::AttributeProto::FLOAT)->set_f(value);
    return *this;
  }
  NodeBuilder& String(const std::string& name, const std::string& value) {
    Attribute(name, onnx::AttributeProto::STRING)->set_s(value);
    return *this;
  }
  NodeBuilder& Ints(const std::string& name, std::initializer_list<int64_t> values) {
    auto* attribute = Attribute(name, onnx::AttributeProto::INTS);
    for (const int64_t v : values) attribute->add_ints(v);
    return *this;
  }
  NodeBuilder& Floats(const std::string& name, std::initializer_list<float> values) {
    auto* attribute = Attribute(name, onnx::AttributeProto::FLOATS);
    for (const float v : values) attribute->add_floats(v);
    return *this;
  }
  NodeBuilder& Reference(const std::string& name, onnx::AttributeProto::AttributeType type,
                         const std::string& referred) {
    Attribute(name, type)->set_ref_attr_name(referred);
    return *this;
  }
  onnx::AttributeProto* Attribute(const std::string& name,
                                  onnx::AttributeProto::AttributeType type) {
    auto* attribute = proto_->add_attribute();
    attribute->set_name(name);
    attribute->set_type(type);
    return attribute;
  }
  onnx::GraphProto* Body(const std::string& name) {
    return Attribute(name, onnx::AttributeProto::GRAPH)->mutable_g();
  }

 private:
  onnx::NodeProto* proto_;
};

// Adds to a graph that is part of some model.
class GraphProtoBuilder {
 public:
  explicit GraphProtoBuilder(onnx::GraphProto* proto) : proto_(proto) {}

  GraphProtoBuilder& Input(const std::string& name, int type,
                           const std::vector<DeclaredDim>& dims) {
    Declare(proto_->add_input(), name, type, &dims);
    return *this;
  }
  GraphProtoBuilder& Output(const std::string& name, int type = 0) {
    Declare(proto_->add_output(), name, type, nullptr);
    return *this;
  }
  GraphProtoBuilder& Output(const std::string& name, int type,
                            const std::vector<DeclaredDim>& dims) {
    Declare(proto_->add_output(), name, type, &dims);
    return *this;
  }
  onnx::TensorProto* Tensor(const std::string& name, int type,
                            std::initializer_list<int64_t> dims) {
    auto* tensor = proto_->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(type);
    for (const int64_t d : dims) tensor->add_dims(d);
    return tensor;
  }
  GraphProtoBuilder& Floats(const std::string& name, std::initializer_list<int64_t> dims,
                            std::initializer_list<float> values) {
    auto* tensor = Tensor(name, onnx::TensorProto::FLOAT, dims);
    for (const float v : values) tensor->add_float_data(v);
    return *this;
  }
  GraphProtoBuilder& Ints(const std::string& name, std::initializer_list<int64_t> values) {
    auto* tensor = Tensor(name, onnx::TensorProto::INT64, {static_cast<int64_t>(values.size())});
    for (const int64_t v : values) tensor->add_int64_data(v);
    return *this;
  }
  NodeBuilder Node(const std::string& op_type, std::initializer_list<std::string> inputs,
                   std::initializer_list<std::string> outputs) {
    auto* node = proto_->add_node();
    node->set_op_type(op_type);
    for (const std::string& name : inputs) node->add_input(name);
    for (const std::string& name : outputs) node->add_output(name);
    return NodeBuilder(node);
  }
  onnx::GraphProto& proto() { return *proto_; }

 private:
  static void Declare(onnx::ValueInfoProto* info, const std::string& name, int type,
                      const std::vector<DeclaredDim>* dims) {
    info->set_name(name);
    if (type == 0) return;
    auto* tensor = info->mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(type);
    if (dims == nullptr) return;
    auto* shape = tensor->mutable_shape();
    for (const DeclaredDim& dim : *dims) {
      if (const auto* number = std::get_if<int64_t>(&dim)) {
        shape->add_dim()->set_dim_value(*number);
      } else {
        shape->add_dim()->set_dim_param(std::get<std::string>(dim));
      }
    }
  }

  onnx::GraphProto* proto_;
};

class ModelBuilder : public GraphProtoBuilder {
 public:
  explicit ModelBuilder(int opset) : ModelBuilder(std::make_unique<onnx::ModelProto>(), opset) {}

  onnx::ModelProto& model() { return *model_; }
  std::string Bytes() const { return model_->SerializeAsString(); }
  StatusOr<ImportedModel> Import(const std::filesystem::path& external_data_dir = {}) const {
    const std::string bytes = Bytes();
    return ImportOnnx(std::as_bytes(std::span(bytes.data(), bytes.size())),
                      {.external_data_dir = external_data_dir});
  }

 private:
  ModelBuilder(std::unique_ptr<onnx::ModelProto> model, int opset)
      : GraphProtoBuilder(model->mutable_graph()), model_(std::move(model)) {
    model_->set_ir_version(8);
    model_->add_opset_import()->set_version(opset);
  }

  std::unique_ptr<onnx::ModelProto> model_;
};

inline constexpr int kFloat = onnx::TensorProto::FLOAT;
inline constexpr int kInt64 = onnx::TensorProto::INT64;
inline constexpr int kBool = onnx::TensorProto::BOOL;
inline constexpr int kUInt4 = 21, kInt4 = 22;  // which older protobuf classes do not name

// The value called `name`, or null.
inline const Value* FindValue(const Graph& graph, const std::string& name) {
  for (const Value& value : graph.values) {
    if (value.name == name) return &value;
  }
  return nullptr;
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_GRAPH_MODEL_BUILDER_H_
