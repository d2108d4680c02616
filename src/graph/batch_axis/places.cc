#include "graph/batch_axis/places.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace chairlift::batch_axis {

using analysis::Pattern;

bool Places::DependsOnBatch(const Line& line, int axis) const {
  return line.batch() > 0 || (axis >= 0 && line.depends_on(axis));
}

int Places::OwnAxis(const Line& line, const Pattern& pattern, int64_t inner) const {
  for (const int axis : line.axes()) {
    if (line.along(axis) != inner || pattern.dims[static_cast<size_t>(axis)] != Line::Batch()) {
      continue;
    }
    const auto within = Line::Sum(line, Line::Index(axis), -inner);
    const auto least = within ? within->Least(pattern.dims) : std::nullopt;
    const auto most = within ? within->Most(pattern.dims) : std::nullopt;
    const bool own =
        least && *least >= 0 && most && *most < inner && !DependsOnBatch(*within, axis);
    return own ? axis : -1;
  }
  return -1;
}

void Places::Read(const Node& node) {
  const auto known = [&](ValueId id) {
    return id == kNoValue || graph_.values[static_cast<size_t>(id)].is_constant() ||
           reader_.of(id).kind != Pattern::Kind::kUnknown;
  };
  if (node.def->gives_sizes && !known(node.inputs[0])) {
    const StatusOr<Dims> dims = Context(graph_, node, symbol_, states_).DimsOf(0);
    if (!dims.ok()) return;
    Pattern shaped;
    shaped.kind = Pattern::Kind::kShaped;
    shaped.dims = *dims;
    reader_.Set(node.inputs[0], std::move(shaped));
  }
  for (const ValueId id : node.inputs) {
    if (id == kNoValue) continue;
    reader_.TakeSizes(id, states_[static_cast<size_t>(id)].elements);
  }
  if (std::all_of(node.inputs.begin(), node.inputs.end(), known)) (void)reader_.Visit(node);
}

bool Places::Knows(const Node& node) const {
  return node.outputs.size() == 1 && node.outputs[0] != kNoValue &&
         reader_.of(node.outputs[0]).kind != Pattern::Kind::kUnknown;
}

State Places::StateOf(const Pattern& pattern) const {
  State places = State::Shared();
  places.kind = State::Kind::kPlaces;
  if (!pattern.known() && pattern.kind != Pattern::Kind::kTuples) return places;
  if (const auto elements = pattern.Elements()) return State::Of(*elements);
  int axis = -1;
  for (int i = 0; i < pattern.rank(); ++i) {
    const Line& dim = pattern.dims[static_cast<size_t>(i)];
    if (!DependsOnBatch(dim, -1)) continue;
    if (axis >= 0 || dim != Line::Batch()) return places;
    axis = i;
  }
  const auto depends = [&](const Line& line) { return DependsOnBatch(line, axis); };
  if (depends(pattern.line) || (axis >= 0 && pattern.column == axis) ||
      std::any_of(pattern.list.begin(), pattern.list.end(), depends) ||
      std::any_of(pattern.conditions.begin(), pattern.conditions.end(), depends)) {
    return places;
  }
  return axis < 0 ? State::Shared() : State::Rows(axis);
}

std::optional<Places::Pick> Places::PickOf(ValueId id) const {
  const State& state = states_[static_cast<size_t>(id)];
  if (state.kind == State::Kind::kPicks) return Pick{state.axis, state.column};
  const Pattern& pattern = reader_.of(id);
  if (pattern.kind != Pattern::Kind::kTuples) return std::nullopt;
  std::optional<Pick> pick;
  for (size_t i = 0; i < pattern.list.size(); ++i) {
    const int axis = OwnAxis(pattern.list[i], pattern);
    if (axis >= 0 && !pick) pick = {axis, static_cast<int>(i)};
  }
  for (size_t i = 0; pick && i < pattern.list.size(); ++i) {
    const bool own = static_cast<int>(i) == pick->column;
    if (!own && DependsOnBatch(pattern.list[i], pick->axis)) pick.reset();
  }
  return pick;
}

bool Places::PlainRows(ValueId id, int axis) const {
  const State& state = states_[static_cast<size_t>(id)];
  return state.rows() && state.axis == axis && state.outer.is_one() && state.inner.is_one();
}

