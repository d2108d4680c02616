// The request table in long random schedules against a model of it that computes everything again
// after each event: which nodes are ready, and which requests are held, wait, leave or expire.
#include "batching/request_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <list>
#include <map>
#include <random>
#include <set>
#include <tuple>

namespace chairlift {
namespace {

using std::chrono::microseconds;

constexpr int kWorkers = 3;
constexpr int kTypes = 3;

int Pick(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}
bool Chance(std::mt19937& random, double p) {
  return std::uniform_real_distribution<double>()(random) < p;
}

// A ready node, as a policy knows it: where what it reads from is in flight; kNoWorker: nowhere.
using ReadyNodes = std::map<std::pair<BatchRequestId, int32_t>, WorkerId>;

// Starts whatever is ready in no particular order.
class AnyOrder : public RequestTable {
 public:
  AnyOrder(bool stops, bool deadline_until_end, unsigned seed)
      : RequestTable({.stops_between_nodes = stops, .deadline_until_end = deadline_until_end}),
        stops_(stops),
        random_(seed) {}

  ReadyNodes ready;
  std::set<BatchRequestId> here;
  std::set<BatchRequestId> released;  // since it was last emptied

  std::set<BatchRequestId> Held() const {
    std::set<BatchRequestId> held;
    for (const auto& [id, slot] : slots_) {
      if (request(slot).held()) held.insert(id);
    }
    return held;
  }

 private:
  std::optional<Task> NextTask(WorkerId worker) override {
    std::vector<Member> members;
    for (const auto& [key, tie] : ready) {
      const Slot slot = slots_.at(key.first);
      const Member member{slot, request(slot).EntryOf(key.second)};
      if (request(member.slot).held() || (tie != kNoWorker && tie != worker)) continue;
      if (!members.empty() && node(member).type != node(members[0]).type) continue;
      if (Chance(random_, 0.5)) members.push_back(member);
    }
    if (members.empty()) return std::nullopt;
    for (const Member member : members) ready.erase(KeyOf(member));
    const CellType type = node(members[0]).type;
    return Give(type, worker, std::move(members));
  }
  void Arrived(Slot slot, const CellGraph& graph) override {
    EXPECT_EQ(request(slot).size, graph.size());
    EXPECT_TRUE(here.insert(request(slot).id).second);
    slots_[request(slot).id] = slot;
  }
  void Ready(std::span<const Member> nodes) override {
    ASSERT_FALSE(nodes.empty());
    for (const Member member : nodes) {
      const LiveNode& known = node(member);
      const WorkerId tie = known.not_complete > 0 ? known.worker : kNoWorker;
      ready.insert_or_assign(KeyOf(member), tie);
    }
  }
  void Gone(Slot slot) override {
    const BatchRequestId id = request(slot).id;
    EXPECT_EQ(here.erase(id), 1u) << "request " << id << " is gone twice";
    std::erase_if(ready, [id](const auto& entry) { return entry.first.first == id; });
    slots_.erase(id);
  }
  void Released(Slot slot) override {
    EXPECT_FALSE(request(slot).held());
    EXPECT_TRUE(released.insert(request(slot).id).second);
  }
  // If requests run to their end, with their last node.
  void CollectLeft(const Running& task, std::vector<BatchRequestId>& left) override {
    if (stops_) return RequestTable::CollectLeft(task, left);
    for (const Member member : task.members) {
      if (request(member.slot).present && request(member.slot).unfinished == 0) {
        LetGo(member.slot, left);
      }
    }
  }

  ReadyNodes::key_type KeyOf(Member member) {
    return {request(member.slot).id, node(member).next()};
  }

  const bool stops_;
  std::mt19937 random_;
  std::map<BatchRequestId, Slot> slots_;
};

struct ModelNode {
  enum { kWaiting, kInFlight, kEnded } state = kWaiting;
  CellType type = 0;
  int32_t rows = 1;
  std::vector<int32_t> dependencies;
  WorkerId worker = kNoWorker;
};
struct ModelRequest {
  ClientId client = 0;
  std::optional<TimePoint> deadline;
  std::vector<ModelNode> nodes;
  bool started = false;
  bool leaving = false;
  bool expired = false;

