// A model whose file fixes the batch to 1, for any batch: each row gets what it gets alone.
#include "graph/lift_batch.h"

#include <gmock/gmock.h>

#include <cstring>
#include <functional>
#include <random>

#include "graph/graph_builder.h"
#include "graph/infer.h"
#include "graph/passes/pass_harness.h"

namespace chairlift {
namespace {

using testing::Attrs;
using testing::GraphBuilder;
using ::testing::HasSubstr;

class OneRow : public GraphBuilder {
 public:
  explicit OneRow(const Shape& shape) : shape_(shape) {
    std::vector<Dim> dims;
    for (const int64_t dim : shape) dims.emplace_back(dim);
    x = Input("x", DType::kFloat, SymbolicShape(dims));
  }
  ValueId Ints(const std::vector<int64_t>& values) {
    return Constant(Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())},
                                        std::span<const int64_t>(values)));
  }
  ValueId Floats(const Shape& shape) { return Constant(testing::RandomFloats(random_, shape)); }
  ValueId Reshape(ValueId from, const std::vector<int64_t>& shape) {
    return Op("Reshape", {from, Ints(shape)});
  }
  ValueId Transpose(ValueId from, std::vector<int64_t> perm) {
    return Op("Transpose", {from}, Attrs({{"perm", std::move(perm)}}));
  }
  const Shape& shape() const { return shape_; }

  ValueId x;

 private:
  Shape shape_;
  std::mt19937 random_{5};
};

using Build = std::function<ValueId(OneRow&)>;

StatusOr<Graph> Lifted(const Shape& shape, const Build& build, Graph& fixed) {
  OneRow m(shape);
  m.Output(build(m));
  fixed = std::move(m).Build();
  const Status inferred = InferShapes(fixed);
  EXPECT_TRUE(inferred.ok()) << inferred;
  return LiftBatch(fixed);
}

// Rows of a batch get the numbers that the file's graph gives each.
void Lifts(const Shape& shape, const Build& build) {
  Graph fixed;
  const auto lifted = Lifted(shape, build, fixed);
  ASSERT_TRUE(lifted.ok()) << lifted.status();
  std::mt19937 random(7);
  for (const int64_t rows : {1, 2, 5}) {
    Shape all = shape;
    all[0] = rows;
    const Tensor x = testing::RandomFloats(random, all);
    const Tensor y = testing::Evaluate(*lifted, {x})[0];
    ASSERT_EQ(y.shape()[0], rows);
    for (int64_t row = 0; row < rows; ++row) {
      Tensor own = Tensor::Allocate(DType::kFloat, shape);
      std::memcpy(own.raw(), x.data<float>() + row * own.size(), own.byte_size());
      const Tensor want = testing::Evaluate(fixed, {own})[0];
      ASSERT_EQ(want.size() * rows, y.size());
      for (int64_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(y.data<float>()[row * want.size() + i], want.data<float>()[i], 1e-5)
            << "row " << row << " of " << rows;
      }
    }
  }
}

void Refuses(const std::string& what, const Shape& shape, const Build& build) {
  Graph fixed;
  const auto lifted = Lifted(shape, build, fixed);
  ASSERT_FALSE(lifted.ok()) << "should be refused for " << what;
  EXPECT_THAT(Message(lifted.status()), HasSubstr(what));
}

TEST(LiftBatchTest, ShapesThatAreWrittenIntoTheGraph) {
  Lifts({1, 6}, [](OneRow& m) { return m.Op("Relu", {m.x}); });
  Lifts({1, 4, 6}, [](OneRow& m) {  // heads
    const ValueId heads = m.Transpose(m.Reshape(m.x, {1, 4, 3, 2}), {0, 2, 1, 3});
    return m.Reshape(m.Transpose(m.Op("Softmax", {heads}), {0, 2, 1, 3}), {1, 4, 6});
  });
  Lifts({1, 4, 6}, [](OneRow& m) {  // heads joined with the batch
    const ValueId heads =
        m.Reshape(m.Transpose(m.Reshape(m.x, {1, -1, 3, 2}), {0, 2, 1, 3}), {3, 4, 2});
    const ValueId y = m.Op("MatMul", {m.Op("Softmax", {heads}), m.Floats({2, 2})});
    return m.Reshape(m.Transpose(m.Reshape(y, {1, 3, 4, 2}), {0, 2, 1, 3}), {1, 4, -1});
  });
  Lifts({1, 4, 6}, [](OneRow& m) {  // all tokens in one axis
    const ValueId y = m.Op("Gemm", {m.Reshape(m.x, {-1, 6}), m.Floats({6, 3})});
    return m.Reshape(y, {1, 4, 3});
  });
  Lifts({1, 4, 6}, [](OneRow& m) { return m.Reshape(m.x, {1, -1}); });
  Lifts({1, 4, 6}, [](OneRow& m) { return m.Reshape(m.x, {0, 24}); });
  Lifts({1, 4, 6}, [](OneRow& m) {  // the batch second
    const ValueId y = m.Reshape(m.Transpose(m.x, {1, 0, 2}), {4, 1, 3, 2});
    return m.Transpose(y, {1, 0, 2, 3});
  });
  Lifts({1, 4, 6}, [](OneRow& m) {  // the batch second, and joined with heads
    const ValueId heads = m.Transpose(m.Reshape(m.Transpose(m.x, {1, 0, 2}), {4, 3, 2}), {1, 0, 2});
    return m.Reshape(m.Op("Softmax", {heads}), {1, 3, 4, 2});
  });
  Lifts({1, 4, 6}, [](OneRow& m) {  // behind the tokens, in one axis
    const ValueId y = m.Reshape(m.Transpose(m.x, {1, 0, 2}), {4, 6});
    return m.Transpose(m.Reshape(m.Op("Gemm", {y, m.Floats({6, 3})}), {4, 1, 3}), {1, 0, 2});
  });
  Lifts({1, 2, 4, 4}, [](OneRow& m) {  // a network's head
    const ValueId y = m.Op("Conv", {m.x, m.Floats({3, 2, 3, 3})});
    return m.Op("Gemm", {m.Op("Flatten", {y}), m.Floats({12, 5})});
  });
}

