// Computes values that depend on one whole number at each position (mostly a distance between
// tokens) for all values that the number may have.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "graph/analysis/pattern.h"
#include "graph/evaluate.h"

namespace chairlift::analysis {
namespace {

constexpr int64_t kPoints = 2 * kReach + 1;
constexpr int64_t kMostHeads = 256;

// a and b of line = a · base + b.
struct Multiple {
  int64_t times = 0, more = 0;
};

std::optional<Multiple> MultipleOf(const Line& line, const Line& base) {
  if (line.is_number()) return Multiple{0, line.number};
  for (const int64_t times : {1, -1}) {
    const auto rest = Line::Sum(line, base, -times);
    if (rest && rest->is_number()) return Multiple{times, rest->number};
  }
  return std::nullopt;
}

Line WithoutNumber(Line line) {
  line.number = 0;
  return line;
}

// The common base of the inputs; nothing if it is not a line.
std::optional<Line> BaseOf(const std::vector<Pattern>& inputs) {
  for (const Pattern& input : inputs) {
    if (input.is_curve() && !input.line.is_number()) return input.line;
  }
  for (const Pattern& input : inputs) {
    if (input.is_line() && !input.line.is_number()) return WithoutNumber(input.line);
  }
  for (const Pattern& input : inputs) {
    if (input.is_table() && !input.conditions.empty()) return WithoutNumber(input.conditions[0]);
  }
  return std::nullopt;
}

// Whether |line| < P + S for all sizes.
bool IsBetweenTokens(const Line& line, const std::vector<Line>& dims) {
  for (const int64_t sign : {1, -1}) {
    const auto room = Line::Sum(Line::Total(), line, sign);
    const auto least = room ? room->Least(dims) : std::nullopt;
    if (!least || *least < 1) return false;
  }
  return true;
}

bool SetNumber(Tensor& tensor, int64_t i, int64_t n) {
  switch (tensor.dtype()) {
    case DType::kInt64:
      tensor.data<int64_t>()[i] = n;
      return true;
    case DType::kInt32:
      tensor.data<int32_t>()[i] = static_cast<int32_t>(n);
      return true;
    case DType::kFloat:
      tensor.data<float>()[i] = static_cast<float>(n);
      return true;
    default:
      return false;
  }
}

// The input at each point, [points, 1] or [points, columns]; absent if it depends on something
// else.
Tensor AtPoints(const Pattern& input, const Line& base) {
  const int64_t columns = input.is_curve() ? input.curve.shape()[1] : 1;
  const DType dtype = input.is_curve()   ? input.curve.dtype()
                      : input.is_table() ? input.table.dtype()
                                         : input.dtype;
  Tensor points = Tensor::Allocate(dtype, {kPoints, columns});
  std::vector<Multiple> conditions;
  const auto follows = [&](const Line& line) {
    const auto multiple = MultipleOf(line, base);
    if (multiple) conditions.push_back(*multiple);
    return multiple.has_value();
  };
  if (input.is_sum()) return {};
  if (input.is_table()) {
    if (!std::all_of(input.conditions.begin(), input.conditions.end(), follows)) return {};
  } else if ((!input.is_curve() && !input.is_line()) || !follows(input.line)) {
    return {};
  }
  for (int64_t i = 0; i < kPoints; ++i) {
    const auto at = [&](const Multiple& m) { return m.times * (i - kReach) + m.more; };
    if (input.is_table()) {
      int64_t m = 0;
      for (size_t c = 0; c < conditions.size(); ++c) m |= int64_t{at(conditions[c]) >= 0} << c;
      CopyElement(input.table, m, points, i);
    } else if (input.is_line()) {
      if (!SetNumber(points, i, at(conditions[0]))) return {};
    } else {
      const int64_t from = at(conditions[0]) + kReach;
      if (from < 0 || from >= kPoints) return {};
      for (int64_t c = 0; c < columns; ++c) {
        CopyElement(input.curve, from * columns + c, points, i * columns + c);
      }
    }
  }
  return points;
}

// Converts a curve of booleans that change at two distances at most to a table. The conditions of
// a table can be joined with those of others.
std::optional<Pattern> AsSteps(const Pattern& curve) {
  if (curve.dtype != DType::kBool || curve.curve.shape()[1] != 1) return std::nullopt;
  const bool* values = curve.curve.data<bool>();
  Pattern steps = curve;
  steps.kind = Pattern::Kind::kTable;
  std::vector<bool> parts = {values[0]};
  for (int64_t i = 1; i < kPoints; ++i) {
    if (values[i] == values[i - 1]) continue;
    const auto reached = Line::Sum(curve.line, Line::Number(kReach - i));
    if (!reached || parts.size() > 2) return std::nullopt;
    steps.conditions.push_back(*reached);
    parts.push_back(values[i]);
  }
  steps.line = {};
  steps.column = -1;
  steps.table = Tensor::Allocate(DType::kBool, {int64_t{1} << steps.conditions.size()});
  for (int64_t m = 0; m < steps.table.size(); ++m) {
    steps.table.data<bool>()[m] =
        parts[static_cast<size_t>(std::popcount(static_cast<uint64_t>(m)))];
  }
  steps.Simplify();
  return steps;
}

}  // namespace

Pattern Pattern::OfColumns(const Tensor& constant) {
  const Shape& shape = constant.shape();
  int column = -1;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == constant.size()) column = axis;
  }
  if (constant.dtype() != DType::kFloat || column < 0 || constant.size() > kMostHeads) return {};
  Pattern curve;
  curve.kind = Kind::kCurve;
  curve.dtype = constant.dtype();
  for (const int64_t dim : shape) curve.dims.push_back(Line::Number(dim));
  curve.column = column;
  curve.curve = Tensor::Allocate(constant.dtype(), {kPoints, constant.size()});
  for (int64_t i = 0; i < curve.curve.size(); ++i) {
    CopyElement(constant, i % constant.size(), curve.curve, i);
  }
  return curve;
}

