#include "engine/programs/serving_plan.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "batching/policies/packed.h"

namespace chairlift {

bool MayServe(const std::string& policy, GraphForm form) {
  if (policy.empty()) return true;
  const auto info = FindPolicy(policy);
  if (!info.ok() || (*info)->takes == form) return true;
  return form == GraphForm::kStages && (*info)->takes == GraphForm::kCells;
}

namespace {

// Empty if it has its default value.
template <typename T>
std::string IfSet(T value, T unset) {
  return value == unset ? std::string() : fmt::format("{}", value);
}

constexpr int kDefaultMaxBatchSize = 32;
// More rows than this only make a recurrent step on a CPU core longer.
constexpr int kDefaultMaxCellRows = 64;
// The largest batch in tokens for which costs are considered.
constexpr int kMaxTokenBudget = 4096;
// The default if costs are unknown: enough rows for products to run at full speed.
constexpr int kDefaultTokenBudget = 512;
// Tokens in a step of models that generate.
constexpr int kDefaultStepTokens = 256;

// Settings that only some policies use.
struct PolicySetting {
  const char* name;
  std::string (*value)(const ModelConfig&);  // empty: not set
  void (*unset)(ModelConfig&);
  std::vector<std::string_view> policies;
};

// `plan.config` must have its policy. A setting without effect is surely a mistake.
Status CheckPolicySettings(ServingPlan& plan) {
  static const std::vector<PolicySetting> kPolicySettings = {
      {"max_batch_tokens",
       [](const ModelConfig& c) {
         return IfSet(c.max_batch_tokens, ModelConfig().max_batch_tokens);
       },
       [](ModelConfig& c) { c.max_batch_tokens = ModelConfig().max_batch_tokens; },
       {"packed", "continuous"}},
      {"max_length",
       [](const ModelConfig& c) { return IfSet(c.max_length, ModelConfig().max_length); },
       [](ModelConfig& c) { c.max_length = ModelConfig().max_length; },
       {"continuous"}},
      {"kv_cache_bytes",
       [](const ModelConfig& c) { return IfSet(c.kv_cache_bytes, ModelConfig().kv_cache_bytes); },
       [](ModelConfig& c) { c.kv_cache_bytes = ModelConfig().kv_cache_bytes; },
       {"continuous"}},
      {"prefix_caching",
       [](const ModelConfig& c) { return std::string(c.prefix_caching ? "" : "false"); },
       [](ModelConfig& c) { c.prefix_caching = true; },
       {"continuous"}},
      {"preferred_batch_sizes",
       [](const ModelConfig& c) {
         return c.preferred_batch_sizes.empty()
                    ? std::string()
                    : fmt::format("[{}]", fmt::join(c.preferred_batch_sizes, ", "));
       },
       [](ModelConfig& c) { c.preferred_batch_sizes.clear(); },
       {"window"}},
      {"queue_delay_us",
       [](const ModelConfig& c) { return IfSet(c.queue_delay_us, ModelConfig().queue_delay_us); },
       [](ModelConfig& c) { c.queue_delay_us = ModelConfig().queue_delay_us; },
       {"window", "length_dp", "staged"}},
      {"latency_objective_us",
       [](const ModelConfig& c) {
         return IfSet(c.latency_objective_us, ModelConfig().latency_objective_us);
       },
       [](ModelConfig& c) { c.latency_objective_us = ModelConfig().latency_objective_us; },
       {"length_dp", "staged"}},
      {"buffer_pairs",
       [](const ModelConfig& c) { return IfSet(c.buffer_pairs, ModelConfig().buffer_pairs); },
       [](ModelConfig& c) { c.buffer_pairs = ModelConfig().buffer_pairs; },
       {"staged"}},
      {"join_window_us",
       [](const ModelConfig& c) { return IfSet(c.join_window_us, ModelConfig().join_window_us); },
       [](ModelConfig& c) { c.join_window_us = ModelConfig().join_window_us; },
       {"staged"}},
      {"stage_policy",
       [](const ModelConfig& c) { return std::string(c.stage_policy ? "set" : ""); },
       [](ModelConfig& c) { c.stage_policy = nullptr; },
       {"staged"}},
      {"time_slice_us",
       [](const ModelConfig& c) {
         return c.time_slice_us ? fmt::format("{}", *c.time_slice_us) : std::string();
       },
       [](ModelConfig& c) { c.time_slice_us.reset(); },
       {"cellular", "graph_merge", "bucketed"}}};
  ModelConfig& config = plan.config;
  if (!config.padding_mask.empty() && !MayServe(config.policy, GraphForm::kPadded) &&
      !MayServe(config.policy, GraphForm::kRagged)) {
    if (!config.drop_unused) {
      return InvalidArgument(
          "padding_mask is '{}', but policy '{}' does not use it; 'length_dp' and 'naive' do",
          config.padding_mask, config.policy);
    }
    config.padding_mask.clear();
    plan.dropped += fmt::format("; padding_mask has no effect with policy '{}'", config.policy);
  }
  for (const auto& [name, value, unset, policies] : kPolicySettings) {
    const std::string is = value(config);
    if (is.empty()) continue;
    if (std::find(policies.begin(), policies.end(), config.policy) != policies.end()) continue;
    if (!config.drop_unused) {
      return InvalidArgument("{} is {}, but policy '{}' does not use it; '{}' does", name, is,
                             config.policy, fmt::join(policies, "' or '"));
    }
    unset(config);
    plan.dropped += fmt::format("; {} has no effect with policy '{}'", name, config.policy);
  }
  return absl::OkStatus();
}

// "encoder: 64, decoder: 32": the maximum rows of a task for each cell or stage.
std::string RowsOfEach(const std::vector<std::string>& names, const PolicyOptions& scheduling) {
  std::vector<std::string> sizes;
  for (size_t i = 0; i < names.size(); ++i) {
    const int own = scheduling.cell_types[i].max_batch_size;
    sizes.push_back(fmt::format("{}: {}", names[i], own > 0 ? own : scheduling.max_batch_size));
  }
  return fmt::format("{}", fmt::join(sizes, ", "));
}

}  // namespace

StatusOr<ServingPlan> PlanServing(const ModelConfig& config, const BatchAxisReport& batching,
                                  int workers) {
  ServingPlan plan;
  plan.config = config;
  if (plan.config.policy.empty()) plan.config.policy = batching.batches ? "window" : "none";
  // A model whose requests cannot share batches may have settings meant for another.
  if (!config.policy.empty() || batching.batches) {
    CHAIRLIFT_RETURN_IF_ERROR(CheckPolicySettings(plan));
  }
  const bool wants_batches = plan.config.policy != "none";
  if (wants_batches && !batching.batches) {
    return InvalidArgument("policy '{}' cannot serve this model: {}; policy 'none' can",
                           plan.config.policy, batching.why);
  }
  const bool alone = !batching.batches && config.max_batch_size > 1;
  if (alone && config.drop_unused) {
    plan.dropped += fmt::format("; requests share no batches, whatever max_batch_size ({}) says",
                                config.max_batch_size);
  } else if (alone) {
    return InvalidArgument(
        "max_batch_size is {}, but requests of this model cannot share a batch: {}; "
        "leave max_batch_size out, or export the model with an open batch dimension",
        config.max_batch_size, batching.why);
  }
  plan.batches = wants_batches && config.max_batch_size != 1;
  if (!plan.batches) {
    plan.config.max_batch_size = 0;
  } else if (config.max_batch_size == 0) {
    plan.config.max_batch_size = kDefaultMaxBatchSize;
  }
  plan.scheduling.max_batch_size = std::max(1, plan.config.max_batch_size);
  plan.scheduling.workers = workers;
  plan.scheduling.queue_delay = std::chrono::microseconds(plan.config.queue_delay_us);
  plan.scheduling.preferred_batch_sizes = plan.config.preferred_batch_sizes;
  plan.diagnosis = plan.batches ? fmt::format("{}; {} policy, up to {} rows", batching.why,
                                              plan.config.policy, plan.config.max_batch_size)
                                : fmt::format("{}; requests run one by one", batching.why);
  return plan;
}

StatusOr<ServingPlan> PlanTokenServing(const ModelConfig& config, const CostModel* costs,
                                       int workers) {
  ServingPlan plan;
  plan.batches = true;
  plan.config = config;
  plan.config.policy = "packed";
  CHAIRLIFT_RETURN_IF_ERROR(CheckPolicySettings(plan));
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
      "inputs vary in length; requests' tokens are packed, nothing is padded; packed policy, up "
      "to {} tokens in a batch{}",
      plan.config.max_batch_tokens, given || costs == nullptr ? "" : " by measured cost");
  return plan;
}

