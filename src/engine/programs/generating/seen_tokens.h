// How often each token occurs in a request's prompt and in one of its answers, updated as tokens
// are produced.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_SEEN_TOKENS_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_SEEN_TOKENS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace chairlift {

// Copies share the counts of the prompt.
class SeenTokens {
 public:
  struct OfAnswer {
    int64_t token = 0;
    int32_t count = 0;  // occurrences in the answer
    bool in_prompt = false;
  };

  explicit SeenTokens(std::span<const int64_t> prompt);

  // The answer's next token.
  void Add(int64_t token);

  // Without repetition, sorted.
  std::span<const int64_t> prompt() const { return *prompt_; }
  std::span<const OfAnswer> answer() const { return answer_; }

 private:
  std::shared_ptr<const std::vector<int64_t>> prompt_;
  std::vector<OfAnswer> answer_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_SEEN_TOKENS_H_
