// Remembers whose nodes a worker's last task of each type held.
#ifndef CHAIRLIFT_BATCHING_LAST_REQUESTS_H_
#define CHAIRLIFT_BATCHING_LAST_REQUESTS_H_

#include <vector>

#include "batching/scheduler.h"

namespace chairlift {

class LastRequests {
 public:
  // Sets the task's same_requests and remembers its requests.
  void Compare(Task& task) {
    if (task.type >= last_.size()) last_.resize(task.type + 1);
    auto& workers = last_[task.type];
    const auto worker = static_cast<size_t>(task.worker);
    if (worker >= workers.size()) workers.resize(worker + 1);
    std::vector<BatchRequestId>& last = workers[worker];
    task.same_requests = last.size() >= task.nodes.size();
    last.resize(task.nodes.size());
    for (size_t i = 0; i < last.size(); ++i) {
      task.same_requests = task.same_requests && last[i] == task.nodes[i].request;
      last[i] = task.nodes[i].request;
    }
  }

 private:
  std::vector<std::vector<std::vector<BatchRequestId>>> last_;  // by type, worker
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_LAST_REQUESTS_H_
