// The two rules of fairness together, in virtual time and on random schedules: which client may
// join a queue (FairShare), and whose node is next in it (turns of the window policy). Each is
// compared with a plain model that is written from its header.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "batching/fair_share.h"
#include "batching/policy.h"
#include "batching/virtual_workers.h"

namespace chairlift {
namespace fairness_test {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// FairShare: what each client was given in this period and in the last one, added up again at each
// question.
class SharesModel {
 public:
  Duration Allowed(const FairShare::Client& client, Duration wait, Duration limit, TimePoint now) {
    if (wait <= limit / 8) return limit;
    Begin(now);
    counts_until_ = now + FairShare::kPeriod;
    given_[{period_, client.group, client.member}] += 0;
    double all = 0, group = 0, own = 0;
    std::set<uint64_t> groups, members;
    const double left = std::chrono::duration<double>(start_ + FairShare::kPeriod - now) /
                        std::chrono::duration<double>(FairShare::kPeriod);
    for (const auto& [key, ns] : given_) {
      const auto& [period, its_group, its_member] = key;
      const double counts = ns * (period == period_ ? 1 : left);
      groups.insert(its_group);
      all += counts;
      if (its_group != client.group) continue;
      members.insert(its_member);
      group += counts;
      if (its_member == client.member) own += counts;
    }
    double times = 1;
    if (all > 0) times = std::max(times, group * static_cast<double>(groups.size()) / all);
    if (group > 0) times = std::max(times, own * static_cast<double>(members.size()) / group);
    return Duration(
        static_cast<int64_t>(static_cast<double>(limit.count()) / std::min(times, 2.0)));
  }

  void Charge(const FairShare::Client& client, Duration work, TimePoint now) {
    if (now >= counts_until_) return;
    Begin(now);
    given_[{period_, client.group, client.member}] += static_cast<double>(work.count());
  }

 private:
  // One period after the other while a client is counted; after two without, from then on.
  void Begin(TimePoint now) {
    if (now - start_ >= 2 * FairShare::kPeriod) {
      given_.clear();
      start_ = now;
    } else if (now - start_ >= FairShare::kPeriod) {
      std::erase_if(given_, [&](const auto& one) { return std::get<0>(one.first) < period_; });
      ++period_;
      start_ += FairShare::kPeriod;
    }
  }

  std::map<std::tuple<int64_t, uint64_t, uint64_t>, double> given_;  // by period, group, member
  int64_t period_ = 0;
  TimePoint start_{};
  TimePoint counts_until_{};
};

// The window without a delay: one node of each request, then a second one of each.
class TurnsModel {
 public:
  void Ready(BatchRequestId request, uint64_t turn, int32_t node, int32_t rows) {
    // Requests of one turn share what is known of it, as long as some node of theirs waits.
    uint64_t& last = turn == 0 ? alone_[request] : shared_[turn];
    last = std::max(last, given_) + 1;
    waiting_.push_back({last, next_++, request, turn, node, rows});
  }
  std::vector<std::pair<BatchRequestId, int32_t>> Take(int32_t most) {
    std::vector<std::pair<BatchRequestId, int32_t>> taken;
    for (int32_t rows = 0; !waiting_.empty();) {
      const auto first = std::min_element(
          waiting_.begin(), waiting_.end(), [](const Waiting& a, const Waiting& b) {
            return std::pair(a.turn, a.number) < std::pair(b.turn, b.number);
          });
      if (!taken.empty() && rows + first->rows > most) break;
      rows += first->rows;
      given_ = std::max(given_, first->turn);
      taken.emplace_back(first->request, first->node);
      Drop(first);
      if (rows >= most) break;
    }
    return taken;
  }
  void Leave(BatchRequestId request) {
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      at = at->request == request ? Drop(at) : at + 1;
    }
    alone_.erase(request);
  }

 private:
  struct Waiting {
    uint64_t turn;
    uint64_t number;
    BatchRequestId request;
    uint64_t shares;
    int32_t node;
    int32_t rows;
  };

  std::vector<Waiting>::iterator Drop(std::vector<Waiting>::iterator at) {
    const uint64_t shares = at->shares;
    const auto next = waiting_.erase(at);
    if (std::none_of(waiting_.begin(), waiting_.end(),
                     [&](const Waiting& one) { return one.shares == shares; })) {
      shared_.erase(shares);
    }
    return next;
  }

