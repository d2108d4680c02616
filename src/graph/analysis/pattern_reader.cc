// The rules for patterns, one per operator.
#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "graph/analysis/node_reader.h"
#include "graph/analysis/pattern.h"
#include "graph/evaluate.h"
#include "graph/passes/rewrite.h"
#include "ops/axis_map.h"

namespace chairlift::analysis {
namespace {

// More than the length of any axis.
constexpr int64_t kEndless = int64_t{1} << 30;

// Changes the lines that the elements follow from, which `change` may refuse.
template <typename Change>
bool ChangeLines(Pattern& pattern, const Change& change) {
  return change(pattern.line) &&
         std::all_of(pattern.conditions.begin(), pattern.conditions.end(), change);
}

// A renumbering of axes that follow `before` others: they count from 0, and the others are removed.
std::vector<int> Behind(size_t before, size_t axes) {
  std::vector<int> to(before + axes, -1);
  for (size_t i = 0; i < axes; ++i) to[before + i] = static_cast<int>(i);
  return to;
}

std::vector<int> Shifted(size_t axes, int by) {
  std::vector<int> to(axes);
  for (size_t i = 0; i < axes; ++i) to[i] = static_cast<int>(i) + by;
  return to;
}

// The elements of `data` at places[i] along axis i. Places are lines over the axes of the result,
// which has dimensions `dims`. Columns keep an axis of their own.
std::optional<Pattern> ElementsAt(const Pattern& data, const std::vector<Line>& places, Dims dims) {
  Pattern result = data;
  if (data.column >= 0) {
    const Line& column = places[static_cast<size_t>(data.column)];
    const std::vector<int> axes = column.axes();
    if (axes.size() != 1 || column != Line::Index(axes[0])) return std::nullopt;
    result.column = axes[0];
  }
  const std::vector<int> shifted = Shifted(dims.size(), data.rank());
  const std::vector<int> behind = Behind(data.dims.size(), dims.size());
  const bool followed = ChangeLines(result, [&](Line& line) {
    for (const int axis : line.axes()) {
      const auto with = line.With(axis, places[static_cast<size_t>(axis)].Moved(shifted));
      if (!with) return false;
      line = *with;
    }
    line = line.Moved(behind);
    return true;
  });
  if (!followed) return std::nullopt;
  result.dims = std::move(dims);
  return result;
}

// With axis i as axis to[i]; −1: it is removed, or its only entry repeated.
StatusOr<Pattern> MovedAxes(const Pattern& data, const std::vector<int>& to, Dims dims) {
  std::vector<Line> places;
  places.reserve(to.size());
  for (const int axis : to) places.push_back(axis < 0 ? Line() : Line::Index(axis));
  auto moved = ElementsAt(data, places, std::move(dims));
  return moved ? StatusOr<Pattern>(*std::move(moved))
               : Unimplemented("what it does to columns is not followed");
}

// Broadcasts as for operands of elementwise operators: axes count from the last. An index along an
// axis of one entry is 0.
StatusOr<Pattern> BroadcastTo(const Pattern& from, const Dims& dims) {
  std::vector<int> to = Shifted(from.dims.size(), static_cast<int>(dims.size()) - from.rank());
  for (size_t i = 0; i < to.size(); ++i) {
    if (from.dims[i].is_one()) to[i] = -1;
  }
  return MovedAxes(from, to, dims);
}

// The place in row-major order among the entries of `axes`, which are numbered from `first` on.
std::optional<Line> PlaceAmong(const Dims& dims, const std::vector<int>& axes, int first) {
  std::optional<Line> place = Line(), stride = Line::Number(1);
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    const auto own = Line::Product(Line::Index(*axis + first), *stride);
    place = own ? Line::Sum(*place, *own) : std::nullopt;
    stride = Line::Product(*stride, dims[static_cast<size_t>(*axis)]);
    if (!place || !stride) return std::nullopt;
  }
  return place;
}

// The same elements in the same order. Lines along axes that are joined follow from the place in
// the joined one.
StatusOr<Pattern> InShape(const Pattern& data, Dims dims) {
  Pattern result = data;
  result.dims = std::move(dims);
  if (data.uniform()) return result;
  const auto groups = GroupAxes(data.dims, result.dims);
  bool followed = groups.has_value();
  for (size_t i = 0; followed && i < groups->size(); ++i) {
    const AxisGroup& group = (*groups)[i];
    const std::vector<int> from = WideAxes(data.dims, group.from, group.from_end);
    const std::vector<int> to = WideAxes(result.dims, group.to, group.to_end);
    const auto before = PlaceAmong(data.dims, from, 0);
    const auto after = PlaceAmong(result.dims, to, data.rank());
    followed = before && after;
    if (std::find(from.begin(), from.end(), data.column) != from.end()) {
      followed = followed && from.size() == 1 && to.size() == 1;
      if (followed) result.column = to[0];
    }
    followed = followed && ChangeLines(result, [&](Line& line) {
                 if (from.empty()) return true;
                 const auto along = [&](const Line& of) {
                   return std::any_of(from.begin(), from.end(),
                                      [&](int axis) { return of.depends_on(axis); });
                 };
                 if (!along(line)) return true;
                 const int mark = std::exchange(line.mark, -1);
                 const auto times = line.Multiple(from.back());
                 const auto own = times ? Line::Product(*times, *before) : std::nullopt;
                 const auto there = times ? Line::Product(*times, *after) : std::nullopt;
                 const auto rest = own ? Line::Sum(line, *own, -1) : std::nullopt;
                 const auto all = rest && there ? Line::Sum(*rest, *there) : std::nullopt;
                 if (!all || along(*rest)) return false;
                 line = *all;
                 line.mark = mark;
                 return true;
               });
  }
  if (!followed) return Unimplemented("its effect on axes is not known");
  const std::vector<int> behind = Behind(data.dims.size(), result.dims.size());
  ChangeLines(result, [&](Line& line) {
    line = line.Moved(behind);
    return true;
  });
  return result;
}

// The same for places that must be known to be within the axes; for a uniform value, any will do.
StatusOr<Pattern> ReadAt(const Pattern& data, const std::vector<Line>& places, Dims dims) {
  for (int axis = 0; axis < data.rank() && !data.uniform(); ++axis) {
    const Line& place = places[static_cast<size_t>(axis)];
    const auto beyond = Line::Sum(place, data.dims[static_cast<size_t>(axis)], -1);
    const auto least = place.Least(dims), most = beyond ? beyond->Most(dims) : std::nullopt;
    if (!least || *least < 0 || !most || *most >= 0) {
      return Unimplemented("its indices are not known to be within axis {}", axis);
    }
  }
  auto read = data.is_curve() || data.is_slopes() ? std::nullopt
                                                  : ElementsAt(data, places, std::move(dims));
  if (!read) return Unimplemented("its places are not followed");
  if (read->is_table()) read->Simplify();
  return *std::move(read);
}

// A list of one element as a uniform value.
Pattern SpreadOne(Pattern pattern) {
  if (pattern.kind == Pattern::Kind::kList && pattern.list.size() == 1) {
    return Pattern::OfLine(pattern.dtype, pattern.dims, pattern.list[0]);
  }
  return pattern;
}

// Whether condition ≥ 0.
Pattern OfCondition(Dims dims, Line condition) {
  Pattern pattern;
  pattern.kind = Pattern::Kind::kTable;
  pattern.dtype = DType::kBool;
  pattern.dims = std::move(dims);
  pattern.conditions = {std::move(condition)};
  pattern.table = Tensor::Of<bool>({2}, {false, true});
  pattern.Simplify();
  return pattern;
}

// Elementwise operators over lines, by name.
StatusOr<Line> LineOf(const std::string& op, const std::vector<Line>& in) {
  std::optional<Line> result;
  if (op == "Identity" || op == "Cast") result = in[0];
  if (op == "Add") result = Line::Sum(in[0], in[1]);
  if (op == "Sub") result = Line::Sum(in[0], in[1], -1);
  if (op == "Neg") result = Line::Sum(Line(), in[0], -1);
  if (op == "Mul") result = Line::Product(in[0], in[1]);
  if (op == "Div") result = Line::Quotient(in[0], in[1]);
  if (!result) return Unimplemented("what it computes of sizes is not followed");
  return *result;
}

// The condition under which a comparison of lines holds. All sides are whole numbers.
std::optional<Line> Holds(const std::string& op, const Line& a, const Line& b) {
  std::optional<Line> difference = Line::Sum(a, b, -1);
  if (!difference) return std::nullopt;
  if (op == "GreaterOrEqual") return difference;
  if (op == "Greater") return Line::Sum(*difference, Line::Number(1), -1);
  if (op == "LessOrEqual") return Line::Sum(Line(), *difference, -1);
  if (op == "Less") return Line::Sum(Line::Number(-1), *difference, -1);
  return std::nullopt;
}

// The inputs and attributes of a rule's node.
class Arguments : public NodeReader {
 public:
  Arguments(const Graph& graph, const Node& node, const PatternReader& reader)
      : NodeReader(graph, node) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      patterns_.push_back(reader.In(node, i));
      elements_.push_back(patterns_[i].Elements());
    }
  }

  StatusOr<Dims> DimsOf(int i) const override {
    if (has(i) && of(i).kind != Pattern::Kind::kUnknown) return of(i).dims;
    return Unimplemented("its input {} is not known", i);
  }
  const Dims* Elements(int i) const override {
    return has(i) && elements_[static_cast<size_t>(i)] ? &*elements_[static_cast<size_t>(i)]
                                                       : nullptr;
  }

 private:
  const Pattern& of(int i) const { return patterns_[static_cast<size_t>(i)]; }
  SymbolicShape ShapeOf(int i) const override {
    if (of(i).kind == Pattern::Kind::kUnknown) return NodeReader::ShapeOf(i);
    std::vector<Dim> dims;
    for (const Line& dim : of(i).dims) {
      dims.push_back(dim.is_number() ? Dim(dim.number) : Dim::Unknown());
    }
    return SymbolicShape(std::move(dims));
  }

  std::vector<Pattern> patterns_;
  std::vector<std::optional<Dims>> elements_;
};

}  // namespace

