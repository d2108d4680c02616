// Answers of one version of a model to requests that were asked before, byte for byte.
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

// Bounded by bytes, of inputs and outputs together; the answer that was wanted least recently goes
// first. It goes with its model: answers never outlive the version that gave them.
//
// Thread-safe.
class ResponseCache {
 public:
  explicit ResponseCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // What distinguishes a request from others: its inputs, bytes and shapes, and the outputs that it
  // wants, in order.
  struct Key {
    std::vector<Tensor> inputs;
    std::vector<int> outputs;
    uint64_t digest = 0;
  };
  // Shares the request's tensors: they must not be written while the key is in use.
  static Key KeyOf(const ValidatedRequest& request);

  // A copy of the answer, which is the caller's own.
  std::optional<std::vector<NamedTensor>> Find(const Key& key);
  // Keeps copies of both, unless they are larger than the whole cache. Of two keys of one digest
  // the later stays.
  void Insert(const Key& key, const std::vector<NamedTensor>& outputs);

  int64_t bytes() const;

 private:
  struct Entry {
    Key key;
    std::vector<NamedTensor> outputs;
    int64_t bytes = 0;
  };
  using Entries = std::list<std::shared_ptr<const Entry>>;

  void Erase(Entries::iterator entry);  // under mutex_

  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  // Guarded by mutex_; an entry itself never changes.
  Entries entries_;  // the one wanted most recently first
  absl::flat_hash_map<uint64_t, Entries::iterator> by_digest_;
  int64_t bytes_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REQUESTS_RESPONSE_CACHE_H_
