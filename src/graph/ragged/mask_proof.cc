#include "graph/ragged/mask_proof.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "graph/batch_axis.h"
#include "graph/batch_axis/propagate.h"
#include "graph/evaluate.h"
#include "graph/passes/rewrite.h"
#include "graph/ragged/form.h"
#include "graph/ragged/grid.h"

namespace chairlift::ragged {
namespace {

using batch_axis::State;

// Larger than any dimension.
constexpr int64_t kEndless = kMaxBatchRows;

// One node, as its rule sees it.
class Reader : public batch_axis::NodeReader {
 public:
  Reader(const Graph& graph, const Node& node, const std::vector<Grid>& grids,
         const std::vector<batch_axis::State>& states)
      : NodeReader(graph, node), grids_(grids), states_(states) {}

  const Grid& in(int i) const { return grids_[static_cast<size_t>(id(i))]; }
  DType dtype(int i) const { return graph().values[static_cast<size_t>(id(i))].dtype; }
  StatusOr<std::vector<Extent>> Dims(int i) const override {
    if (in(i).dims) return *in(i).dims;
    if (!in(i).why.empty()) return Unimplemented("{}", in(i).why);
    return Unimplemented("the shape of its input {} is not known", i);
  }
  const std::vector<Extent>* Elements(int i) const override {
    if (!has(i)) return nullptr;
    const auto& elements = states_[static_cast<size_t>(id(i))].elements;
    return elements ? &*elements : nullptr;
  }

