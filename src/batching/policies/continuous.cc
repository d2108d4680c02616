#include "batching/policies/continuous.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "batching/request_table.h"

namespace chairlift {
namespace {

class ContinuousScheduler final : public RequestTable {
 public:
  ContinuousScheduler(const PolicyOptions& options, bool whole_prompts)
      : RequestTable({.deadline_until_end = true, .first_reader_first = true}),
        options_(options),
        whole_prompts_(whole_prompts) {}

  bool short_of_state() const override {
    return !queue_.empty() &&
           (short_of_state_ || !Fits(live_[static_cast<size_t>(queue_.begin()->second)]));
  }

 private:
  struct Live {
    uint64_t arrival = 0;
    int64_t most = 0;        // the most state that it may grow to
    int32_t state_rows = 0;  // CellGraph::state_rows
    bool admitted = false;
    int64_t held = 0;                   // units of state while it is admitted
    int64_t prompt = 0;                 // rows before its first step, counted from its start
    int64_t rows = 0;                   // rows in tasks since then
    std::optional<int32_t> piece = {};  // the part of its prompt that is ready

    bool grows() const { return state_rows > 0; }
    // The state that it needs for `of_rows` rows.
    int64_t StateOf(int64_t of_rows) const {
      return grows() ? std::min(most, (of_rows + state_rows - 1) / state_rows) : most;
    }
  };
  // The content of a task so far.
  struct Content {
    CellType type = 0;
    int32_t rows = 0;
    int32_t sequences = 0;
    size_t prompts = 0;  // requests whose prompts wait during the task; for steps only
  };

  bool prompts() const { return !with_pieces_.empty(); }

  void Arrived(Slot slot, const CellGraph& graph) override {
    if (static_cast<size_t>(slot) >= live_.size()) live_.resize(static_cast<size_t>(slot) + 1);
    live_[static_cast<size_t>(slot)] = {
        .arrival = request(slot).arrival, .most = graph.state(), .state_rows = graph.state_rows()};
    queue_.emplace(request(slot).arrival, slot);
  }

  void Ready(std::span<const Member> nodes) override {
    for (const Member member : nodes) {
      // A node that reads from a running task is reported again when that has ended.
      if (node(member).not_complete > 0) continue;
      Live& live = live_[static_cast<size_t>(member.slot)];
      if (member.node > 0 && !node(member).divisible) {
        live.rows = std::max(live.rows, live.prompt);  // some of these rows were counted already
        steps_.push_back(member);
        continue;
      }
      if (live.rows == 0) live.prompt = node(member).rows;
      live.piece = member.node;
      if (live.admitted) with_pieces_.emplace(live.arrival, member.slot);
    }
  }

  void Gone(Slot slot) override {
    Live& live = this->live(slot);
    queue_.erase(live.arrival);
    with_pieces_.erase(live.arrival);
    growing_.erase(live.arrival);
    if (StepOf(slot) != steps_.end()) steps_.erase(StepOf(slot));
    held_ -= live.held;
    live = {};
  }

  Live& live(Slot slot) { return live_[static_cast<size_t>(slot)]; }

  // The ready step of a request, if any.
  std::deque<Member>::iterator StepOf(Slot slot) {
    return std::find_if(steps_.begin(), steps_.end(),
                        [slot](const Member& member) { return member.slot == slot; });
  }

  void Hold(Live& live, int64_t state) {
    held_ += state - live.held;
    live.held = state;
  }

  // Admits the requests that fit, in order of arrival.
  void Admit() {
    while (!queue_.empty() && !short_of_state_) {
      const Slot slot = queue_.begin()->second;
      Live& live = this->live(slot);
      // A request that is being preempted has no ready part of a prompt.
      if (!Fits(live) || !live.piece || request(slot).held()) return;
      queue_.erase(queue_.begin());
      live.admitted = true;
      Hold(live, live.StateOf(live.prompt));
      if (live.grows()) growing_.emplace(live.arrival, slot);
      with_pieces_.emplace(live.arrival, slot);
    }
  }

