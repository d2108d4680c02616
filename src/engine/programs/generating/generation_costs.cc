#include "engine/programs/generating/generation_costs.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/costs/measure.h"

namespace chairlift {
namespace {

constexpr Duration kTimingBudget = std::chrono::milliseconds(2500);
constexpr TimingEffort kEffort = {.rounds = 3};
// Tokens before those of each sequence, and of its source, in typical live requests.
constexpr int64_t kCached = 128;
constexpr int64_t kSource = 32;

// Sizes to time, cheapest first, so that only the largest are missing if time runs out. Each has
// four times as many tokens: within the time limit, a model of 100 million weights reaches steps
// with parts of prompts.
std::vector<GenerationCosts::Size> SizesToTime(int max_tokens) {
  std::vector<GenerationCosts::Size> sizes;
  for (int tokens = 1; tokens <= max_tokens; tokens *= 4) {
    for (int sequences = 1; sequences <= tokens; sequences *= 4) {
      sizes.push_back({tokens, sequences});
    }
  }
  return sizes;
}

// Blocks of keys and values for several sequences, all zeros.
class Context {
 public:
  Context(PagedStep& step, const GenerationCosts::Size& size)
      : cached_(std::min(kCached, step.max_length() / 2)),
        each_(std::max<int64_t>(size.tokens / size.sequences, 1)),
        source_(std::min(kSource, step.max_source())),
        tokens_(static_cast<size_t>(each_), 0) {
    fits_ = cached_ + each_ <= step.max_length();
    for (int i = 0; fits_ && i < size.sequences; ++i) {
      fits_ = Add(step, cached_ + each_, sequences_) && Add(step, source_, sources_);
    }
  }
  bool fits() const { return fits_; }
  std::vector<StepTokens> Tokens() const {
    std::vector<StepTokens> all;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      all.push_back({tokens_, cached_, sequences_[i].blocks(), source_, sources_[i].blocks()});
    }
    return all;
  }

 private:
  static bool Add(PagedStep& step, int64_t tokens, std::vector<BlockPool::Sequence>& to) {
    to.emplace_back(step.pool());
    if (!to.back().Grow(tokens)) return false;
    step.Zero(to.back().blocks());
    return true;
  }

  const int64_t cached_, each_, source_;
  const std::vector<int64_t> tokens_;
  bool fits_ = false;
  std::vector<BlockPool::Sequence> sequences_, sources_;
};

CostSamples Measure(PagedStep& step, int max_tokens, Team& team, const TimingProgress& progress) {
  CostSamples samples;
  const Clock& clock = Clock::Steady();
  const TimePoint until = clock.Now() + kTimingBudget;
  const std::function<void()> tick = ProgressUntil(until, progress);
  Duration last{0};
  for (const GenerationCosts::Size& size : SizesToTime(max_tokens)) {
    // The next size takes up to four times as long as the last, and runs at least twice.
    if (clock.Now() + 8 * last > until) break;
    const Context context(step, size);
    if (!context.fits()) continue;
    const std::vector<StepTokens> tokens = context.Tokens();
    const TimedRun run = [&](int worker, WorkerMemory& memory) {
      return step.Run(tokens, team, worker, memory).status();
    };
    const std::optional<Duration> time = TimeRuns({&run, 1}, 1, kEffort, until, tick)[0];
    if (!time) continue;
    last = std::max(*time, Duration(1));
    samples.push_back({size.tokens, size.sequences, last});
  }
  return samples;
}

}  // namespace

CostSamples WithMostTokens(CostSamples samples, int32_t max_tokens) {
  std::map<int32_t, CostSamples> by_sequences;
  for (const LengthCosts::Sample& sample : samples) by_sequences[sample.length].push_back(sample);
  double each = 0;  // time per token
  for (auto& [sequences, line] : by_sequences) {
    const auto fewer = [](const auto& a, const auto& b) { return a.rows < b.rows; };
    std::sort(line.begin(), line.end(), fewer);
    const LengthCosts::Sample& last = line.back();
    const auto of_token = [&](const LengthCosts::Sample& from) {
      return static_cast<double>((last.cost - from.cost).count()) / (last.rows - from.rows);
    };
    if (line.size() > 1) each = std::max(of_token(line.front()), of_token(line[line.size() - 2]));
    if (each <= 0 || last.rows >= max_tokens) continue;
    const auto more = static_cast<int64_t>(each * (max_tokens - last.rows));
    samples.push_back({max_tokens, sequences, last.cost + Duration(more)});
  }
  return samples;
}

std::unique_ptr<GenerationCosts> GenerationCosts::Find(PagedStep& step, int max_tokens,
                                                       const LoadOptions& load) {
  std::string description = fmt::format("steps of up to {} tokens of ", max_tokens);
  DescribeForCosts(step.executable().graph(), description);
  const CostTable::Key key = CostTableKeyOf(description, load.workers);
  CostSamples samples = KeptCosts(key);
  if (samples.empty() && load.autotune) {
    OnIdlePool(load.workers,
               [&](Team& team) { samples = Measure(step, max_tokens, team, load.ReportTiming()); });
    if (!samples.empty()) WarnNotKept(KeepCosts(key, samples));
  }
  std::unique_ptr<GenerationCosts> found(new GenerationCosts);
  samples = WithMostTokens(std::move(samples), max_tokens);
  if (samples.empty() || !found->costs_.AddType(samples, key).ok()) return nullptr;
  found->workers_ = load.workers;
  for (const LengthCosts::Sample& sample : samples) {
    found->most_sequences_ = std::max(found->most_sequences_, sample.length);
  }
  return found;
}

Duration GenerationCosts::Cost(CellType /*type*/, int32_t rows, int32_t length) const {
  return costs_.Cost(kStepCell, rows, std::min(length, most_sequences_));
}

void GenerationCosts::Learn(const Size& size, bool helped, Duration measured) {
  // A task that ran on its own worker alone, or with help only for a while, is not a team's
  // measurement.
  if (size.tokens == 0 || (workers_ > 1 && !helped)) return;
  costs_.Learn(kStepCell, size.tokens, std::min(size.sequences, most_sequences_), measured);
}

}  // namespace chairlift
