#include "engine/padded_costs.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/kept_costs.h"
#include "engine/ones_request.h"
#include "engine/padding.h"
#include "engine/timing.h"
#include "graph/batch_axis.h"

namespace chairlift {
namespace {

constexpr Duration kBudget = std::chrono::seconds(2);
constexpr Duration kPerSize = std::chrono::milliseconds(3);
constexpr int kMaxLength = 512;
constexpr int64_t kMaxPlaces = 4096;  // rows times length

using Samples = std::vector<LengthCosts::Sample>;

Samples Kept(const CostTable::Key& key) {
  const auto table = CostTable::Load(CostTablePath(key));
  Samples samples;
  if (!table.ok() || table->key() != key) return samples;
  for (const auto& [shape, cost] : table->costs()) {
    const auto [rows, length] = shape;
    if (rows < 1 || rows > kMaxBatchRows || length < 1 || length > kMaxBatchRows ||
        cost <= Duration(0)) {
      return {};
    }
    samples.push_back({static_cast<int32_t>(rows), static_cast<int32_t>(length), cost});
  }
  return samples;
}

Status Keep(const CostTable::Key& key, const Samples& samples) {
  CostTable table(key);
  for (const auto& [rows, length, cost] : samples) table.Set(rows, length, cost);
  return table.Save(CostTablePath(key));
}

Samples Measure(const Signature& signature, Executable& executable, int max_rows, int workers) {
  const Clock& clock = Clock::Steady();
  const TimePoint until = clock.Now() + kBudget;
  const int64_t longest = signature.sequences->max_length;
  const int length =
      longest > 0 ? static_cast<int>(std::min<int64_t>(longest, kMaxLength)) : kMaxLength;
  Samples samples;
  for (const CostSize& size : SizesToMeasure(max_rows, length, kMaxPlaces)) {
    if (clock.Now() > until) break;
    const TimedRun run =
        [&, request = std::shared_ptr<Request>(OnesRequest(signature, size.rows, size.length))](
            int worker, WorkerMemory& memory) -> Status {
      const Request* const requests[] = {request.get()};
      CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs,
                                 Padding(signature, requests).Inputs(memory.staging));
      SoloTeam team(worker);
      return executable.Run(inputs, team, worker, memory.compute).status();
    };
    const std::optional<Duration> time = TimeRuns({&run, 1}, workers, kPerSize, until)[0];
    if (time) samples.push_back({size.rows, size.length, std::max(*time, Duration(1))});
  }
  return samples;
}

// In proportion to tokens, of which a batch has some more than it has: only their relations count.
Samples Guess() {
  constexpr int kOfABatch = 16;
  Samples samples;
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
  std::string description = fmt::format("up to {} padded rows of", max_rows);
  DescribeForCosts(executable.graph(), description);
  const CostTable::Key key = CostTableKeyOf(description, workers);
  Samples samples = Kept(key);
  if (samples.empty() && measure) {
    samples = Measure(signature, executable, max_rows, workers);
    // Where the folder cannot be written, the next load measures again.
    if (!samples.empty()) Keep(key, samples).IgnoreError();
  }
  auto costs = std::make_unique<LengthCosts>();
  if (samples.empty() || !costs->AddType(samples).ok()) {
    costs = std::make_unique<LengthCosts>();
    costs->AddType(Guess()).IgnoreError();
  }
  return costs;
}

}  // namespace chairlift
