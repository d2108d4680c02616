// Requests unfolded at random, into chains, forks of them and nodes that come later, and run in any
// order, several steps at once: each node leaves what a plain recursion says, everything delivered
// and announced is there. However the nodes are kept as runs.
#include "engine/programs/cells/cell_request.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "device/cpu/team.h"
#include "engine/programs/cells/cell_batch.h"
#include "graph/model_builder.h"

namespace chairlift {
namespace {

using testing::kFloat;
using testing::ModelBuilder;

constexpr int kTable = 16;       // entry i is 1 + i
constexpr int kMostNodes = 120;  // of a request
constexpr int kEarly = 60;       // of these, before any has run

int Pick(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}
bool Chance(std::mt19937& random, double p) {
  return std::uniform_real_distribution<double>()(random) < p;
}

// What the test knows of a request.
struct Plan {
  explicit Plan(unsigned seed) : random(seed), marks(Chance(random, 0.7)) {}
  std::mt19937 random;
  bool marks;                   // some nodes are watched or kept
  std::vector<float> left;      // by node
  std::vector<bool> ran, kept;  // likewise
  std::vector<NodeId> watched;  // not run
  std::vector<std::vector<NodeId>> dependencies;
  std::vector<NodeId> follower;
  std::vector<float> copies;  // by place in the second buffer; 0: none
};

// Node n's sum goes to place n of the answer, and sometimes to a place of a second buffer.
class RandomUnfolder final : public Unfolder {
 public:
  explicit RandomUnfolder(Plan& plan) : plan_(plan) {}

  Status Unfold(std::span<const Tensor> inputs, CellGraphBuilder& graph) override {
    x_ = graph.AddTensor(inputs[0]);
    zero_ = graph.AddTensor(Tensor::Of<float>({1, 1}, {0}));
    sums_ = graph.AddBuffer(DType::kFloat, {1, kMostNodes, 1});
    copies_ = graph.AddBuffer(DType::kFloat, {1, kMostNodes, 1});
    graph.SetAnswer(0, sums_, {.batch = 0, .time = 1});
    graph.SetAnswer(1, copies_, {.batch = 0, .time = 1});
    plan_.copies.assign(kMostNodes, 0);
    while (Count() < kEarly) AddChain(graph);
    return absl::OkStatus();
  }
  Status Ran(NodeId node, CellGraphBuilder& graph) override {
    EXPECT_EQ(std::erase(plan_.watched, node), 1u);
    EXPECT_EQ(*graph.Output(node, 0).data<float>(), plan_.left[node]);
    plan_.ran[node] = true;
    before_ = node;
    for (int chains = Pick(plan_.random, 0, 2); chains > 0; --chains) AddChain(graph);
    before_ = -1;
    return absl::OkStatus();
  }

 private:
  int Count() const { return static_cast<int>(plan_.left.size()); }
  bool IsThere(NodeId node) const { return !plan_.ran[node] || plan_.kept[node]; }