 private:
  const std::vector<Grid>& grids_;
  const std::vector<batch_axis::State>& states_;
};

Status Unfollowed(const Reader& reader) {
  for (int i = 0; i < reader.num_inputs(); ++i) {
    if (reader.has(i) && !reader.in(i).why.empty()) return Unimplemented("{}", reader.in(i).why);
  }
  return Unimplemented("it computes with places");
}

// --- Elementwise operators -----------------------------------------------------------------------

// A comparison of places with the same result for all of them.
std::optional<bool> Compared(std::string_view op, const Place& a, const Place& b,
                             const std::vector<Extent>& dims) {
  const std::optional<Place> apart = Place::Sum(a, b, -1);
  if (!apart) return std::nullopt;
  const std::optional<int64_t> least = apart->Least(dims), most = apart->Most(dims);
  const auto decided = [](bool yes, bool no) {
    return yes ? std::optional(true) : no ? std::optional(false) : std::nullopt;
  };
  if (op == "Less") return decided(most && *most < 0, least && *least >= 0);
  if (op == "LessOrEqual") return decided(most && *most <= 0, least && *least > 0);
  if (op == "Greater") return decided(least && *least > 0, most && *most <= 0);
  if (op == "GreaterOrEqual") return decided(least && *least >= 0, most && *most < 0);
  if (op == "Equal") {
    return decided(least && most && *least == 0 && *most == 0,
                   (least && *least > 0) || (most && *most < 0));
  }
  return std::nullopt;
}

Grid Decided(bool value, std::vector<Extent> dims) {
  return Grid::OfBits(Tensor::Of<bool>(Shape{2}, {value, value}), std::move(dims));
}

// For places, if the result is a place or does not depend on them.
std::optional<Grid> OnPlaces(const Reader& reader, const std::vector<Grid>& operands,
                             const std::vector<Extent>& dims) {
  std::vector<Place> places;
  for (const Grid& operand : operands) {
    const std::optional<Place> place = operand.AsPlace();
    if (!place) return std::nullopt;
    places.push_back(*place);
  }
  const std::string_view op = reader.op();
  if (places.size() == 1) {
    const bool kept =
        op == "Identity" || (op == "Cast" && reader.attributes().Int("to", 0) == 7);  // int64
    return kept ? std::optional(Grid::OfPlace(places[0], dims)) : std::nullopt;
  }
  if (places.size() != 2) return std::nullopt;
  if (const auto compared = Compared(op, places[0], places[1], dims)) {
    return Decided(*compared, dims);
  }
  std::optional<Place> result;
  if (op == "Add") result = Place::Sum(places[0], places[1]);
  if (op == "Sub") result = Place::Sum(places[0], places[1], -1);
  if (op == "Mul") result = Place::Product(places[0], places[1]);
  return result ? std::optional(Grid::OfPlace(*std::move(result), dims)) : std::nullopt;
}

// A function of bits that depend on one mark: computed for both values.
StatusOr<Grid> OnBits(const Reader& reader, const std::vector<Grid>& operands,
                      const std::vector<Extent>& dims) {
  Grid result;
  result.kind = Grid::Kind::kBits;
  result.dims = dims;
  std::vector<Tensor> arguments;
  size_t next = 0;
  for (int i = 0; i < reader.num_inputs(); ++i) {
    if (!reader.has(i)) {
      arguments.emplace_back();
      continue;
    }
    const std::optional<Grid> bits = operands[next++].AsBits(reader.dtype(i));
    if (!bits) return Unfollowed(reader);
    arguments.push_back(bits->bits);
    if (bits->constant()) continue;
    if (result.batch >= 0 && (result.batch != bits->batch || result.length != bits->length ||
                              result.input != bits->input)) {
      return Unimplemented("it joins marks of different tokens or inputs");
    }
    result.batch = bits->batch;
    result.length = bits->length;
    result.input = bits->input;
  }
  WeightCache weights;
  SoloTeam team;
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> computed,
                             EvaluateNode(reader.node(), arguments, weights, team, 0));
  if (computed[0].shape() != Shape{2}) return Unimplemented("it does not work element by element");
  result.bits = computed[0].Clone();
  return result;
}

StatusOr<Grid> Elementwise(const Reader& reader) {
  std::vector<Extent> dims;
  for (int i = 0; i < reader.num_inputs(); ++i) {
    if (!reader.has(i)) continue;
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> own, reader.Dims(i));
    const auto joined = BroadcastDims(dims, own);
    if (!joined) {
      return Unimplemented("its operands are {} and {}", batch_axis::ToString(dims),
                           batch_axis::ToString(own));
    }
    dims = *joined;
  }
  std::vector<Grid> operands;
  for (int i = 0; i < reader.num_inputs(); ++i) {
    if (reader.has(i)) operands.push_back(reader.in(i).Broadcast(dims));
  }
  // A Where that always takes the same branch.
  if (reader.op() == "Where" && operands[0].constant() &&
      operands[0].bits.dtype() == DType::kBool) {
    return operands[operands[0].bits.data<bool>()[0] ? 1 : 2];
  }
  if (const auto places = OnPlaces(reader, operands, dims)) return *places;
  StatusOr<Grid> bits = OnBits(reader, operands, dims);
  if (bits.ok()) return bits;
  return Grid::Unknown(fmt::format("{}: {}", reader.node().Describe(), Message(bits.status())),
                       dims);
}

// --- Operators that move elements ----------------------------------------------------------------

// Axes that move, or that are added or removed, which must be 1.
StatusOr<Grid> Move(const Reader& reader) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> from, reader.Dims(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const AxisMap map, reader.Axes());
  std::vector<int> to;
  std::vector<Extent> dims(map.outputs[0].labels.size());
  for (size_t i = 0; i < from.size(); ++i) {
    const int label = map.inputs[0].labels[i];
    to.push_back(label == AxisMap::kNone ? -1 : map.outputs[0].AxisOf(label));
    if (to[i] >= 0) {
      dims[static_cast<size_t>(to[i])] = from[i];
    } else if (!from[i].is_one()) {
      return Unimplemented("it drops more than one entry");
    }
  }
  return reader.in(0).Moved(to, std::move(dims));
}

