// Making of Prometheus families and samples.
#ifndef CHAIRLIFT_SERVER_PROTOCOL_METRIC_SAMPLES_H_
#define CHAIRLIFT_SERVER_PROTOCOL_METRIC_SAMPLES_H_

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "chairlift/engine.h"

namespace chairlift::protocol {

inline prometheus::MetricFamily Family(std::string name, std::string help,
                                       prometheus::MetricType type) {
  return {std::move(name), std::move(help), type, {}};
}

// A sample of a counter or a gauge.
inline prometheus::ClientMetric Sample(prometheus::MetricType type,
                                       std::vector<prometheus::ClientMetric::Label> labels,
                                       double value) {
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  (type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  return metric;
}

inline prometheus::ClientMetric Cumulative(std::vector<prometheus::ClientMetric::Label> labels,
                                           const Histogram& histogram) {
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  metric.histogram.sample_sum = histogram.sum;
  uint64_t count = 0;
  for (size_t i = 0; i < histogram.counts.size(); ++i) {
    count += histogram.counts[i];
    metric.histogram.bucket.push_back(
        {.cumulative_count = count,
         .upper_bound = i < histogram.bounds.size() ? histogram.bounds[i]
                                                    : std::numeric_limits<double>::infinity()});
  }
  metric.histogram.sample_count = count;
  return metric;
}

}  // namespace chairlift::protocol

#endif  // CHAIRLIFT_SERVER_PROTOCOL_METRIC_SAMPLES_H_
