#include "engine/programs/process/function_config.h"

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
};

using F = FunctionConfig;
constexpr FunctionSetting kFunctionSettings[] = {
    {"workers", &F::workers, {"processes", 1, 64}},
    {"spare_workers", &F::spare_workers, {"processes", 0, 64, "none"}},
    {"batches_in_flight", &F::batches_in_flight, {"batches", 1, 8}},
    {"batch_timeout_us", &F::batch_timeout_us, {"microseconds", 1000, kDayUs}},
    {"load_timeout_us", &F::load_timeout_us, {"microseconds", 1000, kDayUs}},
    {"restart_after_batches", &F::restart_after_batches, {"batches", 0, kMostBytes, "never"}},
    {"restart_after_bytes", &F::restart_after_bytes, {"bytes", 0, kMostBytes, "never"}},
};
constexpr const char* kPython = "python";
constexpr const char* kExecutable = "python_executable";
constexpr const char* kRetryAlone = "retry_alone";
constexpr const char* kCalls = "calls";
constexpr size_t kMostCalledModels = 64;

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

std::vector<std::string> FunctionSettingNames() {
  std::vector<std::string> names = {kPython, kExecutable, kRetryAlone, kCalls};
  for (const FunctionSetting& setting : kFunctionSettings) names.emplace_back(setting.name);
  return names;
}

StatusOr<std::optional<FunctionConfig>> ReadFunctionConfig(const YamlValue& settings) {
  if (!settings.Has(kPython)) {
    for (const std::string& name : FunctionSettingNames()) {
      if (settings.Has(name)) {
        return InvalidArgument("{} is for functions; `python: my.py:predict` names one", name);
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
  for (const FunctionSetting& setting : kFunctionSettings) {
    if (!settings.Has(setting.name)) continue;
    const int64_t number = settings.At(setting.name).Number(setting.range);
    if (const auto* member = std::get_if<int FunctionConfig::*>(&setting.member)) {
      (*config).** member = static_cast<int>(number);
    } else {
      (*config).*std::get<int64_t FunctionConfig::*>(setting.member) = number;
    }
  }
  if (settings.Has(kExecutable)) config->python_executable = settings.At(kExecutable).Name();
  if (settings.Has(kRetryAlone)) {
    const YamlValue retry = settings.At(kRetryAlone);
    const std::string said = retry.Text("true or false");
    if (said != "true" && said != "false") retry.RefuseAllBut("true or false");
    config->retry_alone = said == "true";
  }
  if (settings.Has(kCalls)) {
    for (const YamlValue& model : settings.At(kCalls).List("a list of models", 1)) {
      config->calls.push_back(model.Name());
      if (config->calls.size() > kMostCalledModels) {
        model.Refuse("a function calls at most {} models", kMostCalledModels);
      }
    }
  }
  CHAIRLIFT_RETURN_IF_ERROR(settings.status());
  return config;
}

}  // namespace chairlift
