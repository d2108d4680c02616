#include "graph/ragged/place.h"

#include <algorithm>

#include "graph/ragged/form.h"

namespace chairlift::ragged {

std::optional<SizeSum> SizeSum::Of(const Extent& extent) {
  if (extent.Without(kLengthSymbol).has_symbols()) return std::nullopt;
  SizeSum sum;
  sum.Add({extent.batch(), extent.power(kLengthSymbol)}, extent.number());
  return sum;
}

SizeSum SizeSum::Number(int64_t value) {
  SizeSum sum;
  sum.Add({0, 0}, value);
  return sum;
}

bool SizeSum::Add(const Powers& powers, int64_t number) {
  int64_t& term = terms_[powers];
  const bool fits = !__builtin_add_overflow(term, number, &term);
  if (term == 0) terms_.erase(powers);
  return fits;
}

std::optional<int64_t> SizeSum::number() const {
  if (terms_.empty()) return 0;
  const auto& [powers, number] = *terms_.begin();
  return terms_.size() == 1 && powers == Powers{0, 0} ? std::optional(number) : std::nullopt;
}

bool SizeSum::AllAtLeastZero() const {
  return std::all_of(terms_.begin(), terms_.end(), [](const auto& t) { return t.second > 0; });
}

bool SizeSum::AllAtMostZero() const {
  return std::all_of(terms_.begin(), terms_.end(), [](const auto& t) { return t.second < 0; });
}

// If every growing term is positive, the minimum is at sizes of 1.
std::optional<int64_t> SizeSum::Least() const {
  int64_t least = 0;
  for (const auto& [powers, number] : terms_) {
    if (powers != Powers{0, 0} && number < 0) return std::nullopt;
    if (__builtin_add_overflow(least, number, &least)) return std::nullopt;
  }
  return least;
}

std::optional<int64_t> SizeSum::Most() const {
  int64_t most = 0;
  for (const auto& [powers, number] : terms_) {
    if (powers != Powers{0, 0} && number > 0) return std::nullopt;
    if (__builtin_add_overflow(most, number, &most)) return std::nullopt;
  }
  return most;
}

std::optional<SizeSum> SizeSum::Sum(const SizeSum& a, const SizeSum& b, int64_t times_b) {
  SizeSum sum = a;
  for (const auto& [powers, number] : b.terms_) {
    int64_t product = 0;
    if (__builtin_mul_overflow(number, times_b, &product) || !sum.Add(powers, product)) {
      return std::nullopt;
    }
  }
  return sum;
}

std::optional<SizeSum> SizeSum::Product(const SizeSum& a, const SizeSum& b) {
  constexpr int kMaxPower = 8;  // more than any mask has
  SizeSum sum;
  for (const auto& [left, x] : a.terms_) {
    for (const auto& [right, y] : b.terms_) {
      const Powers powers = {left.first + right.first, left.second + right.second};
      int64_t product = 0;
      if (powers.first > kMaxPower || powers.second > kMaxPower ||
          __builtin_mul_overflow(x, y, &product) || !sum.Add(powers, product)) {
        return std::nullopt;
      }
    }
  }
  return sum;
}

int Place::OnlyAxis() const {
  return offset.is_zero() && steps.size() == 1 && steps.begin()->second == SizeSum::Number(1)
             ? steps.begin()->first
             : -1;
}

std::optional<Place> Place::Sum(const Place& a, const Place& b, int64_t times_b) {
  Place sum = a;
  const auto offset = SizeSum::Sum(a.offset, b.offset, times_b);
  if (!offset) return std::nullopt;
  sum.offset = *offset;
  for (const auto& [axis, step] : b.steps) {
    const auto own = SizeSum::Sum(sum.steps[axis], step, times_b);
    if (!own) return std::nullopt;
    sum.steps[axis] = *own;
    if (own->is_zero()) sum.steps.erase(axis);
  }
  return sum;
}

std::optional<Place> Place::Product(const Place& a, const Place& b) {
  if (!b.steps.empty()) return a.steps.empty() ? Product(b, a) : std::nullopt;
  Place product;
  const auto offset = SizeSum::Product(a.offset, b.offset);
  if (!offset) return std::nullopt;
  product.offset = *offset;
  for (const auto& [axis, step] : a.steps) {
    const auto own = SizeSum::Product(step, b.offset);
    if (!own) return std::nullopt;
    if (!own->is_zero()) product.steps[axis] = *own;
  }
  return product;
}

// The extremum has every index at 0 or at its axis's end.
std::optional<SizeSum> Place::Bound(const std::vector<Extent>& dims, bool most) const {
  std::optional<SizeSum> bound = offset;
  for (const auto& [axis, step] : steps) {
    const bool grows = step.AllAtLeastZero();
    if (!grows && !step.AllAtMostZero()) return std::nullopt;
    if (grows != most) continue;
    const auto dim = SizeSum::Of(dims[static_cast<size_t>(axis)]);
    const auto end = dim ? SizeSum::Sum(*dim, SizeSum::Number(-1)) : std::nullopt;
    const auto reach = end ? SizeSum::Product(step, *end) : std::nullopt;
    bound = reach ? SizeSum::Sum(*bound, *reach) : std::nullopt;
    if (!bound) return std::nullopt;
  }
  return bound;
}

std::optional<int64_t> Place::Least(const std::vector<Extent>& dims) const {
  const auto bound = Bound(dims, false);
  return bound ? bound->Least() : std::nullopt;
}

std::optional<int64_t> Place::Most(const std::vector<Extent>& dims) const {
  const auto bound = Bound(dims, true);
  return bound ? bound->Most() : std::nullopt;
}

}  // namespace chairlift::ragged
