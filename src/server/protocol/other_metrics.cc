#include "server/protocol/other_metrics.h"

#include <map>
#include <string>
#include <utility>

#include "server/protocol/metric_samples.h"

namespace chairlift::protocol {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// Triton's reasons of failures; all others are "OTHER".
const char* TritonReason(const std::string& reason) {
  if (reason == "queue_full" || reason == "timeout" || reason == "shutdown") return "REJECTED";
  if (reason == "cancelled") return "CANCELED";
  if (reason == "error" || reason == "unavailable") return "BACKEND";
  return "OTHER";
}

}  // namespace

void AppendTritonMetrics(const std::vector<ModelStatistics>& models,
                         std::vector<MetricFamily>* families) {
  const auto family = [&](const char* name, const char* help, MetricType type) -> MetricFamily& {
    families->push_back(Family(name, help, type));
    return families->back();
  };
  const auto labels = [](const ModelStatistics& model) {
    return std::vector<ClientMetric::Label>{{"model", model.name}, {"version", model.version}};
  };
  const auto counter = [&](const char* name, const char* help, auto&& value) {
    MetricFamily& made = family(name, help, MetricType::Counter);
    for (const ModelStatistics& model : models) {
      made.metric.push_back(Sample(made.type, labels(model), static_cast<double>(value(model))));
    }
  };
  const auto us = [](const ModelStatistics::Count& count) {
    return static_cast<double>(count.ns) / 1e3;
  };
  using M = const ModelStatistics&;
  counter("nv_inference_request_success", "Requests answered", [](M m) { return m.success.count; });
  MetricFamily& failures =
      family("nv_inference_request_failure", "Requests that failed", MetricType::Counter);
  for (const ModelStatistics& model : models) {
    std::map<std::string, uint64_t> by_reason = {
        {"REJECTED", 0}, {"CANCELED", 0}, {"BACKEND", 0}, {"OTHER", 0}};
    for (const auto& [reason, count] : model.failures) by_reason[TritonReason(reason)] += count;
    for (const auto& [reason, count] : by_reason) {
      std::vector<ClientMetric::Label> with = labels(model);
      with.push_back({"reason", reason});
      failures.metric.push_back(Sample(failures.type, std::move(with), static_cast<double>(count)));
    }
  }
  counter("nv_inference_count", "Rows computed", [](M m) { return m.inference_count; });
  counter("nv_inference_exec_count", "Batches run", [](M m) { return m.execution_count; });
  counter("nv_inference_request_duration_us", "Time of answered requests from arrival to answer",
          [&](M m) { return us(m.success); });
  counter("nv_inference_queue_duration_us", "Time that requests waited",
          [&](M m) { return us(m.queue); });
  counter("nv_inference_compute_input_duration_us", "Time of preparing inputs",
          [&](M m) { return us(m.compute_input); });
  counter("nv_inference_compute_infer_duration_us", "Time of compute",
          [&](M m) { return us(m.compute_infer); });
  counter("nv_inference_compute_output_duration_us", "Time of preparing outputs",
          [&](M m) { return us(m.compute_output); });
  counter("nv_cache_num_hits_per_model", "Requests answered by the response cache",
          [](M m) { return m.cache_hit.count; });
  counter("nv_cache_num_misses_per_model", "Requests that the response cache did not have",
          [](M m) { return m.cache_miss.count; });
  counter("nv_cache_hit_duration_per_model", "Time of requests that the cache answered, in µs",
          [&](M m) { return us(m.cache_hit); });
  counter("nv_cache_miss_duration_per_model", "Time of looking up others, in µs",
          [&](M m) { return us(m.cache_miss); });
  MetricFamily& pending = family("nv_inference_pending_request_count",
                                 "Requests that wait for compute", MetricType::Gauge);
  for (const ModelStatistics& model : models) {
    pending.metric.push_back(
        Sample(pending.type, labels(model), static_cast<double>(model.waiting)));
  }
}

void AppendVllmMetrics(const std::vector<ModelStatistics>& models,
                       std::vector<MetricFamily>* families) {
  std::vector<MetricFamily> made = {
      Family("vllm:num_requests_running", "Requests that are generating", MetricType::Gauge),
      Family("vllm:num_requests_waiting", "Requests that wait", MetricType::Gauge),
      Family("vllm:kv_cache_usage_perc", "Share of the cache's blocks in use; 1 is all",
             MetricType::Gauge),
      Family("vllm:prompt_tokens_total", "Tokens of prompts", MetricType::Counter),
      Family("vllm:generation_tokens_total", "Tokens of answers", MetricType::Counter),
      Family("vllm:num_preemptions_total", "Times that a request gave its blocks to older ones",
             MetricType::Counter),
      Family("vllm:time_to_first_token_seconds", "From arrival to the first token",
             MetricType::Histogram),
      Family("vllm:inter_token_latency_seconds", "From a token to the next",
             MetricType::Histogram)};
  for (const ModelStatistics& model : models) {
    if (!model.generation) continue;
    const GenerationStatistics& of = *model.generation;
    const std::vector<ClientMetric::Label> labels = {{"model_name", model.name}};
    const double used =
        of.blocks == 0 ? 0 : static_cast<double>(of.blocks_used) / static_cast<double>(of.blocks);
    const double values[] = {static_cast<double>(of.running),
                             static_cast<double>(of.waiting),
                             used,
                             static_cast<double>(of.prompt_tokens),
                             static_cast<double>(of.generation_tokens),
                             static_cast<double>(of.preemptions)};
    for (size_t i = 0; i < std::size(values); ++i) {
      made[i].metric.push_back(Sample(made[i].type, labels, values[i]));
    }
    made[6].metric.push_back(Cumulative(labels, of.first_token_seconds));
    made[7].metric.push_back(Cumulative(labels, of.between_tokens_seconds));
  }
  if (made[0].metric.empty()) return;
  for (MetricFamily& family : made) families->push_back(std::move(family));
}

}  // namespace chairlift::protocol
