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

std::unique_ptr<LengthCosts> FindPaddedCosts(const Signature& signature, Executable& executable,
                                             int max_rows, int workers, bool measure) {
  const int64_t longest = signature.sequences->max_length;
  const LengthSampling sampling = {
      .max_rows = max_rows,
      .max_length =
          longest > 0 ? static_cast<int>(std::min<int64_t>(longest, kMaxLength)) : kMaxLength,
      .max_places = 4096,
      .workers = workers,
      .budget = std::chrono::seconds(2)};
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
  const LengthSamples samples =
      FindLengthCosts(LengthCostKey(description, sampling), sampling, measure, make);
  auto costs = std::make_unique<LengthCosts>();
  if (samples.empty() || !costs->AddType(samples).ok()) {
    costs = std::make_unique<LengthCosts>();
    costs->AddType(Guess()).IgnoreError();
  }
  return costs;
}

}  // namespace chairlift
