// Which of the versions in a model's folder are served.
#ifndef CHAIRLIFT_ENGINE_REPOSITORY_VERSION_POLICY_H_
#define CHAIRLIFT_ENGINE_REPOSITORY_VERSION_POLICY_H_

#include <cstddef>
#include <string>
#include <vector>

#include "base/yaml_value.h"
#include "chairlift/status.h"

namespace chairlift {

struct VersionPolicy {
  enum class Kind { kLatest, kAll, kSpecific };
  Kind kind = Kind::kLatest;
  size_t count = 1;                   // kLatest: so many of the highest numbers
  std::vector<std::string> versions;  // kSpecific

  // Those of `available` ("9" before "10") to be served, in the same order. NotFound names a
  // version that was asked for and is not there, InvalidArgument says that none was.
  StatusOr<std::vector<std::string>> Select(const std::vector<std::string>& available) const;
};

// The setting `versions` of a model.yaml: latest, all, or a list of numbers; latest where it is
// absent.
StatusOr<VersionPolicy> ReadVersionPolicy(const YamlValue& settings);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REPOSITORY_VERSION_POLICY_H_
