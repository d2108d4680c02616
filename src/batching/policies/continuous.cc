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

 private:
  struct Live {
    uint64_t arrival = 0;
    int64_t state = 0;
    bool admitted = false;
    std::optional<int32_t> piece = {};  // the node that is ready, of its prompt
  };
  // What a task has so far.
  struct Content {
    CellType type = 0;
    int32_t rows = 0;
    int32_t sequences = 0;
    size_t prompts = 0;  // that wait while it is made; of steps
  };

  bool prompts() const { return !with_pieces_.empty(); }

  void Arrived(Slot slot, const CellGraph& graph) override {
    if (static_cast<size_t>(slot) >= live_.size()) live_.resize(static_cast<size_t>(slot) + 1);
    live_[static_cast<size_t>(slot)] = {.arrival = request(slot).arrival, .state = graph.state()};
    queue_.emplace(request(slot).arrival, slot);
  }

  void Ready(std::span<const Member> nodes) override {
    for (const Member member : nodes) {
      // A node that reads from a task in flight comes again when that has ended.
      if (node(member).not_complete > 0) continue;
      if (member.node > 0 && !node(member).divisible) {
        steps_.push_back(member);
        continue;
      }
      Live& live = live_[static_cast<size_t>(member.slot)];
      live.piece = member.node;
      if (live.admitted) with_pieces_.emplace(live.arrival, member.slot);
    }
  }

  void Gone(Slot slot) override {
    Live& live = live_[static_cast<size_t>(slot)];
    queue_.erase(live.arrival);
    with_pieces_.erase(live.arrival);
    std::erase_if(steps_, [slot](const Member& member) { return member.slot == slot; });
    if (live.admitted) held_ -= live.state;
    live = {};
  }

  // In order of arrival, those that fit.
  void Admit() {
    while (!queue_.empty()) {
      const Slot slot = queue_.begin()->second;
      Live& live = live_[static_cast<size_t>(slot)];
      const bool fits = options_.state_capacity == 0 || held_ == 0 ||
                        held_ + live.state <= options_.state_capacity;
      if (!fits || request(slot).held()) return;
      queue_.erase(queue_.begin());
      live.admitted = true;
      held_ += live.state;
      if (live.piece) with_pieces_.emplace(live.arrival, slot);
    }
  }

  Member NextPiece() const {
    const Slot slot = with_pieces_.begin()->second;
    return {slot, *live_[static_cast<size_t>(slot)].piece};
  }

  // Rows, of `rows`, that may ride beside `steps` and what `task` has besides; 0: none.
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

  // How many rows of a piece the task takes, whose steps are `steps`; 0: it does not ride.
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
    if (in_flight_) return std::nullopt;
    Admit();
    if (steps_.empty() && !prompts()) return std::nullopt;
    std::vector<Member> members = TakeList();
    const bool apart =
        !steps_.empty() && prompts() && node(NextPiece()).type != node(steps_.front()).type;
    const bool pieces_turn = apart && stepped_;
    Content task;
    while (!pieces_turn && !steps_.empty()) {
      const LiveNode& step = node(steps_.front());
      const bool fits = members.empty() || (step.type == task.type &&
                                            task.rows + step.size() <= options_.max_batch_size);
      if (!fits) break;
      task = {step.type, task.rows + step.size(), task.sequences + step.size()};
      members.push_back(steps_.front());
      steps_.pop_front();
    }
    stepped_ = !members.empty();
    const Content steps{task.type, task.rows, task.sequences, with_pieces_.size()};
    while (prompts() && !(apart && stepped_)) {
      Member piece = NextPiece();
      const LiveNode& next = node(piece);
      if (!members.empty() && next.type != task.type) break;
      const int32_t rows = RowsOf(piece, steps, task);
      if (rows == 0) break;
      if (next.divisible) piece.rows = rows;
      task = {next.type, task.rows + rows, task.sequences + 1};
      members.push_back(piece);
      live_[static_cast<size_t>(piece.slot)].piece.reset();
      with_pieces_.erase(with_pieces_.begin());
    }
    in_flight_ = true;
    Task given = Give(task.type, worker, std::move(members));
    given.sequences = task.sequences;
    given.by_team = true;
    return given;
  }

  void Ended(const Running& /*task*/) override { in_flight_ = false; }

  const PolicyOptions options_;
  const bool whole_prompts_;
  std::vector<Live> live_;                // by slot
  std::map<uint64_t, Slot> queue_;        // by arrival: not admitted
  std::map<uint64_t, Slot> with_pieces_;  // admitted, by arrival: with ready pieces
  std::deque<Member> steps_;              // ready, in the order in which they became so
  int64_t held_ = 0;                      // state of those admitted
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
