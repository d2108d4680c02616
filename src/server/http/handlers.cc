// The JSON of metadata, configuration, statistics and the repository, with Triton's field names.
#include "server/http/handlers.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/memory_reserve.h"
#include "base/renamed.h"
#include "base/status.h"
#include "server/http/json_errors.h"
#include "server/http/json_writer.h"
#include "server/http/text_listing.h"
#include "server/protocol/absent_extensions.h"
#include "tensor/datatype.h"

namespace chairlift::http {
namespace {

using protocol::ErrorKind;
using protocol::Service;
using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 32;  // of a repository request

int HttpStatus(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidRequest:
      return 400;
    case ErrorKind::kForbidden:
      return 403;
    case ErrorKind::kNotFound:
      return 404;
    case ErrorKind::kClientLimit:
      return 429;
    case ErrorKind::kCancelled:
      return 499;
    case ErrorKind::kBusy:
    case ErrorKind::kTimeout:
    case ErrorKind::kNotReady:
      return 503;
    case ErrorKind::kInternal:
      break;
  }
  return 500;
}

Reply JsonReply(const Json& json) {
  Reply reply;
  reply.body = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return reply;
}

Json ServerMetadata() {
  const protocol::ServerMetadata server = protocol::DescribeServer();
  return {{"name", server.name}, {"version", server.version}, {"extensions", server.extensions}};
}

// For visitors with a browser: what this port is and what it accepts.
Json Overview(const Service& service) {
  Json overview = ServerMetadata();
  overview.erase("extensions");
  overview["ready"] = service.Ready().ok();
  std::set<std::string> models;
  for (const ModelIndexEntry& entry : service.Index(true)) models.insert(entry.name);
  overview["models"] = models;
  overview["paths"] = ListRoutes();
  overview["documentation"] = "docs/reference/http.md, docs/guides/embeddings.md";
  return overview;
}

Json Tensors(const std::vector<TensorSpec>& specs) {
  Json list = Json::array();
  for (const TensorSpec& spec : specs) {
    list.push_back(
        {{"name", spec.name}, {"datatype", DatatypeName(spec.dtype)}, {"shape", spec.shape}});
  }
  return list;
}

Json Metadata(const protocol::ModelSignature& model) {
  return {{"name", model.name},
          {"versions", model.versions},
          {"platform", model.platform},
          {"inputs", Tensors(model.inputs)},
          {"outputs", Tensors(model.outputs)}};
}

Json ConfigTensors(const std::vector<TensorSpec>& specs) {
  Json list = Json::array();
  for (const TensorSpec& spec : specs) {
    list.push_back({{"name", spec.name},
                    {"data_type", protocol::ConfigurationType(spec.dtype)},
                    {"dims", spec.shape}});
  }
  return list;
}

Json SequenceBatching(const protocol::ModelConfiguration& model) {
  Json states = Json::array();
  for (const auto& [input, output, spec] : model.sequence_batching->states) {
    states.push_back({{"input_name", input},
                      {"output_name", output},
                      {"data_type", protocol::ConfigurationType(spec.dtype)},
                      {"dims", spec.shape}});
  }
  return {{"max_sequence_idle_microseconds", model.sequence_batching->max_idle_us},
          {"control_input", Json::array()},
          {"state", states},
          {"oldest",
           {{"max_candidate_sequences", model.sequence_batching->max_candidate_sequences},
            {"preferred_batch_size", model.preferred_batch_sizes},
            {"max_queue_delay_microseconds", model.max_queue_delay_us}}}};
}

Json DynamicBatching(const protocol::ModelConfiguration& model) {
  return {{"preferred_batch_size", model.preferred_batch_sizes},
          {"max_queue_delay_microseconds", model.max_queue_delay_us},
          {"preserve_ordering", false},
          {"default_queue_policy",
           {{"default_timeout_microseconds", model.dynamic_batching->default_timeout_us},
            {"max_queue_size", model.dynamic_batching->max_queue_size}}}};
}

Json Config(const protocol::ModelConfiguration& model) {
  Json config = {{"name", model.name},
                 {"platform", model.platform},
                 {"backend", model.backend},
                 {"max_batch_size", model.max_batch_size},
                 {"input", ConfigTensors(model.inputs)},
                 {"output", ConfigTensors(model.outputs)}};
  if (model.sequence_batching.has_value()) config["sequence_batching"] = SequenceBatching(model);
  if (model.dynamic_batching.has_value()) config["dynamic_batching"] = DynamicBatching(model);
  for (const auto& [name, value] : model.parameters) {
    config["parameters"][std::string(name)] = {{"string_value", value}};
  }
  return config;
}

// Keeps the contents of a config.pbtxt; adds what computes the model on this server, and how.
Json ConfigAsGiven(const ModelMetadata& model) {
  Json config = Config(protocol::ConfigurationOf(model));
  const Json given = Json::parse(model.triton_config, nullptr, /*allow_exceptions=*/false);
  if (!given.is_object()) return config;
  for (const auto& [name, value] : given.items()) {
    if (name == "input" || name == "output") {
      for (Json& shown : config[name]) {
        for (const Json& tensor : value) {
          if (tensor.value("name", "") == shown["name"]) shown.update(tensor);
        }
      }
    } else if (name != "name" && name != "backend" && name != "parameters" &&
               name != "max_batch_size" && (name != "platform" || value == "ensemble")) {
      config[name] = value;
      if (name == "sequence_batching") config.erase("dynamic_batching");
    }
  }
  return config;
}

Json Counts(const ModelStatistics::Count& count) {
  return {{"count", count.count}, {"ns", count.ns}};
}

Json Times(const Histogram& histogram) {
  uint64_t count = 0;
  for (const uint64_t one : histogram.counts) count += one;
  return {{"count", count}, {"ns", static_cast<uint64_t>(histogram.sum * 1e9)}};
}

// For models that generate; not part of the protocol.
Json Generation(const GenerationStatistics& of) {
  Json fields = {{"waiting", of.waiting},
                 {"running", of.running},
                 {"prompt_tokens", of.prompt_tokens},
                 {"generation_tokens", of.generation_tokens},
                 {"preemptions", of.preemptions},
                 {"blocks", of.blocks},
                 {"blocks_used", of.blocks_used},
                 {"block_tokens", of.block_tokens},
                 {"tokens_used", of.tokens_used},
                 {"first_token", Times(of.first_token_seconds)},
                 {"between_tokens", Times(of.between_tokens_seconds)}};
  for (const Renamed& renamed : RenamedFields()) fields[renamed.from] = fields[renamed.to];
  return fields;
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
    if (model.generation) list.back()["generation"] = Generation(*model.generation);
  }
  return {{"model_stats", list}};
}