StatusOr<ServingPlan> PlanPaddedServing(const ModelConfig& config, const std::string& not_proved,
                                        int workers) {
  ServingPlan plan;
  plan.batches = true;
  plan.config = config;
  if (plan.config.policy.empty()) plan.config.policy = "length_dp";
  CHAIRLIFT_RETURN_IF_ERROR(CheckPolicySettings(plan));
  if (plan.config.max_batch_size == 0) plan.config.max_batch_size = kDefaultMaxBatchSize;
  plan.scheduling.max_batch_size = plan.config.max_batch_size;
  plan.scheduling.workers = workers;
  plan.scheduling.queue_delay = std::chrono::microseconds(plan.config.queue_delay_us);
  plan.scheduling.latency_objective = std::chrono::microseconds(plan.config.latency_objective_us);
  const std::string why =
      not_proved.empty()
          ? "which is proved to change nothing"
          : fmt::format(
                "which is trusted to change nothing because '{}' hides it (padding_mask): tried "
                "on a few requests, not proved: {}",
                config.padding_mask, not_proved);
  plan.diagnosis = fmt::format(
      "inputs vary in length; batches are padded to the longest in them, {}; {} policy, up to {} "
      "rows",
      why, plan.config.policy, plan.config.max_batch_size);
  return plan;
}