StatusOr<Grid> Reshape(const Reader& reader) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> from, reader.Dims(0));
  if (reader.op() == "Flatten") {
    CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Extent> dims, reader.Flattened(from));
    return reader.in(0).Reshaped(std::move(dims));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(auto wanted, reader.Wanted(from));
  const auto all = Extent::Product(std::span<const Extent>(from));
  if (wanted.deduced) {
    const auto rest = all ? Extent::Quotient(*all, wanted.known) : std::nullopt;
    if (!rest) return Unimplemented("the open dimensions of its shape are not known");
    wanted.dims[*wanted.deduced] = *rest;
  } else if (all != wanted.known) {
    return Unimplemented("its shape does not fit");
  }
  return reader.in(0).Reshaped(std::move(wanted.dims));
}

StatusOr<Grid> Expand(const Reader& reader) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> from, reader.Dims(0));
  const std::vector<Extent>* to = reader.Elements(1);
  const auto dims = to == nullptr ? std::nullopt : BroadcastDims(from, *to);
  if (!dims) return Unimplemented("what it expands to cannot be followed");
  return reader.in(0).Broadcast(*dims);
}

// Only slices that take everything.
StatusOr<Grid> Slice(const Reader& reader) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> from, reader.Dims(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto cuts, reader.Cuts());
  for (const auto& cut : cuts) {
    const bool to_end = cut.end && (*cut.end == from[static_cast<size_t>(cut.axis)] ||
                                    (cut.end->is_number() && cut.end->number() >= kEndless));
    if (cut.start != 0 || cut.step != 1 || !to_end) {
      return Unimplemented("it takes a part of dimension {}", cut.axis);
    }
  }
  return reader.in(0);
}

StatusOr<Grid> Range(const Reader& reader) {
  const std::vector<Extent>* end = reader.Elements(1);
  const auto is = [&](int i, int64_t number) {
    const std::vector<Extent>* e = reader.Elements(i);
    return e != nullptr && e->size() == 1 && (*e)[0] == Extent::Number(number);
  };
  if (end == nullptr || end->size() != 1 || !SizeSum::Of((*end)[0]) || !is(0, 0) || !is(2, 1) ||
      (*end)[0].number() <= 0 || reader.dtype(1) != DType::kInt64) {
    return Unimplemented("it does not count from 0 to a size");
  }
  return Grid::OfPlace({.offset = {}, .steps = {{0, SizeSum::Number(1)}}}, {(*end)[0]});
}

StatusOr<Grid> ConstantOfShape(const Reader& reader) {
  const std::vector<Extent>* dims = reader.Elements(0);
  if (dims == nullptr) return Unimplemented("its shape cannot be followed");
  WeightCache weights;
  SoloTeam team;
  const Tensor two = Tensor::Of<int64_t>(Shape{1}, {2});
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> filled,
                             EvaluateNode(reader.node(), {&two, 1}, weights, team, 0));
  return Grid::OfBits(filled[0].Clone(), *dims);
}

// Places side by side along a last axis, for GatherND.
StatusOr<Grid> Concat(const Reader& reader) {
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Extent> dims, reader.Dims(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, reader.OwnAxis(0));
  Grid result;
  result.kind = Grid::Kind::kPlaces;
  for (int i = 0; i < reader.num_inputs(); ++i) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> own, reader.Dims(i));
    const auto place = reader.in(i).AsPlace();
    if (!place || own != dims || axis + 1 != static_cast<int>(dims.size()) ||
        !dims.back().is_one()) {
      return Unimplemented("what it joins cannot be followed");
    }
    result.places.push_back(*place);
  }
  dims.back() = Extent::Number(reader.num_inputs());
  result.dims = std::move(dims);
  return result;
}

// --- Operators that read at places ---------------------------------------------------------------

// Whether `place` visits each entry of a dimension of size `dim` once, along an axis of `dims`.
bool GoesThrough(const Place& place, const std::vector<Extent>& dims, const Extent& dim) {
  const int axis = place.OnlyAxis();
  return axis >= 0 && dims[static_cast<size_t>(axis)] == dim;
}

