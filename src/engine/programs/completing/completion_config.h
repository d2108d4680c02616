// A model that continues texts, made of three others.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_COMPLETING_COMPLETION_CONFIG_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_COMPLETING_COMPLETION_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

namespace chairlift {

struct CompletionConfig {
  std::string tokenizer;    // text → input_ids
  std::string model;        // input_ids → output_ids
  std::string detokenizer;  // ids → text
  // Answers follow the prompt, rather than a source of their own language.
  bool continues_prompt = true;
  std::vector<int64_t> end_tokens = {};  // of the model; they have no text
  // The model's files say how long answers are of requests that do not.
  bool says_how_long = false;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_COMPLETING_COMPLETION_CONFIG_H_
