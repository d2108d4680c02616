// A node's attributes: names with typed values, as in ONNX.
#ifndef CHAIRLIFT_OPS_ATTRIBUTES_H_
#define CHAIRLIFT_OPS_ATTRIBUTES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "chairlift/tensor.h"

namespace chairlift {

class Graph;  // graph/ir.h; operators pass sub-graphs on without reading them

using AttributeValue =
    std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>,
                 std::vector<std::string>, Tensor, std::shared_ptr<const Graph>>;

class Attributes {
 public:
  void Set(std::string name, AttributeValue value) {
    values_.insert_or_assign(std::move(name), std::move(value));
  }
  void Erase(std::string_view name) {
    if (auto it = values_.find(name); it != values_.end()) values_.erase(it);
  }
  bool Has(std::string_view name) const { return values_.find(name) != values_.end(); }

  // Null if the attribute is absent or has another type.
  template <typename T>
  const T* Find(std::string_view name) const {
    auto it = values_.find(name);
    return it == values_.end() ? nullptr : std::get_if<T>(&it->second);
  }
  // The default if absent or of another type (the importer has checked types before).
  int64_t Int(std::string_view name, int64_t fallback) const { return Get(name, fallback); }
  float Float(std::string_view name, float fallback) const { return Get(name, fallback); }
  std::string String(std::string_view name, std::string fallback) const {
    return Get(name, std::move(fallback));
  }
  std::vector<int64_t> Ints(std::string_view name, std::vector<int64_t> fallback = {}) const {
    return Get(name, std::move(fallback));
  }
  std::vector<float> Floats(std::string_view name, std::vector<float> fallback = {}) const {
    return Get(name, std::move(fallback));
  }
  std::vector<std::string> Strings(std::string_view name) const {
    return Get(name, std::vector<std::string>{});
  }

  const std::map<std::string, AttributeValue, std::less<>>& values() const { return values_; }

 private:
  template <typename T>
  T Get(std::string_view name, T fallback) const {
    const T* found = Find<T>(name);
    return found != nullptr ? *found : std::move(fallback);
  }

  std::map<std::string, AttributeValue, std::less<>> values_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_ATTRIBUTES_H_
