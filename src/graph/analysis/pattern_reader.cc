// The rules for patterns, one per operator.
#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "graph/analysis/pattern.h"
#include "graph/batch_axis/node_reader.h"
#include "graph/evaluate.h"
#include "ops/axis_map.h"

namespace chairlift::analysis {
namespace {

// More than the length of any axis.
constexpr int64_t kEndless = int64_t{1} << 31;

std::optional<std::vector<Line>> BroadcastPatterns(const std::vector<Line>& a,
                                                   const std::vector<Line>& b) {
  const std::vector<Line>& more = a.size() >= b.size() ? a : b;
  const std::vector<Line>& fewer = a.size() >= b.size() ? b : a;
  std::vector<Line> dims = more;
  const size_t shift = more.size() - fewer.size();
  for (size_t i = 0; i < fewer.size(); ++i) {
    Line& dim = dims[shift + i];
    if (dim == fewer[i] || fewer[i] == Line::Number(1)) continue;
    if (dim != Line::Number(1)) return std::nullopt;
    dim = fewer[i];
  }
  return dims;
}

// The line with its axes renumbered by `to`; −1: the axis is removed and had one entry.
Line Moved(const Line& line, const std::vector<int>& to) {
  Line moved = line;
  moved.axes.clear();
  for (const auto& [axis, times] : line.axes) {
    const int place = to[static_cast<size_t>(axis)];
    if (place >= 0) moved.axes[place] = times;
  }
  if (line.sequence >= 0) moved.sequence = to[static_cast<size_t>(line.sequence)];
  return moved;
}

Pattern MovedAxes(const Pattern& from, const std::vector<int>& to, std::vector<Line> dims) {
  Pattern moved = from;
  moved.dims = std::move(dims);
  moved.line = Moved(from.line, to);
  if (from.column >= 0) moved.column = to[static_cast<size_t>(from.column)];
  for (Line& condition : moved.conditions) condition = Moved(condition, to);
  return moved;
}

// Broadcasts as for operands of elementwise operators: axes count from the last. An index along an
// axis of one entry is 0.
Pattern BroadcastTo(const Pattern& from, const std::vector<Line>& dims) {
  const int shift = static_cast<int>(dims.size()) - from.rank();
  std::vector<int> to(from.dims.size());
  for (int axis = 0; axis < from.rank(); ++axis) {
    const bool one = from.dims[static_cast<size_t>(axis)] == Line::Number(1);
    to[static_cast<size_t>(axis)] = one ? -1 : axis + shift;
  }
  return MovedAxes(from, to, dims);
}

// A list of one element as a uniform value.
Pattern SpreadOne(Pattern pattern) {
  if (pattern.kind == Pattern::Kind::kList && pattern.list.size() == 1) {
    return Pattern::OfLine(pattern.dtype, pattern.dims, pattern.list[0]);
  }
  return pattern;
}

// The number of entries of [batch, length], if it is that of a mask.
std::optional<Line> AllEntries(const Line& batch, const Line& length) {
  if (batch != Line::Of(Size::kBatch)) return std::nullopt;
  if (length == Line::Total()) return Line::Of(Size::kAll);
  if (length == Line::Of(Size::kNew)) return Line::Of(Size::kAllNew);
  if (length == Line::Of(Size::kSource)) return Line::Of(Size::kAllSource);
  return std::nullopt;
}

// Whether condition ≥ 0.
Pattern OfCondition(std::vector<Line> dims, Line condition) {
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

}  // namespace

std::optional<std::vector<Line>> PatternReader::Dims(ValueId id) const {
  if (of(id).kind != Pattern::Kind::kUnknown) return of(id).dims;
  const SymbolicShape& shape = graph_.values[static_cast<size_t>(id)].shape;
  if (!shape.has_rank()) return std::nullopt;
  std::vector<Line> dims;
  for (const Dim& dim : shape.dims()) {
    const auto size = SizeOf(dim);
    if (!size) return std::nullopt;
    dims.push_back(*size);
  }
  return dims;
}

std::optional<Line> PatternReader::SizeOf(const Dim& dim) {
  if (dim.known()) return Line::Number(dim.value());
  if (dim.symbol() == kBatch) return Line::Of(Size::kBatch);
  if (dim.symbol() == kNew) return Line::Of(Size::kNew);
  if (dim.symbol() == kPast) return Line::Of(Size::kPast);
  if (dim.symbol() == kTotal) return Line::Total();
  if (dim.symbol() == kSource) return Line::Of(Size::kSource);
  return std::nullopt;
}

std::optional<Dim> PatternReader::DimOf(const Line& size) {
  if (size.is_number()) return Dim(size.number);
  for (const char* name : {kBatch, kNew, kPast, kTotal, kSource}) {
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

Pattern PatternReader::In(const Node& node, size_t i) const {
  if (i >= node.inputs.size() || node.inputs[i] == kNoValue) return {};
  const Value& value = graph_.values[static_cast<size_t>(node.inputs[i])];
  return value.is_constant() ? Pattern::OfConstant(value.constant) : of(node.inputs[i]);
}

std::optional<std::vector<Line>> PatternReader::ElementsOf(const Node& node, size_t i) const {
  return In(node, i).Elements();
}

StatusOr<std::vector<int64_t>> PatternReader::NumbersOf(const Node& node, size_t i) const {
  const auto elements = ElementsOf(node, i);
  if (!elements) return Unimplemented("its input {} is not known", i);
  std::vector<int64_t> numbers;
  for (const Line& element : *elements) {
    if (!element.is_number()) return Unimplemented("its input {} depends on sizes", i);
    numbers.push_back(element.number);
  }
  return numbers;
}

Status PatternReader::Visit(const Node& node) {
  if (!node.def->deterministic || !node.def->domain.empty() || node.def->runs_bodies ||
      node.outputs.size() != 1 || node.outputs[0] == kNoValue) {
    return Unimplemented("it is not followed");
  }
  StatusOr<Pattern> followed = Follow(node);
  if (!followed.ok()) {
    SetShape(node);
    return followed.status();
  }
  Pattern pattern = *std::move(followed);
  pattern.dtype = TypeOf(node);
  if (!pattern.known() && pattern.kind != Pattern::Kind::kTuples) {
    return Unimplemented("it is not followed");
  }
  Set(node.outputs[0], std::move(pattern));
  return absl::OkStatus();
}

void PatternReader::SetShape(const Node& node) {
  if (!IsElementwise(*node.def)) return;
  std::optional<std::vector<Line>> dims = std::vector<Line>{};
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId id = node.inputs[i];
    const Pattern own = In(node, i);
    const auto of_input = own.known() ? own.dims : id == kNoValue ? std::nullopt : Dims(id);
    dims = dims && of_input ? BroadcastPatterns(*dims, *of_input) : std::nullopt;
  }
  if (!dims) return;
  Pattern shaped;
  shaped.kind = Pattern::Kind::kShaped;
  shaped.dtype = TypeOf(node);
  shaped.dims = *std::move(dims);
  Set(node.outputs[0], std::move(shaped));
}

StatusOr<Pattern> PatternReader::Follow(const Node& node) {
  const std::string& op = node.def->name;
  if (op == "Shape") {
    const auto dims = Dims(node.inputs[0]);
    if (!dims) return Unimplemented("the shape of its input is not known");
    const auto rank = static_cast<int64_t>(dims->size());
    const auto [start, end] = batch_axis::ShapeRange(node.attributes, rank);
    return Pattern::OfList(DType::kInt64, {dims->begin() + start, dims->begin() + end});
  }
  using Rule = StatusOr<Pattern> (PatternReader::*)(const Node&);
  static const std::map<std::string, Rule, std::less<>> kRules = {
      {"Concat", &PatternReader::Concat},       {"CumSum", &PatternReader::CumSum},
      {"Expand", &PatternReader::Expand},       {"Flatten", &PatternReader::Flatten},
      {"Gather", &PatternReader::Gather},       {"GatherND", &PatternReader::GatherND},
      {"Range", &PatternReader::Range},         {"ReduceSum", &PatternReader::ReduceSum},
      {"Reshape", &PatternReader::Reshape},     {"ScatterND", &PatternReader::ScatterND},
      {"Slice", &PatternReader::Slice},         {"Squeeze", &PatternReader::Squeeze},
      {"Transpose", &PatternReader::Transpose}, {"Tile", &PatternReader::Tile},
      {"Trilu", &PatternReader::Trilu},         {"Unsqueeze", &PatternReader::Unsqueeze}};
  if (const auto rule = kRules.find(op); rule != kRules.end()) return (this->*rule->second)(node);
  if (op == "ConstantOfShape") {
    const auto dims = ElementsOf(node, 0);
    if (!dims) return Unimplemented("its shape is not known");
    const Tensor* value = node.attributes.Find<Tensor>("value");
    return Pattern::Uniform(*dims, value == nullptr ? Tensor::Of<float>({1}, {0.0f}) : *value);
  }
  if (!IsElementwise(*node.def)) return Unimplemented("it is not followed");
  if (const auto slopes = TimesSlopes(node)) return *slopes;
  std::vector<Pattern> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    Pattern input = In(node, i);
    if (!input.known()) return Unimplemented("its input {} is not known", i);
    inputs.push_back(std::move(input));
  }
  return Elementwise(node, std::move(inputs));
}

StatusOr<Pattern> PatternReader::Elementwise(const Node& node, std::vector<Pattern> inputs) {
  const std::string& op = node.def->name;
  bool lists = false, lines = true;
  std::optional<std::vector<Line>> dims = std::vector<Line>{};
  for (Pattern& input : inputs) {
    input = SpreadOne(std::move(input));
    lists |= input.kind == Pattern::Kind::kList;
    if (dims) dims = BroadcastPatterns(*dims, input.dims);
  }
  if (lists) return OfLists(node, inputs);
  if (!dims) return Unimplemented("the shapes of its inputs do not fit");
  std::vector<Line> values;
  bool depends = false;  // on sizes or positions
  bool slopes = false;
  for (Pattern& input : inputs) {
    input = BroadcastTo(input, *dims);
    const auto line = input.AsLine();
    lines &= line.has_value();
    values.push_back(line.value_or(Line()));
    depends |= input.is_curve() || (input.is_line() && !input.line.is_number());
    slopes |= input.is_slopes();
  }
  if (slopes) return OfSlopes(node, inputs, *std::move(dims));
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
  if (op == "Where" && inputs[0].is_table() && inputs[0].conditions.empty()) {
    const size_t taken = inputs[0].table.data<bool>()[0] ? 1 : 2;
    return inputs[taken];
  }
  const DType to = TypeOf(node);
  if (lines && (IsInteger(to) || to == DType::kFloat)) {
    StatusOr<Line> line = LineOf(op, values);
    if (line.ok()) return Pattern::OfLine(to, *std::move(dims), *std::move(line));
  }
  return Curve(node, inputs, *std::move(dims));
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
      Pattern own = Pattern::OfLine(inputs[j].dtype, {}, element);
      if (inputs[j].dtype == DType::kBool) {
        const auto table = own.AsTable();
        if (!table) return Unimplemented("its inputs are not followed");
        own = *table;
      }
      one.push_back(std::move(own));
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
                                        std::vector<Line> dims) {
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
  Pattern data = In(node, 0);
  if (!data.known()) return Unimplemented("its input is not known");
  const auto starts = ElementsOf(node, 1), ends = ElementsOf(node, 2);
  if (!starts || !ends) return Unimplemented("where it cuts is not known");
  std::vector<int64_t> axes, steps;
  if (node.inputs.size() > 3 && node.inputs[3] != kNoValue) {
    CHAIRLIFT_ASSIGN_OR_RETURN(axes, NumbersOf(node, 3));
  } else {
    for (size_t i = 0; i < starts->size(); ++i) axes.push_back(static_cast<int64_t>(i));
  }
  if (node.inputs.size() > 4 && node.inputs[4] != kNoValue) {
    CHAIRLIFT_ASSIGN_OR_RETURN(steps, NumbersOf(node, 4));
  }
  if (ends->size() != starts->size() || axes.size() != starts->size()) {
    return Unimplemented("where it cuts is not known");
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    if (i < steps.size() && steps[i] != 1) return Unimplemented("its step is {}", steps[i]);
    const int64_t own = axes[i] < 0 ? axes[i] + data.rank() : axes[i];
    if (own < 0 || own >= data.rank()) return Unimplemented("it has no axis {}", axes[i]);
    const int axis = static_cast<int>(own);
    if (axis == data.column) return Unimplemented("it cuts columns");
    Line& dim = data.dims[static_cast<size_t>(axis)];
    // Negative numbers count from the end. For other lines the sign is known.
    const auto place = [&](const Line& at) -> std::optional<Line> {
      if (at.Least({}) && *at.Least({}) >= 0) return at;
      if (at.Most({}) && *at.Most({}) < 0) return Line::Sum(dim, at);
      return std::nullopt;
    };
    auto start = place((*starts)[i]);
    if (!start && dim.is_number()) {  // for a constant: as many of the last entries as there are
                                      // tokens
      const auto taken = Line::Sum(dim, (*starts)[i], -1);
      if (taken && (*taken == Line::Total() || *taken == Line::Of(Size::kNew))) {
        start = (*starts)[i];
        LimitTokens(dim.number);
      }
    }
    auto end = place((*ends)[i]);
    if ((*ends)[i].is_number() && (*ends)[i].number >= kEndless) end = dim;
    if (!start || !end) return Unimplemented("where it cuts depends on sizes");
    const auto beyond = Line::Sum(*end, dim, -1);
    if (!beyond) return Unimplemented("where it cuts is not known");
    if (const auto least = beyond->Least({}); least && *least >= 0) {
      end = dim;
    } else if (const auto most = beyond->Most({}); !most || *most > 0) {
      // Valid as long as there are no more tokens than the constant has entries.
      if (!dim.is_number() || (*end != Line::Total() && *end != Line::Of(Size::kNew))) {
        return Unimplemented("whether it reaches the end depends on sizes");
      }
      LimitTokens(dim.number);
    }
    const auto length = Line::Sum(*end, *start, -1);
    if (!length) return Unimplemented("where it cuts is not known");
    if (data.kind == Pattern::Kind::kList) {
      if (!start->is_number() || !end->is_number() || start->number < 0 ||
          start->number > end->number) {
        return Unimplemented("where it cuts depends on sizes");
      }
      return Pattern::OfList(data.dtype,
                             {data.list.begin() + start->number, data.list.begin() + end->number});
    }
    if (const auto least = length->Least({}); !least || *least < 0) {
      return Unimplemented("what it takes may be none");
    }
    const auto shifted = Line::Sum(Line::Index(axis), *start);
    const auto shift = [&](Line& line) -> bool {
      const auto moved = shifted ? line.With(axis, *shifted) : std::nullopt;
      if (moved) line = *moved;
      return moved.has_value();
    };
    bool followed = shift(data.line);
    for (Line& condition : data.conditions) followed = followed && shift(condition);
    if (!followed) return Unimplemented("where it cuts is not known");
    dim = *length;
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
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> places, NumbersOf(node, 1));
    std::vector<Line> list;
    const auto count = static_cast<int64_t>(data.list.size());
    for (const int64_t place : places) {
      if (place < -count || place >= count) return Unimplemented("it has no element {}", place);
      list.push_back(data.list[static_cast<size_t>(place < 0 ? place + count : place)]);
    }
    if (index.rank() == 0) return Pattern::OfLine(data.dtype, {}, list[0]);
    return Pattern::OfList(data.dtype, std::move(list));
  }
  const auto of_index = index.known() ? std::optional(index.dims) : Dims(node.inputs[1]);
  if (data.uniform() && of_index) {  // at any position
    data.dims.erase(data.dims.begin() + axis);
    data.dims.insert(data.dims.begin() + axis, of_index->begin(), of_index->end());
    return data;
  }
  const auto place = index.known() ? index.AsLine() : std::nullopt;
  if (!place) return Unimplemented("its places are not followed");
  if (data.is_curve() || data.is_slopes()) {
    return Unimplemented("its input 0 follows from places");
  }
  const Line& dim = data.dims[static_cast<size_t>(axis)];
  const auto beyond = Line::Sum(*place, dim, -1);
  const auto least = place->Least(index.dims);
  const auto most = beyond ? beyond->Most(index.dims) : std::nullopt;
  if (!least || *least < 0 || !most || *most >= 0) {
    return Unimplemented("its places are not known to be within the axis");
  }
  std::vector<Line> dims = data.dims;
  dims.erase(dims.begin() + axis);
  dims.insert(dims.begin() + axis, index.dims.begin(), index.dims.end());
  std::vector<int> own(data.dims.size()), to(index.dims.size());
  for (int i = 0; i < data.rank(); ++i) {
    own[static_cast<size_t>(i)] = i <= axis ? i : i + index.rank() - 1;
  }
  for (int i = 0; i < index.rank(); ++i) to[static_cast<size_t>(i)] = axis + i;
  const Line at = Moved(*place, to);
  // The index along `axis` is replaced before other axes take its number.
  const auto follow = [&](Line& line) -> bool {
    if (line.mark >= 0 && line.sequence == axis) return false;
    const int64_t times = line.along(axis);
    line.axes.erase(axis);
    Line moved = Moved(line, own);
    const int mark = std::exchange(moved.mark, -1), sequence = std::exchange(moved.sequence, -1);
    const auto sum = Line::Sum(moved, at, times);
    if (!sum) return false;
    line = *sum;
    line.mark = mark;
    line.sequence = sequence;
    return true;
  };
  bool followed = follow(data.line);
  for (Line& condition : data.conditions) followed = followed && follow(condition);
  if (!followed) return Unimplemented("its places are not followed");
  data.dims = std::move(dims);
  if (data.is_table()) data.Simplify();
  return data;
}

// Single elements, at the places that stand side by side in the last dimension of its input 1.
StatusOr<Pattern> PatternReader::GatherND(const Node& node) {
  Pattern data = SpreadOne(In(node, 0));
  const Pattern& places = of(node.inputs[1]);
  if (!data.known() || data.kind == Pattern::Kind::kList || data.is_curve() || data.is_slopes() ||
      places.kind != Pattern::Kind::kTuples || places.list.size() != data.dims.size() ||
      node.attributes.Int("batch_dims", 0) != 0) {
    return Unimplemented("its places are not followed");
  }
  const std::vector<Line> dims(places.dims.begin(), places.dims.end() - 1);
  // Axes of the result are numbered behind those of the input, which they take the place of.
  const int shift = data.rank();
  std::vector<int> behind(places.dims.size()), to(dims.size() + data.dims.size(), -1);
  for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
    behind[static_cast<size_t>(i)] = shift + i;
    to[static_cast<size_t>(shift + i)] = i;
  }
  for (int axis = 0; axis < data.rank(); ++axis) {
    const Line& place = places.list[static_cast<size_t>(axis)];
    const auto beyond = Line::Sum(place, data.dims[static_cast<size_t>(axis)], -1);
    const auto least = place.Least(dims), most = beyond ? beyond->Most(dims) : std::nullopt;
    const bool within = least && *least >= 0 && most && *most < 0;
    if (!within && !data.uniform()) {
      return Unimplemented("its indices are not known to be within axis {}", axis);
    }
    const Line at = Moved(place, behind);
    const auto follow = [&](Line& line) -> bool {
      const auto with = line.With(axis, at);
      if (with) line = *with;
      return with.has_value();
    };
    bool followed = follow(data.line);
    for (Line& condition : data.conditions) followed = followed && follow(condition);
    if (!followed) return Unimplemented("its places are not followed");
  }
  data.dims = dims;
  data.line = Moved(data.line, to);
  for (Line& condition : data.conditions) condition = Moved(condition, to);
  if (data.is_table()) data.Simplify();
  return data;
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

// Supported if only axes of one entry change, or if the value depends on no position.
StatusOr<Pattern> PatternReader::Reshape(const Node& node) {
  Pattern data = In(node, 0);
  const auto wanted = ElementsOf(node, 1);
  if (!data.known() || !wanted) return Unimplemented("its inputs are not known");
  std::vector<Line> dims;
  std::optional<size_t> open;
  for (size_t i = 0; i < wanted->size(); ++i) {
    const Line& dim = (*wanted)[i];
    const bool kept = dim == Line::Number(0) && node.attributes.Int("allowzero", 0) == 0;
    if (kept && i >= data.dims.size()) return Unimplemented("it has no axis {}", i);
    if (dim == Line::Number(-1)) open = i;
    dims.push_back(kept ? data.dims[i] : dim == Line::Number(-1) ? Line::Number(1) : dim);
  }
  const auto others = [](const std::vector<Line>& all, size_t from) {
    std::vector<std::pair<size_t, Line>> wide;
    for (size_t i = from; i < all.size(); ++i) {
      if (all[i] != Line::Number(1)) wide.emplace_back(i, all[i]);
    }
    return wide;
  };
  if (data.kind == Pattern::Kind::kList) {
    if (dims.size() == 1) return data;
    if (data.list.size() != 1) return Unimplemented("its effect on a list is not known");
    data = SpreadOne(std::move(data));
  }
  const auto before = others(data.dims, 0);
  if (data.uniform()) {
    std::vector<std::pair<size_t, Line>> rest = others(dims, 0);
    if (open && rest.empty()) {
      const auto all =
          before.size() == 2 ? AllEntries(before[0].second, before[1].second) : std::nullopt;
      if (before.size() > 1 && !all) return Unimplemented("its effect on axes is not known");
      if (!before.empty()) dims[*open] = all ? *all : before[0].second;
      open.reset();
    }
    if (!open) {
      data.dims = std::move(dims);
      return data;
    }
  }
  // The open dimension is the one of `before` that is not among the others.
  if (open) {
    auto rest = before;
    for (const auto& [axis, dim] : others(dims, 0)) {
      const auto same = std::find_if(rest.begin(), rest.end(),
                                     [d = dim](const auto& own) { return own.second == d; });
      if (same == rest.end()) return Unimplemented("its effect on axes is not known");
      rest.erase(same);
    }
    if (rest.size() > 1) return Unimplemented("its effect on axes is not known");
    if (!rest.empty()) dims[*open] = rest[0].second;
  }
  const auto after = others(dims, 0);
  if (before.size() != after.size()) return Unimplemented("its effect on axes is not known");
  std::vector<int> to(data.dims.size(), -1);
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i].second != after[i].second) {
      return Unimplemented("its effect on axes is not known");
    }
    to[before[i].first] = static_cast<int>(after[i].first);
  }
  return MovedAxes(data, to, std::move(dims));
}

