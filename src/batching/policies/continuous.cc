#include "batching/policies/continuous.h"

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "batching/request_table.h"

namespace chairlift {
namespace {

class ContinuousScheduler final : public RequestTable {
 public:
  explicit ContinuousScheduler(const PolicyOptions& options)
      : RequestTable({.deadline_until_end = true, .first_reader_first = true}), options_(options) {}

 private:
  struct Live {
    uint64_t arrival = 0;
    int64_t state = 0;
    bool admitted = false;
    std::deque<int32_t> pieces;  // ready, of its prompt
  };

  bool prompts() const { return !with_pieces_.empty(); }

  void Arrived(Slot slot, const CellGraph& graph) override {
    if (static_cast<size_t>(slot) >= live_.size()) live_.resize(static_cast<size_t>(slot) + 1);
    live_[static_cast<size_t>(slot)] = {
        .arrival = request(slot).arrival, .state = graph.state(), .pieces = {}};
    queue_.emplace(request(slot).arrival, slot);
  }

  void Ready(std::span<const Member> nodes) override {
    for (const Member member : nodes) {
      // A node that reads from a task in flight comes again when that has ended.
      if (node(member).not_complete > 0) continue;
      const auto pieces = static_cast<int32_t>(request(member.slot).roots.size());
      if (member.node >= pieces) {
        steps_.push_back(member);
        continue;
      }
      Live& live = live_[static_cast<size_t>(member.slot)];
      live.pieces.push_back(member.node);
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
      if (!live.pieces.empty()) with_pieces_.emplace(live.arrival, slot);
    }
  }

  Member NextPiece() const {
    const Slot slot = with_pieces_.begin()->second;
    return {slot, live_[static_cast<size_t>(slot)].pieces.front()};
  }

  std::optional<Task> NextTask(WorkerId worker) override {
    if (in_flight_) return std::nullopt;
    Admit();
    if (steps_.empty() && !prompts()) return std::nullopt;
    std::vector<Member> members = TakeList();
    const int32_t most = options_.max_batch_size;
    int32_t rows = 0;
    CellType type = 0;
    const auto fits = [&](Member member) {
      return rows == 0 || (node(member).type == type && rows + node(member).size() <= most);
    };
    const bool apart =
        !steps_.empty() && prompts() && node(NextPiece()).type != node(steps_.front()).type;
    const bool pieces_turn = apart && stepped_;
    while (!pieces_turn && !steps_.empty() && fits(steps_.front())) {
      type = node(steps_.front()).type;
      rows += node(steps_.front()).size();
      members.push_back(steps_.front());
      steps_.pop_front();
    }
    stepped_ = !members.empty();
    for (bool first = true; prompts() && !(apart && stepped_); first = false) {
      const Member piece = NextPiece();
      Live& live = live_[static_cast<size_t>(piece.slot)];
      if (!first && (stepped_ || !fits(piece))) break;
      type = node(piece).type;
      members.push_back(piece);
      rows += node(piece).size();
      live.pieces.pop_front();
      if (live.pieces.empty()) with_pieces_.erase(with_pieces_.begin());
    }
    in_flight_ = true;
    Task task = Give(type, worker, std::move(members));
    task.by_team = true;
    return task;
  }

  void Ended(const Running& /*task*/) override { in_flight_ = false; }

  const PolicyOptions options_;
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
  return std::make_unique<ContinuousScheduler>(options);
}

}  // namespace chairlift
