#include "engine/programs/generating/generation_inputs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status.h"
#include "engine/programs/generating/generating_request.h"
#include "engine/requests/any_seed.h"

namespace chairlift {
namespace {

// Length of an answer if neither the request nor the model's files give one.
constexpr int64_t kDefaultMaxTokens = 16;
// Each is compared with every token, or with the end of every answer.
constexpr int64_t kMostListedTokens = 256;
constexpr int64_t kMostSequences = 64, kMostSequenceTokens = 64;
constexpr float kMostTemperature = 100.0f;
// For presence and frequency, as in OpenAI's API.
constexpr float kMostPenalty = 2.0f;
constexpr size_t kMostBiases = 1024;
constexpr float kMostBias = 100.0f;  // as in OpenAI's API
constexpr int64_t kMostBeams = 32;
constexpr float kMostPatience = 32.0f;
// As in OpenAI's chat completions.
constexpr int64_t kMostLogprobs = 20;
// Memory that a request's answers may take before they are sent.
constexpr int64_t kMostAnswerBytes = int64_t{64} << 20;

enum InputPlace {
  kTokens,  // the prompt; with an encoder, the source
  kMaxTokens,
  kMinTokens,
  kIgnoreEnds,
  kStopTokens,
  kStopSequences,
  kTemperature,
  kTopK,
  kTopP,
  kMinP,
  kSeed,
  kRepetition,
  kPresence,
  kFrequency,
  kNoRepeat,
  kSuppress,
  kBadWords,
  kForcedFirst,
  kBeams,
  kReturned,
  kLengthPenalty,
  kEarlyStopping,
  kPatience,
  kLogprobs,
  kForced,
  kBiasTokens,
  kBiases,
  kDecoderPrompt,  // with an encoder
};

Signature SignatureOfRequests(bool source, const std::optional<SourceFeatures>& features) {
  const auto spec = [](const char* name, DType dtype, std::vector<Dim> dims) {
    return SymbolicSpec{name, dtype, SymbolicShape(std::move(dims))};
  };
  const auto any = [](const char* name) { return Dim::Symbol(name); };
  Signature signature;
  signature.inputs = {
      spec("input_ids", DType::kInt64, {1, any("tokens")}),
      spec("max_tokens", DType::kInt32, {1}),
      spec("min_tokens", DType::kInt32, {1}),
      spec("ignore_eos", DType::kBool, {1}),
      spec("stop_token_ids", DType::kInt64, {any("stop_tokens")}),
      spec("stop_sequences", DType::kInt64, {any("stop_sequences"), any("longest_stop")}),
      spec("temperature", DType::kFloat, {1}),
      spec("top_k", DType::kInt32, {1}),
      spec("top_p", DType::kFloat, {1}),
      spec("min_p", DType::kFloat, {1}),
      spec("seed", DType::kInt64, {1}),
      spec("repetition_penalty", DType::kFloat, {1}),
      spec("presence_penalty", DType::kFloat, {1}),
      spec("frequency_penalty", DType::kFloat, {1}),
      spec("no_repeat_ngram_size", DType::kInt32, {1}),
      spec("suppress_tokens", DType::kInt64, {any("suppressed")}),
      spec("bad_words_ids", DType::kInt64, {any("bad_words"), any("longest_word")}),
      spec("forced_bos_token_id", DType::kInt64, {1}),
      spec("num_beams", DType::kInt32, {1}),
      spec("num_return_sequences", DType::kInt32, {1}),
      spec("length_penalty", DType::kFloat, {1}),
      spec("early_stopping", DType::kBool, {1}),
      spec("patience", DType::kFloat, {1}),
      spec("logprobs", DType::kInt32, {1}),
      spec("forced_tokens", DType::kInt64, {any("forced")}),
      spec("logit_bias_tokens", DType::kInt64, {any("biased")}),
      spec("logit_bias", DType::kFloat, {any("biased")})};
  if (features) {
    signature.inputs[kTokens] =
        spec("input_features", DType::kFloat, {1, Dim(features->rows), Dim(features->frames)});
  }
  if (source) {
    signature.inputs.push_back(
        spec("decoder_input_ids", DType::kInt64, {1, any("decoder_tokens")}));
  }
  // In the order of GenerationOutput.
  signature.outputs = {
      spec("output_ids", DType::kInt64, {any("sequences"), any("generated")}),
      spec("sequences_scores", DType::kFloat, {any("sequences")}),
      spec("token_logprobs", DType::kFloat, {any("sequences"), any("generated")}),
      spec("top_logprobs", DType::kFloat, {any("sequences"), any("generated"), any("likely")}),
      spec("top_token_ids", DType::kInt64, {any("sequences"), any("generated"), any("likely")})};
  return signature;
}

template <typename T>
T NumberOf(const ValidatedRequest& request, InputPlace place) {
  return request.inputs[place].data<T>()[0];
}

SamplingOptions SamplingOf(const ValidatedRequest& request) {
  SamplingOptions options;
  options.temperature = NumberOf<float>(request, kTemperature);
  // −1 means all, as in other servers.
  options.top_k = NumberOf<int32_t>(request, kTopK);
  if (options.top_k == -1) options.top_k = 0;
  options.top_p = NumberOf<float>(request, kTopP);
  options.min_p = NumberOf<float>(request, kMinP);
  options.seed = static_cast<uint64_t>(NumberOf<int64_t>(request, kSeed));
  return options;
}

Status CheckSampling(const SamplingOptions& options) {
  // Also rejects NaN.
  if (!(options.temperature >= 0 && options.temperature <= kMostTemperature)) {
    return InvalidArgument("temperature is {}; it must be from 0 to {}", options.temperature,
                           kMostTemperature);
  }
  if (options.top_k < 0) {
    return InvalidArgument("top_k is {}; it must be at least 1, or 0 or -1 for all tokens",
                           options.top_k);
  }
  if (!(options.top_p >= 0 && options.top_p <= 1)) {
    return InvalidArgument("top_p is {}; it must be from 0 to 1", options.top_p);
  }
  if (!(options.min_p >= 0 && options.min_p <= 1)) {
    return InvalidArgument("min_p is {}; it must be from 0 to 1", options.min_p);
  }
  return absl::OkStatus();
}

Penalties PenaltiesOf(const ValidatedRequest& request) {
  return {.repetition = NumberOf<float>(request, kRepetition),
          .presence = NumberOf<float>(request, kPresence),
          .frequency = NumberOf<float>(request, kFrequency),
          .no_repeat_ngram = NumberOf<int32_t>(request, kNoRepeat)};
}

Status CheckPenalties(const Penalties& penalties) {
  if (!(penalties.repetition > 0 && penalties.repetition <= kMostRepetitionPenalty)) {
    return InvalidArgument("repetition_penalty is {}; it must be above 0 and at most {}",
                           penalties.repetition, kMostRepetitionPenalty);
  }
  for (const auto& [name, value] : {std::pair("presence_penalty", penalties.presence),
                                    std::pair("frequency_penalty", penalties.frequency)}) {
    if (value >= -kMostPenalty && value <= kMostPenalty) continue;
    return InvalidArgument("{} is {}; it must be from {} to {}", name, value, -kMostPenalty,
                           kMostPenalty);
  }
  if (penalties.no_repeat_ngram >= 0) return absl::OkStatus();
  return InvalidArgument("no_repeat_ngram_size is {}; it must be 0 or more",
                         penalties.no_repeat_ngram);
}

BeamOptions BeamsOf(const ValidatedRequest& request) {
  BeamOptions options;
  options.beams = NumberOf<int32_t>(request, kBeams);
  options.length_penalty = NumberOf<float>(request, kLengthPenalty);
  options.early_stopping = NumberOf<bool>(request, kEarlyStopping);
  const double finished = static_cast<double>(options.beams) * NumberOf<float>(request, kPatience);
  options.finished = std::max<int64_t>(1, std::llround(finished));
  return options;
}

Status CheckBeams(const ValidatedRequest& request) {
  const int64_t beams = NumberOf<int32_t>(request, kBeams);
  if (beams < 1 || beams > kMostBeams) {
    return InvalidArgument("num_beams is {}; it must be from 1 to {}", beams, kMostBeams);
  }
  if (beams > 1 && NumberOf<float>(request, kTemperature) != 0) {
    return InvalidArgument(
        "num_beams is {}, and temperature {}: beams are not sampled; leave one "
        "of them out",
        beams, NumberOf<float>(request, kTemperature));
  }
  const auto penalty = NumberOf<float>(request, kLengthPenalty);
  if (!(penalty >= -kMostLengthPenalty && penalty <= kMostLengthPenalty)) {
    return InvalidArgument("length_penalty is {}; it must be from {} to {}", penalty,
                           -kMostLengthPenalty, kMostLengthPenalty);
  }
  const auto patience = NumberOf<float>(request, kPatience);
  if (!(patience > 0 && patience <= kMostPatience)) {
    return InvalidArgument("patience is {}; it must be above 0 and at most {}", patience,
                           kMostPatience);
  }
  if (patience != 1 && !NumberOf<bool>(request, kEarlyStopping)) {
    return InvalidArgument("patience is {}; without early_stopping it must be 1", patience);
  }
  const int64_t returned = NumberOf<int32_t>(request, kReturned);
  const int64_t most = std::min(beams, BeamsOf(request).finished);
  if (returned >= 1 && returned <= most) return absl::OkStatus();
  return InvalidArgument("num_return_sequences is {}; it must be from 1 to {}: num_beams{}",
                         returned, most, most < beams ? " times patience" : "");
}

// For all hypotheses, live and finished, and the tokens that each was selected from.
Status CheckAnswerBytes(const ValidatedRequest& request) {
  const BeamOptions beams = BeamsOf(request);
  const int64_t logprobs = std::max(NumberOf<int32_t>(request, kLogprobs), 0);
  const int64_t most = NumberOf<int32_t>(request, kMaxTokens);
  const int64_t hypotheses = beams.beams > 1 ? beams.beams + beams.finished : 1;
  constexpr int64_t kOfToken = sizeof(int64_t) + sizeof(float) + sizeof(int32_t);
  constexpr int64_t kOfLogprob = sizeof(int64_t) + sizeof(float);
  // The factors are at most 2^31, 1056 and 20.
  const int64_t bytes = most * (hypotheses * kOfToken + beams.beams * logprobs * kOfLogprob);
  if (bytes <= kMostAnswerBytes) return absl::OkStatus();
  return InvalidArgument(
      "answers of up to {} tokens, with num_beams {}, patience {} and logprobs {}, may need {} "
      "MiB, and the limit is {}: lower one of these",
      most, beams.beams, NumberOf<float>(request, kPatience), logprobs, (bytes >> 20) + 1,
      kMostAnswerBytes >> 20);
}

// Tokens 0 to vocabulary − 1; 0: any non-negative token.
Status CheckTokens(std::string_view input, std::span<const int64_t> tokens, int64_t vocabulary) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && (vocabulary == 0 || tokens[i] < vocabulary)) continue;
    if (vocabulary == 0) {
      return InvalidArgument("input '{}': token {} is {}; it must be 0 or more", input, i,
                             tokens[i]);
    }
    return InvalidArgument("input '{}': token {} is {}; the model has tokens 0 to {}", input, i,
                           tokens[i], vocabulary - 1);
  }
  return absl::OkStatus();
}

