// What inspect says of operators' costs.
#include "cli/operators_view.h"

#include <gmock/gmock.h>

#include <span>
#include <string>
#include <vector>

#include "graph/model_builder.h"
#include "graph/onnx/import.h"

namespace chairlift {
namespace {

using std::chrono::microseconds;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kFloat;

class OperatorsViewTest : public ::testing::Test {
 protected:
  // Relu, Abs, Relu.
  OperatorsViewTest() {
    testing::ModelBuilder m(17);
    m.Input("x", kFloat, {"batch", 4}).Output("y", kFloat, {"batch", 4});
    m.Node("Relu", {"x"}, {"a"});
    m.Node("Abs", {"a"}, {"b"});
    m.Node("Relu", {"b"}, {"y"});
    const std::string bytes = m.Bytes();
    auto imported = ImportOnnx(std::as_bytes(std::span(bytes)), {});
    EXPECT_TRUE(imported.ok()) << imported.status();
    graph_ = std::move(imported->graph);
  }

  static CostByRows Proportional(int us) {
    return {{1, microseconds(us)}, {2, microseconds(2 * us)}, {8, microseconds(8 * us)}};
  }
  static CostByRows Flat(int us) {
    return {{1, microseconds(us)}, {2, microseconds(us)}, {8, microseconds(us)}};
  }

  std::vector<std::string> Lines(std::vector<Dim> dims,
                                 const std::vector<CostByRows>& costs) const {
    const SymbolicSpec input{
        .name = "x", .dtype = DType::kFloat, .shape = SymbolicShape(std::move(dims))};
    return Diversities({input}, graph_, costs);
  }

  Graph graph_;
};

TEST_F(OperatorsViewTest, TheTableHasAKindAndAStageARow) {
  const std::vector<CostByRows> costs = {Proportional(10), Flat(80), Proportional(10)};
  const std::string table =
      OperatorsTable(graph_, costs, std::vector<NodeRange>{{"stage1", 0, 1}, {"stage2", 1, 3}});
  EXPECT_THAT(table, ContainsRegex("Abs +1 +80.0% +8 +80 +40 +10"));
  EXPECT_THAT(table, ContainsRegex("Relu +2 +20.0% +1 +20 +20 +20"));
  EXPECT_THAT(table, ContainsRegex("stage1 +1 +10.0% +1 "));
  EXPECT_THAT(table, ContainsRegex("stage2 +2 +90.0% +8 \\(each 1 to 8\\) +90 +50 +20"));
}

TEST_F(OperatorsViewTest, DiversityIsOfInputsAndOfThePreferredBatchesOfMostOfTheTime) {
  EXPECT_THAT(Lines({Dim(), Dim(4)}, {Proportional(10), Flat(80), Proportional(10)}),
              ElementsAre("inputs: all rows have the same size",
                          "operators: preferred batch sizes differ, by share of the time: 20% in "
                          "batches of 1 (mostly Relu), 80% in batches of 8 (mostly Abs)"));
  // What hardly takes time does not count.
  EXPECT_THAT(Lines({Dim(), Dim()}, {Proportional(10), Flat(1), Proportional(89)}),
              ElementsAre("inputs: sizes differ: 'x' varies in dimension 1",
                          HasSubstr("operators: preferred batch sizes are similar")));
}

TEST_F(OperatorsViewTest, TheDrawingHasALineABatchAndNamesStages) {
  graph_.nodes[0].name = "a<b";
  const std::string svg =
      OperatorsSvg("m&m", graph_, std::vector<CostByRows>{Proportional(10), Flat(80), {}},
                   std::vector<NodeRange>{{"stage1", 0, 1}, {"stage2", 1, 3}});
  for (const char* text : {"m&amp;m", "a&lt;b", "batch 1<", "batch 2<", "batch 8<", "stage2"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
}

}  // namespace
}  // namespace chairlift