std::optional<Dims> PatternReader::DimsOf(ValueId id) const {
  if (of(id).kind != Pattern::Kind::kUnknown) return of(id).dims;
  const SymbolicShape& shape = graph_.values[static_cast<size_t>(id)].shape;
  if (!shape.has_rank()) return std::nullopt;
  Dims dims;
  for (const Dim& dim : shape.dims()) {
    const auto size = SizeOf(dim);
    if (!size) return std::nullopt;
    dims.push_back(*size);
  }
  return dims;
}

std::optional<Line> PatternReader::SizeOf(const Dim& dim) {
  if (dim.known()) return Line::Number(dim.value());
  if (!dim.is_symbol()) return std::nullopt;
  if (dim.symbol() == Size::kTotal) return Line::Total();
  const auto size = Line::OfSymbol(dim.symbol(), Size::kBatch);
  const bool own =
      size && !size->has_others({Size::kBatch, Size::kNew, Size::kPast, Size::kSource});
  return own ? size : std::nullopt;
}

std::optional<Dim> PatternReader::DimOf(const Line& size) {
  if (size.is_number()) return Dim(size.number);
  for (const char* name : {Size::kBatch, Size::kNew, Size::kPast, Size::kTotal, Size::kSource}) {
    const Dim dim = Dim::Symbol(name);
    if (SizeOf(dim) == size) return dim;
  }
  return std::nullopt;
}

