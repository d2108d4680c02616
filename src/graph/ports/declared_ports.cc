#include "graph/ports/declared_ports.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/closest.h"
#include "base/status.h"
#include "graph/cells/graph_writer.h"
#include "graph/specialise.h"
#include "ops/element_type.h"

namespace chairlift {
namespace {

using Dims = std::vector<int64_t>;

std::string Listed(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims, ",")); }

// The products of the sizes between open dimensions: [2,-1,3,4] gives 2, 12.
std::optional<Dims> Products(const Dims& dims) {
  Dims products = {1};
  for (const int64_t dim : dims) {
    if (dim < 0) {
      products.push_back(1);
    } else if (__builtin_mul_overflow(products.back(), dim, &products.back())) {
      return std::nullopt;
    }
  }
  return products;
}

// The constant with which a Reshape converts `from` to `to`, both with the batch: 0 keeps a
// dimension, −1 is deduced. Nothing if more than one would have to be deduced.
std::optional<Dims> ReshapeBetween(const Dims& from, const Dims& to) {
  std::vector<size_t> open;
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] < 0) open.push_back(i);
  }
  Dims shape = to;
  size_t number = 0;
  bool deduced = false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] >= 0) continue;
    if (open[number++] == i) {
      shape[i] = 0;
    } else if (std::exchange(deduced, true)) {
      return std::nullopt;
    }
  }
  return shape;
}

Dims WithBatch(Dims dims, bool batch) {
  if (batch) dims.insert(dims.begin(), -1);
  return dims;
}

// Open dimensions of a port get new symbols.
SymbolicShape ShapeOf(const Dims& dims, const std::string& batch, const std::string& port) {
  std::vector<Dim> shape;
  for (const int64_t dim : dims) {
    shape.push_back(dim < 0 ? Dim::Symbol(fmt::format("{}/dim.{}", port, shape.size())) : Dim(dim));
  }
  if (!batch.empty()) shape.insert(shape.begin(), Dim::Symbol(batch));
  return SymbolicShape(std::move(shape));
}

class PortsRewriter {
 public:
  PortsRewriter(const DeclaredPorts& ports, Graph& graph)
      : ports_(ports),
        graph_(graph),
        before_(graph, front_, "ports/"),
        after_(graph, back_, "ports/") {}

  Status Run() {
    CHAIRLIFT_RETURN_IF_ERROR(CheckNames());
    CHAIRLIFT_RETURN_IF_ERROR(CheckAllInputs());
    if (ports_.all_outputs) RemoveOtherOutputs();
    std::vector<SymbolicShape> outputs;
    for (const ValueId id : graph_.outputs) outputs.push_back(graph_.values[id].shape);
    batch_ = ports_.batch ? BatchName() : "";
    CHAIRLIFT_RETURN_IF_ERROR(DeclareInputs());
    // Information in the file about its outputs that inference dropped.
    for (size_t i = 0; i < outputs.size(); ++i) {
      CHAIRLIFT_RETURN_IF_ERROR(DeclareOutput(graph_.outputs[i], outputs[i]));
    }
    if (!ports_.Rewrites()) return absl::OkStatus();
    for (const DeclaredPort& port : ports_.inputs) CHAIRLIFT_RETURN_IF_ERROR(ReshapeInput(port));
    for (const ComputedInput& input : ports_.computed) CHAIRLIFT_RETURN_IF_ERROR(Compute(input));
    for (const DeclaredPort& port : ports_.outputs) CHAIRLIFT_RETURN_IF_ERROR(ReshapeOutput(port));
    for (const ShapedOutput& output : ports_.shaped) CHAIRLIFT_RETURN_IF_ERROR(Shape(output));
    graph_.nodes.insert(graph_.nodes.begin(), std::make_move_iterator(front_.begin()),
                        std::make_move_iterator(front_.end()));
    std::move(back_.begin(), back_.end(), std::back_inserter(graph_.nodes));
    CHAIRLIFT_RETURN_IF_ERROR(InferShapes(graph_));
    return Verify(graph_);
  }

 private:
  std::string& NameOfValue(ValueId id) { return graph_.values[static_cast<size_t>(id)].name; }