  std::vector<Waiting> waiting_;
  std::map<BatchRequestId, uint64_t> alone_;
  std::map<uint64_t, uint64_t> shared_;
  uint64_t given_ = 0;
  uint64_t next_ = 0;
};

constexpr Duration kARow = milliseconds(1);
constexpr Duration kLimit = milliseconds(60);
constexpr int32_t kMostRows = 4;
constexpr Duration kRunsFor = seconds(30);

// Clients that ask again as soon as they are answered, and a little later where they are refused.
class Simulation {
 public:
  explicit Simulation(unsigned seed) : random_(seed), workers_(Pick(1, 3)) {
    scheduler_ = MakePolicy("window", {.max_batch_size = kMostRows, .workers = workers_});
    const int groups = Pick(2, 4);
    for (int group = 1; group <= groups; ++group) {
      const int members = Pick(1, 3);
      for (int member = 0; member < members; ++member) {
        Asker asker;
        asker.client = {static_cast<uint64_t>(group), static_cast<uint64_t>(member)};
        asker.most_nodes = Pick(1, 3) == 1 ? 12 : 1;
        asker.shares_turns = Pick(1, 3) == 1;
        // Each has enough under way at a time to fill the queue alone.
        const int at_once = static_cast<int>(kLimit / kARow / 2) * workers_;
        for (int i = 0; i < at_once; ++i) {
          asks_.emplace(now_ + microseconds(Pick(0, 50000)), askers_.size());
        }
        askers_.push_back(asker);
      }
    }
    for (int worker = 0; worker < workers_; ++worker) idle_.insert(worker);
  }

  void Run() {
    const TimePoint end = now_ + kRunsFor;
    while (now_ < end) {
      TimePoint next = asks_.empty() ? end : asks_.begin()->first;
      if (!running_.empty()) next = std::min(next, running_.begin()->first);
      now_ = std::min(next, end);
      while (!running_.empty() && running_.begin()->first <= now_) EndTask();
      while (!asks_.empty() && asks_.begin()->first <= now_) {
        const size_t asker = asks_.begin()->second;
        asks_.erase(asks_.begin());
        Ask(asker);
      }
      if (Pick(1, 2000) == 1) CancelOne();
      GiveTasks();
      if (::testing::Test::HasFatalFailure()) return;
    }
    CheckShares();
  }

 private:
  struct Asker {
    FairShare::Client client;
    int most_nodes = 1;
    bool shares_turns = false;
    int64_t rows_late = 0;  // admitted in the second half
  };
  struct Live {
    size_t asker = 0;
    std::vector<int32_t> rows = {};  // by node
    TimePoint arrived{};
    Duration wait{0};  // when it was admitted
    int left = 0;
    int in_flight = 0;
    bool begun = false;
    bool cancelled = false;
  };

  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  Duration Wait() const { return kARow * rows_left_ / workers_; }

  void Ask(size_t number) {
    const Asker& asker = askers_[number];
    const Duration wait = Wait();
    const Duration allowed = shares_.Allowed(asker.client, wait, kLimit, now_);
    const Duration expected = model_.Allowed(asker.client, wait, kLimit, now_);
    ASSERT_NEAR(static_cast<double>(allowed.count()), static_cast<double>(expected.count()), 2)
        << "client " << asker.client.group << "." << asker.client.member;
    if (wait > allowed) {
      asks_.emplace(now_ + milliseconds(20) + microseconds(Pick(0, 20000)), number);
      return;
    }
    const BatchRequestId id = next_id_++;
    Live& live = live_[id];
    live = {.asker = number, .arrived = now_, .wait = wait};
    CellGraph graph;
    // Three requests at a time, as a pipeline's.
    const uint64_t turn = asker.shares_turns ? 1 + (id / 3) * askers_.size() + number : 0;
    graph.set_turn(turn);
    const int nodes = Pick(1, asker.most_nodes);
    for (int i = 0; i < nodes; ++i) {
      live.rows.push_back(Pick(1, 3));
      graph.Add(0, live.rows.back());
      turns_.Ready(id, turn, i, live.rows.back());
      rows_left_ += live.rows.back();
    }
    live.left = nodes;
    Duration work{0};
    for (const int32_t rows : live.rows) work += kARow * rows;
    if (now_ - TimePoint{} > kRunsFor / 2) askers_[number].rows_late += work / kARow;
    shares_.Charge(asker.client, work, now_);
    model_.Charge(asker.client, work, now_);
    scheduler_->Arrive(id, graph, 0, now_, {});
  }

