// What steps cost is measured once, kept, and follows what is learnt.
#include "engine/programs/generating/generation_costs.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "engine/test_models.h"
#include "graph/decoders/decoder_models.h"
#include "graph/onnx/import.h"

namespace chairlift {
namespace {

class GenerationCostsTest : public ::testing::Test {
 protected:
  GenerationCostsTest() {
    if (const char* before = std::getenv("XDG_CACHE_HOME")) before_ = before;
    ::setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
  }
  ~GenerationCostsTest() override {
    before_ ? ::setenv("XDG_CACHE_HOME", before_->c_str(), 1) : ::unsetenv("XDG_CACHE_HOME");
  }

  static std::unique_ptr<PagedStep> Step(int64_t blocks) {
    const std::string bytes = testing::Gpt2Model();
    auto imported = ImportOnnx(std::as_bytes(std::span(bytes.data(), bytes.size())), {});
    EXPECT_TRUE(imported.ok()) << imported.status();
    auto model = MakeDecoder(imported->graph);
    EXPECT_TRUE(model.ok()) << model.status();
    auto step = PagedStep::Create(*std::move(model), {.max_length = 64, .blocks = blocks}, {});
    EXPECT_TRUE(step.ok()) << step.status();
    return *std::move(step);
  }
  static Duration Of(const GenerationCosts& costs, int32_t tokens, int32_t sequences) {
    return costs.Cost(kStepCell, tokens, sequences);
  }

  const testing::TempFolder folder_;
  std::optional<std::string> before_;
};

TEST_F(GenerationCostsTest, AreMeasuredOnceAndKept) {
  const auto step = Step(200);
  EXPECT_EQ(GenerationCosts::Find(*step, 16, {.workers = 2}), nullptr);
  const auto costs = GenerationCosts::Find(*step, 16, {.workers = 2, .autotune = true});
  ASSERT_NE(costs, nullptr);
  EXPECT_EQ(step->pool().use().blocks, 0);
  for (const int32_t tokens : {1, 2, 3, 8, 16, 100}) {
    for (const int32_t sequences : {1, 4, 16, 50}) {
      EXPECT_GT(Of(*costs, tokens, sequences), Duration(0));
      EXPECT_GE(Of(*costs, tokens + 1, sequences), Of(*costs, tokens, sequences));
      EXPECT_GE(Of(*costs, tokens, sequences + 1), Of(*costs, tokens, sequences));
    }
  }
  const auto kept = GenerationCosts::Find(*step, 16, {.workers = 2});
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(Of(*kept, 5, 3), Of(*costs, 5, 3));
  EXPECT_EQ(GenerationCosts::Find(*step, 32, {.workers = 2}), nullptr);
  EXPECT_EQ(GenerationCosts::Find(*step, 16, {.workers = 1}), nullptr);
}

// As measured for GPT-2 beside other programs, when the time was over after 16 tokens of 4
// sequences.
TEST(GenerationCostsSamplesTest, WhatWasNotTimedGoesOnAsTheTokensBeforeDid) {
  const auto ms = [](int n) { return Duration(std::chrono::milliseconds(n)); };
  const CostSamples samples = {{1, 1, ms(20)}, {4, 1, ms(26)},  {16, 1, ms(32)},
                               {4, 4, ms(28)}, {16, 4, ms(40)}, {16, 16, ms(50)}};
  LengthCosts costs;
  ASSERT_TRUE(costs.AddType(WithMostTokens(samples, 256)).ok());
  EXPECT_EQ(costs.Cost(0, 16, 4), ms(40));
  EXPECT_EQ(costs.Cost(0, 256, 4), ms(280));
  EXPECT_EQ(costs.Cost(0, 56, 4), ms(80));
  EXPECT_EQ(costs.Cost(0, 256, 16), ms(50 + 240));  // of one sample: as with fewer sequences
  EXPECT_EQ(costs.Cost(0, 256, 1), ms(32 + 192));   // 0.8 a token on the whole, 0.5 at the end
  const CostSamples all = WithMostTokens(samples, 16);
  EXPECT_EQ(all.size(), samples.size()) << "nothing is missing";
}

TEST_F(GenerationCostsTest, WhatThereIsNoRoomForIsNotMeasured) {
  const auto step = Step(5);
  const auto costs = GenerationCosts::Find(*step, 16, {.workers = 1, .autotune = true});
  ASSERT_NE(costs, nullptr);
  // One sequence of 33 to 48 tokens fits, with those before it.
  EXPECT_EQ(Of(*costs, 16, 9), Of(*costs, 16, 1));
}

TEST_F(GenerationCostsTest, AreLearntFromWhatAllWorkersRan) {
  const auto step = Step(200);
  const auto costs = GenerationCosts::Find(*step, 8, {.workers = 2, .autotune = true});
  ASSERT_NE(costs, nullptr);
  const Duration before = Of(*costs, 4, 4);
  costs->Learn({4, 4}, false, 100 * before);  // one of two
  costs->Learn({}, true, 100 * before);       // it was stopped
  EXPECT_EQ(Of(*costs, 4, 4), before);
  costs->Learn({4, 4}, true, 2 * before);
  EXPECT_GT(Of(*costs, 4, 4), before);
  EXPECT_TRUE(costs->Keep().ok());
  const auto kept = GenerationCosts::Find(*step, 8, {.workers = 2});
  ASSERT_NE(kept, nullptr);
  EXPECT_GT(Of(*kept, 4, 4), before);
}

}  // namespace
}  // namespace chairlift
