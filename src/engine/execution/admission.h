// What an accepted request will ask of other models, counted in their queues until it arrives
// there.
#ifndef CHAIRLIFT_ENGINE_EXECUTION_ADMISSION_H_
#define CHAIRLIFT_ENGINE_EXECUTION_ADMISSION_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "batching/fair_share.h"
#include "engine/execution/model.h"

namespace chairlift {

// Of a request to a model whose steps are other models' requests. It is held by all of these, and
// what has not arrived when the last of them goes never comes. Thread-safe.
class Admission {
 public:
  explicit Admission(const FairShare::Client& caller) : caller_(caller) {}
  ~Admission();
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  // That many requests will come to the model. Before anybody else has this.
  void Expect(std::shared_ptr<Model> model, int64_t times);
  // One has come.
  void Arrived(const Model& model);

  const FairShare::Client& caller() const { return caller_; }

 private:
  struct Expected {
    std::shared_ptr<Model> model;
    int64_t times = 0;
  };

  const FairShare::Client caller_;
  std::mutex mutex_;
  std::vector<Expected> expected_;  // guarded by mutex_
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_EXECUTION_ADMISSION_H_
