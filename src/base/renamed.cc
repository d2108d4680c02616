#include "base/renamed.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

namespace chairlift {
namespace {

std::string CurrentName(std::span<const Renamed> all, const std::string& name,
                        std::string_view where) {
  for (const Renamed& renamed : all) {
    if (name != renamed.from) continue;
    spdlog::warn("{}: {}", where, RenamedNotice(renamed));
    return renamed.to;
  }
  return name;
}

}  // namespace

std::span<const Renamed> RenamedFlags() {
  static constexpr Renamed kFlags[] = {
      {"--no-timing", "--no-autotune", "serve"},
      {"--max-queue-wait", "--max-queue-wait-us", "serve", 1000},
      {"--batch", "--batch-size", "inspect"},
      {"--max-embedding-bytes", "--max-folded-embedding-bytes", "inspect"},
      {"--batch", "--batch-size", "profile"},
      {"--batches", "--batch-sizes", "profile"},
      {"--again", "--force", "profile"},
      {"--batch", "--batch-size", "bench"},
      {"--lengths", "--length-histogram", "bench"},
      {"--gaps", "--request-intervals", "bench"},
      {"--clients", "--concurrency", "bench"},
      {"--lengths", "--length-histogram", "simulate"},
      {"--gaps", "--request-intervals", "simulate"},
      {"--clients", "--concurrency", "simulate"},
      {"--uniform", "--uniform-lengths", "simulate"},
      {"--state-capacity", "--kv-cache-tokens", "simulate"},
      {"--leaving", "--exit-percent", "simulate"},
      {"--max-tokens", "--max-batch-tokens", "simulate"},
      {"--longest-wait-us", "--join-window-us", "simulate"},
      {"--slice-us", "--time-slice-us", "simulate"},
      {"--cell-max", "--cell-max-batch-size", "simulate"},
  };
  return kFlags;
}

std::span<const Renamed> RenamedSettings() {
  static constexpr Renamed kSettings[] = {
      {"cache_bytes", "kv_cache_bytes"},
      {"hooks_apart", "separate_hooks"},
      {"max_embedding_bytes", "max_folded_embedding_bytes"},
      {"names", "tensor_names"},
      {"sequence_idle_us", "max_sequence_idle_us"},
      {"share_prefixes", "prefix_caching"},
      {"step_slice_us", "time_slice_us"},
      {"stretch_within_us", "join_window_us"},
      {"trusted_mask", "padding_mask"},
  };
  return kSettings;
}

std::span<const Renamed> RenamedPolicies() {
  static constexpr Renamed kPolicies[] = {{"tokens", "packed"}};
  return kPolicies;
}

std::span<const Renamed> RenamedMetrics() {
  static constexpr Renamed kMetrics[] = {
      {"chairlift_compute_seconds", "chairlift_compute_duration_seconds"},
      {"chairlift_generation_preempted_total", "chairlift_generation_preemptions_total"},
      {"chairlift_generation_requests_live", "chairlift_generation_requests_running"},
      {"chairlift_kv_cache_tokens_held", "chairlift_kv_cache_tokens_used"},
      {"chairlift_queue_seconds", "chairlift_queue_duration_seconds"},
      {"chairlift_response_cache_total", "chairlift_response_cache_lookups_total"},
  };
  return kMetrics;
}

std::span<const Renamed> RenamedFields() {
  static constexpr Renamed kFields[] = {
      {"generated_tokens", "generation_tokens"},
      {"live", "running"},
      {"preempted", "preemptions"},
      {"tokens_held", "tokens_used"},
  };
  return kFields;
}

std::string RenamedNotice(const Renamed& renamed) {
  return fmt::format("`{}` is now `{}`; the old name works until version 0.3", renamed.from,
                     renamed.to);
}

std::string CurrentSetting(const std::string& name, std::string_view where) {
  return CurrentName(RenamedSettings(), name, where);
}

std::string CurrentPolicy(const std::string& name, std::string_view where) {
  return CurrentName(RenamedPolicies(), name, where);
}

}  // namespace chairlift
