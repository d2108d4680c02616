#include "engine/programs/generating/generation_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/regular_file.h"
#include "base/status.h"
#include "engine/programs/generating/beam_search.h"
#include "engine/programs/model_files.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kMaxConfigBytes = size_t{1} << 20;
constexpr size_t kMaxTokensInList = 256;
constexpr size_t kMaxTokensInWord = 64;
constexpr int64_t kMostTokens = int64_t{1} << 30;

// An empty object if there is no such file.
StatusOr<Json> ReadConfig(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(file, error)) return Json::object();
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(file, kMaxConfigBytes + 1));
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || text.size() > kMaxConfigBytes) {
    return InvalidArgument("{} is not a JSON object of at most {} bytes", file.string(),
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
                         key, kMaxTokensInList);
}

// One token, or a list.
Status ReadTokens(const Json& json, const fs::path& file, const char* key,
                  std::vector<int64_t>& tokens) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return absl::OkStatus();
  if (!found->is_array()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t token, Token(*found, file, key));
    tokens = {token};
    return absl::OkStatus();
  }
  if (found->size() > kMaxTokensInList) return Token(Json(), file, key).status();
  for (const Json& value : *found) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t token, Token(value, file, key));
    tokens.push_back(token);
  }
  return absl::OkStatus();
}

Status ReadToken(const Json& json, const fs::path& file, const char* key, int64_t& token) {
  std::vector<int64_t> tokens;
  CHAIRLIFT_RETURN_IF_ERROR(ReadTokens(json, file, key, tokens));
  if (tokens.size() == 1) token = tokens[0];
  return tokens.size() <= 1 ? absl::OkStatus() : Token(Json(), file, key).status();
}

// Whether all were read: those of one token are added to `tokens`.
bool ReadBadWords(const Json& json, std::vector<int64_t>& tokens,
                  std::vector<std::vector<int64_t>>& words) {
  const auto found = json.find("bad_words_ids");
  if (found == json.end() || found->is_null()) return true;
  if (!found->is_array() || found->size() > kMaxTokensInList) return false;
  bool all = true;
  for (const Json& word : *found) {
    const bool is_word = word.is_array() && !word.empty() && word.size() <= kMaxTokensInWord &&
                         std::all_of(word.begin(), word.end(),
                                     [](const Json& token) { return token.is_number_integer(); });
    all &= is_word;
    if (!is_word) continue;
    if (word.size() == 1) {
      tokens.push_back(word[0].get<int64_t>());
    } else {
      words.push_back(word.get<std::vector<int64_t>>());
    }
  }
  return all;
}

// Whether they can be applied, as the defaults of a request with beams.
StatusOr<bool> ReadBeams(const Json& json, const fs::path& file, GenerationConfig& config) {
  if (const auto found = json.find("length_penalty"); found != json.end() && !found->is_null()) {
    const double value = found->is_number() ? found->get<double>() : kMostLengthPenalty + 1;
    if (!(std::abs(value) <= kMostLengthPenalty)) {
      return InvalidArgument("{}: \"length_penalty\" is not a number from {} to {}", file.string(),
                             -kMostLengthPenalty, kMostLengthPenalty);
    }
    config.length_penalty = static_cast<float>(value);
  }
  const auto found = json.find("early_stopping");
  if (found == json.end() || found->is_null()) return true;
  if (found->is_boolean()) config.early_stopping = found->get<bool>();
  return found->is_boolean();
}

// [[1, token], [2, token], …], which follow the start token. True if it is something else.
bool ReadForced(const Json& json, std::vector<int64_t>& tokens) {
  const auto found = json.find("forced_decoder_ids");
  if (found == json.end() || found->is_null()) return false;
  std::vector<int64_t> read;
  for (const Json& pair : found->is_array() ? *found : Json::array({Json()})) {
    const bool fits = pair.is_array() && pair.size() == 2 && read.size() < kMaxTokensInList &&
                      pair[0] == read.size() + 1 && pair[1].is_number_integer() &&
                      pair[1].get<int64_t>() >= 0 && pair[1].get<int64_t>() < kMostTokens;
    if (!fits) return true;
    read.push_back(pair[1].get<int64_t>());
  }
  tokens = std::move(read);
  return false;
}

Status ReadLimit(const Json& json, const fs::path& file, const char* key, int64_t& limit) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return absl::OkStatus();
  limit = found->is_number_integer() ? found->get<int64_t>() : 0;
  if (limit > 0 && limit < kMostTokens) return absl::OkStatus();
  return InvalidArgument("{}: \"{}\" is {}, not a number of tokens", file.string(), key,
                         found->dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 40));
}

Status ReadLeast(const Json& json, const fs::path& file, const char* key, int64_t& least) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null() || *found == 0) return absl::OkStatus();
  return ReadLimit(json, file, key, least);
}

// The penalties that transformers has.
Status ReadPenalties(const Json& json, const fs::path& file, Penalties& penalties) {
  if (const auto found = json.find("repetition_penalty");
      found != json.end() && !found->is_null()) {
    const double value = found->is_number() ? found->get<double>() : 0;
    if (!(value > 0 && value <= kMostRepetitionPenalty)) {
      return InvalidArgument("{}: \"repetition_penalty\" is not a number above 0 and up to {}",
                             file.string(), kMostRepetitionPenalty);
    }
    penalties.repetition = static_cast<float>(value);
  }
  const auto found = json.find("no_repeat_ngram_size");
  if (found == json.end() || found->is_null()) return absl::OkStatus();
  const int64_t size = found->is_number_integer() ? found->get<int64_t>() : -1;
  if (size < 0 || size >= kMostTokens) {
    return InvalidArgument("{}: \"no_repeat_ngram_size\" is not a number of tokens", file.string());
  }
  penalties.no_repeat_ngram = size;
  return absl::OkStatus();
}

