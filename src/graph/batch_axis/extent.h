// Sizes as products of a number, named dimensions and the batch: 4·seq·N.
#ifndef CHAIRLIFT_GRAPH_BATCH_AXIS_EXTENT_H_
#define CHAIRLIFT_GRAPH_BATCH_AXIS_EXTENT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

namespace chairlift {

// Two extents compare equal exactly if they are equal for every request and every batch size.
class Extent {
 public:
  Extent() = default;  // 1
  static Extent Number(int64_t value);
  static Extent Symbol(const std::string& name);
  static Extent Batch();

  // Whether it is a constant number.
  bool is_number() const { return powers_.empty() && batch_ == 0; }
  // The number, or the numeric factor of a product.
  int64_t number() const { return coefficient_; }
  // The power of the batch size.
  int batch() const { return batch_; }
  // The power of the named dimension, and whether any has one.
  int power(const std::string& symbol) const;
  bool has_symbols() const { return !powers_.empty(); }
  // With 1 in place of the named dimension.
  Extent Without(const std::string& symbol) const;
  bool is_one() const { return is_number() && coefficient_ == 1; }

  std::string ToString() const;
  friend bool operator==(const Extent&, const Extent&) = default;

  // Nothing on overflow, or if a power is larger than in any real shape.
  static std::optional<Extent> Product(const Extent& a, const Extent& b);
  static std::optional<Extent> Product(std::span<const Extent> factors);
  // Nothing if b is 0, or does not divide a for all values of the symbols.
  static std::optional<Extent> Quotient(const Extent& a, const Extent& b);

 private:
  int64_t coefficient_ = 1;
  std::map<std::string, int> powers_;  // no power is 0
  int batch_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_BATCH_AXIS_EXTENT_H_
