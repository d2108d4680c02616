// The naive policy: all requests that wait when a worker asks share one batch, in order of arrival,
// padded to the longest. This is what servers do that ignore lengths; for comparison with length_dp
// (TurboTransformers §6.3). If lengths vary much it is slower than no batching.
#include "batching/policies/baselines/baselines.h"
#include "batching/policies/whole_requests.h"

namespace chairlift {
namespace {

class NaiveScheduler : public WholeRequestScheduler {
 public:
  using WholeRequestScheduler::WholeRequestScheduler;

 private:
  bool pads() const override { return true; }

  std::vector<Member> Form(CellType /*type*/, const Queue& queue) override {
    std::vector<Member> batch = TakeList();
    int64_t rows = 0;
    for (auto it = queue.entries.begin(); it != queue.entries.end();) {
      Entry& entry = *(it++)->second;
      if (held(entry)) continue;
      if (!batch.empty() && rows + entry.size > options_.max_batch_size) break;
      rows += entry.size;
      batch.push_back(Take(entry));
    }
    return batch;
  }
};

}  // namespace

StatusOr<std::unique_ptr<Scheduler>> MakeNaiveScheduler(const PolicyOptions& options) {
  return std::make_unique<NaiveScheduler>(options);
}

}  // namespace chairlift
