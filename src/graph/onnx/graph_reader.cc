// Converts GraphProto to Graph: resolves names, orders nodes, inlines functions, makes captures
// explicit.
#include "graph/onnx/graph_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "chairlift/text.h"
#include "graph/onnx/attribute_proto.h"
#include "graph/onnx/contrib/contrib.h"
#include "graph/onnx/float8_values.h"
#include "graph/onnx/functions.h"
#include "graph/onnx/graph_builder.h"
#include "graph/onnx/node_order.h"
#include "graph/onnx/operator_attributes.h"
#include "graph/onnx/sequences.h"
#include "graph/onnx/tensor_proto.h"
#include "graph/onnx/unique_names.h"
#include "graph/onnx/zip_maps.h"
#include "ops/generation/random.h"

namespace chairlift {
namespace {

using Opsets = std::map<std::string, int64_t>;
using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

// Functions may call functions, so a small file may unfold into any number of nodes.
constexpr int kMaxFunctionDepth = 64;
constexpr int kMaxInlinedNodes = 200'000;
// Elements of all sequences, because each operator copies its sequence, and nodes made for them.
constexpr int64_t kMaxElementsInSequences = 1'000'000;
constexpr int64_t kMaxNodesForSequences = 50'000;
// Depth of nested sub-graphs: protobuf bounds it within one graph, but not across functions.
constexpr int kMaxGraphDepth = 40;
// Bytes of names inside functions: each call makes new ones.
constexpr size_t kMaxInlinedName = 256;

template <typename Imports>
StatusOr<Opsets> ReadOpsets(const Imports& imports) {
  Opsets opsets;
  for (const auto& import : imports) {
    const std::string domain = CanonicalDomain(import.domain());
    if (domain.empty() && (import.version() < kMinOpset || import.version() > kMaxOpset)) {
      return Unimplemented(
          "opset {} of ai.onnx is not supported; opsets {} to {} are: export the model with one of "
          "them, or convert it with onnx.version_converter",
          import.version(), kMinOpset, kMaxOpset);
    }
    opsets[domain] = import.version();
  }
  return opsets;
}

// The version of a domain. Files may use these domains without importing them: then it is the
// latest, as in ONNX Runtime.
std::optional<int64_t> OpsetOf(const std::string& domain, const Opsets& opsets) {
  constexpr int64_t kLatestContrib = 1, kLatestMl = 5;
  const auto it = opsets.find(domain);
  if (it != opsets.end()) return it->second;
  if (domain == kContribDomain) return kLatestContrib;
  if (domain == kMlDomain) return kLatestMl;
  return std::nullopt;
}

// A graph that is being read.
struct Frame {
  GraphBuilder builder;
  Frame* outer = nullptr;  // the graph that contains this sub-graph
  int depth = 0;
  bool repeats = false;  // it is part of a loop's body
  // Values of the containing graph, in order of this graph's captures.
  std::vector<ValueId> captured = {};
  std::unordered_map<ValueId, ValueId> imported = {};  // values taken from there
};

struct Scope;

// An attribute of a call, which the function's nodes may refer to.
struct Given {
  const onnx::AttributeProto* proto = nullptr;
  // The scope where it is written, in which names in a graph attribute are resolved.
  Scope* home = nullptr;
};

// The future name of a value, and what the file declares about it.
struct Target {
  std::string name;
  ValueInfo declared = {};
};

// A scope of names: a graph, or a function that is being inlined into one.
struct Scope {
  Frame* frame = nullptr;
  const Opsets* opsets = nullptr;
  Scope* parent = nullptr;  // its names are visible here too: the graph around a sub-graph
  std::string prefix = {};  // of the names of nodes and values
  int function_depth = 0;
  // Attributes of the call that is being inlined, for references to them; null outside functions.
  const std::map<std::string, Given>* attributes = nullptr;
  // The function's outputs, with the names of the call.
  std::unordered_map<std::string, Target> results = {};
  std::unordered_map<std::string, ValueId> names = {};
  std::unordered_map<std::string, Sequence> sequences = {};
  std::unordered_map<std::string, ValueInfo> declared = {};

  Graph& graph() const { return frame->builder.graph(); }
  bool is_main() const { return frame->outer == nullptr && function_depth == 0; }
};

// A name inside a function, of bounded length even if the names in the file are long.
std::string InlinedName(const std::string& prefix, const std::string& name) {
  std::string whole = prefix + name;
  if (whole.size() <= kMaxInlinedName) return whole;
  size_t end = kMaxInlinedName;
  while (end > 0 && (static_cast<unsigned char>(whole[end]) & 0xC0) == 0x80) --end;  // UTF-8
  whole.resize(end);
  return whole;
}

class Reader {
 public:
  Reader(Functions functions, const DataFolder& data_folder)
      : data_folder_(data_folder), functions_(std::move(functions)) {}

