// Resize to the nearest element, against whole numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "ops/movement/naive.h"

namespace chairlift {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

// The nearest element by the specification, in whole numbers: position = numerator / denominator.
int64_t Nearest(const std::string& transform, const std::string& nearest, int64_t o, int64_t in,
                int64_t out) {
  const bool aligned = transform == "align_corners", centers = transform == "half_pixel";
  const int64_t numerator = aligned   ? 2 * o * (in - 1)
                            : centers ? (2 * o + 1) * in - out
                                      : 2 * o * in;
  const int64_t denominator = 2 * (aligned ? out - 1 : out);
  const auto floor = [=](int64_t n, int64_t d) { return n / d - (n % d < 0 ? 1 : 0); };
  int64_t i = floor(numerator, denominator);
  if (nearest == "ceil") i = -floor(-numerator, denominator);
  if (nearest == "round_prefer_ceil") i = floor(2 * numerator + denominator, 2 * denominator);
  if (nearest == "round_prefer_floor") i = -floor(denominator - 2 * numerator, 2 * denominator);
  return std::clamp<int64_t>(i, 0, in - 1);
}

// 7 / 13 and the like are no floats, whether they are given as sizes or as scales.
TEST(ResizeTest, TheNearestElementIsExactWhereLengthsAre) {
  for (int64_t in = 2; in < 14; ++in) {
    Tensor x = Tensor::Allocate(DType::kFloat, Shape{in});
    for (int64_t i = 0; i < in; ++i) x.data<float>()[i] = static_cast<float>(i);
    for (int64_t out = 2; out < 27; ++out) {
      const float scale = static_cast<float>(out) / static_cast<float>(in);
      for (const char* transform : {"align_corners", "half_pixel", "asymmetric"}) {
        for (const char* nearest : {"floor", "ceil", "round_prefer_floor", "round_prefer_ceil"}) {
          Attributes attributes;
          attributes.Set("mode", std::string("nearest"));
          attributes.Set("coordinate_transformation_mode", std::string(transform));
          attributes.Set("nearest_mode", std::string(nearest));
          for (const bool by_sizes : {true, false}) {
            const Tensor y = RunOne(
                by_sizes ? OperatorCall{"Resize", attributes, {x, Tensor(), Tensor(), Ints({out})}}
                         : OperatorCall{"Resize",
                                        attributes,
                                        {x, Tensor(), Tensor::Of<float>(Shape{1}, {scale})}});
            if (!by_sizes && y.size() != out) continue;  // the scale was rounded down
            for (int64_t o = 0; o < out; ++o) {
              ASSERT_EQ(y.data<float>()[o],
                        static_cast<float>(Nearest(transform, nearest, o, in, out)))
                  << transform << " " << nearest << " " << in << " to " << out << " at " << o;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace chairlift
