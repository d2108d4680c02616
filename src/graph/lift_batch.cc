#include "graph/lift_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/batch_axis.h"
#include "graph/infer.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

constexpr char kLiftedBatch[] = "batch";

bool IsZero(const Tensor& tensor) {
  const auto* bytes = static_cast<const std::byte*>(tensor.raw());
  return std::all_of(bytes, bytes + tensor.byte_size(),
                     [](std::byte b) { return b == std::byte{0}; });
}

class Lifter {
 public:
  explicit Lifter(const Graph& graph) : fixed_(graph), graph_(graph) {}

  StatusOr<Graph> Lift() {
    if (graph_.inputs.empty()) return Unimplemented("the model has no inputs");
    for (Value& value : graph_.values) {
      if (!value.is_constant()) value.elements.reset();
    }
    for (const Node& node : fixed_.nodes) {
      for (const ValueId id : node.outputs) {
        if (id != kNoValue) graph_.values[static_cast<size_t>(id)].shape = SymbolicShape();
      }
    }
    for (const ValueId id : graph_.inputs) {
      Value& input = graph_.values[static_cast<size_t>(id)];
      if (!input.shape.has_rank() || input.shape.rank() == 0 || !input.shape[0].known() ||
          input.shape[0].value() != 1) {
        return Unimplemented("input '{}' has shape {}; its first dimension must be 1", input.name,
                             input.shape.ToString());
      }
      input.shape[0] = Dim::Symbol(kLiftedBatch);
    }
    graph_.nodes.clear();
    for (const Node& node : fixed_.nodes) {
      Node open = node;
      const Status opened = Open(open);
      if (!opened.ok()) return Unimplemented("{}: {}", node.Describe(), Message(opened));
      CHAIRLIFT_RETURN_IF_ERROR(Add(std::move(open)));
    }
    CHAIRLIFT_RETURN_IF_ERROR(Verify(graph_));
    const BatchAxisReport report = AnalyseBatchAxis(graph_);
    if (!report.batches) return Unimplemented("{}", report.why);
    return std::move(graph_);
  }

 private:
  const Value& ValueOf(ValueId id) const { return graph_.values[static_cast<size_t>(id)]; }
  // As the file has it; unknown for values that are made here.
  SymbolicShape Fixed(ValueId id) const {
    return static_cast<size_t>(id) < fixed_.values.size()
               ? fixed_.values[static_cast<size_t>(id)].shape
               : SymbolicShape();
  }
  // The dimension that the batch divides; −1 if none does.
  int BatchAxis(ValueId id) const {
    const SymbolicShape& shape = ValueOf(id).shape;
    const SymbolicShape fixed = Fixed(id);
    for (int axis = 0; shape.has_rank() && axis < shape.rank(); ++axis) {
      const bool same = fixed.has_rank() && fixed.rank() == shape.rank() &&
                        (fixed[axis].Same(shape[axis]) || !shape[axis].is_symbol());
      if (!same && shape[axis].is_symbol() &&
          shape[axis].symbol().find(kLiftedBatch) != std::string::npos) {
        return axis;
      }
    }
    return -1;
  }

  Status Add(Node node) {
    CHAIRLIFT_RETURN_IF_ERROR(InferNode(graph_, node, budget_));
    graph_.nodes.push_back(std::move(node));
    return absl::OkStatus();
  }
  StatusOr<ValueId> Emit(const Node& like, const char* op, std::vector<ValueId> inputs,
                         Attributes attributes = {}) {
    const ValueId out = AddNode(graph_, fmt::format("{}/batch/{}", like.name, graph_.values.size()),
                                op, std::move(inputs), std::move(attributes));
    CHAIRLIFT_RETURN_IF_ERROR(InferNode(graph_, graph_.nodes.back(), budget_));
    return out;
  }
  ValueId Ints(const Node& like, const std::vector<int64_t>& values) {
    return AddIntegers(graph_, fmt::format("{}/batch/{}", like.name, graph_.values.size()), values);
  }

  // Replaces the batch size that the node fixes.
  Status Open(Node& node) {
    const std::string& op = node.def->name;
    if (!node.def->domain.empty()) return absl::OkStatus();
    const bool shapes = op == "Reshape" || op == "Expand";
    const SymbolicShape to = Fixed(node.outputs[0]);
    if (shapes && !ValueOf(node.inputs[1]).is_constant() && to.concrete()) {
      // The shape is computed, but is a number in the file.
      const Shape shape = to.ToShape();
      node.inputs[1] = Ints(node, {shape.begin(), shape.end()});
    }
    if (op == "Reshape") return OpenShape(node);
    if (op == "Concat" || op == "GatherElements") return RepeatOthers(node);
    if (op == "GatherND") return PickInRows(node);
    if (op == "Resize") return OpenSizes(node);
    if (op == "LSTM" || op == "GRU" || op == "RNN") return RepeatStates(node);
    return absl::OkStatus();
  }