  StatusOr<Graph> ReadMain(onnx::GraphProto& proto, const DetachedWeights& weights,
                           const Opsets& opsets) {
    Graph graph;
    budget_.nodes_left += 16 * static_cast<int64_t>(proto.node_size());
    ReserveNames(proto);
    Frame frame{GraphBuilder(graph, budget_, value_names_, /*is_body=*/false)};
    main_ = &frame;
    Scope scope{.frame = &frame, .opsets = &opsets};
    for (int i = 0; i < proto.initializer_size(); ++i) {
      std::optional<RawDataInFile> in_file;
      if (weights.ranges.contains(i)) {
        in_file.emplace(RawDataInFile{weights.ranges.at(i), weights.read});
      }
      CHAIRLIFT_RETURN_IF_ERROR(ReadInitialiser(proto.initializer(i), in_file, scope));
      if (proto.initializer(i).has_raw_data()) {
        delete proto.mutable_initializer(i)->release_raw_data();
      }
    }
    CHAIRLIFT_RETURN_IF_ERROR(ReadInto(proto, scope));
    return graph;
  }

  // The input that holds the request's seeds; kNoValue: there is none.
  ValueId seeds() const { return seeds_; }

 private:
  // --- Graphs ------------------------------------------------------------------------------------

  // The names of the model's own graph are those in the file, so others must avoid them.
  void ReserveNames(const onnx::GraphProto& proto) {
    for (const auto& tensor : proto.initializer()) value_names_.Reserve(tensor.name());
    for (const auto& input : proto.input()) value_names_.Reserve(input.name());
    for (const auto& node : proto.node()) {
      for (const std::string& name : node.output()) value_names_.Reserve(name);
    }
    for (const auto& output : proto.output()) main_outputs_.insert(output.name());
  }

  // The sub-graph in attribute `name` of a node in `scope`.
  StatusOr<std::shared_ptr<const Graph>> ReadBody(const Given& given, bool repeats, Scope& scope,
                                                  std::vector<ValueId>& captures) {
    if (scope.frame->depth >= kMaxGraphDepth) {
      return InvalidArgument("sub-graphs are nested more than {} deep", kMaxGraphDepth);
    }
    const onnx::GraphProto& proto = given.proto->g();
    auto body = std::make_shared<Graph>();
    Frame frame{.builder = GraphBuilder(*body, budget_, value_names_, /*is_body=*/true),
                .outer = scope.frame,
                .depth = scope.frame->depth + 1,
                .repeats = repeats || scope.frame->repeats};
    Scope inner{.frame = &frame,
                .opsets = given.home->opsets,
                .parent = given.home,
                .prefix = scope.prefix,
                .function_depth = scope.function_depth,
                .attributes = given.home->attributes};
    for (const auto& tensor : proto.initializer()) {
      CHAIRLIFT_RETURN_IF_ERROR(ReadInitialiser(tensor, std::nullopt, inner));
    }
    CHAIRLIFT_RETURN_IF_ERROR(ReadInto(proto, inner));
    captures.insert(captures.end(), frame.captured.begin(), frame.captured.end());
    return body;
  }

