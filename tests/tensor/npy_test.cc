#include "tensor/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "chairlift/text.h"

namespace chairlift {
namespace {

using ::testing::HasSubstr;

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

TEST(NpyTest, StringsAreReadAndWritten) {
  const auto there_and_back = [](const Shape& shape, const std::vector<std::string>& texts) {
    const auto path =
        std::filesystem::temp_directory_path() / fmt::format("chairlift_npy_text_{}.npy", getpid());
    EXPECT_TRUE(WriteNpy(path, TextTensor(shape, texts)).ok());
    auto read = ReadNpy(path);
    std::filesystem::remove(path);
    EXPECT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->shape(), shape);
    EXPECT_THAT(TextsOf(*read), ::testing::ElementsAreArray(texts));
  };
  there_and_back({2, 2}, {"", "a", "déjà vu", "日本 🚡"});
  there_and_back({2}, {"\xff\xfe", "plain"});  // as bytes
  there_and_back({0, 3}, {});
}

TEST(NpyTest, StringsOfUntrustedFilesAreChecked) {
  const auto file = [](const std::string& descr, const std::string& shape, size_t bytes) {
    std::string dict =
        "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
    dict.resize(118, ' ');
    std::string header = FormatNpyHeader(DType::kFloat, {}).substr(0, 8);
    header += static_cast<char>(118);
    header += '\0';
    return header + dict + std::string(bytes, '\x7f');
  };
  const auto refused = [&](const std::string& descr, const std::string& shape, size_t bytes) {
    return Message(ParseNpy(Bytes(file(descr, shape, bytes))).status());
  };
  EXPECT_THAT(refused("<U2", "(1,)", 8), HasSubstr("is not a Unicode character"));
  EXPECT_THAT(refused("<U2", "(2,)", 8), HasSubstr("truncated"));
  EXPECT_THAT(refused("|S4", "(999999999999,)", 8), HasSubstr("larger than the limit"));
  EXPECT_THAT(refused("<U0", "(4000000000,)", 0), HasSubstr("larger than the limit"));
  EXPECT_THAT(refused("<U99999999999999999999", "(1,)", 8), HasSubstr("not supported"));
}

}  // namespace
}  // namespace chairlift
