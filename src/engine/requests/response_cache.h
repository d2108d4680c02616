// Cached answers of one version of a model to requests that are equal byte for byte.
#ifndef CHAIRLIFT_ENGINE_REQUESTS_RESPONSE_CACHE_H_
#define CHAIRLIFT_ENGINE_REQUESTS_RESPONSE_CACHE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "chairlift/engine.h"
#include "engine/requests/validate.h"

namespace chairlift {

// Bounded by the bytes of inputs and outputs together; the least recently used answer is dropped
// first. It is freed with its model: answers never outlive the version that computed them.
//
// Thread-safe.
class ResponseCache {
 public:
  explicit ResponseCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // What identifies a request: its inputs with bytes and shapes, and the requested outputs in
  // order.
  struct Key {
    std::vector<Tensor> inputs;
    std::vector<int> outputs;
    uint64_t digest = 0;
  };
  // Shares the request's tensors: they must not be written to while the key is in use.
  static Key KeyOf(const ValidatedRequest& request);

  // A copy of the answer, owned by the caller.
  std::optional<std::vector<NamedTensor>> Find(const Key& key);
  // Stores copies of both, unless they are larger than the whole cache. If two keys have the
  // same digest, the later one is kept.
  void Insert(const Key& key, const std::vector<NamedTensor>& outputs);

  int64_t bytes() const;

 private:
  struct Entry {
    Key key;
    std::vector<NamedTensor> outputs;
    int64_t bytes = 0;
  };
  using Entries = std::list<std::shared_ptr<const Entry>>;

  void Erase(Entries::iterator entry);  // call it under mutex_

  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  // Guarded by mutex_; an entry itself never changes.
  Entries entries_;  // most recently used first
  absl::flat_hash_map<uint64_t, Entries::iterator> by_digest_;
  int64_t bytes_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REQUESTS_RESPONSE_CACHE_H_