  ValueId Find(const std::vector<ValueId>& ids, const std::string& name) const {
    const auto found = std::find_if(ids.begin(), ids.end(), [&](ValueId id) {
      return graph_.values[static_cast<size_t>(id)].name == name;
    });
    return found == ids.end() ? kNoValue : *found;
  }

  Status CheckName(const std::vector<ValueId>& ids, const std::string& name, DType dtype,
                   const char* what) const {
    const ValueId id = Find(ids, name);
    if (id == kNoValue) {
      std::vector<std::string> names;
      names.reserve(ids.size());
      for (const ValueId own : ids) names.push_back(graph_.values[static_cast<size_t>(own)].name);
      return InvalidArgument("the model has no {} '{}'{}", what, name, KnownNames(name, names));
    }
    const DType has = graph_.values[static_cast<size_t>(id)].dtype;
    if (dtype == DType::kUndefined || dtype == has) return absl::OkStatus();
    return InvalidArgument("{} '{}' is {} there, and {} in the model", what, name, DTypeName(dtype),
                           DTypeName(has));
  }

  Status CheckNames() const {
    const auto check = [&](const std::vector<DeclaredPort>& ports, const std::vector<ValueId>& ids,
                           const char* what) -> Status {
      std::set<std::string> seen;
      for (const DeclaredPort& port : ports) {
        CHAIRLIFT_RETURN_IF_ERROR(CheckName(ids, port.name, port.dtype, what));
        if (!seen.insert(port.name).second) {
          return InvalidArgument("{} '{}' is given twice", what, port.name);
        }
        CHAIRLIFT_RETURN_IF_ERROR(CheckReshape(port, what));
      }
      return absl::OkStatus();
    };
    CHAIRLIFT_RETURN_IF_ERROR(check(ports_.inputs, graph_.inputs, "input"));
    CHAIRLIFT_RETURN_IF_ERROR(check(ports_.outputs, graph_.outputs, "output"));
    std::set<std::string> computed;
    for (const ComputedInput& input : ports_.computed) {
      CHAIRLIFT_RETURN_IF_ERROR(CheckName(graph_.inputs, input.name, input.dtype, "input"));
      if (Port(ports_.inputs, input.name) != nullptr || !computed.insert(input.name).second) {
        return InvalidArgument("input '{}' is given, but it is computed from other inputs",
                               input.name);
      }
    }
    for (const ComputedInput& input : ports_.computed) {
      CHAIRLIFT_RETURN_IF_ERROR(CheckName(graph_.inputs, input.source, DType::kUndefined, "input"));
      if (!computed.contains(input.source)) continue;
      return InvalidArgument("input '{}' is computed from '{}', which is computed itself",
                             input.name, input.source);
    }
    std::set<std::string> shaped;
    for (const ShapedOutput& output : ports_.shaped) {
      CHAIRLIFT_RETURN_IF_ERROR(
          CheckName(graph_.outputs, output.name, DType::kUndefined, "output"));
      CHAIRLIFT_RETURN_IF_ERROR(
          CheckName(graph_.inputs, output.source, DType::kUndefined, "input"));
      const DeclaredPort* const port = Port(ports_.outputs, output.name);
      if (!shaped.insert(output.name).second || (port != nullptr && port->reshape)) {
        return InvalidArgument("output '{}' gets two shapes", output.name);
      }
      if (computed.contains(output.source)) {
        return InvalidArgument("output '{}' gets the shape of '{}', which clients do not send",
                               output.name, output.source);
      }
    }
    return absl::OkStatus();
  }

  Status CheckAllInputs() const {
    if (!ports_.all_inputs) return absl::OkStatus();
    for (const ValueId id : graph_.inputs) {
      const std::string& name = graph_.values[static_cast<size_t>(id)].name;
      if (Port(ports_.inputs, name) != nullptr || IsComputed(name) || ports_.filled.contains(name))
        continue;
      return InvalidArgument(
          "input '{}' of the model is not listed; list every input that clients send, or none",
          name);
    }
    return absl::OkStatus();
  }

