#include "graph/analysis/line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace chairlift::analysis {
namespace {

// Longer products and longer sums are not those of real models.
constexpr size_t kMostFactors = 64, kMostProducts = 64;

// The minimum of a size; nothing for other integers ("?7[0]").
std::optional<int64_t> LeastOf(const Factor& factor) {
  if (factor.size.find('[') != std::string::npos) return std::nullopt;
  return factor.size == Size::kBatch || factor.size == Size::kNew || factor.size == Size::kSource;
}

std::string NameOf(const Factor& factor) {
  if (factor.axis >= 0) return fmt::format("index {}", factor.axis);
  for (const std::string_view own : {Size::kBatch, Size::kNew, Size::kPast, Size::kSource}) {
    if (factor.size == own) return std::string(own.substr(1, own.size() - 2));
  }
  return factor.size;
}

Factors Joined(const Factors& a, const Factors& b) {
  Factors all;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all));
  return all;
}

}  // namespace

std::optional<Line> Line::OfSymbol(const std::string& symbol, std::string_view batch) {
  if (symbol == batch) return Batch();
  if (symbol.find(batch) == std::string::npos) return Of(symbol);
  if (symbol.find("min(") != std::string::npos) return std::nullopt;
  if (symbol.find('*') == std::string::npos) return Of(symbol);
  std::optional<Line> product = Number(1);
  for (size_t begin = 0; product && begin <= symbol.size();) {
    const size_t end = std::min(symbol.find('*', begin), symbol.size());
    const std::string part = symbol.substr(begin, end - begin);
    const bool number = part.find_first_not_of("0123456789") == std::string::npos;
    if (part.empty() || (number && part.size() > 9)) return std::nullopt;
    product = Product(*product, number          ? Number(std::stoll(part))
                                : part == batch ? Batch()
                                                : Of(part));
    begin = end + 1;
  }
  return product;
}

bool Line::Add(const Factors& factors, int64_t times) {
  const bool alone = factors.empty();
  int64_t& own = alone ? number : products[factors];
  const bool fits = !__builtin_add_overflow(own, times, &own) && own <= kMostNumber &&
                    own >= -kMostNumber && factors.size() <= kMostFactors;
  if (!alone && own == 0) products.erase(factors);
  return fits && products.size() <= kMostProducts;
}

int64_t Line::of(std::string_view size) const {
  const auto found = products.find({{.size = std::string(size)}});
  return found == products.end() ? 0 : found->second;
}

int64_t Line::along(int axis) const {
  const auto found = products.find({{.axis = axis}});
  return found == products.end() ? 0 : found->second;
}

int Line::power(std::string_view size) const {
  std::ptrdiff_t most = 0;
  for (const auto& [factors, times] : products) {
    most = std::max(most, std::count_if(factors.begin(), factors.end(),
                                        [&](const Factor& f) { return f.size == size; }));
  }
  return static_cast<int>(most);
}

bool Line::has_others(std::initializer_list<std::string_view> than) const {
  return std::any_of(products.begin(), products.end(), [&](const auto& product) {
    return std::any_of(product.first.begin(), product.first.end(), [&](const Factor& f) {
      return f.axis < 0 && std::find(than.begin(), than.end(), f.size) == than.end();
    });
  });
}

std::optional<int64_t> Line::times() const {
  if (products.empty()) return number;
  return products.size() == 1 && number == 0 ? std::optional(products.begin()->second)
                                             : std::nullopt;
}

bool Line::has(int axis, std::string_view size) const {
  return std::any_of(products.begin(), products.end(), [&](const auto& product) {
    return std::any_of(product.first.begin(), product.first.end(),
                       [&](const Factor& f) { return f.axis == axis && f.size == size; });
  });
}

std::vector<int> Line::axes() const {
  std::vector<int> axes;
  for (const auto& [factors, times] : products) {
    for (const Factor& f : factors) {
      if (f.axis >= 0) axes.push_back(f.axis);
    }
  }
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return axes;
}