  bool Any(int state) const {
    return std::any_of(nodes.begin(), nodes.end(),
                       [state](const ModelNode& node) { return node.state == state; });
  }
};

class Schedule {
  using TaskNodes = std::vector<std::pair<BatchRequestId, int32_t>>;

 public:
  Schedule(bool stops, bool deadline_until_end, unsigned seed)
      : stops_(stops),
        deadline_until_end_(deadline_until_end),
        random_(seed),
        table_(stops, deadline_until_end, seed) {}

  void Run(int events) {
    for (int i = 0; i < events && !::testing::Test::HasFailure(); ++i) {
      const int kind = Pick(random_, 0, 99);
      const std::set<BatchRequestId> held = Held();
      table_.released.clear();
      if (kind < 12 && requests_.size() < 40) Arrive();
      if (kind >= 12 && kind < 16) Cancel();
      if (kind >= 16 && kind < 26) Wait();
      if (kind >= 26 && kind < 60) Next(Pick(random_, 0, kWorkers - 1));
      if (kind >= 60) Complete(Pick(random_, 0, kWorkers - 1));
      Check(held);
    }
    EXPECT_GT(ended_, events / 100);
    EXPECT_GT(cancelled_in_flight_, 0);
    EXPECT_GT(expired_, 0);
    EXPECT_GT(cancelled_expired_, 0);
    EXPECT_GT(released_, 0);
    EXPECT_GT(grown_, 0);
    EXPECT_GT(runs_, 0);
  }

 private:
  void Arrive() {
    const BatchRequestId id = next_id_++;
    ModelRequest& request = requests_[id];
    CellGraph graph;
    const int count = Pick(random_, 1, 6);
    for (int i = 0; i < count; i = graph.size()) {
      ModelNode node;
      node.type = static_cast<CellType>(Pick(random_, 0, kTypes - 1));
      node.rows = Pick(random_, 0, 3);
      for (int d = 0; d < i; ++d) {
        if (Chance(random_, 0.4)) node.dependencies.push_back(d);
      }
      const int32_t run = Chance(random_, 0.3) ? Pick(random_, 2, 4) : 1;
      if (run > 1) node.rows = 1;
      graph.Add(node.type, node.rows, node.dependencies, -1, run);
      request.nodes.push_back(node);
      for (int32_t n = 1; n < run; ++n) {
        node.dependencies = {static_cast<int32_t>(request.nodes.size()) - 1};
        request.nodes.push_back(node);
      }
      runs_ += run > 1 ? 1 : 0;
    }
    request.client = Chance(random_, 0.6) ? Pick(random_, 1, 3) : 0;
    if (Chance(random_, 0.5)) request.deadline = now_ + microseconds(Pick(random_, 0, 20));
    if (Chance(random_, 0.5)) {
      table_.ArrivePrepared(id, graph, table_.Prepare(graph), request.client, now_,
                            request.deadline);
    } else {
      table_.Arrive(id, graph, request.client, now_, request.deadline);
    }
  }

  void Cancel() {
    BatchRequestId id = next_id_ - std::min<BatchRequestId>(next_id_, Pick(random_, 1, 40));
    if (!reported_.empty() && Chance(random_, 0.5)) id = reported_.front();
    const auto found = requests_.find(id);
    const bool stays = found != requests_.end() &&
                       (stops_ ? found->second.Any(ModelNode::kInFlight) : found->second.started);
    EXPECT_EQ(table_.Cancel(id, now_), !stays);
    if (found == requests_.end()) {
      cancelled_expired_ += static_cast<int>(std::erase(reported_, id));
      return;
    }
    if (!stays) {
      requests_.erase(found);
      return;
    }
    found->second.leaving = true;
    found->second.expired = false;
    ++cancelled_in_flight_;
  }