StatusOr<ServingPlan> PlanGenerationServing(const ModelConfig& config, const std::string& what,
                                            int64_t blocks) {
  ServingPlan plan;
  plan.config = config;
  if (!config.policy.empty() && config.policy != "continuous") {
    return InvalidArgument(
        "policy '{}' exists only for comparison in simulations; models that generate are served "
        "with 'continuous'",
        config.policy);
  }
  plan.config.policy = "continuous";
  CHAIRLIFT_RETURN_IF_ERROR(CheckPolicySettings(plan));
  if (config.max_batch_size > 0) {
    if (!config.drop_unused) {
      return InvalidArgument(
          "max_batch_size is {}, but policy 'continuous' does not use it; max_batch_tokens bounds "
          "a step",
          config.max_batch_size);
    }
    plan.config.max_batch_size = 0;
    plan.dropped += "; max_batch_size has no effect";
  }
  if (plan.config.max_batch_tokens == 0) plan.config.max_batch_tokens = kDefaultStepTokens;
  // A request joins the running ones without waiting until they end, so the queue time does not
  // apply.
  if (!plan.config.max_queue_wait_us) plan.config.max_queue_wait_us = 0;
  plan.scheduling.max_batch_size = plan.config.max_batch_tokens;
  plan.scheduling.state_capacity = blocks;
  plan.diagnosis = fmt::format("{}; continuous policy, up to {} tokens in a step", what,
                               plan.config.max_batch_tokens);
  return plan;
}

