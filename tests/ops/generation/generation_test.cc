// Tensors made from shapes, scalars and attributes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/operator_harness.h"
#include "ops/random_tensor.h"

namespace chairlift {
namespace {

using testing::AsDoubles;
using testing::RandomTensor;
using testing::RunOperator;
using Doubles = std::vector<double>;

Attributes With(std::initializer_list<std::pair<const char*, AttributeValue>> values) {
  Attributes a;
  for (const auto& [name, value] : values) a.Set(name, value);
  return a;
}
Tensor Int(int64_t v) { return Tensor::Scalar<int64_t>(v); }

InferContext Infer(const char* name, const Attributes& attributes,
                   std::span<const ValueInfo> inputs) {
  InferContext context(attributes, inputs, 1);
  const Status status = OperatorRegistry::Builtin().Find("", name)->infer(context);
  EXPECT_TRUE(status.ok()) << status;
  return context;
}

TEST(ShapeTest, GivesDimensionsFromStartToEnd) {
  const Tensor x = Tensor::Allocate(DType::kFloat16, {2, 3, 4});
  const auto of = [&](std::initializer_list<std::pair<const char*, AttributeValue>> a) {
    auto y = RunOperator({"Shape", With(a), {x}});
    EXPECT_TRUE(y.ok()) << y.status();
    return AsDoubles((*y)[0]);
  };
  EXPECT_EQ(of({}), (Doubles{2, 3, 4}));
  EXPECT_EQ(of({{"start", int64_t{1}}}), (Doubles{3, 4}));
  EXPECT_EQ(of({{"start", int64_t{-1}}}), (Doubles{4}));
  EXPECT_EQ(of({{"end", int64_t{-1}}}), (Doubles{2, 3}));
  EXPECT_EQ(of({{"start", int64_t{2}}, {"end", int64_t{1}}}), (Doubles{}));
  EXPECT_EQ(of({{"start", int64_t{-9}}, {"end", int64_t{9}}}), (Doubles{2, 3, 4}));
  auto size = RunOperator({"Size", {}, {x}});
  EXPECT_EQ(AsDoubles((*size)[0]), (Doubles{24}));
}

TEST(ShapeTest, KeepsSymbols) {
  const std::vector<ValueInfo> inputs = {
      {DType::kFloat, SymbolicShape({Dim::Symbol("batch"), Dim(3)}), nullptr, {}}};
  const Attributes none;
  InferContext shape = Infer("Shape", none, inputs);
  ASSERT_TRUE(shape.outputs()[0].elements);
  EXPECT_TRUE((*shape.outputs()[0].elements)[0].Same(Dim::Symbol("batch")));
  EXPECT_TRUE((*shape.outputs()[0].elements)[1].Same(Dim(3)));
}

TEST(ConstantTest, TakesEveryKindOfValue) {
  const auto of = [](const char* name, AttributeValue value) {
    auto y = RunOperator({"Constant", With({{name, value}}), {}});
    EXPECT_TRUE(y.ok()) << y.status();
    return AsDoubles((*y)[0]);
  };
  EXPECT_EQ(of("value", Tensor::Of<uint8_t>({2}, {1, 2})), (Doubles{1, 2}));
  EXPECT_EQ(of("value_float", 2.5f), (Doubles{2.5}));
  EXPECT_EQ(of("value_int", int64_t{7}), (Doubles{7}));
  EXPECT_EQ(of("value_floats", std::vector<float>{1, 2}), (Doubles{1, 2}));
  EXPECT_EQ(of("value_ints", std::vector<int64_t>{3, 4}), (Doubles{3, 4}));
  EXPECT_FALSE(RunOperator({"Constant", {}, {}}).ok());
}

TEST(ConstantOfShapeTest, FillsKnownAndRefusesNegativeShapes) {
  const Tensor shape = Tensor::Of<int64_t>({2}, {2, 3});
  auto zeros = RunOperator({"ConstantOfShape", {}, {shape}});
  ASSERT_TRUE(zeros.ok()) << zeros.status();
  EXPECT_EQ((*zeros)[0].dtype(), DType::kFloat);
  EXPECT_EQ(AsDoubles((*zeros)[0]), Doubles(6, 0));
  auto sevens =
      RunOperator({"ConstantOfShape", With({{"value", Tensor::Of<int16_t>({1}, {7})}}), {shape}});
  EXPECT_EQ(AsDoubles((*sevens)[0]), Doubles(6, 7));
  auto scalar = RunOperator({"ConstantOfShape", {}, {Tensor::Allocate(DType::kInt64, {0})}});
  EXPECT_EQ((*scalar)[0].shape(), Shape{});
  for (const Tensor& bad : {Tensor::Of<int64_t>({1}, {-1}),
                            Tensor::Of<int64_t>({2}, {int64_t{1} << 40, int64_t{1} << 40})}) {
    EXPECT_FALSE(RunOperator({"ConstantOfShape", {}, {bad}}).ok());
  }
}

TEST(RangeTest, CountsUpAndDown) {
  auto up = RunOperator({"Range", {}, {Int(3), Int(11), Int(3)}});
  ASSERT_TRUE(up.ok()) << up.status();
  EXPECT_EQ(AsDoubles((*up)[0]), (Doubles{3, 6, 9}));
  auto down = RunOperator(
      {"Range", {}, {Tensor::Scalar(1.0f), Tensor::Scalar(-1.0f), Tensor::Scalar(-0.5f)}});
  EXPECT_EQ(AsDoubles((*down)[0]), (Doubles{1, 0.5, 0, -0.5}));
  auto none = RunOperator({"Range", {}, {Int(3), Int(3), Int(1)}});
  EXPECT_EQ((*none)[0].shape(), (Shape{0}));
  EXPECT_FALSE(RunOperator({"Range", {}, {Int(0), Int(5), Int(0)}}).ok());
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_FALSE(RunOperator({"Range", {}, {Int(-kMax), Int(kMax), Int(1)}}).ok());
  EXPECT_FALSE(
      RunOperator({"Range",
                   {},
                   {Tensor::Scalar(0.0f), Tensor::Scalar(1.0f), Tensor::Scalar(std::nanf(""))}})
          .ok());
}

TEST(RangeTest, ToASymbolHasItsLength) {
  const Tensor zero = Int(0), one = Int(1);
  const std::vector<ValueInfo> inputs = {
      {DType::kInt64, SymbolicShape::Scalar(), &zero, {}},
      {DType::kInt64, SymbolicShape::Scalar(), nullptr, std::vector<Dim>{Dim::Symbol("n")}},
      {DType::kInt64, SymbolicShape::Scalar(), &one, {}}};
  const Attributes none;
  InferContext context = Infer("Range", none, inputs);
  EXPECT_TRUE(context.outputs()[0].shape[0].Same(Dim::Symbol("n")));
}

TEST(EyeLikeTest, PutsOnesOnTheDiagonal) {
  const Tensor x = Tensor::Allocate(DType::kInt32, {3, 4});
  auto y = RunOperator({"EyeLike", With({{"k", int64_t{1}}, {"dtype", int64_t{1}}}), {x}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ((*y)[0].dtype(), DType::kFloat);
  EXPECT_EQ(AsDoubles((*y)[0]), (Doubles{0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}));
  auto far = RunOperator({"EyeLike", With({{"k", std::numeric_limits<int64_t>::min()}}), {x}});
  EXPECT_EQ(AsDoubles((*far)[0]), Doubles(12, 0));
}

TEST(OneHotTest, MarksIndicesAlongANewAxis) {
  const Tensor indices = Tensor::Of<int64_t>({2, 2}, {0, -1, 5, 1});
  const Tensor values = Tensor::Of<float>({2}, {-1, 4});
  auto last = RunOperator({"OneHot", {}, {indices, Int(3), values}});
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ((*last)[0].shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(AsDoubles((*last)[0]), (Doubles{4, -1, -1, -1, -1, 4, -1, -1, -1, -1, 4, -1}));
  auto first = RunOperator(
      {"OneHot", With({{"axis", int64_t{0}}}), {indices, Tensor::Scalar<float>(3), values}});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ((*first)[0].shape(), (Shape{3, 2, 2}));
  EXPECT_EQ(AsDoubles((*first)[0]), (Doubles{4, -1, -1, -1, -1, -1, -1, 4, -1, 4, -1, -1}));
  EXPECT_FALSE(RunOperator({"OneHot", {}, {indices, Int(-2), values}}).ok());
}

TEST(TriluTest, KeepsATriangle) {
  for (DType dtype : {DType::kFloat, DType::kInt8, DType::kBool, DType::kFloat16, DType::kInt64}) {
    for (int64_t k : {-9, -1, 0, 1, 2, 9}) {
      for (int64_t upper : {0, 1}) {
        const Tensor x = RandomTensor(dtype, {2, 3, 4}, 1, 9, 3);
        auto y = RunOperator({"Trilu", With({{"upper", upper}}), {x, Int(k)}});
        ASSERT_TRUE(y.ok()) << y.status();
        const Doubles in = AsDoubles(x), out = AsDoubles((*y)[0]);
        for (int64_t e = 0; e < 24; ++e) {
          const int64_t r = e / 4 % 3, c = e % 4;
          const bool kept = upper != 0 ? c >= r + k : c <= r + k;
          EXPECT_EQ(out[e], kept ? in[e] : 0);
        }
      }
    }
  }
}

TEST(WindowTest, AreSumsOfCosines) {
  const struct {
    const char* name;
    double c0, c1, c2;
  } windows[] = {{"HannWindow", 0.5, 0.5, 0},
                 {"HammingWindow", 25.0 / 46, 21.0 / 46, 0},
                 {"BlackmanWindow", 0.42, 0.5, 0.08}};
  for (const auto& w : windows) {
    for (int64_t periodic : {0, 1}) {
      for (int64_t size : {0, 1, 2, 9}) {
        auto y = RunOperator({w.name, With({{"periodic", periodic}}), {Int(size)}});
        ASSERT_TRUE(y.ok()) << y.status();
        const Doubles out = AsDoubles((*y)[0]);
        ASSERT_EQ(static_cast<int64_t>(out.size()), size);
        for (int64_t i = 0; i < size && (size > 1 || periodic != 0); ++i) {
          const double t = 2 * M_PI * static_cast<double>(i) /
                           static_cast<double>(periodic != 0 ? size : size - 1);
          EXPECT_NEAR(out[i], w.c0 - w.c1 * std::cos(t) + w.c2 * std::cos(2 * t), 1e-7);
        }
      }
    }
  }
  EXPECT_FALSE(RunOperator({"HannWindow", {}, {Int(-1)}}).ok());
}

TEST(MelWeightMatrixTest, FiltersAreTrianglesThatPeakAtTheirCentre) {
  auto y =
      RunOperator({"MelWeightMatrix",
                   {},
                   {Int(8), Int(64), Int(8192), Tensor::Scalar(0.0f), Tensor::Scalar(4096.0f)}});
  ASSERT_TRUE(y.ok()) << y.status();
  ASSERT_EQ((*y)[0].shape(), (Shape{33, 8}));
  const Doubles w = AsDoubles((*y)[0]);
  int64_t last_peak = 0;
  for (int64_t f = 0; f < 8; ++f) {
    int64_t peak = 0;
    for (int64_t b = 0; b < 33; ++b) {
      EXPECT_GE(w[b * 8 + f], 0);
      EXPECT_LE(w[b * 8 + f], 1);
      if (w[b * 8 + f] > w[peak * 8 + f]) peak = b;
    }
    EXPECT_EQ(w[peak * 8 + f], 1);
    EXPECT_GE(peak, last_peak);
    last_peak = peak;
  }
  EXPECT_FALSE(RunOperator({"MelWeightMatrix",
                            {},
                            {Int(8), Int(64), Int(0), Tensor::Scalar(0.0f), Tensor::Scalar(1.0f)}})
                   .ok());
}

}  // namespace
}  // namespace chairlift