// The row's number beside numbers that follow from the row, for GatherND and ScatterND.
std::optional<State> Places::Concat(const Context& c) const {
  const StatusOr<int> rank = c.OutputRank(0);
  const StatusOr<int> axis = c.OwnAxis(0);
  if (!rank.ok() || !axis.ok() || *axis != *rank - 1) return std::nullopt;
  State picks = State::Shared();
  picks.kind = State::Kind::kPicks;
  int64_t column = 0;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const SymbolicShape& shape = graph_.values[static_cast<size_t>(c.id(i))].shape;
    if (c.in(i).kind == State::Kind::kPlaces) {
      const Pattern& pattern = reader_.of(c.id(i));
      const int own = pattern.is_line() ? OwnAxis(pattern.line, pattern) : -1;
      if (own < 0 || picks.column >= 0 || pattern.dims.back() != Line::Number(1)) {
        return std::nullopt;
      }
      picks.axis = own;
      picks.column = static_cast<int>(column++);
    } else if (shape.has_rank() && shape.rank() == *rank && shape[*axis].known()) {
      column += shape[*axis].value();
    } else {
      return std::nullopt;
    }
  }
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.in(i).kind != State::Kind::kPlaces && !PlainRows(c.id(i), picks.axis)) {
      return std::nullopt;
    }
  }
  return picks;
}

// Each row at its own number, or entries of its own block, as exporters read strided views.
std::optional<State> Places::Gather(const Context& c) const {
  const StatusOr<int> axis = c.OwnAxis(0);
  const Pattern& index = reader_.of(c.id(1));
  const State& data = c.in(0);
  if (!axis.ok() || !data.rows() || data.axis != *axis || !data.outer.is_one() ||
      !data.inner.is_number() || !index.is_line()) {
    return std::nullopt;
  }
  const int own = OwnAxis(index.line, index, data.inner.number);
  return own < 0 ? std::nullopt : std::optional(State::Rows(*axis + own));
}

std::optional<State> Places::GatherElements(const Context& c) const {
  const StatusOr<int> axis = c.OwnAxis(0);
  const Pattern& index = reader_.of(c.id(1));
  const int own = index.is_line() ? OwnAxis(index.line, index) : -1;
  if (!axis.ok() || own != *axis || !PlainRows(c.id(0), *axis)) return std::nullopt;
  return State::Rows(*axis);
}

std::optional<State> Places::GatherNd(const Context& c) const {
  const auto pick = PickOf(c.id(1));
  if (!pick || c.attributes().Int("batch_dims", 0) != 0 || !PlainRows(c.id(0), pick->column)) {
    return std::nullopt;
  }
  return State::Rows(pick->axis);
}

std::optional<State> Places::ScatterNd(const Context& c) const {
  const auto pick = PickOf(c.id(1));
  if (!pick || !PlainRows(c.id(0), pick->column) || !PlainRows(c.id(2), pick->axis)) {
    return std::nullopt;
  }
  return State::Rows(pick->column);
}

Status Places::Follow(const Node& node) {
  const Context c(graph_, node, symbol_, states_);
  std::optional<State> state;
  bool rows = false, numbers = false;
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!c.has(i)) continue;
    const Pattern& pattern = reader_.of(c.id(i));
    rows |= c.in(i).rows();
    numbers |= c.in(i).kind == State::Kind::kPicks ||
               (c.in(i).places() && (!pattern.is_line() || !pattern.line.axes().empty()));
  }
  // A pattern of rows that knows only their shape is not enough.
  if (Knows(node) && (!rows || reader_.of(node.outputs[0]).kind != Pattern::Kind::kShaped)) {
    state = StateOf(reader_.of(node.outputs[0]));
  } else if (node.def->domain.empty() && node.outputs.size() == 1 && node.outputs[0] != kNoValue) {
    const std::string& op = node.def->name;
    if (op == "Concat") state = Concat(c);
    if (op == "Gather") state = Gather(c);
    if (op == "GatherElements") state = GatherElements(c);
    if (op == "GatherND") state = GatherNd(c);
    if (op == "ScatterND") state = ScatterNd(c);
  }
  if (!state && !numbers) return Unimplemented("it computes with the batch size");
  if (!state) {
    return Unimplemented(
        "it computes with the numbers of rows, and is not known to keep rows apart");
  }
  states_[static_cast<size_t>(node.outputs[0])] = *std::move(state);
  return absl::OkStatus();
}

}  // namespace chairlift::batch_axis
