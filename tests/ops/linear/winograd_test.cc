#include "ops/linear/winograd.h"

#include <vector>

#include "device/cpu/isa.h"
#include "ops/linear/reference.h"
#include "ops/operator_harness.h"
#include "ops/simd_targets.h"
#include "ops/thread_team.h"

namespace chairlift::testing {
namespace winograd_test {

struct WinogradCase {
  int64_t batch, channels, out_channels, height, width, pad_top, pad_left, out_height, out_width;
  bool bias, residual;
  std::string activation;
};

std::vector<double> Reference(const WinogradCase& c, const std::vector<double>& x,
                              const std::vector<double>& w, const std::vector<double>& bias,
                              const std::vector<double>& residual) {
  std::vector<double> y;
  for (int64_t n = 0; n < c.batch; ++n) {
    for (int64_t o = 0; o < c.out_channels; ++o) {
      for (int64_t oy = 0; oy < c.out_height; ++oy) {
        for (int64_t ox = 0; ox < c.out_width; ++ox) {
          double sum = bias.empty() ? 0 : bias[o];
          if (!residual.empty()) sum += residual[y.size()];
          for (int64_t i = 0; i < c.channels; ++i) {
            for (int64_t t = 0; t < 9; ++t) {
              const int64_t iy = oy + t / 3 - c.pad_top, ix = ox + t % 3 - c.pad_left;
              if (iy < 0 || ix < 0 || iy >= c.height || ix >= c.width) continue;
              sum += x[((n * c.channels + i) * c.height + iy) * c.width + ix] *
                     w[(o * c.channels + i) * 9 + t];
            }
          }
          y.push_back(ReferenceActivation(c.activation, -8, 9, sum));
        }
      }
    }
  }
  return y;
}

void Check(const WinogradCase& c, Team& team) {
  const Tensor x = RandomTensor(DType::kFloat, {c.batch, c.channels, c.height, c.width}, -1, 1, 1);
  const Tensor w = RandomTensor(DType::kFloat, {c.out_channels, c.channels, 3, 3}, -1, 1, 2);
  const Shape out_shape{c.batch, c.out_channels, c.out_height, c.out_width};
  const Tensor bias = RandomTensor(DType::kFloat, {c.out_channels}, -1, 1, 3);
  const Tensor residual = RandomTensor(DType::kFloat, out_shape, -1, 1, 4);

  Convolution convolution;
  convolution.dtype = DType::kFloat;
  convolution.batch = c.batch;
  convolution.channels = c.channels;
  convolution.out_channels = c.out_channels;
  convolution.in = {c.height, c.width};
  convolution.out = {c.out_height, c.out_width};
  convolution.kernel = {3, 3};
  convolution.strides = convolution.dilations = {1, 1};
  convolution.pads_begin = {c.pad_top, c.pad_left};
  convolution.bias_input = c.bias ? 2 : -1;
  convolution.residual_input = c.residual ? 3 : -1;
  Attributes attributes;
  attributes.Set("activation", c.activation);
  attributes.Set("activation_alpha", -8.0f);
  attributes.Set("activation_beta", 9.0f);
  const auto activation = Activation::Parse(attributes);
  ASSERT_TRUE(activation.ok());
  convolution.activation = *activation;

  const TensorDesc inputs[] = {{DType::kFloat, x.shape(), Layout::kChannelBlocked},
                               {DType::kFloat, w.shape()},
                               {DType::kFloat, bias.shape()},
                               {DType::kFloat, out_shape, Layout::kChannelBlocked}};
  const TensorDesc outputs[] = {{DType::kFloat, out_shape, Layout::kChannelBlocked}};
  const Tensor* const constants[] = {nullptr, &w, nullptr, nullptr};
  WeightCache weights;
  const auto kernel = CompileWinogradConvolution(
      convolution, {attributes, inputs, outputs, constants, weights, team.width()});
  ASSERT_TRUE(kernel.ok()) << kernel.status();

  const Tensor blocked_x = ToBlocks(x), blocked_residual = ToBlocks(residual);
  Tensor y = Tensor::Allocate(DType::kFloat, outputs[0].StoredShape());
  Tensor scratch =
      Tensor::Allocate(DType::kUInt8, Shape{static_cast<int64_t>((*kernel)->scratch_bytes())});
  const void* in[] = {blocked_x.raw(), w.raw(), bias.raw(), blocked_residual.raw()};
  void* out[] = {y.raw()};
  ASSERT_TRUE((*kernel)->Run({in, out, scratch.raw(), team, 0}).ok());
  const auto want =
      Reference(c, AsDoubles(x), AsDoubles(w), c.bias ? AsDoubles(bias) : std::vector<double>(),
                c.residual ? AsDoubles(residual) : std::vector<double>());
  ExpectNear(FromBlocks(y, out_shape), want, 1e-5,
             fmt::format("{}x{}x{}x{} to {} channels, width {}", c.batch, c.channels, c.height,
                         c.width, c.out_channels, team.width()));
}

TEST(WinogradTest, AgreesWithTheSumOverTaps) {
  if (ActiveCpuIsa() == CpuIsa::kBaseline) GTEST_SKIP() << "needs AVX2";
  RestrictSimdTargets();
  const WinogradCase cases[] = {
      {1, 32, 32, 12, 12, 1, 1, 12, 12, false, false, ""},
      {1, 32, 48, 13, 15, 1, 1, 13, 15, true, false, "Relu"},       // overhang, half a panel
      {2, 64, 32, 14, 14, 0, 0, 12, 12, true, true, "Clip"},        // no padding
      {1, 48, 64, 28, 28, 1, 1, 28, 28, false, true, "Relu"},       // 49 tiles: the whole image
      {3, 32, 32, 17, 30, 1, 1, 17, 30, true, true, "Silu"},        // several blocks, odd
      {1, 32, 32, 60, 60, 2, 0, 61, 58, true, false, "HardSwish"},  // uneven padding, many tiles
      {1, 400, 32, 12, 12, 1, 1, 12, 12, true, false, ""},          // two blocks of channels
      {2, 40, 56, 13, 12, 1, 1, 13, 12, true, true, "Relu"},        // filled up
      {1, 33, 41, 12, 12, 1, 1, 12, 12, false, false, ""},          // and odd
  };
  SoloTeam solo;
  ThreadTeam two(2);
  for (const WinogradCase& c : cases) {
    Check(c, solo);
    Check(c, two);
  }
}

TEST(WinogradTest, WhatItCannotComputeIsLeftToOthers) {
  Convolution c;
  c.dtype = DType::kFloat;
  c.batch = 1;
  c.channels = c.out_channels = 64;
  c.in = c.out = {28, 28};
  c.kernel = {3, 3};
  c.strides = {2, 2};
  c.dilations = {1, 1};
  c.pads_begin = {1, 1};
  WeightCache weights;
  const Attributes attributes;
  const TensorDesc inputs[] = {{DType::kFloat, {1, 64, 28, 28}, Layout::kChannelBlocked},
                               {DType::kFloat, {64, 64, 3, 3}}};
  const TensorDesc outputs[] = {{DType::kFloat, {1, 64, 28, 28}, Layout::kChannelBlocked}};
  const CompileContext context{attributes, inputs, outputs, {}, weights};
  EXPECT_EQ(CompileWinogradConvolution(c, context).status().code(),
            absl::StatusCode::kUnimplemented);
  c.strides = {1, 1};  // but the weights are not constant
  EXPECT_EQ(CompileWinogradConvolution(c, context).status().code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace winograd_test
}  // namespace chairlift::testing
