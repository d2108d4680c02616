#include "batching/policies/naive.h"

#include "base/status.h"
#include "batching/policies/whole_requests.h"

namespace chairlift {
namespace {

class NaiveScheduler : public WholeRequestScheduler {
 public:
  using WholeRequestScheduler::WholeRequestScheduler;

 private:
  bool pads() const override { return true; }

  std::vector<Request*> Form(CellType /*type*/, const Queue& queue, TimePoint /*now*/) override {
    std::vector<Request*> batch;
    int64_t rows = 0;
    for (auto it = queue.requests.begin(); it != queue.requests.end();) {
      Request& request = *(it++)->second;
      if (request.held) continue;
      if (!batch.empty() && rows + request.size() > options_.max_batch_size) break;
      Take(request);
      batch.push_back(&request);
      rows += request.size();
    }
    return batch;
  }
};

}  // namespace

StatusOr<std::unique_ptr<Scheduler>> MakeNaiveScheduler(const PolicyOptions& options) {
  if (options.max_batch_size < 1) {
    return InvalidArgument("max_batch_size is {}; it must be at least 1", options.max_batch_size);
  }
  return std::make_unique<NaiveScheduler>(options);
}

}  // namespace chairlift
