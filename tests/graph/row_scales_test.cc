// Which dynamic scales become one for each row of a batch.
#include "graph/row_scales.h"

#include <gtest/gtest.h>

#include "graph/batch_axis.h"
#include "graph/graph_builder.h"
#include "graph/infer.h"

namespace chairlift {
namespace {

using testing::GraphBuilder;

// x [batch, 3, 4], quantised and multiplied.
class QuantizedModel : public GraphBuilder {
 public:
  QuantizedModel() {
    x = Input("x", DType::kFloat, SymbolicShape({Dim::Symbol("batch"), Dim(3), Dim(4)}));
  }
  std::vector<ValueId> Quantized(ValueId of) {
    return Call(*OperatorRegistry::Builtin().Find("", "DynamicQuantizeLinear"), {of}, 3);
  }
  ValueId Ints(const std::vector<int64_t>& values) {
    return Constant(Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())},
                                        std::span<const int64_t>(values)));
  }
  ValueId Product(ValueId of) {
    const std::vector<ValueId> quantized = Quantized(of);
    Tensor weights = Tensor::Allocate(DType::kUInt8, {4, 5});
    for (int64_t i = 0; i < weights.size(); ++i) weights.data<uint8_t>()[i] = 7 * i % 256;
    const ValueId sums =
        Op("MatMulInteger", {quantized[0], Constant(std::move(weights)), quantized[2]});
    return Op("Mul", {Op("Cast", {sums}, testing::Attrs({{"to", int64_t{1}}})), quantized[1]});
  }
  Graph Made(ValueId y) {
    Output(y);
    Graph graph = std::move(*this).Build();
    EXPECT_TRUE(InferShapes(graph).ok());
    return graph;
  }
  ValueId x;
};

TEST(WithRowScalesTest, ProductsOfABatchKeepRowsApart) {
  QuantizedModel m;
  const Graph graph = m.Made(m.Product(m.x));
  EXPECT_FALSE(AnalyseBatchAxis(graph).batches);
  const std::optional<Graph> by_row = WithRowScales(graph);
  ASSERT_TRUE(by_row);
  const BatchAxisReport report = AnalyseBatchAxis(*by_row);
  EXPECT_TRUE(report.batches) << report.why;
}

// Dimension 0 is not the batch: alone it has several entries, with one range.
TEST(WithRowScalesTest, OtherRowsKeepOneScale) {
  QuantizedModel m;
  const ValueId rows = m.Op("Reshape", {m.x, m.Ints({-1, 4})});
  EXPECT_FALSE(WithRowScales(m.Made(m.Product(rows))));
}

TEST(WithRowScalesTest, ScalesThatAreUsedOtherwiseStay) {
  QuantizedModel m;
  EXPECT_FALSE(WithRowScales(m.Made(m.Op("Mul", {m.x, m.Quantized(m.x)[1]}))));
  QuantizedModel n;
  EXPECT_FALSE(WithRowScales(n.Made(n.Quantized(n.x)[1])));
  QuantizedModel none;
  EXPECT_FALSE(WithRowScales(none.Made(none.Op("Relu", {none.x}))));
}

}  // namespace
}  // namespace chairlift