void PatternReader::NameDims(ValueId id, Graph& graph) const {
  SymbolicShape& shape = graph.values[static_cast<size_t>(id)].shape;
  const Pattern& pattern = of(id);
  if (pattern.kind == Pattern::Kind::kUnknown || !shape.has_rank() ||
      pattern.rank() != shape.rank()) {
    return;
  }
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto dim = DimOf(pattern.dims[static_cast<size_t>(axis)]);
    if (dim) shape[axis] = *dim;
  }
}

void PatternReader::TakeSizes(ValueId id, const std::optional<Dims>& elements) {
  const Value& value = graph_.values[static_cast<size_t>(id)];
  if (of(id).known() || value.is_constant() || !elements || elements->empty() ||
      !value.shape.has_rank() || value.shape.rank() > 1 || !IsInteger(value.dtype) ||
      !std::all_of(elements->begin(), elements->end(),
                   [](const Line& size) { return size.Least({}) || size.Most({}); })) {
    return;
  }
  Set(id, Pattern::OfElements(value.dtype, value.shape.rank(), *elements));
}

Pattern PatternReader::In(const Node& node, size_t i) const {
  if (i >= node.inputs.size() || node.inputs[i] == kNoValue) return {};
  const Value& value = graph_.values[static_cast<size_t>(node.inputs[i])];
  return value.is_constant() ? Pattern::OfConstant(value.constant) : of(node.inputs[i]);
}

std::optional<Dims> PatternReader::ElementsOf(const Node& node, size_t i) const {
  return In(node, i).Elements();
}

Status PatternReader::Visit(const Node& node) {
  if (!node.def->deterministic || !node.def->domain.empty() || node.def->runs_bodies ||
      node.outputs.size() != 1 || node.outputs[0] == kNoValue) {
    return Unimplemented("it is not followed");
  }
  StatusOr<Pattern> followed = Follow(node);
  if (followed.ok()) {
    followed->dtype = TypeOf(node);
    if (!followed->Exact()) followed = Unimplemented("its numbers may be too large for their type");
  }
  if (!followed.ok()) {
    auto dims = IsElementwise(*node.def) ? SpreadDims(node) : std::nullopt;
    if (!dims) return followed.status();
    Pattern shaped;
    shaped.kind = Pattern::Kind::kShaped;
    shaped.dtype = TypeOf(node);
    shaped.dims = *std::move(dims);
    Set(node.outputs[0], std::move(shaped));
    return followed.status();
  }
  Pattern pattern = *std::move(followed);
  if (!pattern.known() && pattern.kind != Pattern::Kind::kTuples) {
    return Unimplemented("it is not followed");
  }
  Set(node.outputs[0], std::move(pattern));
  return absl::OkStatus();
}

std::optional<Dims> PatternReader::SpreadDims(const Node& node) const {
  std::optional<Dims> dims = Dims();
  for (size_t i = 0; dims && i < node.inputs.size(); ++i) {
    const ValueId id = node.inputs[i];
    const Pattern own = In(node, i);
    const auto of_input = own.known() ? own.dims : id == kNoValue ? std::nullopt : DimsOf(id);
    dims = of_input ? BroadcastDims(*dims, *of_input) : std::nullopt;
  }
  return dims;
}

