// A Python function or class that is served as a model, and its settings.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_FUNCTION_CONFIG_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_FUNCTION_CONFIG_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/setting_info.h"
#include "base/yaml_value.h"
#include "chairlift/status.h"

namespace chairlift {

inline constexpr const char* kPreprocess = "preprocess";
inline constexpr const char* kPredict = "predict";
inline constexpr const char* kPostprocess = "postprocess";

struct FunctionConfig {
  std::string file;      // "my.py"; in a repository, relative to the version's folder
  std::string function;  // "predict"; a function or a class; "Model.predict" is also allowed
  // The constructor argument of a class, if not empty; not settable in model.yaml.
  std::string argument = {};
  // Part of Chairlift: allowed where users' Python code is not.
  bool trusted = false;
  // The interpreter; empty: search for one (interpreter.h) that has these packages and what the
  // file imports.
  std::string python_executable = {};
  std::vector<std::string> packages = {"numpy"};  // not settable in model.yaml
  // For Chairlift's own code: the folders with the files of its model. An interpreter in one of
  // them is foreign code.
  std::vector<std::filesystem::path> data_folders = {};
  int workers = 1;
  // If all workers have been busy for a second, more are started, up to this number. A worker that
  // was not needed for a minute ends. 0: never more than `workers`.
  int max_workers = 0;
  // Warm stand-bys in addition to the workers: each replaces a worker that has ended.
  int spare_workers = 0;
  // Models that the code may call while it computes, mapped to their names in the engine.
  std::map<std::string, std::string> calls = {};
  // For a class: the per-item hooks, "preprocess" and "postprocess", that run in separate
  // processes; and the number of processes of each.
  std::vector<std::string> separate_hooks = {};
  int hook_workers = 1;
  // Batches sent to a worker, including the one that it computes, so that the next is ready when
  // one ends.
  int batches_in_flight = 2;
  // If a batch of several requests raises, each of them is run again alone, so that only those with
  // the error fail. False: all fail; for code with side effects.
  bool retry_alone = true;
  // A worker that takes longer for a batch is killed.
  int64_t batch_timeout_us = 60'000'000;
  int64_t load_timeout_us = 600'000'000;
  // A generator that takes longer is stopped.
  int64_t stream_timeout_us = 3'600'000'000;
  // A worker that does not stop a cancelled generator within this time is killed.
  int64_t cancel_timeout_us = 5'000'000;
  // A worker is replaced after this many batches, or when it has this many bytes of memory; 0:
  // never.
  int64_t restart_after_batches = 0;
  int64_t restart_after_bytes = 0;
  // What a worker may allocate; an allocation beyond it fails. 0: no limit.
  int64_t max_memory_bytes = 0;
  // Bytes of the inputs of a batch of several requests, and of one request. 0: unlimited. Not
  // settable in model.yaml.
  int64_t max_batch_bytes = 0;
  int64_t max_request_bytes = 0;
};

// Parses "my.py:predict"; nothing if it does not name a function of a Python file. The path may
// contain colons.
std::optional<FunctionConfig> ParseFunction(const std::string& text);

// Reads `python` and the settings above from a model.yaml; nothing if it has no `python`.
StatusOr<std::optional<FunctionConfig>> ReadFunctionConfig(const YamlValue& settings);
// Applies settings other than `python`, by name, each written as in a model.yaml.
Status ApplyFunctionSettings(const std::map<std::string, std::string>& settings,
                             FunctionConfig& config);
// Whether there is a setting with that name, other than `python`.
bool IsFunctionSetting(const std::string& name);
// The documentation of all these settings, `python` included, and their names.
std::vector<SettingInfo> FunctionSettingInfos();
std::vector<std::string> FunctionSettingNames();

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_FUNCTION_CONFIG_H_