  // Everything except the initialisers, which have been read already.
  Status ReadInto(const onnx::GraphProto& proto, Scope& scope) {
    Graph& graph = scope.graph();
    graph.name = proto.name();
    if (proto.sparse_initializer_size() > 0) {
      return Unimplemented("sparse initialiser '{}' is not supported",
                           proto.sparse_initializer(0).values().name());
    }
    for (const auto& input : proto.input()) {
      CHAIRLIFT_RETURN_IF_ERROR(ReadInput(input, scope));
    }
    // For intermediate values only the type is used. Shapes are inferred; those in files are often
    // left over from before the model's inputs were made dynamic.
    for (const auto& info : proto.value_info()) {
      if (IsNarrow(scope, info.name())) continue;     // known already
      if (DeclaresFloat8(info)) continue;             // known from what computes it
      if (info.type().has_sequence_type()) continue;  // resolved by sequences.h
      CHAIRLIFT_ASSIGN_OR_RETURN(ValueInfo declared, Declared(info));
      declared.shape = SymbolicShape();
      scope.declared[info.name()] = std::move(declared);
    }
    // An output's shape is for clients, if inference does not find a better one. Nothing may be
    // computed from it, because it may be stale too.
    const std::unordered_set<std::string> read = NamesRead(proto.node());
    for (const auto& output : proto.output()) {
      CHAIRLIFT_ASSIGN_OR_RETURN(ValueInfo& declared = scope.declared[output.name()],
                                 Declared(output));
      if (scope.parent != nullptr || read.contains(output.name())) {
        declared.shape = SymbolicShape();
      }
    }
    CHAIRLIFT_RETURN_IF_ERROR(ReadNodes(proto.node(), scope));
    for (const auto& output : proto.output()) {
      const ValueId id = Resolve(scope, output.name()).value_or(kNoValue);
      if (id == kNoValue && FindSequence(scope, output.name()) != nullptr) {
        return Unimplemented(
            "output '{}' is a sequence; only tensors can leave a graph: join its elements with "
            "ConcatFromSequence",
            output.name());
      }
      if (id == kNoValue) {
        return InvalidArgument(
            "output '{}' of the model is not defined: no node or input has this "
            "name; export the model again",
            output.name());
      }
      if (four_bits_.contains({&graph, id})) {
        return Unimplemented("output '{}' has elements of 4 bits", output.name());
      }
      if (const std::optional<Float8> format = Float8Of(graph, id)) {
        return Unimplemented(
            "output '{}' has elements of type {}, which cannot leave a graph; cast it to float32",
            output.name(), Float8Name(*format));
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
    if (scope.sequences.contains(name) || !scope.names.emplace(name, id).second) {
      return InvalidArgument("value '{}' is defined a second time", name);
    }
    return absl::OkStatus();
  }

  Status ReadInitialiser(const onnx::TensorProto& proto,
                         const std::optional<RawDataInFile>& in_file, Scope& scope) {
    auto tensor = Decode(proto, in_file, scope);
    if (!tensor.ok()) {
      return Annotate(tensor.status(), fmt::format("initialiser '{}'", proto.name()));
    }
    CHAIRLIFT_RETURN_IF_ERROR(DefineConstant(scope, proto.name(), *std::move(tensor)));
    MarkNarrow(proto, scope, proto.name());
    return absl::OkStatus();
  }

  // Remembers that the constant `name`, which is `proto`, has elements that no DType has.
  void MarkNarrow(const onnx::TensorProto& proto, Scope& scope, const std::string& name) {
    const ValueId id = scope.names[name];
    if (chairlift::IsFourBits(proto)) four_bits_.insert({&scope.graph(), id});
    MarkFloat8(scope.graph(), id, Float8OfOnnx(proto.data_type()));
  }
  void MarkFloat8(const Graph& graph, ValueId id, std::optional<Float8> format) {
    if (format && id != kNoValue) float8_[{&graph, id}] = *format;
  }
  std::optional<Float8> Float8Of(const Graph& graph, ValueId id) const {
    const auto it = float8_.find({&graph, id});
    return it == float8_.end() ? std::nullopt : std::optional<Float8>(it->second);
  }
  static bool DeclaresFloat8(const onnx::ValueInfoProto& proto) {
    return proto.type().has_tensor_type() &&
           Float8OfOnnx(proto.type().tensor_type().elem_type()).has_value();
  }

  // 4-bit elements become int8, 8-bit floats float32. All calls of a function share its tensors.
  StatusOr<Tensor> Decode(const onnx::TensorProto& proto,
                          const std::optional<RawDataInFile>& in_file, const Scope& scope) {
    if (const auto it = shared_.find(&proto); it != shared_.end()) return it->second;
    const std::optional<Float8> format = Float8OfOnnx(proto.data_type());
    auto tensor = format ? DecodeFloat8(proto, *format, data_folder_, in_file)
                  : chairlift::IsFourBits(proto) ? DecodeFourBits(proto, data_folder_, in_file)
                                                 : DecodeTensor(proto, data_folder_, in_file);
    if (tensor.ok() && scope.function_depth > 0) shared_[&proto] = *tensor;
    return tensor;
  }

  // Whether the value is a constant whose elements no DType has.
  bool IsNarrow(const Scope& scope, const std::string& name) const {
    const auto it = scope.names.find(name);
    return it != scope.names.end() && (four_bits_.contains({&scope.graph(), it->second}) ||
                                       Float8Of(scope.graph(), it->second));
  }

  // 4-bit weights are read as int8, which makes no difference to these operators only.
  Status CheckFourBits(const OnnxNode& node, const Scope& scope) const {
    if (node.op_type == "DequantizeLinear" || node.op_type == "GatherBlockQuantized") return {};
    for (const ValueId id : node.inputs) {
      if (!four_bits_.contains({&scope.graph(), id})) continue;
      return Unimplemented(
          "input '{}' has elements of 4 bits, which are supported for DequantizeLinear and "
          "GatherBlockQuantized alone",
          scope.graph().values[id].name);
    }
    return {};
  }

  Target TargetOf(const Scope& scope, const std::string& name) {
    if (const auto it = scope.results.find(name); it != scope.results.end()) return it->second;
    Target target{scope.is_main() ? name : value_names_.Take(InlinedName(scope.prefix, name))};
    if (const auto it = scope.declared.find(name); it != scope.declared.end()) {
      target.declared = it->second;
    }
    return target;
  }

  Status DefineConstant(Scope& scope, const std::string& name, Tensor tensor) {
    Target target = TargetOf(scope, name);
    if (target.declared.dtype != DType::kUndefined && target.declared.dtype != tensor.dtype()) {
      return InvalidArgument("output '{}' is declared {} but is {}", name,
                             DTypeName(target.declared.dtype), DTypeName(tensor.dtype()));
    }
    Value value;
    value.name = std::move(target.name);
    value.dtype = tensor.dtype();
    value.shape = SymbolicShape(tensor.shape());
    value.constant = std::move(tensor);
    return Define(scope, name, scope.graph().AddValue(std::move(value)));
  }

  Status ReadInput(const onnx::ValueInfoProto& proto, Scope& scope) {
    // Files of IR version 3 list initialisers as inputs too.
    if (IsNarrow(scope, proto.name())) return absl::OkStatus();
    Graph& graph = scope.graph();
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
    const ValueId id =
        graph.AddValue({.name = TargetOf(scope, proto.name()).name, .dtype = info.dtype});
    if (info.dtype != DType::kUndefined) {
      CHAIRLIFT_RETURN_IF_ERROR(
          StoreInfo(graph.values[id], info, fmt::format("input '{}'", proto.name())));
    }
    graph.inputs.push_back(id);
    return Define(scope, proto.name(), id);
  }

  // The value called `name`, captured from an enclosing graph if it belongs there; nullopt if it
  // does not exist. kNoValue: an input of a function that its call leaves out.
  std::optional<ValueId> Resolve(Scope& scope, const std::string& name) {
    if (const auto it = scope.names.find(name); it != scope.names.end()) return it->second;
    if (scope.parent == nullptr) return std::nullopt;
    const std::optional<ValueId> found = Resolve(*scope.parent, name);
    if (!found || *found == kNoValue) return found;
    const ValueId id = Import(*scope.frame, *scope.parent->frame, *found);
    scope.names[name] = id;
    return id;
  }

  // The sequence called `name`; null if that is something else. Its tensors are captured from an
  // enclosing graph if they belong there.
  const Sequence* FindSequence(Scope& scope, const std::string& name) {
    if (const auto it = scope.sequences.find(name); it != scope.sequences.end()) {
      return &it->second;
    }
    if (scope.names.contains(name) || scope.parent == nullptr) return nullptr;
    const Sequence* const outer = FindSequence(*scope.parent, name);
    if (outer == nullptr) return nullptr;
    const auto import = [&](ValueId id) { return Import(*scope.frame, *scope.parent->frame, id); };
    Sequence here = *outer;
    for (ValueId& id : here.elements) id = import(id);
    if (here.whole != kNoValue) here.whole = import(here.whole);
    return &(scope.sequences[name] = std::move(here));
  }

  // The value `id` of `home` in the graph of `frame`, captured through each graph in between.
  // `home` is the frame itself or encloses it.
  ValueId Import(Frame& frame, Frame& home, ValueId id) {
    if (&frame == &home) return id;
    const ValueId outer = Import(*frame.outer, home, id);
    if (const auto it = frame.imported.find(outer); it != frame.imported.end()) return it->second;
    const Graph& outer_graph = frame.outer->builder.graph();
    Graph& graph = frame.builder.graph();
    const ValueId inner = graph.AddValue(outer_graph.values[outer]);
    if (four_bits_.contains({&outer_graph, outer})) four_bits_.insert({&graph, inner});
    MarkFloat8(graph, inner, Float8Of(outer_graph, outer));
    if (!graph.values[inner].is_constant()) {
      graph.inputs.push_back(inner);
      ++graph.num_captures;
      frame.captured.push_back(outer);
    }
    frame.imported[outer] = inner;
    return inner;
  }

  // --- Nodes -------------------------------------------------------------------------------------

  Status ReadNodes(const Nodes& nodes, Scope& scope) {
    CHAIRLIFT_ASSIGN_OR_RETURN(
        const std::vector<int> order, OrderNodes(nodes, [&](const std::string& name) {
          return Resolve(scope, name).has_value() || FindSequence(scope, name) != nullptr;
        }));
    for (const int i : order) {
      CHAIRLIFT_RETURN_IF_ERROR(ReadNode(nodes[i], i, scope));
    }
    return absl::OkStatus();
  }

  Status ReadNode(const onnx::NodeProto& proto, int position, Scope& scope) {
    const std::string where = DescribeNode(proto, position);
    if (scope.function_depth > 0) CHAIRLIFT_RETURN_IF_ERROR(CountInlined(1));
    OnnxNode node;
    const std::string name =
        proto.name().empty() ? fmt::format("{}_{}", proto.op_type(), position) : proto.name();
    node.name = node_names_.Take(scope.function_depth > 0 ? InlinedName(scope.prefix, name) : name);
    node.op_type = proto.op_type();
    node.domain = CanonicalDomain(proto.domain());
    std::vector<SequenceOperand> operands;
    const std::string* reads_sequence = nullptr;
    for (const std::string& input : proto.input()) {
      SequenceOperand& operand = operands.emplace_back();
      const std::optional<ValueId> id = input.empty() ? kNoValue : Resolve(scope, input);
      if (!id) operand.sequence = FindSequence(scope, input);
      if (operand.sequence != nullptr) reads_sequence = &input;
      if (!id && operand.sequence == nullptr) {
        return InvalidArgument("{} reads '{}', which nothing defines", where, input);
      }
      operand.value = node.inputs.emplace_back(id.value_or(kNoValue));
    }
    if (const Function* function = functions_.Find(proto); function != nullptr) {
      return Annotate(Inline(*function, proto, node, operands, scope), where);
    }
    CHAIRLIFT_RETURN_IF_ERROR(Annotate(CheckFourBits(node, scope), where));
    Float8Inputs float8s;
    for (const ValueId id : node.inputs) float8s.push_back(Float8Of(scope.graph(), id));
    CHAIRLIFT_RETURN_IF_ERROR(Annotate(CheckFloat8Inputs(node, float8s), where));
    if (IsSequenceOperator(node)) {
      return Annotate(ReadSequenceNode(proto, operands, node, scope), where);
    }
    if (reads_sequence != nullptr) {
      if (node.domain.empty() && node.op_type == "Identity" && proto.output_size() == 1) {
        return Annotate(DefineSequence(scope, proto.output(0), *operands[0].sequence), where);
      }
      return Unimplemented(
          "{} reads the sequence '{}'; sequences are resolved at load, so only sequence operators "
          "and Identity can read them: export the model without sequences in loops, branches and "
          "SequenceMap",
          where, *reads_sequence);
    }
    const std::optional<int64_t> opset = OpsetOf(node.domain, *scope.opsets);
    if (!opset) {
      return InvalidArgument("{}: the file imports no opset of domain '{}'", where,
                             node.domain.empty() ? "ai.onnx" : node.domain);
    }
    node.opset = static_cast<int>(std::min<int64_t>(*opset, 1 << 20));
    if (node.domain.empty() && node.op_type == "Constant") {
      return Annotate(ReadConstant(proto, scope), where);
    }
    CHAIRLIFT_RETURN_IF_ERROR(Annotate(ReadAttributes(proto, scope, node), where));
    if (DrawsRandomNumbers(node, scope.frame->builder)) {
      CHAIRLIFT_RETURN_IF_ERROR(Annotate(AddSeeds(scope, node), where));
    }
    for (const std::string& output : proto.output()) {
      CHAIRLIFT_ASSIGN_OR_RETURN(node.outputs.emplace_back(), DefineOutput(scope, output));
    }
    if (!node.outputs.empty()) {
      MarkFloat8(scope.graph(), node.outputs[0], Float8Output(node, float8s));
    }
    scope.frame->builder.Begin(node);
    CHAIRLIFT_RETURN_IF_ERROR(
        Annotate(NormaliseFloat8(node, float8s, scope.frame->builder), where));
    return scope.frame->builder.Emit(std::move(node));
  }

  // Gives the node the request's seeds, an input of the model that clients do not send.
  Status AddSeeds(Scope& scope, OnnxNode& node) {
    if (scope.frame->repeats) {
      return Unimplemented(
          "it draws random numbers inside a Loop or Scan, where every iteration would draw the "
          "same; draw those of all iterations before the loop");
    }
    Graph& graph = main_->builder.graph();
    if (seeds_ == kNoValue) {
      // Its dimension 0 is the batch, if the model has one.
      const auto batched = std::find_if(graph.inputs.begin(), graph.inputs.end(), [&](ValueId id) {
        const SymbolicShape& shape = graph.values[id].shape;
        return shape.has_rank() && shape.rank() > 0 && !shape[0].known();
      });
      Dim rows(1);
      if (batched != graph.inputs.end()) {
        SymbolicShape& shape = graph.values[*batched].shape;
        if (!shape[0].is_symbol() && graph.inputs.size() == 1) {
          std::vector<Dim> dims = shape.dims();
          dims[0] = Dim::Symbol(fmt::format("rows of {}", graph.values[*batched].name));
          shape = SymbolicShape(std::move(dims));
        }
        rows = shape[0];
      }
      seeds_ = graph.AddValue({.name = value_names_.Take("seeds"),
                               .dtype = DType::kInt64,
                               .shape = SymbolicShape({std::move(rows), Dim(kSeedColumns)})});
      graph.inputs.push_back(seeds_);
    }
    node.seeds = Import(*scope.frame, *main_, seeds_);
    node.stream = streams_++;
    return absl::OkStatus();
  }

  Status DefineSequence(Scope& scope, const std::string& name, Sequence sequence) {
    sequence_elements_ += std::ssize(sequence.elements);
    if (sequence_elements_ > kMaxElementsInSequences) {
      return ResourceExhausted("the sequences of the model have more than {} elements together",
                               kMaxElementsInSequences);
    }
    if (name.empty()) return absl::OkStatus();
    if (scope.names.contains(name) || !scope.sequences.emplace(name, std::move(sequence)).second) {
      return InvalidArgument("value '{}' is defined a second time", name);
    }
    return absl::OkStatus();
  }

  Status ReadSequenceNode(const onnx::NodeProto& proto,
                          const std::vector<SequenceOperand>& operands, OnnxNode& node,
                          Scope& scope) {
    CHAIRLIFT_RETURN_IF_ERROR(ReadAttributes(proto, scope, node));
    if (proto.output_size() != 1) {
      return InvalidArgument("it gives 1 output, not {}", proto.output_size());
    }
    GraphBuilder& builder = scope.frame->builder;
    builder.Begin(node);
    const auto before = std::ssize(builder.graph().nodes);
    CHAIRLIFT_ASSIGN_OR_RETURN(SequenceResult result, ResolveSequence(node, operands, builder));
    sequence_nodes_ += std::ssize(builder.graph().nodes) - before;
    if (sequence_nodes_ > kMaxNodesForSequences) {
      return ResourceExhausted("the sequences of the model take more than {} nodes",
                               kMaxNodesForSequences);
    }
    const std::string& name = proto.output(0);
    if (result.value == kNoValue) return DefineSequence(scope, name, std::move(result.sequence));
    if (name.empty()) return absl::OkStatus();
    if (scope.is_main() && main_outputs_.contains(name)) {
      CHAIRLIFT_ASSIGN_OR_RETURN(result.value, Named(scope, result.value, name));
    }
    return Define(scope, name, result.value);
  }

  StatusOr<ValueId> DefineOutput(Scope& scope, const std::string& name) {
    if (name.empty()) return kNoValue;
    Target target = TargetOf(scope, name);
    const ValueId id = scope.graph().AddValue({.name = std::move(target.name),
                                               .dtype = target.declared.dtype,
                                               .shape = std::move(target.declared.shape)});
    CHAIRLIFT_RETURN_IF_ERROR(Define(scope, name, id));
    return id;
  }

  // The attribute itself, or the one that it refers to in the call of the enclosing function; null
  // if neither the call nor a default gives it.
  static StatusOr<Given> Dereference(const onnx::AttributeProto& proto, Scope& scope) {
    const std::string& referred = proto.ref_attr_name();
    if (referred.empty()) return Given{&proto, &scope};
    if (scope.attributes == nullptr) {
      return InvalidArgument(
          "attribute '{}' refers to attribute '{}' of a function, but is outside of every function",
          proto.name(), referred);
    }
    const auto it = scope.attributes->find(referred);
    if (it == scope.attributes->end()) return Given{};
    using onnx::AttributeProto;
    const AttributeProto::AttributeType given = AttributeType(*it->second.proto);
    if (proto.type() != AttributeProto::UNDEFINED && given != AttributeProto::UNDEFINED &&
        proto.type() != given) {
      return InvalidArgument("attribute '{}' is of type {}, but '{}', which it refers to, is {}",
                             proto.name(), AttributeProto::AttributeType_Name(proto.type()),
                             referred, AttributeProto::AttributeType_Name(given));
    }
    return it->second;
  }

  Status ReadAttributes(const onnx::NodeProto& proto, Scope& scope, OnnxNode& node) {
    std::map<std::string, Given> graphs;  // sorted by name, like captures
    for (const auto& attribute : proto.attribute()) {
      if (IsMark(attribute.name())) continue;
      CHAIRLIFT_RETURN_IF_ERROR(
          CheckOperatorHas(attribute.name(), node.domain, node.op_type, node.opset));
      CHAIRLIFT_ASSIGN_OR_RETURN(const Given given, Dereference(attribute, scope));
      if (given.proto == nullptr) continue;
      if (node.domain.empty()) {
        CHAIRLIFT_RETURN_IF_ERROR(CheckAttribute(attribute.name(), *given.proto));
      }
      if (node.attributes.Has(attribute.name()) || graphs.contains(attribute.name())) {
        return InvalidArgument("attribute '{}' is given twice", attribute.name());
      }
      if (AttributeType(*given.proto) == onnx::AttributeProto::GRAPH) {
        graphs[attribute.name()] = given;
        continue;
      }
      CHAIRLIFT_ASSIGN_OR_RETURN(AttributeValue value, DecodeValue(*given.proto, scope));
      node.attributes.Set(attribute.name(), std::move(value));
    }
    for (const auto& [name, given] : graphs) {
      auto body = ReadBody(given, name == "body", scope, node.captures);
      if (!body.ok()) return Annotate(body.status(), name);
      node.attributes.Set(name, *std::move(body));
    }
    return absl::OkStatus();
  }

  StatusOr<AttributeValue> DecodeValue(const onnx::AttributeProto& proto, const Scope& scope) {
    if (AttributeType(proto) != onnx::AttributeProto::TENSOR || chairlift::IsFourBits(proto.t()) ||
        Float8OfOnnx(proto.t().data_type())) {
      return DecodeAttribute(proto, data_folder_);
    }
    auto tensor = Decode(proto.t(), std::nullopt, scope);
    if (!tensor.ok()) {
      return Annotate(tensor.status(), fmt::format("attribute '{}'", proto.name()));
    }
    return AttributeValue(*std::move(tensor));
  }

  Status ReadConstant(const onnx::NodeProto& proto, Scope& scope) {
    if (proto.output_size() != 1 || proto.attribute_size() != 1 || proto.input_size() != 0) {
      return InvalidArgument("a Constant has one attribute and one output, not {} and {}",
                             proto.attribute_size(), proto.output_size());
    }
    const std::string& name = proto.attribute(0).name();
    CHAIRLIFT_ASSIGN_OR_RETURN(const Given reference, Dereference(proto.attribute(0), scope));
    const onnx::AttributeProto* given = reference.proto;
    if (given == nullptr) {
      return InvalidArgument(
          "attribute '{}' refers to attribute '{}' of the function, which neither the call nor a "
          "default gives",
          name, proto.attribute(0).ref_attr_name());
    }
    if (name == "value" && given->has_t() &&
        (chairlift::IsFourBits(given->t()) || Float8OfOnnx(given->t().data_type()))) {
      CHAIRLIFT_ASSIGN_OR_RETURN(Tensor tensor, Decode(given->t(), std::nullopt, scope));
      CHAIRLIFT_RETURN_IF_ERROR(DefineConstant(scope, proto.output(0), std::move(tensor)));
      MarkNarrow(given->t(), scope, proto.output(0));
      return absl::OkStatus();
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(AttributeValue value, DecodeValue(*given, scope));
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
    } else if (name == "value_string" && std::holds_alternative<std::string>(value)) {
      tensor = TextTensor(Shape{}, {std::get<std::string>(std::move(value))});
    } else if (name == "value_strings" && std::holds_alternative<std::vector<std::string>>(value)) {
      auto& v = std::get<std::vector<std::string>>(value);
      const Shape shape{static_cast<int64_t>(v.size())};
      tensor = TextTensor(shape, std::move(v));
    } else {
      return InvalidArgument("attribute '{}' is not one that Constant has, or of another type",
                             name);
    }
    return DefineConstant(scope, proto.output(0), std::move(tensor));
  }

  // --- Functions ---------------------------------------------------------------------------------

  Status CountInlined(int64_t nodes) {
    inlined_nodes_ += nodes;
    if (inlined_nodes_ <= kMaxInlinedNodes) return absl::OkStatus();
    return ResourceExhausted("the model's functions expand to more than {} nodes",
                             kMaxInlinedNodes);
  }

  Status Inline(const Function& function, const onnx::NodeProto& call, const OnnxNode& node,
                const std::vector<SequenceOperand>& operands, Scope& scope) {
    const onnx::FunctionProto& proto = *function.proto;
    if (std::find(active_.begin(), active_.end(), &function) != active_.end()) {
      return InvalidArgument("function {} calls itself, directly or through others", proto.name());
    }
    if (scope.function_depth >= kMaxFunctionDepth) {
      return InvalidArgument("functions call each other more than {} deep", kMaxFunctionDepth);
    }
    // Names cost a fraction of a node: they are processed for each call too.
    constexpr int64_t kNamesOfNode = 16;
    CHAIRLIFT_RETURN_IF_ERROR(CountInlined(
        (proto.input_size() + proto.output_size() + call.attribute_size()) / kNamesOfNode));
    if (call.input_size() > proto.input_size() || call.output_size() > proto.output_size()) {
      return InvalidArgument("function {} takes {} inputs and gives {} outputs, not {} and {}",
                             proto.name(), proto.input_size(), proto.output_size(),
                             call.input_size(), call.output_size());
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(const Opsets opsets, ReadOpsets(proto.opset_import()));
    std::map<std::string, Given> attributes;
    Scope inner{.frame = scope.frame,
                .opsets = &opsets,
                .prefix = node.name + "/",
                .function_depth = scope.function_depth + 1,
                .attributes = &attributes};
    for (const auto& attribute : call.attribute()) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const Given given, Dereference(attribute, scope));
      if (given.proto != nullptr && !attributes.emplace(attribute.name(), given).second) {
        return InvalidArgument("attribute '{}' is given twice", attribute.name());
      }
    }
    for (const auto& attribute : function.defaults) {
      attributes.emplace(attribute.name(), Given{&attribute, &inner});
    }
    for (int i = 0; i < proto.input_size(); ++i) {
      const ValueId id = i < static_cast<int>(node.inputs.size()) ? node.inputs[i] : kNoValue;
      if (i < static_cast<int>(operands.size()) && operands[i].sequence != nullptr) {
        CHAIRLIFT_RETURN_IF_ERROR(DefineSequence(inner, proto.input(i), *operands[i].sequence));
        continue;
      }
      CHAIRLIFT_RETURN_IF_ERROR(Define(inner, proto.input(i), id));
    }
    for (int i = 0; i < call.output_size(); ++i) {
      if (call.output(i).empty() || inner.results.contains(proto.output(i))) continue;
      inner.results.emplace(proto.output(i), TargetOf(scope, call.output(i)));
    }
    active_.push_back(&function);
    CHAIRLIFT_RETURN_IF_ERROR(ReadNodes(proto.node(), inner));
    active_.pop_back();
    for (int i = 0; i < call.output_size(); ++i) {
      const std::string& name = call.output(i);
      if (name.empty()) continue;
      ValueId id = Resolve(inner, proto.output(i)).value_or(kNoValue);
      if (const Sequence* const made = FindSequence(inner, proto.output(i)); made != nullptr) {
        CHAIRLIFT_RETURN_IF_ERROR(DefineSequence(scope, name, *made));
        continue;
      }
      if (id == kNoValue) {
        return InvalidArgument("function {}: no node computes output '{}'", proto.name(),
                               proto.output(i));
      }
      if (scope.is_main() && main_outputs_.contains(name)) {
        CHAIRLIFT_ASSIGN_OR_RETURN(id, Named(scope, id, name));
      }
      CHAIRLIFT_RETURN_IF_ERROR(Define(scope, name, id));
    }
    return absl::OkStatus();
  }

  // A value called `name`, for example an output of the model, that equals `id`: a function may
  // return its input, or the same value twice.
  StatusOr<ValueId> Named(Scope& scope, ValueId id, const std::string& name) {
    Graph& graph = scope.graph();
    if (graph.values[id].name == name || four_bits_.contains({&graph, id}) || Float8Of(graph, id)) {
      return id;
    }
    OnnxNode identity;
    identity.name = node_names_.Take(name + "/Identity");
    identity.op_type = "Identity";
    identity.opset = kMaxOpset;
    identity.inputs = {id};
    const ValueId named = graph.AddValue({.name = name});
    identity.outputs = {named};
    CHAIRLIFT_RETURN_IF_ERROR(scope.frame->builder.Emit(std::move(identity)));
    return named;
  }

  const DataFolder data_folder_;
  const Functions functions_;
  std::vector<const Function*> active_;  // functions being inlined, each inside the previous one
  std::unordered_map<const onnx::TensorProto*, Tensor> shared_;  // tensors of functions
  std::set<std::pair<const Graph*, ValueId>> four_bits_;         // constants
  std::map<std::pair<const Graph*, ValueId>, Float8> float8_;
  UniqueNames value_names_, node_names_;
  std::unordered_set<std::string> main_outputs_;
  DimensionNames dimension_names_;
  InferBudget budget_{.open_branches = true};  // inference over the whole graph is strict
  int64_t inlined_nodes_ = 0;
  Frame* main_ = nullptr;
  ValueId seeds_ = kNoValue;  // of the model's graph
  int64_t sequence_elements_ = 0, sequence_nodes_ = 0;
  int64_t streams_ = 0;  // nodes that draw random numbers
};

}  // namespace

Status ReadGraph(onnx::ModelProto& model, const DetachedWeights& weights,
                 const DataFolder& data_folder, ImportedModel* imported) {
  CHAIRLIFT_ASSIGN_OR_RETURN(Opsets opsets, ReadOpsets(model.opset_import()));
  const auto it = opsets.find("");
  imported->opset = it == opsets.end() ? 0 : static_cast<int>(it->second);
  CHAIRLIFT_ASSIGN_OR_RETURN(Functions functions, Functions::Of(model));
  for (const std::string& name : DropZipMaps(*model.mutable_graph())) {
    imported->notes.push_back(
        fmt::format("output '{}' is the tensor of scores, not maps of labels", name));
    opsets.emplace("", kMaxOpset);  // a model of ai.onnx.ml alone need not import it
  }
  for (std::string& note : DropDictVectorizers(*model.mutable_graph())) {
    imported->notes.push_back(std::move(note));
    opsets.emplace("", kMaxOpset);
  }
  Reader reader(std::move(functions), data_folder);
  CHAIRLIFT_ASSIGN_OR_RETURN(imported->graph,
                             reader.ReadMain(*model.mutable_graph(), weights, opsets));
  if (reader.seeds() != kNoValue) {
    imported->seeds = imported->graph.values[reader.seeds()].name;
  }
  return absl::OkStatus();
}

}  // namespace chairlift