StatusOr<Pattern> PatternReader::Follow(const Node& node) {
  const std::string& op = node.def->name;
  if (node.def->gives_sizes) {
    const auto dims = DimsOf(node.inputs[0]);
    if (!dims) return Unimplemented("the shape of its input is not known");
    CHAIRLIFT_ASSIGN_OR_RETURN(Dims sizes, SizesOf(node, *dims));
    return Pattern::OfElements(DType::kInt64, op == "Size" ? 0 : 1, std::move(sizes));
  }
  using Rule = StatusOr<Pattern> (PatternReader::*)(const Node&);
  static const std::map<std::string, Rule, std::less<>> kRules = {
      {"Concat", &PatternReader::Concat},   {"CumSum", &PatternReader::CumSum},
      {"Expand", &PatternReader::Expand},   {"Flatten", &PatternReader::Reshape},
      {"Gather", &PatternReader::Gather},   {"GatherND", &PatternReader::GatherND},
      {"Range", &PatternReader::Range},     {"ReduceSum", &PatternReader::ReduceSum},
      {"Reshape", &PatternReader::Reshape}, {"ScatterND", &PatternReader::ScatterND},
      {"Slice", &PatternReader::Slice},     {"Squeeze", &PatternReader::Move},
      {"Tile", &PatternReader::Tile},       {"Transpose", &PatternReader::Move},
      {"Trilu", &PatternReader::Trilu},     {"Unsqueeze", &PatternReader::Move}};
  if (const auto rule = kRules.find(op); rule != kRules.end()) return (this->*rule->second)(node);
  if (op == "ConstantOfShape") {
    const auto dims = ElementsOf(node, 0);
    if (!dims) return Unimplemented("its shape is not known");
    const Tensor* value = node.attributes.Find<Tensor>("value");
    return Pattern::Uniform(*dims, value == nullptr ? Tensor::Of<float>({1}, {0.0f}) : *value);
  }
  if (!IsElementwise(*node.def)) return Unimplemented("it is not followed");
  if (const auto slopes = TimesSlopes(node)) return *slopes;
  if (const Pattern condition = op == "Where" ? In(node, 0) : Pattern(); condition.uniform()) {
    const Pattern taken = In(node, condition.table.data<bool>()[0] ? 1 : 2);
    const auto dims = SpreadDims(node);
    if (taken.known() && taken.kind != Pattern::Kind::kList && dims) {
      return BroadcastTo(taken, *dims);
    }
  }
  std::vector<Pattern> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    inputs.push_back(In(node, i));
  }
  const bool curves = std::any_of(inputs.begin(), inputs.end(),
                                  [](const Pattern& input) { return input.is_curve(); });
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& value = graph_.values[static_cast<size_t>(node.inputs[i])];
    if (curves && !inputs[i].known() && value.is_constant()) {
      inputs[i] = Pattern::OfColumns(value.constant);
    }
    if (!inputs[i].known()) return Unimplemented("its input {} is not known", i);
  }
  return Elementwise(node, std::move(inputs));
}

StatusOr<Pattern> PatternReader::Elementwise(const Node& node, std::vector<Pattern> inputs) {
  const std::string& op = node.def->name;
  bool lists = false, lines = true;
  std::optional<Dims> dims = Dims();
  for (Pattern& input : inputs) {
    input = SpreadOne(std::move(input));
    if (input.dtype == DType::kBool) input = input.AsTable().value_or(input);
    lists |= input.kind == Pattern::Kind::kList;
    if (dims) dims = BroadcastDims(*dims, input.dims);
  }
  if (lists) return OfLists(node, inputs);
  if (!dims) return Unimplemented("the shapes of its inputs do not fit");
  std::vector<Line> values;
  bool depends = false;  // on sizes or positions
  bool sums = false;
  for (Pattern& input : inputs) {
    CHAIRLIFT_ASSIGN_OR_RETURN(input, BroadcastTo(input, *dims));
    const auto line = input.AsLine();
    lines &= line.has_value();
    values.push_back(line.value_or(Line()));
    depends |= input.is_curve() || (input.is_line() && !input.line.is_number());
    sums |= input.is_sum();
  }
  if (sums) return OfSum(node, inputs, *std::move(dims));
  if (!depends) return Tables(node, inputs, *std::move(dims));
  if (lines && op == "Equal") {
    const auto difference = Line::Sum(values[0], values[1], -1);
    const auto least = difference ? difference->Least(*dims) : std::nullopt;
    const auto most = difference ? difference->Most(*dims) : std::nullopt;
    const bool always = least == 0 && most == 0;
    if (!always && !(least && *least > 0) && !(most && *most < 0)) {
      return Unimplemented("whether its inputs are equal depends on sizes");
    }
    return Pattern::Uniform(*std::move(dims), Tensor::Of<bool>({1}, {always}));
  }
  if (lines && values.size() == 2) {
    if (const auto condition = Holds(op, values[0], values[1])) {
      return OfCondition(*std::move(dims), *condition);
    }
  }
  if (op == "Where" && inputs[0].uniform()) return inputs[inputs[0].table.data<bool>()[0] ? 1 : 2];
  const DType to = TypeOf(node);
  if (lines && (IsInteger(to) || to == DType::kFloat)) {
    StatusOr<Line> line = LineOf(op, values);
    if (line.ok()) return Pattern::OfLine(to, *std::move(dims), *std::move(line));
  }
  StatusOr<Pattern> curve = Curve(node, inputs, *dims);
  if (curve.ok() || std::none_of(inputs.begin(), inputs.end(),
                                 [](const Pattern& input) { return input.is_curve(); })) {
    return curve;
  }
  StatusOr<Pattern> sum = OfSum(node, inputs, *std::move(dims));
  return sum.ok() ? sum : curve;
}

