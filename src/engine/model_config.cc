#include "engine/model_config.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "batching/policies/tokens.h"

namespace chairlift {
namespace {

constexpr int kDefaultMaxBatchSize = 32;
// Rows past which a recurrent step on a CPU core only takes longer.
constexpr int kDefaultMaxCellRows = 64;
// Tokens in a batch that costs are asked for,
constexpr int kMaxTokenBudget = 4096;
// and where they are not known: enough rows for products to run at full speed.
constexpr int kDefaultTokenBudget = 512;
constexpr size_t kMaxConfigBytes = size_t{1} << 20;

// One setting of a model.yaml: its name, what it takes, and where it goes.
struct Setting {
  const char* name;
  const char* takes;
  void (*set)(ModelConfig&, const YAML::Node&);  // throws YAML::Exception for a wrong type
};

constexpr Setting kSettings[] = {
    {"policy", "the name of a batching policy",
     [](ModelConfig& c, const YAML::Node& n) { c.policy = n.as<std::string>(); }},
    {"max_batch_size", "a number of rows",
     [](ModelConfig& c, const YAML::Node& n) { c.max_batch_size = n.as<int>(); }},
    {"max_batch_tokens", "a number of tokens",
     [](ModelConfig& c, const YAML::Node& n) { c.max_batch_tokens = n.as<int>(); }},
    {"queue_delay_us", "microseconds",
     [](ModelConfig& c, const YAML::Node& n) { c.queue_delay_us = n.as<int64_t>(); }},
    {"latency_objective_us", "microseconds",
     [](ModelConfig& c, const YAML::Node& n) { c.latency_objective_us = n.as<int64_t>(); }},
    {"preferred_batch_sizes", "a list of numbers of rows",
     [](ModelConfig& c, const YAML::Node& n) {
       c.preferred_batch_sizes = n.as<std::vector<int>>();
     }},
    {"max_queue_size", "a number of requests",
     [](ModelConfig& c, const YAML::Node& n) { c.max_queue_size = n.as<int>(); }},
    {"default_timeout_us", "microseconds",
     [](ModelConfig& c, const YAML::Node& n) { c.default_timeout_us = n.as<int64_t>(); }},
    {"disabled_passes", "a list of pass names",
     [](ModelConfig& c, const YAML::Node& n) {
       for (const auto& pass : n.as<std::vector<std::string>>()) c.disabled_passes.insert(pass);
     }},
    {"max_embedding_bytes", "bytes",
     [](ModelConfig& c, const YAML::Node& n) { c.max_embedding_bytes = n.as<int64_t>(); }},
    {"sequence_state", "a map from outputs to the inputs that take them in the next request",
     [](ModelConfig& c, const YAML::Node& n) {
       c.sequence_state = n.as<std::map<std::string, std::string>>();
     }},
    {"max_sequences", "a number of sequences",
     [](ModelConfig& c, const YAML::Node& n) { c.max_sequences = n.as<int>(); }},
    {"sequence_idle_us", "microseconds",
     [](ModelConfig& c, const YAML::Node& n) { c.sequence_idle_us = n.as<int64_t>(); }},
    {"response_cache_bytes", "bytes",
     [](ModelConfig& c, const YAML::Node& n) { c.response_cache_bytes = n.as<int64_t>(); }},
};

std::string SettingNames() {
  std::string names;
  for (const Setting& setting : kSettings) {
    names += fmt::format("{}, ", setting.name);
  }
  return names + "cells, unfold";
}

// Settings that only some policies read.
struct PolicySetting {
  const char* name;
  int64_t (*value)(const ModelConfig&);
  std::vector<std::string_view> policies;
};

// `config` has its policy filled in. What would do nothing is surely a mistake, but for a model
// whose requests run alone: it may have been given the settings of another.
Status CheckPolicySettings(const ModelConfig& config) {
  static const std::vector<PolicySetting> kPolicySettings = {
      {"max_batch_tokens",
       [](const ModelConfig& c) { return int64_t{c.max_batch_tokens}; },
       {"tokens"}},
      {"queue_delay_us",
       [](const ModelConfig& c) { return c.queue_delay_us; },
       {"window", "length_dp"}},
      {"latency_objective_us",
       [](const ModelConfig& c) { return c.latency_objective_us; },
       {"length_dp"}}};
  if (config.policy == "none") return absl::OkStatus();
  for (const auto& [name, value, policies] : kPolicySettings) {
    if (value(config) == 0) continue;
    if (std::find(policies.begin(), policies.end(), config.policy) != policies.end()) continue;
    return InvalidArgument("{} is {}, of which policy '{}' makes no use; '{}' does", name,
                           value(config), config.policy, fmt::join(policies, "' or '"));
  }
  return absl::OkStatus();
}

Status CheckPolicyName(const std::string& policy) {
  if (policy.empty()) return absl::OkStatus();
  std::vector<std::string_view> names;
  for (const PolicyInfo& info : KnownPolicies()) {
    if (info.name == policy) return absl::OkStatus();
    names.push_back(info.name);
  }
  return InvalidArgument("there is no batching policy '{}'; the policies are: {}", policy,
                         fmt::join(names, ", "));
}

// A wait longer than this overflows nothing and is surely a mistake.
constexpr int64_t kMaxMicroseconds = int64_t{3600} * 1'000'000;

Status CheckRanges(const ModelConfig& config) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckPolicyName(config.policy));
  if (config.max_batch_size < 0 || config.max_batch_size > 65536) {
    return InvalidArgument("max_batch_size is {}; it must be 0 (chosen from the model) to 65536",
                           config.max_batch_size);
  }
  if (config.max_batch_tokens < 0 || config.max_batch_tokens > kMaxBatchRows) {
    return InvalidArgument("max_batch_tokens is {}; it must be 0 (chosen from the model) to {}",
                           config.max_batch_tokens, kMaxBatchRows);
  }
  if (config.max_queue_size < 1) {
    return InvalidArgument("max_queue_size is {}; it must be at least 1", config.max_queue_size);
  }
  if (config.max_embedding_bytes < 0) {
    return InvalidArgument("max_embedding_bytes is {}; it must be 0 (never fold) or more",
                           config.max_embedding_bytes);
  }
  if (config.max_sequences < 1) {
    return InvalidArgument("max_sequences is {}; it must be at least 1", config.max_sequences);
  }
  if (config.sequence_idle_us < 1) {
    return InvalidArgument("sequence_idle_us is {}; it must be at least 1",
                           config.sequence_idle_us);
  }
  if (config.response_cache_bytes < 0) {
    return InvalidArgument("response_cache_bytes is {}; it must be 0 (no cache) or more",
                           config.response_cache_bytes);
  }
  if (config.queue_delay_us < 0 || config.queue_delay_us > kMaxMicroseconds) {
    return InvalidArgument("queue_delay_us is {}; it must be in [0, {}]", config.queue_delay_us,
                           kMaxMicroseconds);
  }
  if (config.latency_objective_us < 0 || config.latency_objective_us > kMaxMicroseconds) {
    return InvalidArgument("latency_objective_us is {}; it must be 0 (none) to {}",
                           config.latency_objective_us, kMaxMicroseconds);
  }
  if (config.default_timeout_us < 0 || config.default_timeout_us > kMaxMicroseconds) {
    return InvalidArgument("default_timeout_us is {}; it must be 0 (none) to {}",
                           config.default_timeout_us, kMaxMicroseconds);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<ModelConfig> ParseModelConfig(const std::string& yaml) {
  if (yaml.size() > kMaxConfigBytes) {
    return InvalidArgument("it has {} bytes; at most {} are read", yaml.size(), kMaxConfigBytes);
  }
  YAML::Node root;
  try {
    root = YAML::Load(yaml);
  } catch (const YAML::Exception& error) {
    return InvalidArgument("it is not YAML: {}", error.what());
  }
  ModelConfig config;
  if (root.IsNull()) return config;
  if (!root.IsMap()) {
    return InvalidArgument("it must be a map of settings; the settings are: {}", SettingNames());
  }
  std::set<std::string> seen;
  for (const auto& item : root) {
    const std::string key = item.first.IsScalar() ? item.first.Scalar() : "(not a name)";
    if (key == "cells" || key == "unfold") continue;
    const Setting* found = nullptr;
    for (const Setting& setting : kSettings) {
      if (key == setting.name) found = &setting;
    }
    if (found == nullptr) {
      return InvalidArgument("there is no setting '{}'; the settings are: {}", key, SettingNames());
    }
    if (!seen.insert(key).second) return InvalidArgument("setting '{}' is given twice", key);
    try {
      found->set(config, item.second);
    } catch (const YAML::Exception&) {
      return InvalidArgument("setting '{}' must be {}", key, found->takes);
    }
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckRanges(config));
  return config;
}

StatusOr<std::string> ReadModelYaml(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return NotFound("{} cannot be read", file.string());
  std::string text(kMaxConfigBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

StatusOr<ServingPlan> PlanServing(const ModelConfig& config, const BatchAxisReport& batching) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckRanges(config));
  ServingPlan plan;
  plan.config = config;
  if (plan.config.policy.empty()) plan.config.policy = batching.batches ? "window" : "none";
  CHAIRLIFT_RETURN_IF_ERROR(CheckPolicySettings(plan.config));
  const bool wants_batches = plan.config.policy != "none";
  if (wants_batches && !batching.batches) {
    return InvalidArgument("policy '{}' cannot serve this model: {}; policy 'none' can",
                           plan.config.policy, batching.why);
  }
  if (!batching.batches && config.max_batch_size > 1) {
    return InvalidArgument(
        "max_batch_size is {}, but requests of this model cannot share a batch: "
        "{}",
        config.max_batch_size, batching.why);
  }
  plan.batches = wants_batches && config.max_batch_size != 1;
  if (!plan.batches) {
    plan.config.max_batch_size = 0;
  } else if (config.max_batch_size == 0) {
    plan.config.max_batch_size = kDefaultMaxBatchSize;
  }
  plan.scheduling.max_batch_size = std::max(1, plan.config.max_batch_size);
  plan.scheduling.queue_delay = std::chrono::microseconds(plan.config.queue_delay_us);
  plan.scheduling.preferred_batch_sizes = plan.config.preferred_batch_sizes;
  plan.diagnosis = plan.batches ? fmt::format("{}; {} policy, up to {} rows", batching.why,
                                              plan.config.policy, plan.config.max_batch_size)
                                : fmt::format("{}; requests run one by one", batching.why);
  return plan;
}

bool WantsTokens(const std::string& policy) { return policy.empty() || policy == "tokens"; }

StatusOr<ServingPlan> PlanTokenServing(const ModelConfig& config, const CostModel* costs,
                                       int workers) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckRanges(config));
  ServingPlan plan;
  plan.batches = true;
  plan.config = config;
  plan.config.policy = "tokens";
  CHAIRLIFT_RETURN_IF_ERROR(CheckPolicySettings(plan.config));
  const bool given = config.max_batch_tokens > 0;
  plan.scheduling.max_batch_size = given              ? config.max_batch_tokens
                                   : costs != nullptr ? kMaxTokenBudget
                                                      : kDefaultTokenBudget;
  plan.scheduling.cell_types = {{.max_batch_size = config.max_batch_tokens}};
  plan.scheduling.costs = costs;
  plan.scheduling.workers = workers;
  plan.config.max_batch_tokens = TokenSizesOf(plan.scheduling, 0).max;
  plan.scheduling.queue_delay = std::chrono::microseconds(plan.config.queue_delay_us);
  plan.diagnosis = fmt::format(
      "inputs vary in length; ragged: requests' tokens are packed, nothing is padded; tokens "
      "policy, up to {} tokens in a batch{}",
      plan.config.max_batch_tokens, given || costs == nullptr ? "" : " by what they cost now");
  return plan;
}