std::optional<Line> Line::Sum(const Line& a, const Line& b, int64_t times_b) {
  if (a.mark >= 0 || b.mark >= 0) return std::nullopt;
  Line sum = a;
  int64_t product = 0;
  if (__builtin_mul_overflow(times_b, b.number, &product) || !sum.Add({}, product)) {
    return std::nullopt;
  }
  for (const auto& [factors, times] : b.products) {
    if (__builtin_mul_overflow(times_b, times, &product) || !sum.Add(factors, product)) {
      return std::nullopt;
    }
  }
  return sum;
}

std::optional<Line> Line::Product(const Line& a, const Line& b) {
  if (a.mark >= 0 || b.mark >= 0) return std::nullopt;
  if (a.is_number()) return Sum(Line(), b, a.number);
  if (b.is_number()) return Sum(Line(), a, b.number);
  Line all;
  bool fits = true;
  const auto add = [&](const Factors& x, int64_t times_x, const Factors& y, int64_t times_y) {
    int64_t times = 0;
    fits =
        fits && !__builtin_mul_overflow(times_x, times_y, &times) && all.Add(Joined(x, y), times);
  };
  add({}, a.number, {}, b.number);
  for (const auto& [x, times] : a.products) add(x, times, {}, b.number);
  for (const auto& [y, times] : b.products) add({}, a.number, y, times);
  for (const auto& [x, times_x] : a.products) {
    for (const auto& [y, times_y] : b.products) add(x, times_x, y, times_y);
  }
  return fits ? std::optional(all) : std::nullopt;
}

std::optional<Line> Line::Product(std::span<const Line> factors) {
  std::optional<Line> product = Number(1);
  for (const Line& factor : factors) {
    product = Product(*product, factor);
    if (!product) return std::nullopt;
  }
  return product;
}

std::optional<Line> Line::Quotient(const Line& a, const Line& b) {
  if (a.mark >= 0 || b.mark >= 0) return std::nullopt;
  if (a == b && !b.is_number()) return Number(1);
  const bool alone = b.products.empty();
  const Factors by = alone ? Factors() : b.products.begin()->first;
  const int64_t number = alone ? b.number : b.products.begin()->second;
  if (number < 1) return std::nullopt;
  const auto divided = [&](const Factors& factors, int64_t times, Line& to) {
    Factors rest;
    if (times % number != 0 || !std::includes(factors.begin(), factors.end(), by.begin(), by.end()))
      return false;
    std::set_difference(factors.begin(), factors.end(), by.begin(), by.end(),
                        std::back_inserter(rest));
    return to.Add(rest, times / number);
  };
  Line quotient;
  if (!alone && (b.number != 0 || b.products.size() > 1)) {  // by a sum: of the first products
    if (a.products.empty() ||
        !divided(a.products.begin()->first, a.products.begin()->second, quotient)) {
      return std::nullopt;
    }
    return Product(quotient, b) == a ? std::optional(quotient) : std::nullopt;
  }
  if (a.number != 0 && !divided({}, a.number, quotient)) return std::nullopt;
  for (const auto& [factors, times] : a.products) {
    if (!divided(factors, times, quotient)) return std::nullopt;
  }
  return quotient;
}

std::optional<Line> Line::Multiple(int axis) const {
  Line multiple;
  for (const auto& [factors, times] : products) {
    const auto own = std::find(factors.begin(), factors.end(), Factor{.axis = axis});
    if (own == factors.end()) continue;
    Factors rest = factors;
    rest.erase(rest.begin() + (own - factors.begin()));
    if (std::find(rest.begin(), rest.end(), Factor{.axis = axis}) != rest.end()) {
      return std::nullopt;
    }
    multiple.Add(rest, times);
  }
  return multiple;
}

