// The order of tasks of several clients that share threads.
//
// Clients get equal bytes: a client with many or large tasks delays another's by at most one task.
// Tasks of one client share its turns in the same way: a small task passes large ones that wait,
// until each of those could have had the same number of bytes.
#ifndef CHAIRLIFT_SERVER_HTTP_BYTE_TURNS_H_
#define CHAIRLIFT_SERVER_HTTP_BYTE_TURNS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace chairlift::http {

// Start-time fair queueing, by bytes. Only clients with waiting tasks are remembered. Not
// thread-safe.
template <typename Task>
class ByteTurns {
 public:
  bool empty() const { return tasks_ == 0; }
  size_t size() const { return tasks_; }

  void Add(uint64_t client, size_t bytes, Task task) {
    const uint64_t cost = std::max<uint64_t>(bytes, kLeastBytes);
    Client& own = clients_.try_emplace(client).first->second;
    if (own.tasks.empty()) {
      own.served = served_;
      order_.emplace(own.served, client);
    }
    own.tasks.emplace(std::pair(own.passed + cost, next_++), Waiting{cost, std::move(task)});
    ++tasks_;
  }

  // The next task, removed. At least one task must wait.
  Task Take() {
    const auto [served, client] = *order_.begin();
    const auto found = clients_.find(client);
    Client& own = found->second;
    const auto first = own.tasks.begin();
    const uint64_t cost = first->second.cost;
    Task task = std::move(first->second.task);
    served_ = served;
    own.passed = std::max(own.passed, first->first.first - cost) + cost / own.tasks.size();
    own.tasks.erase(first);
    order_.erase(order_.begin());
    if (own.tasks.empty()) {
      clients_.erase(found);
    } else {
      own.served = served + cost;
      order_.emplace(own.served, client);
    }
    --tasks_;
    return task;
  }

 private:
  // The cost of a task beside its bytes.
  static constexpr uint64_t kLeastBytes = 4096;

  struct Waiting {
    uint64_t cost;
    Task task;
  };
  struct Client {
    uint64_t served = 0;  // bytes, on the scale of served_
    uint64_t passed = 0;  // bytes that each of its tasks could have had by now
    std::map<std::pair<uint64_t, uint64_t>, Waiting> tasks =
        {};  // by `passed` at their end, number
  };

  absl::flat_hash_map<uint64_t, Client> clients_;
  std::set<std::pair<uint64_t, uint64_t>> order_;  // `served` and client
  uint64_t served_ = 0;                            // of the client that had the last turn
  uint64_t next_ = 0;
  size_t tasks_ = 0;
};

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_BYTE_TURNS_H_
