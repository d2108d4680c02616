// Where models are cut into stages, and what crosses.
#include "graph/stages/stages.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "engine/test_models.h"
#include "graph/passes/pass.h"

namespace chairlift {
namespace {

using ::testing::HasSubstr;
using testing::kFloat;
using testing::ModelBuilder;
using ::testing::SizeIs;

struct Passed {
  Graph graph;
  std::set<std::string> rows;
  std::set<std::string> names = {};  // before the passes

  std::vector<double> Costs() const { return std::vector<double>(graph.nodes.size(), 1); }
  StatusOr<StagedModel> Cut(const StageCuts& cuts) const {
    return CutIntoStages(graph, rows, Costs(), cuts);
  }
  std::string Refusal(StageCuts cuts) const {
    cuts.before_passes = names;
    return std::string(Cut(cuts).status().message());
  }
};

Passed Pass(const ModelBuilder& model) {
  StatusOr<ImportedModel> imported = model.Import();
  EXPECT_TRUE(imported.ok()) << imported.status();
  Passed passed{std::move(imported->graph), {}};
  passed.rows = NamesOfRows(passed.graph);
  passed.names = NamesIn(passed.graph);
  const std::vector<std::string> outputs = NamesOfOutputs(passed.graph);
  EXPECT_TRUE(RunPasses(passed.graph, {}).ok());
  RestoreNamesOfOutputs(outputs, passed.graph);
  return passed;
}

std::vector<std::string> NamesOf(const StagedModel& model, const std::vector<int>& values) {
  std::vector<std::string> names;
  for (const int value : values) names.push_back(model.values[static_cast<size_t>(value)]);
  return names;
}

TEST(StagesTest, EveryNodeIsInOneStageAndNoneIsAdded) {
  const Passed passed = Pass(testing::SkipModel());
  for (int count = 2; count <= 6; ++count) {
    const StatusOr<StagedModel> model = passed.Cut({.stages = count});
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_THAT(model->stages, SizeIs(count));
    std::vector<std::string> nodes;
    double share = 0;
    for (const ModelStage& stage : model->stages) {
      for (const Node& node : stage.graph.nodes) nodes.push_back(node.name);
      EXPECT_EQ(stage.until, stage.graph.nodes.back().name);
      share += stage.share;
    }
    std::vector<std::string> whole;
    for (const Node& node : passed.graph.nodes) whole.push_back(node.name);
    EXPECT_EQ(nodes, whole);
    EXPECT_NEAR(share, 1, 1e-9);
  }
}

TEST(StagesTest, ValuesWhoseRankIsNotKnownAreNoPlaces) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", 4}).Input("shape", testing::kInt64, {"rank"});
  m.Output("y", kFloat);
  m.Node("Relu", {"x"}, {"a"});
  m.Node("Reshape", {"a", "shape"}, {"b"});
  m.Node("Relu", {"b"}, {"c"});
  m.Node("Sigmoid", {"c"}, {"y"});
  EXPECT_TRUE(absl::IsUnimplemented(Pass(m).Cut({}).status()));
}

TEST(StagesTest, WhatIsNeededBehindACutCrossesIt) {
  const Passed passed = Pass(testing::SkipModel());
  const StatusOr<StagedModel> model = passed.Cut({.after = {"deep", "down"}});
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_THAT(model->stages, SizeIs(3));
  EXPECT_EQ(NamesOf(*model, model->stages[0].inputs), std::vector<std::string>{"image"});
  EXPECT_THAT(NamesOf(*model, model->stages[0].outputs), SizeIs(2));  // "skip" and "down"
  EXPECT_THAT(model->stages[1].inputs, SizeIs(1));
  // The skip connection passes by the second stage, and the gains the first two.
  const std::vector<int>& last = model->stages[2].inputs;
  EXPECT_EQ(std::count(last.begin(), last.end(), 1), 1);
  const std::vector<int>& first = model->stages[0].outputs;
  EXPECT_TRUE(std::any_of(first.begin(), first.end(), [&](int value) {
    return std::count(last.begin(), last.end(), value) == 1;
  }));
  EXPECT_EQ(NamesOf(*model, {0, 1}), (std::vector<std::string>{"image", "gain"}));
  EXPECT_THAT(model->outputs, SizeIs(2));
}

TEST(StagesTest, CostsDecideWhereCutsAre) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", 16}).Output("y8", kFloat);
  for (int layer = 0; layer < 9; ++layer) {
    const std::string own = std::to_string(layer), weights = "w" + own;
    testing::RandomWeights(m, weights, {16, 16}, static_cast<unsigned>(layer));
    m.Node("MatMul", {layer == 0 ? "x" : "y" + std::to_string(layer - 1), weights}, {"y" + own});
  }
  const Passed passed = Pass(m);
  ASSERT_THAT(passed.graph.nodes, SizeIs(9));
  const auto sizes = [&](const std::vector<double>& costs, int count) {
    std::vector<size_t> nodes;
    const auto model = CutIntoStages(passed.graph, passed.rows, costs, {.stages = count});
    EXPECT_TRUE(model.ok()) << model.status();
    for (const ModelStage& stage : model->stages) nodes.push_back(stage.graph.nodes.size());
    return nodes;
  };
  EXPECT_EQ(sizes(passed.Costs(), 3), (std::vector<size_t>{3, 3, 3}));
  EXPECT_EQ(sizes({8, 1, 1, 1, 1, 1, 1, 1, 1}, 2), (std::vector<size_t>{1, 8}));
  EXPECT_EQ(sizes({1, 1, 1, 1, 1, 1, 1, 1, 8}, 3), (std::vector<size_t>{4, 4, 1}));
  EXPECT_EQ(sizes({0, 0, 0, 0, 0, 0, 0, 0, 0}, 9), (std::vector<size_t>(9, 1)));
  EXPECT_EQ(passed.Cut({})->stages.size(), 4u);
}

