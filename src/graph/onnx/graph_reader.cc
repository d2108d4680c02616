// GraphProto to Graph: names resolved, nodes ordered, functions inlined, captures made explicit.
#include "graph/onnx/graph_reader.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/onnx/attribute_proto.h"
#include "graph/onnx/graph_builder.h"
#include "graph/onnx/node_order.h"
#include "graph/onnx/tensor_proto.h"

namespace chairlift {
namespace {

using Opsets = std::map<std::string, int64_t>;
using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

// Functions may call functions, so that a small file may unfold into any number of nodes.
constexpr int kMaxFunctionDepth = 16;
constexpr int kMaxInlinedNodes = 200'000;

std::string Canonical(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

template <typename Imports>
StatusOr<Opsets> ReadOpsets(const Imports& imports) {
  Opsets opsets;
  for (const auto& import : imports) {
    const std::string domain = Canonical(import.domain());
    if (domain.empty() && (import.version() < kMinOpset || import.version() > kMaxOpset)) {
      return Unimplemented("opset {} of ai.onnx is not supported; opsets {} to {} are",
                           import.version(), kMinOpset, kMaxOpset);
    }
    opsets[domain] = import.version();
  }
  return opsets;
}

// Where names mean something: a graph, or a function that is being inlined into one.
struct Scope {
  GraphBuilder* builder = nullptr;
  const Opsets* opsets = nullptr;
  Scope* parent = nullptr;  // whose names this one sees too: that of the graph around a sub-graph
  std::string prefix = {};  // of the names of nodes and values
  int function_depth = 0;
  // Attributes of the call that is being inlined, for references to them.
  const onnx::NodeProto* call = nullptr;
  std::unordered_map<std::string, ValueId> names = {};
  std::vector<ValueId> captured = {};  // in the parent's graph, in order of this graph's captures
  std::unordered_map<std::string, ValueInfo> declared = {};
};

class Reader {
 public:
  Reader(const onnx::ModelProto& model, const DataFolder& data_folder) : data_folder_(data_folder) {
    for (const auto& function : model.functions()) {
      functions_[{Canonical(function.domain()), function.name()}] = &function;
    }
  }

  StatusOr<Graph> ReadMain(onnx::GraphProto& proto, const DetachedWeights& weights,
                           const Opsets& opsets) {
    Graph graph;
    budget_.nodes_left += 16 * static_cast<int64_t>(proto.node_size());
    GraphBuilder builder(graph, budget_, /*is_body=*/false);
    Scope scope{.builder = &builder, .opsets = &opsets};
    CHAIRLIFT_RETURN_IF_ERROR(ReadInto(proto, scope, &weights));
    return graph;
  }

 private:
  // --- Graphs ------------------------------------------------------------------------------------

  Status ReadInto(onnx::GraphProto& proto, Scope& scope, const DetachedWeights* weights = nullptr) {
    Graph& graph = scope.builder->graph();
    graph.name = proto.name();
    if (proto.sparse_initializer_size() > 0) {
      return Unimplemented("sparse initialiser '{}' is not supported",
                           proto.sparse_initializer(0).values().name());
    }
    for (int i = 0; i < proto.initializer_size(); ++i) {
      std::optional<RawDataInFile> in_file;
      if (weights != nullptr && weights->ranges.contains(i)) {
        in_file.emplace(RawDataInFile{weights->ranges.at(i), weights->read});
      }
      CHAIRLIFT_RETURN_IF_ERROR(ReadInitialiser(*proto.mutable_initializer(i), in_file, scope));
    }
    for (const auto& input : proto.input()) {
      CHAIRLIFT_RETURN_IF_ERROR(ReadInput(input, scope));
    }
    // Of values in the middle only the type is taken: shapes are inferred, and those in files are
    // often left over from before the model's inputs were made dynamic.
    for (const auto& info : proto.value_info()) {
      if (IsFourBits(scope, info.name())) continue;  // known already
      CHAIRLIFT_ASSIGN_OR_RETURN(ValueInfo declared, Declared(info));
      declared.shape = SymbolicShape();
      scope.declared[info.name()] = std::move(declared);
    }
    for (const auto& output : proto.output()) {
      CHAIRLIFT_ASSIGN_OR_RETURN(scope.declared[output.name()], Declared(output));
    }
    CHAIRLIFT_RETURN_IF_ERROR(ReadNodes(proto.node(), scope));
    for (const auto& output : proto.output()) {
      const ValueId id = Resolve(scope, output.name()).value_or(kNoValue);
      if (id == kNoValue) {
        return InvalidArgument("output '{}' is defined by nothing", output.name());
      }
      if (four_bits_.contains({&graph, id})) {
        return Unimplemented("output '{}' has elements of 4 bits", output.name());
      }
      const Value& value = graph.values[id];
      const DType declared = scope.declared[output.name()].dtype;
      if (declared != DType::kUndefined && value.dtype != DType::kUndefined &&
          declared != value.dtype) {
        return InvalidArgument("output '{}' is declared {} but is {}", output.name(),
                               DTypeName(declared), DTypeName(value.dtype));
      }
      graph.outputs.push_back(id);
    }
    return absl::OkStatus();
  }

  StatusOr<ValueInfo> Declared(const onnx::ValueInfoProto& proto) {
    auto info = DecodeType(proto.type(), dimension_names_);
    if (!info.ok()) return Annotate(info.status(), fmt::format("value '{}'", proto.name()));
    return info;
  }

  Status Define(Scope& scope, const std::string& name, ValueId id) {
    if (name.empty()) return InvalidArgument("a value has no name");
    if (!scope.names.emplace(name, id).second) {
      return InvalidArgument("value '{}' is defined a second time", name);
    }
    return absl::OkStatus();
  }

  Status ReadInitialiser(onnx::TensorProto& proto, const std::optional<RawDataInFile>& in_file,
                         Scope& scope) {
    const bool four_bits = chairlift::IsFourBits(proto);
    auto tensor = four_bits ? DecodeFourBits(proto, data_folder_, in_file)
                            : DecodeTensor(proto, data_folder_, in_file);
    if (!tensor.ok()) {
      return Annotate(tensor.status(), fmt::format("initialiser '{}'", proto.name()));
    }
    if (proto.has_raw_data()) delete proto.release_raw_data();
    CHAIRLIFT_RETURN_IF_ERROR(DefineConstant(scope, proto.name(), *std::move(tensor)));
    if (four_bits) four_bits_.insert({&scope.builder->graph(), scope.names[proto.name()]});
    return absl::OkStatus();
  }

  bool IsFourBits(const Scope& scope, const std::string& name) const {
    const auto it = scope.names.find(name);
    return it != scope.names.end() && four_bits_.contains({&scope.builder->graph(), it->second});
  }

  // Weights of 4 bits are read as int8, which is the same to these operators alone.
  Status CheckFourBits(const OnnxNode& node, const Scope& scope) const {
    if (node.op_type == "DequantizeLinear" || node.op_type == "GatherBlockQuantized") return {};
    for (const ValueId id : node.inputs) {
      if (!four_bits_.contains({&scope.builder->graph(), id})) continue;
      return Unimplemented(
          "input '{}' has elements of 4 bits, which are supported for DequantizeLinear and "
          "GatherBlockQuantized alone",
          scope.builder->graph().values[id].name);
    }
    return {};
  }

  Status DefineConstant(Scope& scope, const std::string& name, Tensor tensor) {
    Value value;
    value.name = scope.prefix + name;
    value.dtype = tensor.dtype();
    value.shape = SymbolicShape(tensor.shape());
    value.constant = std::move(tensor);
    return Define(scope, name, scope.builder->graph().AddValue(std::move(value)));
  }

  Status ReadInput(const onnx::ValueInfoProto& proto, Scope& scope) {
    // Files of IR version 3 list initialisers as inputs too.
    if (IsFourBits(scope, proto.name())) return absl::OkStatus();
    Graph& graph = scope.builder->graph();
    CHAIRLIFT_ASSIGN_OR_RETURN(const ValueInfo info, Declared(proto));
    if (const auto it = scope.names.find(proto.name()); it != scope.names.end()) {
      const Value& value = graph.values[it->second];
      if (!value.is_constant()) {
        return InvalidArgument("input '{}' is listed twice", proto.name());
      }
      // Files of IR version 3 list initialisers as inputs too.
      if (info.dtype != DType::kUndefined && info.dtype != value.dtype) {
        return InvalidArgument("input '{}' is declared {} but its initialiser is {}", proto.name(),
                               DTypeName(info.dtype), DTypeName(value.dtype));
      }
      return absl::OkStatus();
    }
    if (info.dtype == DType::kUndefined && scope.parent == nullptr) {
      return InvalidArgument("input '{}' has no element type", proto.name());
    }
    const ValueId id = graph.AddValue({.name = proto.name(), .dtype = info.dtype});
    if (info.dtype != DType::kUndefined) {
      CHAIRLIFT_RETURN_IF_ERROR(
          StoreInfo(graph.values[id], info, fmt::format("input '{}'", proto.name())));
    }
    graph.inputs.push_back(id);
    return Define(scope, proto.name(), id);
  }

  // The value called `name`, captured from the enclosing graphs where it is theirs; nullopt where
  // there is none. kNoValue: the input of a function that its call leaves out.
  std::optional<ValueId> Resolve(Scope& scope, const std::string& name) {
    if (const auto it = scope.names.find(name); it != scope.names.end()) return it->second;
    if (scope.parent == nullptr) return std::nullopt;
    const std::optional<ValueId> found = Resolve(*scope.parent, name);
    if (!found || *found == kNoValue) return found;
    const ValueId outer = *found;
    const Value& source = scope.parent->builder->graph().values[outer];
    Graph& graph = scope.builder->graph();
    const ValueId id = graph.AddValue(source);
    if (four_bits_.contains({&scope.parent->builder->graph(), outer})) {
      four_bits_.insert({&graph, id});
    }
    if (!source.is_constant()) {
      graph.inputs.push_back(id);
      ++graph.num_captures;
      scope.captured.push_back(outer);
    }
    scope.names[name] = id;
    return id;
  }

  // --- Nodes -------------------------------------------------------------------------------------

  Status ReadNodes(const Nodes& nodes, Scope& scope) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int> order,
                               OrderNodes(nodes, [&](const std::string& name) {
                                 return Resolve(scope, name).has_value();
                               }));
    for (const int i : order) {
      CHAIRLIFT_RETURN_IF_ERROR(ReadNode(nodes[i], i, scope));
    }
    return absl::OkStatus();
  }