// For marks in a row: sequence b and token l are at b·length + l. `at`: the dimensions of the
// places, which are the result's axes from `first` on.
StatusOr<Grid> GatherFlat(const Grid& data, const Place& place, const std::vector<Extent>& at,
                          int first, std::vector<Extent> dims) {
  Grid result = data;
  result.batch = result.length = -1;
  for (const auto& [axis, step] : place.steps) {
    const Extent& dim = at[static_cast<size_t>(axis)];
    if (step == SizeSum::Number(1) && dim == Extent::Symbol(kLengthSymbol)) {
      result.length = first + axis;
    }
    if (step == SizeSum::Of(Extent::Symbol(kLengthSymbol)) && dim == Extent::Batch()) {
      result.batch = first + axis;
    }
  }
  if (!place.offset.is_zero() || place.steps.size() != 2 || result.batch < 0 || result.length < 0) {
    return Unimplemented("it reads other tokens than those of its own place");
  }
  result.dims = std::move(dims);
  return result;
}

StatusOr<Grid> Gather(const Reader& reader) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> from, reader.Dims(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> at, reader.Dims(1));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, reader.OwnAxis(0));
  const Grid& data = reader.in(0);
  const std::optional<Place> place = reader.in(1).AsPlace();
  if (!data.is_bits() || data.constant() || !place) return Unfollowed(reader);
  std::vector<Extent> dims = from;
  dims.erase(dims.begin() + axis);
  dims.insert(dims.begin() + axis, at.begin(), at.end());
  if (data.batch == data.length && axis == data.batch) {
    return GatherFlat(data, *place, at, axis, std::move(dims));
  }
  if (!GoesThrough(*place, at, from[static_cast<size_t>(axis)])) {
    return Unimplemented("it reads other tokens than those of its own place");
  }
  const int added = static_cast<int>(at.size()) - 1;
  std::vector<int> to(from.size());
  for (int i = 0; i < static_cast<int>(to.size()); ++i) {
    to[static_cast<size_t>(i)] = i < axis ? i : i == axis ? axis + place->OnlyAxis() : i + added;
  }
  return data.Moved(to, std::move(dims));
}

StatusOr<Grid> GatherNd(const Reader& reader) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> from, reader.Dims(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Extent> dims, reader.Dims(1));
  const Grid& data = reader.in(0);
  const Grid& at = reader.in(1);
  if (!data.is_bits() || data.constant() || at.kind != Grid::Kind::kPlaces) {
    return Unfollowed(reader);
  }
  if (reader.attributes().Int("batch_dims", 0) != 0 || at.places.size() != from.size()) {
    return Unimplemented("it reads more than one element at a place");
  }
  dims.pop_back();
  std::vector<int> to;
  for (size_t i = 0; i < from.size(); ++i) {
    if (!GoesThrough(at.places[i], dims, from[i])) {
      return Unimplemented("it reads other tokens than those of its own place");
    }
    to.push_back(at.places[i].OnlyAxis());
  }
  return data.Moved(to, std::move(dims));
}

using Rule = StatusOr<Grid> (*)(const Reader&);

const std::map<std::string, Rule, std::less<>>& Rules() {
  static const auto* const kRules = [] {
    auto* rules = new std::map<std::string, Rule, std::less<>>;
    (*rules)["CastLike"] = Elementwise;
    (*rules)["Concat"] = Concat;
    (*rules)["ConstantOfShape"] = ConstantOfShape;
    (*rules)["Expand"] = Expand;
    (*rules)["Flatten"] = Reshape;
    (*rules)["Gather"] = Gather;
    (*rules)["GatherND"] = GatherNd;
    (*rules)["Range"] = Range;
    (*rules)["Reshape"] = Reshape;
    (*rules)["Slice"] = Slice;
    (*rules)["Squeeze"] = Move;
    (*rules)["Transpose"] = Move;
    (*rules)["Unsqueeze"] = Move;
    return rules;
  }();
  return *kRules;
}