  // From zero, from a node that ran just now, or from any that is to come or is kept.
  void AddChain(CellGraphBuilder& graph) {
    std::mt19937& random = plan_.random;
    NodeId from = before_ >= 0 && Chance(random, 0.5) ? before_ : -1;
    if (from < 0 && Count() > 0 && Chance(random, 0.5)) {
      const NodeId any = Pick(random, 0, Count() - 1);
      if (IsThere(any)) from = any;
    }
    const int stride = Pick(random, -1, 1);
    int row = Pick(random, 0, kTable - 1);
    for (int steps = Pick(random, 1, 12); steps > 0 && Count() < kMostNodes; --steps) {
      from = AddStep(from, row, graph);
      row = Chance(random, 0.95) ? row + stride : Pick(random, 0, kTable - 1);
      row = (row + kTable) % kTable;
    }
    for (int marks = plan_.marks ? Pick(random, 0, 2) : 0; marks > 0; --marks) Mark(graph);
  }
  NodeId AddStep(NodeId from, int row, CellGraphBuilder& graph) {
    std::mt19937& random = plan_.random;
    const RowSource sources[] = {RowSource::OfTensor(x_, row),
                                 from < 0 ? RowSource::OfTensor(zero_) : RowSource::OfNode(from)};
    std::vector<NodeId> after;
    if (Count() > 0 && Chance(random, 0.05)) after.push_back(Pick(random, 0, Count() - 1));
    const NodeId node = graph.AddNode(0, sources, 1, after);
    EXPECT_EQ(node, Count());
    plan_.left.push_back(static_cast<float>(1 + row) + (from < 0 ? 0 : plan_.left[from]));
    plan_.ran.push_back(false);
    plan_.kept.push_back(false);
    graph.Deliver(node, 0, 0, 1, {.tensor = sums_, .offset = node * int64_t{4}});
    graph.Announce(node, {.output = 0, .row = 0, .first = node});
    const int place = Chance(random, 0.9) ? kMostNodes - 1 - node : Pick(random, 0, kMostNodes - 1);
    if (Chance(random, 0.7) && plan_.copies[place] == 0) {
      plan_.copies[place] = plan_.left[node];
      graph.Deliver(node, 0, 0, 1, {.tensor = copies_, .offset = place * int64_t{4}});
    }
    return node;
  }
  // Some node to come.
  void Mark(CellGraphBuilder& graph) {
    const NodeId node = Pick(plan_.random, 0, Count() - 1);
    if (plan_.ran[node]) return;
    if (Chance(plan_.random, 0.5)) {
      graph.Keep(node);
      plan_.kept[node] = true;
    } else if (std::find(plan_.watched.begin(), plan_.watched.end(), node) == plan_.watched.end()) {
      graph.Watch(node);
      plan_.watched.push_back(node);
    }
  }

