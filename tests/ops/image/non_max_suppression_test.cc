#include <algorithm>
#include <set>

#include "ops/movement/naive.h"

namespace chairlift {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

double Iou(const float* a, const float* b) {
  const auto side = [](const float* r, int i) {
    return std::pair(static_cast<double>(std::min(r[i], r[i + 2])),
                     static_cast<double>(std::max(r[i], r[i + 2])));
  };
  double both = 1, first = 1, second = 1;
  for (int i = 0; i < 2; ++i) {
    const auto [a0, a1] = side(a, i);
    const auto [b0, b1] = side(b, i);
    both *= std::max(0.0, std::min(a1, b1) - std::max(a0, b0));
    first *= a1 - a0;
    second *= b1 - b0;
  }
  return both / (first + second - both);
}

// What the choice must satisfy, checked without repeating the algorithm.
TEST(NonMaxSuppressionTest, ChoosesEveryBoxThatNoBetterChosenOneOverlaps) {
  std::mt19937 rng(60);
  std::uniform_real_distribution<float> uniform(0, 1);
  for (int round = 0; round < 20; ++round) {
    const int64_t batch = 2, classes = 2, count = Pick(rng, 0, 30);
    Tensor boxes = Tensor::Allocate(DType::kFloat, Shape{batch, count, 4});
    Tensor scores = Tensor::Allocate(DType::kFloat, Shape{batch, classes, count});
    for (int64_t i = 0; i < boxes.size(); ++i) boxes.data<float>()[i] = uniform(rng);
    for (int64_t i = 0; i < scores.size(); ++i) scores.data<float>()[i] = uniform(rng);
    const float threshold = 0.3f, lowest = 0.2f;
    const Tensor rows = RunOne({"NonMaxSuppression",
                                {},
                                {boxes, scores, Tensor::Scalar<int64_t>(1000),
                                 Tensor::Scalar(threshold), Tensor::Scalar(lowest)}});
    ASSERT_EQ(rows.shape().rank(), 2);
    ASSERT_EQ(rows.shape()[1], 3);
    std::set<std::vector<int64_t>> chosen;
    for (int64_t r = 0; r < rows.shape()[0]; ++r) {
      const int64_t* row = rows.data<int64_t>() + 3 * r;
      chosen.insert({row[0], row[1], row[2]});
    }
    ASSERT_EQ(static_cast<int64_t>(chosen.size()), rows.shape()[0]);
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t c = 0; c < classes; ++c) {
        const float* score = scores.data<float>() + (b * classes + c) * count;
        const float* box = boxes.data<float>() + b * count * 4;
        for (int64_t i = 0; i < count; ++i) {
          bool overlapped = false;
          for (int64_t j = 0; j < count; ++j) {
            overlapped |= score[j] > score[i] && chosen.contains({b, c, j}) &&
                          Iou(box + 4 * i, box + 4 * j) > static_cast<double>(threshold);
          }
          EXPECT_EQ(chosen.contains({b, c, i}), score[i] > lowest && !overlapped);
        }
      }
    }
  }
}

TEST(NonMaxSuppressionTest, KeepsTheBestFirstAndNoMoreThanAsked) {
  const Tensor boxes = Tensor::Of<float>(Shape{1, 3, 4}, {0, 0, 1, 1, 0, 2, 1, 3, 0, 4, 1, 5});
  const Tensor scores = Tensor::Of<float>(Shape{1, 1, 3}, {0.1f, 0.9f, 0.5f});
  const Tensor two = RunOne({"NonMaxSuppression", {}, {boxes, scores, Ints({2})}});
  EXPECT_EQ(std::vector<int64_t>(two.values<int64_t>().begin(), two.values<int64_t>().end()),
            (std::vector<int64_t>{0, 0, 1, 0, 0, 2}));
  EXPECT_EQ(RunOne({"NonMaxSuppression", {}, {boxes, scores}}).shape(), (Shape{0, 3}));
  EXPECT_FALSE(ErrorOf({"NonMaxSuppression", {}, {boxes, scores.Reshaped({1, 3, 1})}}).ok());
  EXPECT_FALSE(ErrorOf({"NonMaxSuppression", {}, {boxes, scores, Ints({1, 2})}}).ok());
  EXPECT_FALSE(
      ErrorOf({"NonMaxSuppression", {}, {boxes, scores, Ints({1}), Tensor::Scalar(2.0f)}}).ok());
}

}  // namespace
}  // namespace chairlift