// "logit_bias_tokens" and "logit_bias", already checked to have equal lengths.
Status CheckBiases(const ValidatedRequest& request, int64_t vocabulary) {
  const auto tokens = request.inputs[kBiasTokens].values<int64_t>();
  const auto biases = request.inputs[kBiases].values<float>();
  if (tokens.size() > kMostBiases || tokens.size() != biases.size()) {
    return InvalidArgument(
        "logit_bias has {} numbers, but logit_bias_tokens {} tokens; both must have the same "
        "number, at most {}",
        biases.size(), tokens.size(), kMostBiases);
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckTokens("logit_bias_tokens", tokens, vocabulary));
  for (const float bias : biases) {
    if (bias >= -kMostBias && bias <= kMostBias) continue;
    return InvalidArgument("logit_bias has {}; each must be from {} to {}", bias, -kMostBias,
                           kMostBias);
  }
  return absl::OkStatus();
}

// "forced_tokens".
Status CheckForced(const ValidatedRequest& request, int64_t vocabulary) {
  const auto forced = request.inputs[kForced].values<int64_t>();
  if (forced.empty()) return absl::OkStatus();
  if (NumberOf<int32_t>(request, kBeams) > 1) {
    return InvalidArgument("forced_tokens are given, and num_beams: leave one of them out");
  }
  const int64_t most = NumberOf<int32_t>(request, kMaxTokens);
  if (static_cast<int64_t>(forced.size()) > most) {
    return InvalidArgument("forced_tokens has {} tokens; an answer may have {} (max_tokens)",
                           forced.size(), most);
  }
  return CheckTokens("forced_tokens", forced, vocabulary);
}