std::optional<Line> Line::With(int axis, const Line& place) const {
  if (!depends_on(axis)) return *this;
  const std::optional<Line> multiple = Multiple(axis);
  Line rest = *this;
  rest.mark = -1;
  std::erase_if(rest.products, [&](const auto& product) {
    return std::find(product.first.begin(), product.first.end(), Factor{.axis = axis}) !=
           product.first.end();
  });
  const auto moved = multiple ? Product(*multiple, place) : std::nullopt;
  std::optional<Line> with = moved ? Sum(rest, *moved) : std::nullopt;
  if (with) with->mark = mark;
  return with;
}

Line Line::Moved(std::span<const int> to) const {
  Line moved = Number(number);
  moved.mark = mark;
  for (const auto& [factors, times] : products) {
    Factors own = factors;
    bool one = false;
    for (Factor& f : own) {
      if (f.axis < 0) continue;
      f.axis = to[static_cast<size_t>(f.axis)];
      one |= f.axis < 0;
    }
    std::sort(own.begin(), own.end());
    if (!one) moved.Add(own, times);
  }
  return moved;
}

bool Line::HasSign(int sign) const {
  const auto fits = [&](const auto& product) {
    return product.second * sign > 0 &&
           std::all_of(product.first.begin(), product.first.end(),
                       [](const Factor& f) { return LeastOf(f).has_value(); });
  };
  return number * sign >= 0 && std::all_of(products.begin(), products.end(), fits);
}

bool Line::FitsIn(DType dtype) const {
  const int bits = dtype == DType::kFloat ? 24 : dtype == DType::kInt32 ? 31 : 63;
  double most = std::abs(static_cast<double>(number));
  for (const auto& [factors, times] : products) {
    const int sizes = 12 + 8 * (static_cast<int>(factors.size()) - 1);
    most += std::ldexp(std::abs(static_cast<double>(times)), sizes);
  }
  return most <= std::ldexp(1.0, bits);
}

// Each index is at 0 or at its axis's end, and each size that grows it is at its minimum.
std::optional<int64_t> Line::Least(std::span<const Line> dims) const {
  if (mark >= 0) return std::nullopt;
  Line least = *this;
  for (const int axis : axes()) {
    const auto multiple = least.Multiple(axis);
    if (!multiple) return std::nullopt;
    if (!multiple->HasSign(1) && !multiple->HasSign(-1)) return std::nullopt;
    const auto last = multiple->HasSign(1) ? std::optional(Number(0))
                                           : Sum(dims[static_cast<size_t>(axis)], Number(1), -1);
    const auto with = last ? least.With(axis, *last) : std::nullopt;
    if (!with) return std::nullopt;
    least = *with;
  }
  int64_t bound = least.number;
  for (const auto& [factors, times] : least.products) {
    int64_t product = times;
    for (const Factor& f : factors) {
      const auto own = LeastOf(f);
      if (times < 0 || !own) return std::nullopt;
      product *= *own;
    }
    bound += product;
  }
  return bound;
}

std::optional<int64_t> Line::Most(std::span<const Line> dims) const {
  const auto negative = Sum(Line(), *this, -1);
  const auto least = negative ? negative->Least(dims) : std::nullopt;
  return least ? std::optional(-*least) : std::nullopt;
}

std::string Line::ToString() const {
  std::vector<std::string> terms;
  for (const auto& [factors, times] : products) {
    std::vector<std::string> names;
    if (times != 1) names.push_back(std::to_string(times));
    for (const Factor& f : factors) names.push_back(NameOf(f));
    terms.push_back(fmt::format("{}", fmt::join(names, "·")));
  }
  if (number != 0 || terms.empty()) terms.push_back(std::to_string(number));
  return fmt::format("{}", fmt::join(terms, " + "));
}

std::string ToString(std::span<const Line> dims) {
  std::vector<std::string> all;
  for (const Line& dim : dims) all.push_back(dim.ToString());
  return fmt::format("[{}]", fmt::join(all, ","));
}

}  // namespace chairlift::analysis
