#include "engine/execution/admission.h"

#include <utility>

namespace chairlift {

Admission::~Admission() {
  for (const Expected& expected : expected_) expected.model->queue().coming -= expected.times;
}

void Admission::Expect(std::shared_ptr<Model> model, int64_t times) {
  model->queue().coming += times;
  const std::lock_guard<std::mutex> lock(mutex_);
  expected_.push_back({std::move(model), times});
}

void Admission::Arrived(const Model& model) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Expected& expected : expected_) {
    if (expected.model.get() != &model || expected.times == 0) continue;
    --expected.times;
    --expected.model->queue().coming;
    return;
  }
}

}  // namespace chairlift