bool NeedsPadding(const std::string& policy) { return policy == "length_dp" || policy == "naive"; }

StatusOr<ServingPlan> PlanPaddedServing(const ModelConfig& config, const std::string& not_ragged,
                                        int workers) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckRanges(config));
  ServingPlan plan;
  plan.batches = true;
  plan.config = config;
  if (plan.config.policy.empty()) plan.config.policy = "length_dp";
  CHAIRLIFT_RETURN_IF_ERROR(CheckPolicySettings(plan.config));
  if (plan.config.max_batch_size == 0) plan.config.max_batch_size = kDefaultMaxBatchSize;
  plan.scheduling.max_batch_size = plan.config.max_batch_size;
  plan.scheduling.workers = workers;
  plan.scheduling.queue_delay = std::chrono::microseconds(plan.config.queue_delay_us);
  plan.scheduling.latency_objective = std::chrono::microseconds(plan.config.latency_objective_us);
  plan.diagnosis = fmt::format(
      "inputs vary in length; {}batches are padded to the longest in them, which the mask hides; "
      "{} "
      "policy, up to {} rows",
      not_ragged.empty() ? "" : fmt::format("not ragged: {}; ", not_ragged), plan.config.policy,
      plan.config.max_batch_size);
  return plan;
}

bool NeedsCells(const std::string& policy) {
  return policy == "cellular" || policy == "bucketed" || policy == "graph_merge";
}