  Status ReadNode(const onnx::NodeProto& proto, int position, Scope& scope) {
    const std::string where = DescribeNode(proto, position);
    OnnxNode node;
    node.name =
        scope.prefix +
        (proto.name().empty() ? fmt::format("{}_{}", proto.op_type(), position) : proto.name());
    node.op_type = proto.op_type();
    node.domain = Canonical(proto.domain());
    for (const std::string& name : proto.input()) {
      const std::optional<ValueId> id = name.empty() ? kNoValue : Resolve(scope, name);
      if (!id) return InvalidArgument("{} reads '{}', which nothing defines", where, name);
      node.inputs.push_back(*id);
    }
    if (const auto it = functions_.find({node.domain, node.op_type}); it != functions_.end()) {
      return Annotate(Inline(*it->second, proto, node, scope), where);
    }
    CHAIRLIFT_RETURN_IF_ERROR(Annotate(CheckFourBits(node, scope), where));
    const auto opset = scope.opsets->find(node.domain);
    if (opset == scope.opsets->end()) {
      return InvalidArgument("{}: the file imports no opset of domain '{}'", where,
                             node.domain.empty() ? "ai.onnx" : node.domain);
    }
    node.opset = static_cast<int>(std::min<int64_t>(opset->second, 1 << 20));
    if (node.domain.empty() && node.op_type == "Constant") {
      return Annotate(ReadConstant(proto, scope), where);
    }
    CHAIRLIFT_RETURN_IF_ERROR(Annotate(ReadAttributes(proto, scope, node), where));
    for (const std::string& name : proto.output()) {
      CHAIRLIFT_ASSIGN_OR_RETURN(node.outputs.emplace_back(), DefineOutput(scope, name));
    }
    return scope.builder->Emit(std::move(node));
  }