// Element by element.
StatusOr<Pattern> PatternReader::OfLists(const Node& node, const std::vector<Pattern>& inputs) {
  size_t count = 1;
  std::vector<std::vector<Line>> elements;
  for (const Pattern& input : inputs) {
    const auto own = input.Elements();
    if (!own || own->empty()) return Unimplemented("its inputs are not followed");
    if (own->size() > 1 && count > 1 && own->size() != count) {
      return Unimplemented("the shapes of its inputs do not fit");
    }
    count = std::max(count, own->size());
    elements.push_back(*own);
  }
  std::vector<Line> list;
  for (size_t i = 0; i < count; ++i) {
    std::vector<Pattern> one;
    for (size_t j = 0; j < inputs.size(); ++j) {
      const Line& element = elements[j][elements[j].size() == 1 ? 0 : i];
      one.push_back(Pattern::OfLine(inputs[j].dtype, {}, element));
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(const Pattern result, Elementwise(node, std::move(one)));
    const auto line = result.AsLine();
    if (!line) return Unimplemented("its elements are not followed");
    list.push_back(*line);
  }
  return Pattern::OfList(TypeOf(node), std::move(list));
}

// Computed by the operator itself for each case of the conditions.
StatusOr<Pattern> PatternReader::Tables(const Node& node, const std::vector<Pattern>& inputs,
                                        Dims dims) {
  Pattern result;
  result.kind = Pattern::Kind::kTable;
  result.dims = std::move(dims);
  std::vector<Pattern> tables;
  for (const Pattern& input : inputs) {
    auto table = input.AsTable();
    if (!table) return Unimplemented("numbers of type {} are not followed", DTypeName(input.dtype));
    for (const Line& condition : table->conditions) {
      if (std::find(result.conditions.begin(), result.conditions.end(), condition) ==
          result.conditions.end()) {
        result.conditions.push_back(condition);
      }
    }
    tables.push_back(*std::move(table));
  }
  if (result.conditions.size() > kMostConditions) {
    return Unimplemented("it depends on too many conditions");
  }
  const int64_t count = int64_t{1} << result.conditions.size();
  std::vector<Tensor> arguments;
  for (const Pattern& table : tables) {
    Tensor argument = Tensor::Allocate(table.table.dtype(), {count});
    for (int64_t m = 0; m < count; ++m) {
      int64_t own = 0;
      for (size_t i = 0; i < table.conditions.size(); ++i) {
        const auto at =
            std::find(result.conditions.begin(), result.conditions.end(), table.conditions[i]) -
            result.conditions.begin();
        own |= (m >> at & 1) << i;
      }
      CopyElement(table.table, own, argument, m);
    }
    arguments.push_back(std::move(argument));
  }
  WeightCache weights;
  SoloTeam team;
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Tensor> computed,
                             EvaluateNode(node, arguments, weights, team, 0));
  if (computed[0].size() != count) return Unimplemented("it is not followed");
  result.dtype = computed[0].dtype();
  result.table = computed[0].Clone();
  result.Simplify();
  return result;
}

StatusOr<Pattern> PatternReader::Slice(const Node& node) {
  const Arguments c(graph_, node, *this);
  Pattern data = In(node, 0);
  if (!data.known()) return Unimplemented("its input is not known");
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto cuts, c.Cuts());
  if (data.kind == Pattern::Kind::kList) {
    if (cuts.size() != 1 || !cuts[0].step || *cuts[0].step < 1) {
      return Unimplemented("where it cuts a list is not known");
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> starts, c.Numbers(1));
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> ends, c.Numbers(2));
    const auto size = static_cast<int64_t>(data.list.size());
    const auto hold = [size](int64_t i) {
      return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size);
    };
    if (starts[0] < -size || ends[0] < -size) return Unimplemented("it has no such element");
    std::vector<Line> part;
    for (int64_t i = hold(starts[0]); i < hold(ends[0]); i += std::min(*cuts[0].step, size)) {
      part.push_back(data.list[static_cast<size_t>(i)]);
    }
    return Pattern::OfList(data.dtype, std::move(part));
  }
  for (const NodeReader::Cut& cut : cuts) {
    if (!cut.start || !cut.end) return Unimplemented("where it cuts is not known");
    if (cut.step != 1) return Unimplemented("its step is not 1");
    Line& dim = data.dims[static_cast<size_t>(cut.axis)];
    // Valid as long as there are no more tokens than a constant has entries.
    const auto limits = [&](const std::optional<Line>& taken) {
      if (!dim.is_number() || (taken != Line::Total() && taken != Line::Of(Size::kNew))) {
        return false;
      }
      LimitTokens(dim.number);
      return true;
    };
    // Negative numbers count from the end. For other lines the sign is known. A place before the
    // first entry is the first entry; where that depends on sizes, the line does not hold.
    const auto place = [&](const Line& at) -> std::optional<Line> {
      if (const auto least = at.Least({}); least && *least >= 0) return at;
      const auto most = at.Most({});
      const auto behind = most && *most < 0 ? Line::Sum(dim, at) : std::nullopt;
      if (behind && behind->is_negative()) return Line();
      const auto least = behind ? behind->Least({}) : std::nullopt;
      return least && *least >= 0 ? behind : std::nullopt;
    };
    auto start = place(*cut.start);
    // As many of the last entries as there are tokens.
    if (!start && limits(Line::Sum(dim, *cut.start, -1))) start = cut.start;
    auto end = cut.end->is_number() && cut.end->number >= kEndless ? dim : place(*cut.end);
    const auto beyond = start && end ? Line::Sum(*end, dim, -1) : std::nullopt;
    if (!beyond) return Unimplemented("where it cuts depends on sizes");
    if (const auto least = beyond->Least({}); least && *least >= 0) {
      end = dim;
    } else if (const auto most = beyond->Most({}); (!most || *most > 0) && !limits(end)) {
      return Unimplemented("whether it reaches the end depends on sizes");
    }
    const auto length = Line::Sum(*end, *start, -1);
    const auto least = length ? length->Least({}) : std::nullopt;
    if (!least || *least < 0) return Unimplemented("what it takes may be none");
    std::vector<Line> places;
    places.reserve(data.dims.size());
    for (int axis = 0; axis < data.rank(); ++axis) places.push_back(Line::Index(axis));
    const auto shifted = Line::Sum(Line::Index(cut.axis), *start);
    Dims dims = data.dims;
    dims[static_cast<size_t>(cut.axis)] = *length;
    places[static_cast<size_t>(cut.axis)] = shifted.value_or(Line());
    auto part = shifted ? ElementsAt(data, places, std::move(dims)) : std::nullopt;
    if (!part) return Unimplemented("where it cuts is not known");
    data = *std::move(part);
  }
  if (data.is_table()) data.Simplify();
  return data;
}

