#include "graph/batch_axis/rule.h"

#include <algorithm>
#include <utility>

namespace chairlift::batch_axis {

State State::Of(std::vector<Extent> elements) {
  State s = Shared();
  if (std::any_of(elements.begin(), elements.end(),
                  [](const Extent& e) { return e.batch() > 0; })) {
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

StatusOr<std::vector<Extent>> Context::Dims(int i) const {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, Rank(i));
  const SymbolicShape& shape = graph().values[id(i)].shape;
  const State& state = in(i);
  std::vector<Extent> dims;
  for (int axis = 0; axis < rank; ++axis) {
    if (state.rows() && axis == state.axis) {
      const Extent factors[] = {state.outer, Extent::Batch(), state.inner};
      const std::optional<Extent> dim = Extent::Product(factors);
      if (!dim) return Unimplemented("dimension {} of its input {} is too large", axis, i);
      dims.push_back(*dim);
    } else if (shape[axis].known()) {
      dims.push_back(Extent::Number(shape[axis].value()));
    } else if (shape[axis].is_symbol()) {
      if (shape[axis].symbol() == batch_symbol_) {
        return Unimplemented("dimension {} of its input {} depends on the batch too", axis, i);
      }
      dims.push_back(Extent::Symbol(shape[axis].symbol()));
    } else {
      dims.push_back(Extent::Symbol(fmt::format("?{}.{}", id(i), axis)));
    }
  }
  return dims;
}

const std::vector<Extent>* Context::Elements(int i) const {
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

Status MixesRows() { return Unimplemented("it works along the batch, over several rows"); }

}  // namespace chairlift::batch_axis