// The length varies as the batch does.
bool AllNumbers(const std::vector<Extent>& sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](const Extent& e) { return e.is_number(); });
}

class Proof {
 public:
  Proof(const Graph& graph, std::vector<State> states)
      : graph_(graph), links_(graph), states_(std::move(states)), grids_(graph.values.size()) {}

  StatusOr<MaskRule> Run(ValueId mask) {
    const std::vector<bool> needed = Needed(mask);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (!needed[n]) continue;
      const Node& node = graph_.nodes[n];
      StatusOr<Grid> grid = Visit(node);
      if (!grid.ok()) {
        const bool named = Message(grid.status()).starts_with("node ");
        grid =
            Grid::Unknown(named ? Message(grid.status())
                                : fmt::format("{}: {}", node.Describe(), Message(grid.status())));
      }
      for (const ValueId id : node.outputs) {
        if (id != kNoValue) grids_[static_cast<size_t>(id)] = *grid;
      }
    }
    return RuleOf(grids_[static_cast<size_t>(mask)]);
  }

 private:
  const std::optional<std::vector<Extent>>& sizes(ValueId id) const {
    return states_[static_cast<size_t>(id)].elements;
  }

  // The nodes that the mask depends on, without those of known sizes. Sets the grids that they
  // start from.
  std::vector<bool> Needed(ValueId mask) {
    std::vector<bool> needed(graph_.nodes.size(), false);
    std::vector<bool> seen(graph_.values.size(), false);
    std::vector<ValueId> open = {mask};
    while (!open.empty()) {
      const ValueId id = open.back();
      open.pop_back();
      if (id == kNoValue || seen[static_cast<size_t>(id)]) continue;
      seen[static_cast<size_t>(id)] = true;
      State& state = states_[static_cast<size_t>(id)];
      if (!state.elements) {
        state = batch_axis::Known(graph_.values[static_cast<size_t>(id)], kBatchSymbol);
      }
      if (state.elements && !AllNumbers(*state.elements)) state.kind = State::Kind::kSizes;
      const int producer = links_.producer(id);
      if (producer < 0 || state.elements) {
        grids_[static_cast<size_t>(id)] = Start(id);
        continue;
      }
      needed[static_cast<size_t>(producer)] = true;
      const std::vector<ValueId>& inputs = graph_.nodes[static_cast<size_t>(producer)].inputs;
      open.insert(open.end(), inputs.begin(), inputs.end());
    }
    return needed;
  }

  Grid Start(ValueId id) const {
    const Value& value = graph_.values[static_cast<size_t>(id)];
    if (value.is_constant()) return Grid::OfConstant(value.constant);
    if (sizes(id)) return OfSizes(id);
    const auto input = std::find(graph_.inputs.begin(), graph_.inputs.end(), id);
    if (input == graph_.inputs.end()) return Grid::Unknown("it is not computed");
    return Grid::OfInput(value, static_cast<int>(input - graph_.inputs.begin()));
  }

  Grid OfSizes(ValueId id) const {
    const Value& value = graph_.values[static_cast<size_t>(id)];
    if (!value.shape.has_rank() || value.shape.rank() > 1) return Grid::Unknown("it has sizes");
    return Grid::OfSizes(*sizes(id), value.shape.rank(), value.dtype);
  }

  StatusOr<Grid> Visit(const Node& node) {
    const bool followed = node.def->deterministic && node.def->domain.empty() &&
                          !node.def->runs_bodies && Subgraphs(node).empty() &&
                          node.outputs.size() == 1 && node.outputs[0] != kNoValue;
    if (!followed) return Unimplemented("it is not followed");
    const Reader reader(graph_, node, grids_, states_);
    if (node.def->gives_sizes) {
      CHAIRLIFT_RETURN_IF_ERROR(SizesOf(reader));
    } else if (batch_axis::ComputesSizes(node) && AllSizes(node)) {
      // The rules below may prove what this one cannot.
      State& state = states_[static_cast<size_t>(node.outputs[0])];
      const SymbolicShape& shape = graph_.values[static_cast<size_t>(node.outputs[0])].shape;
      const Status status = batch_axis::FollowSizes(graph_, node, kBatchSymbol, states_);
      if (!status.ok() || !shape.has_rank() || shape.rank() > 1) state = {};
    }
    if (sizes(node.outputs[0])) return OfSizes(node.outputs[0]);
    if (IsElementwise(*node.def)) return Elementwise(reader);
    const auto rule = Rules().find(node.def->name);
    return rule == Rules().end() ? Unimplemented("it is not followed") : rule->second(reader);
  }

  bool AllSizes(const Node& node) const {
    return std::all_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId id) { return id == kNoValue || sizes(id); });
  }

  Status SizesOf(const Reader& reader) {
    CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Extent> dims, reader.Dims(0));
    if (reader.op() == "Size") {
      const auto size = Extent::Product(std::span<const Extent>(dims));
      if (!size) return Unimplemented("its input is too large");
      dims = {*size};
    } else {
      const auto [start, end] =
          batch_axis::ShapeRange(reader.attributes(), static_cast<int64_t>(dims.size()));
      dims = {dims.begin() + start, dims.begin() + end};
    }
    State state = State::Of(std::move(dims));
    if (!AllNumbers(*state.elements)) state.kind = State::Kind::kSizes;
    states_[static_cast<size_t>(reader.node().outputs[0])] = std::move(state);
    return absl::OkStatus();
  }

  // For a value added to scores, [batch, heads, queries, keys].
  StatusOr<MaskRule> RuleOf(const Grid& grid) const {
    if (!grid.is_bits()) {
      return Unimplemented("cannot be followed: {}",
                           grid.why.empty() ? "it computes with places" : grid.why);
    }
    const std::vector<Extent>& dims = *grid.dims;
    const int first = 4 - static_cast<int>(dims.size());  // the position of its axis 0
    if (grid.bits.dtype() != DType::kFloat || first < 0) {
      return Unimplemented("is not float32 of rank 4");
    }
    for (int axis = 0; axis < static_cast<int>(dims.size()); ++axis) {
      const Extent& dim = dims[static_cast<size_t>(axis)];
      const int place = axis + first;
      const bool fits = dim.is_one() || (place == 0   ? dim == Extent::Batch()
                                         : place == 1 ? dim.is_number()
                                                      : dim == Extent::Symbol(kLengthSymbol));
      if (!fits) return Unimplemented("has the shape {}", batch_axis::ToString(dims));
    }
    const float hidden = grid.bits.data<float>()[0], shown = grid.bits.data<float>()[1];
    MaskRule rule;
    if (grid.input >= 0) rule.marks = {grid.input};
    if (shown != 0.0f) return Unimplemented("adds {} to keys that count", shown);
    if (hidden == 0.0f) return rule;
    if (grid.batch + first != 0 || grid.length + first != 3) {
      return Unimplemented("hides by something else than the key's own mark");
    }
    if (!(hidden <= -kHidingScore)) {
      return Unimplemented("adds {} where the mask is 0, which does not hide", hidden);
    }
    rule.input = grid.input;
    rule.hidden = hidden;
    return rule;
  }

  const Graph& graph_;
  const Links links_;
  std::vector<State> states_;
  std::vector<Grid> grids_;
};

}  // namespace

StatusOr<MaskRule> ProveMask(const Graph& graph, ValueId mask,
                             std::vector<batch_axis::State> states) {
  return Proof(graph, std::move(states)).Run(mask);
}

}  // namespace chairlift::ragged