  bool IsShaped(const std::string& name) const {
    return std::any_of(ports_.shaped.begin(), ports_.shaped.end(),
                       [&](const ShapedOutput& output) { return output.name == name; });
  }

  void RemoveOtherOutputs() {
    std::erase_if(graph_.outputs, [&](ValueId id) {
      const std::string& name = graph_.values[static_cast<size_t>(id)].name;
      return Port(ports_.outputs, name) == nullptr && !IsShaped(name);
    });
  }

  static const DeclaredPort* Port(const std::vector<DeclaredPort>& ports, const std::string& name) {
    const auto found = std::find_if(ports.begin(), ports.end(),
                                    [&](const DeclaredPort& port) { return port.name == name; });
    return found == ports.end() ? nullptr : &*found;
  }

  bool IsComputed(const std::string& name) const {
    return std::any_of(ports_.computed.begin(), ports_.computed.end(),
                       [&](const ComputedInput& input) { return input.name == name; });
  }

  // The symbol that dimension 0 of all inputs already has, and nothing else; else a new one.
  std::string BatchName() const {
    std::set<std::string> first, others;
    for (const ValueId id : graph_.inputs) {
      const Value& value = graph_.values[static_cast<size_t>(id)];
      if (!value.shape.has_rank() || IsComputed(value.name)) continue;
      for (int axis = 0; axis < value.shape.rank(); ++axis) {
        const Dim& dim = value.shape[axis];
        (axis == 0 ? first : others).insert(dim.is_symbol() ? dim.symbol() : "");
      }
    }
    if (first.size() == 1 && !first.begin()->empty() && !others.contains(*first.begin())) {
      return *first.begin();
    }
    std::string name = "batch";
    while (others.contains(name)) name += "_";
    return name;
  }

  Status DeclareInputs() {
    std::map<std::string, SymbolicShape> changed;
    for (const ValueId id : graph_.inputs) {
      const Value& value = graph_.values[static_cast<size_t>(id)];
      if (IsComputed(value.name)) continue;
      const DeclaredPort* const port = Port(ports_.inputs, value.name);
      SymbolicShape shape = value.shape;
      if (port != nullptr && port->ragged) {
        if (shape.has_rank() && (shape.rank() != 1 || shape[0].known())) {
          return InvalidArgument(
              "input '{}' has shape {} in the model, and allow_ragged_batch brings all elements as "
              "one list: the model must take shape [-1]",
              value.name, shape.ToString());
        }
        if (!shape.has_rank()) changed.emplace(value.name, SymbolicShape::OfRank(1));
        continue;
      }
      const DeclaredPort open{.name = value.name};
      CHAIRLIFT_RETURN_IF_ERROR(
          DeclareShape(port == nullptr ? open : *port, ports_.batch, "input", shape));
      if (shape.has_rank() && ports_.batch) shape[0] = Dim::Symbol(batch_);
      const bool same =
          shape.has_rank() == value.shape.has_rank() &&
          (!shape.has_rank() ||
           std::equal(shape.dims().begin(), shape.dims().end(), value.shape.dims().begin(),
                      value.shape.dims().end(),
                      [](const Dim& a, const Dim& b) { return a.ToString() == b.ToString(); }));
      if (!same) changed.emplace(value.name, std::move(shape));
    }
    if (changed.empty()) return absl::OkStatus();
    return SpecialiseShapes(graph_, {}, changed);
  }

  // `in_file`: its shape before the inputs were declared.
  Status DeclareOutput(ValueId id, SymbolicShape in_file) {
    const Value& value = graph_.values[static_cast<size_t>(id)];
    if (IsShaped(value.name)) return absl::OkStatus();
    const DeclaredPort* const port = Port(ports_.outputs, value.name);
    const DeclaredPort open{.name = value.name};
    const DeclaredPort& declared = port == nullptr ? open : *port;
    CHAIRLIFT_RETURN_IF_ERROR(DeclareShape(declared, ports_.batch, "output", in_file));
    SymbolicShape inferred = value.shape;  // it is kept: the declaration is not proved
    return DeclareShape(declared, ports_.batch, "output", inferred);
  }