// For a list: one or several elements. Otherwise along one axis, at positions that are a line.
StatusOr<Pattern> PatternReader::Gather(const Node& node) {
  Pattern data = In(node, 0);
  const Pattern index = SpreadOne(In(node, 1));
  if (index.is_curve() && node.attributes.Int("axis", 0) == 0) {
    const Value& rows = graph_.values[static_cast<size_t>(node.inputs[0])];
    if (!rows.is_constant()) return Unimplemented("its input 0 is not constant");
    return GatherByCurve(rows.constant, index);
  }
  if (!data.known()) return Unimplemented("its input 0 is not known");
  const int64_t given = node.attributes.Int("axis", 0);
  const int axis = static_cast<int>(given < 0 ? given + data.rank() : given);
  if (axis < 0 || axis >= data.rank()) return Unimplemented("it has no axis {}", given);
  if (data.kind == Pattern::Kind::kList) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> places,
                               Arguments(graph_, node, *this).Numbers(1));
    std::vector<Line> list;
    const auto count = static_cast<int64_t>(data.list.size());
    for (const int64_t place : places) {
      if (place < -count || place >= count) return Unimplemented("it has no element {}", place);
      list.push_back(data.list[static_cast<size_t>(place < 0 ? place + count : place)]);
    }
    if (index.rank() == 0) return Pattern::OfLine(data.dtype, {}, list[0]);
    return Pattern::OfList(data.dtype, std::move(list));
  }
  const auto of_index = index.known() ? std::optional(index.dims) : DimsOf(node.inputs[1]);
  const auto place = index.known() ? index.AsLine() : std::nullopt;
  if (!of_index || (!place && !data.uniform())) {
    return Unimplemented("its places are not followed");
  }
  Dims dims = data.dims;
  dims.erase(dims.begin() + axis);
  dims.insert(dims.begin() + axis, of_index->begin(), of_index->end());
  std::vector<Line> places;
  places.reserve(data.dims.size());
  for (int i = 0; i < data.rank(); ++i) {
    places.push_back(i < axis   ? Line::Index(i)
                     : i > axis ? Line::Index(i + index.rank() - 1)
                     : !place   ? Line()
                                : place->Moved(Shifted(of_index->size(), axis)));
  }
  return ReadAt(data, places, std::move(dims));
}

// Single elements, at the places that stand side by side in the last dimension of its input 1.
StatusOr<Pattern> PatternReader::GatherND(const Node& node) {
  const Pattern data = SpreadOne(In(node, 0));
  const Pattern& places = of(node.inputs[1]);
  if (!data.known() || data.kind == Pattern::Kind::kList || places.kind != Pattern::Kind::kTuples ||
      places.list.size() != data.dims.size() || node.attributes.Int("batch_dims", 0) != 0) {
    return Unimplemented("its places are not followed");
  }
  return ReadAt(data, places.list, {places.dims.begin(), places.dims.end() - 1});
}

StatusOr<Pattern> PatternReader::Range(const Node& node) {
  const auto start = ElementsOf(node, 0), end = ElementsOf(node, 1), step = ElementsOf(node, 2);
  const auto one = [](const auto& elements) { return elements && elements->size() == 1; };
  if (!one(start) || !one(end) || !one(step) || (*step)[0] != Line::Number(1) ||
      !IsInteger(TypeOf(node))) {
    return Unimplemented("where it begins and ends is not known");
  }
  const auto count = Line::Sum((*end)[0], (*start)[0], -1);
  const auto line = Line::Sum(Line::Index(0), (*start)[0]);
  const auto least = count ? count->Least({}) : std::nullopt;
  if (!line || !least || *least < 0) return Unimplemented("where it ends is not known");
  return Pattern::OfLine(TypeOf(node), {*count}, *line);
}

