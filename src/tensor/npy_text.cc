#include "tensor/npy_text.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>
#include <vector>

#include "chairlift/text.h"
#include "tensor/utf8.h"

namespace chairlift {
namespace {

constexpr size_t kCodePointBytes = 4;

// Nothing if the text is not UTF-8.
std::optional<std::vector<uint32_t>> CodePoints(std::string_view text) {
  std::vector<uint32_t> codes;
  while (!text.empty()) {
    const auto [code, size] = FirstCodePoint(text);
    if (size == 0) return std::nullopt;
    codes.push_back(code);
    text.remove_prefix(size);
  }
  return codes;
}

}  // namespace

std::optional<NpyText> NpyTextType(std::string_view descr) {
  if (descr.size() < 4) return std::nullopt;
  const std::string_view kind = descr.substr(1, 2);
  if (kind != "<U" && kind != "|S") return std::nullopt;
  NpyText type{.code_points = kind == "<U"};
  constexpr size_t kWidest = size_t{1} << 28;
  const auto [end, error] =
      std::from_chars(descr.data() + 3, descr.data() + descr.size(), type.width);
  if (error != std::errc() || type.width > kWidest) return std::nullopt;
  return type;
}

StatusOr<Tensor> ParseNpyText(const NpyText& type, const Shape& shape, std::string_view data) {
  constexpr int64_t kMostBytes = int64_t{1} << 32;
  CHAIRLIFT_ASSIGN_OR_RETURN(
      const int64_t count, shape.Checked(std::max(type.bytes(), sizeof(std::string)), kMostBytes));
  if (data.size() < static_cast<size_t>(count) * type.bytes()) {
    return InvalidArgument(
        "the file is truncated: shape {} of strings of {} bytes needs {} bytes, "
        "the file has {}",
        shape.ToString(), type.bytes(), static_cast<size_t>(count) * type.bytes(), data.size());
  }
  std::vector<std::string> texts(static_cast<size_t>(count));
  for (std::string& text : texts) {
    std::string_view own = data.substr(0, type.bytes());
    data.remove_prefix(type.bytes());
    own = own.substr(0, own.find_last_not_of('\0') + 1);
    if (!type.code_points) {
      text = own;
      continue;
    }
    for (size_t at = 0; at < own.size(); at += kCodePointBytes) {
      uint32_t code = 0;
      for (size_t i = 0; i < std::min(kCodePointBytes, own.size() - at); ++i) {
        code |= static_cast<uint32_t>(static_cast<unsigned char>(own[at + i])) << (8 * i);
      }
      if (!IsCodePoint(code)) return InvalidArgument("{} is not a Unicode character", code);
      AppendCodePoint(code, text);
    }
  }
  return TextTensor(shape, std::move(texts));
}

NpyTextArray FormatNpyText(const Tensor& tensor) {
  std::vector<std::vector<uint32_t>> decoded;
  size_t codes = 1, bytes = 1;  // NumPy has no strings of width 0
  bool utf8 = true;
  for (const std::string_view text : TextsOf(tensor)) {
    bytes = std::max(bytes, text.size());
    auto own = CodePoints(text);
    utf8 = utf8 && own.has_value();
    if (!utf8) continue;
    codes = std::max(codes, own->size());
    decoded.push_back(*std::move(own));
  }
  NpyTextArray array;
  if (!utf8) {
    array.descr = fmt::format("|S{}", bytes);
    for (const std::string_view text : TextsOf(tensor)) {
      array.data.append(text).append(bytes - text.size(), '\0');
    }
    return array;
  }
  array.descr = fmt::format("<U{}", codes);
  for (std::vector<uint32_t>& own : decoded) {
    own.resize(codes, 0);
    for (const uint32_t code : own) {
      for (size_t i = 0; i < kCodePointBytes; ++i) {
        array.data.push_back(static_cast<char>(code >> (8 * i) & 0xFF));
      }
    }
  }
  return array;
}

}  // namespace chairlift