  void CancelOne() {
    if (live_.empty()) return;
    const auto found = live_.lower_bound(static_cast<BatchRequestId>(Pick(1, 2)) * next_id_ / 2);
    if (found == live_.end() || found->second.cancelled) return;
    Live& live = found->second;
    live.cancelled = true;
    turns_.Leave(found->first);
    EXPECT_EQ(scheduler_->Cancel(found->first, now_), live.in_flight == 0);
    for (const int32_t rows : live.rows) rows_left_ -= rows;  // those started are 0 by now
    if (live.in_flight == 0) Left(found->first);
  }

  void Left(BatchRequestId id) {
    asks_.emplace(now_, live_.at(id).asker);
    live_.erase(id);
  }

  void GiveTasks() {
    while (!idle_.empty()) {
      const std::optional<Task> task = scheduler_->Next(*idle_.begin(), now_);
      const auto expected = turns_.Take(kMostRows);
      std::vector<std::pair<BatchRequestId, int32_t>> given;
      if (task) {
        for (const NodeRef& node : task->nodes) given.emplace_back(node.request, node.node);
      }
      ASSERT_EQ(given, expected);
      if (!task) return;
      idle_.erase(idle_.begin());
      int32_t all = 0;
      for (const NodeRef& node : task->nodes) {
        Live& live = live_.at(node.request);
        if (!std::exchange(live.begun, true) && !askers_[live.asker].shares_turns) {
          // Others' second nodes do not come before its first, and those that run end.
          EXPECT_LE(now_ - live.arrived, live.wait + 2 * kMostRows * kARow);
          EXPECT_LE(live.wait, kLimit);
        }
        ++live.in_flight;
        const int32_t rows = std::exchange(live.rows[static_cast<size_t>(node.node)], 0);
        rows_left_ -= rows;
        all += rows;
      }
      running_.emplace(now_ + kARow * all, *task);
    }
  }

  void EndTask() {
    const Task task = running_.begin()->second;
    running_.erase(running_.begin());
    idle_.insert(task.worker);
    const std::vector<BatchRequestId> left = scheduler_->Complete(task.id, now_, {});
    std::set<BatchRequestId> expected;
    for (const NodeRef& node : task.nodes) {
      Live& live = live_.at(node.request);
      --live.left;
      --live.in_flight;
      if (live.in_flight == 0 && (live.left == 0 || live.cancelled)) expected.insert(node.request);
    }
    EXPECT_EQ(std::set<BatchRequestId>(left.begin(), left.end()), expected);
    for (const BatchRequestId id : expected) Left(id);
  }

  // Groups have equal shares, and so have the members of each, whatever their requests are like.
  void CheckShares() {
    std::map<uint64_t, std::vector<double>> members;
    double all = 0;
    for (const Asker& asker : askers_) {
      members[asker.client.group].push_back(static_cast<double>(asker.rows_late));
      all += static_cast<double>(asker.rows_late);
    }
    EXPECT_GT(all, 0.8 * static_cast<double>(kRunsFor / 2 / kARow) * workers_)
        << "no worker is idle";
    for (const auto& [group, rows] : members) {
      double sum = 0;
      for (const double one : rows) sum += one;
      EXPECT_NEAR(sum * static_cast<double>(members.size()) / all, 1, 0.25) << "group " << group;
      for (const double one : rows) {
        EXPECT_NEAR(one * static_cast<double>(rows.size()) / sum, 1, 0.25) << "in group " << group;
      }
    }
  }

  std::mt19937 random_;
  const int workers_;
  std::unique_ptr<Scheduler> scheduler_;
  FairShare shares_;
  SharesModel model_;
  TurnsModel turns_;
  std::vector<Asker> askers_;
  std::multimap<TimePoint, size_t> asks_;
  std::map<BatchRequestId, Live> live_;
  std::multimap<TimePoint, Task> running_;
  std::set<WorkerId> idle_;
  int64_t rows_left_ = 0;  // in the queue
  BatchRequestId next_id_ = 1;
  TimePoint now_{};
};

TEST(FairnessTest, TheTwoRulesAreAsTheirModelsSay) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    Simulation(seed).Run();
    if (HasFatalFailure()) return;
  }
}

}  // namespace fairness_test
}  // namespace chairlift