// For a uniform value: to [all, 1] or [1, all].
StatusOr<Pattern> PatternReader::Flatten(const Node& node) {
  Pattern data = In(node, 0);
  const int64_t axis = node.attributes.Int("axis", 1);
  const auto all =
      data.uniform() && data.rank() == 2 ? AllEntries(data.dims[0], data.dims[1]) : std::nullopt;
  if (!all || (axis != 0 && axis != 2)) {
    return Unimplemented("its effect on axes is not known");
  }
  const Line one = Line::Number(1);
  data.dims = axis == 2 ? std::vector<Line>{*all, one} : std::vector<Line>{one, *all};
  return data;
}

StatusOr<Pattern> PatternReader::Expand(const Node& node) {
  const Pattern data = SpreadOne(In(node, 0));
  const auto wanted = ElementsOf(node, 1);
  if (!data.known() || !wanted || data.kind == Pattern::Kind::kList) {
    return Unimplemented("its inputs are not known");
  }
  const auto dims = BroadcastPatterns(data.dims, *wanted);
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
    std::vector<Line> dims = joined->dims, others = part->dims;
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
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> given, NumbersOf(node, 1));
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
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, NumbersOf(node, 1));
  const int64_t own = axes.size() != 1 ? -1 : axes[0] < 0 ? axes[0] + data.rank() : axes[0];
  if (!one || !one->is_number() || own < 0 || own >= data.rank() || !IsInteger(TypeOf(node))) {
    return Unimplemented("what it adds up is not followed");
  }
  std::vector<Line> dims = data.dims;
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
  std::vector<Line> dims = data.dims;
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

