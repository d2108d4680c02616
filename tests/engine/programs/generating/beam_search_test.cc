#include "engine/programs/generating/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace chairlift {
namespace {

using TokenIds = std::vector<int64_t>;

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Log-probabilities of what follows any tokens: few values, so that sums are equal often.
class RandomModel {
 public:
  RandomModel(unsigned seed, int64_t vocabulary) : seed_(seed), vocabulary_(vocabulary) {}

  int64_t vocabulary() const { return vocabulary_; }
  std::vector<float> After(const TokenIds& tokens) {
    auto [entry, added] = rows_.try_emplace(tokens);
    if (!added) return entry->second;
    std::seed_seq seed(tokens.begin(), tokens.end());
    uint32_t mixed = 0;
    seed.generate(&mixed, &mixed + 1);
    std::mt19937 random(mixed ^ seed_);
    for (int64_t i = 0; i < vocabulary_; ++i) {
      const bool never = random() % 6 == 0;
      entry->second.push_back(never ? kNever : -0.25f * static_cast<float>(1 + random() % 12));
    }
    return entry->second;
  }

 private:
  const unsigned seed_;
  const int64_t vocabulary_;
  std::map<TokenIds, std::vector<float>> rows_;
};

struct Found {
  TokenIds tokens;
  double score;
  bool operator==(const Found&) const = default;
};

struct Case {
  BeamOptions options;
  TokenIds ends;
  int64_t max_tokens;
};

// transformers' generate(), written down plainly: all continuations of all running sequences are
// sorted at each step.
std::vector<Found> Plain(RandomModel& model, const Case& test) {
  struct Candidate {
    double sum;
    size_t parent;
    int64_t token;
  };
  const BeamOptions& options = test.options;
  std::vector<Found> running = {{{}, 0.0}}, finished;
  const auto penalised = [&](double sum, size_t length) {
    return sum / std::pow(static_cast<double>(length), static_cast<double>(options.length_penalty));
  };
  for (int64_t length = 1; length <= test.max_tokens; ++length) {
    std::vector<Candidate> all;
    for (size_t parent = 0; parent < running.size(); ++parent) {
      const std::vector<float> row = model.After(running[parent].tokens);
      for (int64_t token = 0; token < model.vocabulary(); ++token) {
        const float logprob = row[static_cast<size_t>(token)];
        if (logprob != kNever) all.push_back({running[parent].score + logprob, parent, token});
      }
    }
    // They are in the order of parents and tokens.
    std::stable_sort(all.begin(), all.end(),
                     [](const Candidate& a, const Candidate& b) { return a.sum > b.sum; });
    std::vector<Found> next;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      Found one = {running[all[rank].parent].tokens, all[rank].sum};
      one.tokens.push_back(all[rank].token);
      const bool ends = length == test.max_tokens || std::find(test.ends.begin(), test.ends.end(),
                                                               all[rank].token) != test.ends.end();
      if (!ends) {
        next.push_back(one);
      } else if (rank < static_cast<size_t>(options.beams)) {
        one.score = penalised(one.score, one.tokens.size());
        finished.push_back(one);
      }
    }
    if (next.size() > static_cast<size_t>(options.beams)) {
      next.resize(static_cast<size_t>(options.beams));
    }
    running = next;
    std::stable_sort(finished.begin(), finished.end(),
                     [](const Found& a, const Found& b) { return a.score > b.score; });
    if (finished.size() >= static_cast<size_t>(options.finished)) {
      finished.resize(static_cast<size_t>(options.finished));
      if (options.early_stopping || running.empty() ||
          penalised(running[0].score, running[0].tokens.size()) <= finished.back().score) {
        break;
      }
    }
    if (running.empty()) break;
  }
  return finished;
}

