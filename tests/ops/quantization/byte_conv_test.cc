// Convolutions and pooling of bytes, bit by bit against plain loops: with fixed weights and others,
// with channels first and last, at the ends of the ranges.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "ops/operator_harness.h"
#include "ops/quantization/rounding.h"
#include "ops/quantization/scale_ratio.h"

namespace chairlift {
namespace byte_conv_test {

using testing::OperatorCall;
using testing::RunOperator;

int32_t ByteAt(const Tensor& t, int64_t i) {
  return t.dtype() == DType::kInt8 ? t.data<int8_t>()[i] : t.data<uint8_t>()[i];
}
Tensor Bytes(bool is_signed, const Shape& shape, std::mt19937& random, bool extreme = false) {
  Tensor t = Tensor::Allocate(is_signed ? DType::kInt8 : DType::kUInt8, shape);
  std::uniform_int_distribution<int> byte(0, 255);
  for (int64_t i = 0; i < t.size(); ++i) {
    const int least = is_signed ? 0x80 : 0x00, most = is_signed ? 0x7f : 0xff;
    static_cast<uint8_t*>(t.raw())[i] = static_cast<uint8_t>(!extreme                ? byte(random)
                                                             : byte(random) % 8 == 0 ? least
                                                                                     : most);
  }
  return t;
}

struct Conv2d {
  int64_t batch, channels, height, width, outputs, kernel_y, kernel_x, groups = 1;
  std::vector<int64_t> strides = {1, 1}, dilations = {1, 1}, pads = {0, 0, 0, 0};