  // Makes a new value with its name an input of the graph instead of `id`; the old value must then
  // be computed.
  ValueId ReplaceInput(ValueId id, SymbolicShape shape) {
    const Value& old = graph_.values[static_cast<size_t>(id)];
    const ValueId fresh =
        graph_.AddValue({.name = old.name, .dtype = old.dtype, .shape = std::move(shape)});
    NameOfValue(id) += "/in_model";
    std::replace(graph_.inputs.begin(), graph_.inputs.end(), id, fresh);
    return fresh;
  }

  // Makes the last node in `nodes` compute `to`.
  static void GiveTo(std::vector<Node>& nodes, ValueId to) { nodes.back().outputs = {to}; }

  Status ReshapeInput(const DeclaredPort& port) {
    if (!port.reshape && !port.ragged) return absl::OkStatus();
    Dims shape = {-1};
    if (!port.ragged) {
      const std::optional<Dims> between = ReshapeBetween(WithBatch(*port.dims, ports_.batch),
                                                         WithBatch(*port.reshape, ports_.batch));
      if (!between) return TooOpen(port, "input");
      shape = *between;
    }
    const ValueId old = Find(graph_.inputs, port.name);
    const ValueId fresh = ReplaceInput(old, ShapeOf(*port.dims, batch_, port.name));
    before_.Reshape(fresh, shape);
    GiveTo(front_, old);
    return absl::OkStatus();
  }

  static Status TooOpen(const DeclaredPort& port, const char* what) {
    return Unimplemented(
        "{} '{}': reshape from {} to {} is not supported: more than one open dimension changes its "
        "place",
        what, port.name, Listed(*port.dims), Listed(*port.reshape));
  }

  Status Compute(const ComputedInput& input) {
    const ValueId to = Find(graph_.inputs, input.name);
    const ValueId source = Find(graph_.inputs, input.source);
    using Kind = ComputedInput::Kind;
    GraphWriter& w = before_;
    ValueId made = kNoValue;
    const ValueId elements = w.Reshape(w.Op("Size", {source}), {1});
    switch (input.kind) {
      case Kind::kElements:
        made = elements;
        break;
      case Kind::kElementsFromZero:
        made = w.Concat({w.Ints({0}), elements}, 0);
        break;
      case Kind::kElementsAsShape:
        made = w.Op("ConstantOfShape", {elements});
        break;
      case Kind::kItemShapes:
      case Kind::kItemShapesInOne: {
        const ValueId sizes = w.Op("Shape", {source});
        const ValueId rows = w.Op("Slice", {sizes, w.Ints({0}), w.Ints({1})});
        const ValueId item = w.Op("Slice", {sizes, w.Ints({1}), w.Ints({kMaxItemRank})});
        const ValueId rank = w.Reshape(w.Op("Size", {item}), {1});
        made = w.Op("Expand", {item, w.Concat({rows, rank}, 0)});
        if (input.kind == Kind::kItemShapesInOne) made = w.Reshape(made, {-1});
        break;
      }
    }
    Attributes type;
    const Value& taken = graph_.values[static_cast<size_t>(to)];
    type.Set("to", OnnxOfElementType(taken.dtype));
    const int rank = input.kind == Kind::kItemShapes ? 2 : 1;
    if (taken.shape.has_rank() && taken.shape.rank() != rank) {
      return InvalidArgument("input '{}' has shape {} in the model, and batch_input gives rank {}",
                             input.name, taken.shape.ToString(), rank);
    }
    w.Op("Cast", {made}, std::move(type));
    GiveTo(front_, to);
    std::erase(graph_.inputs, to);
    return absl::OkStatus();
  }

  // Makes a new value with the old one's name an output of the graph; `node` computes it from the
  // old one.
  void ReplaceOutput(const std::string& name, ValueId old, ValueId fresh) {
    if (std::count(graph_.inputs.begin(), graph_.inputs.end(), old) == 0) {
      NameOfValue(old) += "/in_model";
    }
    NameOfValue(fresh) = name;
    std::replace(graph_.outputs.begin(), graph_.outputs.end(), old, fresh);
  }