// An optional body: an object, or empty.
StatusOr<Json> OptionalObject(std::string_view body) {
  if (body.empty()) return Json::object();
  bool too_deep = false;
  std::optional<std::string> twice;
  std::vector<std::set<std::string>> keys(1);  // for each open object
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    too_deep = too_deep || depth > kMaxDepth;
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed).second) twice = parsed;
    return !too_deep;
  };
  Json json = Json::parse(body, check, false);
  if (too_deep) {
    return InvalidArgument("the JSON is nested deeper than the {} levels allowed", kMaxDepth);
  }
  if (json.is_discarded()) {
    return NotJson(body, "");
  }
  if (!json.is_object()) return InvalidArgument("the request is not a JSON object");
  if (twice.has_value()) return GivenTwice(*twice, "");
  return json;
}

Reply Index(const Service& service, std::string_view body) {
  const StatusOr<Json> request = OptionalObject(body);
  if (!request.ok()) return ErrorReply(request.status());
  bool ready_only = false;
  if (const auto ready = request->find("ready"); ready != request->end()) {
    if (!ready->is_boolean()) return ErrorReply(400, "\"ready\" is not true or false");
    ready_only = ready->get<bool>();
  }
  Json list = Json::array();
  for (const ModelIndexEntry& entry : service.Index(ready_only)) {
    list.push_back({{"name", entry.name},
                    {"version", entry.version},
                    {"state", protocol::StateName(entry.state)},
                    {"reason", entry.reason}});
  }
  return JsonReply(list);
}

