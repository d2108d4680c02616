#include "server/http/text_listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "base/status.h"
#include "server/http/json_writer.h"
#include "server/http/text_codec.h"
#include "server/http/text_fields.h"
#include "server/protocol/metadata.h"

namespace chairlift::http {
namespace {

// A model in the format of OpenAI's clients.
void AppendTextModel(std::string_view name, std::string* json) {
  // Files have no creation time that is useful to all clients, so this is when the server started.
  static const int64_t kStarted = std::chrono::duration_cast<std::chrono::seconds>(
                                      std::chrono::system_clock::now().time_since_epoch())
                                      .count();
  json->append("{\"id\":");
  AppendJsonString(name, json);
  fmt::format_to(std::back_inserter(*json),
                 R"(,"object":"model","created":{},"owned_by":"chairlift","root":)", kStarted);
  AppendJsonString(name, json);
  json->append(",\"parent\":null}");
}

// The names of their tasks in text-embeddings-inference.
struct TextTask {
  std::string_view suffix, type;
};
constexpr TextTask kTextTasks[] = {{kEmbed, "embedding"},
                                   {kRerank, "reranker"},
                                   {kClassify, "classifier"},
                                   {kComplete, "generation"}};

std::vector<std::string> AllTextModels(const protocol::Service& service) {
  std::vector<std::string> names;
  for (const TextTask& task : kTextTasks) {
    for (std::string& name : TextModels(task.suffix, service)) names.push_back(std::move(name));
  }
  return names;
}

}  // namespace

std::string ListTextModels(const protocol::Service& service) {
  std::string json = R"({"object":"list","data":[)";
  const std::vector<std::string> names = AllTextModels(service);
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) json.push_back(',');
    AppendTextModel(names[i], &json);
  }
  json.append("]}");
  return json;
}

StatusOr<std::string> DescribeTextModel(const std::string& name, const protocol::Service& service) {
  const std::vector<std::string> names = AllTextModels(service);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    CHAIRLIFT_RETURN_IF_ERROR(service.Find(name, "").status());
    return NotFound("model '{}' takes no text inputs; GET /v2/models/{} describes it", name, name);
  }
  std::string json;
  AppendTextModel(name, &json);
  return json;
}

std::string DescribeTextService(const protocol::Service& service) {
  std::string models;
  int count = 0;
  for (const TextTask& task : kTextTasks) {
    for (const std::string& name : TextModels(task.suffix, service)) {
      if (count++ > 0) models.push_back(',');
      models.append("{\"model_id\":");
      AppendJsonString(name, &models);
      fmt::format_to(std::back_inserter(models), R"(,"model_type":{{"{}":{{}}}}}})", task.type);
    }
  }
  std::string json = "{";
  // Clients of a single model expect its fields here.
  if (count == 1) json.append(models, 1, models.size() - 2).push_back(',');
  fmt::format_to(std::back_inserter(json),
                 R"("max_client_batch_size":{},"auto_truncate":false,"version":)", kMostTexts);
  AppendJsonString(protocol::DescribeServer().version, &json);
  json.append(",\"models\":[").append(models).append("]}");
  return json;
}

}  // namespace chairlift::http
