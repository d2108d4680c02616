// Decompresses request bodies a slice at a time, by zlib.
#ifndef CHAIRLIFT_SERVER_HTTP_INFLATE_H_
#define CHAIRLIFT_SERVER_HTTP_INFLATE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "server/http/request_parser.h"

namespace chairlift::http {

// One body. Not thread-safe. The caller bounds the output by the room that it passes.
class Inflater {
 public:
  enum class Progress {
    kMore,    // the room is full: call again with more
    kDone,    // the last byte was written, and all input was used
    kFailed,  // see error()
  };

  // `compressed` must stay valid. `coding` is not kIdentity.
  Inflater(ContentCoding coding, std::string_view compressed);
  ~Inflater();

  // Writes `*written` ≤ `room` (> 0) bytes to `out`.
  Progress Inflate(char* out, size_t room, size_t* written);
  const std::string& error() const;
  bool no_memory() const;  // whether the error is a lack of memory

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_INFLATE_H_
