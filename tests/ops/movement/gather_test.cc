#include "ops/movement/naive.h"

namespace chairlift {
namespace gather_test {

using namespace testing;  // NOLINT(google-build-using-namespace)

Attributes Axis(int64_t axis) {
  Attributes a;
  a.Set("axis", axis);
  return a;
}

TEST(GatherTest, MatchesTheIndexFormula) {
  std::mt19937 rng(10);
  ReversedTeam team;
  for (int round = 0; round < 150; ++round) {
    const int rank = static_cast<int>(Pick(rng, 1, 4));
    const int axis = static_cast<int>(Pick(rng, 0, rank - 1));
    const int index_rank = static_cast<int>(Pick(rng, 0, 2));
    const Shape shape = RandomShape(rng, rank, 1, round % 15 == 0 ? 30 : 6);
    const Shape index_shape = RandomShape(rng, index_rank, round % 9 == 0 ? 0 : 1, 6);
    const Tensor x = RandomBytes(rng, kEveryType[round % 13], shape);
    const Tensor indices = RandomIndices(rng, index_shape, shape[axis], round % 2 == 0);
    Shape out(shape.dims().first(axis));
    for (int64_t d : index_shape) out.Append(d);
    for (int64_t d : shape.dims().subspan(axis + 1)) out.Append(d);
    ExpectSame(RunOne({"Gather", Axis(axis), {x, indices}}, &team),
               Moved(x, out, [&](const Index& i) {
                 Index from(i.begin(), i.begin() + axis);
                 const Index at(i.begin() + axis, i.begin() + axis + index_rank);
                 from.push_back(At(indices, Offset(index_shape, at), shape[axis]));
                 from.insert(from.end(), i.begin() + axis + index_rank, i.end());
                 return from;
               }));
  }
}

TEST(GatherTest, NamesTheIndexThatIsOutside) {
  const Tensor x = Tensor::Allocate(DType::kFloat, Shape{3, 2});
  const Status high = ErrorOf({"Gather", {}, {x, Ints({0, 3})}});
  EXPECT_EQ(high.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(Message(high).find("index 3 at position 1"), std::string::npos) << high;
  EXPECT_FALSE(ErrorOf({"Gather", {}, {x, Ints({-4})}}).ok());
  EXPECT_FALSE(ErrorOf({"Gather", Axis(2), {x, Ints({0})}}).ok());
  const Tensor empty = Tensor::Allocate(DType::kFloat, Shape{0, 2});
  EXPECT_FALSE(ErrorOf({"Gather", {}, {empty, Ints({0})}}).ok());
}

TEST(GatherElementsTest, MatchesTheIndexFormula) {
  std::mt19937 rng(15);
  ReversedTeam team;
  for (int round = 0; round < 150; ++round) {
    const int rank = static_cast<int>(Pick(rng, 1, 4));
    const int axis = static_cast<int>(Pick(rng, 0, rank - 1));
    const Shape shape = RandomShape(rng, rank, 1, round % 15 == 0 ? 30 : 6);
    Shape out;
    for (int d = 0; d < rank; ++d) {
      out.Append(Pick(rng, round % 9 == 0 ? 0 : 1, d == axis ? 8 : shape[d]));
    }
    const Tensor x = RandomBytes(rng, kEveryType[round % 13], shape);
    const Tensor indices = RandomIndices(rng, out, shape[axis], round % 2 == 0);
    ExpectSame(RunOne({"GatherElements", Axis(axis), {x, indices}}, &team),
               Moved(x, out, [&](Index i) {
                 i[axis] = At(indices, Offset(out, i), shape[axis]);
                 return i;
               }));
  }
}

TEST(GatherElementsTest, RefusesWhatIsOutside) {
  const Tensor x = Tensor::Allocate(DType::kFloat, Shape{3, 2});
  const Tensor wide = Tensor::Of<int64_t>(Shape{1, 3}, {0, 0, 0});
  EXPECT_FALSE(ErrorOf({"GatherElements", Axis(0), {x, wide}}).ok());
  EXPECT_TRUE(ErrorOf({"GatherElements", Axis(1), {x, wide}}).ok());
  EXPECT_FALSE(ErrorOf({"GatherElements", Axis(0), {x, Ints({0})}}).ok());
  const Tensor high = Tensor::Of<int64_t>(Shape{1, 2}, {0, 3});
  EXPECT_FALSE(ErrorOf({"GatherElements", Axis(0), {x, high}}).ok());
}

TEST(GatherNDTest, MatchesTheIndexFormula) {
  std::mt19937 rng(16);
  ReversedTeam team;
  for (int round = 0; round < 150; ++round) {
    const int rank = static_cast<int>(Pick(rng, 1, 4));
    const int batch = static_cast<int>(Pick(rng, 0, rank - 1));
    const int width = static_cast<int>(Pick(rng, 1, rank - batch));
    const Shape shape = RandomShape(rng, rank, 1, round % 15 == 0 ? 20 : 5);
    Shape index_shape(shape.dims().first(batch));
    for (int64_t n = Pick(rng, 0, 2); n > 0; --n) {
      index_shape.Append(Pick(rng, round % 9 == 0 ? 0 : 1, 9));
    }
    Shape out = index_shape;
    const int lead = index_shape.rank();
    index_shape.Append(width);
    for (int64_t d : shape.dims().subspan(batch + width)) out.Append(d);
    Tensor indices = Tensor::Allocate(DType::kInt64, index_shape);
    for (int64_t i = 0; i < indices.size(); ++i) {
      const int64_t bound = shape[batch + static_cast<int>(i % width)];
      indices.data<int64_t>()[i] = Pick(rng, -bound, bound - 1);
    }
    Attributes a;
    a.Set("batch_dims", int64_t{batch});
    const Tensor x = RandomBytes(rng, kEveryType[round % 13], shape);
    ExpectSame(RunOne({"GatherND", a, {x, indices}}, &team), Moved(x, out, [&](const Index& i) {
                 Index from(i.begin(), i.begin() + batch);
                 Index at(i.begin(), i.begin() + lead);
                 at.push_back(0);
                 for (int k = 0; k < width; ++k) {
                   at.back() = k;
                   from.push_back(At(indices, Offset(index_shape, at), shape[batch + k]));
                 }
                 from.insert(from.end(), i.begin() + lead, i.end());
                 return from;
               }));
  }
}

TEST(GatherNDTest, RefusesWhatIsOutside) {
  const Tensor x = Tensor::Allocate(DType::kFloat, Shape{3, 2});
  const auto error = [&](Shape shape, std::vector<int64_t> indices, int64_t batch = 0) {
    Attributes a;
    a.Set("batch_dims", batch);
    return ErrorOf({"GatherND", a, {x, Tensor::Of<int64_t>(shape, indices)}});
  };
  EXPECT_TRUE(error({1, 2}, {2, -2}).ok());
  EXPECT_FALSE(error({1, 2}, {2, 2}).ok());
  EXPECT_FALSE(error({1, 3}, {0, 0, 0}).ok());
  EXPECT_FALSE(error({1, 0}, {}).ok());
  EXPECT_FALSE(error({2, 1}, {0, 0}, 1).ok());
  EXPECT_FALSE(error({3, 1}, {0, 0, 0}, 2).ok());
}

TEST(GatherTest, TracksShapeElements) {
  const ValueInfo shape = Tracked({Dim::Symbol("batch"), Dim::Symbol("len"), 768});
  const Tensor second = Tensor::Scalar<int64_t>(-2);
  EXPECT_EQ(ElementsOf(Inferred("Gather", {}, {shape, Known(second)})), "[len]");
  EXPECT_EQ(ShapeOf(Inferred("Gather", {}, {shape, Known(second)})), "[]");
  const Tensor two = Ints({2, 0});
  EXPECT_EQ(ElementsOf(Inferred("Gather", {}, {shape, Known(two)})), "[768,batch]");
  const Tensor outside = Ints({3});
  EXPECT_FALSE(Inferred("Gather", {}, {shape, Known(outside)}).ok());
}

}  // namespace gather_test
}  // namespace chairlift
