// A function that is served as a model, and how.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_FUNCTION_CONFIG_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_FUNCTION_CONFIG_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/yaml_value.h"
#include "chairlift/status.h"

namespace chairlift {

inline constexpr const char* kPreprocess = "preprocess";
inline constexpr const char* kPredict = "predict";
inline constexpr const char* kPostprocess = "postprocess";

struct FunctionConfig {
  std::string file;      // "my.py"; in a repository, in the version's folder
  std::string function;  // "predict"; a function or a class; "Model.predict" is possible
  // What a class is made with, where it is not empty; not settable in model.yaml.
  std::string argument = {};
  // It is Chairlift's own, and runs where users' functions may not.
  bool trusted = false;
  // The interpreter; empty: one is looked for (interpreter.h), which has these packages and what
  // the file imports.
  std::string python_executable = {};
  std::vector<std::string> packages = {"numpy"};  // not settable in model.yaml
  // Of what is Chairlift's own: the folders with the files of the model that it is for. An
  // interpreter in one of them is others' code.
  std::vector<std::filesystem::path> data_folders = {};
  int workers = 1;
  // While all have been busy for a second, further ones are started, up to this many; they end when
  // they have not been needed for a minute. 0: there are never more.
  int max_workers = 0;
  // Warm stand-bys, beside the workers: each takes the place of a worker that has ended.
  int spare_workers = 0;
  // Models that the function may call while it computes, and what the engine calls them.
  std::map<std::string, std::string> calls = {};
  // Of a class, the hooks of single items, "preprocess" and "postprocess", that run in processes
  // apart from those that compute; and how many processes each of these has.
  std::vector<std::string> hooks_apart = {};
  int hook_workers = 1;
  // Batches given to a worker, the one it computes included: those behind are ready before it ends.
  int batches_in_flight = 2;
  // Where a batch of several requests raises, each of them is run again alone, so that only the
  // guilty fail. False: all fail; for functions with side effects.
  bool retry_alone = true;
  // A worker that computes a batch for longer is killed.
  int64_t batch_timeout_us = 60'000'000;
  int64_t load_timeout_us = 600'000'000;
  // A generator that goes on for longer is ended.
  int64_t stream_timeout_us = 3'600'000'000;
  // A worker that does not end a cancelled generator within this time is killed.
  int64_t cancel_timeout_us = 5'000'000;
  // A worker is replaced after so many batches, or once it has so many bytes of memory; 0: never.
  int64_t restart_after_batches = 0;
  int64_t restart_after_bytes = 0;
  // Bytes of the inputs of a batch of several requests, and of one request. 0: unlimited. Not
  // settable in model.yaml.
  int64_t max_batch_bytes = 0;
  int64_t max_request_bytes = 0;
};

// "my.py:predict"; nothing where it does not name a function of a Python file. The path may have
// colons.
std::optional<FunctionConfig> ParseFunction(const std::string& text);

// `python` and the settings above, of a model.yaml; nothing where it has no `python`.
StatusOr<std::optional<FunctionConfig>> ReadFunctionConfig(const YamlValue& settings);
// Settings other than `python`, by name, each as in a model.yaml.
Status ApplyFunctionSettings(const std::map<std::string, std::string>& settings,
                             FunctionConfig& config);
// Whether it has a setting of that name, other than `python`.
bool IsFunctionSetting(const std::string& name);
// Their names.
std::vector<std::string> FunctionSettingNames();

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_FUNCTION_CONFIG_H_
