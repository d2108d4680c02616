#include "engine/programs/process/function_config.h"

#include <algorithm>
#include <variant>

#include "base/status.h"

namespace chairlift {
namespace {

constexpr int64_t kDayUs = int64_t{24} * 3600 * 1'000'000;
constexpr int64_t kMostBytes = int64_t{1} << 50;

struct FunctionSetting {
  const char* name;
  std::variant<int FunctionConfig::*, int64_t FunctionConfig::*> member;
  NumberRange range;
  const char* about;
};

using F = FunctionConfig;
constexpr FunctionSetting kFunctionSettings[] = {
    {"workers", &F::workers, {"processes", 1, 64}, "Processes that compute"},
    {"max_workers",
     &F::max_workers,
     {"processes", 0, 64, "as many as workers"},
     "More workers are started, up to this number, while all have been busy for a second"},
    {"spare_workers",
     &F::spare_workers,
     {"processes", 0, 64, "none"},
     "Loaded stand-by workers; each replaces a worker that has ended"},
    {"hook_workers",
     &F::hook_workers,
     {"processes", 1, 64},
     "Processes for each hook in separate_hooks"},
    {"batches_in_flight",
     &F::batches_in_flight,
     {"batches", 1, 8},
     "Batches of a worker: while it computes one, the others are made ready"},
    {"batch_timeout_us",
     &F::batch_timeout_us,
     {"microseconds", 1000, kDayUs},
     "A worker that takes longer for a batch (a generator: for a step) is killed"},
    {"load_timeout_us",
     &F::load_timeout_us,
     {"microseconds", 1000, kDayUs},
     "A worker that takes longer to load is killed"},
    {"stream_timeout_us",
     &F::stream_timeout_us,
     {"microseconds", 1000, kDayUs},
     "A generator that goes on for longer is ended"},
    {"cancel_timeout_us",
     &F::cancel_timeout_us,
     {"microseconds", 1000, kDayUs},
     "A worker that takes longer to end a cancelled generator is killed"},
    {"restart_after_batches",
     &F::restart_after_batches,
     {"batches", 0, kMostBytes, "never"},
     "A worker is replaced after this number of batches"},
    {"restart_after_bytes",
     &F::restart_after_bytes,
     {"bytes", 0, kMostBytes, "never"},
     "A worker that uses this much memory is replaced"},
    {"max_memory_bytes",
     &F::max_memory_bytes,
     {"bytes", 0, kMostBytes, "no limit"},
     "Memory that a worker may allocate; an allocation beyond it raises MemoryError"},
};
constexpr const char* kPython = "python";
constexpr const char* kExecutable = "python_executable";
constexpr const char* kRetryAlone = "retry_alone";
constexpr const char* kCalls = "calls";
constexpr const char* kHooksApart = "separate_hooks";
constexpr size_t kMostCalledModels = 64;

// All settings except `python`.
void ReadSettings(const YamlValue& settings, FunctionConfig& config) {
  for (const FunctionSetting& setting : kFunctionSettings) {
    if (!settings.Has(setting.name)) continue;
    const int64_t number = settings.At(setting.name).Number(setting.range);
    if (const auto* member = std::get_if<int FunctionConfig::*>(&setting.member)) {
      config.** member = static_cast<int>(number);
    } else {
      config.*std::get<int64_t FunctionConfig::*>(setting.member) = number;
    }
  }
  if (settings.Has(kExecutable)) config.python_executable = settings.At(kExecutable).Name();
  if (settings.Has(kRetryAlone)) {
    const YamlValue retry = settings.At(kRetryAlone);
    const std::string said = retry.Text("true or false");
    if (said != "true" && said != "false") retry.RefuseAllBut("true or false");
    config.retry_alone = said == "true";
  }
  if (settings.Has(kCalls)) {
    config.calls.clear();
    for (const YamlValue& model : settings.At(kCalls).List("a list of models", 1)) {
      const std::string name = model.Name();
      config.calls.emplace(name, name);
      if (config.calls.size() > kMostCalledModels) {
        model.Refuse("more than {} models, which is the limit", kMostCalledModels);
      }
    }
  }
  if (settings.Has(kHooksApart)) {
    config.separate_hooks.clear();
    for (const YamlValue& hook : settings.At(kHooksApart).List("a list of hooks")) {
      const std::string name = hook.Name();
      if (name != kPreprocess && name != kPostprocess) {
        hook.RefuseAllBut("preprocess or postprocess");
      }
      config.separate_hooks.push_back(name);
    }
  }
}

}  // namespace

std::optional<FunctionConfig> ParseFunction(const std::string& text) {
  const size_t colon = text.rfind(".py:");
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  FunctionConfig config;
  config.file = text.substr(0, colon + 3);
  config.function = text.substr(colon + 4);
  const bool named = !config.function.empty() && config.function.find('/') == std::string::npos;
  return named ? std::optional(std::move(config)) : std::nullopt;
}

std::vector<SettingInfo> FunctionSettingInfos() {
  std::vector<SettingInfo> infos = {
      {kPython, "a function or class of a Python file, as my.py:predict", "",
       "The function, in place of model.onnx; needs --allow-plugins"},
      {kExecutable, "the path of an interpreter", "", "The Python of its workers; absent: found"},
      {kRetryAlone, "true or false", "true",
       "Run a failed batch again, request by request, so that only the failing ones fail"},
      {kCalls, "a list of models", "", "Models that the function may call"},
      {kHooksApart, "a list of preprocess and postprocess", "",
       "Hooks of a class that run in processes of their own"}};
  const FunctionConfig defaults;
  for (const FunctionSetting& setting : kFunctionSettings) {
    const int64_t number =
        std::visit([&](auto member) -> int64_t { return defaults.*member; }, setting.member);
    infos.push_back(
        {setting.name, setting.range.ToString(), std::to_string(number), setting.about});
  }
  return infos;
}

std::vector<std::string> FunctionSettingNames() {
  std::vector<std::string> names;
  for (const SettingInfo& info : FunctionSettingInfos()) names.push_back(info.name);
  return names;
}

StatusOr<std::optional<FunctionConfig>> ReadFunctionConfig(const YamlValue& settings) {
  if (!settings.Has(kPython)) {
    for (const std::string& name : FunctionSettingNames()) {
      if (settings.Has(name)) {
        return InvalidArgument(
            "setting '{}' applies only to Python models; `python: my.py:predict` makes one", name);
      }
    }
    return std::nullopt;
  }
  const YamlValue python = settings.At(kPython);
  const std::string text = python.Text("a function of a Python file, as my.py:predict");
  std::optional<FunctionConfig> config = ParseFunction(text);
  if (!config || config->file.find('/') != std::string::npos) {
    python.RefuseAllBut("a function of a Python file in the version's folder, as my.py:predict");
    return settings.status();
  }
  ReadSettings(settings, *config);
  CHAIRLIFT_RETURN_IF_ERROR(settings.status());
  return config;
}

Status ApplyFunctionSettings(const std::map<std::string, std::string>& settings,
                             FunctionConfig& config) {
  for (const auto& [name, value] : settings) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const YamlValue read,
                               YamlValue::Parse(fmt::format("{}: {}", name, value)));
    ReadSettings(read, config);
    CHAIRLIFT_RETURN_IF_ERROR(read.status());
  }
  return absl::OkStatus();
}

bool IsFunctionSetting(const std::string& name) {
  const std::vector<std::string> names = FunctionSettingNames();
  return name != kPython && std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace chairlift
