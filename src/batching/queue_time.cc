#include "batching/queue_time.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace chairlift {
namespace {

// The weight of each earlier task relative to the next one of the same type.
constexpr double kMemory = 0.9;
// The weight of one request's growth in the running mean.
constexpr double kGrowthWeight = 1.0 / 16;
// The weight of a wait that was longer than the factor predicted, and of one that was not.
constexpr double kLongerWeight = 1.0 / 4;
constexpr double kShorterWeight = 1.0 / 256;
// The same for the time of a batch.
constexpr double kLongerBatchWeight = 1.0 / 4;
constexpr double kShorterBatchWeight = 1.0 / 32;

}  // namespace

QueueTime::Type& QueueTime::TypeOf(CellType type) {
  if (type >= types_.size()) types_.resize(type + 1);
  return types_[type];
}

void QueueTime::Charge(Type& type) {
  const double each = type.units > 0 ? type.cost_ns / type.units : 0;
  const auto charge = static_cast<int64_t>(std::llround(each * static_cast<double>(type.left)));
  total_ns_ += charge - type.charged_ns;
  type.charged_ns = charge;
}

QueueTime::Share::Part& QueueTime::PartOf(Share& share, CellType type) {
  const auto found = std::find_if(share.parts_.begin(), share.parts_.end(),
                                  [&](const Share::Part& part) { return part.type == type; });
  if (found != share.parts_.end()) return *found;
  share.parts_.push_back({.type = type});
  return share.parts_.back();
}

void QueueTime::Set(Share::Part& part, const Share::Part& to) {
  Type& type = TypeOf(part.type);
  const int64_t left = part.left(), guess = part.guess_ns;
  type.left += to.left() - left;
  part = to;
  if (guess > 0 && part.left() < left) {
    const double rest = static_cast<double>(std::max<int64_t>(part.left(), 0));
    part.guess_ns =
        static_cast<int64_t>(static_cast<double>(guess) * rest / static_cast<double>(left));
  }
  if (type.units == 0) {
    type.guess_ns += part.guess_ns - guess;
    total_ns_ += part.guess_ns - guess;
  }
  Charge(type);
}

void QueueTime::Learn(CellType index, int64_t units, Duration cost) {
  if (units <= 0) return;
  Type& type = TypeOf(index);
  DropGuesses(type);
  if (!type.learnt) type.cost_ns = type.units = 0;
  type.learnt = true;
  type.cost_ns = kMemory * type.cost_ns + static_cast<double>(cost.count());
  type.units = kMemory * type.units + static_cast<double>(units);
  Charge(type);
}

void QueueTime::DropGuesses(Type& type) { total_ns_ -= std::exchange(type.guess_ns, 0); }

void QueueTime::Forget(CellType index) {
  if (index >= types_.size()) return;
  Type& type = types_[index];
  type.cost_ns = type.units = 0;
  type.learnt = false;
  Charge(type);
}

void QueueTime::Expect(CellType index, double ns_per_unit) {
  Type& type = TypeOf(index);
  if (type.learnt) return;
  DropGuesses(type);
  type.cost_ns = ns_per_unit;
  type.units = 1;
  Charge(type);
}

void QueueTime::Arrive(std::span<const Work> work, Share& share, Duration whole) {
  for (const Work& brought : work) {
    Share::Part& part = PartOf(share, brought.type);
    Share::Part more = part;
    more.known += brought.units;
    Set(part, more);
  }
  for (const CellType type : growing_) {
    Share::Part& part = PartOf(share, type);
    Share::Part more = part;
    more.expected = std::llround(types_[type].mean_growth);
    Set(part, more);
  }
  const auto unknown = std::find_if(work.begin(), work.end(), [&](const Work& brought) {
    return brought.units > 0 && !Prices(brought.type);
  });
  if (unknown == work.end()) return;
  const int64_t guess = std::max(whole - this->work(share), Duration(0)).count();
  PartOf(share, unknown->type).guess_ns = guess;
  types_[unknown->type].guess_ns += guess;
  total_ns_ += guess;
}

Duration QueueTime::work(const Share& share) const {
  double ns = 0;
  for (const Share::Part& part : share.parts_) {
    const Type& type = types_[part.type];
    ns += type.units > 0 ? type.cost_ns / type.units * static_cast<double>(part.left())
                         : static_cast<double>(part.guess_ns);
  }
  return Duration(static_cast<int64_t>(ns));
}

void QueueTime::Grow(Work work, Share& share) {
  Type& type = TypeOf(work.type);
  if (!type.grows) growing_.push_back(work.type);
  type.grows = true;
  Share::Part& part = PartOf(share, work.type);
  Share::Part more = part;
  more.known += work.units;
  more.grown += work.units;
  Set(part, more);
}

void QueueTime::Ran(Work work, Share& share) {
  Share::Part& part = PartOf(share, work.type);
  Share::Part less = part;
  less.known -= work.units;
  Set(part, less);
}

void QueueTime::Leave(bool complete, Share& share) {
  for (Share::Part& part : share.parts_) Set(part, {.type = part.type, .grown = part.grown});
  for (const CellType type : growing_) {
    if (!complete) break;
    double& mean = types_[type].mean_growth;
    mean += kGrowthWeight * (static_cast<double>(PartOf(share, type).grown) - mean);
  }
  share.parts_.clear();
}

void WaitStretch::Learn(Duration expected, Duration waited) {
  if (expected <= Duration(0)) return;
  const double times = static_cast<double>(waited.count()) / static_cast<double>(expected.count());
  const double bounded = std::clamp(times, 1.0, kMost);
  factor_ += (bounded - factor_) * (bounded > factor_ ? kLongerWeight : kShorterWeight);
}

void BatchTime::Learn(Duration taken) {
  const auto ns = static_cast<double>(taken.count());
  ns_ += (ns - ns_) * (ns > ns_ ? kLongerBatchWeight : kShorterBatchWeight);
}

Duration ExpectedAnswer(Duration wait, double stretch, Duration own_batch, Duration limit) {
  const double queued = static_cast<double>(wait.count()) * stretch;
  return Duration(static_cast<int64_t>(queued)) + std::min(own_batch, limit / 2);
}

Duration ExpectedWait(std::span<const Duration> work, size_t own, int workers) {
  Duration ahead{0};
  for (const Duration other : work) ahead += std::min(other, work[own]);
  return ahead / workers;
}

}  // namespace chairlift
