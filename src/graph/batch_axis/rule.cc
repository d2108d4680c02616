#include "graph/batch_axis/rule.h"

#include <algorithm>
#include <utility>

namespace chairlift::batch_axis {

State State::Of(Dims elements) {
  State s = Shared();
  if (std::any_of(elements.begin(), elements.end(), [](const Line& e) { return e.batch() > 0; })) {
    s.kind = Kind::kSizes;
  }
  s.elements = std::move(elements);
  return s;
}

Context::Context(const Graph& graph, const Node& node, const std::string& batch_symbol,
                 const std::vector<State>& states)
    : NodeReader(graph, node),
      batch_symbol_(batch_symbol),
      states_(states),
      outputs_(node.outputs.size(), State::Shared()) {}

bool Context::SharedFrom(int first) const {
  for (int i = first; i < num_inputs(); ++i) {
    if (!in(i).shared()) return false;
  }
  return true;
}

StatusOr<Dims> Context::DimsOf(int i) const {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, Rank(i));
  const SymbolicShape& shape = graph().values[id(i)].shape;
  const State& state = in(i);
  Dims dims;
  for (int axis = 0; axis < rank; ++axis) {
    if (state.rows() && axis == state.axis) {
      const Line factors[] = {state.outer, Line::Batch(), state.inner};
      const std::optional<Line> dim = Line::Product(factors);
      if (!dim) return Unimplemented("dimension {} of its input {} is too large", axis, i);
      dims.push_back(*dim);
    } else if (shape[axis].known()) {
      dims.push_back(Line::Number(shape[axis].value()));
    } else if (shape[axis].is_symbol()) {
      if (shape[axis].symbol() == batch_symbol_) {
        return Unimplemented("dimension {} of its input {} depends on the batch too", axis, i);
      }
      dims.push_back(Line::Of(shape[axis].symbol()));
    } else {
      dims.push_back(Line::Of(fmt::format("?{}.{}", id(i), axis)));
    }
  }
  return dims;
}

const Dims* Context::Elements(int i) const {
  const State& state = in(i);
  return state.elements ? &*state.elements : nullptr;
}

StatusOr<bool> Context::Flag(int i) const {
  const Value& value = graph().values[id(i)];
  if (!value.is_constant() || value.dtype != DType::kBool || value.constant.size() != 1) {
    return Unimplemented("its input {} is not a constant", i);
  }
  return value.constant.data<bool>()[0];
}

Status FollowAxes(Context& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const AxisMap map, c.Axes());
  const State* rows = nullptr;
  int label = AxisMap::kNone;
  bool any_unread = false;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const State& state = c.in(i);
    if (map.inputs[static_cast<size_t>(i)].unread) {
      any_unread = true;
      continue;
    }
    if (state.sizes()) return Unimplemented("it computes with the batch size");
    if (!state.rows()) continue;
    const int own = map.inputs[static_cast<size_t>(i)].Label(state.axis);
    if (own == AxisMap::kNone) return Unimplemented("it {} the batch", map.does);
    if (rows == nullptr) {
      rows = &state;
      label = own;
    } else if (own != label || !rows->SameRows(state)) {
      return Unimplemented("its inputs have the batch along different dimensions");
    }
  }
  if (rows == nullptr && any_unread) return absl::OkStatus();  // shared
  if (rows == nullptr) return Unimplemented("it computes with the batch size");
  for (int i = 0; i < c.num_inputs(); ++i) {
    const AxisMap::Operand& operand = map.inputs[static_cast<size_t>(i)];
    const int axis = operand.AxisOf(label);
    if (c.in(i).rows() || axis < 0) continue;
    CHAIRLIFT_ASSIGN_OR_RETURN(const Dims dims, c.DimsOf(i));
    const Line& dim = dims[static_cast<size_t>(axis)];
    if (!operand.broadcasts || !dim.is_one()) {
      return Unimplemented("its input {} has {} entries along the batch, whatever the batch size",
                           i, dim.ToString());
    }
  }
  for (int i = 0; i < c.num_outputs(); ++i) {
    if (c.node().outputs[static_cast<size_t>(i)] == kNoValue) continue;
    const int axis = map.outputs[static_cast<size_t>(i)].AxisOf(label);
    if (axis < 0) return Unimplemented("its output {} does not keep rows apart", i);
    c.Set(i, rows->At(axis));
  }
  return absl::OkStatus();
}

Status MixesRows() { return Unimplemented("it works along the batch"); }

}  // namespace chairlift::batch_axis
