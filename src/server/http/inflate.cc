// The only file that includes zlib.
#include "server/http/inflate.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>

namespace chairlift::http {
namespace {

constexpr int kLargestWindow = 15;
constexpr int kGzipFormat = 16;  // added to the window; without it: the zlib format, RFC 1950

uInt AtMostUInt(size_t bytes) {
  return static_cast<uInt>(std::min<size_t>(bytes, std::numeric_limits<uInt>::max()));
}

}  // namespace

struct Inflater::Impl {
  const char* name;
  std::string_view left;  // input that was not passed to zlib yet
  z_stream stream{};
  bool ready = false;
  bool no_memory = false;
  std::string error;
};

Inflater::Inflater(ContentCoding coding, std::string_view compressed)
    : impl_(std::make_unique<Impl>()) {
  const bool gzip = coding == ContentCoding::kGzip;
  impl_->name = gzip ? "gzip" : "deflate";
  impl_->left = compressed;
  impl_->ready = ::inflateInit2(&impl_->stream, kLargestWindow + (gzip ? kGzipFormat : 0)) == Z_OK;
}

Inflater::~Inflater() {
  if (impl_->ready) ::inflateEnd(&impl_->stream);
}

const std::string& Inflater::error() const { return impl_->error; }
bool Inflater::no_memory() const { return impl_->no_memory; }

Inflater::Progress Inflater::Inflate(char* out, size_t room, size_t* written) {
  *written = 0;
  const auto fail = [this](std::string why) {
    impl_->error = fmt::format("Content-Encoding {}: {}", impl_->name, why);
    return Progress::kFailed;
  };
  impl_->no_memory = !impl_->ready;
  if (!impl_->ready) return fail("no memory to undo it");
  z_stream& stream = impl_->stream;
  while (*written < room) {
    if (stream.avail_in == 0) {
      stream.avail_in = AtMostUInt(impl_->left.size());
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(impl_->left.data()));
      impl_->left.remove_prefix(stream.avail_in);
    }
    stream.next_out = reinterpret_cast<Bytef*>(out + *written);
    const uInt offered = AtMostUInt(room - *written);
    stream.avail_out = offered;
    const int result = ::inflate(&stream, Z_NO_FLUSH);
    *written += offered - stream.avail_out;
    if (result == Z_STREAM_END) {
      const size_t behind = stream.avail_in + impl_->left.size();
      if (behind == 0) return Progress::kDone;
      return fail(fmt::format("{} bytes follow the end of the compressed data", behind));
    }
    if (result == Z_BUF_ERROR) return fail("the body ends before the compressed data does");
    if (result == Z_NEED_DICT) return fail("a preset dictionary is not supported");
    impl_->no_memory = result == Z_MEM_ERROR;
    if (result == Z_MEM_ERROR) return fail("no memory to undo it");
    if (result != Z_OK) {
      return fail(fmt::format("the body is not in that format ({})",
                              stream.msg != nullptr ? stream.msg : "zlib error"));
    }
  }
  return Progress::kMore;
}

}  // namespace chairlift::http