  // Writes −1 into a constant shape in place of the batch's entry, which is 1 in the file. If no
  // entry is known to be that, it replaces the first of those that the batch's dimension becomes.
  Status OpenShape(Node& node) {
    const int axis = BatchAxis(node.inputs[0]);
    const SymbolicShape from = Fixed(node.inputs[0]), to = Fixed(node.outputs[0]);
    if (axis < 0) return absl::OkStatus();
    if (!to.has_rank() || to.rank() == 0) return Unimplemented("its result's rank is not known");
    // The first entry of 1 among those that the batch's dimension becomes. Or the first part of
    // what it is joined with, such as heads.
    int at = 0;
    std::optional<int64_t> before = 1;
    for (int i = 0; i < axis && before; ++i) {
      before = from.has_rank() && from[i].known() ? std::optional(*before * from[i].value())
                                                  : std::nullopt;
    }
    const int64_t joined = from.has_rank() && from[axis].known() ? from[axis].value() : 1;
    int64_t entries = 1;
    for (int i = 0; i < to.rank() && before && entries <= *before * joined; ++i) {
      if (!to[i].known()) break;
      if (entries == *before && i + 1 < to.rank()) at = i;
      if (entries >= *before && to[i].value() == 1) {
        at = i;
        break;
      }
      entries *= to[i].value();
    }
    const auto given = IntegersInput(graph_, node, 1);
    if (!given) return OpenComputedShape(node, at);
    std::vector<int64_t> shape = *given;
    const bool copies = node.attributes.Int("allowzero", 0) == 0;
    for (int i = 0; i < to.rank(); ++i) {
      int64_t& entry = shape[static_cast<size_t>(i)];
      if (entry == 0 && copies && i == axis) return absl::OkStatus();  // the batch's own
      if (i == at || entry != -1) continue;
      if (!to[i].known()) return Unimplemented("it deduces another dimension than the batch");
      entry = to[i].value();
    }
    shape[static_cast<size_t>(at)] = -1;
    node.inputs[1] = Ints(node, shape);
    return absl::OkStatus();
  }

  Status OpenComputedShape(Node& node, int at) {
    const auto& entries = ValueOf(node.inputs[1]).elements;
    for (size_t i = 0; entries && i < entries->size(); ++i) {
      const Dim& entry = (*entries)[i];
      if (entry.known() && entry.value() < 1) return absl::OkStatus();  // the proof decides
      if (static_cast<int>(i) == at && entry.is_symbol()) return absl::OkStatus();
    }
    if (!entries) return Unimplemented("the shape it is given cannot be followed");
    std::vector<ValueId> parts;
    const auto take = [&](int64_t from, int64_t to) -> Status {
      CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId part, Emit(node, "Slice",
                                                          {node.inputs[1], Ints(node, {from}),
                                                           Ints(node, {to}), Ints(node, {0})}));
      parts.push_back(part);
      return absl::OkStatus();
    };
    if (at > 0) {
      CHAIRLIFT_RETURN_IF_ERROR(take(0, at));
    }
    parts.push_back(Ints(node, {-1}));
    if (at + 1 < static_cast<int>(entries->size())) {
      CHAIRLIFT_RETURN_IF_ERROR(take(at + 1, std::numeric_limits<int64_t>::max()));
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(node.inputs[1],
                               Emit(node, "Concat", parts, Attribute("axis", int64_t{0})));
    return absl::OkStatus();
  }

  // The size of `rows` along `axis`, [1].
  StatusOr<ValueId> Count(const Node& node, ValueId rows, int axis) {
    Attributes which = Attribute("start", int64_t{axis});
    which.Set("end", int64_t{axis} + 1);
    return Emit(node, "Shape", {rows}, which);
  }

