#include <gtest/gtest.h>

#include "ops/operator.h"

namespace chairlift {
namespace {

TEST(WeightCacheTest, OneMemoryHasAFormForEachShapeAndName) {
  const Tensor weight = Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  WeightCache cache;
  int packed = 0;
  const auto get = [&](const Tensor& tensor, const char* key) {
    const auto form = cache.Get(tensor, key, [&]() -> StatusOr<Tensor> {
      ++packed;
      return Tensor::Of<float>({1}, {static_cast<float>(packed)});
    });
    EXPECT_TRUE(form.ok());
    return form->data<float>()[0];
  };
  const float form = get(weight, "panels");
  EXPECT_EQ(get(weight, "panels"), form);
  EXPECT_NE(get(weight.Reshaped({3, 2}), "panels"), form);
  EXPECT_NE(get(weight, "other panels"), form);
  EXPECT_EQ(packed, 3);
  EXPECT_EQ(get(weight, "panels"), form);
}

}  // namespace
}  // namespace chairlift
