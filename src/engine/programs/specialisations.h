// Batches for models whose rows cannot be proved to stay apart as they are, but can be once scalars
// and sizes are known: an input that selects a branch, a check of a length.
//
// Requests with equal scalars and equal sizes, the batch left out, are a *class*. Once enough
// requests of a class have come, the model is specialised for it and the proof tried again, in the
// background; where it holds, requests of the class share batches from then on. The others, and
// those of any other class, run one by one as the model is. So a value that the model has no branch
// for does what the model says.
//
// Classes come from what clients send. So their number, the specialisations and their memory are
// bounded, and a model is specialised for a tenth of the time at most.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_SPECIALISATIONS_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_SPECIALISATIONS_H_

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/background.h"
#include "base/clock.h"
#include "engine/requests/validate.h"
#include "runtime/executable.h"

namespace chairlift {

// The model made for one class: a batch lies where its axes say.
struct Specialisation final : BatchAxes {
  int64_t number = 0;                      // of all that were ever made; from 1
  std::unique_ptr<Executable> executable;  // thread-safe
  std::vector<int> executable_inputs;      // the model's, as the executable takes them
};

// Thread-safe.
class Specialisations : public std::enable_shared_from_this<Specialisations> {
 public:
  // Requests of a class that run one by one before the model is specialised for it.
  static constexpr int kWorthwhile = 32;
  // Kept at once, the most recently used ones: so many, whose weights take so many bytes (of one,
  // however many).
  static constexpr int kMaxKept = 4;
  static constexpr size_t kMaxKeptBytes = size_t{256} << 20;
  // Classes remembered, specialised or not.
  static constexpr size_t kMaxClasses = 64;
  // Refused classes that are reported: the latest.
  static constexpr size_t kMaxRefusals = 8;
  // After one was made or refused, none is made for so many times as long as that took.
  static constexpr int kRest = 9;

  // Whether such a model can be specialised for classes: every input is a single number or has a
  // dimension that varies, and some input has one.
  static bool MayHelp(const Graph& graph);

  // Of a graph as it was imported; `model` names it in the log. A batch has `max_rows` at most.
  // `background` and `clock` must outlive all use.
  Specialisations(std::string model, const Graph& graph, const ExecutableOptions& options,
                  int max_rows, Background& background, const Clock& clock = Clock::Steady());

  // Settles with whom a request may share a batch: sets its axes (a Specialisation), rows and key,
  // or its room.
  void Place(ValidatedRequest& request);

  // The latest classes that were refused, each with the reason, for people. Each was logged, too.
  std::vector<std::string> Refusals() const;

 private:
  // By input of the model: the batch dimension, −1 where it is a single number.
  using Axes = std::vector<int>;
  struct Class {
    int seen = 0;
    bool tried = false;                          // it was specialised, or refused
    std::shared_ptr<const Specialisation> made;  // null where there is none
    std::list<ShapeKey>::iterator place;         // in used_
  };
  // What one is made from: of single numbers their values, of other inputs their shapes.
  struct Example {
    ShapeKey key;
    Axes axes;
    std::vector<Tensor> inputs;
  };
  // Freed once the lock is released.
  using Dropped = std::vector<std::shared_ptr<const Specialisation>>;
  using Lock = std::lock_guard<std::mutex>;

  std::optional<int32_t> Rows(const Axes& axes, const std::vector<Tensor>& inputs) const;
  static ShapeKey KeyOf(size_t assumption, const Axes& axes, const std::vector<Tensor>& inputs);
  Class& Touch(const ShapeKey& key, Dropped& dropped);
  void DropUnused(Dropped& dropped);
  void Start(const ShapeKey& key, const Axes& axes, const std::vector<Tensor>& inputs);
  void Make(const Example& example);
  StatusOr<std::shared_ptr<Specialisation>> Specialised(const Example& example) const;
  std::string Describe(const Example& example) const;

  const std::string model_;
  const Graph graph_;
  const ExecutableOptions options_;
  const std::vector<Axes> assumptions_;  // where the batch may lie, the likeliest first
  const int max_rows_;
  Background& background_;
  const Clock& clock_;

  mutable std::mutex mutex_;  // held for look-ups, never while one is made
  // All below is guarded by mutex_.
  absl::flat_hash_map<ShapeKey, Class> classes_;
  std::list<ShapeKey> used_;  // the most recently used first
  std::deque<std::string> refusals_;
  int64_t made_ = 0;
  bool making_ = false;
  TimePoint rest_until_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_SPECIALISATIONS_H_
