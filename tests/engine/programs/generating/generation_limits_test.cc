#include "engine/programs/generating/generation_limits.h"

#include <gmock/gmock.h>

namespace chairlift {
namespace generation_limits_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Tokens = std::vector<int64_t>;

TEST(GenerationLimitsTest, StopSequencesEndAnAnswerThatIsTheirBeginning) {
  const GenerationLimits limits = {.end_tokens = {9}, .stop_sequences = {{4}, {1, 2}, {1, 2, 3}}};
  EXPECT_THAT(EndTokens(limits, Tokens{}), ElementsAre(9, 4));
  EXPECT_THAT(EndTokens(limits, Tokens{1}), ElementsAre(9, 4, 2));
  EXPECT_THAT(EndTokens(limits, Tokens{5, 1, 2}), ElementsAre(9, 4, 3));
  EXPECT_THAT(EndTokens(limits, Tokens{2, 1, 1}), ElementsAre(9, 4, 2));
  EXPECT_THAT(EndTokens(limits, Tokens{2}), ElementsAre(9, 4));
}

TEST(GenerationLimitsTest, BeforeMinTokensEndTokensAreSuppressedAndStopSequencesDoNotCount) {
  const GenerationLimits limits = {.min_tokens = 2, .end_tokens = {9}, .stop_sequences = {{1, 2}}};
  EXPECT_THAT(EndTokens(limits, Tokens{1}), ElementsAre(9));
  EXPECT_THAT(SuppressedTokens(limits, Tokens{0}, Tokens{1}), ElementsAre(9));
  EXPECT_THAT(EndTokens(limits, Tokens{1, 1}), ElementsAre(9, 2));
  EXPECT_THAT(SuppressedTokens(limits, Tokens{0}, Tokens{1, 1}), IsEmpty());
}

TEST(GenerationLimitsTest, BadWordsMayBeginInThePrompt) {
  const GenerationLimits limits = {.suppressed = {7}, .bad_words = {{1, 2, 3}, {5, 6}}};
  EXPECT_THAT(SuppressedTokens(limits, Tokens{0, 1}, Tokens{2}), ElementsAre(7, 3));
  EXPECT_THAT(SuppressedTokens(limits, Tokens{1, 2}, Tokens{}), ElementsAre(7, 3));
  EXPECT_THAT(SuppressedTokens(limits, Tokens{2}, Tokens{}), ElementsAre(7));
  EXPECT_THAT(SuppressedTokens(limits, Tokens{1, 2}, Tokens{5}), ElementsAre(7, 6));
  EXPECT_THAT(SuppressedTokens(limits, Tokens{0}, Tokens{1, 2}), ElementsAre(7, 3));
}

TEST(GenerationLimitsTest, TheFirstTokenIsForcedBehindAStartTokenOnly) {
  const GenerationLimits limits = {
      .max_tokens = 4, .first_token = 5, .last_token = 6, .first_suppressed = {8}};
  EXPECT_EQ(ForcedToken(limits, 1, 0), 5);
  EXPECT_EQ(ForcedToken(limits, 1, 1), -1);
  EXPECT_EQ(ForcedToken(limits, 2, 0), -1);
  EXPECT_EQ(ForcedToken(limits, 1, 3), 6);
  EXPECT_THAT(SuppressedTokens(limits, Tokens{0}, Tokens{5}), ElementsAre(8));
  EXPECT_THAT(SuppressedTokens(limits, Tokens{0, 1}, Tokens{}), ElementsAre(8));
  EXPECT_THAT(SuppressedTokens(limits, Tokens{0}, Tokens{}), IsEmpty());
}

}  // namespace generation_limits_test
}  // namespace chairlift
