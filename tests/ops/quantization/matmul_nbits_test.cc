// MatMulNBits against sums in double over what its codes stand for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ops/operator_harness.h"
#include "ops/quantization/blockwise.h"
#include "ops/quantization/round_to_bytes.h"
#include "ops/random_tensor.h"
#include "ops/thread_team.h"

namespace chairlift {
namespace {

using testing::AsDoubles;
using testing::Attrs;
using testing::OperatorCall;
using testing::RandomTensor;
using testing::RunOperator;
using testing::ThreadTeam;

enum class Zeros { kNone, kPacked, kFloat, kMiddle };

struct Case {
  int64_t m, n, k, block;
  int64_t bits = 4;
  Zeros zeros = Zeros::kNone;
  bool bias = false, residual = false;
  std::string activation = {};
  bool constant = true;
  int64_t accuracy_level = 0;

  int64_t blocks() const { return (k + block - 1) / block; }
};

uint32_t seed = 1;

OperatorCall CallOf(const Case& c) {
  const int64_t zero_bytes = (c.blocks() * c.bits + 7) / 8;
  OperatorCall call{.name = "MatMulNBits",
                    .attributes = Attrs({{"K", c.k},
                                         {"N", c.n},
                                         {"bits", c.bits},
                                         {"block_size", c.block},
                                         {"activation", c.activation},
                                         {"accuracy_level", c.accuracy_level}}),
                    .domain = "chairlift"};
  const auto floats = [](const Shape& shape, double low, double high) {
    return RandomTensor(DType::kFloat, shape, low, high, seed++);
  };
  call.inputs = {
      floats({c.m, c.k}, -1, 1),
      RandomTensor(DType::kUInt8, {c.n, c.blocks(), c.block * c.bits / 8}, 0, 256, seed++),
      c.bias ? floats({c.n}, -1, 1) : Tensor(), c.residual ? floats({c.m, c.n}, -1, 1) : Tensor(),
      floats({c.n, c.blocks()}, -0.1, 0.1)};
  switch (c.zeros) {
    case Zeros::kNone:
      break;
    case Zeros::kPacked:
      call.inputs.push_back(RandomTensor(DType::kUInt8, {c.n, zero_bytes}, 0, 256, seed++));
      break;
    case Zeros::kFloat:
      call.inputs.push_back(floats({c.n * c.blocks()}, 0, 1 << c.bits));
      break;
    case Zeros::kMiddle:  // what models without zero points mean
      call.inputs.push_back(RandomTensor(DType::kUInt8, {c.n * zero_bytes},
                                         c.bits == 8 ? 128 : 0x88, c.bits == 8 ? 129 : 0x89, 1));
      break;
  }
  if (c.constant) call.constants = {1, 4, 5};
  if (call.inputs.size() < 6) call.inputs.emplace_back();
  return call;
}

double Code(const std::vector<double>& bytes, int64_t first, int64_t i, int64_t bits) {
  if (bits == 8) return bytes[static_cast<size_t>(first + i)];
  const auto byte = static_cast<int>(bytes[static_cast<size_t>(first + i / 2)]);
  return i % 2 == 0 ? byte & 15 : byte >> 4;
}

// Want, and how far rounding may lead from it.
struct Answer {
  double value = 0, tolerance = 0;
};
std::vector<Answer> Reference(const Case& c, const OperatorCall& call) {
  const auto codes = AsDoubles(call.inputs[1]), scales = AsDoubles(call.inputs[4]);
  auto a = AsDoubles(call.inputs[0]);
  if (c.zeros != Zeros::kFloat) testing::RoundToBytes(call.attributes, a);
  const auto optional = [&](size_t i) {
    return call.inputs[i].present() ? AsDoubles(call.inputs[i]) : std::vector<double>();
  };
  const auto bias = optional(2), residual = optional(3), zeros = optional(5);
  const int64_t code_bytes = c.block * c.bits / 8, zero_bytes = (c.blocks() * c.bits + 7) / 8;
  std::vector<Answer> answers;
  for (int64_t m = 0; m < c.m; ++m) {
    for (int64_t n = 0; n < c.n; ++n) {
      double sum = 0, size = 0;
      for (int64_t k = 0; k < c.k; ++k) {
        const int64_t b = k / c.block, at = n * c.blocks() + b;
        double zero = c.bits == 8 ? 128 : 8;
        if (c.zeros == Zeros::kFloat) zero = zeros[static_cast<size_t>(at)];
        if (c.zeros == Zeros::kPacked) zero = Code(zeros, n * zero_bytes, b, c.bits);
        const double code = Code(codes, at * code_bytes, k % c.block, c.bits);
        const double x = a[static_cast<size_t>(m * c.k + k)] * scales[static_cast<size_t>(at)];
        sum += x * (code - zero);
        size += std::abs(x) * (c.bits == 8 ? 256 : 16);
      }
      if (!bias.empty()) sum += bias[static_cast<size_t>(n)];
      if (!residual.empty()) sum += residual[static_cast<size_t>(m * c.n + n)];
      if (c.activation == "Relu") sum = std::max(sum, 0.0);
      answers.push_back({sum, 6e-8 * (8 + std::sqrt(static_cast<double>(c.k))) * (size + 2)});
    }
  }
  return answers;
}

void Check(const Case& c) {
  SCOPED_TRACE(fmt::format("m={} n={} k={} block={} bits={} zeros={} constant={}", c.m, c.n, c.k,
                           c.block, c.bits, static_cast<int>(c.zeros), c.constant));
  const OperatorCall call = CallOf(c);
  const std::vector<Answer> want = Reference(c, call);
  for (const int width : {1, 3}) {
    ThreadTeam team(width);
    const auto got = RunOperator(call, &team);
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ((*got)[0].shape(), (Shape{c.m, c.n}));
    const auto y = (*got)[0].values<float>();
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(y[i], want[i].value, want[i].tolerance) << "element " << i;
    }
  }
}

TEST(MatMulNBitsTest, AnyRowsColumnsAndBlocks) {
  for (const int64_t m : {1, 2, 3, 5, 7, 12, 13, 24, 25, 60, 150}) {
    for (const int64_t n : {1, 31, 32, 33, 70}) {
      for (const auto& [k, block] : {std::pair<int64_t, int64_t>{64, 32}, {16, 16}, {128, 128}}) {
        for (const int64_t bits : {4, 8}) Check({m, n, k, block, bits});
      }
    }
  }
}

TEST(MatMulNBitsTest, ColumnsThatEndInsideABlock) {
  for (const int64_t m : {1, 4, 40}) {
    for (const int64_t k : {1, 15, 33, 100, 250}) {
      for (const int64_t bits : {4, 8}) {
        for (const Zeros zeros : {Zeros::kNone, Zeros::kPacked}) Check({m, 40, k, 32, bits, zeros});
      }
    }
  }
}

TEST(MatMulNBitsTest, ZeroPoints) {
  for (const int64_t m : {1, 6, 14, 50}) {
    for (const int64_t k :
         {96, 160}) {  // of 4 bits, an odd number of blocks fills its last byte up
      for (const int64_t bits : {4, 8}) {
        for (const Zeros zeros : {Zeros::kPacked, Zeros::kFloat, Zeros::kMiddle}) {
          Check({m, 45, k, 32, bits, zeros});
        }
      }
    }
  }
}

TEST(MatMulNBitsTest, BiasResidualAndActivation) {
  for (const int64_t m : {1, 9, 24, 64}) {
    Check({m, 75, 64, 32, 4, Zeros::kPacked, true, true, "Relu"});
    Check({m, 75, 64, 16, 4, Zeros::kNone, true});
    Check({m, 64, 64, 16, 8, Zeros::kNone, false, true, "Relu"});
  }
}

TEST(MatMulNBitsTest, WeightsThatAreNoConstants) {
  for (const int64_t m : {1, 9, 64}) {
    for (const Zeros zeros : {Zeros::kNone, Zeros::kPacked, Zeros::kFloat, Zeros::kMiddle}) {
      Check({.m = m, .n = 45, .k = 72, .block = 16, .zeros = zeros, .constant = false});
    }
  }
}

TEST(MatMulNBitsTest, RowsRoundedToBytes) {
  for (const int64_t m : {1, 2, 5, 12, 13, 50, 121, 260}) {
    for (const int64_t bits : {4, 8}) {
      for (const auto& [k, block] : {std::pair<int64_t, int64_t>{96, 32}, {70, 16}, {128, 128}}) {
        for (const Zeros zeros : {Zeros::kNone, Zeros::kPacked, Zeros::kFloat}) {
          Check({.m = m,
                 .n = 45,
                 .k = k,
                 .block = block,
                 .bits = bits,
                 .zeros = zeros,
                 .accuracy_level = 4});
        }
      }
    }
  }
  Check({.m = 9,
         .n = 75,
         .k = 64,
         .block = 32,
         .zeros = Zeros::kPacked,
         .bias = true,
         .residual = true,
         .activation = "Relu",
         .accuracy_level = 4});
  Check({.m = 3,
         .n = 40,
         .k = 40,
         .block = 16,
         .zeros = Zeros::kFloat,
         .constant = false,
         .accuracy_level = 4});
  Check({.m = 20, .n = 1030, .k = 1024, .block = 32, .accuracy_level = 4});
}

// They fit 32 bits, however large the codes are.
TEST(MatMulNBitsTest, SumsOverTheLongestBlock) {
  OperatorCall call = CallOf(
      {.m = 1, .n = 2, .k = kLongestBlock, .block = kLongestBlock, .bits = 8, .accuracy_level = 4});
  std::fill_n(call.inputs[0].data<float>(), kLongestBlock, -1.0f);
  std::fill_n(call.inputs[1].data<uint8_t>(), kLongestBlock, uint8_t{0});
  std::fill_n(call.inputs[1].data<uint8_t>() + kLongestBlock, kLongestBlock, uint8_t{255});
  std::fill_n(call.inputs[4].data<float>(), 2, 1.0f);
  const auto got = RunOperator(call);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_FLOAT_EQ((*got)[0].data<float>()[0], 128.0f * kLongestBlock);
  EXPECT_FLOAT_EQ((*got)[0].data<float>()[1], -127.0f * kLongestBlock);
}

// A block that is 0 or tiny, and one that has no finite scale: its row alone is NaN.
TEST(MatMulNBitsTest, RowsRoundedToBytesOfAnySize) {
  OperatorCall call = CallOf({.m = 4, .n = 33, .k = 64, .block = 32, .accuracy_level = 4});
  auto* a = call.inputs[0].data<float>();
  std::fill_n(a, 32, 0.0f);
  std::fill_n(a + 32, 32, 1e-38f);
  for (int i = 0; i < 64; ++i) a[64 + i] *= 1e36f;
  a[2 * 64 + 7] = std::numeric_limits<float>::quiet_NaN();
  a[3 * 64 + 40] = std::numeric_limits<float>::infinity();
  const auto got = RunOperator(call);
  ASSERT_TRUE(got.ok()) << got.status();
  const auto y = (*got)[0].values<float>();
  for (int64_t n = 0; n < 33; ++n) {
    EXPECT_NEAR(y[static_cast<size_t>(n)], 0.0f, 1e-30f);
    EXPECT_TRUE(std::isfinite(y[static_cast<size_t>(33 + n)]));
    EXPECT_TRUE(std::isnan(y[static_cast<size_t>(66 + n)]));
    // An infinity stays one in float32.
    const bool nan = std::isnan(y[static_cast<size_t>(99 + n)]);
    EXPECT_EQ(nan, CanMultiplyBytes());
  }
}

TEST(MatMulNBitsTest, RowsThatCrowdIntoOneCacheSet) {
  for (const int64_t m : {4, 5, 12, 24, 30}) Check({m, 40, 1024, 64});
}

// Shared out to workers, in parts of rows and of columns.
TEST(MatMulNBitsTest, LargeOnesInParts) {
  Check({300, 96, 512, 32, 4, Zeros::kPacked});
  Check({2, 520, 512, 32, 4, Zeros::kPacked});
  Check({150, 33, 2048, 128});
}

TEST(MatMulNBitsTest, NothingOfNothing) { Check({0, 32, 64, 32}); }

TEST(MatMulNBitsTest, BatchesAndHalfFloats) {
  OperatorCall call = CallOf({6, 40, 64, 32, 4, Zeros::kPacked, true});
  const auto flat = RunOperator(call);
  ASSERT_TRUE(flat.ok()) << flat.status();
  call.inputs[0] = call.inputs[0].Reshaped(Shape{2, 3, 64});
  const auto batched = RunOperator(call);
  ASSERT_TRUE(batched.ok()) << batched.status();
  EXPECT_EQ((*batched)[0].shape(), (Shape{2, 3, 40}));
  EXPECT_THAT(AsDoubles((*batched)[0]), ::testing::ElementsAreArray(AsDoubles((*flat)[0])));

  Tensor half = Tensor::Allocate(DType::kFloat16, Shape{6, 64});
  for (int64_t i = 0; i < half.size(); ++i) {
    half.data<Float16>()[i] = Float16(call.inputs[0].data<float>()[i]);
    call.inputs[0].data<float>()[i] = static_cast<float>(half.data<Float16>()[i]);
  }
  const auto want = RunOperator(call);
  call.inputs[0] = half;
  const auto got = RunOperator(call);
  ASSERT_TRUE(want.ok() && got.ok()) << got.status();
  EXPECT_EQ((*got)[0].dtype(), DType::kFloat16);
  const auto x = AsDoubles((*got)[0]), y = AsDoubles((*want)[0]);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 1e-3 * (1 + std::abs(y[i])));
}

