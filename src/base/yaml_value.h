// Settings in YAML, read with checks: each error names the line, the setting and what would be
// right.
#ifndef CHAIRLIFT_BASE_YAML_VALUE_H_
#define CHAIRLIFT_BASE_YAML_VALUE_H_

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace chairlift {

inline constexpr size_t kMaxSettingsBytes = size_t{1} << 20;

// The numbers that a setting takes, in words: "a number of rows, 0 (chosen from the model) to 64".
struct NumberRange {
  const char* unit = "";  // "rows"
  int64_t least = std::numeric_limits<int64_t>::min();
  int64_t most = std::numeric_limits<int64_t>::max();
  const char* zero = "";  // what 0 stands for

  bool Contains(int64_t number) const { return least <= number && number <= most; }
  std::string ToString() const;
};

// A value of a YAML text and its path, as "unfold.chain.states[0].input". All values of a text
// share one status, the first error; what is read after it is empty, so that a reader of many
// settings asks once, at its end. Errors of a text of several lines name the line.
class YamlValue {
 public:
  // The whole text. InvalidArgument where it is not YAML or longer than kMaxSettingsBytes.
  static StatusOr<YamlValue> Parse(const std::string& text, const std::string& path = "");

  const Status& status() const { return document_->status; }

  // Refuses what is not a map, keys other than `known`, and keys that are given twice.
  void CheckKeys(const std::vector<std::string>& known) const;
  bool Has(const std::string& key) const { return node_.IsMap() && node_[key].IsDefined(); }
  // The value of a key, which must be there.
  YamlValue At(const std::string& key) const;

  // These refuse other types; `takes` says what would be right.
  std::string Text(const char* takes) const;
  std::string Name() const;  // not empty
  std::string NameOr(const std::string& key, const std::string& absent) const;
  int64_t Number(const NumberRange& range) const;
  bool IsNumber() const;
  // A finite number in decimal: "0.9", "-1e-3".
  double Real() const;
  bool IsNull() const { return node_.IsNull(); }
  bool IsList() const { return node_.IsSequence(); }
  // With at least so many entries.
  std::vector<YamlValue> List(const char* takes, size_t least = 0) const;
  // The same of a map, whose names are not empty and differ.
  std::vector<std::pair<std::string, YamlValue>> Map(const char* takes, size_t least = 0) const;

  // Sets the status, unless there was an error before.
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
  // Of a number in decimal digits: "010" is 10.
  std::optional<int64_t> Decimal() const;
  YamlValue(const YAML::Node& node, int line, std::string path, std::shared_ptr<Document> document)
      : node_(node), line_(line), path_(std::move(path)), document_(std::move(document)) {}
  std::string Within(const std::string& key) const {
    return path_.empty() ? key : path_ + "." + key;
  }

  YAML::Node node_;
  int line_;          // from 0; of a map's entry its name's
  std::string path_;  // empty: the whole text
  std::shared_ptr<Document> document_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BASE_YAML_VALUE_H_
