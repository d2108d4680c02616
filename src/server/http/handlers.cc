// The JSON of metadata, configuration, statistics and the repository, field names as Triton's.
#include "server/http/handlers.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "server/http/json_writer.h"
#include "server/http/oip_codec.h"
#include "server/version.h"

namespace chairlift::http {
namespace {

using Json = nlohmann::ordered_json;

Reply JsonReply(const Json& json) {
  Reply reply;
  reply.body = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return reply;
}

std::string_view StateName(ModelState state) {
  switch (state) {
    case ModelState::kLoading:
      return "LOADING";
    case ModelState::kReady:
      return "READY";
    case ModelState::kUnloading:
      return "UNLOADING";
    case ModelState::kUnavailable:
      break;
  }
  return "UNAVAILABLE";
}

Json ServerMetadata() {
  return {{"name", "chairlift"},
          {"version", kServerVersion},
          {"extensions",
           {"binary_tensor_data", "generate", "model_configuration", "model_repository",
            "model_repository(unload_dependents)", "parameters", "sequence", "statistics"}}};
}

// Requests may bring any number of rows, whatever the file says of dimension 0.
std::vector<int64_t> ShownShape(const TensorSpec& spec, bool batches) {
  std::vector<int64_t> shape = spec.shape;
  if (batches && !shape.empty()) shape.front() = -1;
  return shape;
}

Json Signature(const std::vector<TensorSpec>& specs, bool batches) {
  Json list = Json::array();
  for (const TensorSpec& spec : specs) {
    list.push_back({{"name", spec.name},
                    {"datatype", WireName(spec.dtype)},
                    {"shape", ShownShape(spec, batches)}});
  }
  return list;
}

Json Metadata(const ModelMetadata& model) {
  return {{"name", model.name},
          {"versions", model.versions},
          {"platform", model.platform},
          {"inputs", Signature(model.inputs, model.batches)},
          {"outputs", Signature(model.outputs, model.batches)}};
}

// Triton's configuration leaves the batch dimension out where max_batch_size is above 0.
Json ConfigTensors(const std::vector<TensorSpec>& specs, bool batches) {
  Json list = Json::array();
  for (const TensorSpec& spec : specs) {
    std::vector<int64_t> dims = spec.shape;
    if (batches && !dims.empty()) dims.erase(dims.begin());
    list.push_back({{"name", spec.name},
                    {"data_type", "TYPE_" + std::string(WireName(spec.dtype))},
                    {"dims", dims}});
  }
  return list;
}

Json Config(const ModelMetadata& model) {
  Json config = {{"name", model.name},
                 {"platform", model.platform},
                 {"backend", "chairlift"},
                 {"max_batch_size", model.batches ? model.config.max_batch_size : 0},
                 {"input", ConfigTensors(model.inputs, model.batches)},
                 {"output", ConfigTensors(model.outputs, model.batches)}};
  const Json queue_policy = {{"default_timeout_microseconds", model.config.default_timeout_us},
                             {"max_queue_size", model.config.max_queue_size}};
  if (model.batches) {
    config["dynamic_batching"] = {{"preferred_batch_size", model.config.preferred_batch_sizes},
                                  {"max_queue_delay_microseconds", model.config.queue_delay_us},
                                  {"preserve_ordering", false},
                                  {"default_queue_policy", queue_policy}};
  }
  config["parameters"] = {
      {"policy", {{"string_value", model.config.policy}}},
      {"disabled_passes",
       {{"string_value", fmt::format("{}", fmt::join(model.config.disabled_passes, ","))}}},
      {"diagnosis", {{"string_value", model.diagnosis}}}};
  return config;
}

Json Counts(const ModelStatistics::Count& count) {
  return {{"count", count.count}, {"ns", count.ns}};
}

Json Statistics(const std::vector<ModelStatistics>& models) {
  Json list = Json::array();
  for (const ModelStatistics& model : models) {
    Json batches = Json::array();
    for (const auto& [rows, count] : model.batches) {
      batches.push_back({{"batch_size", rows},
                         {"compute_input", Counts({count.count, 0})},
                         {"compute_infer", Counts(count)},
                         {"compute_output", Counts({count.count, 0})}});
    }
    list.push_back({{"name", model.name},
                    {"version", model.version},
                    {"last_inference", model.last_inference_ms},
                    {"inference_count", model.inference_count},
                    {"execution_count", model.execution_count},
                    {"inference_stats",
                     {{"success", Counts(model.success)},
                      {"fail", Counts(model.fail)},
                      {"queue", Counts(model.queue)},
                      {"compute_input", Counts(model.compute_input)},
                      {"compute_infer", Counts(model.compute_infer)},
                      {"compute_output", Counts(model.compute_output)},
                      {"cache_hit", Counts(model.cache_hit)},
                      {"cache_miss", Counts(model.cache_miss)}}},
                    {"batch_stats", batches}});
  }
  return {{"model_stats", list}};
}

// An optional body of a repository request: an object, or nothing.
StatusOr<Json> OptionalObject(std::string_view body) {
  if (body.empty()) return Json::object();
  Json json = Json::parse(body, nullptr, false);
  if (json.is_discarded()) return InvalidArgument("the request is not valid JSON");
  if (!json.is_object()) return InvalidArgument("the request is not a JSON object");
  return json;
}

Reply Index(const Engine& engine, std::string_view body) {
  const StatusOr<Json> request = OptionalObject(body);
  if (!request.ok()) return ErrorReply(request.status());
  bool ready_only = false;
  if (const auto ready = request->find("ready"); ready != request->end()) {
    if (!ready->is_boolean()) return ErrorReply(400, "\"ready\" is not true or false");
    ready_only = ready->get<bool>();
  }
  Json list = Json::array();
  for (const ModelIndexEntry& entry : engine.Index()) {
    if (ready_only && entry.state != ModelState::kReady) continue;
    list.push_back({{"name", entry.name},
                    {"version", entry.version},
                    {"state", StateName(entry.state)},
                    {"reason", entry.reason}});
  }
  return JsonReply(list);
}

// Of the parameters that Triton takes, those that would change the outcome are refused by name.
Status CheckRepositoryParameters(std::string_view body) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Json request, OptionalObject(body));
  const auto parameters = request.find("parameters");
  if (parameters == request.end()) return absl::OkStatus();
  if (!parameters->is_object()) return InvalidArgument("\"parameters\" is not an object");
  for (const auto& [name, value] : parameters->items()) {
    if (name == "config" || name.starts_with("file:")) {
      return InvalidArgument(
          "parameter \"{}\" is not supported: models and their configuration come from the "
          "repository's folder",
          name);
    }
  }
  return absl::OkStatus();
}