// An empty object if there is none.
Json Section(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_object() ? *found : Json::object();
}

// For genai_config.json. Its max_length is usually the model's limit, and then not a default.
Status ReadSearch(const Json& model, const Json& search, const fs::path& file,
                  GenerationConfig& config) {
  CHAIRLIFT_RETURN_IF_ERROR(ReadPenalties(search, file, config.penalties));
  const auto context = model.find("context_length"), length = search.find("max_length");
  const bool wish = context == model.end() || length == search.end() || *context != *length;
  return wish ? ReadLimit(search, file, "max_length", config.max_length) : absl::OkStatus();
}

}  // namespace

StatusOr<GenerationConfig> ReadGenerationConfig(const fs::path& folder, bool source) {
  GenerationConfig config;
  const fs::path file = FileOfModel(folder, "generation_config.json");
  CHAIRLIFT_ASSIGN_OR_RETURN(const Json json, ReadConfig(file));
  const fs::path genai = FileOfModel(folder, "genai_config.json");
  CHAIRLIFT_ASSIGN_OR_RETURN(const Json of_genai, ReadConfig(genai));
  const Json genai_model = Section(of_genai, "model"), search = Section(of_genai, "search");
  CHAIRLIFT_RETURN_IF_ERROR(ReadSearch(genai_model, search, genai, config));
  CHAIRLIFT_RETURN_IF_ERROR(ReadTokens(json, file, "eos_token_id", config.end_tokens));
  if (config.end_tokens.empty()) {
    CHAIRLIFT_RETURN_IF_ERROR(ReadTokens(genai_model, genai, "eos_token_id", config.end_tokens));
  }
  CHAIRLIFT_RETURN_IF_ERROR(ReadToken(json, file, "forced_bos_token_id", config.forced_first));
  CHAIRLIFT_RETURN_IF_ERROR(ReadToken(json, file, "forced_eos_token_id", config.forced_end));
  CHAIRLIFT_RETURN_IF_ERROR(ReadTokens(json, file, "suppress_tokens", config.suppressed));
  CHAIRLIFT_RETURN_IF_ERROR(
      ReadTokens(json, file, "begin_suppress_tokens", config.first_suppressed));
  CHAIRLIFT_RETURN_IF_ERROR(ReadPenalties(json, file, config.penalties));
  if (!ReadBadWords(json, config.suppressed, config.bad_words)) {
    config.not_applied.emplace_back("bad_words_ids");
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const bool beams, ReadBeams(json, file, config));
  if (!beams) config.not_applied.emplace_back("early_stopping");
  CHAIRLIFT_RETURN_IF_ERROR(ReadLimit(json, file, "max_new_tokens", config.max_new_tokens));
  CHAIRLIFT_RETURN_IF_ERROR(ReadLimit(json, file, "max_length", config.max_length));
  for (const auto& [from, path] : {std::pair(&search, &genai), {&json, &file}}) {
    CHAIRLIFT_RETURN_IF_ERROR(ReadLeast(*from, *path, "min_length", config.min_length));
    CHAIRLIFT_RETURN_IF_ERROR(ReadLeast(*from, *path, "min_new_tokens", config.min_new_tokens));
  }
  const fs::path model = FileOfModel(folder, "config.json");
  CHAIRLIFT_ASSIGN_OR_RETURN(const Json other, ReadConfig(model));
  if (config.end_tokens.empty()) {
    CHAIRLIFT_RETURN_IF_ERROR(ReadTokens(other, model, "eos_token_id", config.end_tokens));
  }
  if (!source) {
    CHAIRLIFT_RETURN_IF_ERROR(
        ReadLimit(other, model, "max_position_embeddings", config.trained_length));
  }
  for (const char* key : {"decoder_start_token_id", "bos_token_id"}) {
    for (const auto& [from, path] :
         {std::pair(&json, &file), {&genai_model, &genai}, {&other, &model}}) {
      if (!source || config.start_token >= 0) break;
      CHAIRLIFT_RETURN_IF_ERROR(ReadToken(*from, *path, key, config.start_token));
      config.start_token_key = key;
    }
  }
  if (!source || ReadForced(json, config.start_more)) {
    if (json.contains("forced_decoder_ids") && !json["forced_decoder_ids"].is_null()) {
      config.not_applied.emplace_back("forced_decoder_ids");
    }
  }
  // Settings that change greedy answers; those that only affect sampling depend on do_sample.
  const std::pair<const char*, Json> neutral[] = {{"do_sample", false},
                                                  {"num_beams", 1},
                                                  {"encoder_repetition_penalty", 1.0},
                                                  {"encoder_no_repeat_ngram_size", 0},
                                                  {"exponential_decay_length_penalty", nullptr},
                                                  {"stop_strings", nullptr},
                                                  {"guidance_scale", nullptr},
                                                  {"sequence_bias", nullptr}};
  for (const auto& [key, value] : neutral) {
    auto found = json.find(key);
    if (found == json.end()) {
      found = search.find(key);
      if (found == search.end()) continue;
    }
    if (!found->is_null() && *found != value) config.not_applied.emplace_back(key);
  }
  return config;
}

}  // namespace chairlift
