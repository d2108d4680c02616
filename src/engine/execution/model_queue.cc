#include "engine/execution/model_queue.h"

#include <algorithm>

#include "base/memory_reserve.h"

namespace chairlift {
namespace {

// Longer than any request waits, but small enough that sums over all models do not overflow.
constexpr Duration kLongest = std::chrono::hours(24);

// About how many bytes of text make a token.
constexpr int64_t kTokenBytes = 4;

// The weight of one body in the running mean of input bytes per byte of JSON.
constexpr double kJsonWeight = 1.0 / 8;

// Bytes of the inputs for each place of the dimensions that vary.
int64_t PlaceBytes(const Signature& signature) {
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t all = 0;
  for (const SymbolicSpec& input : signature.inputs) {
    auto bytes = std::max<int64_t>(static_cast<int64_t>(DTypeSize(input.dtype)), 1);
    for (int axis = 0; input.shape.has_rank() && axis < input.shape.rank(); ++axis) {
      if (!input.shape[axis].known()) continue;
      bytes *= std::clamp<int64_t>(input.shape[axis].value(), 1, kMost / bytes);
    }
    all = std::min(all + bytes, kMost);
  }
  return std::max<int64_t>(all, 1);
}

bool TakesTexts(const Signature& signature) {
  return std::any_of(signature.inputs.begin(), signature.inputs.end(),
                     [](const SymbolicSpec& input) { return input.dtype == DType::kBytes; });
}

double PlaceCost(const Program& program) {
  double each = 0;
  for (int cell = 0; cell < program.num_cells(); ++cell) each += program.UnitCostNs(cell);
  return each;
}

}  // namespace

ModelQueue::ModelQueue(std::string name, Program& program, std::unique_ptr<Scheduler> scheduler)
    : lanes(program.lanes()),
      program_(program),
      name_(std::move(name)),
      takes_texts_(TakesTexts(program.signature())),
      place_bytes_(PlaceBytes(program.signature())),
      place_ns_(PlaceCost(program)),
      counts_by_size_(!program.signature().batches && place_ns_ == 0 && !program.JoinsOthers() &&
                      !program.CallsOthers()),
      scheduler_(std::move(scheduler)) {
  const MemoryReserve::Use use;
  for (WorkerId lane = lanes.tasks - 1; lane >= 0; --lane) free_lanes.push_back(lane);
  for (int cell = 0; cell < program.num_cells(); ++cell) {
    free_[cell].push_back(static_cast<CellType>(types_.size()));
    types_.emplace_back().cell = cell;
  }
}

CellType ModelQueue::HoldType(int cell, std::span<const int64_t> key) {
  const auto [it, fresh] = by_key_.try_emplace({cell, Key(key.begin(), key.end())}, 0);
  if (fresh) {
    std::vector<CellType>& free = free_[cell];
    if (free.empty()) {
      it->second = static_cast<CellType>(types_.size());
      types_.emplace_back();
    } else {
      it->second = free.back();
      free.pop_back();
    }
    Type& type = types_[it->second];
    type.cell = cell;
    if (type.key != it->first.second) queue_time_.Forget(it->second);  // of another shape
    type.key = it->first.second;
  }
  ++types_[it->second].holders;
  return it->second;
}

void ModelQueue::ReleaseType(CellType index) {
  Type& type = types_[index];
  if (--type.holders > 0) return;
  by_key_.erase({type.cell, type.key});
  free_[type.cell].push_back(index);
}

Duration ModelQueue::ToCome() const { return std::min(Duration(coming_ns), kLongest); }

Duration ModelQueue::Left(Duration to_come) const {
  return std::min(work.load() + std::min(to_come, kLongest), kLongest);
}

double ModelQueue::Before(int64_t times) const {
  if (!scheduler_->takes_turns()) return 1;
  const auto all = static_cast<double>(present + coming - times);
  const double before = static_cast<double>(turns) * static_cast<double>(times);
  return before < all ? before / all : 1;
}

Duration ModelQueue::ExpectedCost(const Task& task) const {
  const Type& type = types_[task.type];
  const Duration known = program_.Cost(type.cell, task);
  return known > Duration(0) ? known : type.mean_cost;
}

void ModelQueue::ExpectUnits(CellType type) {
  if (queue_time_.Knows(type)) return;
  const double each = program_.UnitCostNs(types_[type].cell);
  if (each > 0) queue_time_.Expect(type, each);
}

Duration ModelQueue::WorkOf(const ModelQueue& front, int64_t bytes, Duration unknown) const {
  const SizeCosts::Prediction learnt = front.costs->Predict(name_, bytes);
  if (learnt.measured) return learnt.cost;
  const int64_t each = front.takes_texts_ ? kTokenBytes : place_bytes_;
  const auto places = static_cast<double>(bytes / each + 1);
  const double table = std::min(place_ns_ * places, static_cast<double>(kLongest.count()));
  const Duration estimate(static_cast<int64_t>(table));
  if (estimate == Duration(0)) return learnt.cost > Duration(0) ? learnt.cost : unknown;
  return learnt.cost > Duration(0) ? std::min(estimate, learnt.cost) : estimate;
}

int64_t ModelQueue::InputBytesOf(const UnreadBody& body) const {
  if (body.binary) return body.bytes;
  return static_cast<int64_t>(static_cast<double>(body.bytes) * per_json_byte_);
}

void ModelQueue::LearnInputBytes(const UnreadBody& body, int64_t bytes) {
  if (body.binary || body.bytes <= 0) return;
  const double measured = static_cast<double>(bytes) / static_cast<double>(body.bytes);
  const double mean = per_json_byte_;
  per_json_byte_ = mean + kJsonWeight * (measured - mean);
}

void ModelQueue::Learn(const Task& task, bool helped, Duration cost) {
  program_.Learn(task, helped, cost);
  Duration& mean = types_[task.type].mean_cost;
  mean = (3 * mean + cost) / 4;
  batch_time_.Learn(cost);
  batch_time = batch_time_.time();
}

}  // namespace chairlift