TEST(StagesTest, LittleCrossesWhereStagesAreAsEven) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", 16}).Output("y3", kFloat);
  testing::RandomWeights(m, "w0", {16, 64}, 1);
  testing::RandomWeights(m, "w1", {64, 8}, 2);
  testing::RandomWeights(m, "w2", {8, 64}, 3);
  testing::RandomWeights(m, "w3", {64, 4}, 4);
  for (int layer = 0; layer < 4; ++layer) {
    const std::string own = std::to_string(layer);
    m.Node("MatMul", {layer == 0 ? "x" : "y" + std::to_string(layer - 1), "w" + own}, {"y" + own});
  }
  const Passed passed = Pass(m);
  const auto model =
      CutIntoStages(passed.graph, passed.rows, std::vector<double>{10, 9, 2, 19}, {.stages = 2});
  ASSERT_TRUE(model.ok()) << model.status();
  // The one of two equally good places where 8 values cross.
  EXPECT_EQ(NamesOf(*model, model->stages[0].outputs), std::vector<std::string>{"y1"});
}

TEST(StagesTest, ACutThatIsNotPossibleIsRefusedByName) {
  const Passed passed = Pass(testing::SkipModel());
  EXPECT_THAT(passed.Refusal({.after = {"dwon"}}),
              HasSubstr("there is no node or tensor 'dwon'; did you mean 'down'?"));
  EXPECT_THAT(passed.Refusal({.after = {"conv2"}}), HasSubstr("within a fused operator"));
  EXPECT_THAT(passed.Refusal({.after = {"relu_2"}}),
              HasSubstr("stages: 'relu_2' is computed within a fused operator"));
  EXPECT_THAT(passed.Refusal({.after = {"image"}}),
              HasSubstr("stages: 'image' is an input of the model"));
  EXPECT_THAT(passed.Refusal({.skips = {"dwon"}}),
              HasSubstr("exits: skip_to: there is no node or tensor 'dwon'"));
  EXPECT_THAT(passed.Refusal({.after = {"down", "down"}}), HasSubstr("name the same place"));
  EXPECT_THAT(passed.Refusal({.after = {passed.graph.nodes.back().name}}),
              HasSubstr("nothing follows it"));
  EXPECT_THAT(passed.Refusal({.stages = 60}), HasSubstr("places for"));
}

// The middle of the model has its batch along dimension 1.
TEST(StagesTest, NoCutIsMadeWhereTheBatchIsNotFirst) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", 8}).Output("y", kFloat);
  testing::RandomWeights(m, "w", {6, 8}, 1);
  m.Node("Relu", {"x"}, {"a"});
  m.Node("Transpose", {"a"}, {"turned"}).Ints("perm", {1, 0});
  m.Node("MatMul", {"w", "turned"}, {"p"});
  m.Node("Softmax", {"p"}, {"s"}).Int("axis", 0);
  m.Node("Transpose", {"s"}, {"b"}).Ints("perm", {1, 0});
  m.Node("Softmax", {"b"}, {"y"}).Int("axis", 1);
  const Passed passed = Pass(m);
  EXPECT_THAT(passed.Refusal({.after = {"p"}}),
              HasSubstr("'p' of shape [6,batch] is needed after it"));
  const auto model = passed.Cut({});
  ASSERT_TRUE(model.ok()) << model.status();
  for (const ModelStage& stage : model->stages) {
    for (const ValueId id : stage.graph.outputs) {
      EXPECT_EQ(stage.graph.values[id].shape[0].ToString(), "batch");
    }
  }
}

