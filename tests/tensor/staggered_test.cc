#include "tensor/staggered.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>

namespace chairlift {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

uintptr_t Address(const Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.raw()); }

TEST(StaggeredTest, TensorsThatAreFilledTogetherNeedTheirNextHugePagesInTurns) {
  const std::vector<Shape> shapes(24, Shape{64, 12, 16, 256});  // 12 MiB
  const std::vector<Tensor> tensors = AllocateStaggered(DType::kFloat, shapes);
  ASSERT_EQ(tensors.size(), shapes.size());
  std::set<uintptr_t> pages;  // that have been written to
  const auto fill = [&](int64_t bytes) {
    const size_t before = pages.size();
    for (const Tensor& tensor : tensors) {
      pages.insert((Address(tensor) + static_cast<uintptr_t>(bytes) - 1) / kHugePage);
    }
    return pages.size() - before;
  };
  fill(1);
  constexpr int64_t kStep = kHugePage / 24;
  for (int64_t bytes = kStep; bytes <= int64_t{8} << 20; bytes += kStep) {
    EXPECT_LE(fill(bytes), 2u) << bytes;
  }
}

TEST(StaggeredTest, TensorsAreApartAndAligned) {
  for (const int64_t blocks : {0, 1, 7, 160, 161}) {
    std::vector<Shape> shapes;
    for (int64_t i = 0; i < 5; ++i) shapes.push_back({blocks + i, 4, 16, 257});
    std::vector<Tensor> tensors = AllocateStaggered(DType::kFloat, shapes);
    for (size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_EQ(tensors[i].shape(), shapes[i]);
      EXPECT_EQ(Address(tensors[i]) % 64, 0u);
      std::fill_n(tensors[i].data<float>(), tensors[i].size(), static_cast<float>(i));
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto values = tensors[i].values<float>();
      EXPECT_EQ(std::count(values.begin(), values.end(), static_cast<float>(i)),
                static_cast<std::ptrdiff_t>(values.size()));
    }
  }
}

TEST(StaggeredTest, OneOutlivesTheOthers) {
  Tensor last;
  {
    const std::vector<Shape> shapes(3, Shape{int64_t{3} << 20});
    last = AllocateStaggered(DType::kFloat, shapes).back();
  }
  std::fill_n(last.data<float>(), last.size(), 1.0f);
  EXPECT_EQ(last.values<float>().back(), 1.0f);
}

}  // namespace
}  // namespace chairlift