bool WantsCells(const std::string& policy) { return policy.empty() || NeedsCells(policy); }

StatusOr<ServingPlan> PlanCellServing(const ModelConfig& config, const std::string& what,
                                      const std::vector<std::string>& cells,
                                      std::vector<CellTypeOptions> types) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckRanges(config));
  ServingPlan plan;
  plan.config = config;
  if (plan.config.policy.empty()) plan.config.policy = "cellular";
  CHAIRLIFT_RETURN_IF_ERROR(CheckPolicySettings(plan.config));
  if (plan.config.max_batch_size == 0) plan.config.max_batch_size = kDefaultMaxCellRows;
  plan.scheduling.max_batch_size = plan.config.max_batch_size;
  plan.scheduling.queue_delay = std::chrono::microseconds(plan.config.queue_delay_us);
  plan.scheduling.preferred_batch_sizes = plan.config.preferred_batch_sizes;
  plan.scheduling.cell_types = std::move(types);
  if (plan.config.policy != "cellular") {
    plan.diagnosis =
        fmt::format("{} ({}); {} policy, up to {} requests together", what, fmt::join(cells, ", "),
                    plan.config.policy, plan.config.max_batch_size);
    return plan;
  }
  std::vector<std::string> sizes;
  for (size_t i = 0; i < cells.size(); ++i) {
    const int own = plan.scheduling.cell_types[i].max_batch_size;
    sizes.push_back(
        fmt::format("{}: {}", cells[i], own > 0 ? own : plan.scheduling.max_batch_size));
  }
  plan.diagnosis = fmt::format(
      "{}; cellular policy: requests join and leave at every cell; rows at most in a "
      "task of {}",
      what, fmt::join(sizes, ", "));
  return plan;
}

}  // namespace chairlift
