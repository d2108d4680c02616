#include "ops/movement/naive.h"

namespace chairlift {
namespace reshape_test {

using namespace testing;  // NOLINT(google-build-using-namespace)

Dim S(const char* name) { return Dim::Symbol(name); }

Attributes AllowZero() {
  Attributes a;
  a.Set("allowzero", int64_t{1});
  return a;
}

Status ReshapeError(const Shape& in, const std::vector<int64_t>& shape, Attributes a = {}) {
  return ErrorOf({"Reshape", std::move(a), {Tensor::Allocate(DType::kFloat, in), Ints(shape)}});
}

TEST(ReshapeTest, ResolvesZeroAndMinusOne) {
  std::mt19937 rng(1);
  const Tensor x = RandomBytes(rng, DType::kFloat, Shape{2, 3, 4});
  EXPECT_EQ(RunOne({"Reshape", {}, {x, Ints({0, -1})}}).shape(), (Shape{2, 12}));
  EXPECT_EQ(RunOne({"Reshape", {}, {x, Ints({4, 0, -1})}}).shape(), (Shape{4, 3, 2}));
  EXPECT_EQ(RunOne({"Reshape", {}, {x, Ints({24})}}).shape(), (Shape{24}));
  const Tensor empty = RandomBytes(rng, DType::kFloat, Shape{0, 12, 64});
  EXPECT_EQ(RunOne({"Reshape", {}, {empty, Ints({0, -1})}}).shape(), (Shape{0, 768}));
  EXPECT_EQ(RunOne({"Reshape", AllowZero(), {empty, Ints({3, 0, 5})}}).shape(), (Shape{3, 0, 5}));
  const Tensor scalar = RandomBytes(rng, DType::kFloat, Shape{});
  EXPECT_EQ(RunOne({"Reshape", {}, {scalar, Ints({1, -1})}}).shape(), (Shape{1, 1}));
}

TEST(ReshapeTest, RefusesWhatDoesNotFit) {
  EXPECT_FALSE(ReshapeError({2, 3}, {4}).ok());
  EXPECT_FALSE(ReshapeError({2, 3}, {4, -1}).ok());
  EXPECT_FALSE(ReshapeError({2, 3}, {-1, -1}).ok());
  EXPECT_FALSE(ReshapeError({2, 3}, {-2, 3}).ok());
  EXPECT_FALSE(ReshapeError({2, 3}, {2, 3, 0}).ok());
  EXPECT_FALSE(ReshapeError({0, 3}, {0, -1}, AllowZero()).ok());
  EXPECT_FALSE(ReshapeError({2, 3}, {int64_t{1} << 62, int64_t{1} << 62}).ok());
  EXPECT_FALSE(ReshapeError({2, 3}, std::vector<int64_t>(100, 1)).ok());
}

TEST(ReshapeTest, CancelsSymbolsForMinusOne) {
  const ValueInfo x = Symbolic(DType::kFloat, {S("batch"), S("len"), 768});
  const Tensor copy = Ints({0, 0, 12, 64});
  EXPECT_EQ(ShapeOf(Inferred("Reshape", {}, {x, Known(copy)})), "[batch,len,12,64]");
  const Tensor rest = Ints({0, -1, 12, 64});
  EXPECT_EQ(ShapeOf(Inferred("Reshape", {}, {x, Known(rest)})), "[batch,len,12,64]");
  EXPECT_EQ(ShapeOf(Inferred("Reshape", {}, {x, Tracked({S("batch"), Dim::Unknown(), 12, 64})})),
            "[batch,len,12,64]");
  EXPECT_EQ(
      ShapeOf(Inferred("Reshape", {}, {x, Tracked({S("batch"), S("len"), 12, Dim::Unknown()})})),
      "[batch,len,12,64]");
  const Tensor rows = Ints({-1, 768});
  const auto flat = Inferred("Reshape", {}, {x, Known(rows)});
  EXPECT_EQ(ShapeOf(flat), "[batch*len,768]");
  EXPECT_EQ(
      ShapeOf(Inferred("Reshape", {}, {(*flat)[0], Tracked({S("batch"), Dim::Unknown(), 768})})),
      "[batch,len,768]");
  const Tensor odd = Ints({-1, 7});
  EXPECT_EQ(ShapeOf(Inferred("Reshape", {}, {x, Known(odd)})), "[?,7]");
  const ValueInfo unknown = Symbolic(DType::kFloat, {Dim::Unknown(), 4});
  EXPECT_EQ(ShapeOf(Inferred("Reshape", {}, {unknown, Known(rows)})), "[?,768]");
  EXPECT_EQ(ShapeOf(Inferred("Reshape", {}, {x, Symbolic(DType::kInt64, {3})})), "[?,?,?]");
}

TEST(ReshapeTest, KeepsTrackedElements) {
  const Tensor flat = Ints({-1});
  const ValueInfo scalar{DType::kInt64, SymbolicShape::Scalar(), nullptr,
                         std::vector<Dim>{S("len")}};
  EXPECT_EQ(ElementsOf(Inferred("Reshape", {}, {scalar, Known(flat)})), "[len]");
}

TEST(FlattenTest, MultipliesBothSidesOfTheAxis) {
  const auto shape = [](int64_t axis, std::vector<Dim> dims) {
    Attributes a;
    a.Set("axis", axis);
    return ShapeOf(Inferred("Flatten", a, {Symbolic(DType::kInt8, std::move(dims))}));
  };
  EXPECT_EQ(shape(0, {2, 3, 4}), "[1,24]");
  EXPECT_EQ(shape(2, {2, 3, 4}), "[6,4]");
  EXPECT_EQ(shape(3, {2, 3, 4}), "[24,1]");
  EXPECT_EQ(shape(-1, {2, 3, 4}), "[6,4]");
  EXPECT_EQ(shape(1, {S("batch"), 512, 7, 7}), "[batch,25088]");
  EXPECT_EQ(shape(2, {S("b"), 3, S("h"), S("w")}), "[3*b,h*w]");
  EXPECT_NE(shape(4, {2, 3, 4}).find("axis 4"), std::string::npos);
}

TEST(SqueezeTest, TakesOutOnes) {
  std::mt19937 rng(2);
  const Tensor x = RandomBytes(rng, DType::kInt16, Shape{1, 3, 1, 5, 1});
  EXPECT_EQ(RunOne({"Squeeze", {}, {x}}).shape(), (Shape{3, 5}));
  ExpectSame(RunOne({"Squeeze", {}, {x, Ints({-1, 0})}}), x.Reshaped(Shape{3, 1, 5}));
  EXPECT_FALSE(ErrorOf({"Squeeze", {}, {x, Ints({1})}}).ok());
  EXPECT_FALSE(ErrorOf({"Squeeze", {}, {x, Ints({0, 0})}}).ok());
  EXPECT_FALSE(ErrorOf({"Squeeze", {}, {x, Ints({5})}}).ok());
  const Tensor axis = Ints({0});
  EXPECT_EQ(ElementsOf(Inferred("Squeeze", {}, {Tracked({S("len")}), Known(axis)})), "[len]");
}

TEST(UnsqueezeTest, PutsInOnes) {
  std::mt19937 rng(3);
  const Tensor x = RandomBytes(rng, DType::kBool, Shape{3, 5});
  ExpectSame(RunOne({"Unsqueeze", {}, {x, Ints({3, 0})}}), x.Reshaped(Shape{1, 3, 5, 1}));
  ExpectSame(RunOne({"Unsqueeze", {}, {x, Ints({-1, -3})}}), x.Reshaped(Shape{3, 1, 5, 1}));
  EXPECT_FALSE(ErrorOf({"Unsqueeze", {}, {x, Ints({1, -3})}}).ok());
  EXPECT_FALSE(ErrorOf({"Unsqueeze", {}, {x, Ints({4})}}).ok());
  const Tensor axis = Ints({0});
  const ValueInfo scalar{DType::kInt64, SymbolicShape::Scalar(), nullptr,
                         std::vector<Dim>{S("len")}};
  EXPECT_EQ(ElementsOf(Inferred("Unsqueeze", {}, {scalar, Known(axis)})), "[len]");
}

}  // namespace reshape_test
}  // namespace chairlift
