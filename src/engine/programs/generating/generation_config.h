// Generation defaults from the files beside a model.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_CONFIG_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_CONFIG_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "chairlift/status.h"
#include "engine/programs/generating/penalties.h"

namespace chairlift {

struct GenerationConfig {
  std::vector<int64_t> end_tokens;
  // −1: not set.
  int64_t start_token = -1;  // for a decoder with an encoder; otherwise ignored
  std::string start_token_key = "decoder_start_token_id";  // its name in the files
  std::vector<int64_t> start_more;  // tokens after it, such as Whisper's language and task
  int64_t forced_first = -1;        // the first token of an answer
  int64_t forced_end = -1;          // the last token of an answer of maximum length
  std::vector<int64_t> suppressed;  // never generated
  // Sequences of two tokens or more that are never completed; none is empty.
  std::vector<std::vector<int64_t>> bad_words;
  // Defaults of requests:
  Penalties penalties;
  float length_penalty = 1.0f;
  bool early_stopping = false;
  std::vector<int64_t> first_suppressed;  // not as the first token of an answer
  int64_t max_new_tokens = 0;             // 0: not set
  int64_t max_length = 0;                 // of prompt and answer; 0: not set
  // Minimum tokens before an end token may be generated: of the answer, and of prompt and answer.
  int64_t min_new_tokens = 0, min_length = 0;
  int64_t trained_length = 0;  // the length of sequences it was trained for; 0: not set
  // Settings in the files that would change answers but are not applied, as text.
  std::vector<std::string> not_applied;
};

// From generation_config.json in the folder or above (FileOfModel()), as written by transformers.
// What it does not set comes from genai_config.json, as written by onnxruntime-genai. End and start
// tokens that neither has, and the length of sequences, come from config.json. Nothing is set if
// there are no files. `source`: the decoder has an encoder. InvalidArgument names the wrong field.
StatusOr<GenerationConfig> ReadGenerationConfig(const std::filesystem::path& folder, bool source);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_CONFIG_H_
