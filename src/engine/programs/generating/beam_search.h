// Beam search: which of the continuations of a request's hypotheses live on, which end, and when
// there is nothing left to gain. No model is here.
//
// As transformers' generate() has it (5.x, _beam_search): of all continuations of all live
// hypotheses, ordered by the sum of their tokens' log-probabilities, those among the first `beams`
// that end are finished, and the best `beams` that do not end live on. A finished one's score is
// its sum over its length to the power of `length_penalty`. Equal ones: the lower hypothesis, then
// the lower token, is first, and the older is kept.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_BEAM_SEARCH_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_BEAM_SEARCH_H_

#include <cstdint>
#include <span>
#include <vector>

namespace chairlift {

// Either way.
inline constexpr float kMostLengthPenalty = 10.0f;

struct BeamOptions {
  int64_t beams = 1;  // 1: no search
  float length_penalty = 1.0f;
  // Ends as soon as `finished` hypotheses are. Else it goes on until the best live one's sum over
  // its length so far, to the power, is no better than the worst of those.
  bool early_stopping = false;
  // The best of so many are kept. `beams`; `beams` times patience with early_stopping (Kasai et
  // al., "A call for clarity in beam search: how it works and when it stops", 2022).
  int64_t finished = 1;
};

struct Continuation {
  int64_t token = 0;
  float score = 0;    // its log-probability, as the request's rules changed it
  float logprob = 0;  // as the model has it; where the request wants it
  bool ends = false;
};

// Of `scores`, by token, what Advance() may need: all in `ends`, which end, and the best `beams` of
// the others. `all_end`: so do they. None of −∞. No score is NaN.
std::vector<Continuation> TopContinuations(std::span<const float> scores,
                                           std::span<const int64_t> ends, bool all_end,
                                           int64_t beams);

struct Hypothesis {
  std::vector<int64_t> tokens;
  // By token: Continuation::logprob, and the number of the row that it was chosen from, counted
  // over all calls of Advance().
  std::vector<float> logprobs;
  std::vector<int32_t> rows;
  // Of a live one the sum, of a finished one with its length penalty.
  double score = 0;

  void Append(const Continuation& next, int32_t row);
};

class BeamSearch {
 public:
  explicit BeamSearch(const BeamOptions& options) : options_(options), live_(1) {}

  // At first one, of no tokens.
  const std::vector<Hypothesis>& live() const { return live_; }
  // `rows`: of each live hypothesis its TopContinuations(). Returns by new live one the place of
  // that which it continues, among those before.
  std::vector<int32_t> Advance(std::span<const std::vector<Continuation>> rows);
  // None is live then.
  bool done() const { return live_.empty(); }
  // Best first.
  const std::vector<Hypothesis>& finished() const { return finished_; }

 private:
  void Finish(Hypothesis hypothesis);
  bool NothingToGain() const;

  const BeamOptions options_;
  std::vector<Hypothesis> live_, finished_;
  int32_t rows_ = 0;  // so far
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_BEAM_SEARCH_H_