  // Whose deadlines count, in the order in which they expire.
  std::vector<BatchRequestId> Deadlines() const {
    std::vector<BatchRequestId> ids;
    for (const auto& [id, request] : requests_) {
      const bool counts = deadline_until_end_ || !request.started;
      if (request.deadline && counts && !request.leaving) ids.push_back(id);
    }
    std::stable_sort(ids.begin(), ids.end(), [this](BatchRequestId a, BatchRequestId b) {
      return requests_.at(a).deadline < requests_.at(b).deadline;
    });
    return ids;
  }
  void Expire() {
    for (const BatchRequestId id : Deadlines()) {
      ModelRequest& request = requests_.at(id);
      if (*request.deadline > now_) break;
      ++expired_;
      request.leaving = request.expired = true;
      if (request.Any(ModelNode::kInFlight)) continue;
      reported_.push_back(id);
      requests_.erase(id);
    }
  }
  void Wait() {
    now_ += microseconds(Pick(random_, 1, 6));
    if (Chance(random_, 0.2)) return;  // found out by Next()
    Expire();
    EXPECT_EQ(table_.TakeExpired(now_), std::exchange(reported_, {}));
  }

  void Next(WorkerId worker) {
    Expire();
    const std::optional<Task> task = table_.Next(worker, now_);
    if (!task) return;
    EXPECT_EQ(task->worker, worker);
    EXPECT_EQ(task->id, ++tasks_);
    TaskNodes given;
    for (const auto& [key, tie] : before_) {
      const auto found = requests_.find(key.first);
      const bool gone = found == requests_.end() || (stops_ && found->second.leaving);
      if (!gone && !table_.ready.contains(key)) given.push_back(key);
    }
    // Nodes of a request that is leaving are in the task, but not named.
    std::vector<NodeRef> named;
    int32_t rows = 0;
    int32_t padding = 0;
    for (const auto& [id, index] : given) {
      ModelRequest& request = requests_.at(id);
      ModelNode& node = request.nodes[index];
      EXPECT_FALSE(Held().contains(id));
      EXPECT_EQ(node.type, task->type);
      node.state = ModelNode::kInFlight;
      node.worker = worker;
      if (request.leaving) {
        padding += std::max(1, node.rows);
      } else {
        named.push_back({id, index});
        rows += node.rows;
      }
    }
    for (const auto& [id, index] : given) requests_.at(id).started = true;
    EXPECT_EQ(task->nodes, named);
    EXPECT_EQ(task->rows, rows);
    EXPECT_EQ(task->padding_rows, padding);
    streams_[worker].push_back({task->id, given});
  }

  void Complete(WorkerId worker) {
    if (streams_[worker].empty()) return;
    const auto [task, nodes] = streams_[worker].front();
    streams_[worker].pop_front();
    std::list<std::vector<int32_t>> lists;
    std::vector<Scheduler::Growth> growth;
    for (const auto& [id, index] : nodes) {
      ModelRequest& request = requests_.at(id);
      request.nodes[index].state = ModelNode::kEnded;
      if (request.nodes.size() > 12 || !Chance(random_, 0.2)) continue;
      lists.push_back({index});
      const int last = static_cast<int>(request.nodes.size()) - 1;
      if (last != index && Chance(random_, 0.5)) lists.back().push_back(last);
      const auto type = static_cast<CellType>(Pick(random_, 0, kTypes - 1));
      growth.push_back({id, type, Pick(random_, 0, 2), lists.back()});
      if (request.leaving) continue;
      ++grown_;
      request.nodes.push_back(
          {.type = type, .rows = growth.back().rows, .dependencies = lists.back()});
    }
    std::vector<BatchRequestId> left;
    for (const auto& [id, index] : nodes) {
      const auto found = requests_.find(id);
      if (found == requests_.end() || found->second.Any(ModelNode::kInFlight)) continue;
      if (found->second.Any(ModelNode::kWaiting) && !(stops_ && found->second.leaving)) continue;
      (found->second.expired ? reported_ : left).push_back(id);
      ended_ += found->second.leaving ? 0 : 1;
      requests_.erase(found);
    }
    EXPECT_EQ(table_.Complete(task, now_, growth), left);
  }

  std::set<BatchRequestId> Held() const {
    std::set<BatchRequestId> held;
    std::set<ClientId> seen;
    for (const auto& [id, request] : requests_) {
      if (request.client == 0 || request.started || request.leaving) continue;
      if (!seen.insert(request.client).second) held.insert(id);
    }
    return held;
  }