// The parameter "config", or empty.
StatusOr<std::string> ReadRepositoryParameters(std::string_view body) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Json request, OptionalObject(body));
  std::string config;
  const auto parameters = request.find("parameters");
  if (parameters == request.end()) return config;
  if (!parameters->is_object()) return InvalidArgument("\"parameters\" is not an object");
  for (const auto& [name, value] : parameters->items()) {
    CHAIRLIFT_RETURN_IF_ERROR(Service::CheckRepositoryParameter(name));
    if (name != "config") continue;
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
      return InvalidArgument(
          "parameter \"config\" must be a string: the model's configuration as JSON");
    }
    config = value.get<std::string>();
  }
  return config;
}

Reply Empty(const Status& status) { return status.ok() ? Reply{} : ErrorReply(status); }

Reply LoadOrUnload(Service& service, const Route& route, std::string_view body) {
  const StatusOr<std::string> config = ReadRepositoryParameters(body);
  if (!config.ok()) return ErrorReply(config.status());
  return Empty(route.endpoint == Endpoint::kLoad ? service.Load(route.model, *config)
                                                 : service.Unload(route.model));
}

protocol::Parameter ParameterOfUrl(const Json& value) {
  switch (value.type()) {
    case Json::value_t::boolean:
      return value.get<bool>();
    case Json::value_t::number_integer:
      return value.get<int64_t>();
    case Json::value_t::number_unsigned:
      return value.get<uint64_t>();
    case Json::value_t::number_float:
      return value.get<double>();
    case Json::value_t::string:
      return std::string_view(value.get_ref<const std::string&>());
    default:
      return protocol::OtherValue{value.type_name()};
  }
}

Json Settings(const std::vector<protocol::Setting>& settings) {
  Json shown;
  for (const protocol::Setting& setting : settings) {
    Json value = std::visit(
        []<typename T>(const T& plain) -> Json {
          if constexpr (std::is_same_v<T, protocol::OtherValue>) return nullptr;
          if constexpr (!std::is_same_v<T, protocol::OtherValue>) return plain;
        },
        setting.value);
    shown[std::string(setting.name)] = setting.list ? Json::array({value}) : value;
  }
  return shown;
}

// `current`, if the request changes nothing. Clients write "OFF" for ["OFF"], and null for
// unchanged settings.
Reply Unchanged(const Json& request, const std::vector<protocol::Setting>& current,
                Status (*check)(std::string_view, const protocol::Parameter&)) {
  for (const auto& [name, value] : request.items()) {
    if (value.is_null()) continue;
    const bool one = value.is_array() && value.size() == 1;
    const Status same = check(name, ParameterOfUrl(one ? value.front() : value));
    if (!same.ok()) return ErrorReply(same);
  }
  return JsonReply(Settings(current));
}

Reply AbsentExtension(const Service& service, const Route& route, std::string_view body) {
  const StatusOr<Json> request = OptionalObject(body);
  if (!request.ok()) return ErrorReply(request.status());
  switch (route.endpoint) {
    case Endpoint::kSharedMemoryStatus:
      if (route.model.empty()) return JsonReply(Json::array());
      return ErrorReply(protocol::NoRegion(route.model));
    case Endpoint::kRegisterSharedMemory:
      return ErrorReply(protocol::RefuseRegion(route.model));
    case Endpoint::kUnregisterSharedMemory:
      return Reply{};  // no region is registered, so there is nothing to do
    case Endpoint::kTraceSettings:
    case Endpoint::kChangeTraceSettings: {
      const Status known =
          route.model.empty() ? absl::OkStatus() : service.Find(route.model, "").status();
      if (!known.ok()) return ErrorReply(known);
      return Unchanged(*request, protocol::TraceSettings(), protocol::CheckTraceSetting);
    }
    default:
      return Unchanged(*request, protocol::LogSettings(), protocol::CheckLogSetting);
  }
}

