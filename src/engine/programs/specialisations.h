// Batches for models whose rows can be proved independent only once scalars and sizes are known: an
// input that selects a branch, or a check of a length.
//
// Requests with equal scalars and equal sizes, except the batch, are a *class*. When enough
// requests of a class have come, the model is specialised for it in the background, and the proof
// is tried again. If it succeeds, requests of the class share batches from then on. Other requests
// run one by one on the original model, so a value without a matching branch behaves as the model
// defines.
//
// Classes depend on what clients send. So their number, the specialisations and their memory are
// bounded, and at most a tenth of the time is spent on specialising.
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

// The model specialised for one class, with the batch in the given axes.
struct Specialisation final : BatchAxes {
  int64_t number = 0;                      // unique number, from 1
  std::unique_ptr<Executable> executable;  // thread-safe
  std::vector<int> executable_inputs;      // the model's inputs that the executable takes
};

// Thread-safe.
class Specialisations : public std::enable_shared_from_this<Specialisations> {
 public:
  // Requests of a class that run one by one before the model is specialised for it.
  static constexpr int kWorthwhile = 32;
  // How many of the most recently used ones are kept, and the limit on the bytes of their weights
  // (a single one is kept whatever its size).
  static constexpr int kMaxKept = 4;
  static constexpr size_t kMaxKeptBytes = size_t{256} << 20;
  // Number of classes remembered, specialised or not.
  static constexpr size_t kMaxClasses = 64;
  // Number of refused classes that are reported: the latest.
  static constexpr size_t kMaxRefusals = 8;
  // After one was made or refused, none is made for this many times as long as that took.
  static constexpr int kRest = 9;

  // Whether such a model can be specialised for classes: every input is a single number or has a
  // varying dimension, and some input has one.
  static bool MayHelp(const Graph& graph);

  // For an imported graph; `model` is its name in the log. A batch has at most `max_rows`.
  // `background` and `clock` must outlive all use.
  Specialisations(std::string model, const Graph& graph, const ExecutableOptions& options,
                  int max_rows, Background& background, const Clock& clock = Clock::Steady());

  // Decides which batches a request may share: sets its axes (a Specialisation), rows and key, or
  // its room.
  void Place(ValidatedRequest& request);

  // The latest classes that were refused, with reasons, as text. They were also logged.
  std::vector<std::string> Refusals() const;

 private:
  // By input of the model: the batch dimension, −1 for a single number.
  using Axes = std::vector<int>;
  struct Class {
    int seen = 0;
    bool tried = false;                          // it was specialised or refused
    std::shared_ptr<const Specialisation> made;  // null if there is none
    std::list<ShapeKey>::iterator place;         // in used_
  };
  // What a specialisation is made from: values of single numbers, shapes of other inputs.
  struct Example {
    ShapeKey key;
    Axes axes;
    std::vector<Tensor> inputs;
  };
  // To be freed after the lock is released.
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
  const std::vector<Axes> assumptions_;  // possible batch layouts, most likely first
  const int max_rows_;
  Background& background_;
  const Clock& clock_;

  mutable std::mutex mutex_;  // held for look-ups, never while one is made
  // Everything below is guarded by mutex_.
  absl::flat_hash_map<ShapeKey, Class> classes_;
  std::list<ShapeKey> used_;  // most recently used first
  std::deque<std::string> refusals_;
  int64_t made_ = 0;
  bool making_ = false;
  TimePoint rest_until_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_SPECIALISATIONS_H_
