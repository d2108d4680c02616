#include "engine/repository/model_config.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/renamed.h"
#include "base/status.h"
#include "batching/policy.h"
#include "engine/programs/pipeline/pipeline_config.h"
#include "engine/programs/process/function_config.h"
#include "engine/repository/text_model.h"
#include "graph/batch_axis.h"
#include "graph/passes/pass.h"
#include "graph/stages/stages.h"

namespace chairlift {
namespace {

// A longer wait would not overflow, but is surely a mistake.
constexpr int64_t kHour = int64_t{3600} * 1'000'000;
constexpr const char* kMicro = "microseconds";
constexpr int64_t kMaxInt = std::numeric_limits<int>::max();
constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

struct NumberSetting {
  const char* name;
  std::variant<int ModelConfig::*, int64_t ModelConfig::*, std::optional<int64_t> ModelConfig::*>
      member;
  NumberRange range;
  const char* about;
};

constexpr const char* kChosen = "chosen from the model";
using C = ModelConfig;
constexpr NumberSetting kNumbers[] = {
    {"max_batch_size",
     &C::max_batch_size,
     {"rows", 0, 65536, kChosen},
     "Most rows in a batch. If this is set, a request with more rows is refused; else it is a "
     "batch "
     "by itself. Models that run as cells: most rows of a task"},
    {"max_batch_tokens",
     &C::max_batch_tokens,
     {"tokens", 0, kMaxBatchRows, kChosen},
     "Policy packed: most tokens in a batch. Policy continuous: most tokens in a step (0: 256)"},
    {"max_length",
     &C::max_length,
     {"tokens", 0, kMaxBatchRows, kChosen},
     "Models that generate: most tokens of a prompt and its answer together"},
    {"kv_cache_bytes",
     &C::kv_cache_bytes,
     {"bytes", 0, kMaxInt64, kChosen},
     "Models that generate: memory for keys and values"},
    {"queue_delay_us",
     &C::queue_delay_us,
     {kMicro, 0, kHour},
     "Policies window, length_dp and staged: longest time that the oldest request waits for a "
     "fuller batch"},
    {"latency_objective_us",
     &C::latency_objective_us,
     {kMicro, 0, kHour, "none"},
     "Target latency. Policy length_dp: no request waits for a fuller batch once half of it is "
     "nearly "
     "over. Policy staged: no request joins a batch if another one would then miss it"},
    {"time_slice_us",
     &C::time_slice_us,
     {kMicro, 0, kHour, "one step per task"},
     "Policy cellular: extra time that a task may take for further steps. A new request waits at "
     "most "
     "that much longer. Absent: 200"},
    {"buffer_pairs",
     &C::buffer_pairs,
     {"pairs", 1, 64},
     "Policy staged: pairs of buffers between stages. 1: batches run one after the other; more: as "
     "a "
     "pipeline"},
    {"join_window_us",
     &C::join_window_us,
     {kMicro, 0, kHour, "by measured costs"},
     "Policy staged: requests may join a batch until it is this old"},
    {"max_queue_size",
     &C::max_queue_size,
     {"requests", 1, kMaxInt},
     "Requests that may wait; one more is refused"},
    {"max_queue_wait_us",
     &C::max_queue_wait_us,
     {kMicro, 0, kHour, "not bounded"},
     "A request is refused at once if its expected wait is longer. Absent: --max-queue-wait-us"},
    {"default_timeout_us",
     &C::default_timeout_us,
     {kMicro, 0, kHour, "none"},
     "Timeout of requests that set none"},
    {"max_folded_embedding_bytes",
     &C::max_folded_embedding_bytes,
     {"bytes", 0, kMaxInt64, "never fold"},
     "Models that are cut into cells: largest table that may replace an embedding and the "
     "projection after it"},
    {"max_sequences",
     &C::max_sequences,
     {"sequences", 1, kMaxInt},
     "Models with sequence_state: sequences that may be live at once"},
    {"max_sequence_idle_us",
     &C::max_sequence_idle_us,
     {kMicro, 1, kMaxInt64},
     "Models with sequence_state: a sequence without a request for this time has ended"},
    {"response_cache_bytes",
     &C::response_cache_bytes,
     {"bytes", 0, kMaxInt64, "no cache"},
     "Memory for answers that are kept for equal requests"},
};

constexpr NumberRange kStages = {"stages", 2, kMaxStages};

// Empty: chosen from the model.
Status CheckPolicyName(const std::string& policy) {
  return policy.empty() ? absl::OkStatus() : FindPolicy(policy).status();
}

bool ReadBool(const YamlValue& value) {
  const std::string text = value.Text("true or false");
  if (text != "true" && text != "false") value.RefuseAllBut("true or false");
  return text == "true";
}

StageExit ReadExit(const YamlValue& value) {
  value.CheckKeys({"output", "at_least", "skip_to", "instead"});
  StageExit exit;
  exit.output = value.At("output").Name();
  if (value.Has("at_least")) exit.at_least = value.At("at_least").Real();
  exit.skip_to = value.NameOr("skip_to", "");
  if (!value.Has("instead")) return exit;
  for (const auto& [name, source] :
       value.At("instead").Map("a map from tensors to what stands for them")) {
    exit.instead.emplace(name, source.Name());
  }
  return exit;
}

StagePluginFile ReadStagePlugin(const YamlValue& value) {
  value.CheckKeys({"library", "options"});
  StagePluginFile file;
  file.library = value.At("library").Name();
  if (!value.Has("options")) return file;
  for (const auto& [name, option] : value.At("options").Map("a map of names to text")) {
    file.options.emplace(name, option.Text("text"));
  }
  return file;
}

struct OtherSetting {
  const char* name;
  const char* takes;
  const char* default_value;
  const char* about;
  void (*read)(const YamlValue&, ModelConfig&);
};

constexpr OtherSetting kOthers[] = {
    {"policy", "the name of a batching policy", "",
     "What runs together, and when: docs/concepts/batching.md",
     [](const YamlValue& value, ModelConfig& config) {
       config.policy = CurrentPolicy(value.Text("the name of a batching policy"), "policy");
       value.Refuse(CheckPolicyName(config.policy));
     }},
    {"device", "the name of a device", "cpu",
     "cpu, or cuda, cuda:1, …: an NVIDIA GPU. Default: --device, else cpu",
     [](const YamlValue& value, ModelConfig& config) {
       config.device = value.Text("the name of a device, as 'cpu' or 'cuda'");
     }},
    {"precision", "float32, tf32, float16, bfloat16 or int8", "float32",
     "Type in which float32 parts of the model are computed; on the CPU float32, bfloat16 or int8",
     [](const YamlValue& value, ModelConfig& config) {
       config.precision = value.Text("float32, tf32, float16, bfloat16 or int8");
     }},
    {"prefix_caching", "true or false", "true",
     "Models that generate: the common beginning of several prompts is computed once",
     [](const YamlValue& value, ModelConfig& config) { config.prefix_caching = ReadBool(value); }},
    {"stages", "a number of stages, 2 to 64, or a list of nodes or tensors", "",
     "Policies staged and cellular: how many stages, or the last node or tensor of each stage",
     [](const YamlValue& value, ModelConfig& config) {
       if (!value.IsList()) {
         config.stages = static_cast<int>(value.Number(kStages));
         return;
       }
       for (const YamlValue& last : value.List("a number, or a list of nodes or tensors", 1)) {
         config.stages_after.push_back(last.Name());
       }
     }},
    {"exits", "a list of maps with output, at_least, skip_to and instead", "",
     "Policies staged and cellular: where a request exits early or skips stages",
     [](const YamlValue& value, ModelConfig& config) {
       config.exits.clear();
       for (const YamlValue& exit : value.List("a list of exits", 1)) {
         config.exits.push_back(ReadExit(exit));
       }
     }},
    {"stage_plugin", "a map with library and options", "",
     "Policies staged and cellular: a shared library with conditions of your own; needs "
     "--allow-plugins",
     [](const YamlValue& value, ModelConfig& config) {
       config.stage_plugin = ReadStagePlugin(value);
     }},
    {"padding_mask", "the name of an input", "",
     "Policies length_dp and naive: the input that you trust to hide padding",
     [](const YamlValue& value, ModelConfig& config) {
       config.padding_mask = value.Text("the name of an input");
     }},
    {"batch_dim", "0", "",
     "The first dimension is the batch, although the file fixes it to 1. It is opened if each row "
     "is proved to be computed alone",
     [](const YamlValue& value, ModelConfig& config) {
       if (value.Text("0") != "0") value.RefuseAllBut("0");
       config.batch_dim = 0;
     }},
    {"preferred_batch_sizes", "a list of numbers of rows", "",
     "Policy window: batches of these sizes run without waiting for more",
     [](const YamlValue& value, ModelConfig& config) {
       for (const YamlValue& rows : value.List("a list of numbers of rows")) {
         config.preferred_batch_sizes.push_back(
             static_cast<int>(rows.Number({"rows", 1, kMaxInt})));
       }
     }},
    {"disabled_passes", "a list of names of passes", "",
     "Rewrites of the graph that are left out. `chairlift inspect MODEL --passes` lists them",
     [](const YamlValue& value, ModelConfig& config) {
       for (const YamlValue& pass : value.List("a list of names of passes")) {
         config.disabled_passes.insert(pass.Name());
         pass.Refuse(CheckPassNames(config.disabled_passes));
       }
     }},
    {"tensor_names", "a map from names of the file to names that are served", "",
     "Other names for inputs and outputs",
     [](const YamlValue& value, ModelConfig& config) {
       for (const auto& [name, served] :
            value.Map("a map from names of inputs and outputs to those that they get")) {
         config.tensor_names.emplace(name, served.Name());
       }
     }},
    {"sequence_state", "a map from outputs to inputs", "",
     "State that the server keeps between the requests of a sequence",
     [](const YamlValue& value, ModelConfig& config) {
       for (const auto& [output, input] :
            value.Map("a map from outputs to the inputs that take them in the next request")) {
         config.sequence_state.emplace(output, input.Name());
       }
     }},
};

// Does nothing if there is no such setting.
void ReadSetting(const std::string& name, const YamlValue& value, ModelConfig& config) {
  for (const NumberSetting& setting : kNumbers) {
    if (name != setting.name) continue;
    std::visit(
        [&](auto member) {
          using Number = std::remove_reference_t<decltype(config.*member)>;
          config.*member = static_cast<Number>(value.Number(setting.range));
        },
        setting.member);
  }
  for (const OtherSetting& setting : kOthers) {
    if (name == setting.name) setting.read(value, config);
  }
}

// Whether `earlier` applies whenever a later exit of the same output does.
bool HoldsWherever(const StageExit& later, const StageExit& earlier) {
  if (later.predicate != nullptr || earlier.predicate != nullptr) return false;  // a caller's own
  if (later.at_least && earlier.at_least) return *later.at_least >= *earlier.at_least;
  return !later.at_least && !earlier.at_least;  // from a plugin, which decides by the output
}

}  // namespace

std::vector<SettingInfo> SettingInfos() {
  std::vector<SettingInfo> infos;
  const ModelConfig defaults;
  for (const NumberSetting& setting : kNumbers) {
    const std::optional<int64_t> number = std::visit(
        [&](auto member) -> std::optional<int64_t> { return defaults.*member; }, setting.member);
    infos.push_back({setting.name, setting.range.ToString(), number ? std::to_string(*number) : "",
                     setting.about});
  }
  for (const OtherSetting& setting : kOthers) {
    infos.push_back({setting.name, setting.takes, setting.default_value, setting.about});
  }
  return infos;
}

std::vector<std::string> SettingNames() {
  std::vector<std::string> names;
  for (const NumberSetting& setting : kNumbers) names.emplace_back(setting.name);
  for (const OtherSetting& setting : kOthers) names.emplace_back(setting.name);
  return names;
}

Status CheckConfig(const ModelConfig& config) {
  for (const NumberSetting& setting : kNumbers) {
    const std::optional<int64_t> number = std::visit(
        [&](auto member) -> std::optional<int64_t> { return config.*member; }, setting.member);
    if (number && !setting.range.Contains(*number)) {
      return InvalidArgument("{} is {}; it must be {}", setting.name, *number,
                             setting.range.ToString());
    }
  }
  if (config.stages != 0 && !kStages.Contains(config.stages)) {
    return InvalidArgument("stages is {}; it must be {}", config.stages, kStages.ToString());
  }
  if (config.stages != 0 && !config.stages_after.empty()) {
    return InvalidArgument("stages is {}, and stages_after names cuts; set one of them",
                           config.stages);
  }
  if (config.stages_after.size() >= kMaxStages) {
    return InvalidArgument("stages names {} cuts; it must be {} at most",
                           config.stages_after.size(), kMaxStages - 1);
  }
  if (config.exits.size() >= kMaxStages) {
    return InvalidArgument("there are {} exits; there must be at most {}", config.exits.size(),
                           kMaxStages - 1);
  }
  for (auto exit_at = config.exits.begin(); exit_at != config.exits.end(); ++exit_at) {
    const StageExit& exit = *exit_at;
    if (exit.output.empty()) return InvalidArgument("exits: an exit names no output");
    if (exit.at_least && !std::isfinite(*exit.at_least)) {
      return InvalidArgument("exits: exit after '{}': at_least is {}; it must be a finite number",
                             exit.output, *exit.at_least);
    }
    if (exit.at_least && exit.predicate != nullptr) {
      return InvalidArgument("exits: exit after '{}' has at_least and a predicate; set one of them",
                             exit.output);
    }
    const bool never = std::any_of(config.exits.begin(), exit_at, [&](const StageExit& earlier) {
      return earlier.output == exit.output && HoldsWherever(exit, earlier);
    });
    if (never) {
      return InvalidArgument(
          "exits: there are two after '{}', and the second is never taken: whenever its condition "
          "holds, so does that of the first",
          exit.output);
    }
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckPolicyName(config.policy));
  return CheckPassNames(config.disabled_passes);
}

std::vector<SettingInfo> RepositorySettingInfos() {
  return {{"versions", "latest, all, or a list of numbers", "latest", "Versions that are served"},
          {"file", "a path within the model's folder", "",
           "The ONNX file in place of model.onnx, such as onnx/model_int8.onnx"},
          {"cells", "a map of cells", "", "A model made of cells: docs/concepts/cells.md"},
          {"unfold", "chain, seq2seq, tree or plugin", "",
           "A model made of cells: how a request unfolds into them"}};
}

// Triton's settings, which its users may write, and what replaces them here.
constexpr std::pair<const char*, const char*> kTritonSettings[] = {
    {"dynamic_batching", "queue_delay_us, preferred_batch_sizes and max_queue_size"},
    {"max_queue_delay_microseconds", "queue_delay_us"},
    {"preferred_batch_size", "preferred_batch_sizes"},
    {"instance_group", "`chairlift serve --workers`: every worker runs every model"},
    {"sequence_batching", "sequence_state and max_sequence_idle_us"},
    {"response_cache", "response_cache_bytes"},
    {"version_policy", "versions"},
    {"default_model_filename", "file"},
};

StatusOr<ModelConfig> ReadModelConfig(const YamlValue& settings) {
  ModelConfig config;
  if (settings.IsNull()) return config;
  std::vector<std::string> names = SettingNames();
  for (const auto& infos : {RepositorySettingInfos(), FunctionSettingInfos(),
                            PipelineSettingInfos(), TextSettingInfos()}) {
    for (const SettingInfo& info : infos) names.push_back(info.name);
  }
  for (const auto& [triton, here] : kTritonSettings) {
    if (!settings.Has(triton)) continue;
    return InvalidArgument("'{}' is a setting of Triton's config.pbtxt; in a model.yaml it is {}",
                           triton, here);
  }
  settings.CheckKeys(names);
  for (const auto& [name, value] : settings.Map("a map of settings")) {
    ReadSetting(name, value, config);
  }
  CHAIRLIFT_RETURN_IF_ERROR(settings.status());
  return config;
}

StatusOr<bool> ApplySetting(const std::string& name, const std::string& value,
                            ModelConfig& config) {
  const std::vector<std::string> names = SettingNames();
  if (std::find(names.begin(), names.end(), name) == names.end()) return false;
  StatusOr<YamlValue> parsed = YamlValue::Parse(value, name);
  if (!parsed.ok()) return Annotate(parsed.status(), name);
  ReadSetting(name, *parsed, config);
  CHAIRLIFT_RETURN_IF_ERROR(parsed->status());
  return true;
}

}  // namespace chairlift
