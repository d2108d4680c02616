// Values that grow along an axis with a slope for each column: attention biases by the distance of
// keys (ALiBi, Press et al. 2022), which exporters compute from a mask's sum or slice from a
// constant. Masks that are added to these, or to a curve.
#include <algorithm>
#include <cmath>
#include <utility>

#include "graph/analysis/pattern.h"

namespace chairlift::analysis {
namespace {

constexpr int64_t kMostColumns = 1024;
// Ensures that no bias comes near the values that hide.
constexpr float kSteepest = 1e9f;
// A mask value below this hides whatever is added to it.
constexpr float kHides = -1e30f;

std::vector<Line> DimsOf(const Shape& shape) {
  std::vector<Line> dims;
  for (const int64_t dim : shape) dims.push_back(Line::Number(dim));
  return dims;
}

// The only axis except `except` with more than one entry; nothing if there are none or several.
std::optional<int> WideAxis(const Shape& shape, int except = -1) {
  std::optional<int> wide;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (axis == except || shape[axis] == 1) continue;
    if (wide) return std::nullopt;
    wide = axis;
  }
  return wide;
}

Pattern Slopes(std::vector<Line> dims, Line line, Tensor slopes, int column) {
  Pattern pattern;
  pattern.kind = Pattern::Kind::kSlopes;
  pattern.dtype = DType::kFloat;
  pattern.dims = std::move(dims);
  pattern.line = std::move(line);
  pattern.slopes = std::move(slopes);
  pattern.column = column;
  pattern.table = Tensor::Of<float>({1}, {0.0f});
  return pattern;
}

bool AllGentle(const Tensor& slopes) {
  const auto values = slopes.values<float>();
  return std::all_of(values.begin(), values.end(),
                     [](float slope) { return std::abs(slope) < kSteepest; });
}

bool IsPart(const Pattern& input) { return input.is_slopes() || input.is_curve(); }

}  // namespace

std::optional<Pattern> Pattern::OfSlopes(const Tensor& constant) {
  const Shape& shape = constant.shape();
  const int last = shape.rank() - 1;
  if (constant.dtype() != DType::kFloat || last < 1 || shape[last] < 2) return std::nullopt;
  const auto column = WideAxis(shape, last);
  if (!column || shape[*column] > kMostColumns) return std::nullopt;
  const int64_t rows = shape[*column], count = shape[last];
  const float* data = constant.data<float>();
  const int64_t zero = data[0] == 0.0f ? 0 : count - 1;
  Tensor slopes = Tensor::Allocate(DType::kFloat, {rows});
  for (int64_t row = 0; row < rows; ++row, data += count) {
    const float slope = zero == 0 ? data[1] : -data[count - 2];
    slopes.data<float>()[row] = slope;
    for (int64_t i = 0; i < count; ++i) {
      if (data[i] != slope * static_cast<float>(i - zero)) return std::nullopt;
    }
  }
  if (!AllGentle(slopes)) return std::nullopt;
  const Line line = *Line::Sum(Line::Index(last), Line::Number(zero), -1);
  return Slopes(DimsOf(shape), line, std::move(slopes), *column);
}

Pattern Pattern::Added() const {
  const Tensor none;
  Pattern added = *this;
  added.kind = Kind::kTable;
  if (!table.present()) added.table = Tensor::Of<float>({1}, {0.0f});
  added.slopes = none;
  added.curve = none;
  added.line = {};
  added.column = -1;
  return added;
}

std::optional<Pattern> PatternReader::TimesSlopes(const Node& node) const {
  if (node.def->name != "Mul") return std::nullopt;
  for (size_t i = 0; i < 2; ++i) {
    const Value& slopes = graph_.values[static_cast<size_t>(node.inputs[i])];
    const Pattern line = In(node, 1 - i);
    if (!slopes.is_constant() || slopes.dtype != DType::kFloat || !line.is_line() ||
        line.line.axes().size() != 1) {
      continue;
    }
    const Shape& shape = slopes.constant.shape();
    const auto wide = WideAxis(shape);
    if (!wide || shape[*wide] > kMostColumns || !AllGentle(slopes.constant)) continue;
    // Counted from the last axis, as in broadcasting.
    const int rank = std::max(shape.rank(), line.rank());
    const int column = *wide + rank - shape.rank();
    const int along = line.line.axes()[0] + rank - line.rank();
    if (column >= along) continue;
    std::vector<Line> dims(static_cast<size_t>(rank), Line::Number(1));
    bool fits = true;
    for (int axis = 0; axis < rank; ++axis) {
      Line& dim = dims[static_cast<size_t>(axis)];
      const int own = axis - (rank - line.rank());
      if (own >= 0) dim = line.dims[static_cast<size_t>(own)];
      if (axis != column) continue;
      fits = dim == Line::Number(1);
      dim = Line::Number(shape[*wide]);
    }
    if (!fits) continue;
    const int own = line.line.axes()[0];
    const auto moved = line.line.With(own, Line::Index(along));
    if (!moved) continue;
    return Slopes(std::move(dims), *moved, slopes.constant.Reshaped({shape[*wide]}), column);
  }
  return std::nullopt;
}

StatusOr<Pattern> PatternReader::OfSum(const Node& node, const std::vector<Pattern>& inputs,
                                       std::vector<Line> dims) {
  const std::string& op = node.def->name;
  const auto own = std::find_if(inputs.begin(), inputs.end(), IsPart);
  if (TypeOf(node) != DType::kFloat || own->dtype != DType::kFloat) {
    return Unimplemented("its effect on biases is not known");
  }
  if (std::any_of(own + 1, inputs.end(), IsPart)) return Unimplemented("it joins biases");
  if (!AllGentle(own->is_curve() ? own->curve : own->slopes)) {
    return Unimplemented("it adds to what hides by distance");
  }
  Pattern result = *own;
  if (op == "Identity" || op == "Cast") return result;
  result.dims = dims;
  if (op == "Mul" && own->is_slopes() && own->table.size() == 1 &&
      own->table.data<float>()[0] == 0.0f) {
    const Pattern& factor = inputs[own == inputs.begin() ? 1 : 0];
    if (!factor.uniform())
      return Unimplemented("ALiBi slopes are multiplied by a non-constant value");
    result.slopes = own->slopes.Clone();
    for (int64_t i = 0; i < result.slopes.size(); ++i) {
      result.slopes.data<float>()[i] *= factor.table.data<float>()[0];
    }
    if (!AllGentle(result.slopes)) return Unimplemented("its slopes are too steep");
    return result;
  }
  const bool masks = op == "Where" && own != inputs.begin();
  if (op != "Add" && !masks) return Unimplemented("its effect on biases is not known");
  if (masks) {
    const Pattern& fill = inputs[own == inputs.begin() + 1 ? 2 : 1];
    if (!fill.uniform() || !(fill.table.data<float>()[0] < kHides)) {
      return Unimplemented("it puts something else in place of biases than what hides");
    }
  }
  std::vector<Pattern> tables = inputs;
  tables[static_cast<size_t>(own - inputs.begin())] = own->Added();
  CHAIRLIFT_ASSIGN_OR_RETURN(const Pattern table, Tables(node, tables, std::move(dims)));
  result.conditions = table.conditions;
  result.table = table.table;
  return result;
}

}  // namespace chairlift::analysis
