#include "base/yaml_value.h"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <sstream>

#include "absl/strings/numbers.h"
#include "base/closest.h"
#include "base/excerpt.h"

namespace chairlift {

std::string NumberRange::ToString() const {
  std::string text = *unit == '\0' ? "a whole number" : fmt::format("a number of {}", unit);
  const bool bounded = most != std::numeric_limits<int64_t>::max();
  if (least == std::numeric_limits<int64_t>::min()) return text;
  text += fmt::format(", {}{}", bounded ? "" : "at least ", least);
  if (*zero != '\0') text += fmt::format(" ({})", zero);
  return bounded ? fmt::format("{} to {}", text, most) : text;
}

namespace {

class NoEvents final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

// YAML::LoadAll() of yaml-cpp 0.7 never ends if a text begins with ',': it does not read that, and
// finds one empty document after the other.
bool HasSeveralDocuments(const std::string& text) {
  std::istringstream in(text);
  YAML::Parser parser(in);
  NoEvents none;
  return parser.HandleNextDocument(none) && parser.HandleNextDocument(none);
}

}  // namespace

StatusOr<YamlValue> YamlValue::Parse(const std::string& text, const std::string& path) {
  if (text.size() > kMaxSettingsBytes) {
    return InvalidArgument("it is longer than {} bytes, the limit", kMaxSettingsBytes);
  }
  auto document = std::make_shared<Document>();
  document->has_lines = text.find('\n') < text.size() - 1;
  try {
    if (HasSeveralDocuments(text)) {
      return InvalidArgument(
          "it has several YAML documents, but only one is allowed: remove the lines '---', and "
          "what "
          "stands outside of a map of settings");
    }
    return YamlValue(YAML::Load(text), 0, path, std::move(document));
  } catch (const YAML::Exception& error) {
    return InvalidArgument("it is not YAML: {}", error.what());
  }
}

void YamlValue::CheckKeys(const std::vector<std::string>& known) const {
  if (!node_.IsMap()) {
    return Refuse("{} must be a map of settings, one a line: `{}: VALUE`",
                  path_.empty() ? "the file" : path_, known.empty() ? "NAME" : known.front());
  }
  const std::string in = path_.empty() ? "" : " in " + path_;
  for (const auto& [key, value] : Map("a map of settings")) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      value.Refuse("there is no setting '{}'{}{}", Shortened(key, 120), in, KnownNames(key, known));
    }
  }
}

void YamlValue::RenameKeys(const std::function<std::string(const std::string&)>& current) const {
  if (!node_.IsMap()) return;
  for (const auto& entry : node_) {
    YAML::Node key = entry.first;  // the same node, not a copy
    if (key.IsScalar()) key = current(key.Scalar());
  }
}

YamlValue YamlValue::At(const std::string& key) const {
  for (const auto& [name, value] : Map("a map of settings")) {
    if (name == key) return value;
  }
  Refuse("{} is missing", Within(key));
  return {YAML::Node(), line_, Within(key), document_};
}

std::string YamlValue::Text(const char* takes) const {
  if (node_.IsScalar()) return node_.Scalar();
  RefuseAllBut(takes);
  return {};
}

std::string YamlValue::Name() const {
  std::string name = Text("a name");
  if (name.empty()) RefuseAllBut("a name");
  return name;
}

std::string YamlValue::NameOr(const std::string& key, const std::string& absent) const {
  return Has(key) ? At(key).Name() : absent;
}

std::optional<int64_t> YamlValue::Decimal() const {
  if (!node_.IsScalar()) return std::nullopt;
  const std::string& text = node_.Scalar();
  const char* const end = text.data() + text.size();
  int64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

int64_t YamlValue::Number(const NumberRange& range) const {
  const std::optional<int64_t> number = Decimal();
  if (number && range.Contains(*number)) return *number;
  RefuseAllBut(range.ToString());
  return range.least;
}

double YamlValue::Real() const {
  double number = 0;
  const bool read = node_.IsScalar() && absl::SimpleAtod(node_.Scalar(), &number);
  if (read && std::isfinite(number)) return number;
  RefuseAllBut("a finite number");
  return 0;
}

bool YamlValue::IsNumber() const { return Decimal().has_value(); }

std::vector<YamlValue> YamlValue::List(const char* takes, size_t least) const {
  if (!node_.IsSequence() || node_.size() < least) RefuseAllBut(takes);
  std::vector<YamlValue> values;
  for (size_t i = 0; status().ok() && i < node_.size(); ++i) {
    const YAML::Node value = node_[i];
    values.push_back({value, value.Mark().line, fmt::format("{}[{}]", path_, i), document_});
  }
  return values;
}

std::vector<std::pair<std::string, YamlValue>> YamlValue::Map(const char* takes,
                                                              size_t least) const {
  if (!node_.IsMap() || node_.size() < least) RefuseAllBut(takes);
  std::vector<std::pair<std::string, YamlValue>> entries;
  std::set<std::string> seen;
  for (auto item = node_.begin(); status().ok() && item != node_.end(); ++item) {
    const std::string key = item->first.IsScalar() ? item->first.Scalar() : "(not a name)";
    const YamlValue value(item->second, item->first.Mark().line, Within(key), document_);
    if (key.empty()) value.Refuse("{} has an entry without a name", path_);
    if (!seen.insert(key).second) value.Refuse("{} is given twice", value.path_);
    entries.emplace_back(key, value);
  }
  return entries;
}

void YamlValue::Refuse(const Status& status) const {
  if (!document_->status.ok() || status.ok()) return;
  document_->status =
      document_->has_lines ? Annotate(status, fmt::format("line {}", line_ + 1)) : status;
}

void YamlValue::RefuseAllBut(const std::string& takes) const {
  if (node_.IsScalar()) return Refuse("{} is '{}'; it must be {}", path_, node_.Scalar(), takes);
  Refuse("{} must be {}", path_, takes);
}

}  // namespace chairlift
