#include "ops/axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

namespace chairlift {
namespace {

// A product: number × symbols, the symbols in order.
struct Factors {
  int64_t number = 1;
  std::vector<std::string> symbols;
};

// Adds the factors of `symbol`; false if it is another kind of expression.
bool AddSymbol(const std::string& symbol, Factors& out) {
  size_t begin = 0;
  while (true) {
    const size_t end = std::min(symbol.find('*', begin), symbol.size());
    const std::string part = symbol.substr(begin, end - begin);
    if (part.empty() || part.find_first_of(" +-/()%") != std::string::npos) {
      // A whole expression counts as one factor.
      if (begin != 0 || end != symbol.size() || part.empty()) return false;
      out.symbols.push_back(part);
      return true;
    }
    if (part.find_first_not_of("0123456789") == std::string::npos) {
      if (part.size() > 9) return false;
      if (__builtin_mul_overflow(out.number, std::stoll(part), &out.number)) return false;
    } else {
      out.symbols.push_back(part);
    }
    if (end == symbol.size()) return true;
    begin = end + 1;
  }
}

std::optional<Factors> Factorise(std::span<const Dim> dims) {
  Factors out;
  for (const Dim& d : dims) {
    if (d.known()) {
      if (__builtin_mul_overflow(out.number, d.value(), &out.number)) return std::nullopt;
    } else if (!d.is_symbol() || !AddSymbol(d.symbol(), out)) {
      return std::nullopt;
    }
  }
  std::sort(out.symbols.begin(), out.symbols.end());
  return out;
}

Dim ToDim(const Factors& factors) {
  if (factors.symbols.empty() || factors.number == 0) return factors.number;
  if (factors.symbols.size() == 1 && factors.number == 1) return Dim::Symbol(factors.symbols[0]);
  std::string name = factors.number == 1 ? "" : std::to_string(factors.number);
  for (const std::string& s : factors.symbols) {
    if (s.find_first_of(" +-/()%") != std::string::npos) return Dim::Unknown();
    name += name.empty() ? s : "*" + s;
  }
  constexpr size_t kLongestName = 256;
  return name.size() > kLongestName ? Dim::Unknown() : Dim::Symbol(name);
}

}  // namespace

StatusOr<int> NormalizeAxis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    return InvalidArgument("axis {} is outside [{}, {}) for a tensor of rank {}", axis, -rank, rank,
                           rank);
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

StatusOr<std::vector<int>> NormalizeAxes(std::span<const int64_t> axes, int rank) {
  std::vector<int> out;
  std::vector<bool> seen(rank, false);
  for (int64_t a : axes) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(a, rank));
    if (seen[axis]) return InvalidArgument("axis {} is named twice", a);
    seen[axis] = true;
    out.push_back(axis);
  }
  return out;
}

StatusOr<std::vector<int>> AxesOrAll(const Attributes& attributes, int rank) {
  if (const auto* axes = attributes.Find<std::vector<int64_t>>("axes")) {
    return NormalizeAxes(*axes, rank);
  }
  std::vector<int> all(static_cast<size_t>(rank));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Status SetOutput(InferContext& context, int i, DType dtype, SymbolicShape shape) {
  if (shape.has_rank()) {
    Shape known;
    for (const Dim& d : shape.dims()) {
      if (d.known()) known.Append(d.value());
    }
    CHAIRLIFT_RETURN_IF_ERROR(known.Checked(DTypeSize(dtype)).status());
  }
  context.set_output(i, dtype, std::move(shape));
  return absl::OkStatus();
}

std::optional<std::vector<Dim>> ShapeElements(const InferContext& context, int i) {
  const Tensor* value = context.value(i);
  if (value != nullptr && (value->size() > kMaxRank || value->shape().rank() > 1)) {
    return std::nullopt;
  }
  return context.elements(i);
}

Dim Product(std::span<const Dim> dims) {
  for (const Dim& d : dims) {
    if (d.known() && d.value() == 0) return 0;
  }
  const auto factors = Factorise(dims);
  return factors ? ToDim(*factors) : Dim::Unknown();
}

std::optional<Dim> Quotient(std::span<const Dim> total, std::span<const Dim> parts) {
  auto t = Factorise(total);
  const auto p = Factorise(parts);
  if (!t || !p || p->number == 0 || t->number % p->number != 0) return std::nullopt;
  t->number /= p->number;
  for (const std::string& s : p->symbols) {
    const auto it = std::find(t->symbols.begin(), t->symbols.end(), s);
    if (it == t->symbols.end()) return std::nullopt;
    t->symbols.erase(it);
  }
  return ToDim(*t);
}

std::vector<Dim> ElementsOfType(DType dtype, std::vector<Dim> elements) {
  const double most = std::ldexp(1.0, dtype == DType::kInt32 ? 31 : 63);
  for (Dim& d : elements) {
    const auto factors = Factorise({&d, 1});
    if (!factors) {  // unknown, or with a larger number than Factorise() reads
      d = Dim::Unknown();
      continue;
    }
    const int sizes = static_cast<int>(factors->symbols.size());
    const int bits = sizes == 0 ? 0 : 12 + 8 * (sizes - 1);
    if (std::ldexp(static_cast<double>(factors->number), bits) >= most) d = Dim::Unknown();
  }
  return elements;
}

Dim AtMost(const Dim& symbol, int64_t limit) {
  constexpr size_t kLongestName = 256;
  if (!symbol.is_symbol() || symbol.symbol().size() > kLongestName) return Dim::Unknown();
  return Dim::Symbol(fmt::format("min({},{})", symbol.symbol(), limit));
}

bool IsAtMost(const Dim& d, const Dim& symbol) {
  if (!d.is_symbol() || !symbol.is_symbol()) return false;
  const std::string prefix = "min(" + symbol.symbol() + ",";
  const std::string& name = d.symbol();
  if (name.size() < prefix.size() + 2 || !name.starts_with(prefix) || !name.ends_with(")")) {
    return false;
  }
  const std::string limit = name.substr(prefix.size(), name.size() - prefix.size() - 1);
  return limit.find_first_not_of("0123456789") == std::string::npos && limit != "0" && limit != "1";
}

}  // namespace chairlift