std::vector<Found> Searched(RandomModel& model, const Case& test) {
  BeamSearch search(test.options);
  int32_t rows = 0;
  std::map<int32_t, std::pair<TokenIds, std::vector<float>>> row_of;
  while (!search.done()) {
    std::vector<std::vector<Continuation>> next;
    std::vector<TokenIds> before;
    for (const Hypothesis& live : search.live()) {
      before.push_back(live.tokens);
      const std::vector<float> scores = model.After(live.tokens);
      row_of[rows++] = {live.tokens, scores};
      const bool last = static_cast<int64_t>(live.tokens.size()) + 1 == test.max_tokens;
      next.push_back(TopContinuations(scores, test.ends, last, test.options.beams));
      for (Continuation& one : next.back()) one.logprob = one.score;
    }
    const std::vector<int32_t> parents = search.Advance(next);
    EXPECT_EQ(parents.size(), search.live().size());
    EXPECT_LE(parents.size(), static_cast<size_t>(test.options.beams));
    for (size_t i = 0; i < parents.size(); ++i) {
      TokenIds tokens = search.live()[i].tokens;
      tokens.pop_back();
      EXPECT_EQ(tokens, before[static_cast<size_t>(parents[i])]);
    }
  }
  std::vector<Found> found;
  for (const Hypothesis& one : search.finished()) {
    found.push_back({one.tokens, one.score});
    EXPECT_EQ(one.rows.size(), one.tokens.size());
    EXPECT_EQ(one.logprobs.size(), one.tokens.size());
    for (size_t i = 0; i < one.tokens.size(); ++i) {
      const auto& [tokens, scores] = row_of[one.rows[i]];
      EXPECT_EQ(tokens,
                TokenIds(one.tokens.begin(), one.tokens.begin() + static_cast<std::ptrdiff_t>(i)));
      EXPECT_EQ(one.logprobs[i], scores[static_cast<size_t>(one.tokens[i])]);
    }
  }
  return found;
}

TEST(BeamSearchTest, RandomModelsGiveWhatSortingAllContinuationsGives) {
  int early = 0, at_the_end = 0, several_ends = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    RandomModel model(seed, 1 + random() % 12);
    Case test;
    test.options.beams = 2 + random() % 5;
    test.options.length_penalty = 0.5f * static_cast<float>(random() % 7) - 1.0f;
    test.options.early_stopping = random() % 2 == 0;
    test.options.finished = test.options.early_stopping ? 1 + random() % 12 : test.options.beams;
    test.max_tokens = 1 + random() % 9;
    for (unsigned i = random() % 4; i > 0; --i) {
      test.ends.push_back(random() % static_cast<unsigned>(model.vocabulary()));
    }
    const std::vector<Found> want = Plain(model, test);
    ASSERT_EQ(Searched(model, test), want) << "seed " << seed;
    for (const Found& one : want) {
      (static_cast<int64_t>(one.tokens.size()) < test.max_tokens ? early : at_the_end) += 1;
    }
    several_ends += test.ends.size() > 1 ? 1 : 0;
  }
  EXPECT_GT(early, 1000);
  EXPECT_GT(at_the_end, 1000);
  EXPECT_GT(several_ends, 1000);
}

// With enough beams that no sequence is ever dropped, and no stopping: the best of all sequences.
TEST(BeamSearchTest, WithEnoughBeamsTheBestOfAllSequencesIsFound) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    RandomModel model(seed, 3);
    const Case test = {{.beams = 81, .length_penalty = 0, .finished = 81}, {1}, 4};
    std::vector<Found> all, open = {{{}, 0.0}};
    while (!open.empty()) {
      const Found one = open.back();
      open.pop_back();
      const std::vector<float> row = model.After(one.tokens);
      for (int64_t token = 0; token < 3; ++token) {
        if (row[static_cast<size_t>(token)] == kNever) continue;
        Found next = {one.tokens, one.score + row[static_cast<size_t>(token)]};
        next.tokens.push_back(token);
        (token == 1 || next.tokens.size() == 4 ? all : open).push_back(next);
      }
    }
    const std::vector<Found> found = Searched(model, test);
    ASSERT_EQ(found.size(), all.size());
    double best = kNever;
    for (const Found& one : all) best = std::max(best, one.score);
    if (all.empty()) continue;
    EXPECT_EQ(found[0].score, best) << "seed " << seed;
  }
}

TEST(BeamSearchTest, WhereNothingMayFollowNothingIsFound) {
  BeamSearch search({.beams = 3, .finished = 3});
  const std::vector<float> none = {kNever, kNever};
  const std::vector<std::vector<Continuation>> rows = {TopContinuations(none, {{0}}, false, 3)};
  EXPECT_TRUE(rows[0].empty());
  EXPECT_TRUE(search.Advance(rows).empty());
  EXPECT_TRUE(search.done());
  EXPECT_TRUE(search.finished().empty());
}

}  // namespace
}  // namespace chairlift
