#include "engine/programs/generating/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/programs/generating/row_scan.h"

namespace chairlift {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();

double Penalised(double sum, size_t length, float penalty) {
  return sum / std::pow(static_cast<double>(length), static_cast<double>(penalty));
}

}  // namespace

std::vector<Continuation> TopContinuations(std::span<const float> scores,
                                           std::span<const int64_t> ends, bool all_end,
                                           int64_t beams) {
  const auto most = static_cast<size_t>(beams);
  std::vector<Continuation> top;
  top.reserve(most + 1 + ends.size());
  VisitAbove(scores, kImpossible, [&](int64_t token, float score) {
    if (std::find(ends.begin(), ends.end(), token) == ends.end()) {
      const auto place = std::upper_bound(
          top.begin(), top.end(), score,
          [](float value, const Continuation& kept) { return value > kept.score; });
      top.insert(place, {.token = token, .score = score, .ends = all_end});
      if (top.size() > most) top.pop_back();
    }
    return top.size() < most ? kImpossible : top.back().score;
  });
  for (size_t i = 0; i < ends.size(); ++i) {
    const auto first = ends.begin() + static_cast<std::ptrdiff_t>(i);
    const float score = scores[static_cast<size_t>(ends[i])];
    if (score == kImpossible || std::find(ends.begin(), first, ends[i]) != first) continue;
    top.push_back({.token = ends[i], .score = score, .ends = true});
  }
  return top;
}

void Hypothesis::Append(const Continuation& next, int32_t row) {
  tokens.push_back(next.token);
  logprobs.push_back(next.logprob);
  rows.push_back(row);
}

std::vector<int32_t> BeamSearch::Advance(std::span<const std::vector<Continuation>> rows) {
  struct Ranked {
    double sum;
    int32_t parent;
    const Continuation* next;
  };
  std::vector<Ranked> ranked;
  for (size_t parent = 0; parent < rows.size(); ++parent) {
    for (const Continuation& next : rows[parent]) {
      ranked.push_back({live_[parent].score + static_cast<double>(next.score),
                        static_cast<int32_t>(parent), &next});
    }
  }
  std::sort(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) {
    if (a.sum != b.sum) return a.sum > b.sum;
    return a.parent != b.parent ? a.parent < b.parent : a.next->token < b.next->token;
  });
  const auto continued = [&](const Ranked& one) {
    Hypothesis hypothesis = live_[static_cast<size_t>(one.parent)];
    hypothesis.Append(*one.next, rows_ + one.parent);
    hypothesis.score = one.sum;
    return hypothesis;
  };
  std::vector<Hypothesis> live;
  std::vector<int32_t> parents;
  const auto beams = static_cast<size_t>(options_.beams);
  for (size_t rank = 0; rank < ranked.size(); ++rank) {
    const Ranked& one = ranked[rank];
    if (one.next->ends) {
      if (rank < beams) Finish(continued(one));
    } else if (live.size() < beams) {
      live.push_back(continued(one));
      parents.push_back(one.parent);
    }
  }
  rows_ += static_cast<int32_t>(rows.size());
  live_ = std::move(live);
  if (NothingToGain()) {
    live_.clear();
    parents.clear();
  }
  return parents;
}

void BeamSearch::Finish(Hypothesis hypothesis) {
  hypothesis.score = Penalised(hypothesis.score, hypothesis.tokens.size(), options_.length_penalty);
  const auto place =
      std::upper_bound(finished_.begin(), finished_.end(), hypothesis,
                       [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  finished_.insert(place, std::move(hypothesis));
  if (finished_.size() > static_cast<size_t>(options_.finished)) finished_.pop_back();
}

bool BeamSearch::NothingToGain() const {
  if (live_.empty() || finished_.size() < static_cast<size_t>(options_.finished)) return false;
  if (options_.early_stopping) return true;
  const Hypothesis& best = live_.front();
  return Penalised(best.score, best.tokens.size(), options_.length_penalty) <=
         finished_.back().score;
}

}  // namespace chairlift
