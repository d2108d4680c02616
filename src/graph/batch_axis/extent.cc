#include "graph/batch_axis/extent.h"

#include <fmt/format.h>

#include <utility>

namespace chairlift {
namespace {

// More dimensions than any shape has.
constexpr int kMaxPower = 64;

}  // namespace

Extent Extent::Number(int64_t value) {
  Extent e;
  e.coefficient_ = value;
  return e;
}

Extent Extent::Symbol(const std::string& name) {
  Extent e;
  e.powers_[name] = 1;
  return e;
}

Extent Extent::Batch() {
  Extent e;
  e.batch_ = 1;
  return e;
}

int Extent::power(const std::string& symbol) const {
  const auto found = powers_.find(symbol);
  return found == powers_.end() ? 0 : found->second;
}

Extent Extent::Without(const std::string& symbol) const {
  Extent e = *this;
  e.powers_.erase(symbol);
  return e;
}

std::string Extent::ToString() const {
  std::string text;
  const auto append = [&text](const std::string& factor) {
    text += fmt::format("{}{}", text.empty() ? "" : "*", factor);
  };
  if (coefficient_ != 1 || is_number()) append(fmt::format("{}", coefficient_));
  for (const auto& [symbol, power] : powers_) {
    for (int i = 0; i < power; ++i) append(symbol);
  }
  for (int i = 0; i < batch_; ++i) append("batch");
  return text;
}

std::optional<Extent> Extent::Product(const Extent& a, const Extent& b) {
  Extent product = a;
  if (__builtin_mul_overflow(a.coefficient_, b.coefficient_, &product.coefficient_)) {
    return std::nullopt;
  }
  if (product.coefficient_ == 0) return Number(0);
  product.batch_ += b.batch_;
  bool fits = product.batch_ <= kMaxPower;
  for (const auto& [symbol, power] : b.powers_) {
    fits &= (product.powers_[symbol] += power) <= kMaxPower;
  }
  return fits ? std::optional(std::move(product)) : std::nullopt;
}

std::optional<Extent> Extent::Product(std::span<const Extent> factors) {
  std::optional<Extent> product = Extent();
  for (const Extent& factor : factors) {
    product = Product(*product, factor);
    if (!product) return std::nullopt;
  }
  return product;
}

std::optional<Extent> Extent::Quotient(const Extent& a, const Extent& b) {
  if (b.coefficient_ == 0 || b.coefficient_ == -1 || a.coefficient_ % b.coefficient_ != 0) {
    return std::nullopt;
  }
  Extent quotient = a;
  quotient.coefficient_ /= b.coefficient_;
  for (const auto& [symbol, power] : b.powers_) {
    const auto found = quotient.powers_.find(symbol);
    if (found == quotient.powers_.end() || found->second < power) return std::nullopt;
    found->second -= power;
    if (found->second == 0) quotient.powers_.erase(found);
  }
  if (a.batch_ < b.batch_) return std::nullopt;
  quotient.batch_ -= b.batch_;
  return quotient;
}

}  // namespace chairlift
