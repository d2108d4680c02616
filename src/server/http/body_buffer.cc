// Allocation and accounting of request bodies.
#include "server/http/body_buffer.h"

#include <cstring>
#include <new>

#include "server/http/oip_codec.h"

namespace chairlift::http {
namespace {

constexpr size_t kAlignment = 64;

}  // namespace

std::shared_ptr<BodyBuffer> BodyBuffer::Create(size_t capacity, size_t aligned_byte,
                                               std::shared_ptr<BodyBudget> budget,
                                               int64_t budget_bytes) {
  const size_t lead = (kAlignment - aligned_byte % kAlignment) % kAlignment;
  const size_t bytes = lead + capacity + kBodyPadding;
  const auto charge = static_cast<int64_t>(bytes);
  if (budget->fetch_add(charge) + charge > budget_bytes) {
    budget->fetch_sub(charge);
    return nullptr;
  }
  std::shared_ptr<BodyBuffer> buffer(new BodyBuffer());
  buffer->charged_ = charge;
  buffer->budget_ = std::move(budget);
  buffer->allocation_ =
      static_cast<char*>(::operator new (bytes, std::align_val_t{kAlignment}, std::nothrow));
  if (buffer->allocation_ == nullptr) return nullptr;
  buffer->data_ = buffer->allocation_ + lead;
  buffer->capacity_ = capacity;
  std::memset(buffer->data_ + capacity, 0, kBodyPadding);
  return buffer;
}

BodyBuffer::~BodyBuffer() {
  ::operator delete (allocation_, std::align_val_t{kAlignment});
  budget_->fetch_sub(charged_);
}

void BodyBuffer::Append(std::string_view bytes) {
  std::memcpy(end(), bytes.data(), bytes.size());
  Extend(bytes.size());
}

}  // namespace chairlift::http
