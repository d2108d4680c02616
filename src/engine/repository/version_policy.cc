#include "engine/repository/version_policy.h"

#include <algorithm>

#include "base/status.h"
#include "engine/repository/model_folder.h"

namespace chairlift {
StatusOr<std::vector<std::string>> VersionPolicy::Select(
    const std::vector<std::string>& available) const {
  if (kind == Kind::kAll) return available;
  if (kind == Kind::kLatest) {
    const size_t skipped = available.size() - std::min(count, available.size());
    return std::vector<std::string>(available.begin() + static_cast<ptrdiff_t>(skipped),
                                    available.end());
  }
  if (versions.empty()) {
    return InvalidArgument("its version policy is 'specific', but it names no version");
  }
  std::vector<std::string> selected;
  for (const std::string& version : available) {
    if (std::find(versions.begin(), versions.end(), version) != versions.end()) {
      selected.push_back(version);
    }
  }
  for (const std::string& version : versions) {
    if (std::find(available.begin(), available.end(), version) == available.end()) {
      return NotFound("version {} does not exist; there are: {}", version,
                      fmt::join(available, ", "));
    }
  }
  return selected;
}

StatusOr<VersionPolicy> ReadVersionPolicy(const YamlValue& settings) {
  VersionPolicy policy;
  if (!settings.Has("versions")) return policy;
  constexpr const char* kTakes = "latest, all, or a list of numbers: [1, 3]";
  const YamlValue value = settings.At("versions");
  if (value.IsList()) {
    policy.kind = VersionPolicy::Kind::kSpecific;
    for (const YamlValue& version : value.List(kTakes, 1)) {
      policy.versions.push_back(version.Name());
      if (!IsVersion(policy.versions.back())) version.RefuseAllBut("a version's number");
    }
  } else if (const std::string word = value.Text(kTakes); word == "all") {
    policy.kind = VersionPolicy::Kind::kAll;
  } else if (word != "latest") {
    value.RefuseAllBut(kTakes);
  }
  CHAIRLIFT_RETURN_IF_ERROR(settings.status());
  return policy;
}

}  // namespace chairlift
