// Compressed bodies for tests.
#ifndef CHAIRLIFT_TESTS_SERVER_COMPRESSED_H_
#define CHAIRLIFT_TESTS_SERVER_COMPRESSED_H_

#include <gtest/gtest.h>
#include <zlib.h>

#include <string>
#include <string_view>

namespace chairlift {

// Values of zlib's windowBits.
inline constexpr int kGzip = 15 + 16;
inline constexpr int kZlib = 15;

inline std::string Compressed(std::string_view bytes, int format) {
  z_stream stream{};
  EXPECT_EQ(::deflateInit2(&stream, 9, Z_DEFLATED, format, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(::deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(::deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  ::deflateEnd(&stream);
  return out;
}

}  // namespace chairlift

#endif  // CHAIRLIFT_TESTS_SERVER_COMPRESSED_H_
