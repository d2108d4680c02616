// Checked reading of YAML settings: each error names the line, the setting and what would be
// correct.
#ifndef CHAIRLIFT_BASE_YAML_VALUE_H_
#define CHAIRLIFT_BASE_YAML_VALUE_H_

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace chairlift {

inline constexpr size_t kMaxSettingsBytes = size_t{1} << 20;

// The numbers that a setting accepts, in words: "a number of rows, 0 (chosen from the model) to
// 64".
struct NumberRange {
  const char* unit = "";  // "rows"
  int64_t least = std::numeric_limits<int64_t>::min();
  int64_t most = std::numeric_limits<int64_t>::max();
  const char* zero = "";  // the meaning of 0

  bool Contains(int64_t number) const { return least <= number && number <= most; }
  std::string ToString() const;
};

// A value in a YAML text and its path, such as "unfold.chain.states[0].input". All values of a text
// share one status, which keeps the first error. Reads after an error return empty values, so a
// reader of many settings checks the status once, at the end. For texts of several lines, errors
// name the line.
class YamlValue {
 public:
  // Parses the whole text. InvalidArgument if it is not YAML or is longer than kMaxSettingsBytes.
  static StatusOr<YamlValue> Parse(const std::string& text, const std::string& path = "");

  const Status& status() const { return document_->status; }

  // Refuses anything but a map, keys that are not in `known`, and duplicate keys.
  void CheckKeys(const std::vector<std::string>& known) const;
  // Gives each key of a map the name that `current` returns for it.
  void RenameKeys(const std::function<std::string(const std::string&)>& current) const;
  bool Has(const std::string& key) const { return node_.IsMap() && node_[key].IsDefined(); }
  // The value of a required key.
  YamlValue At(const std::string& key) const;

  // These refuse other types; `takes` describes the correct value for the error.
  std::string Text(const char* takes) const;
  std::string Name() const;  // not empty
  std::string NameOr(const std::string& key, const std::string& absent) const;
  int64_t Number(const NumberRange& range) const;
  bool IsNumber() const;
  // A finite number in decimal: "0.9", "-1e-3".
  double Real() const;
  bool IsNull() const { return node_.IsNull(); }
  bool IsList() const { return node_.IsSequence(); }
  // Requires at least `least` entries.
  std::vector<YamlValue> List(const char* takes, size_t least = 0) const;
  // The same for a map. Its names must not be empty and must differ.
  std::vector<std::pair<std::string, YamlValue>> Map(const char* takes, size_t least = 0) const;

  // Sets the status, unless there was already an error.
  template <typename... Args>
  void Refuse(fmt::format_string<Args...> format, Args&&... args) const {
    Refuse(InvalidArgument(format, std::forward<Args>(args)...));
  }
  void Refuse(const Status& status) const;
  void RefuseAllBut(const std::string& takes) const;  // "workers is 'x'; it must be " + takes

 private:
  struct Document {
    Status status;
    bool has_lines = false;
  };
  // A number in decimal digits: "010" is 10.
  std::optional<int64_t> Decimal() const;
  YamlValue(const YAML::Node& node, int line, std::string path, std::shared_ptr<Document> document)
      : node_(node), line_(line), path_(std::move(path)), document_(std::move(document)) {}
  std::string Within(const std::string& key) const {
    return path_.empty() ? key : path_ + "." + key;
  }

  YAML::Node node_;
  int line_;          // counts from 0; for an entry of a map, the line of its name
  std::string path_;  // empty: the whole text
  std::shared_ptr<Document> document_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BASE_YAML_VALUE_H_