Status CheckSequence(std::string_view input, std::span<const int64_t> tokens, int64_t vocabulary) {
  if (tokens.empty()) {
    return InvalidArgument("input '{}' has no tokens; it must have one or more", input);
  }
  return CheckTokens(input, tokens, vocabulary);
}

// One row of tokens per sequence, possibly padded with kNoToken. Empty if there are no tokens at
// all, as in JSON's [].
std::vector<std::vector<int64_t>> SequencesIn(const Tensor& tensor) {
  std::vector<std::vector<int64_t>> sequences;
  if (tensor.size() == 0) return sequences;
  const auto all = tensor.values<int64_t>();
  const auto longest = static_cast<size_t>(tensor.shape()[1]);
  for (int64_t row = 0; row < tensor.shape()[0]; ++row) {
    const auto tokens = all.subspan(static_cast<size_t>(row) * longest, longest);
    sequences.emplace_back(tokens.begin(), std::find(tokens.begin(), tokens.end(), kNoToken));
  }
  return sequences;
}

Status CheckSequences(std::string_view input, const Tensor& tensor, int64_t vocabulary) {
  const int64_t count = tensor.shape()[0], longest = tensor.shape()[1];
  if (count > kMostSequences || longest > kMostSequenceTokens) {
    return InvalidArgument("{} has {} sequences of {} tokens; it may have {} of {}", input, count,
                           longest, kMostSequences, kMostSequenceTokens);
  }
  const auto all = tensor.values<int64_t>();
  const std::vector<std::vector<int64_t>> sequences = SequencesIn(tensor);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const auto row = all.subspan(i * static_cast<size_t>(longest), static_cast<size_t>(longest));
    const auto rest = row.subspan(sequences[i].size());
    const bool filled =
        std::all_of(rest.begin(), rest.end(), [](int64_t token) { return token == kNoToken; });
    if (sequences[i].empty() || !filled) {
      return InvalidArgument(
          "input '{}': sequence {} must be one or more tokens, followed only by {} up to the "
          "length of the longest sequence",
          input, i, kNoToken);
    }
    CHAIRLIFT_RETURN_IF_ERROR(
        Annotate(CheckTokens(input, sequences[i], vocabulary), fmt::format("sequence {}", i)));
  }
  return absl::OkStatus();
}

}  // namespace

