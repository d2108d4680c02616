// Beam search: selects the continuations of a request's hypotheses that stay live and those that
// finish, and decides when to stop. It does not run the model.
//
// Same algorithm as transformers' generate() (5.x, _beam_search). All continuations of all live
// hypotheses are ordered by the sum of their tokens' log-probabilities. Those among the first
// `beams` that end are finished, and the best `beams` that do not end stay live. A finished one's
// score is its sum divided by its length to the power of `length_penalty`. Ties: the lower
// hypothesis, then the lower token, comes first, and the older one is kept.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_BEAM_SEARCH_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_BEAM_SEARCH_H_

#include <cstdint>
#include <span>
#include <vector>

namespace chairlift {

// The largest length penalty; its negative is the smallest.
inline constexpr float kMostLengthPenalty = 10.0f;

struct BeamOptions {
  int64_t beams = 1;  // 1: no search
  float length_penalty = 1.0f;
  // Stop as soon as `finished` hypotheses are finished. Otherwise continue until the best live
  // one's sum, divided by its length so far to the power, is no better than the worst of those.
  bool early_stopping = false;
  // How many of the best are kept: `beams`, or `beams` times patience with early_stopping (Kasai et
  // al., "A call for clarity in beam search: how it works and when it stops", 2022).
  int64_t finished = 1;
};

struct Continuation {
  int64_t token = 0;
  float score = 0;    // its log-probability after the request's rules
  float logprob = 0;  // as returned by the model; if the request needs it
  bool ends = false;
};

// From `scores`, by token, those that Advance() may need: all in `ends` (tokens that end), and the
// best `beams` of the others. `all_end`: the others end the answer, too. Omits −∞. No score may be
// NaN.
std::vector<Continuation> TopContinuations(std::span<const float> scores,
                                           std::span<const int64_t> ends, bool all_end,
                                           int64_t beams);

struct Hypothesis {
  std::vector<int64_t> tokens;
  // By token: Continuation::logprob, and the number of the row it was selected from, counted over
  // all calls of Advance().
  std::vector<float> logprobs;
  std::vector<int32_t> rows;
  // For a live one the sum; for a finished one with its length penalty.
  double score = 0;

  void Append(const Continuation& next, int32_t row);
};

class BeamSearch {
 public:
  explicit BeamSearch(const BeamOptions& options) : options_(options), live_(1) {}

  // Initially one without tokens.
  const std::vector<Hypothesis>& live() const { return live_; }
  // `rows`: the TopContinuations() of each live hypothesis. Returns, for each new live one, the
  // index of the previous one that it continues.
  std::vector<int32_t> Advance(std::span<const std::vector<Continuation>> rows);
  // No hypothesis is live then.
  bool done() const { return live_.empty(); }
  // Best first.
  const std::vector<Hypothesis>& finished() const { return finished_; }

 private:
  void Finish(Hypothesis hypothesis);
  bool NothingToGain() const;

  const BeamOptions options_;
  std::vector<Hypothesis> live_, finished_;
  int32_t rows_ = 0;  // number so far
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_BEAM_SEARCH_H_
