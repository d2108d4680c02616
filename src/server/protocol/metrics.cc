// Histograms by model, and the conversion of ModelStatistics to Prometheus families.
#include "server/protocol/metrics.h"

#include <fmt/format.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/renamed.h"
#include "server/protocol/metadata.h"
#include "server/protocol/metric_samples.h"
#include "server/protocol/other_metrics.h"

namespace chairlift::protocol {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// Seconds: 10 µs to 10 s, three steps per decade.
prometheus::Histogram::BucketBoundaries TimeBuckets() {
  prometheus::Histogram::BucketBoundaries bounds;
  for (double decade = 1e-5; decade < 5; decade *= 10) {
    for (const double step : {1.0, 2.5, 5.0}) bounds.push_back(decade * step);
  }
  bounds.push_back(10);
  return bounds;
}

prometheus::Histogram::BucketBoundaries RowBuckets() {
  return {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
}

struct ModelHistograms {
  prometheus::Histogram* queue = nullptr;
  prometheus::Histogram* compute = nullptr;
  prometheus::Histogram* rows = nullptr;
};

using Labels = std::vector<ClientMetric::Label>;

// `minilm` of `minilm/embed`: requests to a part count for the model that the client named.
std::string Whole(const std::string& model) {
  const std::string_view part = PartOf(model);
  return part.empty() ? model : model.substr(0, model.size() - part.size() - 1);
}

Labels LabelsOf(const std::string& model, const std::string& version, Labels more) {
  Labels labels = {{"model", model}, {"version", version}};
  labels.insert(labels.end(), more.begin(), more.end());
  return labels;
}

// Requests that callers sent to a model and to its parts. The requests that a text request makes to
// the model, its tokenizer and so on are steps, and do not count again.
struct Sent {
  uint64_t success = 0;
  uint64_t fail = 0;
  std::map<std::string, uint64_t> failures;  // by reason
  int waiting = 0;                           // requests or steps: a request waits in one queue
  int running = 0;
  std::chrono::nanoseconds work{0};

  void Add(const ModelStatistics& part) {
    success += part.success.count - part.steps.success;
    fail += part.fail.count - part.steps.fail;
    for (const auto& [reason, count] : part.failures) {
      const auto steps = part.steps.failures.find(reason);
      const uint64_t sent = count - (steps == part.steps.failures.end() ? 0 : steps->second);
      if (sent > 0) failures[reason] += sent;
    }
    waiting += part.waiting;
    running += part.running - part.steps.running;
    work += part.queued_work;
  }
};

// For models that generate.
void AppendGeneration(const std::vector<ModelStatistics>& statistics,
                      std::vector<MetricFamily>* families) {
  constexpr MetricType kCounter = MetricType::Counter;
  constexpr MetricType kGauge = MetricType::Gauge;
  constexpr MetricType kHistogram = MetricType::Histogram;
  MetricFamily waiting = Family("chairlift_generation_requests_waiting",
                                "Requests whose prompt is not under way yet", kGauge);
  MetricFamily running =
      Family("chairlift_generation_requests_running", "Requests under way", kGauge);
  MetricFamily prompts =
      Family("chairlift_prompt_tokens_total", "Tokens of prompts and sources", kCounter);
  MetricFamily generated =
      Family("chairlift_generation_tokens_total", "Tokens of answers", kCounter);
  MetricFamily preempted = Family("chairlift_generation_preemptions_total",
                                  "Times that a request gave its blocks to older ones", kCounter);
  MetricFamily blocks = Family("chairlift_kv_cache_blocks", "Blocks of keys and values", kGauge);
  MetricFamily used = Family("chairlift_kv_cache_blocks_used", "Blocks in use", kGauge);
  MetricFamily held =
      Family("chairlift_kv_cache_tokens_used", "Tokens in the blocks in use", kGauge);
  MetricFamily first =
      Family("chairlift_time_to_first_token_seconds",
             "From a request's arrival to the first token of its answer", kHistogram);
  MetricFamily between = Family("chairlift_inter_token_latency_seconds",
                                "From a token of an answer to the next", kHistogram);
  for (const ModelStatistics& model : statistics) {
    if (!model.generation) continue;
    const GenerationStatistics& of = *model.generation;
    const Labels labels = {{"model", model.name}, {"version", model.version}};
    const auto add = [&](MetricFamily& family, auto value) {
      family.metric.push_back(Sample(family.type, labels, static_cast<double>(value)));
    };
    add(waiting, of.waiting);
    add(running, of.running);
    add(prompts, of.prompt_tokens);
    add(generated, of.generation_tokens);
    add(preempted, of.preemptions);
    add(blocks, of.blocks);
    add(used, of.blocks_used);
    add(held, of.tokens_used);
    first.metric.push_back(Cumulative(labels, of.first_token_seconds));
    between.metric.push_back(Cumulative(labels, of.between_tokens_seconds));
  }
  if (running.metric.empty()) return;
  for (MetricFamily* family : {&waiting, &running, &prompts, &generated, &preempted, &blocks, &used,
                               &held, &first, &between}) {
    families->push_back(std::move(*family));
  }
}

// The same metrics under their old names.
void AppendRenamed(std::vector<MetricFamily>* families) {
  for (const Renamed& renamed : RenamedMetrics()) {
    const auto found = std::find_if(families->begin(), families->end(),
                                    [&](const auto& family) { return family.name == renamed.to; });
    if (found == families->end()) continue;
    MetricFamily copy = *found;
    copy.name = renamed.from;
    copy.help = RenamedNotice(renamed);
    families->push_back(std::move(copy));
  }
}

void AppendTransport(const TransportMetrics& transport, std::vector<MetricFamily>* families) {
  const auto name = [&](std::string_view what) {
    return fmt::format("chairlift_{}_{}", transport.name, what);
  };
  MetricFamily responses =
      Family(name("responses_total"), "Responses sent, by status", MetricType::Counter);
  for (int code = 0; code < TransportMetrics::kCodes; ++code) {
    const uint64_t count = transport.responses[code].load(std::memory_order_relaxed);
    if (count == 0) continue;
    responses.metric.push_back(
        Sample(MetricType::Counter, {{"code", std::to_string(code)}}, static_cast<double>(count)));
  }
  families->push_back(std::move(responses));
  const auto add = [&](std::string_view what, const char* help, MetricType type, int64_t value) {
    families->push_back(Family(name(what), help, type));
    families->back().metric.push_back(Sample(type, {}, static_cast<double>(value)));
  };
  add("connections", "Connections open", MetricType::Gauge, transport.connections);
  add("connections_refused_total", "Connections refused because too many were open",
      MetricType::Counter, transport.connections_refused);
  add("requests_in_flight", "Requests read and not yet answered", MetricType::Gauge,
      transport.requests_in_flight);
  add("requests_disconnected_total", "Requests cancelled because their client disconnected",
      MetricType::Counter, transport.requests_disconnected);
}

}  // namespace

struct Metrics::Impl {
  Impl(const Engine& served, const OtherNames& other_names)
      : engine(served),
        names(other_names),
        queue_family(prometheus::BuildHistogram()
                         .Name("chairlift_queue_duration_seconds")
                         .Help("Time that answered requests waited before compute")
                         .Register(registry)),
        compute_family(prometheus::BuildHistogram()
                           .Name("chairlift_compute_duration_seconds")
                           .Help("Time that answered requests were computed")
                           .Register(registry)),
        rows_family(prometheus::BuildHistogram()
                        .Name("chairlift_batch_rows")
                        .Help("Rows of the largest batch that each answered request was in")
                        .Register(registry)) {}