GenerationInputs::GenerationInputs(GenerationConfig config, const GenerationRoom& room,
                                   const BlockPool& pool)
    : config_(std::move(config)),
      room_(room),
      pool_(pool),
      places_(room.features ? static_cast<size_t>(room.features->length) : 0, 0),
      signature_(SignatureOfRequests(room.source, room.features)) {}

std::span<const int64_t> GenerationInputs::Source(const ValidatedRequest& request) const {
  if (room_.features) return places_;
  return room_.source ? request.inputs[kTokens].values<int64_t>() : std::span<const int64_t>();
}

Tensor GenerationInputs::Features(const ValidatedRequest& request) const {
  return room_.features ? request.inputs[kTokens] : Tensor();
}

std::span<const int64_t> GenerationInputs::Prompt(const ValidatedRequest& request) const {
  return request.inputs[room_.source ? kDecoderPrompt : kTokens].values<int64_t>();
}

int64_t GenerationInputs::Returned(const ValidatedRequest& request) {
  return NumberOf<int32_t>(request, kReturned);
}

// The default number of tokens of an answer depends on the prompt (CheckLength).
InferRequest GenerationInputs::WithDefaults(const InferRequest& request) const {
  InferRequest full;
  full.inputs = request.inputs;
  full.outputs = request.outputs;
  const auto given = [&](InputPlace place) {
    const std::string& name = signature_.inputs[place].name;
    return std::any_of(request.inputs.begin(), request.inputs.end(),
                       [&](const NamedTensor& input) { return input.name == name; });
  };
  const auto fill = [&](InputPlace place, Tensor value) {
    if (!given(place)) full.inputs.push_back({signature_.inputs[place].name, std::move(value)});
  };
  const auto number = [&]<typename T>(InputPlace place, T value) {
    fill(place, Tensor::Of<T>({1}, {value}));
  };
  number(kMaxTokens, int32_t{1});
  number(kMinTokens, int32_t{0});
  number(kIgnoreEnds, false);
  fill(kStopTokens, Tensor::Of<int64_t>({0}, {}));
  fill(kStopSequences, Tensor::Of<int64_t>({0, 0}, {}));
  number(kTemperature, 0.0f);
  number(kTopK, int32_t{0});
  number(kTopP, 1.0f);
  number(kMinP, 0.0f);
  const bool any_seed = given(kTemperature) && !given(kSeed) && !request.seed;
  number(kSeed, any_seed ? AnySeed() : request.seed.value_or(0));
  number(kRepetition, config_.penalties.repetition);
  number(kPresence, 0.0f);
  number(kFrequency, 0.0f);
  number(kNoRepeat, static_cast<int32_t>(config_.penalties.no_repeat_ngram));
  fill(kSuppress, Tensor::Of<int64_t>({0}, {}));
  fill(kBadWords, Tensor::Of<int64_t>({0, 0}, {}));
  number(kForcedFirst, int64_t{kNoToken});
  number(kBeams, int32_t{1});
  number(kReturned, int32_t{1});
  number(kLengthPenalty, config_.length_penalty);
  number(kEarlyStopping, config_.early_stopping);
  number(kPatience, 1.0f);
  number(kLogprobs, int32_t{-1});
  fill(kForced, Tensor::Of<int64_t>({0}, {}));
  fill(kBiasTokens, Tensor::Of<int64_t>({0}, {}));
  fill(kBiases, Tensor::Of<float>({0}, {}));
  if (room_.source) {
    std::vector<int64_t> begin = {config_.start_token};
    begin.insert(begin.end(), config_.start_more.begin(), config_.start_more.end());
    fill(kDecoderPrompt, Tensor::Of<int64_t>({1, static_cast<int64_t>(begin.size())},
                                             std::span<const int64_t>(begin)));
  }
  return full;
}

