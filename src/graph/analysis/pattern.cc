#include "graph/analysis/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "graph/passes/rewrite.h"

namespace chairlift::analysis {

void CopyElement(const Tensor& from, int64_t i, Tensor& to, int64_t j) {
  const size_t size = DTypeSize(from.dtype());
  std::memcpy(static_cast<std::byte*>(to.raw()) + static_cast<size_t>(j) * size,
              static_cast<const std::byte*>(from.raw()) + static_cast<size_t>(i) * size, size);
}

namespace {

constexpr int64_t kMostElements = 64;  // in a list

bool TooLarge(int64_t n) { return n > kMostNumber || n < -kMostNumber; }

// The elements of an integer or boolean tensor.
std::optional<std::vector<int64_t>> Integers(const Tensor& t, int64_t most) {
  if (t.size() > most) return std::nullopt;
  std::vector<int64_t> values(static_cast<size_t>(t.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    switch (t.dtype()) {
      case DType::kInt64:
        values[i] = t.data<int64_t>()[i];
        break;
      case DType::kInt32:
        values[i] = t.data<int32_t>()[i];
        break;
      case DType::kBool:
        values[i] = static_cast<int64_t>(t.data<bool>()[i]);
        break;
      default:
        return std::nullopt;
    }
  }
  return values;
}

bool EqualBytes(const Tensor& t, int64_t i, int64_t j) {
  const size_t size = DTypeSize(t.dtype());
  const auto* bytes = static_cast<const std::byte*>(t.raw());
  return std::memcmp(bytes + static_cast<size_t>(i) * size, bytes + static_cast<size_t>(j) * size,
                     size) == 0;
}

std::vector<Line> LinesOf(const Shape& shape) {
  std::vector<Line> dims;
  for (const int64_t dim : shape) dims.push_back(Line::Number(dim));
  return dims;
}

// A constant that has one value above diagonal `k` of its last two axes and another one below or on
// it (or the reverse).
std::optional<Pattern> CutAlongDiagonal(const Tensor& t) {
  const Shape& shape = t.shape();
  const int rank = shape.rank();
  if (rank < 2) return std::nullopt;
  const int64_t rows = shape[rank - 2], columns = shape[rank - 1];
  if (rows < 2 || columns < 2 || rows * columns != t.size()) return std::nullopt;
  // The position where row 0 changes determines the diagonal.
  int64_t seen = 1;
  while (seen < columns && EqualBytes(t, 0, seen)) ++seen;
  if (seen == columns) return std::nullopt;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      if (!EqualBytes(t, r * columns + c, c < seen + r ? 0 : seen)) return std::nullopt;
    }
  }
  Pattern pattern;
  pattern.kind = Pattern::Kind::kTable;
  pattern.dtype = t.dtype();
  pattern.dims = LinesOf(shape);
  // Column ≤ row + seen − 1.
  const Line apart = *Line::Sum(Line::Index(rank - 2), Line::Index(rank - 1), -1);
  pattern.conditions = {*Line::Sum(apart, Line::Number(seen - 1))};
  pattern.table = Tensor::Allocate(t.dtype(), {2});
  CopyElement(t, seen, pattern.table, 0);
  CopyElement(t, 0, pattern.table, 1);
  return pattern;
}

std::optional<Tensor> NumberTensor(DType dtype, int64_t n) {
  switch (dtype) {
    case DType::kInt64:
      return Tensor::Of<int64_t>({1}, {n});
    case DType::kInt32:
      return Tensor::Of<int32_t>({1}, {static_cast<int32_t>(n)});
    case DType::kBool:
      return Tensor::Of<bool>({1}, {n != 0});
    case DType::kFloat:
      return Tensor::Of<float>({1}, {static_cast<float>(n)});
    default:
      return std::nullopt;
  }
}

// Whole numbers that grow by the same step along each axis, whatever the other indices are.
std::optional<Line> CountsAlongAxes(const Tensor& constant) {
  const bool wide = constant.dtype() == DType::kInt64;
  if (!wide && constant.dtype() != DType::kInt32) return std::nullopt;
  const auto at = [&](int64_t i) {
    return wide ? constant.data<int64_t>()[i] : int64_t{constant.data<int32_t>()[i]};
  };
  const Shape& shape = constant.shape();
  const int64_t first = at(0);
  if (TooLarge(first)) return std::nullopt;
  Line line = Line::Number(first);
  struct Axis {
    int64_t stride, size, step;
  };
  std::vector<Axis> axes;
  int64_t stride = 1;
  for (int axis = shape.rank(); axis-- > 0; stride *= shape[axis]) {
    if (shape[axis] < 2) continue;
    if (TooLarge(at(stride))) return std::nullopt;
    const int64_t step = at(stride) - first;
    if (step == 0) continue;
    const auto grown = Line::Sum(line, Line::Index(axis), step);
    if (!grown) return std::nullopt;
    line = *grown;
    axes.push_back({stride, shape[axis], step});
  }
  for (int64_t i = 0; i < constant.size(); ++i) {
    int64_t expected = first;
    for (const Axis& axis : axes) {
      if (TooLarge(axis.step) || TooLarge(expected)) return std::nullopt;
      expected += i / axis.stride % axis.size * axis.step;
    }
    if (expected != at(i)) return std::nullopt;
  }
  return line;
}

}  // namespace

