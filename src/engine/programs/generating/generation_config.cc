#include "engine/programs/generating/generation_config.h"

#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/regular_file.h"
#include "base/status.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kMaxConfigBytes = size_t{1} << 20;
constexpr size_t kMaxEndTokens = 256;
constexpr int64_t kMostTokens = int64_t{1} << 30;

// An empty object where there is no such file.
StatusOr<Json> ReadConfig(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(file, error)) return Json::object();
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(file, kMaxConfigBytes + 1));
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || text.size() > kMaxConfigBytes) {
    return InvalidArgument("{} is no JSON object of at most {} bytes", file.string(),
                           kMaxConfigBytes);
  }
  return json;
}

StatusOr<int64_t> Token(const Json& value, const fs::path& file, const char* key) {
  if (value.is_number_integer()) {
    const auto token = value.get<int64_t>();
    if (token >= 0 && token < kMostTokens) return token;
  }
  return InvalidArgument("{}: \"{}\" is not a token, or a list of at most {} tokens", file.string(),
                         key, kMaxEndTokens);
}

Status ReadEnds(const Json& json, const fs::path& file, std::vector<int64_t>& ends) {
  constexpr const char* kKey = "eos_token_id";
  const auto found = json.find(kKey);
  if (found == json.end() || found->is_null()) return absl::OkStatus();
  if (!found->is_array()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t token, Token(*found, file, kKey));
    ends = {token};
    return absl::OkStatus();
  }
  if (found->size() > kMaxEndTokens) return Token(Json(), file, kKey).status();
  for (const Json& value : *found) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t token, Token(value, file, kKey));
    ends.push_back(token);
  }
  return absl::OkStatus();
}

Status ReadLimit(const Json& json, const fs::path& file, const char* key, int64_t& limit) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return absl::OkStatus();
  limit = found->is_number_integer() ? found->get<int64_t>() : 0;
  if (limit > 0 && limit < kMostTokens) return absl::OkStatus();
  return InvalidArgument("{}: \"{}\" is {}, not a number of tokens", file.string(), key,
                         found->dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 40));
}

}  // namespace

StatusOr<GenerationConfig> ReadGenerationConfig(const fs::path& folder) {
  GenerationConfig config;
  const fs::path file = folder / "generation_config.json";
  CHAIRLIFT_ASSIGN_OR_RETURN(const Json json, ReadConfig(file));
  CHAIRLIFT_RETURN_IF_ERROR(ReadEnds(json, file, config.end_tokens));
  CHAIRLIFT_RETURN_IF_ERROR(ReadLimit(json, file, "max_new_tokens", config.max_new_tokens));
  CHAIRLIFT_RETURN_IF_ERROR(ReadLimit(json, file, "max_length", config.max_length));
  if (config.end_tokens.empty()) {
    const fs::path model = folder / "config.json";
    CHAIRLIFT_ASSIGN_OR_RETURN(const Json other, ReadConfig(model));
    CHAIRLIFT_RETURN_IF_ERROR(ReadEnds(other, model, config.end_tokens));
  }
  // What changes greedy answers; what only sampling reads follows from do_sample.
  const std::pair<const char*, Json> neutral[] = {{"do_sample", false},
                                                  {"num_beams", 1},
                                                  {"repetition_penalty", 1.0},
                                                  {"no_repeat_ngram_size", 0},
                                                  {"min_length", 0},
                                                  {"min_new_tokens", nullptr},
                                                  {"bad_words_ids", nullptr},
                                                  {"suppress_tokens", nullptr},
                                                  {"begin_suppress_tokens", nullptr},
                                                  {"forced_bos_token_id", nullptr},
                                                  {"forced_eos_token_id", nullptr},
                                                  {"forced_decoder_ids", nullptr},
                                                  {"guidance_scale", nullptr},
                                                  {"sequence_bias", nullptr}};
  for (const auto& [key, value] : neutral) {
    const auto found = json.find(key);
    if (found == json.end() || found->is_null() || *found == value) continue;
    config.not_applied.emplace_back(key);
  }
  return config;
}

}  // namespace chairlift
