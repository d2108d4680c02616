// What the models share: workers that found nothing to do, whose turn it is, when each model is to
// be looked at next, and how many requests there are.
//
// The models are locked apart (ModelQueue::mutex()); this has one lock of its own, taken after
// theirs and held for tens of nanoseconds: no scheduler is asked under it. So a worker asks one
// model after the other and, while it does, a request may arrive at one that it has asked already.
// That is seen in the end: a worker becomes idle only where no model has changed since its search
// began, and whoever changes a model takes idle workers afterwards.
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

// Thread-safe. A model is active while it has requests: then this shares its ownership. Models
// whose tasks run elsewhere than on the workers (Program::lanes) stand behind all others: no worker
// asks them, and they are not charged.
class ActiveModels {
 public:
  // Workers 0 … `workers` − 1 are idle.
  explicit ActiveModels(int workers);

  enum class Entry { kDone, kClosed, kFull };
  // A request is to enter the model, whose lock the caller holds. kFull: there are `most` of all
  // models, and it is not part of one that was accepted before (`inside`). A model that becomes
  // active starts level with the one that has been charged least of those at work or, where none
  // is, that has been charged most: time in which it asked for nothing is not owed to it.
  Entry Enter(const std::shared_ptr<Model>& model, int most, bool inside = false);
  // From now on Enter() is refused: but of what is `inside`; of all.
  void Close();
  void CloseToAll();

  // What happened at a model, whose lock the caller holds.
  struct Change {
    bool may_run = true;  // some worker may get a task that it would not have got before
    Duration charge{0};   // compute time
    int requests = 0;     // that are left
    std::optional<TimePoint> wake = {};  // when it is to be looked at, if nothing happens before
  };
  // Returns the model where it has no request left, to be released once no lock is held.
  std::shared_ptr<Model> Note(Model& model, const Change& change);
  // Nothing happened, but the model is to be looked at by then. The caller holds its lock.
  void WakeBy(Model& model, TimePoint wake);

  // A worker that looks for a task.
  struct Search {
    WorkerId worker = 0;
    uint64_t changes = 0;                   // of all models, when it began
    std::shared_ptr<Model> model = {};      // asked last
    uint64_t model_changes = 0;             // of that one, when it was about to be asked
    std::pair<Duration, uint64_t> at = {};  // its turn
  };
  // An idle worker: `preferred` if it is one, else the one that was busy most recently, whose
  // caches are warmest. It must be given a task or back.
  std::optional<Search> TakeIdle(std::optional<WorkerId> preferred = std::nullopt);
  // The next model to ask: those charged least come first; none that has not changed since that
  // worker last asked it in vain. Null where all have been asked.
  std::shared_ptr<Model> NextToAsk(Search& search);
  // The worker has found nothing. False where a model has changed since: it must look again, in a
  // search of its own.
  bool BecomeIdle(const Search& search);

  // Whether some worker has nothing to do: then nothing waits for one.
  bool AnyIdle() const;

  // All that are active.
  std::vector<std::shared_ptr<Model>> All() const;
  int size() const;

  // For one thread: waits until models are to be looked at, and returns these; also where there are
  // none, after Wake() or once `latest` has passed. False once Stop() was called.
  bool WaitForDue(const Clock& clock, std::vector<std::shared_ptr<Model>>& due,
                  TimePoint latest = TimePoint::max());
  // Has WaitForDue() return, with this model among the due ones if it is active.
  void Wake(Model& model);
  void Stop();

 private:
  using Turn = std::pair<Duration, uint64_t>;  // compute time charged; tells models apart

  static Turn TurnOf(Model& model);
  void Arm(TimePoint wake);

  mutable std::mutex mutex_;
  // All below, and ModelQueue::share, is guarded by mutex_.
  std::map<Turn, std::shared_ptr<Model>> by_turn_;
  uint64_t entered_ = 0;   // models that became active, ever
  Duration most_used_{0};  // the largest charge of any model
  uint64_t changes_ = 0;
  std::vector<WorkerId> idle_;
  const size_t workers_;
  int requests_ = 0;
  bool closed_ = false;
  bool closed_to_all_ = false;
  std::optional<TimePoint> armed_;  // when WaitForDue() wakes by itself
  bool woken_ = false;
  bool stopped_ = false;
  std::condition_variable wakes_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_EXECUTION_ACTIVE_MODELS_H_