StatusOr<Pattern> PatternReader::Squeeze(const Node& node) {
  Pattern data = SpreadOne(In(node, 0));
  if (!data.known()) return Unimplemented("its input is not known");
  if (data.kind == Pattern::Kind::kList) return Unimplemented("it squeezes a list");
  std::vector<bool> gone(data.dims.size(), false);
  if (node.inputs.size() > 1 && node.inputs[1] != kNoValue) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, NumbersOf(node, 1));
    for (const int64_t axis : axes) {
      const int64_t own = axis < 0 ? axis + data.rank() : axis;
      if (own < 0 || own >= data.rank()) return Unimplemented("it has no axis {}", axis);
      gone[static_cast<size_t>(own)] = true;
    }
  } else if (std::all_of(data.dims.begin(), data.dims.end(),
                         [](const Line& dim) { return dim.is_number(); })) {
    for (size_t i = 0; i < gone.size(); ++i) gone[i] = data.dims[i] == Line::Number(1);
  } else {
    return Unimplemented("which axes it takes out is not given");
  }
  std::vector<Line> dims;
  std::vector<int> to(data.dims.size(), -1);
  for (size_t i = 0; i < data.dims.size(); ++i) {
    if (gone[i] && data.dims[i] != Line::Number(1)) {
      return Unimplemented("axis {} is not known to have one entry", i);
    }
    if (gone[i]) continue;
    to[i] = static_cast<int>(dims.size());
    dims.push_back(data.dims[i]);
  }
  return MovedAxes(data, to, std::move(dims));
}