Pattern Pattern::OfLine(DType dtype, std::vector<Line> dims, Line line) {
  Pattern pattern;
  pattern.kind = Kind::kLine;
  pattern.dtype = dtype;
  pattern.dims = std::move(dims);
  pattern.line = std::move(line);
  return pattern;
}

Pattern Pattern::OfList(DType dtype, std::vector<Line> list) {
  Pattern pattern;
  pattern.kind = Kind::kList;
  pattern.dtype = dtype;
  pattern.dims = {Line::Number(static_cast<int64_t>(list.size()))};
  pattern.list = std::move(list);
  return pattern;
}

Pattern Pattern::Uniform(std::vector<Line> dims, const Tensor& one) {
  Pattern pattern;
  pattern.kind = Kind::kTable;
  pattern.dtype = one.dtype();
  pattern.dims = std::move(dims);
  pattern.table = one.Reshaped({1});
  return pattern;
}

Line Pattern::MarkAt(const Line& sequence, const Line& token, int input) {
  Line mark = *Line::Sum(*Line::Product(sequence, Line::Of(Size::kNew)), token);
  mark.mark = input;
  return mark;
}

Pattern Pattern::OfMarks(DType dtype, int input) {
  const auto zero = NumberTensor(dtype, 0), one = NumberTensor(dtype, 1);
  if (!zero) return {};
  Pattern marks = Uniform({Line::Batch(), Line::Of(Size::kNew)}, *zero);
  marks.conditions = {MarkAt(Line::Index(0), Line::Index(1), input)};
  marks.table = Tensor::Allocate(dtype, {2});
  CopyElement(*zero, 0, marks.table, 0);
  CopyElement(*one, 0, marks.table, 1);
  return marks;
}

Pattern Pattern::WithMarks(bool set) const {
  Pattern with = *this;
  with.conditions.clear();
  std::vector<size_t> kept;
  int64_t marks = 0;
  for (size_t i = 0; i < conditions.size(); ++i) {
    if (conditions[i].mark >= 0) {
      marks |= int64_t{1} << i;
    } else {
      kept.push_back(i);
      with.conditions.push_back(conditions[i]);
    }
  }
  with.table = Tensor::Allocate(table.dtype(), {int64_t{1} << kept.size()});
  for (int64_t m = 0; m < with.table.size(); ++m) {
    int64_t own = set ? marks : 0;
    for (size_t i = 0; i < kept.size(); ++i) own |= (m >> i & 1) << kept[i];
    CopyElement(table, own, with.table, m);
  }
  with.Simplify(true);
  return with;
}

Pattern Pattern::OfConstant(const Tensor& constant) {
  const int64_t size = constant.size();
  const Shape& shape = constant.shape();
  if (size == 0 && shape.rank() == 1 && IsInteger(constant.dtype())) {
    return OfList(constant.dtype(), {});
  }
  if (size == 0) return {};
  if (shape.rank() == 1 && IsInteger(constant.dtype()) && size <= kMostElements) {
    const std::vector<int64_t> values = *Integers(constant, kMostElements);
    std::vector<Line> list;
    for (const int64_t n : values) list.push_back(Line::Number(n));
    return OfList(constant.dtype(), std::move(list));
  }
  bool equal = true;
  for (int64_t i = 1; i < size && equal; ++i) equal = EqualBytes(constant, 0, i);
  if (equal) {
    Tensor one = Tensor::Allocate(constant.dtype(), {1});
    CopyElement(constant, 0, one, 0);
    return Uniform(LinesOf(shape), one);
  }
  if (const auto line = CountsAlongAxes(constant)) {
    return OfLine(constant.dtype(), LinesOf(shape), *line);
  }
  if (const auto slopes = OfSlopes(constant)) return *slopes;
  return CutAlongDiagonal(constant).value_or(Pattern());
}

