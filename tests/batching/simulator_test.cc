// The simulator and its cost tables on cases that can be worked out by hand.
#include "batching/simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "batching/length_costs.h"
#include "batching/virtual_workers.h"

namespace chairlift {
namespace {

using std::chrono::microseconds;

LengthCosts UnitCosts(CellType types) {
  LengthCosts costs;
  for (CellType type = 0; type < types; ++type) {
    EXPECT_TRUE(costs.AddType({{1, 0, microseconds(1)}, {1024, 0, microseconds(1)}}).ok());
  }
  return costs;
}

// BatchMaker Fig. 5, both ways.
TEST(SimulatorTest, CellularAndGraphBatchingOnTheSameArrivals) {
  Workload workload;
  const int lengths[] = {2, 3, 3, 5, 3, 7, 4, 2};
  for (int i = 0; i < 8; ++i) {
    workload.graphs.push_back(Chain(lengths[i]));
    workload.arrivals.push_back({microseconds(i < 4 ? 0 : 1), i});
  }
  const LengthCosts costs = UnitCosts(1);
  auto merging = MakePolicy("graph_merge", {.max_batch_size = 4});
  const SimulationResult graph = Simulate(*merging, workload, costs, 1);
  EXPECT_EQ(graph.requests[0].left, microseconds(5));
  EXPECT_EQ(graph.requests[4].started, microseconds(5));
  EXPECT_EQ(graph.end, microseconds(12));
  EXPECT_EQ(graph.busy, microseconds(12));

  auto joining = MakePolicy("cellular", {.max_batch_size = 4, .max_tasks_to_submit = 1});
  const SimulationResult cells = Simulate(*joining, workload, costs, 1);
  EXPECT_EQ(cells.requests[0].left, microseconds(2));
  EXPECT_EQ(cells.requests[4].arrived, microseconds(1));
  EXPECT_EQ(cells.requests[4].started, microseconds(2));
  EXPECT_EQ(cells.requests[5].started, microseconds(3));
  EXPECT_EQ(cells.end, microseconds(10));
  EXPECT_EQ(cells.nodes, 29);
  EXPECT_EQ(cells.rows, 29);
}

// At full load with equal lengths a worker does full batches only: its throughput is the table's.
TEST(SimulatorTest, FullLoadOfOneLengthIsTheTablesThroughput) {
  LengthCosts costs;
  ASSERT_TRUE(costs.AddType({{1, 0, microseconds(185)}, {512, 0, microseconds(784)}}).ok());
  Workload workload;
  workload.graphs.push_back(Chain(24));
  for (int i = 0; i < 512 * 20; ++i) workload.arrivals.push_back({Duration(0), 0});
  for (const int workers : {1, 2}) {
    auto s = MakePolicy("cellular", {.max_batch_size = 512});
    const SimulationResult result = Simulate(*s, workload, costs, workers);
    EXPECT_EQ(result.end, microseconds(784) * 24 * 20 / workers);
    EXPECT_EQ(result.busy, result.end * workers);
    EXPECT_EQ(result.tasks, 24 * 20);
  }
}

// Two under way, one worker, one node a task: a request arrives as one leaves.
TEST(SimulatorTest, AClosedLoadKeepsItsClientsBusy) {
  Workload workload;
  for (const int length : {1, 3, 2}) workload.graphs.push_back(Chain(length));
  for (int i = 0; i < 3; ++i) workload.arrivals.push_back({Duration(0), i});
  workload.clients = 2;
  auto s = MakePolicy("cellular", {.max_batch_size = 2, .max_tasks_to_submit = 1});
  const SimulationResult result = Simulate(*s, workload, UnitCosts(1), 1);
  ASSERT_EQ(result.requests.size(), 3U);
  EXPECT_EQ(result.requests[0].left, microseconds(1));
  EXPECT_EQ(result.requests[1].left, microseconds(3));
  EXPECT_EQ(result.requests[2].arrived, microseconds(1));
  EXPECT_EQ(result.requests[2].left, microseconds(3));
  EXPECT_EQ(result.tasks, 3);
}

// Three come while the first runs: a worker that asks when it is idle takes them as one batch.
TEST(SimulatorTest, WhoTakesNoTasksAheadBatchesWhatWaits) {
  LengthCosts costs;
  ASSERT_TRUE(costs.AddType({{1, 0, microseconds(10)}, {8, 0, microseconds(10)}}).ok());
  Workload workload;
  workload.graphs.push_back(Chain(1));
  for (const int at : {0, 1, 2, 3}) workload.arrivals.push_back({microseconds(at), 0});
  for (const int ahead : {1, kTasksAhead}) {
    auto s = MakePolicy("window", {.max_batch_size = 8});
    const SimulationResult result = Simulate(*s, workload, costs, 1, ahead);
    EXPECT_EQ(result.tasks, ahead == 1 ? 2 : 4);
    EXPECT_EQ(result.end, microseconds(ahead == 1 ? 20 : 40));
  }
}

// Chains of 6 and 2: one task of both, narrowing after two steps, costs its fixed part once.
TEST(SimulatorTest, ATaskOfSeveralStepsCostsItsFixedPartOnce) {
  LengthCosts costs;
  ASSERT_TRUE(
      costs.AddType({{0, 0, microseconds(5)}, {1, 0, microseconds(15)}, {2, 0, microseconds(25)}})
          .ok());
  Workload workload;
  workload.graphs = {Chain(6), Chain(2)};
  workload.arrivals = {{Duration(0), 0}, {Duration(0), 1}};
  auto s = MakePolicy("cellular", {.max_batch_size = 2, .step_costs = &costs});
  const SimulationResult result = Simulate(*s, workload, costs, 1);
  EXPECT_EQ(result.end, microseconds(5 + 2 * 20 + 4 * 10));
  EXPECT_EQ(result.tasks, 1);
  EXPECT_EQ(result.steps, 6);
  EXPECT_EQ(result.nodes, 8);
  EXPECT_EQ(result.rows, 8);
  EXPECT_EQ(result.padding_rows, 0);
}

TEST(SimulatorTest, PaddingCostsTime) {
  LengthCosts costs;
  ASSERT_TRUE(costs.AddType({{1, 0, microseconds(1)}}).ok());  // a microsecond a row
  Workload workload;
  workload.graphs.push_back(Chain(3));
  workload.arrivals.push_back({Duration(0), 0});
  auto s = MakePolicy("bucketed", {.max_batch_size = 4, .bucket_width = 10});
  const SimulationResult result = Simulate(*s, workload, costs, 1);
  EXPECT_EQ(result.end, microseconds(10));
  EXPECT_EQ(result.padding_rows, 7);
  EXPECT_EQ(result.requests[0].left, microseconds(10));
}

struct Answer {
  int arrived_us;
  int32_t prompt, tokens;
};

Workload Generation(const std::vector<Answer>& answers, int32_t state_rows = 0) {
  Workload workload;
  for (const Answer& answer : answers) {
    CellGraph graph;
    graph.AddDivisible(0, answer.prompt);
    graph.set_state(answer.prompt + answer.tokens);
    graph.set_state_rows(state_rows);
    workload.arrivals.push_back(
        {microseconds(answer.arrived_us), static_cast<int32_t>(workload.graphs.size())});
    workload.graphs.push_back(graph);
    workload.answers.push_back(answer.tokens);
  }
  return workload;
}

TEST(SimulatorTest, RequestsThatGenerateUnderEachPolicy) {
  // Every task takes 10 µs.
  LengthCosts costs;
  ASSERT_TRUE(costs.AddType({{1, 0, microseconds(10)}, {64, 0, microseconds(10)}}).ok());
  const Workload workload = Generation({{0, 4, 3}, {0, 2, 1}, {5, 3, 2}});
  const struct {
    const char* policy;
    int first[3], left[3];
    int64_t padding;
  } all[] = {
      // The second request has its token at 10, and its answer with the batch.
      {"static", {10, 10, 40}, {30, 30, 50}, 4},
      {"leave_only", {10, 10, 40}, {30, 10, 50}, 2},
      {"whole_prompts", {10, 10, 20}, {30, 10, 30}, 0},
      {"continuous", {10, 10, 20}, {30, 10, 30}, 0},
  };
  for (const auto& expected : all) {
    const PolicyOptions options = {.max_batch_size = expected.padding > 0 ? 2 : 16,
                                   .costs = &costs};
    const SimulationResult result =
        Simulate(*MakePolicy(expected.policy, options), workload, costs, 1);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(result.requests[i].first_token, microseconds(expected.first[i]))
          << expected.policy << i;
      EXPECT_EQ(result.requests[i].left, microseconds(expected.left[i])) << expected.policy << i;
    }
    EXPECT_EQ(result.padding_rows, expected.padding) << expected.policy;
    EXPECT_EQ(result.rows, 12) << expected.policy;
    ASSERT_EQ(result.tokens.size(), 3u);
    for (const SimulatedToken& token : result.tokens) EXPECT_EQ(token.since, microseconds(10));
  }
}

TEST(SimulatorTest, EachRequestHasAllTokensOfItsAnswerUnderEachPolicy) {
  LengthCosts costs;  // by tokens and sequences
  ASSERT_TRUE(costs
                  .AddType({{1, 1, microseconds(20)},
                            {64, 1, microseconds(120)},
                            {16, 16, microseconds(60)},
                            {64, 16, microseconds(150)}})
                  .ok());
  std::mt19937 random(3);
  const auto pick = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  int64_t set_back = 0;
  for (int round = 0; round < 40; ++round) {
    std::vector<Answer> answers;
    int at = 0;
    int64_t rows = 0;
    size_t tokens = 0;
    for (int i = 0; i < 100; ++i) {
      answers.push_back({at += pick(0, 300), pick(1, 50), pick(1, 30)});
      rows += answers.back().prompt + answers.back().tokens - 1;
      tokens += static_cast<size_t>(answers.back().tokens) - 1;
    }
    const bool grow = round % 6 == 0;
    Workload workload = Generation(answers, grow ? 1 : 0);
    if (round % 2 == 1) workload.clients = pick(1, 20);
    for (const char* policy : {"static", "leave_only", "whole_prompts", "continuous"}) {
      const PolicyOptions options = {.max_batch_size = pick(1, 40),
                                     .costs = &costs,
                                     .state_capacity = round % 3 == 0 ? pick(20, 300) : 0};
      const SimulationResult result = Simulate(*MakePolicy(policy, options), workload, costs, 1);
      ASSERT_EQ(result.requests.size(), answers.size()) << policy;
      EXPECT_GE(result.rows, rows) << policy;
      EXPECT_EQ(result.rows == rows, result.set_back == 0) << policy;
      set_back += result.set_back;
      EXPECT_EQ(result.tokens.size(), tokens) << policy;
      for (const SimulatedRequest& request : result.requests) {
        ASSERT_LE(request.arrived, request.started);
        ASSERT_LT(request.started, request.first_token);
        ASSERT_LE(request.first_token, request.left);
        ASSERT_LE(request.left, result.end);
      }
      const bool batches = policy[0] == 's' || policy[0] == 'l';
      if (!batches) {
        EXPECT_EQ(result.padding_rows, 0) << policy;
      }
    }
  }
  EXPECT_GT(set_back, 100);
}

// Answers are a tenth of what they may be, as where clients do not know how long they become.
TEST(SimulatorTest, WhoMayGrowStartsWithWhatItsPromptTakes) {
  LengthCosts costs;
  ASSERT_TRUE(costs.AddType({{1, 0, microseconds(1000)}, {64, 0, microseconds(2000)}}).ok());
  std::vector<Answer> answers;
  for (int i = 0; i < 200; ++i) answers.push_back({0, 20 + i % 40, 10 + i % 50});
  Duration ends[2];
  for (const bool grow : {false, true}) {
    Workload workload = Generation(answers, grow ? 1 : 0);
    for (size_t i = 0; i < answers.size(); ++i) {
      workload.graphs[i].set_state(answers[i].prompt + 10 * answers[i].tokens);
    }
    const PolicyOptions options = {.max_batch_size = 64, .costs = &costs, .state_capacity = 1000};
    ends[grow ? 1 : 0] = Simulate(*MakePolicy("continuous", options), workload, costs, 1).end;
  }
  EXPECT_LT(2 * ends[1], ends[0]);
}

// What `continuous` is for: with pieces, no sequence's next token waits much longer while long
// prompts enter.
TEST(SimulatorTest, TokensWaitForPiecesOfPromptsAsCostsAllow) {
  LengthCosts costs;
  ASSERT_TRUE(costs
                  .AddType({{1, 1, microseconds(1000)},
                            {8, 1, microseconds(1000)},
                            {8, 8, microseconds(1000)},
                            {512, 1, microseconds(50000)},
                            {512, 8, microseconds(50000)}})
                  .ok());
  const auto longest = [&](const char* policy, int prompts, int apart_us) {
    std::vector<Answer> answers(8, Answer{0, 1, 400});
    for (int i = 1; i <= prompts; ++i) answers.push_back({i * apart_us, 512, 1});
    const Workload workload = Generation(answers);
    const PolicyOptions options = {.max_batch_size = 1024, .costs = &costs};
    const SimulationResult result = Simulate(*MakePolicy(policy, options), workload, costs, 1);
    Duration most{0};
    for (const SimulatedToken& token : result.tokens) most = std::max(most, token.since);
    return most;
  };
  EXPECT_GT(longest("whole_prompts", 9, 40000), microseconds(50000));
  EXPECT_LE(longest("continuous", 1, 40000), microseconds(1500)) << "one prompt";
  EXPECT_LE(longest("continuous", 9, 40000), microseconds(2000)) << "several at once";
}

}  // namespace
}  // namespace chairlift
