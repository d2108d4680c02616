// Requests of the Open Inference Protocol over HTTP.
#include "cli/load/http_target.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/status.h"
#include "cli/flags.h"
#include "cli/load/target.h"
#include "tensor/datatype.h"

namespace chairlift {
namespace {

struct Address {
  std::string host;
  std::string port;
};

StatusOr<Address> ParseUrl(std::string url) {
  constexpr std::string_view kScheme = "http://";
  if (url.rfind(kScheme, 0) == 0) url = url.substr(kScheme.size());
  while (!url.empty() && url.back() == '/') url.pop_back();
  const size_t colon = url.rfind(':');
  if (colon == std::string::npos || colon == 0 || url.find('/') != std::string::npos) {
    return Usage(InvalidArgument("'{}' is not a server's URL; write it as http://HOST:PORT", url));
  }
  return Address{url.substr(0, colon), url.substr(colon + 1)};
}

std::string InferRequestBytes(const std::string& model, const std::vector<NamedTensor>& inputs,
                              const LoadSequence& sequence) {
  nlohmann::json body = {{"parameters", {{"binary_data_output", true}}},
                         {"inputs", nlohmann::json::array()}};
  if (!sequence.id.empty()) {
    body["parameters"]["sequence_id"] = sequence.id;
    body["parameters"]["sequence_start"] = sequence.start;
  }
  std::string binary;
  for (const NamedTensor& input : inputs) {
    body["inputs"].push_back(
        {{"name", input.name},
         {"shape", std::vector<int64_t>(input.tensor.shape().begin(), input.tensor.shape().end())},
         {"datatype", std::string(DatatypeName(input.tensor.dtype()))},
         {"parameters", {{"binary_data_size", input.tensor.byte_size()}}}});
    binary.append(static_cast<const char*>(input.tensor.raw()), input.tensor.byte_size());
  }
  const std::string json = body.dump();
  return fmt::format(
             "POST /v2/models/{}/infer HTTP/1.1\r\nHost: chairlift\r\nContent-Length: {}\r\n"
             "Inference-Header-Content-Length: {}\r\n\r\n",
             model, json.size() + binary.size(), json.size()) +
         json + binary;
}

// The JSON answer of GET /v2/models/{model}{what}.
StatusOr<nlohmann::json> Get(HttpConnections& connections, const std::string& model,
                             const char* what) {
  CHAIRLIFT_ASSIGN_OR_RETURN(
      const std::string body,
      connections.Exchange(
          fmt::format("GET /v2/models/{}{} HTTP/1.1\r\nHost: chairlift\r\n\r\n", model, what)));
  return nlohmann::json::parse(body, nullptr, false);
}

// Requests without a sequence have its state as an input.
void AppendStates(const nlohmann::json& config, std::vector<TensorSpec>* inputs) {
  if (!config.contains("sequence_batching")) return;
  constexpr std::string_view kPrefix = "TYPE_";
  for (const auto& state : config.at("sequence_batching").at("state")) {
    TensorSpec spec;
    spec.name = state.at("input_name").get<std::string>();
    spec.dtype = DatatypeFromName(state.at("data_type").get<std::string>().substr(kPrefix.size()));
    if (config.at("max_batch_size").get<int64_t>() > 0) spec.shape.push_back(-1);
    for (const auto& dim : state.at("dims")) spec.shape.push_back(dim.get<int64_t>());
    inputs->push_back(std::move(spec));
  }
}

StatusOr<std::vector<TensorSpec>> ReadSignature(HttpConnections& connections,
                                                const std::string& model) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const nlohmann::json metadata, Get(connections, model, ""));
  CHAIRLIFT_ASSIGN_OR_RETURN(const nlohmann::json config, Get(connections, model, "/config"));
  std::vector<TensorSpec> specs;
  try {
    for (const auto& input : metadata.at("inputs")) {
      specs.push_back({input.at("name").get<std::string>(),
                       DatatypeFromName(input.at("datatype").get<std::string>()),
                       input.at("shape").get<std::vector<int64_t>>()});
    }
    AppendStates(config, &specs);
  } catch (const std::exception& wrong) {
    return Unavailable("cannot read the server's metadata of '{}': {}", model, wrong.what());
  }
  for (const TensorSpec& spec : specs) {
    if (spec.dtype != DType::kUndefined && spec.dtype != DType::kBytes) continue;
    return Unimplemented(
        "input '{}' of '{}' has a datatype without numbers, which bench cannot generate", spec.name,
        model);
  }
  return specs;
}

StatusOr<ModelStatistics> ReadStatistics(HttpConnections& connections, const std::string& model) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const nlohmann::json json, Get(connections, model, "/stats"));
  ModelStatistics statistics;
  statistics.name = model;
  try {
    for (const auto& batch : json.at("model_stats").at(0).at("batch_stats")) {
      const auto& infer = batch.at("compute_infer");
      statistics.batches[batch.at("batch_size").get<int>()] = {
          .count = infer.at("count").get<uint64_t>(), .ns = infer.at("ns").get<uint64_t>()};
    }
  } catch (const nlohmann::json::exception& wrong) {
    return Unavailable("cannot read the server's statistics of '{}': {}", model, wrong.what());
  }
  return statistics;
}

class HttpTarget final : public LoadTarget {
 public:
  HttpTarget(HttpModel found, std::string model)
      : found_(std::move(found)), model_(std::move(model)) {}

  std::string name() const override { return found_.name; }
  const std::vector<TensorSpec>& inputs() const override { return found_.inputs; }
  size_t Prepare(std::vector<NamedTensor> inputs, const LoadSequence& sequence) override {
    prepared_.push_back(InferRequestBytes(model_, inputs, sequence));
    return prepared_.size() - 1;
  }
  void Send(size_t prepared, std::function<void(Status)> done) override {
    found_.client->Send(
        prepared_[prepared],
        [done = std::move(done)](const Status& status, std::string_view) { done(status); });
  }
  StatusOr<ModelStatistics> Statistics() override {
    CHAIRLIFT_ASSIGN_OR_RETURN(const auto client,
                               HttpConnections::Create(found_.host, found_.port, 1));
    return ReadStatistics(*client, model_);
  }

 private:
  std::vector<std::string> prepared_;  // written only before the first Send; outlives the client
  HttpModel found_;
  std::string model_;
};

}  // namespace

StatusOr<HttpModel> FindHttpModel(const std::string& url, const std::string& model,
                                  int connections) {
  CHAIRLIFT_ASSIGN_OR_RETURN(Address address, ParseUrl(url));
  HttpModel found;
  CHAIRLIFT_ASSIGN_OR_RETURN(found.client,
                             HttpConnections::Create(address.host, address.port, connections));
  CHAIRLIFT_ASSIGN_OR_RETURN(found.inputs, ReadSignature(*found.client, model));
  found.name = fmt::format("{} at http://{}:{}", model, address.host, address.port);
  found.host = std::move(address.host);
  found.port = std::move(address.port);
  return found;
}

StatusOr<std::unique_ptr<LoadTarget>> MakeHttpTarget(const std::string& url,
                                                     const std::string& model, int connections) {
  CHAIRLIFT_ASSIGN_OR_RETURN(HttpModel found, FindHttpModel(url, model, connections));
  return std::make_unique<HttpTarget>(std::move(found), model);
}

}  // namespace chairlift