StatusOr<Pattern> PatternReader::Unsqueeze(const Node& node) {
  Pattern data = In(node, 0);
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, NumbersOf(node, 1));
  if (!data.known()) return Unimplemented("its input is not known");
  if (data.kind == Pattern::Kind::kList) {
    if (data.list.size() != 1) return Unimplemented("it unsqueezes a list");
    data = SpreadOne(std::move(data));
  }
  const auto rank = static_cast<int64_t>(data.dims.size() + axes.size());
  std::vector<bool> added(static_cast<size_t>(rank), false);
  for (const int64_t axis : axes) {
    const int64_t own = axis < 0 ? axis + rank : axis;
    if (own < 0 || own >= rank) return Unimplemented("it has no axis {}", axis);
    added[static_cast<size_t>(own)] = true;
  }
  std::vector<Line> dims;
  std::vector<int> to;
  for (size_t i = 0; i < added.size(); ++i) {
    if (!added[i]) {
      if (to.size() == data.dims.size()) return Unimplemented("it adds an axis twice");
      dims.push_back(data.dims[to.size()]);
      to.push_back(static_cast<int>(i));
    } else {
      dims.push_back(Line::Number(1));
    }
  }
  return MovedAxes(data, to, std::move(dims));
}

StatusOr<Pattern> PatternReader::Transpose(const Node& node) {
  const Pattern data = SpreadOne(In(node, 0));
  if (!data.known() || data.kind == Pattern::Kind::kList) {
    return Unimplemented("its input is not known");
  }
  std::vector<int64_t> backwards;
  for (int64_t axis = data.rank(); axis-- > 0;) backwards.push_back(axis);
  const std::vector<int64_t> perm = node.attributes.Ints("perm", backwards);
  std::vector<int64_t> sorted = perm;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  if (sorted != backwards) return Unimplemented("its permutation does not fit");
  std::vector<Line> dims;
  std::vector<int> to(data.dims.size(), -1);
  for (size_t i = 0; i < perm.size(); ++i) {
    const auto from = static_cast<size_t>(perm[i]);
    to[from] = static_cast<int>(i);
    dims.push_back(data.dims[from]);
  }
  return MovedAxes(data, to, std::move(dims));
}

}  // namespace chairlift::analysis
