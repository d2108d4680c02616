// Generates unique names.
#ifndef CHAIRLIFT_GRAPH_ONNX_UNIQUE_NAMES_H_
#define CHAIRLIFT_GRAPH_ONNX_UNIQUE_NAMES_H_

#include <fmt/format.h>

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace chairlift {

// Not thread-safe. Shape inference names an unknown dimension after its value, and treats
// dimensions with the same name as equal. So two values with one name would seem to have the same
// shape.
class UniqueNames {
 public:
  void Reserve(const std::string& name) { taken_.insert(name); }
  // `name`, or, if it is taken, `name` with a number: "add", "add#2", "add#3".
  std::string Take(std::string name) {
    if (taken_.insert(name).second) return name;
    int& count = counts_.try_emplace(name, 1).first->second;
    for (;;) {
      std::string numbered = fmt::format("{}#{}", name, ++count);
      if (taken_.insert(numbered).second) return numbered;
    }
  }

 private:
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, int> counts_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_UNIQUE_NAMES_H_
