// Whole numbers that follow from sizes and from indices along axes: the algebra of all analyses in
// graph/.
#ifndef CHAIRLIFT_GRAPH_ANALYSIS_LINE_H_
#define CHAIRLIFT_GRAPH_ANALYSIS_LINE_H_

#include <compare>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chairlift/tensor.h"

namespace chairlift::analysis {

// Names of sizes that no dimension of a file can have. A batch has B ≥ 1 sequences, each with P ≥ 0
// earlier tokens and S ≥ 1 new ones (without a past: all). A source has E ≥ 1 tokens.
struct Size {
  static constexpr char kBatch[] = "(batch)", kNew[] = "(length)", kPast[] = "(past)",
                        kTotal[] = "(total)", kSource[] = "(source)";
};

// A bound for sizes of real models; larger numbers are not followed.
inline constexpr int64_t kMostNumber = int64_t{1} << 40;

// A size by its name, or the index along an axis.
struct Factor {
  int axis = -1;
  std::string size = {};  // if `axis` is −1
  friend auto operator<=>(const Factor&, const Factor&) = default;
};
using Factors = std::vector<Factor>;  // in order; a square has a factor twice

// number + the sum of `products`: 4·seq·batch + index 1 − 3. Two compare equal exactly if they are
// equal for all sizes and indices. Results are absent on overflow, and beyond any real model's.
struct Line {
  int64_t number = 0;
  std::map<Factors, int64_t> products = {};  // with their multiples; none is 0
  // Only for a condition. It holds where input `mark` of the graph, [batch, length] of 0 and 1, has
  // 1 at this place in row-major order. Without a mark it holds where this is ≥ 0.
  int mark = -1;

  static Line Number(int64_t n) { return {.number = n}; }
  static Line Of(std::string_view size) {
    return {.products = {{{{.size = std::string(size)}}, 1}}};
  }
  // The size that a dimension's name says, as shape inference makes them: products ("12*batch",
  // where `batch` is the batch's name), but not bounded sizes ("min(batch,512)").
  static std::optional<Line> OfSymbol(const std::string& symbol, std::string_view batch);
  static Line Batch() { return Of(Size::kBatch); }
  static Line Index(int axis) { return {.products = {{{{.axis = axis}}, 1}}}; }
  // P + S.
  static Line Total() { return *Sum(Of(Size::kPast), Of(Size::kNew)); }

  bool is_number() const { return products.empty() && mark < 0; }
  bool is_one() const { return is_number() && number == 1; }
  bool is_negative() const { return is_number() && number < 0; }
  // The multiple of the size, or index, alone.
  int64_t of(std::string_view size) const;
  int64_t along(int axis) const;
  // The largest power of the size.
  int power(std::string_view size) const;
  int batch() const { return power(Size::kBatch); }
  // Whether a size other than these is a factor.
  bool has_others(std::initializer_list<std::string_view> than) const;
  bool has_sizes() const { return has_others({}); }
  // The number before the one product, or the number alone; absent for sums.
  std::optional<int64_t> times() const;
  std::vector<int> axes() const;  // those it depends on
  bool depends_on(int axis) const { return has(axis, {}); }
  friend bool operator==(const Line&, const Line&) = default;

  // a + times_b · b.
  static std::optional<Line> Sum(const Line& a, const Line& b, int64_t times_b = 1);
  static std::optional<Line> Product(const Line& a, const Line& b);
  static std::optional<Line> Product(std::span<const Line> factors);
  // Absent if b does not divide a for all values of the sizes.
  static std::optional<Line> Quotient(const Line& a, const Line& b);
  // The factor of the index along `axis`; absent if it is not the same for all indices.
  std::optional<Line> Multiple(int axis) const;
  // With `place` substituted for the index along `axis`.
  std::optional<Line> With(int axis, const Line& place) const;
  // With axis i renumbered as to[i]; −1: the axis is removed, and had one entry.
  Line Moved(std::span<const int> to) const;
  // Whether an element of this type holds it exactly, for sizes up to 4,096. Each further factor of
  // a product counts as up to 256: products of sizes are numbers of entries.
  bool FitsIn(DType dtype) const;
  // The minimum over all sizes and all indices into `dims`; absent if there is no bound.
  std::optional<int64_t> Least(std::span<const Line> dims) const;
  std::optional<int64_t> Most(std::span<const Line> dims) const;

  std::string ToString() const;  // "past + 2·batch·length + index 2"

 private:
  bool Add(const Factors& factors, int64_t times);
  bool has(int axis, std::string_view size) const;
  // Whether it is ≥ 0 (or ≤ 0, for −1) because each part is.
  bool HasSign(int sign) const;
};

// "[4,batch·length]".
std::string ToString(std::span<const Line> dims);

}  // namespace chairlift::analysis

#endif  // CHAIRLIFT_GRAPH_ANALYSIS_LINE_H_