std::optional<Pattern> Pattern::AsCurve() const {
  const auto base = is_table() ? BaseOf({*this}) : std::nullopt;
  if (!base || !IsBetweenTokens(*base, dims)) return std::nullopt;
  Tensor points = AtPoints(*this, *base);
  if (!points.present()) return std::nullopt;
  Pattern curve = *this;
  curve.kind = Kind::kCurve;
  curve.conditions.clear();
  curve.table = Tensor();
  curve.line = *base;
  curve.curve = std::move(points);
  return curve;
}

StatusOr<Pattern> PatternReader::Curve(const Node& node, const std::vector<Pattern>& inputs,
                                       std::vector<Line> dims) {
  const auto base = BaseOf(inputs);
  if (!base || !IsBetweenTokens(*base, dims)) {
    return Unimplemented("what it computes of places is not followed");
  }
  Pattern result;
  result.kind = Pattern::Kind::kCurve;
  result.line = *base;
  std::vector<Tensor> arguments;
  for (const Pattern& input : inputs) {
    Tensor points = AtPoints(input, *base);
    if (!points.present()) return Unimplemented("it joins what follows from different places");
    if (input.is_curve() && input.column >= 0) {
      if (result.column >= 0 && result.column != input.column) {
        return Unimplemented("its columns are different ones");
      }
      result.column = input.column;
    }
    arguments.push_back(std::move(points));
  }
  WeightCache weights;
  SoloTeam team;
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Tensor> computed,
                             EvaluateNode(node, arguments, weights, team, 0));
  if (computed[0].shape().rank() != 2 || computed[0].shape()[0] != kPoints) {
    return Unimplemented("it is not followed");
  }
  result.dtype = computed[0].dtype();
  result.curve = computed[0].Clone();
  result.dims = std::move(dims);
  LimitTokens(kReach + 1);
  return AsSteps(result).value_or(result);
}

// Rows of a constant, selected by a curve.
StatusOr<Pattern> PatternReader::GatherByCurve(const Tensor& rows, const Pattern& index) {
  if (rows.shape().rank() != 2 || index.column >= 0 || index.curve.shape()[1] != 1 ||
      index.curve.dtype() != DType::kInt64) {
    return Unimplemented("it does not take rows of a table");
  }
  const int64_t count = rows.shape()[0], columns = rows.shape()[1];
  Pattern result = index;
  result.curve = Tensor::Allocate(rows.dtype(), {kPoints, columns});
  for (int64_t i = 0; i < kPoints; ++i) {
    const int64_t row = index.curve.data<int64_t>()[i];
    if (row < 0 || row >= count) return Unimplemented("it has no row {}", row);
    for (int64_t c = 0; c < columns; ++c) {
      CopyElement(rows, row * columns + c, result.curve, i * columns + c);
    }
  }
  result.column = columns == 1 ? -1 : index.rank();
  result.dims.push_back(Line::Number(columns));
  return result;
}

}  // namespace chairlift::analysis