StatusOr<ServingPlan> PlanCellServing(const ModelConfig& config, const std::string& what,
                                      const std::vector<std::string>& cells,
                                      std::vector<CellTypeOptions> types) {
  ServingPlan plan;
  plan.config = config;
  if (plan.config.policy.empty()) plan.config.policy = "cellular";
  CHAIRLIFT_RETURN_IF_ERROR(CheckPolicySettings(plan));
  if (plan.config.max_batch_size == 0) plan.config.max_batch_size = kDefaultMaxCellRows;
  plan.scheduling.max_batch_size = plan.config.max_batch_size;
  plan.scheduling.queue_delay = std::chrono::microseconds(plan.config.queue_delay_us);
  plan.scheduling.cell_types = std::move(types);
  if (config.time_slice_us) {
    plan.scheduling.time_slice = std::chrono::microseconds(*config.time_slice_us);
  }
  if (plan.config.policy != "cellular") {
    plan.diagnosis =
        fmt::format("{} ({}); {} policy, up to {} requests together", what, fmt::join(cells, ", "),
                    plan.config.policy, plan.config.max_batch_size);
    return plan;
  }
  plan.diagnosis = fmt::format(
      "{}; cellular policy: requests join and leave at every cell; rows at most in a "
      "task of {}",
      what, RowsOfEach(cells, plan.scheduling));
  return plan;
}

StatusOr<ServingPlan> PlanStagedServing(const ModelConfig& config,
                                        const std::vector<std::string>& stages,
                                        std::vector<CellTypeOptions> types, const CostModel* costs,
                                        int workers, bool packed) {
  ServingPlan plan;
  plan.batches = true;
  plan.config = config;
  if (plan.config.policy.empty()) plan.config.policy = "staged";
  if (packed) plan.config.max_batch_tokens = 0;  // which it does use
  CHAIRLIFT_RETURN_IF_ERROR(CheckPolicySettings(plan));
  int& largest = packed ? plan.config.max_batch_tokens : plan.config.max_batch_size;
  if (packed) largest = config.max_batch_tokens;
  if (largest == 0) largest = packed ? kDefaultMaxStagedTokens : kDefaultMaxStagedRows;
  plan.scheduling.max_batch_size = largest;
  plan.scheduling.queue_delay = std::chrono::microseconds(plan.config.queue_delay_us);
  plan.scheduling.latency_objective = std::chrono::microseconds(plan.config.latency_objective_us);
  plan.scheduling.buffer_pairs = plan.config.buffer_pairs;
  plan.scheduling.join_window = std::chrono::microseconds(plan.config.join_window_us);
  plan.scheduling.workers = workers;
  plan.scheduling.cell_types = std::move(types);
  plan.scheduling.cell_types.resize(stages.size());
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    plan.scheduling.cell_types[stage].priority = static_cast<int>(stage);
    if (!config.exits.empty()) {
      plan.scheduling.stage_types.push_back(static_cast<CellType>(stage));
    }
  }
  if (!config.exits.empty() && plan.config.policy != "staged" && plan.config.policy != "cellular") {
    return InvalidArgument(
        "exits are set, but policy '{}' has no early exits; 'staged' and 'cellular' have",
        plan.config.policy);
  }
  plan.scheduling.costs = costs;
  plan.diagnosis = fmt::format("cut into {} stages; {} policy, up to {} {}", stages.size(),
                               plan.config.policy, largest, packed ? "tokens" : "rows");
  if (plan.config.policy == "cellular") {
    plan.diagnosis = fmt::format(
        "cut into stages; cellular policy: requests join and leave at every stage; {} at most "
        "in a task of {}",
        packed ? "tokens" : "rows", RowsOfEach(stages, plan.scheduling));
  }
  if (packed) {
    plan.diagnosis =
        "inputs vary in length; requests' tokens are packed, nothing is padded; " + plan.diagnosis;
  }
  for (const StageExit& exit : config.exits) {
    plan.diagnosis += fmt::format("; requests may {} after '{}'",
                                  exit.skip_to.empty() ? "exit" : "skip stages", exit.output);
  }
  return plan;
}

}  // namespace chairlift