  int64_t Out(int axis) const {
    const int64_t in = axis == 0 ? height : width, kernel = axis == 0 ? kernel_y : kernel_x;
    return (in + pads[axis] + pads[axis + 2] - (kernel - 1) * dilations[axis] - 1) / strides[axis] +
           1;
  }
  Attributes attributes() const {
    Attributes a;
    a.Set("group", groups);
    a.Set("strides", strides);
    a.Set("dilations", dilations);
    a.Set("pads", pads);
    return a;
  }
  Shape x() const { return {batch, channels, height, width}; }
  Shape w() const { return {outputs, channels / groups, kernel_y, kernel_x}; }
  Shape y() const { return {batch, outputs, Out(0), Out(1)}; }
};

std::vector<Conv2d> Cases() {
  return {
      // One tap: as it lies, and gathered.
      {2, 7, 5, 6, 9, 1, 1},
      {1, 64, 9, 8, 70, 1, 1},
      {1, 5, 9, 8, 33, 1, 1, 1, {2, 3}, {1, 1}, {1, 0, 0, 2}},
      // Pictures.
      {2, 3, 23, 21, 16, 7, 7, 1, {2, 2}, {1, 1}, {3, 3, 3, 3}},
      {1, 3, 10, 11, 17, 3, 3, 1, {2, 2}, {1, 1}, {0, 0, 1, 1}},
      // Several tasks, of which the last repeats rows.
      {3, 40, 19, 18, 130, 3, 3, 1, {1, 1}, {1, 1}, {1, 1, 1, 1}},
      {1, 33, 9, 7, 18, 3, 2, 1, {1, 2}, {3, 2}, {3, 1, 2, 4}},
      // Groups.
      {2, 12, 8, 7, 18, 3, 3, 3, {1, 1}, {1, 1}, {1, 1, 1, 1}},
      {1, 6, 9, 8, 12, 3, 3, 6, {2, 1}, {1, 2}, {2, 2, 0, 1}},
      // One filter for each channel: less and more than a vector, and an odd number.
      {2, 3, 9, 8, 3, 3, 3, 3, {1, 1}, {1, 1}, {1, 1, 1, 1}},
      {1, 16, 7, 9, 16, 5, 5, 16, {1, 1}, {1, 1}, {2, 2, 2, 2}},
      {2, 37, 15, 14, 37, 3, 3, 37, {2, 2}, {1, 1}, {0, 1, 1, 0}},
      {1, 48, 40, 9, 48, 5, 3, 48, {2, 1}, {2, 3}, {4, 3, 4, 3}},
      {1, 24, 6, 30, 24, 2, 4, 24},
      {1, 20, 4, 4, 20, 3, 3, 20, {3, 3}, {2, 2}, {5, 6, 4, 3}},
  };
}

// Calls visit(output element, channel, sum) in order of the output.
template <typename F>
void Sums(const Conv2d& p, const Tensor& x, int32_t x_zero, const Tensor& w, const Tensor& w_zero,
          F visit) {
  const int64_t own = p.channels / p.groups;
  int64_t at = 0;
  for (int64_t n = 0; n < p.batch; ++n) {
    for (int64_t m = 0; m < p.outputs; ++m) {
      const int32_t zero = !w_zero.present()    ? 0
                           : w_zero.size() == 1 ? ByteAt(w_zero, 0)
                                                : ByteAt(w_zero, m);
      for (int64_t oy = 0; oy < p.Out(0); ++oy) {
        for (int64_t ox = 0; ox < p.Out(1); ++ox, ++at) {
          int64_t sum = 0;
          for (int64_t c = 0; c < own; ++c) {
            const int64_t plane = n * p.channels + m / (p.outputs / p.groups) * own + c;
            for (int64_t ty = 0; ty < p.kernel_y; ++ty) {
              for (int64_t tx = 0; tx < p.kernel_x; ++tx) {
                const int64_t iy = oy * p.strides[0] + ty * p.dilations[0] - p.pads[0];
                const int64_t ix = ox * p.strides[1] + tx * p.dilations[1] - p.pads[1];
                if (iy < 0 || iy >= p.height || ix < 0 || ix >= p.width) continue;
                sum += (ByteAt(x, (plane * p.height + iy) * p.width + ix) - x_zero) *
                       (ByteAt(w, ((m * own + c) * p.kernel_y + ty) * p.kernel_x + tx) - zero);
              }
            }
          }
          visit(at, m, static_cast<int32_t>(static_cast<uint32_t>(sum)));
        }
      }
    }
  }
}

// [N, C, H, W] as [N, H, W, C].
Tensor ToLast(const Tensor& t) {
  const Shape& s = t.shape();
  Tensor out = Tensor::Allocate(t.dtype(), Shape{s[0], s[2], s[3], s[1]});
  const int64_t size = s[2] * s[3];
  for (int64_t i = 0; i < t.size(); ++i) {
    const int64_t n = i / (s[1] * size), c = i / size % s[1], p = i % size;
    static_cast<uint8_t*>(out.raw())[(n * size + p) * s[1] + c] =
        static_cast<const uint8_t*>(t.raw())[i];
  }
  return out;
}

TEST(ByteConvTest, SumsAreExactWithFixedWeightsAndOthers) {
  std::mt19937 random(7);
  int variant = 0;
  for (const Conv2d& p : Cases()) {
    for (int options = 0; options < 12; ++options, ++variant) {
      const bool x_signed = variant % 2 != 0, w_signed = variant / 2 % 2 != 0;
      const bool extreme = variant / 4 % 2 != 0;
      SCOPED_TRACE(::testing::Message()
                   << p.x().ToString() << " * " << p.w().ToString() << " variant " << variant);
      const Tensor x = Bytes(x_signed, p.x(), random, extreme);
      const Tensor w = Bytes(w_signed, p.w(), random, extreme);
      const Tensor x_zero = Bytes(x_signed, Shape{}, random, extreme);
      Tensor w_zero;
      if (options % 3 == 1) w_zero = Bytes(w_signed, Shape{}, random, extreme);
      if (options % 3 == 2) w_zero = Bytes(w_signed, Shape{p.outputs}, random, extreme);
      for (const bool fixed : {false, true}) {
        OperatorCall call{
            .name = "ConvInteger", .attributes = p.attributes(), .inputs = {x, w, x_zero, w_zero}};
        if (fixed) call.constants = w_zero.present() ? std::vector{1, 3} : std::vector{1};
        const auto got = RunOperator(call);
        ASSERT_TRUE(got.ok()) << got.status();
        ASSERT_EQ((*got)[0].shape(), p.y());
        const int32_t* y = (*got)[0].data<int32_t>();
        Sums(p, x, ByteAt(x_zero, 0), w, w_zero, [&](int64_t i, int64_t, int32_t sum) {
          ASSERT_EQ(y[i], sum) << "element " << i << " fixed " << fixed;
        });
      }
    }
  }
}

TEST(ByteConvTest, BytesAreRoundedOnceInEitherOrderOfAxes) {
  std::mt19937 random(8);
  int variant = 0;
  for (const Conv2d& p : Cases()) {
    for (int options = 0; options < 4; ++options, ++variant) {
      const bool is_signed = variant % 2 != 0, extreme = variant / 2 % 4 == 0;
      const bool clamped = variant / 2 % 2 != 0;
      SCOPED_TRACE(::testing::Message()
                   << p.x().ToString() << " * " << p.w().ToString() << " variant " << variant);
      const Tensor x = Bytes(is_signed, p.x(), random, extreme), w = Bytes(true, p.w(), random);
      const Tensor x_zero = Bytes(is_signed, Shape{}, random);
      const Tensor y_zero = Bytes(is_signed, Shape{}, random);
      const Tensor w_zero = Tensor::Scalar(int8_t{0});
      Tensor w_scale = Tensor::Allocate(DType::kFloat, Shape{p.outputs});
      Tensor bias = Tensor::Allocate(DType::kInt32, Shape{p.outputs});
      const double spread = 40.0 * std::sqrt(static_cast<double>(p.w().NumElements(1, 4)));
      std::uniform_real_distribution<float> uniform(0.5f, 1.0f);
      std::uniform_int_distribution<int32_t> whole(-50000, 50000);
      for (int64_t c = 0; c < p.outputs; ++c) {
        w_scale.data<float>()[c] = uniform(random) / static_cast<float>(spread);
        bias.data<int32_t>()[c] = whole(random);
      }
      const float x_scale = 0.3f, y_scale = 0.25f;
      Attributes attributes = p.attributes();
      const int32_t bottom = is_signed ? -128 : 0;
      const int32_t low = clamped ? bottom + 40 : bottom, high = bottom + (clamped ? 200 : 255);
      if (clamped) {
        attributes.Set("low", int64_t{low});
        attributes.Set("high", int64_t{high});
      }
      Tensor expected = Tensor::Allocate(x.dtype(), p.y());
      Sums(p, x, ByteAt(x_zero, 0), w, w_zero, [&](int64_t i, int64_t m, int32_t sum) {
        const float factor = ScaleRatio(x_scale, w_scale.data<float>()[m], y_scale);
        const float real = static_cast<float>(sum + bias.data<int32_t>()[m]) * factor;
        const int32_t zero = ByteAt(y_zero, 0);
        const int32_t byte = is_signed ? int32_t{Quantize<int8_t>(real, zero)}
                                       : int32_t{Quantize<uint8_t>(real, zero)};
        static_cast<uint8_t*>(expected.raw())[i] =
            static_cast<uint8_t>(std::clamp(byte, low, high));
      });
      for (const bool last : {false, true}) {
        for (const bool fixed : {false, true}) {
          Attributes own = attributes;
          own.Set("channels_last", int64_t{last});
          OperatorCall call{.name = "QLinearConv",
                            .attributes = own,
                            .inputs = {last ? ToLast(x) : x, Tensor::Scalar(x_scale), x_zero, w,
                                       w_scale, w_zero, Tensor::Scalar(y_scale), y_zero, bias},
                            .domain = "chairlift"};
          if (fixed) call.constants = {1, 2, 3, 4, 5, 6, 7, 8};
          const auto got = RunOperator(call);
          ASSERT_TRUE(got.ok()) << got.status();
          const Tensor y = last ? ToLast(expected) : expected;
          ASSERT_EQ((*got)[0].shape(), y.shape());
          for (int64_t i = 0; i < y.size(); ++i) {
            ASSERT_EQ(ByteAt((*got)[0], i), ByteAt(y, i))
                << "element " << i << " last " << last << " fixed " << fixed;
          }
        }
      }
    }
  }
}

TEST(ByteConvTest, LongSumsOfExtremesAreExact) {
  std::mt19937 random(9);
  const Conv2d p{1, 700, 4, 5, 19, 3, 3};
  for (const bool x_signed : {false, true}) {
    const Tensor x = Bytes(x_signed, p.x(), random, true);
    Tensor w = Tensor::Allocate(DType::kInt8, p.w());
    std::fill_n(w.data<int8_t>(), w.size(), int8_t{-128});
    const Tensor zero = x_signed ? Tensor::Scalar(int8_t{-128}) : Tensor::Scalar(uint8_t{0});
    const auto got = RunOperator({.name = "ConvInteger",
                                  .attributes = p.attributes(),
                                  .inputs = {x, w, zero, Tensor()},
                                  .constants = {1}});
    ASSERT_TRUE(got.ok()) << got.status();
    Sums(p, x, ByteAt(zero, 0), w, Tensor(), [&](int64_t i, int64_t, int32_t sum) {
      ASSERT_EQ((*got)[0].data<int32_t>()[i], sum) << "element " << i;
    });
  }
}

TEST(ByteMaxPoolTest, GivesWhatMaxPoolGives) {
  std::mt19937 random(10);
  for (const bool is_signed : {false, true}) {
    for (const int64_t ceil : {0, 1}) {
      const Tensor x = Bytes(is_signed, Shape{2, 19, 11, 9}, random);
      Attributes a = testing::Attrs({{"kernel_shape", std::vector<int64_t>{3, 2}},
                                     {"strides", std::vector<int64_t>{2, 3}},
                                     {"pads", std::vector<int64_t>{1, 0, 2, 1}},
                                     {"dilations", std::vector<int64_t>{2, 1}},
                                     {"ceil_mode", ceil}});
      const auto first = RunOperator({.name = "MaxPool", .attributes = a, .inputs = {x}});
      const auto last = RunOperator(
          {.name = "ByteMaxPool", .attributes = a, .inputs = {ToLast(x)}, .domain = "chairlift"});
      ASSERT_TRUE(first.ok() && last.ok()) << first.status() << last.status();
      const Tensor expected = ToLast((*first)[0]);
      ASSERT_EQ((*last)[0].shape(), expected.shape());
      EXPECT_EQ(std::memcmp((*last)[0].raw(), expected.raw(), static_cast<size_t>(expected.size())),
                0);
    }
  }
}

}  // namespace byte_conv_test
}  // namespace chairlift
