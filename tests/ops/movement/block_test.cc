// Tile, Pad, DepthToSpace, SpaceToDepth, ReverseSequence.
#include "ops/movement/naive.h"

namespace chairlift {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

TEST(TileTest, MatchesTheIndexFormula) {
  std::mt19937 rng(11);
  ReversedTeam team;
  for (int round = 0; round < 100; ++round) {
    const int rank = static_cast<int>(Pick(rng, 0, 4));
    const Shape shape = RandomShape(rng, rank, round % 9 == 0 ? 0 : 1, round % 10 == 0 ? 12 : 5);
    std::vector<int64_t> repeats;
    Shape out;
    for (int d = 0; d < rank; ++d) {
      repeats.push_back(Pick(rng, round % 8 == 0 ? 0 : 1, 4));
      out.Append(shape[d] * repeats.back());
    }
    const Tensor x = RandomBytes(rng, kEveryType[round % 13], shape);
    ExpectSame(RunOne({"Tile", {}, {x, Ints(repeats)}}, &team), Moved(x, out, [&](Index i) {
                 for (int d = 0; d < rank; ++d) i[d] %= shape[d];
                 return i;
               }));
  }
}

TEST(TileTest, RefusesWrongRepeats) {
  const Tensor x = Tensor::Allocate(DType::kFloat, Shape{2, 3});
  EXPECT_FALSE(ErrorOf({"Tile", {}, {x, Ints({2})}}).ok());
  EXPECT_FALSE(ErrorOf({"Tile", {}, {x, Ints({2, -1})}}).ok());
  EXPECT_FALSE(ErrorOf({"Tile", {}, {x, Ints({INT64_MAX, INT64_MAX})}}).ok());
  EXPECT_FALSE(ErrorOf({"Tile", {}, {x, Ints({1 << 20, 1 << 20})}}).ok());
}

Attributes PadMode(const char* mode) {
  Attributes a;
  a.Set("mode", std::string(mode));
  return a;
}

// The source index for position i, or −1, found by walking outwards from the border.
int64_t PadSource(const std::string& mode, int64_t i, int64_t dim) {
  while (i < 0 || i >= dim) {
    if (mode == "constant") return -1;
    if (mode == "edge") {
      i = i < 0 ? 0 : dim - 1;
    } else if (mode == "wrap") {
      i += i < 0 ? dim : -dim;
    } else if (dim == 1) {
      i = 0;
    } else {
      i = i < 0 ? -i : 2 * (dim - 1) - i;
    }
  }
  return i;
}

TEST(PadTest, MatchesTheIndexFormula) {
  std::mt19937 rng(12);
  ReversedTeam team;
  const std::string modes[] = {"constant", "edge", "reflect", "wrap"};
  for (int round = 0; round < 300; ++round) {
    const std::string& mode = modes[round % 4];
    const int rank = static_cast<int>(Pick(rng, 1, 4));
    const int64_t low = mode == "constant" && round % 8 == 0 ? 0 : 1;
    const Shape shape = RandomShape(rng, rank, low, round % 20 == 0 ? 30 : 6);
    const bool named = round % 3 == 0;
    std::vector<int64_t> axes, before, after;
    std::vector<int64_t> first(rank, 0);
    Shape out = shape;
    for (int d = rank - 1; d >= 0; --d) {
      if (named && Pick(rng, 0, 1) == 0) continue;
      axes.push_back(Pick(rng, 0, 1) == 0 ? d : d - rank);
      int64_t b = Pick(rng, -2, 5);
      int64_t a = Pick(rng, -2, 5);
      if (shape[d] + a + b < 0) a = b = 0;
      before.push_back(b);
      after.push_back(a);
      first[d] = b;
      out[d] += a + b;
    }
    if (!named) {
      axes.clear();
      std::reverse(before.begin(), before.end());
      std::reverse(after.begin(), after.end());
    }
    std::vector<int64_t> pads = before;
    pads.insert(pads.end(), after.begin(), after.end());
    const DType dtype = kEveryType[round % 13];
    const Tensor x = RandomBytes(rng, dtype, shape);
    const bool has_value = Pick(rng, 0, 1) == 0;
    const Tensor value = has_value ? RandomBytes(rng, dtype, Shape{}) : Tensor();

    const size_t bytes = DTypeSize(dtype);
    Tensor expected = Tensor::Allocate(dtype, out);
    std::memset(expected.raw(), 0, expected.byte_size());
    int64_t n = 0;
    ForEachIndex(out, [&](const Index& i) {
      char* to = static_cast<char*>(expected.raw()) + bytes * static_cast<size_t>(n++);
      Index from(i);
      bool outside = false;
      for (int d = 0; d < rank; ++d) {
        from[d] = PadSource(mode, i[d] - first[d], shape[d]);
        outside |= from[d] < 0;
      }
      if (!outside) {
        const auto at = static_cast<size_t>(Offset(shape, from));
        std::memcpy(to, static_cast<const char*>(x.raw()) + bytes * at, bytes);
      } else if (has_value) {
        std::memcpy(to, value.raw(), bytes);
      }
    });
    OperatorCall call{"Pad", PadMode(mode.c_str()), {x, Ints(pads), value}};
    if (named) call.inputs.push_back(Ints(axes));
    ExpectSame(RunOne(call, &team), expected);
    call.constants = {1};
    if (named) call.constants.push_back(3);
    ExpectSame(RunOne(call, &team), expected);
  }
}

TEST(PadTest, RefusesImpossiblePads) {
  const Tensor x = Tensor::Allocate(DType::kFloat, Shape{2, 3});
  const Tensor empty = Tensor::Allocate(DType::kFloat, Shape{0, 3});
  EXPECT_FALSE(ErrorOf({"Pad", {}, {x, Ints({0, 0, 0})}}).ok());
  EXPECT_FALSE(ErrorOf({"Pad", {}, {x, Ints({-1, 0, -2, 0})}}).ok());
  EXPECT_FALSE(ErrorOf({"Pad", {}, {x, Ints({INT64_MAX, 0, INT64_MAX, 0})}}).ok());
  EXPECT_FALSE(ErrorOf({"Pad", PadMode("wrapped"), {x, Ints({0, 0, 0, 0})}}).ok());
  EXPECT_FALSE(ErrorOf({"Pad", PadMode("edge"), {empty, Ints({1, 0, 0, 0})}}).ok());
  EXPECT_FALSE(ErrorOf({"Pad", {}, {x, Ints({0, 0, 0, 0}), {}, Ints({0, 0})}}).ok());
  EXPECT_FALSE(ErrorOf({"Pad", {}, {x, Ints({0, 0}), {}, Ints({2})}}).ok());
}

TEST(CenterCropPadTest, MatchesTheIndexFormula) {
  std::mt19937 rng(18);
  for (int round = 0; round < 60; ++round) {
    const int rank = static_cast<int>(Pick(rng, 1, 4));
    const Shape shape = RandomShape(rng, rank, 0, 6);
    Shape out = shape;
    std::vector<int64_t> axes, wanted;
    for (int d = 0; d < rank; ++d) {
      if (round % 2 == 0 && Pick(rng, 0, 1) == 0) continue;
      axes.push_back(round % 4 == 0 ? d - rank : d);
      out[d] = Pick(rng, 0, 7);
      wanted.push_back(out[d]);
    }
    Attributes a;
    if (round % 2 == 0) a.Set("axes", axes);
    const Tensor x = RandomBytes(rng, kEveryType[round % 13], shape);
    const size_t bytes = DTypeSize(x.dtype());
    Tensor expected = Tensor::Allocate(x.dtype(), out);
    std::memset(expected.raw(), 0, expected.byte_size());
    int64_t n = 0;
    ForEachIndex(out, [&](Index i) {
      const auto to = static_cast<size_t>(n++);
      for (int d = 0; d < rank; ++d) {
        i[d] += shape[d] > out[d] ? (shape[d] - out[d]) / 2 : -((out[d] - shape[d]) / 2);
        if (i[d] < 0 || i[d] >= shape[d]) return;
      }
      std::memcpy(static_cast<char*>(expected.raw()) + bytes * to,
                  static_cast<const char*>(x.raw()) + bytes * static_cast<size_t>(Offset(shape, i)),
                  bytes);
    });
    ExpectSame(RunOne({"CenterCropPad", a, {x, Ints(wanted)}}), expected);
  }
  const Tensor x = Tensor::Allocate(DType::kFloat, Shape{2, 3});
  EXPECT_FALSE(ErrorOf({"CenterCropPad", {}, {x, Ints({2})}}).ok());
  EXPECT_FALSE(ErrorOf({"CenterCropPad", {}, {x, Ints({2, -1})}}).ok());
}

Attributes Block(int64_t size, const char* mode = nullptr) {
  Attributes a;
  a.Set("blocksize", size);
  if (mode != nullptr) a.Set("mode", std::string(mode));
  return a;
}

TEST(DepthToSpaceTest, MatchesTheIndexFormulaAndIsUndone) {
  std::mt19937 rng(13);
  for (int round = 0; round < 40; ++round) {
    const int64_t b = Pick(rng, 1, 3);
    const int64_t channels = Pick(rng, 1, 4);
    const Shape in{Pick(rng, 0, 3), channels * b * b, Pick(rng, 1, 6), Pick(rng, 1, 6)};
    const Shape out{in[0], channels, in[2] * b, in[3] * b};
    const Tensor x = RandomBytes(rng, kEveryType[round % 13], in);
    const Tensor dcr = RunOne({"DepthToSpace", Block(b), {x}});
    ExpectSame(dcr, Moved(x, out, [&](const Index& i) {
                 const int64_t block = i[2] % b * b + i[3] % b;
                 return Index{i[0], block * channels + i[1], i[2] / b, i[3] / b};
               }));
    ExpectSame(RunOne({"SpaceToDepth", Block(b), {dcr}}), x);
    ExpectSame(RunOne({"DepthToSpace", Block(b, "CRD"), {x}}), Moved(x, out, [&](const Index& i) {
                 const int64_t block = i[2] % b * b + i[3] % b;
                 return Index{i[0], i[1] * b * b + block, i[2] / b, i[3] / b};
               }));
  }
  const Tensor x = Tensor::Allocate(DType::kFloat, Shape{1, 3, 4, 4});
  EXPECT_FALSE(ErrorOf({"DepthToSpace", Block(2), {x}}).ok());
  EXPECT_FALSE(ErrorOf({"SpaceToDepth", Block(3), {x}}).ok());
  EXPECT_FALSE(ErrorOf({"SpaceToDepth", Block(0), {x}}).ok());
  EXPECT_FALSE(ErrorOf({"SpaceToDepth", Block(INT64_MAX), {x}}).ok());
}

TEST(ReverseSequenceTest, MatchesTheIndexFormula) {
  std::mt19937 rng(14);
  for (int round = 0; round < 40; ++round) {
    const int batch_axis = round % 2;
    const Shape shape = RandomShape(rng, static_cast<int>(Pick(rng, 2, 4)), 1, 6);
    std::vector<int64_t> lengths;
    for (int64_t b = 0; b < shape[batch_axis]; ++b) {
      lengths.push_back(Pick(rng, 0, shape[1 - batch_axis]));
    }
    Attributes a;
    a.Set("batch_axis", int64_t{batch_axis});
    a.Set("time_axis", int64_t{1 - batch_axis});
    const Tensor x = RandomBytes(rng, kEveryType[round % 13], shape);
    ExpectSame(RunOne({"ReverseSequence", a, {x, Ints(lengths)}}), Moved(x, shape, [&](Index i) {
                 const int64_t length = lengths[static_cast<size_t>(i[batch_axis])];
                 int64_t& t = i[1 - batch_axis];
                 if (t < length) t = length - 1 - t;
                 return i;
               }));
    lengths[0] = shape[1 - batch_axis] + 1;
    EXPECT_FALSE(ErrorOf({"ReverseSequence", a, {x, Ints(lengths)}}).ok());
  }
}

}  // namespace
}  // namespace chairlift