  ModelHistograms Find(const std::string& model, const std::string& version) {
    const std::lock_guard<std::mutex> lock(mutex);
    ModelHistograms& found = by_model[std::pair(model, version)];
    if (found.queue == nullptr) {
      const prometheus::Labels labels = {{"model", Whole(model)}, {"version", version}};
      found.queue = &queue_family.Add(labels, TimeBuckets());
      found.compute = &compute_family.Add(labels, TimeBuckets());
      found.rows = &rows_family.Add(labels, RowBuckets());
    }
    return found;
  }

  void AppendEngine(std::vector<MetricFamily>* families) const {
    const auto statistics = engine.Statistics("");
    if (!statistics.ok()) return;
    constexpr MetricType kCounter = MetricType::Counter;
    constexpr MetricType kGauge = MetricType::Gauge;
    MetricFamily requests =
        Family("chairlift_requests_total", "Requests of callers that ended, by outcome", kCounter);
    MetricFamily failures =
        Family("chairlift_request_failures_total", "Requests that failed, by reason", kCounter);
    MetricFamily rows = Family("chairlift_rows_total", "Rows computed for requests", kCounter);
    MetricFamily padding =
        Family("chairlift_padded_rows_total", "Rows computed that no request asked for", kCounter);
    MetricFamily batches = Family("chairlift_batches_total", "Batches run, by rows", kCounter);
    MetricFamily cache = Family("chairlift_response_cache_lookups_total",
                                "Requests looked up in the response cache, by outcome", kCounter);
    MetricFamily waiting = Family("chairlift_requests_waiting", "Requests in the queue", kGauge);
    MetricFamily running = Family("chairlift_requests_running", "Requests being computed", kGauge);
    MetricFamily work = Family("chairlift_queued_work_seconds",
                               "Accepted work that is not computed yet, by measured costs", kGauge);
    MetricFamily steps = Family("chairlift_step_requests_total",
                                "Requests that pipelines, text routes and Python models made to "
                                "the model, by outcome",
                                kCounter);
    const auto add = [](MetricFamily& family, Labels labels, auto value) {
      family.metric.push_back(Sample(family.type, std::move(labels), static_cast<double>(value)));
    };
    std::map<std::pair<std::string, std::string>, Sent> sent;
    for (const ModelStatistics& model : *statistics) {
      sent[{Whole(model.name), model.version}].Add(model);
      if (!PartOf(model.name).empty()) continue;  // its batches are not the model's
      const auto labels = [&](Labels more) {
        return LabelsOf(model.name, model.version, std::move(more));
      };
      add(steps, labels({{"outcome", "success"}}), model.steps.success);
      add(steps, labels({{"outcome", "failure"}}), model.steps.fail);
      add(rows, labels({}), model.inference_count);
      add(cache, labels({{"outcome", "hit"}}), model.cache_hit.count);
      add(cache, labels({{"outcome", "miss"}}), model.cache_miss.count);
      add(padding, labels({}), model.padded_rows);
      for (const auto& [size, count] : model.batches) {
        add(batches, labels({{"rows", std::to_string(size)}}), count.count);
      }
    }
    for (const auto& [model, count] : sent) {
      const auto labels = [&name = model.first, &version = model.second](Labels more) {
        return LabelsOf(name, version, std::move(more));
      };
      add(requests, labels({{"outcome", "success"}}), count.success);
      add(requests, labels({{"outcome", "failure"}}), count.fail);
      for (const auto& [reason, failed] : count.failures) {
        add(failures, labels({{"reason", reason}}), failed);
      }
      add(waiting, labels({}), count.waiting);
      add(running, labels({}), count.running);
      add(work, labels({}), std::chrono::duration<double>(count.work).count());
    }
    for (MetricFamily* family : {&requests, &failures, &steps, &rows, &padding, &batches, &cache,
                                 &waiting, &running, &work}) {
      families->push_back(std::move(*family));
    }
    AppendGeneration(*statistics, families);
    AppendOthers(*statistics, sent, families);
  }