  void CheckReady() {
    ReadyNodes left = table_.ready;
    for (const auto& [id, request] : requests_) {
      if (request.leaving && stops_) continue;
      for (int32_t i = 0; i < static_cast<int32_t>(request.nodes.size()); ++i) {
        const ModelNode& node = request.nodes[i];
        bool ready = node.state == ModelNode::kWaiting;
        std::set<WorkerId> given;      // to these, now or earlier
        std::set<WorkerId> in_flight;  // there
        for (const int32_t d : node.dependencies) {
          const ModelNode& read = request.nodes[d];
          if (read.state == ModelNode::kWaiting) ready = false;
          given.insert(read.worker);
          if (read.state == ModelNode::kInFlight) in_flight.insert(read.worker);
        }
        if (!ready) continue;
        const auto known = left.extract({id, i});
        ASSERT_FALSE(known.empty()) << "node " << i << " of " << id << " is ready";
        const WorkerId tie = known.mapped();
        if (in_flight.empty()) {
          EXPECT_EQ(tie, kNoWorker);
        } else if (given.size() == 1) {
          EXPECT_EQ(tie, *in_flight.begin());
        } else {
          EXPECT_TRUE(tie == kSeveralWorkers || in_flight == std::set<WorkerId>{tie});
        }
      }
    }
    EXPECT_TRUE(left.empty()) << left.size() << " nodes are not ready";
  }

  void Check(const std::set<BatchRequestId>& held_before) {
    CheckReady();
    const std::set<BatchRequestId> held = Held();
    EXPECT_EQ(table_.Held(), held);
    std::set<BatchRequestId> released;
    for (const BatchRequestId id : held_before) {
      if (requests_.contains(id) && !held.contains(id)) released.insert(id);
    }
    // A request that expires in the same event may have been released before.
    EXPECT_TRUE(std::includes(table_.released.begin(), table_.released.end(), released.begin(),
                              released.end()));
    released_ += static_cast<int>(released.size());
    std::set<BatchRequestId> here;
    int waiting = 0;
    for (const auto& [id, request] : requests_) {
      if (!(stops_ && request.leaving)) here.insert(id);
      waiting += request.started ? 0 : 1;
    }
    EXPECT_EQ(table_.here, here);
    EXPECT_EQ(table_.waiting(), waiting);
    std::optional<TimePoint> wake;
    for (const BatchRequestId id : Deadlines()) {
      if (*requests_.at(id).deadline <= now_) continue;
      wake = requests_.at(id).deadline;
      break;
    }
    EXPECT_EQ(table_.WakeAt(now_), wake);
    before_ = table_.ready;
  }

  const bool stops_;
  const bool deadline_until_end_;
  std::mt19937 random_;
  AnyOrder table_;
  TimePoint now_{};
  BatchRequestId next_id_ = 1;
  std::map<BatchRequestId, ModelRequest> requests_;
  std::vector<BatchRequestId> reported_;  // expired, to be reported
  ReadyNodes before_;                     // as of the last check
  std::array<std::deque<std::pair<TaskId, TaskNodes>>, kWorkers> streams_;
  TaskId tasks_ = 0;
  int ended_ = 0;
  int cancelled_in_flight_ = 0;
  int cancelled_expired_ = 0;  // before it was reported
  int expired_ = 0;
  int released_ = 0;
  int grown_ = 0;
  int runs_ = 0;  // of several nodes
};

// Whether requests stop between their nodes; whether deadlines hold until the end; seed.
using Setup = std::tuple<bool, bool, unsigned>;
class RequestTableTest : public ::testing::TestWithParam<Setup> {};

TEST_P(RequestTableTest, AgreesWithItsModel) {
  const auto [stops, deadline_until_end, seed] = GetParam();
  Schedule(stops, deadline_until_end, seed).Run(20000);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RequestTableTest,
                         ::testing::Values(Setup{true, false, 1}, Setup{true, false, 2},
                                           Setup{true, true, 3}, Setup{true, true, 4},
                                           Setup{false, false, 5}, Setup{false, false, 6}));

}  // namespace
}  // namespace chairlift
