#include "ops/movement/naive.h"

namespace chairlift {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

TEST(Col2ImTest, SumsTheBlocksOfAnImage) {
  std::mt19937 rng(70);
  for (int round = 0; round < 60; ++round) {
    const int axes = static_cast<int>(Pick(rng, 1, 3));
    const int64_t batch = Pick(rng, 0, 2), channels = Pick(rng, 1, 3);
    std::vector<int64_t> image, block, strides, dilations, pads(2 * axes), counts;
    for (int d = 0; d < axes; ++d) {
      block.push_back(Pick(rng, 1, 3));
      strides.push_back(Pick(rng, 1, 3));
      dilations.push_back(Pick(rng, 1, 2));
      pads[d] = Pick(rng, 0, 2);
      pads[d + axes] = Pick(rng, 0, 2);
      image.push_back(dilations[d] * (block[d] - 1) + Pick(rng, 1, 5));
      counts.push_back((image[d] + pads[d] + pads[d + axes] - dilations[d] * (block[d] - 1) - 1) /
                           strides[d] +
                       1);
    }
    const Shape image_shape(image), block_shape(block), count_shape(counts);
    Tensor x = Tensor::Allocate(DType::kFloat, Shape{batch, channels * block_shape.NumElements(),
                                                     count_shape.NumElements()});
    for (int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = static_cast<float>(Pick(rng, 0, 9));
    Attributes a;
    a.Set("strides", strides);
    a.Set("dilations", dilations);
    a.Set("pads", pads);
    // Constants, or known only with the request.
    const std::vector<int> constants = round % 2 == 0 ? std::vector<int>{1, 2} : std::vector<int>{};
    const Tensor y = RunOne({"Col2Im", a, {x, Ints(image), Ints(block)}, 1, "", constants});
    Shape out{batch, channels};
    for (int64_t d : image) out.Append(d);
    ASSERT_EQ(y.shape(), out);
    int64_t at = 0;
    ForEachIndex(out, [&](const Index& o) {
      double sum = 0;
      ForEachIndex(block_shape, [&](const Index& tap) {
        ForEachIndex(count_shape, [&](const Index& b) {
          bool meets = true;
          for (int d = 0; d < axes; ++d) {
            meets = meets && b[d] * strides[d] + tap[d] * dilations[d] - pads[d] == o[d + 2];
          }
          if (!meets) return;
          const int64_t row = o[1] * block_shape.NumElements() + Offset(block_shape, tap);
          sum += static_cast<double>(
              x.data<float>()[Offset(x.shape(), {o[0], row, Offset(count_shape, b)})]);
        });
      });
      ASSERT_EQ(static_cast<double>(y.data<float>()[at++]), sum);
    });
  }
}

TEST(Col2ImTest, RefusesWhatDoesNotFit) {
  const Tensor x = Tensor::Allocate(DType::kFloat, Shape{1, 4, 9});
  const auto error = [&](std::vector<int64_t> image, std::vector<int64_t> block,
                         Attributes a = {}) {
    return ErrorOf({"Col2Im", std::move(a), {x, Ints(image), Ints(block)}});
  };
  EXPECT_TRUE(error({4, 4}, {2, 2}).ok());
  EXPECT_FALSE(error({4, 5}, {2, 2}).ok());
  EXPECT_FALSE(error({4, 4}, {3, 2}).ok());
  EXPECT_FALSE(error({1, 1}, {2, 2}).ok());
  EXPECT_FALSE(error({4, -4}, {2, 2}).ok());
  EXPECT_FALSE(error({4}, {2, 2}).ok());
  EXPECT_FALSE(error({INT64_MAX, INT64_MAX}, {INT64_MAX, INT64_MAX}).ok());
  Attributes a;
  a.Set("strides", std::vector<int64_t>{0, 1});
  EXPECT_FALSE(error({4, 4}, {2, 2}, a).ok());
}

}  // namespace
}  // namespace chairlift