  // `id`, which has one entry along its axis `axis`, once for each row of `rows`.
  StatusOr<ValueId> Repeated(const Node& node, ValueId id, int axis, ValueId rows, int of_rows) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId count, Count(node, rows, of_rows));
    const auto ones = [&](int64_t n) {
      return Ints(node, std::vector<int64_t>(static_cast<size_t>(n), 1));
    };
    const int behind = ValueOf(id).shape.rank() - axis - 1;
    CHAIRLIFT_ASSIGN_OR_RETURN(
        const ValueId shape,
        Emit(node, "Concat", {ones(axis), count, ones(behind)}, Attribute("axis", int64_t{0})));
    return Emit(node, "Expand", {id, shape});
  }

  // Repeats operands for each row: those that are joined to rows, such as a token before those of
  // an image, and those that rows pick from.
  Status RepeatOthers(Node& node) {
    ValueId rows = kNoValue;
    for (const ValueId id : node.inputs) {
      if (BatchAxis(id) == 0 && ValueOf(id).shape[0].Same(Dim::Symbol(kLiftedBatch))) rows = id;
    }
    if (rows == kNoValue || node.attributes.Int("axis", 0) == 0) return absl::OkStatus();
    for (ValueId& id : node.inputs) {
      const SymbolicShape& shape = ValueOf(id).shape;
      if (!shape.has_rank() || shape.rank() == 0 || !shape[0].known() || shape[0].value() != 1) {
        continue;
      }
      CHAIRLIFT_ASSIGN_OR_RETURN(id, Repeated(node, id, 0, rows, 0));
    }
    return absl::OkStatus();
  }

  // mask[0, places], where the 0 stands for the only row: the same places in each row.
  Status PickInRows(Node& node) {
    const Value& index = ValueOf(node.inputs[1]);
    const int rank = index.shape.has_rank() ? index.shape.rank() : 0;
    if (BatchAxis(node.inputs[0]) != 0 || node.attributes.Int("batch_dims", 0) != 0 ||
        !index.is_constant() || index.dtype != DType::kInt64 || rank < 2) {
      return absl::OkStatus();
    }
    const Shape& shape = index.constant.shape();
    const int64_t width = shape[rank - 1], count = width == 0 ? 0 : index.constant.size() / width;
    if (shape[0] != 1 || width < 2) return absl::OkStatus();
    std::vector<int64_t> dims(shape.begin(), shape.end());
    dims.back() = width - 1;
    Tensor places = Tensor::Allocate(DType::kInt64, Shape(dims));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t* from = index.constant.data<int64_t>() + i * width;
      if (from[0] != 0) return absl::OkStatus();
      std::copy_n(from + 1, width - 1, places.data<int64_t>() + i * (width - 1));
    }
    const ValueId in_row =
        AddConstant(graph_, fmt::format("{}/batch/{}", node.name, graph_.values.size()), places);
    CHAIRLIFT_ASSIGN_OR_RETURN(node.inputs[1], Repeated(node, in_row, 0, node.inputs[0], 0));
    node.attributes.Set("batch_dims", int64_t{1});
    return absl::OkStatus();
  }

  Status OpenSizes(Node& node) {
    const auto sizes = IntegersInput(graph_, node, 3);
    if (!sizes || sizes->empty() || (*sizes)[0] != 1 || node.attributes.Has("axes") ||
        BatchAxis(node.inputs[0]) != 0) {
      return absl::OkStatus();
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId count, Count(node, node.inputs[0], 0));
    CHAIRLIFT_ASSIGN_OR_RETURN(
        node.inputs[3],
        Emit(node, "Concat", {count, Ints(node, {sizes->begin() + 1, sizes->end()})},
             Attribute("axis", int64_t{0})));
    return absl::OkStatus();
  }

  // States that a recurrent layer begins with.
  Status RepeatStates(Node& node) {
    const int axis = node.attributes.Int("layout", 0) == 0 ? 1 : 0;
    for (size_t i = 5; i < node.inputs.size() && i < 7; ++i) {
      ValueId& id = node.inputs[i];
      if (id == kNoValue) continue;
      const SymbolicShape& shape = ValueOf(id).shape;
      if (!shape.has_rank() || shape.rank() != 3 || !shape[axis].known()) continue;
      if (ValueOf(id).is_constant() && IsZero(ValueOf(id).constant)) {
        id = kNoValue;  // the default
      } else {
        CHAIRLIFT_ASSIGN_OR_RETURN(id, Repeated(node, id, axis, node.inputs[0], axis));
      }
    }
    return absl::OkStatus();
  }

  const Graph& fixed_;
  Graph graph_;
  InferBudget budget_;
};

}  // namespace

StatusOr<Graph> LiftBatch(const Graph& graph) { return Lifter(graph).Lift(); }

}  // namespace chairlift