Reply OfModel(const Service& service, const Route& route) {
  const StatusOr<ModelMetadata> model = service.Find(route.model, route.version);
  if (!model.ok()) return ErrorReply(model.status());
  return JsonReply(route.endpoint == Endpoint::kModelConfig
                       ? ConfigAsGiven(*model)
                       : Metadata(protocol::SignatureOf(*model)));
}

}  // namespace

Reply ErrorReply(int status, std::string_view message) {
  Reply reply{status, ErrorBody(message)};
  reply.error = message;
  return reply;
}

Reply ErrorReply(const protocol::Error& error) {
  Reply reply = ErrorReply(HttpStatus(error.kind), error.message);
  reply.retry_after_s = error.retry_after_s;
  return reply;
}

Reply ErrorReply(const Status& status) { return ErrorReply(protocol::ErrorOf(status)); }

Reply Handle(Service& service, const Route& route, std::string_view body) {
  // The JSON library's destructors allocate, and crash the process if they cannot. Everything here
  // is small: bodies of some KiB, and answers whose size depends on the models, not on a request.
  const MemoryReserve::Use use;
  switch (route.endpoint) {
    case Endpoint::kServerMetadata:
      return JsonReply(ServerMetadata());
    case Endpoint::kOverview:
      return JsonReply(Overview(service));
    case Endpoint::kLive:
      return JsonReply({{"live", true}});
    case Endpoint::kReady: {
      const Status ready = service.Ready();
      return ready.ok() ? JsonReply({{"ready", true}}) : ErrorReply(ready);
    }
    case Endpoint::kModelReady: {
      const Status ready = service.ModelReady(route.model, route.version);
      return ready.ok() ? JsonReply({{"name", route.model}, {"ready", true}}) : ErrorReply(ready);
    }
    case Endpoint::kModelMetadata:
    case Endpoint::kModelConfig:
      return OfModel(service, route);
    case Endpoint::kAllStatistics:
    case Endpoint::kModelStatistics: {
      const StatusOr<std::vector<ModelStatistics>> models =
          service.Statistics(route.model, route.version);
      return models.ok() ? JsonReply(Statistics(*models)) : ErrorReply(models.status());
    }
    case Endpoint::kRepositoryIndex:
      return Index(service, body);
    case Endpoint::kLoad:
    case Endpoint::kUnload:
      return LoadOrUnload(service, route, body);
    case Endpoint::kSharedMemoryStatus:
    case Endpoint::kRegisterSharedMemory:
    case Endpoint::kUnregisterSharedMemory:
    case Endpoint::kTraceSettings:
    case Endpoint::kChangeTraceSettings:
    case Endpoint::kLogSettings:
    case Endpoint::kChangeLogSettings:
      return AbsentExtension(service, route, body);
    case Endpoint::kOptions:
      return Reply{};
    case Endpoint::kTextModels:
      return {200, ListTextModels(service)};
    case Endpoint::kTextModel: {
      StatusOr<std::string> model = DescribeTextModel(route.model, service);
      return model.ok() ? Reply{200, *std::move(model)} : ErrorReply(model.status());
    }
    case Endpoint::kTextInfo:
      return {200, DescribeTextService(service)};
    case Endpoint::kInfer:
    case Endpoint::kGenerate:
    case Endpoint::kGenerateStream:
    case Endpoint::kCompletions:
    case Endpoint::kChatCompletions:
    case Endpoint::kEmbeddings:
    case Endpoint::kEmbed:
    case Endpoint::kEmbedAll:
    case Endpoint::kEmbedSparse:
    case Endpoint::kSimilarity:
    case Endpoint::kRerank:
    case Endpoint::kRerankDocuments:
    case Endpoint::kPredict:
    case Endpoint::kTokenize:
    case Endpoint::kDecode:
    case Endpoint::kByModel:
    case Endpoint::kMetrics:
    case Endpoint::kNone:
      break;
  }
  return ErrorReply(500, "no handler");
}

}  // namespace chairlift::http
