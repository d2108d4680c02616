// Memory of request bodies: small ones from the allocator, large ones as separate mappings, which
// grow without a copy and return to the system when they are freed.
#include "server/http/body_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <utility>

#include "server/http/oip_codec.h"

namespace chairlift::http {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kMapFrom = size_t{256} << 10;

size_t WholePages(size_t bytes) {
  static const auto kPage = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + kPage - 1) / kPage * kPage;
}

struct Memory {
  char* data = nullptr;
  size_t mapped = 0;
};

Memory Allocate(size_t bytes) {
  if (bytes < kMapFrom) {
    return {static_cast<char*>(::operator new (bytes, std::align_val_t{kAlignment}, std::nothrow))};
  }
  const size_t mapped = WholePages(bytes);
  void* const data =
      ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return {};
  return {static_cast<char*>(data), mapped};
}

void Free(Memory memory) {
  if (memory.mapped == 0) return ::operator delete (memory.data, std::align_val_t{kAlignment});
  ::munmap(memory.data, memory.mapped);
}

}  // namespace

std::shared_ptr<BodyBuffer> BodyBuffer::Create(size_t capacity, size_t aligned_byte,
                                               std::shared_ptr<ByteBudget> budget) {
  std::shared_ptr<BodyBuffer> buffer(new BodyBuffer());
  buffer->budget_ = std::move(budget);
  buffer->lead_ = (kAlignment - aligned_byte % kAlignment) % kAlignment;
  if (!buffer->Grow(capacity)) return nullptr;
  return buffer;
}

BodyBuffer::~BodyBuffer() {
  Free({allocation_, mapped_});
  if (budget_ != nullptr) budget_->Give(static_cast<int64_t>(size_));
}

bool BodyBuffer::Grow(size_t capacity) {
  const size_t bytes = lead_ + capacity + kBodyPadding;
  if (mapped_ > 0) {
    const size_t mapped = WholePages(bytes);
    void* const moved = ::mremap(allocation_, mapped_, mapped, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED) return false;
    allocation_ = static_cast<char*>(moved);
    mapped_ = mapped;
  } else {
    const Memory memory = Allocate(bytes);
    if (memory.data == nullptr) return false;
    if (size_ > 0) std::memcpy(memory.data + lead_, data(), size_);
    Free({allocation_, 0});
    allocation_ = memory.data;
    mapped_ = memory.mapped;
  }
  capacity_ = capacity;
  if (mapped_ == 0) std::memset(allocation_ + lead_ + capacity, 0, kBodyPadding);
  return true;
}

const ByteBudget* BodyBuffer::Extend(size_t bytes) {
  const ByteBudget* const lacking = budget_->Take(static_cast<int64_t>(bytes));
  if (lacking == nullptr) size_ += bytes;
  return lacking;
}

const ByteBudget* BodyBuffer::Append(std::string_view bytes) {
  if (!bytes.empty()) std::memcpy(end(), bytes.data(), bytes.size());
  return Extend(bytes.size());
}

}  // namespace chairlift::http
