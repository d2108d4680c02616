#include "engine/execution/admission.h"

#include <utility>

namespace chairlift {

Admission::~Admission() {
  for (const Expected& expected : expected_) {
    expected.model->queue().coming -= expected.times;
    --expected.model->queue().turns;
  }
}

void Admission::Expect(std::shared_ptr<Model> model, int64_t times, Duration wait) {
  model->queue().coming += times;
  ++model->queue().turns;
  const std::lock_guard<std::mutex> lock(mutex_);
  expected_.push_back({std::move(model), times, wait});
}

Duration Admission::Arrived(const Model& model) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Expected& expected : expected_) {
    if (expected.model.get() != &model || expected.times == 0) continue;
    --expected.times;
    --expected.model->queue().coming;
    return std::exchange(expected.wait, Duration(0));
  }
  return Duration(0);
}

}  // namespace chairlift