  Plan& plan_;
  int x_ = 0, zero_ = 0, sums_ = 0, copies_ = 0;
  NodeId before_ = -1;  // has run just now
};

std::shared_ptr<CellProgram> SumProgram() {
  ModelBuilder m(17);
  m.Input("x", testing::kInt64, {"batch"}).Input("sum", kFloat, {"batch", 1});
  m.Output("next", kFloat);
  m.Floats("table", {kTable, 1}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  m.Node("Gather", {"table", "x"}, {"entry"});
  m.Node("Add", {"entry", "sum"}, {"next"});
  StatusOr<ImportedModel> imported = m.Import();
  EXPECT_TRUE(imported.ok()) << imported.status();
  StatusOr<std::unique_ptr<Cell>> cell = Cell::Create("sum", std::move(imported->graph), {});
  EXPECT_TRUE(cell.ok()) << cell.status();
  auto program = std::make_shared<CellProgram>();
  program->cells.push_back(*std::move(cell));
  program->feeds = {{-1, 0}};
  program->outputs = {"sums", "copies"};
  return program;
}

class Schedule {
 public:
  explicit Schedule(unsigned seed) : random_(seed) {
    std::vector<int64_t> rows(kTable);
    for (int i = 0; i < kTable; ++i) rows[static_cast<size_t>(i)] = i;
    const Tensor x = Tensor::Of<int64_t>({kTable}, std::span<const int64_t>(rows));
    for (unsigned r = 0; r < 3; ++r) {
      Plan& plan = *plans_.emplace_back(std::make_unique<Plan>(seed * 3 + r));
      program_->unfolder = [&plan] { return std::make_unique<RandomUnfolder>(plan); };
      CellRequest& request = *requests_.emplace_back(std::make_unique<CellRequest>(program_));
      const int parts[] = {0};
      request.CollectParts(parts);
      EXPECT_TRUE(request.Begin(std::vector<Tensor>{x}).ok());
      for (int32_t i = 0; i < request.num_runs(); ++i) {
        const GraphNode run = request.run(i);
        Note(plan, {run.dependencies.begin(), run.dependencies.end()}, run.follows, run.count);
        runs_ += run.count > 1 ? 1 : 0;
      }
    }
    covered_.assign(plans_.size(), std::vector<bool>(kMostNodes));
  }

  void Run() {
    while (RunTask()) {
      if (::testing::Test::HasFailure()) return;
    }
    for (size_t r = 0; r < plans_.size(); ++r) {
      const Plan& plan = *plans_[r];
      EXPECT_TRUE(requests_[r]->done());
      EXPECT_TRUE(plan.watched.empty());
      const auto* sums = requests_[r]->answers()[0].data<float>();
      const auto* copies = requests_[r]->answers()[1].data<float>();
      for (size_t n = 0; n < plan.left.size(); ++n) {
        EXPECT_EQ(sums[n], plan.left[n]) << "node " << n;
        EXPECT_TRUE(covered_[r][n]) << "the part of node " << n << " was not sent";
      }
      EXPECT_EQ(std::vector<float>(copies, copies + kMostNodes), plan.copies);
    }
  }
  int runs() const { return runs_; }
  int grown() const { return grown_; }
  int several_steps() const { return several_steps_; }
  int went_on() const { return went_on_; }

 private:
  static void Note(Plan& plan, std::vector<NodeId> dependencies, NodeId follows, int32_t count) {
    for (; count > 0; --count) {
      const auto node = static_cast<NodeId>(plan.dependencies.size());
      plan.dependencies.push_back(dependencies);
      plan.follower.push_back(-1);
      if (follows >= 0) plan.follower[follows] = node;
      follows = node;
      dependencies = {node};
    }
  }
  // Whether what it reads has run, or is `also`.
  static bool IsReady(const Plan& plan, NodeId node, NodeId also) {
    const auto& reads = plan.dependencies[node];
    return std::all_of(reads.begin(), reads.end(),
                       [&](NodeId d) { return plan.ran[d] || d == also; });
  }

  bool RunTask() {
    struct Chosen {
      size_t request;
      NodeId node;
      int32_t steps;
    };
    std::vector<Chosen> chosen;
    for (size_t r = 0; r < plans_.size(); ++r) {
      const Plan& plan = *plans_[r];
      std::vector<NodeId> ready;
      for (NodeId n = 0; n < static_cast<NodeId>(plan.dependencies.size()); ++n) {
        if (!plan.ran[n] && IsReady(plan, n, -1)) ready.push_back(n);
      }
      std::shuffle(ready.begin(), ready.end(), random_);
      for (size_t i = 0; i < std::min<size_t>(ready.size(), 2); ++i) {
        int32_t steps = 1;
        NodeId last = ready[i];
        while (steps < 6 && plan.follower[last] >= 0 && IsReady(plan, plan.follower[last], last) &&
               Chance(random_, 0.8)) {
          last = plan.follower[last];
          ++steps;
        }
        chosen.push_back({r, ready[i], steps});
      }
    }
    if (chosen.empty()) return false;
    std::stable_sort(chosen.begin(), chosen.end(),
                     [](const Chosen& a, const Chosen& b) { return a.steps > b.steps; });
    const auto lasting = std::count_if(chosen.begin(), chosen.end(),
                                       [](const Chosen& one) { return one.steps > 1; });
    several_steps_ += lasting > 0 ? 1 : 0;
    batch_.Begin(*program_->cells[0], program_->FeedsOf(0), static_cast<int32_t>(lasting),
                 chosen[0].steps);
    for (const Chosen& one : chosen) {
      CellRequest& request = *requests_[one.request];
      if (batch_.AddNext(request, one.request + 1, one.node, one.steps)) {
        ++went_on_;
      } else {
        batch_.Add(request, one.request + 1, one.node, one.steps);
      }
    }
    batch_.Run(team_, 0, memory_);
    for (size_t i = 0; i < chosen.size(); ++i) {
      const CellBatch::Item& item = batch_.items()[i];
      EXPECT_TRUE(item.status.ok()) << item.status;
      if (!item.status.ok()) return false;
      const size_t r = chosen[i].request;
      const NodeId node = chosen[i].node;
      const int32_t steps = chosen[i].steps;
      Plan& plan = *plans_[r];
      NodeId last = node;
      for (int32_t step = 1; step < steps; ++step) last = plan.follower[last];
      EXPECT_EQ((*item.OutputsOf(steps - 1))[0].data<float>()[item.first_row], plan.left[last]);
      last = node;
      for (int32_t step = 0; step < steps; ++step, last = plan.follower[last])
        plan.ran[last] = true;
      const Status status = requests_[r]->Complete(node, steps, item.outputs, item.first_row);
      EXPECT_TRUE(status.ok()) << status;
      for (const GrownNode& grown : requests_[r]->TakeGrown()) {
        Note(plan, {grown.dependencies.begin(), grown.dependencies.end()}, grown.follows,
             grown.count);
        ++grown_;
      }
      EXPECT_EQ(plan.dependencies.size(), plan.left.size());
      requests_[r]->TakeParts([&](std::vector<ReadyPart> parts) {
        for (const ReadyPart& ready : parts) {
          for (int64_t n = 0; n < ready.part.count; ++n) {
            const auto at = static_cast<size_t>(ready.part.first + n);
            EXPECT_FALSE(covered_[r][at]);
            EXPECT_TRUE(plan.ran[at]);
            covered_[r][at] = true;
          }
        }
      });
    }
    return true;
  }

  std::mt19937 random_;
  const std::shared_ptr<CellProgram> program_ = SumProgram();
  std::vector<std::unique_ptr<Plan>> plans_;
  std::vector<std::unique_ptr<CellRequest>> requests_;
  std::vector<std::vector<bool>> covered_;  // by request and node: its part has been sent
  CellBatch batch_;
  SoloTeam team_;
  WorkerMemory memory_;
  int runs_ = 0;   // of several nodes
  int grown_ = 0;  // runs
  int several_steps_ = 0;
  int went_on_ = 0;  // rows that the batch found
};

TEST(CellRequestTest, RunsAnswerAsTheirNodes) {
  int runs = 0, grown = 0, several_steps = 0, went_on = 0;
  for (unsigned seed = 1; seed <= 200 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Schedule schedule(seed);
    schedule.Run();
    runs += schedule.runs();
    grown += schedule.grown();
    several_steps += schedule.several_steps();
    went_on += schedule.went_on();
  }
  EXPECT_GT(runs, 200);
  EXPECT_GT(grown, 200);
  EXPECT_GT(several_steps, 200);
  EXPECT_GT(went_on, 100);
}

// A chain of kTable nodes over rows 0, 1, … or backwards; from the `shown`th on repeated.
class RepeatedChain final : public Unfolder {
 public:
  struct Form {
    int shown = 3;
    bool backwards = false;
    bool last_is_copied = false;  // of those shown, alone
  };
  // Sets `repeated` to how many nodes were.
  RepeatedChain(const Form& form, int32_t& repeated) : form_(form), repeated_(repeated) {}

  Status Unfold(std::span<const Tensor> inputs, CellGraphBuilder& graph) override {
    const int x = graph.AddTensor(inputs[0]);
    RowSource state = RowSource::OfTensor(graph.AddTensor(Tensor::Of<float>({1, 1}, {0})));
    const int sums = graph.AddBuffer(DType::kFloat, {1, kTable, 1});
    const int copies = graph.AddBuffer(DType::kFloat, {1, kTable, 1});
    graph.SetAnswer(0, sums, {.batch = 0, .time = 1});
    graph.SetAnswer(1, copies, {.batch = 0, .time = 1});
    for (int step = 0; step < form_.shown; ++step) {
      const int row = form_.backwards ? kTable - 1 - step : step;
      const NodeId node = graph.AddNode(0, {{RowSource::OfTensor(x, row), state}});
      state = RowSource::OfNode(node);
      graph.Deliver(node, 0, 0, 1, {.tensor = sums, .offset = row * int64_t{4}});
      graph.Announce(node, {.output = 0, .row = 0, .first = row});
      if (form_.last_is_copied && step < form_.shown - 1) continue;
      graph.Deliver(node, 0, 0, 1, {.tensor = copies, .offset = step * int64_t{4}});
    }
    repeated_ = static_cast<CellRequest&>(graph).Repeat(kTable - form_.shown);
    return absl::OkStatus();
  }

 private:
  const Form form_;
  int32_t& repeated_;
};

// The sums and copies of all steps, and how many were repeated.
int32_t RunRepeated(const RepeatedChain::Form& form, std::vector<float>& sums,
                    std::vector<float>& copies) {
  const std::shared_ptr<CellProgram> program = SumProgram();
  int32_t repeated = 0;
  program->unfolder = [&] { return std::make_unique<RepeatedChain>(form, repeated); };
  CellRequest request(program);
  const int parts[] = {0};
  request.CollectParts(parts);
  std::vector<int64_t> rows(kTable);
  for (int i = 0; i < kTable; ++i) rows[static_cast<size_t>(i)] = i;
  const Tensor x = Tensor::Of<int64_t>({kTable}, std::span<const int64_t>(rows));
  EXPECT_TRUE(request.Begin(std::vector<Tensor>{x}).ok());
  if (request.num_nodes() < kTable) return repeated;
  CellBatch batch;
  SoloTeam team;
  WorkerMemory memory;
  batch.Begin(*program->cells[0], program->FeedsOf(0), 1, kTable);
  batch.Add(request, 1, 0, kTable);
  batch.Run(team, 0, memory);
  const CellBatch::Item& item = batch.items()[0];
  EXPECT_TRUE(item.status.ok()) << item.status;
  EXPECT_TRUE(request.Complete(0, kTable, item.outputs, item.first_row).ok());
  EXPECT_TRUE(request.done());
  int64_t announced = 0;
  request.TakeParts([&](std::vector<ReadyPart> ready) {
    for (const ReadyPart& part : ready) announced += part.part.count;
  });
  EXPECT_EQ(announced, kTable);
  const auto values = [&](size_t answer) {
    const auto* data = request.answers()[answer].data<float>();
    return std::vector<float>(data, data + kTable);
  };
  sums = values(0);
  copies = values(1);
  return repeated;
}

TEST(CellRequestTest, RepeatedNodesAreThoseThatWouldHaveBeenAdded) {
  for (const bool backwards : {false, true}) {
    SCOPED_TRACE(backwards);
    std::vector<float> added, added_copies, sums, copies;
    EXPECT_EQ(RunRepeated({.shown = kTable, .backwards = backwards}, added, added_copies), 0);
    EXPECT_EQ(added_copies.back(), kTable * (kTable + 1) / 2);
    for (const int shown : {2, 3, 7}) {
      EXPECT_EQ(RunRepeated({.shown = shown, .backwards = backwards}, sums, copies),
                kTable - shown);
      EXPECT_EQ(sums, added);
      EXPECT_EQ(copies, added_copies);
    }
  }
}

TEST(CellRequestTest, NothingIsRepeatedThatTheLastTwoNodesDoNotShow) {
  std::vector<float> sums, copies;
  EXPECT_EQ(RunRepeated({.shown = 1}, sums, copies), 0);
  EXPECT_EQ(RunRepeated({.shown = 4, .last_is_copied = true}, sums, copies), 0);
}

// Two nodes; the first that has run makes the request fail.
class FailingUnfolder final : public Unfolder {
 public:
  explicit FailingUnfolder(int& calls) : calls_(calls) {}

  Status Unfold(std::span<const Tensor> inputs, CellGraphBuilder& graph) override {
    const int x = graph.AddTensor(inputs[0]);
    const int zero = graph.AddTensor(Tensor::Of<float>({1, 1}, {0}));
    const RowSource sources[] = {RowSource::OfTensor(x, 0), RowSource::OfTensor(zero)};
    for (int i = 0; i < 2; ++i) graph.Watch(graph.AddNode(0, sources));
    return absl::OkStatus();
  }
  Status Ran(NodeId node, CellGraphBuilder& graph) override {
    ++calls_;
    EXPECT_TRUE(graph.Output(node, 0).present());
    graph.Watch(1000);  // there is none
    return absl::OkStatus();
  }

 private:
  int& calls_;
};

// It would be given no outputs.
TEST(CellRequestTest, AnUnfolderWhoseRequestFailedIsNotToldOfOtherNodes) {
  const std::shared_ptr<CellProgram> program = SumProgram();
  int calls = 0;
  program->unfolder = [&calls] { return std::make_unique<FailingUnfolder>(calls); };
  CellRequest request(program);
  ASSERT_TRUE(request.Begin(std::vector<Tensor>{Tensor::Of<int64_t>({1}, {3})}).ok());
  CellBatch batch;
  SoloTeam team(0);
  WorkerMemory memory;
  batch.Begin(*program->cells[0], program->FeedsOf(0), 0, 1);
  for (const NodeId node : {0, 1}) batch.Add(request, 1, node, 1);
  batch.Run(team, 0, memory);
  for (const NodeId node : {0, 1}) {
    const CellBatch::Item& item = batch.items()[static_cast<size_t>(node)];
    ASSERT_TRUE(item.status.ok()) << item.status;
    EXPECT_FALSE(request.Complete(node, 1, item.outputs, item.first_row).ok());
  }
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace chairlift
