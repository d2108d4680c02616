#include "engine/programs/generating/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/programs/generating/row_scan.h"

namespace chairlift {
namespace {

bool IsIn(std::span<const int64_t> tokens, int64_t token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

// The largest one except those in `without`; −1: there is none.
int64_t MostLikely(std::span<const float> logits, std::span<const int64_t> without) {
  int64_t best = -1;
  float largest = -std::numeric_limits<float>::infinity();
  VisitAbove(logits, largest, [&](int64_t token, float logit) {
    if (!IsIn(without, token)) {
      best = token;
      largest = logit;
    }
    return largest;
  });
  // None is above −∞.
  for (size_t i = 0; best < 0 && i < logits.size(); ++i) {
    if (!IsIn(without, static_cast<int64_t>(i))) best = static_cast<int64_t>(i);
  }
  return best;
}

// In [0, 1). (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.)
double Uniform(uint64_t seed, uint64_t place) {
  const auto mixed = [](uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  };
  const uint64_t bits = mixed(mixed(seed) + (place + 1) * 0x9e3779b97f4a7c15);
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace

Status NoTokenMayFollow() {
  return InvalidArgument(
      "no token is allowed next: all are suppressed, or are end tokens before min_tokens; suppress "
      "fewer tokens, or lower min_tokens");
}

StatusOr<int64_t> NextToken(std::span<const float> logits, std::span<const int64_t> without,
                            const SamplingOptions& options, int64_t place) {
  if (HasNan(logits)) return Internal("the model's logits have NaN for this request");
  const int64_t best = MostLikely(logits, without);
  if (best < 0) return NoTokenMayFollow();
  const float largest = logits[static_cast<size_t>(best)];
  if (options.temperature == 0 || std::isinf(largest)) return best;
  // In double: the probabilities of rare tokens are summed over all of them.
  struct Candidate {
    double weight;  // 1 for the most likely one
    int64_t token;
  };
  std::vector<Candidate> candidates;
  std::vector<int64_t> none(without.begin(), without.end());
  std::sort(none.begin(), none.end());
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto token = static_cast<int64_t>(i);
    const double weight =
        std::exp((static_cast<double>(logits[i]) - largest) / options.temperature);
    if (weight >= options.min_p && weight > 0 &&
        !std::binary_search(none.begin(), none.end(), token)) {
      candidates.push_back({weight, token});
    }
  }
  // The first of equal ones, so that the order is unique.
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
  };
  const bool cut = options.top_k > 0 && options.top_k < static_cast<int64_t>(candidates.size());
  if (cut) {
    std::nth_element(candidates.begin(), candidates.begin() + options.top_k, candidates.end(),
                     likelier);
    candidates.resize(static_cast<size_t>(options.top_k));
  }
  if (cut || options.top_p < 1) std::sort(candidates.begin(), candidates.end(), likelier);
  double sum = 0;
  for (const Candidate& candidate : candidates) sum += candidate.weight;
  if (options.top_p < 1) {
    const double enough = sum * options.top_p;
    double kept = 0;
    size_t size = 0;
    while (size == 0 || (kept < enough && size < candidates.size())) {
      kept += candidates[size++].weight;
    }
    candidates.resize(size);
    sum = kept;
  }
  double left = Uniform(options.seed, static_cast<uint64_t>(place)) * sum;
  for (const Candidate& candidate : candidates) {
    left -= candidate.weight;
    if (left < 0) return candidate.token;
  }
  return candidates.back().token;
}

}  // namespace chairlift
