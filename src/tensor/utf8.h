// Characters of UTF-8 strings.
#ifndef CHAIRLIFT_TENSOR_UTF8_H_
#define CHAIRLIFT_TENSOR_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace chairlift {

inline bool IsCodePoint(uint32_t code) {
  return code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
}

// The code point at the start of a text that is not empty, and its length in bytes. Length 0: it is
// not UTF-8.
inline std::pair<uint32_t, size_t> FirstCodePoint(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return {byte(0), 1};
  const size_t size = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : byte(0) >= 0xC2 ? 2 : 0;
  if (size == 0 || size > text.size()) return {0, 0};
  uint32_t code = byte(0) & (0x7Fu >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {0, 0};
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // by size
  if (code < kLeast[size] || !IsCodePoint(code)) return {0, 0};
  return {code, size};
}

inline void AppendCodePoint(uint32_t code, std::string& to) {
  const auto put = [&](uint32_t byte) { to.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xE0 | code >> 12);
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
    }
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

}  // namespace chairlift

#endif  // CHAIRLIFT_TENSOR_UTF8_H_
