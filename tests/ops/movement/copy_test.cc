// Operators that are strided copies: Transpose, Concat, Split, Slice, Expand.
#include <algorithm>
#include <numeric>

#include "ops/movement/naive.h"
#include "ops/thread_team.h"

namespace chairlift {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

Dim S(const char* name) { return Dim::Symbol(name); }

Attributes Ints1(const char* name, std::vector<int64_t> values) {
  Attributes a;
  a.Set(name, std::move(values));
  return a;
}
Attributes Axis(int64_t axis) {
  Attributes a;
  a.Set("axis", axis);
  return a;
}

void CheckTranspose(const Tensor& x, const std::vector<int64_t>& perm, Team* team = nullptr) {
  Shape out;
  for (int64_t p : perm) out.Append(x.shape()[static_cast<int>(p)]);
  const Tensor expected = Moved(x, out, [&](const Index& i) {
    Index in(i.size());
    for (size_t d = 0; d < i.size(); ++d) in[static_cast<size_t>(perm[d])] = i[d];
    return in;
  });
  ExpectSame(RunOne({"Transpose", Ints1("perm", perm), {x}}, team), expected);
}

TEST(TransposeTest, MatchesTheIndexFormula) {
  std::mt19937 rng(4);
  for (int round = 0; round < 300; ++round) {
    const int rank = static_cast<int>(Pick(rng, 0, 5));
    std::vector<int64_t> perm(rank);
    std::iota(perm.begin(), perm.end(), 0);
    std::shuffle(perm.begin(), perm.end(), rng);
    const DType dtype = kEveryType[round % 13];
    const int64_t high = rank < 3 ? 40 : 7;
    CheckTranspose(RandomBytes(rng, dtype, RandomShape(rng, rank, round % 17 == 0 ? 0 : 1, high)),
                   perm);
  }
}

TEST(TransposeTest, SharesLargeCopies) {
  std::mt19937 rng(5);
  ReversedTeam team;
  CheckTranspose(RandomBytes(rng, DType::kFloat, Shape{301, 307}), {1, 0}, &team);
  CheckTranspose(RandomBytes(rng, DType::kFloat, Shape{2, 128, 12, 64}), {0, 2, 1, 3}, &team);
  CheckTranspose(RandomBytes(rng, DType::kUInt8, Shape{1, 3, 300, 401}), {0, 2, 3, 1}, &team);
  CheckTranspose(RandomBytes(rng, DType::kDouble, Shape{2, 33000}), {0, 1}, &team);
}

TEST(TransposeTest, RefusesWrongPermutations) {
  const Tensor x = Tensor::Allocate(DType::kFloat, Shape{2, 3});
  EXPECT_FALSE(ErrorOf({"Transpose", Ints1("perm", {0}), {x}}).ok());
  EXPECT_FALSE(ErrorOf({"Transpose", Ints1("perm", {0, 0}), {x}}).ok());
  EXPECT_FALSE(ErrorOf({"Transpose", Ints1("perm", {0, 2}), {x}}).ok());
  EXPECT_EQ(ShapeOf(Inferred("Transpose", {}, {Symbolic(DType::kFloat, {S("a"), 3, S("b")})})),
            "[b,3,a]");
}

TEST(ConcatTest, MatchesTheIndexFormula) {
  std::mt19937 rng(6);
  ReversedTeam team;
  for (int round = 0; round < 100; ++round) {
    const int rank = static_cast<int>(Pick(rng, 1, 4));
    const int axis = static_cast<int>(Pick(rng, 0, rank - 1));
    const Shape base = RandomShape(rng, rank, 1, round % 10 == 0 ? 60 : 6);
    std::vector<Tensor> parts;
    std::vector<int64_t> starts;
    Shape out = base;
    out[axis] = 0;
    for (int64_t n = Pick(rng, 1, 5); n > 0; --n) {
      Shape shape = base;
      shape[axis] = Pick(rng, 0, 5);
      starts.push_back(out[axis]);
      out[axis] += shape[axis];
      parts.push_back(RandomBytes(rng, kEveryType[round % 13], shape));
    }
    const Tensor joined =
        RunOne({"Concat", Axis(round % 2 == 0 ? axis : axis - rank), parts}, &team);
    ASSERT_EQ(joined.shape(), out);
    for (size_t p = 0; p < parts.size(); ++p) {
      ExpectSame(Moved(joined, parts[p].shape(),
                       [&](Index i) {
                         i[axis] += starts[p];
                         return i;
                       }),
                 parts[p]);
    }
  }
}

// For blocked operands as for row-major ones.
void ExpectSameInBlocks(OperatorCall call, uint32_t inputs, Team& team) {
  const auto plain = RunOperator(call, &team);
  ASSERT_TRUE(plain.ok()) << plain.status();
  call.blocked = {.inputs = inputs, .outputs = (1u << plain->size()) - 1};
  const auto blocked = RunOperator(call, &team);
  ASSERT_TRUE(blocked.ok()) << blocked.status();
  for (size_t i = 0; i < plain->size(); ++i) ExpectSame((*blocked)[i], (*plain)[i]);
}

TEST(ChannelMovesTest, BlocksNeedNotBeWhole) {
  std::mt19937 rng(17);
  for (int round = 0; round < 40; ++round) {
    ThreadTeam team(1 + round % 2);
    // Once enough to be shared.
    const int64_t size = round == 1 ? 1201 : Pick(rng, 1, 9);
    const auto image = [&](int64_t channels) {
      return RandomBytes(rng, DType::kFloat, Shape{2, channels, size, 3});
    };
    std::vector<Tensor> parts;
    std::vector<int64_t> counts;
    int64_t all = 0;
    for (int64_t n = Pick(rng, 1, 4); n > 0; --n) {
      counts.push_back(round % 3 == 0 ? 16 * Pick(rng, 1, 3) : Pick(rng, 8, 70));
      parts.push_back(image(counts.back()));
      all += counts.back();
    }
    ExpectSameInBlocks({"Concat", Axis(1), parts}, (1u << parts.size()) - 1, team);
    ExpectSameInBlocks(
        {"Split", Axis(1), {image(all), Ints(counts)}, static_cast<int>(counts.size()), "", {1}}, 1,
        team);
    const int64_t step = Pick(rng, 0, 3) == 0 ? -1 : Pick(rng, 1, 2);
    const int64_t start = step < 0 ? -1 : Pick(rng, 0, all / 3), end = step < 0 ? all / 4 : all - 1;
    ExpectSameInBlocks({"Slice",
                        {},
                        {image(all), Ints({start}), Ints({end}), Ints({1}), Ints({step})},
                        1,
                        "",
                        {1, 2, 3, 4}},
                       1, team);
    const int64_t groups = Pick(rng, 1, 9);
    Attributes shuffle;
    shuffle.Set("groups", groups);
    ExpectSameInBlocks(
        {"ChannelShuffle", shuffle, {image(groups * Pick(rng, 8, 30))}, 1, "chairlift"}, 1, team);
  }
}

TEST(ConcatTest, RefusesAndTracks) {
  const Tensor a = Tensor::Allocate(DType::kFloat, Shape{2, 3});
  const Tensor b = Tensor::Allocate(DType::kFloat, Shape{2, 4});
  const Tensor c = Tensor::Allocate(DType::kInt32, Shape{2, 3});
  EXPECT_FALSE(ErrorOf({"Concat", Axis(0), {a, b}}).ok());
  EXPECT_FALSE(ErrorOf({"Concat", Axis(2), {a, b}}).ok());
  EXPECT_FALSE(ErrorOf({"Concat", Axis(0), {a, c}}).ok());
  EXPECT_FALSE(ErrorOf({"Concat", {}, {a, a}}).ok());
  const Tensor tail = Ints({12, 64});
  const auto joined = Inferred("Concat", Axis(0),
                               {Tracked({S("batch")}), Symbolic(DType::kInt64, {1}), Known(tail)});
  EXPECT_EQ(ElementsOf(joined), "[batch,?,12,64]");
  EXPECT_EQ(ShapeOf(Inferred("Concat", Axis(1),
                             {Symbolic(DType::kFloat, {Dim::Unknown(), 3}),
                              Symbolic(DType::kFloat, {S("batch"), 4})})),
            "[batch,7]");
}

TEST(SplitTest, MatchesTheIndexFormula) {
  std::mt19937 rng(7);
  ReversedTeam team;
  for (int round = 0; round < 60; ++round) {
    const int rank = static_cast<int>(Pick(rng, 1, 4));
    const int axis = static_cast<int>(Pick(rng, 0, rank - 1));
    Shape shape = RandomShape(rng, rank, 1, round % 10 == 0 ? 50 : 6);
    std::vector<int64_t> lengths;
    for (int64_t n = Pick(rng, 1, 4); n > 0; --n) lengths.push_back(Pick(rng, 0, 4));
    const bool equal = round % 3 == 0;
    if (equal) std::fill(lengths.begin(), lengths.end(), 3);
    shape[axis] = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    if (equal && lengths.size() > 1) --shape[axis], --lengths.back();
    const Tensor x = RandomBytes(rng, kEveryType[round % 13], shape);
    std::vector<Tensor> inputs{x};
    if (!equal) inputs.push_back(Ints(lengths));
    const auto parts =
        RunOperator({"Split", Axis(axis), inputs, static_cast<int>(lengths.size())}, &team);
    ASSERT_TRUE(parts.ok()) << parts.status();
    int64_t start = 0;
    for (size_t p = 0; p < lengths.size(); ++p) {
      shape[axis] = lengths[p];
      ExpectSame((*parts)[p], Moved(x, shape, [&](Index i) {
                   i[axis] += start;
                   return i;
                 }));
      start += lengths[p];
    }
  }
}

TEST(SplitTest, RefusesLengthsThatDoNotFit) {
  const Tensor x = Tensor::Allocate(DType::kFloat, Shape{6});
  EXPECT_FALSE(ErrorOf({"Split", {}, {x, Ints({2, 3})}, 2}).ok());
  EXPECT_FALSE(ErrorOf({"Split", {}, {x, Ints({-1, 7})}, 2}).ok());
  EXPECT_FALSE(ErrorOf({"Split", {}, {x, Ints({2, 4})}, 3}).ok());
  EXPECT_TRUE(ErrorOf({"Split", {}, {x}, 4}).ok());  // 2, 2, 2 and nothing
  EXPECT_FALSE(ErrorOf({"Split", {}, {x}, 5}).ok());
}

TEST(SliceTest, MatchesPythonSlicing) {
  std::mt19937 rng(8);
  ReversedTeam team;
  for (int round = 0; round < 400; ++round) {
    const int rank = static_cast<int>(Pick(rng, 1, 4));
    const Shape shape = RandomShape(rng, rank, round % 11 == 0 ? 0 : 1, round % 40 == 0 ? 50 : 8);
    std::vector<int64_t> axes(rank);
    std::iota(axes.begin(), axes.end(), 0);
    std::shuffle(axes.begin(), axes.end(), rng);
    axes.resize(static_cast<size_t>(Pick(rng, 1, rank)));
    std::vector<int64_t> starts, ends, steps;
    Shape out = shape;
    std::vector<std::vector<int64_t>> taken(rank);
    for (int d = 0; d < rank; ++d) {
      for (int64_t i = 0; i < shape[d]; ++i) taken[d].push_back(i);
    }
    for (int64_t a : axes) {
      const int64_t dim = shape[static_cast<int>(a)];
      const int64_t step = Pick(rng, 0, 1) == 0 ? Pick(rng, 1, 3) : -Pick(rng, 1, 3);
      const int64_t start = Pick(rng, -dim - 2, dim + 2);
      const int64_t end =
          round % 7 == 0 ? (step > 0 ? INT64_MAX : INT64_MIN) : Pick(rng, -dim - 2, dim + 2);
      starts.push_back(start);
      ends.push_back(end);
      steps.push_back(step);
      // As slice.indices() of Python has it.
      const auto place = [&](int64_t v, int64_t low, int64_t high) {
        if (v < 0) v = v < -dim ? low : v + dim;
        return std::min(std::max(v, low), high);
      };
      auto& list = taken[static_cast<size_t>(a)];
      list.clear();
      if (step > 0) {
        for (int64_t i = place(start, 0, dim); i < place(end, 0, dim); i += step) list.push_back(i);
      } else {
        for (int64_t i = place(start, -1, dim - 1); i > place(end, -1, dim - 1); i += step) {
          list.push_back(i);
        }
      }
      out[static_cast<int>(a)] = static_cast<int64_t>(list.size());
    }
    // ONNX clamps the start of a negative step to the first element, Python to before it: skip.
    bool differs = false;
    for (size_t i = 0; i < axes.size(); ++i) {
      differs |= steps[i] < 0 && starts[i] < -shape[static_cast<int>(axes[i])];
    }
    if (differs) continue;
    const Tensor x = RandomBytes(rng, kEveryType[round % 13], shape);
    const Tensor expected = Moved(x, out, [&](Index i) {
      for (int d = 0; d < rank; ++d) i[d] = taken[d][static_cast<size_t>(i[d])];
      return i;
    });
    OperatorCall call{"Slice", {}, {x, Ints(starts), Ints(ends), Ints(axes), Ints(steps)}};
    ExpectSame(RunOne(call, &team), expected);
    call.constants = {1, 2, 3, 4};
    ExpectSame(RunOne(call, &team), expected);
  }
}

TEST(SliceTest, RefusesAndTracks) {
  const Tensor x = Tensor::Allocate(DType::kFloat, Shape{4, 5});
  EXPECT_FALSE(ErrorOf({"Slice", {}, {x, Ints({0}), Ints({1}), Ints({2})}}).ok());
  EXPECT_FALSE(ErrorOf({"Slice", {}, {x, Ints({0}), Ints({1, 2})}}).ok());
  EXPECT_FALSE(ErrorOf({"Slice", {}, {x, Ints({0, 0}), Ints({1, 1}), Ints({0, -2})}}).ok());
  EXPECT_FALSE(ErrorOf({"Slice", {}, {x, Ints({0}), Ints({1}), Ints({0}), Ints({0})}}).ok());
  EXPECT_EQ(RunOne({"Slice", {}, {x, Ints({3}), Ints({INT64_MIN}), Ints({0}), Ints({INT64_MIN})}})
                .shape(),
            (Shape{1, 5}));
  const Tensor zero = Ints({0}), one = Ints({1}), two = Ints({2}), far = Ints({INT64_MAX});
  const ValueInfo sentence = Symbolic(DType::kFloat, {S("batch"), S("len"), 8});
  EXPECT_EQ(ShapeOf(Inferred("Slice", {}, {sentence, Known(zero), Known(one), Known(two)})),
            "[batch,len,1]");
  EXPECT_EQ(ShapeOf(Inferred("Slice", {}, {sentence, Known(zero), Known(far), Known(one)})),
            "[batch,len,8]");
  EXPECT_EQ(ShapeOf(Inferred("Slice", {}, {sentence, Known(one), Known(far), Known(one)})),
            "[batch,?,8]");
  EXPECT_EQ(
      ShapeOf(Inferred("Slice", {}, {sentence, Known(zero), Tracked({S("len")}), Known(one)})),
      "[batch,len,8]");
  EXPECT_EQ(
      ElementsOf(Inferred(
          "Slice", {}, {Tracked({S("a"), S("b"), S("c")}), Known(one), Known(far), Known(zero)})),
      "[b,c]");
}

TEST(ExpandTest, MatchesTheIndexFormula) {
  std::mt19937 rng(9);
  ReversedTeam team;
  for (int round = 0; round < 100; ++round) {
    const int rank = static_cast<int>(Pick(rng, 0, 4));
    const int in_rank = static_cast<int>(Pick(rng, 0, rank));
    const Shape out = RandomShape(rng, rank, round % 9 == 0 ? 0 : 1, round % 10 == 0 ? 40 : 6);
    std::vector<int64_t> wanted(out.begin(), out.end());
    Shape in;
    for (int d = rank - in_rank; d < rank; ++d) {
      const bool broadcast = Pick(rng, 0, 1) == 0;
      in.Append(broadcast ? 1 : out[d]);
      if (!broadcast && Pick(rng, 0, 1) == 0) wanted[d] = 1;
    }
    const Tensor x = RandomBytes(rng, kEveryType[round % 13], in);
    ExpectSame(RunOne({"Expand", {}, {x, Ints(wanted)}}, &team), Moved(x, out, [&](const Index& i) {
                 Index from(i.end() - in_rank, i.end());
                 for (int d = 0; d < in_rank; ++d) {
                   if (in[d] == 1) from[d] = 0;
                 }
                 return from;
               }));
  }
}

TEST(ExpandTest, RefusesAndTracks) {
  const Tensor x = Tensor::Allocate(DType::kFloat, Shape{2, 1});
  EXPECT_FALSE(ErrorOf({"Expand", {}, {x, Ints({3, 1})}}).ok());
  EXPECT_FALSE(ErrorOf({"Expand", {}, {x, Ints({2, -1})}}).ok());
  EXPECT_FALSE(ErrorOf({"Expand", {}, {x, Ints({2, int64_t{1} << 40})}}).ok());
  EXPECT_EQ(
      ShapeOf(Inferred("Expand", {},
                       {Symbolic(DType::kFloat, {1, 1, S("len")}), Tracked({S("batch"), 1, 1})})),
      "[batch,1,len]");
}

}  // namespace
}  // namespace chairlift