  StatusOr<ValueId> DefineOutput(Scope& scope, const std::string& name) {
    if (name.empty()) return kNoValue;
    Value value;
    value.name = scope.prefix + name;
    if (const auto it = scope.declared.find(name); it != scope.declared.end()) {
      value.dtype = it->second.dtype;
      value.shape = it->second.shape;
    }
    const ValueId id = scope.builder->graph().AddValue(std::move(value));
    CHAIRLIFT_RETURN_IF_ERROR(Define(scope, name, id));
    return id;
  }

  // The attribute itself, or what it refers to in the call of the function around it; null where
  // the call does not give it.
  static const onnx::AttributeProto* Dereference(const onnx::AttributeProto& proto,
                                                 const Scope& scope) {
    if (proto.ref_attr_name().empty()) return &proto;
    if (scope.call == nullptr) return nullptr;
    for (const auto& given : scope.call->attribute()) {
      if (given.name() == proto.ref_attr_name()) return &given;
    }
    return nullptr;
  }

  Status ReadAttributes(const onnx::NodeProto& proto, Scope& scope, OnnxNode& node) {
    std::map<std::string, onnx::AttributeProto> graphs;  // in order of name, as captures are
    for (const auto& attribute : proto.attribute()) {
      const onnx::AttributeProto* given = Dereference(attribute, scope);
      if (given == nullptr) continue;
      onnx::AttributeProto named;
      if (given != &attribute) {
        if (!given->ref_attr_name().empty()) {
          return Unimplemented("attribute '{}' refers to an attribute that is a reference itself",
                               attribute.name());
        }
        named = *given;
        named.set_name(attribute.name());
        given = &named;
      }
      if (node.domain.empty()) CHAIRLIFT_RETURN_IF_ERROR(CheckAttribute(*given));
      if (node.attributes.Has(attribute.name()) || graphs.contains(attribute.name())) {
        return InvalidArgument("attribute '{}' is given twice", attribute.name());
      }
      if (AttributeType(*given) == onnx::AttributeProto::GRAPH) {
        graphs[attribute.name()] = *given;
        continue;
      }
      CHAIRLIFT_ASSIGN_OR_RETURN(AttributeValue value, DecodeAttribute(*given, data_folder_));
      node.attributes.Set(attribute.name(), std::move(value));
    }
    for (auto& [name, attribute] : graphs) {
      auto body = std::make_shared<Graph>();
      GraphBuilder builder(*body, budget_, /*is_body=*/true);
      Scope inner{.builder = &builder,
                  .opsets = scope.opsets,
                  .parent = &scope,
                  .function_depth = scope.function_depth,
                  .call = scope.call};
      CHAIRLIFT_RETURN_IF_ERROR(Annotate(ReadInto(*attribute.mutable_g(), inner), name));
      node.captures.insert(node.captures.end(), inner.captured.begin(), inner.captured.end());
      node.attributes.Set(name, std::shared_ptr<const Graph>(std::move(body)));
    }
    return absl::OkStatus();
  }

