#include <cmath>

#include "ops/movement/naive.h"

namespace chairlift {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

const char* const kReductions[] = {"none", "add", "mul", "max", "min"};

Attributes Reduction(const std::string& name, int64_t axis = 0) {
  Attributes a;
  a.Set("reduction", name);
  a.Set("axis", axis);
  return a;
}

// Small whole numbers, which every type represents exactly.
template <typename T>
Tensor SmallNumbers(std::mt19937& rng, const Shape& shape) {
  Tensor t = Tensor::Allocate(DTypeOf<T>::kValue, shape);
  for (int64_t i = 0; i < t.size(); ++i) {
    t.data<T>()[i] = T(static_cast<float>(Pick(rng, 0, std::is_same_v<T, bool> ? 1 : 3)));
  }
  return t;
}

template <typename T>
T Reduced(const std::string& reduction, T old_value, T update_value) {
  const auto a = static_cast<double>(static_cast<float>(old_value));
  const auto b = static_cast<double>(static_cast<float>(update_value));
  double r = b;
  if (reduction == "add") r = a + b;
  if (reduction == "mul") r = a * b;
  if (reduction == "max") r = std::max(a, b);
  if (reduction == "min") r = std::min(a, b);
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    return static_cast<T>(static_cast<int64_t>(r));
  } else {
    return T(static_cast<float>(r));
  }
}

template <typename T>
void CheckElements(int seed) {
  std::mt19937 rng(seed);
  for (int round = 0; round < 50; ++round) {
    const std::string reduction = kReductions[round % 5];
    const int rank = static_cast<int>(Pick(rng, 1, 3));
    const int axis = static_cast<int>(Pick(rng, 0, rank - 1));
    const Shape shape = RandomShape(rng, rank, 1, 5);
    Shape index_shape;
    for (int d = 0; d < rank; ++d) {
      index_shape.Append(Pick(rng, round % 9 == 0 ? 0 : 1, d == axis ? 3 : shape[d]));
    }
    const Tensor data = SmallNumbers<T>(rng, shape);
    const Tensor indices = RandomIndices(rng, index_shape, shape[axis], round % 2 == 0);
    const Tensor updates = SmallNumbers<T>(rng, index_shape);
    Tensor expected = data.Clone();
    ForEachIndex(index_shape, [&](const Index& i) {
      Index to = i;
      to[axis] = At(indices, Offset(index_shape, i), shape[axis]);
      T& element = expected.data<T>()[Offset(shape, to)];
      element = Reduced(reduction, element, updates.data<T>()[Offset(index_shape, i)]);
    });
    ExpectSame(RunOne({"ScatterElements", Reduction(reduction, axis), {data, indices, updates}}),
               expected);
  }
}

template <typename T>
void CheckND(int seed) {
  std::mt19937 rng(seed);
  for (int round = 0; round < 50; ++round) {
    const std::string reduction = kReductions[round % 5];
    const int rank = static_cast<int>(Pick(rng, 1, 3));
    const int width = static_cast<int>(Pick(rng, 1, rank));
    const Shape shape = RandomShape(rng, rank, 1, 5);
    Shape index_shape = RandomShape(rng, static_cast<int>(Pick(rng, 0, 2)), 0, 3);
    Shape update_shape = index_shape;
    const int lead = index_shape.rank();
    for (int64_t d : shape.dims().subspan(width)) update_shape.Append(d);
    index_shape.Append(width);
    Tensor indices = Tensor::Allocate(DType::kInt64, index_shape);
    for (int64_t i = 0; i < indices.size(); ++i) {
      const int64_t bound = shape[static_cast<int>(i % width)];
      indices.data<int64_t>()[i] = Pick(rng, -bound, bound - 1);
    }
    const Tensor data = SmallNumbers<T>(rng, shape);
    const Tensor updates = SmallNumbers<T>(rng, update_shape);
    Tensor expected = data.Clone();
    ForEachIndex(update_shape, [&](const Index& i) {
      Index at(i.begin(), i.begin() + lead);
      at.push_back(0);
      Index to;
      for (int k = 0; k < width; ++k) {
        at.back() = k;
        to.push_back(At(indices, Offset(index_shape, at), shape[k]));
      }
      to.insert(to.end(), i.begin() + lead, i.end());
      T& element = expected.data<T>()[Offset(shape, to)];
      element = Reduced(reduction, element, updates.data<T>()[Offset(update_shape, i)]);
    });
    ExpectSame(RunOne({"ScatterND", Reduction(reduction), {data, indices, updates}}), expected);
  }
}

template <typename... Ts>
void CheckAll() {
  int seed = 20;
  (CheckElements<Ts>(seed++), ...);
  (CheckND<Ts>(seed++), ...);
}

TEST(ScatterTest, MatchesTheIndexFormulaForEveryType) {
  CheckAll<float, double, Float16, BFloat16, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t,
           uint32_t, uint64_t, bool>();
}

TEST(ScatterTest, KeepsNaNInMaxAndMin) {
  const Tensor data = Tensor::Of<float>(Shape{2}, {1.0f, NAN});
  const Tensor updates = Tensor::Of<float>(Shape{2}, {NAN, 1.0f});
  for (const char* reduction : {"max", "min"}) {
    const Tensor out =
        RunOne({"ScatterElements", Reduction(reduction), {data, Ints({0, 1}), updates}});
    EXPECT_TRUE(std::isnan(out.data<float>()[0]));
    EXPECT_TRUE(std::isnan(out.data<float>()[1]));
  }
}

TEST(ScatterTest, RefusesWhatIsOutside) {
  const Tensor data = Tensor::Allocate(DType::kFloat, Shape{3});
  const Tensor one = Tensor::Of<float>(Shape{1}, {1});
  const Tensor two = Tensor::Of<float>(Shape{2}, {1, 2});
  const Tensor wrong = Tensor::Of<double>(Shape{1}, {1});
  const Tensor tuple = Tensor::Of<int64_t>(Shape{1, 1}, {3});
  EXPECT_FALSE(ErrorOf({"ScatterElements", {}, {data, Ints({3}), one}}).ok());
  EXPECT_FALSE(ErrorOf({"ScatterElements", {}, {data, Ints({-4}), one}}).ok());
  EXPECT_FALSE(ErrorOf({"ScatterElements", {}, {data, Ints({0}), two}}).ok());
  EXPECT_FALSE(ErrorOf({"ScatterElements", {}, {data, Ints({0}), wrong}}).ok());
  EXPECT_FALSE(ErrorOf({"ScatterElements", Reduction("sum"), {data, Ints({0}), one}}).ok());
  EXPECT_FALSE(ErrorOf({"ScatterND", {}, {data, tuple, one}}).ok());
  EXPECT_FALSE(ErrorOf({"ScatterND", {}, {data, Ints({0, 1}), one}}).ok());
  EXPECT_FALSE(ErrorOf({"ScatterND", {}, {data, Tensor::Of<int64_t>(Shape{1, 1}, {0}), two}}).ok());
}

// The planner would let the output overwrite either of the first two inputs, and indices are read
// after the output is first written.
TEST(ScatterTest, IsNotInPlace) {
  for (const char* name : {"ScatterElements", "ScatterND"}) {
    EXPECT_FALSE(OperatorRegistry::Builtin().Find("", name)->in_place) << name;
  }
}

}  // namespace
}  // namespace chairlift