Reply Empty(const Status& status) { return status.ok() ? Reply{} : ErrorReply(status); }

Reply ServerReady(const Engine& engine, bool draining) {
  if (draining) return ErrorReply(503, "the server is draining");
  for (const ModelIndexEntry& entry : engine.Index()) {
    if (entry.state == ModelState::kLoading) {
      return ErrorReply(503, fmt::format("model '{}' is loading", entry.name));
    }
  }
  return Reply{};
}

Reply ModelReady(const Engine& engine, const Route& route) {
  if (engine.ModelReady(route.model, route.version)) return Reply{};
  for (const ModelIndexEntry& entry : engine.Index()) {
    if (entry.name != route.model) continue;
    if (!route.version.empty() && entry.version != route.version) continue;
    return ErrorReply(
        503, fmt::format("model '{}' is not ready: {}{}{}", route.model, StateName(entry.state),
                         entry.reason.empty() ? "" : ": ", entry.reason));
  }
  return ErrorReply(404, fmt::format("model '{}'{} is not known", route.model,
                                     route.version.empty() ? "" : " version " + route.version));
}

}  // namespace

int HttpStatus(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      return 400;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnavailable:
      return 503;
    default:
      return 500;
  }
}

Reply ErrorReply(int status, std::string_view message) { return {status, ErrorBody(message)}; }

Reply ErrorReply(const Status& status) { return ErrorReply(HttpStatus(status), Message(status)); }

Reply Handle(Engine& engine, const Route& route, std::string_view body, bool draining) {
  switch (route.endpoint) {
    case Endpoint::kServerMetadata:
      return JsonReply(ServerMetadata());
    case Endpoint::kLive:
      return Reply{};
    case Endpoint::kReady:
      return ServerReady(engine, draining);
    case Endpoint::kModelReady:
      return ModelReady(engine, route);
    case Endpoint::kModelMetadata:
    case Endpoint::kModelConfig: {
      const StatusOr<ModelMetadata> model = engine.Metadata(route.model, route.version);
      if (!model.ok()) return ErrorReply(model.status());
      return JsonReply(route.endpoint == Endpoint::kModelConfig ? Config(*model)
                                                                : Metadata(*model));
    }
    case Endpoint::kAllStatistics:
    case Endpoint::kModelStatistics: {
      const StatusOr<std::vector<ModelStatistics>> models =
          engine.Statistics(route.model, route.version);
      if (!models.ok()) return ErrorReply(models.status());
      return JsonReply(Statistics(*models));
    }
    case Endpoint::kRepositoryIndex:
      return Index(engine, body);
    case Endpoint::kLoad:
    case Endpoint::kUnload: {
      const Status parameters = CheckRepositoryParameters(body);
      if (!parameters.ok()) return ErrorReply(parameters);
      return Empty(route.endpoint == Endpoint::kLoad ? engine.LoadFromRepository(route.model)
                                                     : engine.UnloadModel(route.model));
    }
    case Endpoint::kInfer:
    case Endpoint::kGenerate:
    case Endpoint::kGenerateStream:
    case Endpoint::kMetrics:
    case Endpoint::kNone:
      break;
  }
  return ErrorReply(500, "no handler");
}

}  // namespace chairlift::http
