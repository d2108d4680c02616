// Selects which versions in a model's folder are served.
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
  size_t count = 1;                   // kLatest: how many of the highest numbers
  std::vector<std::string> versions;  // for kSpecific

  // The versions of `available` ("9" sorts before "10") to serve, in the same order. NotFound has a
  // requested version that does not exist; InvalidArgument says that none was requested.
  StatusOr<std::vector<std::string>> Select(const std::vector<std::string>& available) const;
};

// The setting `versions` of a model.yaml: latest, all, or a list of numbers; default latest.
StatusOr<VersionPolicy> ReadVersionPolicy(const YamlValue& settings);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REPOSITORY_VERSION_POLICY_H_
