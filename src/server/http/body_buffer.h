// A request body that did not arrive whole with its header, counted against the server's budget.
#ifndef CHAIRLIFT_SERVER_HTTP_BODY_BUFFER_H_
#define CHAIRLIFT_SERVER_HTTP_BODY_BUFFER_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <string_view>

namespace chairlift::http {

// Bytes held by all bodies of a server; outlives it while a tensor borrows from one of them.
using BodyBudget = std::atomic<int64_t>;

// Filled from the front. Its bytes do not move once it is full, so that tensors may borrow them.
class BodyBuffer {
 public:
  // Room for `capacity` bytes, of which byte `aligned_byte` (the end of the JSON, where binary
  // tensors start) lies on a multiple of 64. Null where the budget or memory is spent.
  static std::shared_ptr<BodyBuffer> Create(size_t capacity, size_t aligned_byte,
                                            std::shared_ptr<BodyBudget> budget,
                                            int64_t budget_bytes);
  ~BodyBuffer();
  BodyBuffer(const BodyBuffer&) = delete;
  BodyBuffer& operator=(const BodyBuffer&) = delete;

  size_t room() const { return capacity_ - size_; }
  char* end() { return data_ + size_; }
  void Extend(size_t bytes) { size_ += bytes; }
  void Append(std::string_view bytes);  // at most room()
  std::string_view view() const { return {data_, size_}; }

 private:
  BodyBuffer() = default;

  char* allocation_ = nullptr;
  char* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
  int64_t charged_ = 0;
  std::shared_ptr<BodyBudget> budget_;
};

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_BODY_BUFFER_H_
