#include "server/protocol/absent_extensions.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/excerpt.h"
#include "base/status.h"

namespace chairlift::protocol {
namespace {

using std::string_view_literals::operator""sv;

Status CheckUnchanged(const std::vector<Setting>& settings, std::string_view name,
                      const Parameter& wanted, std::string_view what, std::string_view instead) {
  for (const Setting& setting : settings) {
    if (setting.name == name && Same(setting.value, wanted)) return absl::OkStatus();
  }
  return InvalidArgument("{} \"{}\" cannot be changed while the server runs; {}", what,
                         CutText(name, 64), instead);
}

}  // namespace

std::vector<Setting> TraceSettings() {
  return {{"trace_file", ""sv},
          {"trace_level", "OFF"sv, true},
          {"trace_rate", "0"sv},
          {"trace_count", "0"sv},
          {"log_frequency", "0"sv}};
}

std::vector<Setting> LogSettings() {
  const auto shows = [](spdlog::level::level_enum level) { return spdlog::should_log(level); };
  return {{"log_file", ""sv},
          {"log_info", shows(spdlog::level::info)},
          {"log_warning", shows(spdlog::level::warn)},
          {"log_error", shows(spdlog::level::err)},
          {"log_verbose_level", int64_t{shows(spdlog::level::debug)}},
          {"log_format", "default"sv}};
}

Status CheckTraceSetting(std::string_view name, const Parameter& wanted) {
  return CheckUnchanged(TraceSettings(), name, wanted, "trace setting",
                        "`chairlift bench --trace FILE` writes a trace");
}

Status CheckLogSetting(std::string_view name, const Parameter& wanted) {
  return CheckUnchanged(LogSettings(), name, wanted, "log setting", "start it with --log-level");
}

Status NoRegion(std::string_view region) {
  return NotFound("no region '{}': shared memory is not supported; send tensors in the request",
                  region);
}

Status RefuseRegion(std::string_view region) {
  return InvalidArgument(
      "region '{}' cannot be registered: shared memory is not supported; send tensors in the "
      "request",
      region);
}

}  // namespace chairlift::protocol