std::optional<std::vector<Line>> Pattern::Elements() const {
  if (kind == Kind::kList) return list;
  if (rank() > 1 || (rank() == 1 && (!dims[0].is_number() || dims[0].number > kMostElements))) {
    return std::nullopt;
  }
  const auto line = AsLine();
  if (!line) return std::nullopt;
  std::vector<Line> elements;
  for (int64_t i = 0; i < (rank() == 0 ? 1 : dims[0].number); ++i) {
    const auto at = line->With(0, Line::Number(i));
    if (!at) return std::nullopt;
    elements.push_back(*at);
  }
  return elements;
}

std::optional<Line> Pattern::AsLine() const {
  if (is_line()) return line;
  if (!is_table() || !conditions.empty()) return std::nullopt;
  if (dtype == DType::kFloat) {
    const float value = table.data<float>()[0];
    if (!(value >= -16777216.0f && value <= 16777216.0f)) return std::nullopt;
    const auto whole = static_cast<int64_t>(value);
    if (static_cast<float>(whole) != value) return std::nullopt;
    return Line::Number(whole);
  }
  const auto values = Integers(table, 1);
  if (!values) return std::nullopt;
  return Line::Number((*values)[0]);
}

std::optional<Pattern> Pattern::AsTable() const {
  if (is_table()) return *this;
  if (!is_line() || !line.is_number()) return std::nullopt;
  const auto one = NumberTensor(dtype, line.number);
  if (!one) return std::nullopt;
  return Uniform(dims, *one);
}

bool Pattern::Possible(int64_t m) const {
  for (size_t i = 0; i < conditions.size(); ++i) {
    const bool holds = (m >> i & 1) != 0;
    const auto least = conditions[i].Least(dims), most = conditions[i].Most(dims);
    if (holds ? most && *most < 0 : least && *least >= 0) return false;
    for (size_t j = 0; j < i; ++j) {
      const bool other = (m >> j & 1) != 0;
      const auto sum = Line::Sum(conditions[i], conditions[j]);
      if (!sum) continue;
      const auto most_sum = sum->Most(dims), least_sum = sum->Least(dims);
      if (holds && other && most_sum && *most_sum < 0) return false;
      if (!holds && !other && least_sum && *least_sum >= -1) return false;
      // A case where one condition holds and the other, which is never smaller, does not.
      const auto difference = Line::Sum(conditions[i], conditions[j], -1);
      const auto least_of = difference ? difference->Least(dims) : std::nullopt;
      const auto most_of = difference ? difference->Most(dims) : std::nullopt;
      if (holds && !other && most_of && *most_of <= 0) return false;
      if (!holds && other && least_of && *least_of >= 0) return false;
    }
  }
  return true;
}

bool Pattern::Exact() const {
  const auto exact = [this](const Line& line) { return line.FitsIn(dtype); };
  return kind == Kind::kLine ? exact(line) : std::all_of(list.begin(), list.end(), exact);
}

void Pattern::Simplify(bool by_value) {
  const auto equal = [&](int64_t a, int64_t b) {
    if (!by_value || table.dtype() != DType::kFloat) return EqualBytes(table, a, b);
    return table.data<float>()[a] == table.data<float>()[b];
  };
  for (size_t i = conditions.size(); i-- > 0;) {
    const auto count = int64_t{1} << conditions.size();
    const int64_t bit = int64_t{1} << i;
    bool matters = false;
    for (int64_t m = 0; m < count; ++m) {
      if ((m & bit) != 0 || !Possible(m) || !Possible(m | bit)) continue;
      matters |= !equal(m, m | bit);
    }
    if (matters) continue;
    Tensor fewer = Tensor::Allocate(table.dtype(), {count / 2});
    for (int64_t m = 0; m < count / 2; ++m) {
      const int64_t without = (m & (bit - 1)) | (m & ~(bit - 1)) << 1;
      CopyElement(table, Possible(without) ? without : without | bit, fewer, m);
    }
    table = std::move(fewer);
    conditions.erase(conditions.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace chairlift::analysis
