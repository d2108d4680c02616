#include "dispatcher_time.h"

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/execution/dispatcher.h"

namespace chairlift {
namespace {

constexpr int kGraphs = 64;
constexpr int kCells = 4;

const ValidatedRequest kNothing;

// A request for one of the program's graphs.
class Instant final : public RequestGraph {
 public:
  explicit Instant(const CellGraph& graph)
      : RequestGraph(kNothing), graph_(graph), left_(graph.size()) {}

  int32_t num_nodes() const override { return graph_.size(); }
  int32_t num_runs() const override { return graph_.num_runs(); }
  GraphNode run(int32_t index) const override {
    const CellGraph::Run run = graph_.run(index);
    return {.cell = static_cast<int>(run.type),
            .rows = run.rows,
            .key = {},
            .dependencies = run.dependencies,
            .follows = run.follows,
            .count = run.count};
  }
  bool done() const override { return left_ == 0; }
  StatusOr<std::vector<NamedTensor>> TakeOutputs() override { return std::vector<NamedTensor>(); }
  void Ran() { --left_; }

 private:
  const CellGraph& graph_;
  std::atomic<int32_t> left_;
};

class InstantProgram final : public Program {
 public:
  explicit InstantProgram(const DispatcherLoad& load) : Program("instant", {}, PlanOf(load)) {
    std::mt19937 random(1);
    graphs_.resize(kGraphs);
    for (CellGraph& graph : graphs_) load.build(graph, random);
  }

  int num_cells() const override { return kCells; }
  StatusOr<ProgramView> View() override { return ProgramView(); }
  StatusOr<std::unique_ptr<RequestGraph>> Unfold(ValidatedRequest /*request*/,
                                                 bool /*parts*/) override {
    return std::make_unique<Instant>(graphs_[next_++ % kGraphs]);
  }
  void Run(TaskRun& run, TaskDone done) override {
    TaskResult result;
    for (TaskNode& node : run.nodes) {
      node.units = 1;
      ++result.rows;
      static_cast<Instant*>(node.graph)->Ran();
    }
    done(result);
  }

 private:
  static ServingPlan PlanOf(const DispatcherLoad& load) {
    ServingPlan plan;
    plan.config.policy = load.policy;
    plan.config.max_queue_size = 2 * load.concurrent;
    plan.scheduling = load.options;
    plan.scheduling.workers = load.workers;
    return plan;
  }

  std::vector<CellGraph> graphs_;
  std::atomic<size_t> next_{0};
};

class Load {
 public:
  Load(const DispatcherLoad& load, int64_t nodes) : nodes_(nodes) {
    WorkerPoolOptions options;
    options.workers = load.workers;
    pool_ = *WorkerPool::Create(options);
    dispatcher_ = std::make_unique<Dispatcher>(
        *pool_, DispatcherOptions{.max_requests = 2 * load.models * load.concurrent});
    for (int i = 0; i < load.models; ++i) {
      ModelMetadata metadata;
      metadata.name = "instant";
      auto program = std::make_unique<InstantProgram>(load);
      models_.push_back(*Model::Create(std::move(metadata), std::move(program)));
    }
  }
  ~Load() {
    dispatcher_->Stop(std::chrono::milliseconds(0));
    pool_.reset();
  }

  // Nodes that ran.
  int64_t Run(int concurrent) {
    for (const std::shared_ptr<Model>& model : models_) {
      for (int i = 0; i < concurrent; ++i) {
        ++present_;
        Submit(model);
      }
    }
    std::unique_lock<std::mutex> lock(mutex_);
    ended_.wait(lock, [this] { return present_ == 0; });
    return submitted_;
  }

 private:
  void Submit(const std::shared_ptr<Model>& model) {
    auto request = std::make_shared<Request>();
    request->model = model;
    request->graph = *model->program().Unfold(kNothing, false);
    submitted_ += request->graph->num_nodes();
    request->reply.callback = [this, model](const StatusOr<InferResponse>& answer) {
      if (!answer.ok()) std::abort();
      if (submitted_ < nodes_) return Submit(model);
      const std::lock_guard<std::mutex> lock(mutex_);
      if (--present_ == 0) ended_.notify_one();
    };
    dispatcher_->Submit(std::move(request));
  }

  const int64_t nodes_;
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::vector<std::shared_ptr<Model>> models_;
  std::atomic<int64_t> submitted_{0};
  std::atomic<int> present_{0};
  std::mutex mutex_;
  std::condition_variable ended_;
};

}  // namespace

double DispatcherNsPerNode(const DispatcherLoad& load, int64_t nodes) {
  Load run(load, nodes);
  const std::clock_t begin = std::clock();
  const int64_t ran = run.Run(load.concurrent);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  return seconds * 1e9 / static_cast<double>(ran);
}

}  // namespace chairlift
