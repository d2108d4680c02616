#include "engine/programs/generating/choosing.h"

#include <algorithm>
#include <limits>

#include "base/status.h"
#include "engine/programs/generating/row_scan.h"
#include "ops/normalization/rows_simd.h"

namespace chairlift {
namespace {

std::span<float> LogSoftmaxed(std::span<const float> logits, std::span<float> to) {
  static const RowFns kFns = FindRowFns();
  kFns.log_softmax(logits.data(), to.data(), 1, static_cast<int64_t>(logits.size()));
  return to.first(logits.size());
}

constexpr float kNoChance = -std::numeric_limits<float>::infinity();

// Also for NaN, which infinite logits produce.
float Carried(float logprob) { return logprob >= kLeastLogprob ? logprob : kLeastLogprob; }

// Most likely first; ties in order of token.
std::vector<std::pair<int64_t, float>> MostLikelyOf(std::span<const float> logprobs, int64_t n) {
  const auto most = static_cast<size_t>(n);
  std::vector<std::pair<int64_t, float>> top;
  if (most == 0) return top;
  VisitAbove(logprobs, kNoChance, [&](int64_t token, float logprob) {
    const auto place =
        std::upper_bound(top.begin(), top.end(), logprob,
                         [](float value, const auto& kept) { return value > kept.second; });
    top.insert(place, {token, logprob});
    if (top.size() > most) top.pop_back();
    return top.size() < most ? kNoChance : top.back().second;
  });
  for (int64_t token = 0; top.size() < most; ++token) {  // tokens of −∞
    if (!(logprobs[static_cast<size_t>(token)] > kNoChance)) top.emplace_back(token, kNoChance);
  }
  for (auto& [token, logprob] : top) logprob = Carried(logprob);
  return top;
}

bool Changed(const GenerationLimits& limits) {
  return limits.penalties.any() || !limits.biases.empty();
}

void Change(std::span<float> scores, std::span<const int64_t> prompt,
            std::span<const int64_t> answer, const SeenTokens* counts,
            const GenerationLimits& limits) {
  for (const TokenBias& own : limits.biases) scores[static_cast<size_t>(own.token)] += own.bias;
  Penalise(scores, prompt, answer, counts, limits.penalties);
}

// The rules for an answer's next token.
struct Rules {
  int64_t forced;  // −1: not forced
  std::vector<int64_t> suppressed, ends;
  bool last;  // the last token that it may have

  bool Ends(int64_t token) const {
    return last || std::find(ends.begin(), ends.end(), token) != ends.end();
  }
};

std::vector<Continuation> Continuations(const Rules& rules, int64_t beams,
                                        std::span<float> scores) {
  if (rules.forced >= 0) {
    return {{.token = rules.forced, .score = 0, .ends = rules.Ends(rules.forced)}};
  }
  for (const int64_t token : rules.suppressed) {
    scores[static_cast<size_t>(token)] = kNoChance;
  }
  return TopContinuations(scores, rules.ends, rules.last, beams);
}

}  // namespace

int64_t ScratchOf(const GenerationLimits& limits, int64_t vocabulary) {
  const bool changed = Changed(limits) || limits.beams.beams > 1;
  return vocabulary * ((changed ? 1 : 0) + (limits.logprobs >= 0 ? 1 : 0));
}

Choice Choose(const GenerationLimits& limits, std::span<const int64_t> prompt,
              std::span<const int64_t> answer, const SeenTokens* counts,
              std::span<const float> logits, std::span<float> scratch) {
  Choice choice;
  const auto place = static_cast<int64_t>(answer.size());
  const Rules rules = {ForcedToken(limits, static_cast<int64_t>(prompt.size()), place),
                       SuppressedTokens(limits, prompt, answer), EndTokens(limits, answer),
                       place + 1 >= limits.max_tokens};
  std::span<const float> logprobs;
  if (limits.logprobs >= 0) {
    logprobs = LogSoftmaxed(logits, scratch.last(logits.size()));
    choice.top = MostLikelyOf(logprobs, limits.logprobs);
  }
  const int64_t beams = limits.beams.beams;
  if (beams > 1) {
    const std::span<float> scores = LogSoftmaxed(logits, scratch.first(logits.size()));
    if (HasNan(scores)) {
      choice.status = Internal("the model's logits have NaN, or infinity, for this request");
      return choice;
    }
    Change(scores, prompt, answer, counts, limits);
    choice.next = Continuations(rules, beams, scores);
  } else {
    std::span<const float> row = logits;
    if (Changed(limits)) {
      const std::span<float> changed = scratch.first(logits.size());
      std::copy(logits.begin(), logits.end(), changed.begin());
      Change(changed, prompt, answer, counts, limits);
      row = changed;
    }
    // If one is forced, nothing is suppressed: the logits are only checked for NaN.
    const std::span<const int64_t> without =
        rules.forced >= 0 ? std::span<const int64_t>() : rules.suppressed;
    StatusOr<int64_t> token = NextToken(row, without, limits.sampling, place);
    choice.status = token.status();
    if (!token.ok()) return choice;
    if (rules.forced >= 0) token = rules.forced;
    choice.next = {{.token = *token, .ends = rules.Ends(*token)}};
  }
  if (limits.logprobs < 0) return choice;
  for (Continuation& next : choice.next) {
    next.logprob = Carried(logprobs[static_cast<size_t>(next.token)]);
  }
  return choice;
}

}  // namespace chairlift
