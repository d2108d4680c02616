// The metrics of a model under the names of other servers, for dashboards that were made for them.
#ifndef CHAIRLIFT_SERVER_PROTOCOL_OTHER_METRICS_H_
#define CHAIRLIFT_SERVER_PROTOCOL_OTHER_METRICS_H_

#include <prometheus/metric_family.h>

#include <vector>

#include "chairlift/engine.h"

namespace chairlift::protocol {

// `models`: each model once, with what callers asked of it and of its parts.

// Triton's nv_inference_* and nv_cache_*: counts, and times in µs
// (the page "Metrics" of its user guide).
void AppendTritonMetrics(const std::vector<ModelStatistics>& models,
                         std::vector<prometheus::MetricFamily>* families);
// vLLM's vllm:*, for models that generate (docs.vllm.ai, Production Metrics).
void AppendVllmMetrics(const std::vector<ModelStatistics>& models,
                       std::vector<prometheus::MetricFamily>* families);

}  // namespace chairlift::protocol

#endif  // CHAIRLIFT_SERVER_PROTOCOL_OTHER_METRICS_H_
