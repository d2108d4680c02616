#include "engine/programs/generating/penalties.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace chairlift {
namespace penalties_test {

using Tokens = std::vector<int64_t>;
constexpr float kNever = -std::numeric_limits<float>::infinity();

std::vector<float> Penalised(const Tokens& prompt, const Tokens& answer,
                             const Penalties& penalties) {
  std::vector<float> logits = {2.0f, -1.0f, 0.0f, 4.0f, 1.0f};
  SeenTokens counts(prompt);
  for (const int64_t token : answer) counts.Add(token);
  Penalise(logits, prompt, answer, &counts, penalties);
  return logits;
}

TEST(PenaltiesTest, RepetitionIsOfPromptAndAnswerAndCountsOnce) {
  EXPECT_EQ(Penalised({0, 0, 1}, {3, 3, 2}, {.repetition = 2}),
            (std::vector<float>{1, -2, 0, 2, 1}));
  EXPECT_EQ(Penalised({}, {}, {.repetition = 2}), (std::vector<float>{2, -1, 0, 4, 1}));
}

TEST(PenaltiesTest, PresenceAndFrequencyAreOfTheAnswerAlone) {
  EXPECT_EQ(Penalised({0, 4}, {3, 3, 1}, {.presence = 1, .frequency = 0.5f}),
            (std::vector<float>{2, -2.5f, 0, 2, 1}));
  EXPECT_EQ(Penalised({0, 4}, {3}, {.frequency = -1}), (std::vector<float>{2, -1, 0, 5, 1}));
}

TEST(PenaltiesTest, CountsAreThoseOfAllTokensSoFar) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    Tokens prompt(random() % 20);
    for (int64_t& token : prompt) token = static_cast<int64_t>(random() % 15);
    SeenTokens counts(prompt);
    const SeenTokens before = counts;
    std::map<int64_t, int32_t> known;
    for (int step = 0; step < 40; ++step) {
      const auto token = static_cast<int64_t>(random() % 20);
      counts.Add(token);
      ++known[token];
    }
    EXPECT_TRUE(before.answer().empty());
    const std::set<int64_t> distinct(prompt.begin(), prompt.end());
    EXPECT_TRUE(std::equal(distinct.begin(), distinct.end(), counts.prompt().begin(),
                           counts.prompt().end()));
    ASSERT_EQ(counts.answer().size(), known.size());
    for (const SeenTokens::OfAnswer& of : counts.answer()) {
      EXPECT_EQ(of.count, known.at(of.token));
      EXPECT_EQ(of.in_prompt, distinct.contains(of.token));
    }
  }
}

TEST(PenaltiesTest, NoRunOfTokensIsRepeated) {
  // 1 2 has been followed by 3 and by 4.
  EXPECT_EQ(Penalised({1, 2, 3}, {1, 2, 4, 1, 2}, {.no_repeat_ngram = 3}),
            (std::vector<float>{2, -1, 0, kNever, kNever}));
  EXPECT_EQ(Penalised({1}, {2}, {.no_repeat_ngram = 1}),
            (std::vector<float>{2, kNever, kNever, 4, 1}));
  EXPECT_EQ(Penalised({1, 2}, {}, {.no_repeat_ngram = 3}), (std::vector<float>{2, -1, 0, 4, 1}));
}

TEST(PenaltiesTest, WhatWouldRepeatARunIsFoundAsByComparingAllOfThem) {
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    Tokens prompt(random() % 12), answer(random() % 12);
    for (Tokens* tokens : {&prompt, &answer}) {
      for (int64_t& token : *tokens) token = static_cast<int64_t>(random() % (1 + round % 5));
    }
    const int64_t size = 1 + static_cast<int64_t>(random() % 6);
    Tokens all = prompt;
    all.insert(all.end(), answer.begin(), answer.end());
    std::vector<float> wanted = Penalised({}, {}, {});
    for (auto run = all.begin(); all.end() - run >= size; ++run) {
      if (std::equal(run, run + size - 1, all.end() - (size - 1))) {
        wanted[static_cast<size_t>(run[size - 1])] = kNever;
      }
    }
    ASSERT_EQ(Penalised(prompt, answer, {.no_repeat_ngram = size}), wanted) << round;
  }
}

TEST(PenaltiesTest, AnswersThatObeyHaveNoRunTwice) {
  std::mt19937 random(3);
  for (int64_t size = 1; size <= 4; ++size) {
    Tokens answer;
    for (int step = 0; step < 40; ++step) {
      std::vector<float> logits(7);
      for (float& logit : logits) logit = static_cast<float>(random() % 8);
      Penalise(logits, {}, answer, nullptr, {.no_repeat_ngram = size});
      const auto best = std::max_element(logits.begin(), logits.end());
      if (*best == kNever) break;
      answer.push_back(best - logits.begin());
    }
    const auto length = static_cast<size_t>(size);
    EXPECT_GE(answer.size(), 7u);
    for (size_t i = 0; i + length <= answer.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        EXPECT_FALSE(std::equal(answer.begin() + static_cast<int>(i),
                                answer.begin() + static_cast<int>(i + length),
                                answer.begin() + static_cast<int>(j)))
            << size;
      }
    }
  }
}

}  // namespace penalties_test
}  // namespace chairlift
