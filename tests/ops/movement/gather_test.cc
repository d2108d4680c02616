#include "ops/movement/naive.h"

namespace chairlift {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

Attributes Axis(int64_t axis) {
  Attributes a;
  a.Set("axis", axis);
  return a;
}

// Indices in [−bound, bound) of int64 or int32.
Tensor RandomIndices(std::mt19937& rng, const Shape& shape, int64_t bound, bool wide) {
  Tensor t = Tensor::Allocate(wide ? DType::kInt64 : DType::kInt32, shape);
  for (int64_t i = 0; i < t.size(); ++i) {
    const int64_t v = Pick(rng, -bound, bound - 1);
    if (wide) {
      t.data<int64_t>()[i] = v;
    } else {
      t.data<int32_t>()[i] = static_cast<int32_t>(v);
    }
  }
  return t;
}

int64_t At(const Tensor& t, int64_t i, int64_t bound) {
  const int64_t v = t.dtype() == DType::kInt64 ? t.data<int64_t>()[i] : t.data<int32_t>()[i];
  return v < 0 ? v + bound : v;
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

}  // namespace
}  // namespace chairlift
