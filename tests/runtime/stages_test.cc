// The stages of a model compute what the whole computes, bit by bit.
#include "graph/stages/stages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "engine/test_models.h"
#include "graph/passes/pass.h"
#include "runtime/executable.h"

namespace chairlift {
namespace stages_test {

using testing::kFloat;
using testing::ModelBuilder;

std::vector<Tensor> RandomInputs(const std::vector<SymbolicSpec>& specs, int64_t rows) {
  std::mt19937 random(static_cast<unsigned>(rows));
  std::normal_distribution<float> normal(0, 1);
  std::vector<Tensor> inputs;
  for (const SymbolicSpec& spec : specs) {
    Shape shape;
    for (const Dim& dim : spec.shape.dims()) shape.Append(dim.known() ? dim.value() : rows);
    inputs.push_back(Tensor::Allocate(DType::kFloat, shape));
    Tensor& input = inputs.back();
    for (int64_t i = 0; i < input.size(); ++i) input.data<float>()[i] = normal(random);
  }
  return inputs;
}

std::vector<Tensor> RunStages(const StagedModel& model,
                              std::span<const std::unique_ptr<Executable>> stages,
                              std::vector<Tensor> values, Team& team, Arena& arena) {
  values.resize(model.values.size());
  for (size_t s = 0; s < stages.size(); ++s) {
    std::vector<Tensor> inputs;
    for (const int value : model.stages[s].inputs) {
      inputs.push_back(values[static_cast<size_t>(value)]);
    }
    auto outputs = stages[s]->Run(inputs, team, 0, arena);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    for (size_t i = 0; i < outputs->size(); ++i) {
      EXPECT_EQ((*outputs)[i].shape()[0], inputs[0].shape()[0]);
      values[static_cast<size_t>(model.stages[s].outputs[i])] = (*outputs)[i];
    }
  }
  std::vector<Tensor> outputs;
  for (const int value : model.outputs) outputs.push_back(values[static_cast<size_t>(value)]);
  return outputs;
}

int CountReorders(const Graph& graph) {
  int count = 0;
  for (const Node& node : graph.nodes) count += node.def->name == std::string("Reorder");
  return count;
}

void Check(const ModelBuilder& builder, int stages_at_most) {
  StatusOr<ImportedModel> imported = builder.Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  const std::set<std::string> rows = NamesOfRows(imported->graph);
  auto whole = Executable::Create(imported->graph, {});
  ASSERT_TRUE(whole.ok()) << whole.status();
  const Graph& passed = (*whole)->graph();
  SoloTeam team;
  Arena arena;
  for (int count = 2; count <= stages_at_most; ++count) {
    SCOPED_TRACE(std::to_string(count) + " stages");
    const auto model =
        CutIntoStages(passed, rows, std::vector<double>(passed.nodes.size(), 1), {.stages = count});
    ASSERT_TRUE(model.ok()) << model.status();
    std::vector<std::unique_ptr<Executable>> stages;
    int reorders = 0;
    for (const ModelStage& stage : model->stages) {
      auto made = Executable::Create(stage.graph, {.passed = true});
      ASSERT_TRUE(made.ok()) << made.status();
      reorders += CountReorders((*made)->graph());
      stages.push_back(*std::move(made));
    }
    EXPECT_EQ(reorders, CountReorders(passed));
    for (const int64_t batch : {1, 2, 5}) {
      const std::vector<Tensor> inputs = RandomInputs((*whole)->inputs(), batch);
      const auto want = (*whole)->Run(inputs, team, 0, arena);
      ASSERT_TRUE(want.ok()) << want.status();
      const std::vector<Tensor> got = RunStages(*model, stages, inputs, team, arena);
      ASSERT_EQ(got.size(), want->size());
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i].shape(), (*want)[i].shape());
        EXPECT_EQ(std::memcmp(got[i].raw(), (*want)[i].raw(), got[i].byte_size()), 0)
            << "output " << i << " of " << batch << " rows";
      }
    }
  }
}

TEST(StagesRunTest, SkipsAndSeveralInputsAndOutputs) { Check(testing::SkipModel(), 8); }

TEST(StagesRunTest, DenseLayers) { Check(testing::MlpModel(), 2); }

// What crosses is channel-blocked, some of it in blocks that are filled up.
TEST(StagesRunTest, BlockedImages) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", 3, 9, 7}).Output("y", kFloat);
  const int64_t channels[] = {3, 20, 36, 8, 44, 5};
  std::string at = "x";
  for (unsigned layer = 0; layer < 5; ++layer) {
    const std::string own = std::to_string(layer), kernel = "k" + own, conv = "c" + own;
    testing::RandomWeights(m, kernel, {channels[layer + 1], channels[layer], 3, 3}, layer);
    m.Node("Conv", {at, kernel}, {conv}).Ints("pads", {1, 1, 1, 1});
    at = layer == 4 ? "y" : "r" + own;
    m.Node("Relu", {conv}, {at});
  }
  Check(m, 5);
}

}  // namespace stages_test
}  // namespace chairlift