// The same codes with other scales, and with other zero points, in one model.
TEST(MatMulNBitsTest, CodesThatSeveralNodesShare) {
  WeightCache weights;
  OperatorCall call = CallOf({2, 40, 64, 32, 4, Zeros::kPacked});
  const OperatorDef* def = OperatorRegistry::Builtin().Find("chairlift", "MatMulNBits");
  ASSERT_NE(def, nullptr);
  const auto run = [&] {
    std::vector<TensorDesc> inputs;
    std::vector<const Tensor*> constants;
    std::vector<const void*> data;
    for (const Tensor& t : call.inputs) {
      inputs.push_back({t.dtype(), t.shape()});
      constants.push_back(constants.empty() || !t.present() ? nullptr : &t);
      data.push_back(t.present() ? t.raw() : nullptr);
    }
    const TensorDesc out{DType::kFloat, Shape{2, 40}};
    const auto kernel =
        CompileOperator(*def, {call.attributes, inputs, {&out, 1}, constants, weights});
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    std::vector<float> y(80), scratch((*kernel)->scratch_bytes() / sizeof(float) + 16);
    void* outputs[] = {y.data()};
    SoloTeam team;
    EXPECT_TRUE((*kernel)->Run({data, outputs, scratch.data(), team, 0}).ok());
    return y;
  };
  const auto first = run();
  const Tensor scales = call.inputs[4], zeros = call.inputs[5];
  call.inputs[4] = RandomTensor(DType::kFloat, Shape{40, 2}, 0.2, 0.3, 99);
  EXPECT_NE(run(), first);
  call.inputs[4] = scales;
  call.inputs[5] = Tensor();
  EXPECT_NE(run(), first);
  call.inputs[5] = zeros;
  EXPECT_EQ(run(), first);
}