  Status ReadConstant(const onnx::NodeProto& proto, Scope& scope) {
    if (proto.output_size() != 1 || proto.attribute_size() != 1 || proto.input_size() != 0) {
      return InvalidArgument("a Constant has one attribute and one output, not {} and {}",
                             proto.attribute_size(), proto.output_size());
    }
    const onnx::AttributeProto* given = Dereference(proto.attribute(0), scope);
    const std::string& name = proto.attribute(0).name();
    if (given != nullptr && name == "value" && given->has_t() &&
        chairlift::IsFourBits(given->t())) {
      CHAIRLIFT_ASSIGN_OR_RETURN(Tensor tensor, DecodeFourBits(given->t(), data_folder_));
      CHAIRLIFT_RETURN_IF_ERROR(DefineConstant(scope, proto.output(0), std::move(tensor)));
      four_bits_.insert({&scope.builder->graph(), scope.names[proto.output(0)]});
      return absl::OkStatus();
    }
    if (given == nullptr) {
      return InvalidArgument("attribute '{}' refers to one that the call does not give", name);
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(AttributeValue value, DecodeAttribute(*given, data_folder_));
    Tensor tensor;
    if (name == "value" && std::holds_alternative<Tensor>(value)) {
      tensor = std::get<Tensor>(std::move(value));
    } else if (name == "value_int" && std::holds_alternative<int64_t>(value)) {
      tensor = Tensor::Scalar(std::get<int64_t>(value));
    } else if (name == "value_float" && std::holds_alternative<float>(value)) {
      tensor = Tensor::Scalar(std::get<float>(value));
    } else if (name == "value_ints" && std::holds_alternative<std::vector<int64_t>>(value)) {
      const auto& v = std::get<std::vector<int64_t>>(value);
      tensor = Tensor::Of<int64_t>(Shape{static_cast<int64_t>(v.size())}, v);
    } else if (name == "value_floats" && std::holds_alternative<std::vector<float>>(value)) {
      const auto& v = std::get<std::vector<float>>(value);
      tensor = Tensor::Of<float>(Shape{static_cast<int64_t>(v.size())}, v);
    } else if (name == "value_string" || name == "value_strings") {
      return Unimplemented("constants of strings are not supported");
    } else {
      return InvalidArgument("attribute '{}' is not one that Constant has, or of another type",
                             name);
    }
    const auto declared = scope.declared.find(proto.output(0));
    if (declared != scope.declared.end() && declared->second.dtype != DType::kUndefined &&
        declared->second.dtype != tensor.dtype()) {
      return InvalidArgument("output '{}' is declared {} but is {}", proto.output(0),
                             DTypeName(declared->second.dtype), DTypeName(tensor.dtype()));
    }
    return DefineConstant(scope, proto.output(0), std::move(tensor));
  }

  // --- Functions ---------------------------------------------------------------------------------

  Status Inline(const onnx::FunctionProto& function, const onnx::NodeProto& call,
                const OnnxNode& node, Scope& scope) {
    if (scope.function_depth >= kMaxFunctionDepth) {
      return InvalidArgument("functions call each other more than {} deep, or themselves",
                             kMaxFunctionDepth);
    }
    inlined_nodes_ += function.node_size();
    if (inlined_nodes_ > kMaxInlinedNodes) {
      return ResourceExhausted("the model's functions unfold into more than {} nodes",
                               kMaxInlinedNodes);
    }
    if (call.input_size() > function.input_size() || call.output_size() > function.output_size()) {
      return InvalidArgument("function {} takes {} inputs and gives {} outputs, not {} and {}",
                             function.name(), function.input_size(), function.output_size(),
                             call.input_size(), call.output_size());
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(const Opsets opsets, ReadOpsets(function.opset_import()));
    Scope inner{.builder = scope.builder,
                .opsets = &opsets,
                .prefix = node.name + "/",
                .function_depth = scope.function_depth + 1,
                .call = &call};
    for (int i = 0; i < function.input_size(); ++i) {
      const ValueId id = i < static_cast<int>(node.inputs.size()) ? node.inputs[i] : kNoValue;
      CHAIRLIFT_RETURN_IF_ERROR(Define(inner, function.input(i), id));
    }
    CHAIRLIFT_RETURN_IF_ERROR(ReadNodes(function.node(), inner));
    for (int i = 0; i < call.output_size(); ++i) {
      if (call.output(i).empty()) continue;
      const ValueId id = Resolve(inner, function.output(i)).value_or(kNoValue);
      if (id == kNoValue) {
        return InvalidArgument("function {}: output '{}' is defined by nothing", function.name(),
                               function.output(i));
      }
      CHAIRLIFT_RETURN_IF_ERROR(Define(scope, call.output(i), id));
    }
    return absl::OkStatus();
  }

  const DataFolder data_folder_;
  std::map<std::pair<std::string, std::string>, const onnx::FunctionProto*> functions_;
  std::set<std::pair<const Graph*, ValueId>> four_bits_;  // constants
  DimensionNames dimension_names_;
  InferBudget budget_{.open_branches = true};  // inference over the whole graph is strict
  int64_t inlined_nodes_ = 0;
};

}  // namespace

StatusOr<Graph> ReadGraph(onnx::ModelProto& model, const DetachedWeights& weights,
                          const DataFolder& data_folder, int* opset) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Opsets opsets, ReadOpsets(model.opset_import()));
  const auto it = opsets.find("");
  *opset = it == opsets.end() ? 0 : static_cast<int>(it->second);
  return Reader(model, data_folder).ReadMain(*model.mutable_graph(), weights, opsets);
}

}  // namespace chairlift
