// State that all models share: idle workers, the order in which models are asked for tasks, when
// each model must be looked at next, and the number of requests.
//
// Each model has its own lock (ModelQueue::mutex()). This class has one lock, taken after a model's
// and held for tens of nanoseconds: no scheduler is called under it. A worker asks one model after
// the other, so a request may arrive at a model that it has already asked. Such a request is not
// lost: a worker becomes idle only if no model has changed since its search began. A thread that
// changes a model takes idle workers afterwards.
#ifndef CHAIRLIFT_ENGINE_EXECUTION_ACTIVE_MODELS_H_
#define CHAIRLIFT_ENGINE_EXECUTION_ACTIVE_MODELS_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/execution/model.h"

namespace chairlift {

// Thread-safe. A model is active while it has requests; this class then shares ownership of it.
// Models whose tasks do not run on the workers (Program::lanes) come after all others: workers do
// not ask them, and they are not charged.
class ActiveModels {
 public:
  // Initially, workers 0 … `workers` − 1 are idle.
  explicit ActiveModels(int workers);

  enum class Entry { kDone, kClosed, kFull };
  // A request enters the model, whose lock the caller holds. kFull: all models together have `most`
  // requests, and this one is not part of an accepted request (`inside`). A model that becomes
  // active gets the smallest charge among the models at work, or the largest ever if there are
  // none: it gets no credit for time without requests.
  Entry Enter(const std::shared_ptr<Model>& model, int most, bool inside = false);
  // From now on Enter() refuses requests: all except those `inside`, or all.
  void Close();
  void CloseToAll();

  // A change of a model, whose lock the caller holds.
  struct Change {
    bool may_run = true;  // some worker may now get a task that it could not get before
    Duration charge{0};   // compute time
    int requests = 0;     // remaining requests
    std::optional<TimePoint> wake = {};  // when it must be looked at if nothing happens before
  };
  // Returns the model if it has no more requests; release it when no lock is held.
  std::shared_ptr<Model> Note(Model& model, const Change& change);
  // Nothing changed, but the model must be looked at by then. The caller holds its lock.
  void WakeBy(Model& model, TimePoint wake);

  // A worker's search for a task.
  struct Search {
    WorkerId worker = 0;
    uint64_t changes = 0;                   // changes of all models when it began
    std::shared_ptr<Model> model = {};      // asked last
    uint64_t model_changes = 0;             // changes of that model just before it was asked
    std::pair<Duration, uint64_t> at = {};  // its turn
  };
  // Takes an idle worker: `preferred` if it is idle, else the one that was busy most recently,
  // whose caches are warmest. It must be given a task or returned.
  std::optional<Search> TakeIdle(std::optional<WorkerId> preferred = std::nullopt);
  // The next model to ask, in order of charge. Skips models that have not changed since this worker
  // last asked them without result. Null if all have been asked.
  std::shared_ptr<Model> NextToAsk(Search& search);
  // The worker has found nothing. False if a model has changed since: the worker must then start
  // another search.
  bool BecomeIdle(const Search& search);

  // The number of idle workers. If it is not 0, nothing waits for one.
  int idle() const;

  // All active models.
  std::vector<std::shared_ptr<Model>> All() const;
  int size() const;

  // For one thread: waits until models are due, and returns them. Also returns without any after
  // Wake() or once `latest` has passed. False after Stop().
  bool WaitForDue(const Clock& clock, std::vector<std::shared_ptr<Model>>& due,
                  TimePoint latest = TimePoint::max());
  // Makes WaitForDue() return, with this model among the due ones if it is active.
  void Wake(Model& model);
  void Stop();

 private:
  using Turn = std::pair<Duration, uint64_t>;  // charged compute time; a unique number

  static Turn TurnOf(Model& model);
  void Arm(TimePoint wake);

  mutable std::mutex mutex_;
  // Everything below, and ModelQueue::share, is guarded by mutex_.
  std::map<Turn, std::shared_ptr<Model>> by_turn_;
  uint64_t entered_ = 0;   // number of models that became active so far
  Duration most_used_{0};  // the largest charge of any model
  uint64_t changes_ = 0;
  std::vector<WorkerId> idle_;
  const size_t workers_;
  int requests_ = 0;
  bool closed_ = false;
  bool closed_to_all_ = false;
  std::optional<TimePoint> armed_;  // when WaitForDue() wakes next
  bool woken_ = false;
  bool stopped_ = false;
  std::condition_variable wakes_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_EXECUTION_ACTIVE_MODELS_H_
