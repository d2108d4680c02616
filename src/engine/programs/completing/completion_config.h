// A model that completes texts, made of three others.
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
  // Answers continue the prompt. False: they are in response to a source (translation).
  bool continues_prompt = true;
  std::vector<int64_t> end_tokens = {};  // of the model; they have no text
  // The model's files give the answer length for requests that do not.
  bool says_how_long = false;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_COMPLETING_COMPLETION_CONFIG_H_