  Status ReshapeOutput(const DeclaredPort& port) {
    if (!port.reshape) return absl::OkStatus();
    const std::optional<Dims> shape =
        ReshapeBetween(WithBatch(*port.reshape, ports_.batch), WithBatch(*port.dims, ports_.batch));
    if (!shape) return TooOpen(port, "output");
    const ValueId old = Find(graph_.outputs, port.name);
    ReplaceOutput(port.name, old, after_.Reshape(old, *shape));
    return absl::OkStatus();
  }

  Status Shape(const ShapedOutput& output) {
    const ValueId old = Find(graph_.outputs, output.name);
    const ValueId sizes = after_.Op("Shape", {Find(graph_.inputs, output.source)});
    ReplaceOutput(output.name, old, after_.Op("Reshape", {old, sizes}));
    return absl::OkStatus();
  }

  static constexpr int64_t kMaxItemRank = 64;

  const DeclaredPorts& ports_;
  Graph& graph_;
  std::string batch_;
  std::vector<Node> front_, back_;
  GraphWriter before_, after_;
};

}  // namespace

bool DeclaredPorts::Rewrites() const {
  const auto rewrites = [](const DeclaredPort& port) { return port.reshape || port.ragged; };
  return !computed.empty() || !shaped.empty() ||
         std::any_of(inputs.begin(), inputs.end(), rewrites) ||
         std::any_of(outputs.begin(), outputs.end(), rewrites);
}

Status CheckReshape(const DeclaredPort& port, const char* what) {
  if (!port.reshape) return absl::OkStatus();
  if (!port.dims) {
    return InvalidArgument("{} '{}' has reshape, and no dims that are to be reshaped", what,
                           port.name);
  }
  if (port.ragged) {
    return InvalidArgument("{} '{}' has reshape and allow_ragged_batch; it can have one", what,
                           port.name);
  }
  const std::optional<Dims> a = Products(*port.dims), b = Products(*port.reshape);
  if (a && b && *a == *b) return absl::OkStatus();
  return InvalidArgument("{} '{}': dims {} and reshape {} must have as many elements", what,
                         port.name, Listed(*port.dims), Listed(*port.reshape));
}

Status DeclareShape(const DeclaredPort& port, bool batch, const char* what, SymbolicShape& shape) {
  const bool is_input = std::string_view(what) == "input";
  const std::optional<Dims>& dims = port.reshape ? port.reshape : port.dims;
  const int first = batch ? 1 : 0;
  if (!shape.has_rank()) {
    if (dims) shape = ShapeOf(*dims, batch ? port.name + "/batch" : "", port.name);
    return absl::OkStatus();
  }
  if (batch && (shape.rank() == 0 || shape[0].known())) {
    return InvalidArgument(
        "max_batch_size is above 0, so that dimension 0 of each input and output is the batch, but "
        "{} '{}' has shape {} in the model; set max_batch_size: 0, or export the model with an "
        "open dimension 0",
        what, port.name, shape.ToString());
  }
  if (!dims) return absl::OkStatus();
  const std::string_view said = port.reshape ? "reshape" : "dims";
  const auto contradicts = [&] {
    return InvalidArgument("{} '{}' has {} {}{} there, and shape {} in the model", what, port.name,
                           said, Listed(*dims),
                           batch ? " after the batch (max_batch_size is above 0)" : "",
                           shape.ToString());
  };
  if (shape.rank() != static_cast<int>(dims->size()) + first) return contradicts();
  for (int axis = first; axis < shape.rank(); ++axis) {
    const int64_t wanted = (*dims)[static_cast<size_t>(axis - first)];
    Dim& dim = shape[axis];
    if (!dim.known()) {
      if (wanted >= 0) dim = Dim(wanted);
      continue;
    }
    // Inferred shapes of outputs are better than those in the file.
    if (dim.value() != wanted && (is_input || wanted >= 0)) return contradicts();
  }
  return absl::OkStatus();
}

Status DeclarePorts(const DeclaredPorts& ports, Graph& graph) {
  return PortsRewriter(ports, graph).Run();
}

}  // namespace chairlift
