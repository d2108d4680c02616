#include "engine/padded_costs.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/kept_costs.h"
#include "engine/length_cost_table.h"
#include "engine/ones_request.h"
#include "engine/padding.h"
#include "engine/timing.h"

namespace chairlift {
namespace {

constexpr int kMaxLength = 512;

// In proportion to tokens, of which a batch has some more than it has: only their relations count.
LengthSamples Guess() {
  constexpr int kOfABatch = 16;
  LengthSamples samples;
  for (const int rows : {1, 64}) {
    for (const int length : {1, kMaxLength}) {
      samples.push_back({rows, length, std::chrono::microseconds(kOfABatch + rows * length)});
    }
  }
  return samples;
}

}  // namespace

void PaddedCosts::Learn(int32_t rows, int32_t length, Duration measured) {
  costs.Learn(0, rows, length, measured);
  learnt = true;
}

Status PaddedCosts::Keep() const {
  return learnt && key ? KeepLengthCosts(*key, costs.Samples(0)) : absl::OkStatus();
}

std::unique_ptr<PaddedCosts> FindPaddedCosts(const Signature& signature, Executable& executable,
                                             int max_rows, int workers, bool measure,
                                             const TimingProgress& progress) {
  const int64_t longest = signature.sequences->max_length;
  const LengthSampling sampling = {
      .max_rows = max_rows,
      .max_length =
          longest > 0 ? static_cast<int>(std::min<int64_t>(longest, kMaxLength)) : kMaxLength,
      .max_places = 4096,
      .workers = workers,
      .budget = std::chrono::seconds(2),
      .progress = progress};
  const auto make = [&](int rows, int length) -> TimedRun {
    return [&, request = std::shared_ptr<Request>(OnesRequest(signature, rows, length))](
               int worker, WorkerMemory& memory) -> Status {
      const Request* const requests[] = {request.get()};
      CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs,
                                 Padding(signature, requests).Inputs(memory.staging));
      SoloTeam team(worker);
      return executable.Run(inputs, team, worker, memory.compute).status();
    };
  };
  std::string description;
  DescribeForCosts(executable.graph(), description);
  const CostTable::Key key = LengthCostKey(description, sampling);
  const LengthSamples samples = FindLengthCosts(key, sampling, measure, make);
  auto found = std::make_unique<PaddedCosts>();
  if (!samples.empty() && found->costs.AddType(samples).ok()) {
    found->key = key;
  } else {
    found->costs = LengthCosts();
    found->costs.AddType(Guess()).IgnoreError();
  }
  return found;
}

}  // namespace chairlift
