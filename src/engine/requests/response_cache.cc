#include "engine/requests/response_cache.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/hash/hash.h"
#include "base/out_of_memory.h"
#include "chairlift/text.h"
#include "engine/requests/request_size.h"

namespace chairlift {
namespace {

// The overhead of an entry, and of a tensor apart from its contents and name: objects, container
// entries, and allocator rounding.
constexpr int64_t kEntryBytes = 512;
constexpr int64_t kTensorBytes = 512;

// All its contents in order: each string, or one piece for other types.
std::vector<std::string_view> PiecesOf(const Tensor& tensor) {
  if (tensor.dtype() == DType::kBytes) {
    const std::span<const std::string_view> texts = TextsOf(tensor);
    return {texts.begin(), texts.end()};
  }
  return {{static_cast<const char*>(tensor.raw()), tensor.byte_size()}};
}

bool Same(const ResponseCache::Key& a, const ResponseCache::Key& b) {
  return a.outputs == b.outputs && std::equal(a.inputs.begin(), a.inputs.end(), b.inputs.begin(),
                                              b.inputs.end(), [](const Tensor& x, const Tensor& y) {
                                                return x.dtype() == y.dtype() &&
                                                       x.shape() == y.shape() &&
                                                       PiecesOf(x) == PiecesOf(y);
                                              });
}

std::vector<NamedTensor> Copies(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> copies;
  copies.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) copies.push_back({name, tensor.Clone()});
  return copies;
}

}  // namespace

ResponseCache::Key ResponseCache::KeyOf(const ValidatedRequest& request) {
  Key key{.inputs = request.inputs, .outputs = request.outputs, .digest = 0};
  if (request.draw) key.inputs.push_back(Tensor::Of<int64_t>({1}, {*request.draw}));
  // The seed differs in every process: clients cannot choose inputs with equal digests.
  using Mixed = std::tuple<uint64_t, DType, std::vector<int64_t>, std::vector<std::string_view>>;
  key.digest = absl::Hash<std::vector<int>>()(key.outputs);
  for (const Tensor& input : key.inputs) {
    const std::vector<int64_t> dims(input.shape().begin(), input.shape().end());
    key.digest = absl::Hash<Mixed>()({key.digest, input.dtype(), dims, PiecesOf(input)});
  }
  return key;
}

std::optional<std::vector<NamedTensor>> ResponseCache::Find(const Key& key) {
  std::shared_ptr<const Entry> entry;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = by_digest_.find(key.digest);
    if (found == by_digest_.end()) return std::nullopt;
    entry = *found->second;
  }
  if (!Same(entry->key, key)) return std::nullopt;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = by_digest_.find(key.digest);
    if (found != by_digest_.end()) entries_.splice(entries_.begin(), entries_, found->second);
  }
  return Copies(entry->outputs);
}

void ResponseCache::Insert(const Key& key, const std::vector<NamedTensor>& outputs) {
  int64_t bytes = kEntryBytes;
  const auto add = [&](const Tensor& tensor, size_t name) {
    bytes += kTensorBytes + HeldBytes(tensor) + static_cast<int64_t>(name);
  };
  for (const Tensor& input : key.inputs) add(input, 0);
  for (const auto& [name, tensor] : outputs) add(tensor, name.size());
  if (bytes > max_bytes_) return;
  const auto copy = [&]() -> StatusOr<std::shared_ptr<Entry>> {
    auto entry = std::make_shared<Entry>();
    entry->key.outputs = key.outputs;
    entry->key.digest = key.digest;
    entry->key.inputs.reserve(key.inputs.size());
    for (const Tensor& input : key.inputs) entry->key.inputs.push_back(input.Clone());
    entry->outputs = Copies(outputs);
    entry->bytes = bytes;
    return entry;
  };
  StatusOr<std::shared_ptr<Entry>> entry = CatchOutOfMemory(copy);
  if (!entry.ok()) return;

  const MemoryReserve::Use use;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = by_digest_.find(key.digest);
  if (found != by_digest_.end()) Erase(found->second);
  while (bytes_ + bytes > max_bytes_) Erase(std::prev(entries_.end()));
  entries_.push_front(*std::move(entry));
  by_digest_[key.digest] = entries_.begin();
  bytes_ += bytes;
}

void ResponseCache::Erase(Entries::iterator entry) {
  bytes_ -= (*entry)->bytes;
  by_digest_.erase((*entry)->key.digest);
  entries_.erase(entry);
}

int64_t ResponseCache::bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bytes_;
}

}  // namespace chairlift