// And Flatten.
StatusOr<Pattern> PatternReader::Reshape(const Node& node) {
  Pattern data = In(node, 0);
  if (!data.known()) return Unimplemented("its input is not known");
  const auto given = ElementsOf(node, 1);
  if (data.kind == Pattern::Kind::kList) {
    if (given && given->size() == 1) return data;
    if (data.list.size() != 1) return Unimplemented("its effect on a list is not known");
    data = SpreadOne(std::move(data));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(Dims dims, Reshaped(node, data.dims, given ? &*given : nullptr));
  return InShape(data, std::move(dims));
}

StatusOr<Pattern> PatternReader::Expand(const Node& node) {
  const Pattern data = SpreadOne(In(node, 0));
  const auto wanted = ElementsOf(node, 1);
  if (!data.known() || !wanted || data.kind == Pattern::Kind::kList) {
    return Unimplemented("its inputs are not known");
  }
  const auto dims = BroadcastDims(data.dims, *wanted);
  if (!dims) return Unimplemented("its shape does not fit");
  return BroadcastTo(data, *dims);
}

// For lists, or for values that can be tables, such as a mask of earlier tokens and one of new
// ones.
StatusOr<Pattern> PatternReader::Concat(const Node& node) {
  if (const auto tuples = ConcatTuples(node)) return *tuples;
  if (const auto lines = ConcatLines(node)) return *lines;
  if (In(node, 0).rank() > 1) return ConcatTables(node);
  std::vector<Line> list;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Pattern input = In(node, i);
    const auto elements = input.rank() == 1 ? input.Elements() : std::nullopt;
    if (!elements) return Unimplemented("its input {} is not a list of sizes", i);
    list.insert(list.end(), elements->begin(), elements->end());
  }
  return Pattern::OfList(TypeOf(node), std::move(list));
}

// Integers of rank > 1 whose parts continue each other, such as −1 before 0, 1, 2, ….
std::optional<Pattern> PatternReader::ConcatLines(const Node& node) const {
  std::optional<Pattern> joined;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    Pattern part = In(node, i);
    const auto own =
        part.known() && IsInteger(part.dtype) && part.rank() > 1 ? part.AsLine() : std::nullopt;
    const int64_t given = node.attributes.Int("axis", 0);
    const int64_t at = given < 0 ? given + part.rank() : given;
    if (!own || at < 0 || at >= part.rank()) return std::nullopt;
    const auto axis = static_cast<int>(at);
    const Line one = Line::Number(1), size = part.dims[static_cast<size_t>(at)];
    auto line = size == one ? own->With(axis, Line()) : own;
    if (!line) return std::nullopt;
    if (!joined) {
      joined = Pattern::OfLine(part.dtype, part.dims, *line);
      continue;
    }
    Line& all = joined->dims[static_cast<size_t>(at)];
    part.dims[static_cast<size_t>(at)] = all;
    const auto behind = Line::Sum(Line::Index(axis), all, -1);
    // The line of the part, counted from the first part on.
    const auto moved = behind ? line->With(axis, *behind) : std::nullopt;
    const auto sum = Line::Sum(all, size);
    if (part.dims != joined->dims || part.dtype != joined->dtype || !moved || !sum) {
      return std::nullopt;
    }
    // One entry is on a line of any step.
    if (all == one && moved->With(axis, Line()) == joined->line) {
      joined->line = *moved;
    } else if (*moved != joined->line && !(size == one && joined->line.With(axis, all) == *line)) {
      return std::nullopt;
    }
    all = *sum;
  }
  return joined;
}

StatusOr<Pattern> PatternReader::ConcatTables(const Node& node) {
  std::optional<Pattern> joined;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Pattern input = In(node, i);
    const auto part = input.known() ? input.AsTable() : std::nullopt;
    if (!part) return Unimplemented("its input {} is not followed", i);
    if (!joined) {
      joined = part;
      continue;
    }
    const int64_t given = node.attributes.Int("axis", 0);
    const auto axis = static_cast<size_t>(given < 0 ? given + joined->rank() : given);
    Dims dims = joined->dims, others = part->dims;
    if (dims.size() != others.size() || axis >= dims.size() || part->dtype != joined->dtype) {
      return Unimplemented("the shapes of its inputs do not fit");
    }
    const Line before = dims[axis];
    const auto all = Line::Sum(before, others[axis]);
    others[axis] = before;
    // In a later part, the index counts from the end of the earlier parts.
    const auto place = Line::Sum(Line::Index(static_cast<int>(axis)), before, -1);
    if (dims != others || !all || !place) {
      return Unimplemented("the shapes of its inputs do not fit");
    }
    dims[axis] = *all;
    const size_t own = joined->conditions.size(), more = part->conditions.size();
    if (own + more + 1 > kMostConditions) {
      return Unimplemented("it depends on too many conditions");
    }
    Pattern both = *joined;
    both.dims = std::move(dims);
    for (const Line& condition : part->conditions) {
      const auto moved = condition.With(static_cast<int>(axis), *place);
      if (!moved) return Unimplemented("its input {} is not followed", i);
      both.conditions.push_back(*moved);
    }
    both.conditions.push_back(*place);
    const int64_t count = int64_t{1} << both.conditions.size();
    both.table = Tensor::Allocate(joined->table.dtype(), {count});
    for (int64_t m = 0; m < count; ++m) {
      const bool behind = (m >> (own + more) & 1) != 0;
      const int64_t of_part = m >> own & ((int64_t{1} << more) - 1);
      const int64_t of_own = m & ((int64_t{1} << own) - 1);
      CopyElement(behind ? part->table : joined->table, behind ? of_part : of_own, both.table, m);
    }
    both.Simplify();
    joined = std::move(both);
  }
  return *joined;
}