TEST(LiftBatchTest, ConstantsOfOneRowAreRepeated) {
  Lifts({1, 4, 6}, [](OneRow& m) {  // a token in front, and places
    const ValueId y = m.Op("Concat", {m.Floats({1, 1, 6}), m.x}, Attrs({{"axis", int64_t{1}}}));
    return m.Op("Add", {y, m.Floats({1, 5, 6})});
  });
  for (const bool zeros : {true, false}) {
    Lifts({1, 4, 6}, [&](OneRow& m) {  // states
      Tensor none = Tensor::Allocate(DType::kFloat, {1, 1, 3});
      std::memset(none.raw(), 0, none.byte_size());
      const auto state = [&] { return zeros ? m.Constant(none) : m.Floats({1, 1, 3}); };
      const ValueId h = state(), c = state();
      const ValueId y = m.Op("LSTM",
                             {m.Transpose(m.x, {1, 0, 2}), m.Floats({1, 12, 6}),
                              m.Floats({1, 12, 3}), m.Floats({1, 24}), kNoValue, h, c},
                             Attrs({{"hidden_size", int64_t{3}}}));
      return m.Transpose(m.Op("Squeeze", {y, m.Ints({1})}), {1, 0, 2});
    });
  }
}

TEST(LiftBatchTest, PlacesAndSizesOfTheOnlyRow) {
  Lifts({1, 5}, [](OneRow& m) {  // mask[arange(1), places], as exporters fold it
    Tensor places = Tensor::Allocate(DType::kInt64, {1, 1, 1, 3, 2});
    for (int64_t i = 0; i < 6; ++i) places.data<int64_t>()[i] = i % 2 == 0 ? 0 : i - 1;
    return m.Op("GatherND", {m.x, m.Constant(places)});
  });
  Lifts({1, 4}, [](OneRow& m) {  // a table of one row
    const ValueId at =
        m.Op("Cast", {m.Op("Sign", {m.Op("Abs", {m.x})})}, Attrs({{"to", int64_t{7}}}));
    return m.Op("GatherElements", {m.Floats({1, 6}), at}, Attrs({{"axis", int64_t{1}}}));
  });
  Lifts({1, 2, 3, 3}, [](OneRow& m) {
    return m.Op("Resize", {m.x, kNoValue, kNoValue, m.Ints({1, 2, 6, 6})},
                Attrs({{"mode", std::string("nearest")}}));
  });
  Lifts({1, 4, 6}, [](OneRow& m) {  // shapes that the file computes
    const ValueId one = m.Op("Shape", {m.x}, Attrs({{"end", int64_t{1}}}));
    const ValueId shape = m.Op("Concat", {m.Op("Mul", {one, m.Ints({1})}), m.Ints({1, 6})},
                               Attrs({{"axis", int64_t{0}}}));
    const ValueId token = m.Op("Expand", {m.Floats({1, 1, 6}), shape});
    return m.Op("Concat", {token, m.x}, Attrs({{"axis", int64_t{1}}}));
  });
}

TEST(LiftBatchTest, RowsThatWouldMixAreRefused) {
  const auto axis = [](int64_t axis) { return Attrs({{"axis", axis}}); };
  Refuses("(Softmax)", {1, 6}, [&](OneRow& m) { return m.Op("Softmax", {m.x}, axis(0)); });
  Refuses("(ReduceMean)", {1, 6}, [](OneRow& m) { return m.Op("ReduceMean", {m.x, m.Ints({0})}); });
  Refuses("(CumSum)", {1, 6}, [](OneRow& m) { return m.Op("CumSum", {m.x, m.Ints({0})}); });
  Refuses("has the batch along dimension 1", {1, 6},
          [&](OneRow& m) { return m.Op("Flatten", {m.x}, axis(0)); });
  Refuses("(Squeeze)", {1, 6}, [](OneRow& m) {
    return m.Op("Unsqueeze", {m.Op("Squeeze", {m.x}), m.Ints({0})});
  });
  Refuses("(Gather)", {1, 6}, [](OneRow& m) {
    return m.Op("Gather", {m.x, m.Ints({0})}, Attrs({{"axis", int64_t{0}}}));
  });
  Refuses("(MatMul)", {1, 6}, [](OneRow& m) {  // the row with itself
    return m.Op("MatMul", {m.x, m.Transpose(m.x, {1, 0})});
  });
  Refuses("does not depend on the rows", {1, 6}, [](OneRow& m) {
    return m.Op("Identity", {m.Floats({1, 6})});
  });
  Refuses("its first dimension must be 1", {2, 6}, [](OneRow& m) { return m.Op("Relu", {m.x}); });
}

}  // namespace
}  // namespace chairlift
