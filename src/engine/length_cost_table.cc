#include "engine/length_cost_table.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/status.h"

namespace chairlift {
namespace {

LengthSamples Kept(const CostTable::Key& key) {
  const auto table = CostTable::Load(CostTablePath(key));
  if (!table.ok() || table->key() != key) return {};
  LengthSamples samples;
  for (const auto& [size, cost] : table->costs()) {
    constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
    if (size.first > kMax || size.second > kMax) return {};
    samples.push_back({static_cast<int32_t>(size.first), static_cast<int32_t>(size.second), cost});
  }
  LengthCosts checked;
  return checked.AddType(samples).ok() ? samples : LengthSamples();
}

}  // namespace

CostTable::Key LengthCostKey(const std::string& description, const LengthSampling& sampling) {
  return CostTableKeyOf(fmt::format("up to {} rows of length {} of {}", sampling.max_rows,
                                    sampling.max_length, description),
                        sampling.workers);
}

LengthSamples FindLengthCosts(const CostTable::Key& key, const LengthSampling& sampling,
                              bool measure,
                              absl::FunctionRef<TimedRun(int rows, int length)> make) {
  LengthSamples samples = Kept(key);
  if (!samples.empty() || !measure) return samples;
  const Clock& clock = Clock::Steady();
  const TimePoint until = clock.Now() + sampling.budget;
  const std::function<void()> tick = ProgressUntil(until, sampling.progress);
  Duration last{0};
  for (const auto& [rows, length] :
       SizesToMeasure(sampling.max_rows, sampling.max_length, sampling.max_places)) {
    // The next takes up to twice as long as the last, and runs twice at least.
    if (clock.Now() + 4 * last > until) break;
    const TimedRun run = make(rows, length);
    if (!run) continue;
    const std::optional<Duration> time = TimeRuns({&run, 1}, sampling.workers, {}, until, tick)[0];
    if (!time) continue;
    last = std::max(*time, Duration(1));
    samples.push_back({rows, length, last});
  }
  // Where the folder cannot be written, the next load measures again.
  if (!samples.empty()) KeepLengthCosts(key, samples).IgnoreError();
  return samples;
}

Status KeepLengthCosts(const CostTable::Key& key, const LengthSamples& samples) {
  CostTable table(key);
  for (const auto& [rows, length, cost] : samples) table.Set(rows, length, cost);
  return table.Save(CostTablePath(key));
}

}  // namespace chairlift