  bool Fits(const Live& live) const {
    return options_.state_capacity == 0 || held_ == 0 ||
           held_ + live.StateOf(live.prompt) + Headroom() <= options_.state_capacity;
  }

  // One unit for each request that may grow, so that a request is not preempted right after it
  // starts.
  int64_t Headroom() const {
    return std::count_if(growing_.begin(), growing_.end(), [this](const auto& of) {
      const Live& live = live_[static_cast<size_t>(of.second)];
      return live.held < live.most;
    });
  }

  // Makes room for the ready steps by preempting the youngest requests that may grow; their nodes
  // are added to `members`. If only the oldest is left to preempt, its step waits and is returned.
  std::optional<Member> MakeRoom(std::vector<Member>& members) {
    short_of_state_ = false;
    if (options_.state_capacity == 0) return std::nullopt;
    const auto more = [this](const Member& step) {
      const Live& live = this->live(step.slot);
      return std::max<int64_t>(live.StateOf(live.rows + 1) - live.held, 0);
    };
    int64_t needed = 0;
    for (const Member& step : steps_) needed += more(step);
    while (needed > 0 && held_ + needed > options_.state_capacity && growing_.size() > 1) {
      const Slot youngest = growing_.rbegin()->second;
      const auto step = StepOf(youngest);
      if (step != steps_.end()) needed -= more(*step);
      SetBack(youngest, members);
    }
    std::optional<Member> waits;
    for (const Member& step : steps_) {
      Live& live = this->live(step.slot);
      const int64_t state = live.held + more(step);
      const bool alone = held_ == live.held;
      if (state > live.held && !alone && held_ - live.held + state > options_.state_capacity) {
        waits = step;
      } else {
        Hold(live, state);
      }
    }
    if (waits) steps_.erase(StepOf(waits->slot));
    short_of_state_ = waits.has_value();
    return waits;
  }

  void SetBack(Slot slot, std::vector<Member>& members) {
    Live& live = this->live(slot);
    if (live.rows > 0) {
      const auto step = StepOf(slot);
      Member begun = step != steps_.end() ? *step : Member{slot, *live.piece};
      begun.set_back = true;
      members.push_back(begun);
      live.piece.reset();
    }
    if (StepOf(slot) != steps_.end()) steps_.erase(StepOf(slot));
    with_pieces_.erase(live.arrival);
    growing_.erase(live.arrival);
    Hold(live, 0);
    live.rows = 0;
    live.admitted = false;
    queue_.emplace(live.arrival, slot);
  }

  Member NextPiece() const {
    const Slot slot = with_pieces_.begin()->second;
    return {slot, *live_[static_cast<size_t>(slot)].piece};
  }

  // How many of `rows` prompt rows can run beside `steps` and the rest of `task`; 0: none.
  int32_t RowsBeside(const Content& steps, const Content& task, int32_t rows) const {
    rows = std::min(rows, options_.max_batch_size - task.rows);
    if (options_.costs == nullptr) {
      return std::clamp(kUnknownPiece - (task.rows - steps.rows), 0, std::max(rows, 0));
    }
    const Duration alone = options_.costs->Cost(steps.type, steps.rows, steps.sequences);
    const double slowdown = steps.prompts > 1 ? kSlowdownForSeveral : kSlowdown;
    const auto most = Duration(static_cast<int64_t>(slowdown * static_cast<double>(alone.count())));
    int32_t fit = 0, too_many = std::max(rows, 0) + 1;
    while (too_many - fit > 1) {
      const int32_t middle = fit + (too_many - fit) / 2;
      const Duration cost = options_.costs->Cost(task.type, task.rows + middle, task.sequences + 1);
      (cost <= most ? fit : too_many) = middle;
    }
    return fit;
  }

