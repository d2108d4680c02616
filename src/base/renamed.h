// Names that changed. For one version the old ones still work, with a warning that gives the new
// one.
#ifndef CHAIRLIFT_BASE_RENAMED_H_
#define CHAIRLIFT_BASE_RENAMED_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace chairlift {

struct Renamed {
  const char* from;
  const char* to;
  const char* command = "";  // of a flag: the command that has it
  int64_t factor = 1;        // of a flag: a value of the new one in units of the old one's
};

std::span<const Renamed> RenamedFlags();
std::span<const Renamed> RenamedSettings();  // of model.yaml, --set, and config.pbtxt's parameters
std::span<const Renamed> RenamedPolicies();  // values of the setting and the flag `policy`
std::span<const Renamed> RenamedMetrics();
std::span<const Renamed> RenamedFields();  // of `generation` in a model's statistics

// "`a` is now `b`; the old name works until version 0.3"
std::string RenamedNotice(const Renamed& renamed);
// The current name of a setting. If `name` is an old one, logs a warning that begins with `where`.
std::string CurrentSetting(const std::string& name, std::string_view where);
// The same for a batching policy.
std::string CurrentPolicy(const std::string& name, std::string_view where);

}  // namespace chairlift

#endif  // CHAIRLIFT_BASE_RENAMED_H_
