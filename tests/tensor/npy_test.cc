#include "tensor/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace chairlift {
namespace {

std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

std::string File(const Tensor& tensor) {
  return FormatNpyHeader(tensor.dtype(), tensor.shape()) +
         std::string(static_cast<const char*>(tensor.raw()), tensor.byte_size());
}

TEST(NpyTest, WhatIsFormattedParsesBack) {
  const Tensor tensors[] = {Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6}),
                            Tensor::Scalar<int64_t>(-7), Tensor::Of<bool>({3}, {true, false, true}),
                            Tensor::Of<uint8_t>({0, 4}, {})};
  for (const Tensor& tensor : tensors) {
    const std::string file = File(tensor);
    EXPECT_EQ((file.size() - tensor.byte_size()) % 64, 0u);
    const auto parsed = ParseNpy(Bytes(file));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->dtype(), tensor.dtype());
    EXPECT_EQ(parsed->shape(), tensor.shape());
    EXPECT_EQ(std::memcmp(parsed->raw(), tensor.raw(), tensor.byte_size()), 0);
  }
}

TEST(NpyTest, EveryTruncationIsRefused) {
  const std::string file = File(Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6}));
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(ParseNpy(Bytes(file.substr(0, size))).ok()) << size;
  }
}

TEST(NpyTest, AShapeThatOverflowsIsRefused) {
  std::string file = File(Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6}));
  const size_t at = file.find("(2,3,)");
  file.replace(at, 6, "(4611686018427387904,4,)");
  const auto parsed = ParseNpy(Bytes(file));
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(NpyTest, FortranOrderIsRefusedByName) {
  std::string file = File(Tensor::Of<float>({2}, {1, 2}));
  file.replace(file.find("False"), 5, "True ");
  EXPECT_THAT(Message(ParseNpy(Bytes(file)).status()), ::testing::HasSubstr("Fortran order"));
}

}  // namespace
}  // namespace chairlift