  // How many rows of a part of a prompt the task takes beside its `steps`; 0: none.
  int32_t RowsOf(Member piece, const Content& steps, const Content& task) const {
    const int32_t rows = node(piece).size();
    const bool first = task.rows == steps.rows;
    const bool cut = node(piece).divisible && !whole_prompts_;
    const bool by_costs = steps.rows > 0 && !whole_prompts_;
    const int32_t fit =
        by_costs ? RowsBeside(steps, task, rows) : options_.max_batch_size - task.rows;
    if (cut) return std::min(rows, std::max(fit, first ? 1 : 0));
    return first || rows <= fit ? rows : 0;
  }

  std::optional<Task> NextTask(WorkerId worker) override {
    if (in_flight_ || (steps_.empty() && !prompts() && queue_.empty())) return std::nullopt;
    std::vector<Member> members = TakeList();
    const std::optional<Member> waits = MakeRoom(members);
    Admit();
    if (steps_.empty() && !prompts()) {
      if (waits) steps_.push_front(*waits);
      return std::nullopt;
    }
    const bool apart =
        !steps_.empty() && prompts() && node(NextPiece()).type != node(steps_.front()).type;
    const bool pieces_turn = apart && stepped_;
    Content task;
    if (!pieces_turn) TakeSteps(members, task);
    stepped_ = task.rows > 0;
    const Content steps{task.type, task.rows, task.sequences, with_pieces_.size()};
    while (prompts() && !(apart && stepped_)) {
      Member piece = NextPiece();
      const LiveNode& next = node(piece);
      if (task.rows > 0 && next.type != task.type) break;
      const int32_t rows = RowsOf(piece, steps, task);
      if (rows == 0) break;
      if (next.divisible) piece.rows = rows;
      task = {next.type, task.rows + rows, task.sequences + 1};
      members.push_back(piece);
      live(piece.slot).rows += rows;
      live(piece.slot).piece.reset();
      with_pieces_.erase(with_pieces_.begin());
    }
    if (waits) steps_.push_front(*waits);
    in_flight_ = true;
    Task given = Give(task.type, worker, std::move(members));
    given.sequences = task.sequences;
    given.by_team = true;
    return given;
  }

  void TakeSteps(std::vector<Member>& members, Content& task) {
    while (!steps_.empty()) {
      const LiveNode& step = node(steps_.front());
      const bool fits = task.rows == 0 || (step.type == task.type &&
                                           task.rows + step.size() <= options_.max_batch_size);
      if (!fits) return;
      task = {step.type, task.rows + step.size(), task.sequences + step.size()};
      ++live(steps_.front().slot).rows;
      members.push_back(steps_.front());
      steps_.pop_front();
    }
  }

  void Ended(const Running& /*task*/) override { in_flight_ = false; }

  const PolicyOptions options_;
  const bool whole_prompts_;
  std::vector<Live> live_;          // by slot
  std::map<uint64_t, Slot> queue_;  // waiting for admission, by arrival
  // Admitted requests with ready parts of prompts, by arrival.
  std::map<uint64_t, Slot> with_pieces_;
  std::map<uint64_t, Slot> growing_;  // admitted requests that may be preempted, by arrival
  std::deque<Member> steps_;          // ready steps, in the order in which they became ready
  int64_t held_ = 0;                  // state of the admitted requests
  bool short_of_state_ = false;       // a step waits for state
  bool in_flight_ = false;
  bool stepped_ = false;  // the last task had steps
};

}  // namespace

StatusOr<std::unique_ptr<Scheduler>> MakeContinuousScheduler(const PolicyOptions& options) {
  return std::make_unique<ContinuousScheduler>(options, false);
}

StatusOr<std::unique_ptr<Scheduler>> MakeWholePromptsScheduler(const PolicyOptions& options) {
  return std::make_unique<ContinuousScheduler>(options, true);
}

}  // namespace chairlift
