// Decompresses request bodies a slice at a time, by zlib.
#ifndef CHAIRLIFT_SERVER_HTTP_INFLATE_H_
#define CHAIRLIFT_SERVER_HTTP_INFLATE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "server/http/request_parser.h"

namespace chairlift::http {

// One body. Not thread-safe. The caller bounds the output by the room that it gives.
class Inflater {
 public:
  enum class Progress {
    kMore,    // the room is full: call again with more of it
    kDone,    // the last byte is out, and all of the input was needed for it
    kFailed,  // see error()
  };

  // `compressed` must stay where it is. `coding` is not kIdentity.
  Inflater(ContentCoding coding, std::string_view compressed);
  ~Inflater();

  // Writes at most `room` (> 0) bytes to `out`, `*written` of them.
  Progress Inflate(char* out, size_t room, size_t* written);
  const std::string& error() const;
  bool no_memory() const;  // is the error

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_INFLATE_H_
