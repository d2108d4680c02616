// Sizes as products of a number, named dimensions and the batch: 4·seq·N.
#ifndef CHAIRLIFT_GRAPH_BATCH_AXIS_EXTENT_H_
#define CHAIRLIFT_GRAPH_BATCH_AXIS_EXTENT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

namespace chairlift {

// Two extents are equal for every request and every batch size exactly where they compare equal.
class Extent {
 public:
  Extent() = default;  // 1
  static Extent Number(int64_t value);
  static Extent Symbol(const std::string& name);
  static Extent Batch();

  // Whether it is a number, whatever the request.
  bool is_number() const { return powers_.empty() && batch_ == 0; }
  // The number it is, or the number that is a factor of it.
  int64_t number() const { return coefficient_; }
  // How often the batch size is a factor.
  int batch() const { return batch_; }
  // How often the named dimension is a factor, and whether any is.
  int power(const std::string& symbol) const;
  bool has_symbols() const { return !powers_.empty(); }
  // With 1 in place of the named dimension.
  Extent Without(const std::string& symbol) const;
  bool is_one() const { return is_number() && coefficient_ == 1; }

  std::string ToString() const;
  friend bool operator==(const Extent&, const Extent&) = default;

  // Nothing on overflow, and where a factor is there more often than in any honest shape.
  static std::optional<Extent> Product(const Extent& a, const Extent& b);
  static std::optional<Extent> Product(std::span<const Extent> factors);
  // Nothing where b does not divide a whatever the values of the symbols, or is 0.
  static std::optional<Extent> Quotient(const Extent& a, const Extent& b);

 private:
  int64_t coefficient_ = 1;
  std::map<std::string, int> powers_;  // none is 0
  int batch_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_BATCH_AXIS_EXTENT_H_