// The head of the model's file that comes last is computed in the first stage.
TEST(StagesTest, WhatAnExitNeedsComesFirst) {
  const Passed passed = Pass(testing::ExitModel());
  for (int count = 2; count <= 4; ++count) {
    const auto model = passed.Cut({.stages = count, .exits = {"early"}});
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_THAT(model->stages, SizeIs(count));
    ASSERT_THAT(model->exits, SizeIs(1));
    const int exit = model->exits[0];
    size_t all = 0;
    bool given = false;
    for (int s = 0; s < count; ++s) {
      const ModelStage& stage = model->stages[static_cast<size_t>(s)];
      all += stage.graph.nodes.size();
      const auto has = [&](const char* name) {
        return std::any_of(stage.graph.nodes.begin(), stage.graph.nodes.end(), [&](const Node& n) {
          return std::any_of(n.outputs.begin(), n.outputs.end(), [&](ValueId id) {
            return id != kNoValue && stage.graph.values[id].name == name;
          });
        });
      };
      given = given || has("early");
      if (s == exit) {
        EXPECT_TRUE(given);
      }
      EXPECT_FALSE(s <= exit && has("scores"));
    }
    EXPECT_EQ(all, passed.graph.nodes.size());
    const std::vector<int>& left = model->stages[static_cast<size_t>(exit)].outputs;
    EXPECT_THAT(NamesOf(*model, left), ::testing::Contains("early"));
  }
  const auto skipping = passed.Cut({.exits = {"early"}, .skips = {"b"}});
  ASSERT_TRUE(skipping.ok()) << skipping.status();
  EXPECT_LT(skipping->exits[0], skipping->skips[0]);
}

TEST(StagesTest, ExitsThatAreNotPossibleAreRefusedByName) {
  const Passed passed = Pass(testing::ExitModel());
  EXPECT_THAT(passed.Refusal({.exits = {"eraly"}}), HasSubstr("did you mean 'early'?"));
  EXPECT_THAT(passed.Refusal({.exits = {"early", "early"}}),
              HasSubstr("list the earliest exit first"));
  EXPECT_THAT(passed.Refusal({.exits = {"early", "scores"}}), HasSubstr("nothing follows it"));
  EXPECT_THAT(passed.Refusal({.stages = 2, .exits = {"early"}, .skips = {"b"}}),
              HasSubstr("its exits make 3 of the model at least"));
  EXPECT_THAT(passed.Refusal({.exits = {"early"}, .skips = {"nose"}}), HasSubstr("'nose'"));
}

// The first seven nodes take as long for each row however many there are, the last two gain from
// batching; by time alone the cut would be after the third.
TEST(StagesTest, OperatorsThatPreferOtherBatchesAreKeptApart) {
  ModelBuilder m(17);
  m.Input("y0", kFloat, {"batch", 8}).Output("y9", kFloat);
  for (int layer = 0; layer < 9; ++layer) {
    const std::string own = std::to_string(layer);
    testing::RandomWeights(m, "w" + own, {8, 8}, static_cast<unsigned>(layer));
    m.Node("MatMul", {"y" + own, "w" + own}, {"y" + std::to_string(layer + 1)});
  }
  const Passed passed = Pass(m);
  ASSERT_THAT(passed.graph.nodes, SizeIs(9));
  const std::vector<double> one = {2, 2, 2, 1, 1, 1, 1, 1, 1};
  std::vector<double> eight = one;
  eight[7] = eight[8] = 0.2;
  const auto first = [&](std::vector<std::vector<double>> row_costs) {
    const auto model = CutIntoStages(passed.graph, passed.rows, one,
                                     {.stages = 2, .row_costs = std::move(row_costs)});
    EXPECT_TRUE(model.ok()) << model.status();
    return model->stages[0].graph.nodes.size();
  };
  EXPECT_EQ(first({}), 3u);
  EXPECT_EQ(first({one, one}), 3u);
  // As if rows of the others cost more in batches.
  std::vector<double> dear = eight;
  for (size_t n = 0; n < 7; ++n) dear[n] *= 1.5;
  EXPECT_EQ(first({one, dear}), 7u);
}

TEST(StagesTest, AModelThatMixesRowsHasNoPlaceToCut) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", 8}).Output("y", kFloat);
  m.Node("Softmax", {"x"}, {"a"}).Int("axis", 0);
  m.Node("Softmax", {"a"}, {"b"}).Int("axis", 0);
  m.Node("Softmax", {"b"}, {"y"}).Int("axis", 0);
  const Passed passed = Pass(m);
  EXPECT_TRUE(passed.rows.empty());
  EXPECT_TRUE(absl::IsUnimplemented(passed.Cut({}).status())) << passed.Cut({}).status();
}

}  // namespace
}  // namespace chairlift
