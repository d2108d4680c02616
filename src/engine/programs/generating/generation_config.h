// What the files beside a model say of its answers.
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
  int64_t start_token = -1;  // of a decoder that has an encoder; else not read
  std::string start_token_key = "decoder_start_token_id";  // what the files call it
  std::vector<int64_t> start_more;  // that stand behind it, as Whisper's language and task
  int64_t forced_first = -1;        // the first token of an answer
  int64_t forced_end = -1;          // the last of one that is as long as it may be
  std::vector<int64_t> suppressed;  // never generated
  // Of two tokens or more, that are never completed; none of them empty.
  std::vector<std::vector<int64_t>> bad_words;
  // Of requests that say nothing of them:
  Penalties penalties;
  float length_penalty = 1.0f;
  bool early_stopping = false;
  std::vector<int64_t> first_suppressed;  // not as the first token of an answer
  int64_t max_new_tokens = 0;             // 0: not set
  int64_t max_length = 0;                 // of prompt and answer; likewise
  // Tokens before which no end token is generated: of the answer, and of prompt and answer.
  int64_t min_new_tokens = 0, min_length = 0;
  int64_t trained_length = 0;  // tokens of a sequence that it was made for; likewise
  // Settings of the file that change answers and that are not applied, as people read them.
  std::vector<std::string> not_applied;
};

// Of generation_config.json in the folder or above (FileOfModel()), as transformers writes it; of
// genai_config.json, as onnxruntime-genai does, for what it does not set; and of config.json for
// end and start tokens that neither names, and for the length of sequences. Nothing is set where
// there are none. `source`: the decoder has an encoder. InvalidArgument names the field that is
// wrong.
StatusOr<GenerationConfig> ReadGenerationConfig(const std::filesystem::path& folder, bool source);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_CONFIG_H_