TEST(MatMulNBitsTest, RefusesWhatDoesNotFit) {
  const auto error = [](const char* name, int64_t value) {
    OperatorCall call = CallOf({2, 40, 64, 32});
    call.attributes.Set(name, value);
    return std::string(RunOperator(call).status().message());
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(error("bits", 2), HasSubstr("weights of 2 bits are not supported (4 and 8 are)"));
  EXPECT_THAT(error("block_size", 24), HasSubstr("it must be a power of two from 16 to 65536"));
  EXPECT_THAT(error("block_size", 8), HasSubstr("block_size is 8"));
  EXPECT_THAT(error("block_size", int64_t{1} << 17), HasSubstr("block_size is 131072"));
  EXPECT_THAT(error("block_size", int64_t{1} << 62), HasSubstr("block_size is"));
  EXPECT_THAT(error("K", 65), HasSubstr("A is [2,64], but K is 65"));
  EXPECT_THAT(error("K", 0), HasSubstr("attributes K and N are 0 and 40"));
  EXPECT_THAT(error("N", 41),
              HasSubstr("B is [40,2,16]; with these attributes it must be [41,2,16]"));
  const auto resized = [](size_t input, DType dtype, const Shape& shape) {
    OperatorCall call = CallOf({2, 40, 64, 32, 4, Zeros::kPacked, true});
    call.inputs[input] = RandomTensor(dtype, shape, 0, 1, 1);
    return std::string(RunOperator(call).status().message());
  };
  EXPECT_THAT(resized(4, DType::kFloat, {79}), HasSubstr("scales [79] must have 80 elements"));
  EXPECT_THAT(resized(5, DType::kUInt8, {41}), HasSubstr("zero_points [41] must have 40 elements"));
  EXPECT_THAT(resized(5, DType::kFloat, {40}), HasSubstr("zero_points [40] must have 80 elements"));
  EXPECT_THAT(resized(2, DType::kFloat, {39}), HasSubstr("the bias [39] must have 40 elements"));
  EXPECT_THAT(resized(3, DType::kFloat, {3, 40}), HasSubstr("must have the product's shape"));
}

}  // namespace
}  // namespace chairlift