// For ones.
StatusOr<Pattern> PatternReader::CumSum(const Node& node) {
  const Pattern data = SpreadOne(In(node, 0));
  const auto one = data.AsLine();
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> given,
                             Arguments(graph_, node, *this).Numbers(1));
  const int64_t own = given.empty() ? 0 : given[0] < 0 ? given[0] + data.rank() : given[0];
  if (!one || !one->is_number() || own < 0 || own >= data.rank() || !IsInteger(TypeOf(node)) ||
      node.attributes.Int("reverse", 0) != 0) {
    return Unimplemented("what it adds up is not followed");
  }
  Line line = *Line::Product(Line::Index(static_cast<int>(own)), *one);
  if (node.attributes.Int("exclusive", 0) == 0) line = *Line::Sum(line, *one);
  return Pattern::OfLine(TypeOf(node), data.dims, line);
}

// Along one axis, for a single number.
StatusOr<Pattern> PatternReader::ReduceSum(const Node& node) {
  const Pattern data = SpreadOne(In(node, 0));
  const auto one = data.known() ? data.AsLine() : std::nullopt;
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> axes,
                             Arguments(graph_, node, *this).Numbers(1));
  const int64_t own = axes.size() != 1 ? -1 : axes[0] < 0 ? axes[0] + data.rank() : axes[0];
  if (!one || !one->is_number() || own < 0 || own >= data.rank() || !IsInteger(TypeOf(node))) {
    return Unimplemented("what it adds up is not followed");
  }
  Dims dims = data.dims;
  const auto sum = Line::Product(dims[static_cast<size_t>(own)], *one);
  if (!sum) return Unimplemented("what it adds up is not followed");
  if (node.attributes.Int("keepdims", 1) != 0) {
    dims[static_cast<size_t>(own)] = Line::Number(1);
  } else {
    dims.erase(dims.begin() + own);
  }
  return Pattern::OfLine(TypeOf(node), std::move(dims), *sum);
}

// Along axes of one entry.
StatusOr<Pattern> PatternReader::Tile(const Node& node) {
  const Pattern data = SpreadOne(In(node, 0));
  const auto repeats = ElementsOf(node, 1);
  if (!data.known() || data.kind == Pattern::Kind::kList || !repeats ||
      repeats->size() != data.dims.size()) {
    return Unimplemented("its inputs are not known");
  }
  Dims dims = data.dims;
  for (size_t i = 0; i < dims.size(); ++i) {
    const Line& times = (*repeats)[i];
    const auto least = times.Least({});
    if (times == Line::Number(1)) continue;
    if (dims[i] != Line::Number(1) || !least || *least < 1) {
      return Unimplemented("what it repeats is more than one entry");
    }
    dims[i] = times;
  }
  return BroadcastTo(data, dims);
}

StatusOr<Pattern> PatternReader::Trilu(const Node& node) {
  const Pattern data = SpreadOne(In(node, 0));
  std::vector<Line> diagonal = {Line::Number(0)};
  if (node.inputs.size() > 1 && node.inputs[1] != kNoValue) {
    const auto given = ElementsOf(node, 1);
    if (!given || given->size() != 1) return Unimplemented("its diagonal is not known");
    diagonal = *given;
  }
  const auto table = data.known() ? data.AsTable() : std::nullopt;
  if (!table || data.rank() < 2 || table->conditions.size() >= kMostConditions) {
    return Unimplemented("what it cuts is not followed");
  }
  // Upper: column − row − k ≥ 0. Lower: row + k − column ≥ 0.
  const int row = data.rank() - 2;
  const auto across = Line::Sum(Line::Index(row + 1), Line::Index(row), -1);
  auto condition = Line::Sum(*across, diagonal[0], -1);
  if (condition && node.attributes.Int("upper", 1) == 0) {
    condition = Line::Sum(Line(), *condition, -1);
  }
  if (!condition) return Unimplemented("its diagonal is not known");
  Pattern cut = *table;
  const int64_t count = int64_t{1} << cut.conditions.size();
  cut.conditions.push_back(*condition);
  cut.table = Tensor::Allocate(table->table.dtype(), {2 * count});
  std::memset(cut.table.raw(), 0, cut.table.byte_size());
  for (int64_t m = 0; m < count; ++m) CopyElement(table->table, m, cut.table, count + m);
  cut.Simplify();
  return cut;
}

StatusOr<Pattern> PatternReader::Move(const Node& node) {
  const Arguments c(graph_, node, *this);
  const Pattern data = SpreadOne(In(node, 0));
  if (!data.known() || data.kind == Pattern::Kind::kList) {
    return Unimplemented("its input is not known");
  }
  if (Is(node, "Squeeze") && !c.has(1)) {
    Dims others = data.dims;
    std::erase_if(others, [](const Line& dim) { return dim.is_one(); });
    if (std::all_of(others.begin(), others.end(),
                    [](const Line& dim) { return dim.is_number(); })) {
      return InShape(data, std::move(others));
    }
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const AxisMap map, c.Axes());
  Dims dims(map.outputs[0].labels.size(), Line::Number(1));
  std::vector<int> to;
  for (int axis = 0; axis < data.rank(); ++axis) {
    const int label = map.inputs[0].Label(axis);
    to.push_back(label == AxisMap::kNone ? -1 : map.outputs[0].AxisOf(label));
    const Line& dim = data.dims[static_cast<size_t>(axis)];
    if (to.back() >= 0) {
      dims[static_cast<size_t>(to.back())] = dim;
    } else if (!dim.is_one()) {
      return Unimplemented("axis {} is not known to have one entry", axis);
    }
  }
  return MovedAxes(data, to, std::move(dims));
}

}  // namespace chairlift::analysis
