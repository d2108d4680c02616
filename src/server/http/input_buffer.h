// Bytes read from a connection and not yet consumed.
#ifndef CHAIRLIFT_SERVER_HTTP_INPUT_BUFFER_H_
#define CHAIRLIFT_SERVER_HTTP_INPUT_BUFFER_H_

#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>

#include "server/http/oip_codec.h"

namespace chairlift::http {

// Contiguous, with kBodyPadding readable bytes past the end, so that a body can be parsed in place.
// Only Reserve() may move the bytes.
class InputBuffer {
 public:
  explicit InputBuffer(size_t capacity) : capacity_(capacity), data_(New(capacity)) {}

  bool empty() const { return begin_ == end_; }
  std::string_view view() const { return {data_.get() + begin_, end_ - begin_}; }
  void Consume(size_t bytes) {
    begin_ += bytes;
    if (begin_ == end_ && !pinned_) begin_ = end_ = 0;
  }
  void Clear() { Consume(end_ - begin_); }

  // Where the next read writes, and its maximum size.
  char* room_begin() { return data_.get() + end_; }
  size_t room() const { return capacity_ - end_; }
  void Extend(size_t bytes) { end_ += bytes; }

  // During a read, the room must not move: Extend() adds the bytes that were read before the pin is
  // removed.
  void Pin(bool pinned) {
    pinned_ = pinned;
    if (!pinned && begin_ == end_) begin_ = end_ = 0;
  }

  // Makes room by moving the bytes to the front and growing up to `largest`. Not while pinned.
  void Reserve(size_t largest) {
    if (begin_ > 0) {
      std::memmove(data_.get(), data_.get() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    if (room() > 0 || capacity_ >= largest) return;
    const size_t grown = std::min(largest, capacity_ * 2);
    std::unique_ptr<char[]> larger = New(grown);
    std::memcpy(larger.get(), data_.get(), end_);
    data_ = std::move(larger);
    capacity_ = grown;
  }

 private:
  static std::unique_ptr<char[]> New(size_t capacity) {
    return std::make_unique<char[]>(capacity + kBodyPadding);
  }

  size_t capacity_;
  size_t begin_ = 0;
  size_t end_ = 0;
  bool pinned_ = false;
  std::unique_ptr<char[]> data_;
};

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_INPUT_BUFFER_H_
