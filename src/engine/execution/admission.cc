#include "engine/execution/admission.h"

#include <algorithm>
#include <utility>

namespace chairlift {
namespace {

// A place covers a request whose work is expected to be at most this many times as much: the body
// says less of its work than the inputs do.
constexpr int kCovered = 2;

}  // namespace

Coming::Coming(Model& model, int64_t times, Duration work)
    : model_(&model),
      times_(times),
      work_(work),
      times_before_(model.queue().coming.fetch_add(times)),
      work_before_(model.queue().coming_ns.fetch_add(work.count())) {}

Coming& Coming::operator=(Coming&& other) noexcept {
  if (this == &other) return *this;
  Release();
  model_ = std::exchange(other.model_, nullptr);
  times_ = std::exchange(other.times_, 0);
  work_ = std::exchange(other.work_, Duration(0));
  times_before_ = other.times_before_;
  work_before_ = other.work_before_;
  return *this;
}

void Coming::Release() {
  if (model_ == nullptr) return;
  model_->queue().coming -= std::exchange(times_, 0);
  model_->queue().coming_ns -= std::exchange(work_, Duration(0)).count();
  model_ = nullptr;
}

Coming Coming::TakeOne() {
  Coming one;
  one.model_ = model_;
  one.times_ = 1;
  one.work_ = work_ / times_;
  --times_;
  work_ -= one.work_;
  return one;
}

Admission::~Admission() {
  for (const Expected& expected : expected_) {
    --expected.model->queue().turns;
    if (expected.coming.times() > 0) continue;  // not all of its work was seen
    front_->Learn(expected.model->metadata().name, bytes_, expected.cost);
  }
}

void Admission::Expect(std::shared_ptr<Model> model, Coming coming, Duration wait) {
  ++model->queue().turns;
  const std::lock_guard<std::mutex> lock(mutex_);
  expected_.push_back({std::move(model), std::move(coming), wait});
}

Admission::Arrival Admission::Arrived(const Model& model) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Expected& expected : expected_) {
    if (expected.model.get() != &model || expected.coming.times() == 0) continue;
    return {expected.coming.TakeOne(), std::exchange(expected.wait, Duration(0))};
  }
  return {};
}

void Admission::Ran(const Model& model, const MeasuredCost& cost) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Expected& expected : expected_) {
    if (expected.model.get() != &model) continue;
    expected.cost.time += cost.time;
    expected.cost.helped |= cost.helped;
    expected.cost.batched = std::max(expected.cost.batched, cost.batched);
    expected.cost.complete &= cost.complete;
    return;
  }
}

std::optional<Duration> Admission::Covers(const Model& model, Duration work) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Expected& expected : expected_) {
    if (expected.model.get() != &model || expected.coming.times() == 0) continue;
    if (work <= kCovered * expected.coming.work()) return expected.wait;
  }
  return std::nullopt;
}

void Admission::GiveBack() {
  std::vector<Expected> expected;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    expected.swap(expected_);
  }
  for (const Expected& one : expected) --one.model->queue().turns;
}

}  // namespace chairlift
