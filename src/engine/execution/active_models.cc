#include "engine/execution/active_models.h"

#include <algorithm>
#include <cassert>
#include <iterator>

namespace chairlift {
namespace {

// The charge of a model that workers do not ask for tasks.
constexpr Duration kNeverAsked = Duration::max();

}  // namespace

ActiveModels::ActiveModels(int workers) : workers_(static_cast<size_t>(workers)) {
  for (WorkerId worker = workers - 1; worker >= 0; --worker) idle_.push_back(worker);
}

ActiveModels::Turn ActiveModels::TurnOf(Model& model) {
  const ModelQueue::Share& share = model.queue().share;
  return {share.used, share.number};
}

ActiveModels::Entry ActiveModels::Enter(const std::shared_ptr<Model>& model, int most,
                                        bool inside) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (inside ? closed_to_all_ : closed_) return Entry::kClosed;
  if (requests_ >= most && !inside) return Entry::kFull;
  ++requests_;
  ModelQueue::Share& share = model->queue().share;
  if (share.requests++ > 0) return Entry::kDone;
  if (model->queue().lanes.tasks > 0) {
    share.used = kNeverAsked;
  } else {
    const bool others = !by_turn_.empty() && by_turn_.begin()->first.first != kNeverAsked;
    share.used = std::max(share.used, others ? by_turn_.begin()->first.first : most_used_);
  }
  share.number = ++entered_;
  share.asked_in_vain.assign(workers_, 0);
  share.changes = 1;
  by_turn_.emplace(TurnOf(*model), model);
  return Entry::kDone;
}

void ActiveModels::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
}

void ActiveModels::CloseToAll() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  closed_to_all_ = true;
}

std::shared_ptr<Model> ActiveModels::Note(Model& model, const Change& change) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ModelQueue::Share& share = model.queue().share;
  if (change.may_run) {
    ++share.changes;
    ++changes_;
  }
  requests_ += change.requests - share.requests;
  share.requests = change.requests;
  const bool active = share.requests > 0;
  if (!active || change.charge != Duration(0)) {
    auto place = by_turn_.extract(TurnOf(model));
    share.used += change.charge;
    if (share.used != kNeverAsked) most_used_ = std::max(most_used_, share.used);
    if (!active) {
      share.wake.reset();
      return place.empty() ? nullptr : std::move(place.mapped());
    }
    place.key() = TurnOf(model);
    by_turn_.insert(std::move(place));
  }
  share.wake = change.wake;
  if (change.wake) Arm(*change.wake);
  return nullptr;
}

void ActiveModels::WakeBy(Model& model, TimePoint wake) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ModelQueue::Share& share = model.queue().share;
  if (share.requests == 0 || (share.wake && *share.wake <= wake)) return;
  share.wake = wake;
  Arm(wake);
}

// A timer that fires too early finds nothing due and sets itself again.
void ActiveModels::Arm(TimePoint wake) {
  if (armed_ && *armed_ <= wake) return;
  armed_ = wake;
  wakes_.notify_one();
}

std::optional<ActiveModels::Search> ActiveModels::TakeIdle(std::optional<WorkerId> preferred) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (idle_.empty()) return std::nullopt;
  auto found = preferred ? std::find(idle_.begin(), idle_.end(), *preferred) : idle_.end();
  if (found == idle_.end()) found = std::prev(idle_.end());
  const WorkerId worker = *found;
  idle_.erase(found);
  return Search{.worker = worker, .changes = changes_};
}

std::shared_ptr<Model> ActiveModels::NextToAsk(Search& search) {
  const auto worker = static_cast<size_t>(search.worker);
  const std::lock_guard<std::mutex> lock(mutex_);
  auto next = by_turn_.begin();
  if (search.model == nullptr) {
    search.changes = changes_;
  } else {
    ModelQueue::Share& share = search.model->queue().share;
    if (share.number == search.at.second) share.asked_in_vain[worker] = search.model_changes;
    next = by_turn_.upper_bound(search.at);
  }
  for (; next != by_turn_.end(); ++next) {
    if (next->first.first == kNeverAsked) break;
    const ModelQueue::Share& share = next->second->queue().share;
    if (share.asked_in_vain[worker] == share.changes) continue;
    search.model = next->second;
    search.model_changes = share.changes;
    search.at = next->first;
    return search.model;
  }
  return nullptr;
}

bool ActiveModels::BecomeIdle(const Search& search) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (search.changes != changes_) return false;
  assert(std::find(idle_.begin(), idle_.end(), search.worker) == idle_.end());
  idle_.push_back(search.worker);
  return true;
}

int ActiveModels::idle() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(idle_.size());
}

std::vector<std::shared_ptr<Model>> ActiveModels::All() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<Model>> all;
  all.reserve(by_turn_.size());
  for (const auto& [turn, model] : by_turn_) all.push_back(model);
  return all;
}

int ActiveModels::size() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(by_turn_.size());
}

bool ActiveModels::WaitForDue(const Clock& clock, std::vector<std::shared_ptr<Model>>& due,
                              TimePoint latest) {
  due.clear();
  std::unique_lock<std::mutex> lock(mutex_);
  TimePoint now = clock.Now();
  const auto until = [&] { return armed_ ? std::min(*armed_, latest) : latest; };
  while (!stopped_ && !woken_ && now < until()) {
    if (until() == TimePoint::max()) {
      wakes_.wait(lock);
    } else {
      wakes_.wait_until(lock, until());
    }
    now = clock.Now();
  }
  if (stopped_) return false;
  woken_ = false;
  armed_.reset();
  for (const auto& [turn, model] : by_turn_) {
    std::optional<TimePoint>& wake = model->queue().share.wake;
    if (!wake) continue;
    if (*wake <= now) {
      wake.reset();
      due.push_back(model);
    } else {
      armed_ = armed_ ? std::min(*armed_, *wake) : *wake;
    }
  }
  return true;
}

void ActiveModels::Wake(Model& model) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (model.queue().share.requests > 0) model.queue().share.wake = TimePoint::min();
  woken_ = true;
  wakes_.notify_one();
}

void ActiveModels::Stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stopped_ = true;
  wakes_.notify_one();
}

}  // namespace chairlift