  // Under the names of other servers.
  void AppendOthers(const std::vector<ModelStatistics>& statistics,
                    const std::map<std::pair<std::string, std::string>, Sent>& sent,
                    std::vector<MetricFamily>* families) const {
    if (!names.triton && !names.vllm) return;
    std::vector<ModelStatistics> models;
    for (const ModelStatistics& model : statistics) {
      if (!PartOf(model.name).empty()) continue;
      const Sent& of_callers = sent.at({model.name, model.version});
      ModelStatistics& shown = models.emplace_back(model);
      shown.success.count = of_callers.success;
      shown.fail.count = of_callers.fail;
      shown.failures = of_callers.failures;
      shown.waiting = of_callers.waiting;
      shown.running = of_callers.running;
    }
    if (names.triton) AppendTritonMetrics(models, families);
    if (names.vllm) AppendVllmMetrics(models, families);
  }

  const Engine& engine;
  const OtherNames names;
  prometheus::Registry registry;
  prometheus::Family<prometheus::Histogram>& queue_family;
  prometheus::Family<prometheus::Histogram>& compute_family;
  prometheus::Family<prometheus::Histogram>& rows_family;
  std::mutex mutex;
  absl::flat_hash_map<std::pair<std::string, std::string>, ModelHistograms> by_model;
};

Metrics::Metrics(const Engine& engine, const OtherNames& names)
    : impl_(std::make_unique<Impl>(engine, names)) {}
Metrics::~Metrics() = default;

void Metrics::Answered(const InferResponse& response) {
  if (response.batch_rows == 0) return;  // it neither waited nor was computed
  const ModelHistograms histograms = impl_->Find(response.model, response.version);
  histograms.queue->Observe(std::chrono::duration<double>(response.queue_time).count());
  histograms.compute->Observe(std::chrono::duration<double>(response.compute_time).count());
  histograms.rows->Observe(response.batch_rows);
}

void TransportMetrics::Responded(int code) {
  if (code < 0 || code >= kCodes) return;
  responses[code].fetch_add(1, std::memory_order_relaxed);
}

TransportMetrics& Metrics::AddTransport(std::string name) {
  return transports_.emplace_back(std::move(name));
}

std::string Metrics::Render() const {
  std::vector<MetricFamily> families = impl_->registry.Collect();
  impl_->AppendEngine(&families);
  for (const TransportMetrics& transport : transports_) AppendTransport(transport, &families);
  AppendRenamed(&families);
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families);
  return std::move(text).str();
}

}  // namespace chairlift::protocol
