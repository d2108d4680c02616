// A request body that did not arrive completely with its header, counted in a budget.
#ifndef CHAIRLIFT_SERVER_HTTP_BODY_BUFFER_H_
#define CHAIRLIFT_SERVER_HTTP_BODY_BUFFER_H_

#include <cstddef>
#include <memory>
#include <string_view>

#include "base/byte_budget.h"

namespace chairlift::http {

// Filled from the front. Its content is charged, its free room is not. Only Grow() moves its bytes,
// so tensors may borrow them once it is full. kBodyPadding bytes after it are readable.
class BodyBuffer {
 public:
  // Room for `capacity` bytes; byte `aligned_byte` (the end of the JSON, where binary tensors
  // start) is aligned to 64 bytes. Null if there is no memory.
  static std::shared_ptr<BodyBuffer> Create(size_t capacity, size_t aligned_byte,
                                            std::shared_ptr<ByteBudget> budget);
  ~BodyBuffer();
  BodyBuffer(const BodyBuffer&) = delete;
  BodyBuffer& operator=(const BodyBuffer&) = delete;

  // Takes microseconds: pages are moved, not copied. False, with nothing changed, if there is no
  // memory.
  [[nodiscard]] bool Grow(size_t capacity);

  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }
  size_t room() const { return capacity_ - size_; }
  std::string_view view() const { return {data(), size_}; }

  char* end() { return allocation_ + lead_ + size_; }
  // Adds the bytes that were written at end() and returns null. Otherwise returns the budget that
  // lacks the room, and adds nothing.
  [[nodiscard]] const ByteBudget* Extend(size_t bytes);
  // Adds at most room() bytes; otherwise like Extend().
  [[nodiscard]] const ByteBudget* Append(std::string_view bytes);

 private:
  BodyBuffer() = default;
  const char* data() const { return allocation_ + lead_; }

  char* allocation_ = nullptr;
  size_t lead_ = 0;    // bytes before the first one
  size_t mapped_ = 0;  // bytes of the mapping; 0: memory of the allocator
  size_t size_ = 0;
  size_t capacity_ = 0;
  std::shared_ptr<ByteBudget> budget_;
};

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_BODY_BUFFER_H_