StatusOr<ValidatedRequest> GenerationInputs::Validate(const InferRequest& request) const {
  const auto given = [&](std::string_view name) {
    return std::any_of(request.inputs.begin(), request.inputs.end(),
                       [&](const NamedTensor& input) { return input.name == name; });
  };
  if (room_.source && config_.start_token < 0 && !given("decoder_input_ids")) {
    return InvalidArgument(
        "input 'decoder_input_ids' is missing, and no file beside the model names a "
        "\"decoder_start_token_id\"; send decoder_input_ids");
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(ValidatedRequest validated,
                             chairlift::Validate(signature_, WithDefaults(request)));
  CHAIRLIFT_RETURN_IF_ERROR(CheckBeams(validated));
  CHAIRLIFT_RETURN_IF_ERROR(CheckLength(request, validated));
  CHAIRLIFT_RETURN_IF_ERROR(CheckSampling(SamplingOf(validated)));
  CHAIRLIFT_RETURN_IF_ERROR(CheckPenalties(PenaltiesOf(validated)));
  CHAIRLIFT_RETURN_IF_ERROR(CheckBiases(validated, room_.vocabulary));
  CHAIRLIFT_RETURN_IF_ERROR(CheckForced(validated, room_.vocabulary));
  CHAIRLIFT_RETURN_IF_ERROR(
      CheckTokenLists(validated, !room_.source || given("decoder_input_ids")));
  const int64_t logprobs = NumberOf<int32_t>(validated, kLogprobs);
  const int64_t most_logprobs = std::min(kMostLogprobs, room_.vocabulary);
  if (logprobs < -1 || logprobs > most_logprobs) {
    return InvalidArgument("logprobs is {}; it must be from 0 to {}, or -1 for none", logprobs,
                           most_logprobs);
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckAnswerBytes(validated));
  const auto missing = [&](int output) -> const char* {
    if (output == kSequencesScores) {
      return NumberOf<int32_t>(validated, kBeams) > 1 ? nullptr : "num_beams of 2 or more";
    }
    if (output == kTokenLogprobs) return logprobs >= 0 ? nullptr : "logprobs of 0 or more";
    if (output == kOutputIds) return nullptr;
    return logprobs > 0 ? nullptr : "logprobs of 1 or more";
  };
  for (const int output : validated.outputs) {
    if (request.outputs.empty() || missing(output) == nullptr) continue;
    return InvalidArgument("output '{}' goes with {}",
                           signature_.outputs[static_cast<size_t>(output)].name, missing(output));
  }
  std::erase_if(validated.outputs, [&](int output) { return missing(output) != nullptr; });
  return validated;
}

Status GenerationInputs::CheckLength(const InferRequest& request,
                                     ValidatedRequest& validated) const {
  const std::string& prompt_name = signature_.inputs[room_.source ? kDecoderPrompt : kTokens].name;
  const std::span<const int64_t> prompt = Prompt(validated), source = Source(validated);
  const auto size = static_cast<int64_t>(prompt.size());
  const auto source_size = static_cast<int64_t>(source.size());
  const int64_t room = room_.max_length - size;
  if (room < 1) {
    return InvalidArgument("input '{}' has {} tokens; prompt and answer together may have {}",
                           prompt_name, size, room_.max_length);
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckSequence(prompt_name, prompt, room_.vocabulary));
  if (room_.source && !room_.features) {
    if (source_size > room_.max_source) {
      return InvalidArgument("input 'input_ids' has {} tokens; the encoder takes {}", source_size,
                             room_.max_source);
    }
    CHAIRLIFT_RETURN_IF_ERROR(CheckSequence("input_ids", source, room_.source_vocabulary));
  }
  const auto given = [&](std::string_view name) {
    return std::any_of(request.inputs.begin(), request.inputs.end(),
                       [&](const NamedTensor& input) { return input.name == name; });
  };
  if (!given("max_tokens")) {
    const int64_t wanted = config_.max_new_tokens > 0  ? config_.max_new_tokens
                           : config_.max_length > size ? config_.max_length - size
                                                       : kDefaultMaxTokens;
    validated.inputs[kMaxTokens] =
        Tensor::Of<int32_t>({1}, {static_cast<int32_t>(std::min(wanted, room))});
  }
  const int64_t most = NumberOf<int32_t>(validated, kMaxTokens);
  if (!given("min_tokens")) {
    const int64_t wanted =
        std::max({int64_t{0}, config_.min_new_tokens, config_.min_length - size});
    validated.inputs[kMinTokens] = Tensor::Of<int32_t>(
        {1}, {static_cast<int32_t>(std::min(wanted, std::max<int64_t>(most, 0)))});
  }
  const int64_t least = NumberOf<int32_t>(validated, kMinTokens);
  if ((most < 1 || most > room) && room_.source) {
    return InvalidArgument(
        "max_tokens is {}; it must be from 1 to {} (the decoder takes {} tokens in all, and the "
        "answer begins after {})",
        most, room, room_.max_length, size);
  }
  if (most < 1 || most > room) {
    return InvalidArgument(
        "max_tokens is {}; after a prompt of {} tokens it must be from 1 to {} (prompt and answer "
        "together may have {})",
        most, size, room, room_.max_length);
  }
  if (least < 0 || least > most) {
    return InvalidArgument("min_tokens is {}; it must be from 0 to max_tokens, {}", least, most);
  }
  const int64_t beams = NumberOf<int32_t>(validated, kBeams);
  const int64_t blocks = BlocksOfRequest(pool_, source_size, size, most, beams);
  if (blocks <= pool_.blocks()) return absl::OkStatus();
  if (beams > 1) {
    return InvalidArgument(
        "keys and values of {} beams of up to {} tokens may take {} blocks of {} tokens, and "
        "kv_cache_bytes has {}; fewer num_beams or max_tokens may fit",
        beams, size + most, blocks, pool_.block_tokens(), pool_.blocks());
  }
  return InvalidArgument(
      "keys and values of {} tokens do not fit into kv_cache_bytes; {}a prompt and its max_tokens "
      "may "
      "have {} together",
      source_size + size + most, room_.source ? "a source (in blocks of its own), " : "",
      pool_.blocks() * pool_.block_tokens() + 1);
}

Status GenerationInputs::CheckTokenLists(const ValidatedRequest& validated, bool own_start) const {
  for (const InputPlace place : {kStopTokens, kSuppress}) {
    const int64_t count = validated.inputs[place].size();
    if (count <= kMostListedTokens) continue;
    return InvalidArgument("{} has {} tokens; it may have {}", signature_.inputs[place].name, count,
                           kMostListedTokens);
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckTokens(
      "suppress_tokens", validated.inputs[kSuppress].values<int64_t>(), room_.vocabulary));
  for (const InputPlace place : {kStopSequences, kBadWords}) {
    CHAIRLIFT_RETURN_IF_ERROR(
        CheckSequences(signature_.inputs[place].name, validated.inputs[place], room_.vocabulary));
  }
  const int64_t first = NumberOf<int64_t>(validated, kForcedFirst);
  if (first == kNoToken) return absl::OkStatus();
  CHAIRLIFT_RETURN_IF_ERROR(CheckTokens("forced_bos_token_id", {&first, 1}, room_.vocabulary));
  const size_t prompt = Prompt(validated).size();
  if (prompt == 1) return absl::OkStatus();
  if (!own_start) {
    return InvalidArgument(
        "forced_bos_token_id is given, but generation_config.json has \"forced_decoder_ids\", "
        "which replace it: leave it out, or give the tokens that the answer continues as "
        "decoder_input_ids");
  }
  return InvalidArgument(
      "forced_bos_token_id is the second token of a sequence, but here {} tokens come before it; "
      "leave it out",
      prompt);
}

std::vector<int64_t> GenerationInputs::Known(std::span<const int64_t> tokens) const {
  std::vector<int64_t> known;
  for (const int64_t token : tokens) {
    if (token >= 0 && token < room_.vocabulary) known.push_back(token);
  }
  return known;
}

GenerationLimits GenerationInputs::LimitsOf(const ValidatedRequest& request) const {
  GenerationLimits limits;
  limits.max_tokens = NumberOf<int32_t>(request, kMaxTokens);
  limits.min_tokens = NumberOf<int32_t>(request, kMinTokens);
  const auto add = [&](std::span<const int64_t> tokens, std::vector<int64_t>& to) {
    const std::vector<int64_t> known = Known(tokens);
    to.insert(to.end(), known.begin(), known.end());
  };
  if (!NumberOf<bool>(request, kIgnoreEnds)) {
    add(config_.end_tokens, limits.end_tokens);
    limits.last_token = config_.forced_end;
  }
  add(request.inputs[kStopTokens].values<int64_t>(), limits.end_tokens);
  limits.stop_sequences = SequencesIn(request.inputs[kStopSequences]);
  const int64_t first = NumberOf<int64_t>(request, kForcedFirst);
  limits.first_token = first != kNoToken ? first : config_.forced_first;
  add(config_.suppressed, limits.suppressed);
  add(request.inputs[kSuppress].values<int64_t>(), limits.suppressed);
  add(config_.first_suppressed, limits.first_suppressed);
  limits.bad_words = SequencesIn(request.inputs[kBadWords]);
  for (const std::vector<int64_t>& word : config_.bad_words) {
    if (Known(word).size() == word.size()) limits.bad_words.push_back(word);
  }
  const auto forced = request.inputs[kForced].values<int64_t>();
  limits.forced.assign(forced.begin(), forced.end());
  const auto biased = request.inputs[kBiasTokens].values<int64_t>();
  for (size_t i = 0; i < biased.size(); ++i) {
    limits.biases.push_back({biased[i], request.inputs[kBiases].values<float>()[i]});
  }
  limits.sampling = SamplingOf(request);
  limits.penalties = PenaltiesOf(request);
  limits.beams = BeamsOf(request);
  limits.logprobs = NumberOf<int32_t>(request, kLogprobs);
  return limits;
}

}  // namespace chairlift
