// Models made of other models: a request is one node, whose task makes requests to the models of
// the steps. Steps run one after the other, or concurrently if neither depends on the other.
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/out_of_memory.h"
#include "base/status.h"
#include "chairlift/text.h"
#include "engine/programs/makers.h"
#include "engine/programs/model_calls.h"
#include "engine/programs/pipeline/classes.h"
#include "engine/programs/pipeline/embedding.h"
#include "engine/programs/pipeline/pipeline_run.h"
#include "engine/programs/pipeline/wiring.h"
#include "engine/programs/rows_graph.h"
#include "engine/requests/any_seed.h"

namespace chairlift {
namespace {

// Concurrent requests of one pipeline between its first and its last step. Fewer than may wait for
// a model (ModelConfig::max_queue_size), so a single pipeline does not fill the queues of its
// steps.
constexpr int kAtOnce = 256;

class PipelineGraph final : public RequestGraph {
 public:
  PipelineGraph(ValidatedRequest request, std::shared_ptr<PipelineRun> run)
      : RequestGraph(std::move(request)), run_(std::move(run)) {}

  int32_t num_nodes() const override { return 1; }
  GraphNode run(int32_t /*index*/) const override {
    return {.cell = 0, .rows = request().load(), .key = {}, .dependencies = {}};
  }
  void Leave() override { run_->Stop(); }
  bool done() const override { return done_; }
  StatusOr<std::vector<NamedTensor>> TakeOutputs() override { return run_->TakeOutputs(); }

  PipelineRun& run() { return *run_; }
  void Complete() { done_ = true; }

 private:
  const std::shared_ptr<PipelineRun> run_;
  bool done_ = false;
};

// The token vectors of all rows of a request, with different lengths. Thread-safe.
class TokenVectorsOfRows {
 public:
  explicit TokenVectorsOfRows(int32_t rows) : rows_(static_cast<size_t>(rows)) {}
  ~TokenVectorsOfRows() {
    if (budget_ != nullptr) budget_->Give(taken_);
  }
  TokenVectorsOfRows(const TokenVectorsOfRows&) = delete;
  TokenVectorsOfRows& operator=(const TokenVectorsOfRows&) = delete;

  // [tokens, size]; bounded as in RowParts::Put().
  Status Put(int32_t row, Tensor vectors, const RowParts::Limits& limits) {
    constexpr double kMiB = 1 << 20;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto bytes = static_cast<int64_t>(vectors.byte_size());
    bytes_ += bytes;
    // They are copied once, when all have arrived.
    if (static_cast<size_t>(bytes_) > limits.own / 2) {
      return absl::OutOfRangeError(
          fmt::format("the vectors of its tokens need more than the {:.2f} MiB that they may have "
                      "(half of a task's share of --memory-budget); send fewer inputs",
                      static_cast<double>(limits.own) / 2 / kMiB));
    }
    if (limits.all != nullptr && limits.all->Take(bytes) != nullptr) {
      return ResourceExhausted(
          "answers that are computed in parts have {:.2f} of {:.2f} MiB (--memory-budget): try "
          "again later, or send fewer inputs",
          static_cast<double>(limits.all->held()) / kMiB,
          static_cast<double>(limits.all->limit()) / kMiB);
    }
    budget_ = limits.all;
    if (budget_ != nullptr) taken_ += bytes;
    rows_[static_cast<size_t>(row)] = std::move(vectors);
    return absl::OkStatus();
  }
  // Call it when all have arrived.
  StatusOr<Tensor> Take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    int64_t tokens = 0;
    for (const Tensor& row : rows_) {
      tokens += row.shape()[0];
      if (row.shape()[1] != rows_[0].shape()[1]) {
        return Internal("the vectors of tokens have {} numbers, and {}", row.shape()[1],
                        rows_[0].shape()[1]);
      }
    }
    Tensor all = Tensor::Allocate(DType::kFloat, Shape{tokens, rows_[0].shape()[1]});
    auto* to = all.data<float>();
    for (const Tensor& row : rows_) {
      const auto values = row.values<float>();
      to = std::copy(values.begin(), values.end(), to);
    }
    return all;
  }

 private:
  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<Tensor> rows_;
  int64_t bytes_ = 0;
  std::shared_ptr<ByteBudget> budget_;  // the budget that taken_ bytes come from
  int64_t taken_ = 0;
};

// Each row is a separate run, so that rows of different lengths in intermediate results are batched
// with others of their length.
class PipelineRowsGraph final : public RequestGraph {
 public:
  // Concurrent rows of one request: enough to fill batches, but few if they are long, so that other
  // requests do not wait behind them.
  static constexpr int64_t kFewestRows = 2, kMostRows = 64;
  static constexpr int64_t kBytesAtOnce = 16 << 10;

  // `tokens`: the index among the client outputs of the vectors of all tokens; -1: there are none.
  PipelineRowsGraph(ValidatedRequest request, std::shared_ptr<const WiredPipeline> wired,
                    std::vector<CalledModel> models, int tokens)
      : RequestGraph(request), wired_(std::move(wired)), models_(std::move(models)) {
    std::vector<int>& wanted = request.outputs;
    const auto found = std::find(wanted.begin(), wanted.end(), tokens);
    if (found != wanted.end()) {
      tokens_place_ = found - wanted.begin();
      tokens_.emplace(request.rows);
      wanted.erase(found);
    }
    rows_ = MakeRowsGraph(std::move(request), {.max_load = this->request().rows > 1 ? 1 : 0,
                                               .at_once = RowsAtOnce(this->request())});
  }

  int32_t num_nodes() const override { return rows_->num_nodes(); }
  GraphNode run(int32_t index) const override { return rows_->run(index); }
  std::vector<GrownNode> TakeGrown() override { return rows_->TakeGrown(); }
  bool done() const override { return rows_->done(); }
  StatusOr<std::vector<NamedTensor>> TakeOutputs() override {
    CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<NamedTensor> outputs, rows_->TakeOutputs());
    if (!tokens_) return outputs;
    CHAIRLIFT_ASSIGN_OR_RETURN(Tensor all, tokens_->Take());
    outputs.insert(outputs.begin() + tokens_place_, {kTokenEmbeddings, std::move(all)});
    return outputs;
  }
  void Leave() override {
    std::vector<std::shared_ptr<PipelineRun>> to_stop;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      left_ = true;
      for (const auto& [node, run] : runs_) to_stop.push_back(run);
    }
    for (const std::shared_ptr<PipelineRun>& run : to_stop) run->Stop();
  }

  const WiredPipeline& wired() const { return *wired_; }
  // Starts the run of a node, for the requested internal outputs.
  std::shared_ptr<PipelineRun> BeginRow(int32_t node, ModelCalls& calls, std::vector<int> outputs) {
    auto run = std::make_shared<PipelineRun>(wired_, models_, calls, rows_->rows(node).inputs,
                                             std::move(outputs));
    bool left = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      runs_.emplace(node, run);
      left = left_;
    }
    if (left) run->Stop();
    return run;
  }
  Status EndRow(int32_t node, StatusOr<std::vector<NamedTensor>> outputs,
                const RowParts::Limits& limits) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      runs_.erase(node);
    }
    Status status = outputs.ok() ? Complete(node, *std::move(outputs), limits)
                                 : Status(outputs.status().code(), outputs.status().message());
    if (status.ok() || request().rows == 1) return status;
    return Annotate(status, fmt::format("row {}", node));
  }

 private:
  static int RowsAtOnce(const ValidatedRequest& request) {
    int64_t bytes = 0;
    for (const Tensor& input : request.inputs) bytes += static_cast<int64_t>(ContentBytes(input));
    const int64_t fit = kBytesAtOnce * request.rows / std::max<int64_t>(bytes, 1);
    return static_cast<int>(std::clamp(fit, kFewestRows, kMostRows));
  }
  Status Complete(int32_t node, std::vector<NamedTensor> outputs, const RowParts::Limits& limits) {
    if (tokens_) {
      const auto own = outputs.begin() + tokens_place_;
      CHAIRLIFT_RETURN_IF_ERROR(tokens_->Put(node, std::move(own->tensor), limits));
      outputs.erase(own);
    }
    return rows_->Complete(node, std::move(outputs), limits);
  }

  std::unique_ptr<RowsGraph> rows_;  // for the outputs except the token vectors
  std::optional<TokenVectorsOfRows> tokens_;
  std::ptrdiff_t tokens_place_ = 0;  // index among the requested outputs
  const std::shared_ptr<const WiredPipeline> wired_;
  const std::vector<CalledModel> models_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<int32_t, std::shared_ptr<PipelineRun>> runs_;  // by node
  bool left_ = false;
};

// The current models of the steps.
StatusOr<std::vector<CalledModel>> FindSteps(const PipelineConfig& config, ModelCalls& calls) {
  std::vector<CalledModel> models;
  for (size_t i = 0; i < config.steps.size(); ++i) {
    StatusOr<CalledModel> model = calls.Find(config.steps[i].model, config.steps[i].version);
    if (!model.ok()) return Annotate(model.status(), StepName(config, i));
    models.push_back(*std::move(model));
  }
  return models;
}

// Whether any output has rows of different lengths.
bool GivesOwnLengths(const PipelineWiring& wiring, const std::vector<const Signature*>& models) {
  for (size_t i = 0; i < wiring.outputs.size(); ++i) {
    const SymbolicSpec& spec = wiring.signature.outputs[i];
    const bool varies =
        !spec.shape.has_rank() ||
        std::any_of(spec.shape.dims().begin() + std::min(1, spec.shape.rank()),
                    spec.shape.dims().end(), [](const Dim& dim) { return !dim.known(); });
    if (!varies) continue;
    for (size_t step = 0; step < models.size(); ++step) {
      const auto& gives = wiring.steps[step].gives;
      const bool given = std::any_of(gives.begin(), gives.end(), [&](const auto& one) {
        return one.value == wiring.outputs[i];
      });
      if (given && models[step]->own_lengths) return true;
    }
  }
  return false;
}

// Sets the pipeline's inputs and outputs to those that its configuration declares.
Status DeclareSignature(const DeclaredPorts& ports, Signature& signature) {
  const auto declare = [&](const std::vector<DeclaredPort>& declared,
                           std::vector<SymbolicSpec>& specs, const char* what) -> Status {
    for (SymbolicSpec& spec : specs) {
      const auto port =
          std::find_if(declared.begin(), declared.end(),
                       [&](const DeclaredPort& one) { return one.name == spec.name; });
      const DeclaredPort open{.name = spec.name};
      SymbolicShape shape = spec.shape;
      CHAIRLIFT_RETURN_IF_ERROR(
          DeclareShape(port == declared.end() ? open : *port, ports.batch, what, shape));
      if (&specs == &signature.inputs)
        spec.shape = std::move(shape);  // for answers it is not proved
      if (ports.batch && spec.shape.has_rank()) spec.shape[0] = Dim::Symbol("batch");
    }
    return absl::OkStatus();
  };
  CHAIRLIFT_RETURN_IF_ERROR(declare(ports.inputs, signature.inputs, "input"));
  return declare(ports.outputs, signature.outputs, "output");
}

// The rows that a request may have; 0: any number.
int MostRows(const Program& program) {
  const int rules = program.rules().max_rows.value_or(0), own = program.signature().max_rows;
  return rules > 0 && own > 0 ? std::min(rules, own) : std::max(rules, own);
}

StatusOr<std::shared_ptr<const WiredPipeline>> WireSteps(const PipelineConfig& config,
                                                         const std::vector<CalledModel>& models) {
  std::vector<Signature> shown;  // without inputs that the server fills
  shown.reserve(models.size());
  std::vector<const Signature*> signatures;
  int steps = 0;
  bool draws = false;
  for (size_t i = 0; i < models.size(); ++i) {
    const Program& program = *models[i].program;
    if (!program.plan().config.sequence_state.empty() || program.rules().sequences_only) {
      return InvalidArgument(
          "{}: it keeps state between the requests of a sequence, which pipelines do not have",
          StepName(config, i));
    }
    Signature& signature = shown.emplace_back(program.signature());
    std::erase_if(signature.inputs,
                  [&](const SymbolicSpec& input) { return input.name == program.rules().seeds; });
    signatures.push_back(&signature);
    const int most = MostRows(program);
    if (most > 0 && config.max_rows > most) {
      return InvalidArgument(
          "{}: max_batch_size of the pipeline is {}, and this model takes {} rows; set "
          "max_batch_size to {} or less",
          StepName(config, i), config.max_rows, most, most);
    }
    draws = draws || program.Draws();
    steps += program.steps();
  }
  if (steps > kMaxPipelineSteps) {
    return InvalidArgument("it has {} steps, including those of nested pipelines; it may have {}",
                           steps, kMaxPipelineSteps);
  }
  auto wired = std::make_shared<WiredPipeline>();
  wired->config = config;
  wired->by_rows = std::any_of(signatures.begin(), signatures.end(),
                               [](const Signature* model) { return model->own_lengths; });
  CHAIRLIFT_ASSIGN_OR_RETURN(wired->wiring, WirePipeline(config, signatures));
  wired->num_steps = steps;
  wired->draws = draws;
  Signature& signature = wired->wiring.signature;
  signature.own_lengths = GivesOwnLengths(wired->wiring, signatures);
  CHAIRLIFT_RETURN_IF_ERROR(DeclareSignature(config.ports, signature));
  if (config.embedding) CHAIRLIFT_RETURN_IF_ERROR(CheckEmbedding(*config.embedding, signature));
  if (config.classes) CHAIRLIFT_RETURN_IF_ERROR(CheckClasses(*config.classes, signature));
  return wired;
}

bool TakesAndGivesTheSame(const std::vector<SymbolicSpec>& a, const std::vector<SymbolicSpec>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const SymbolicSpec& x, const SymbolicSpec& y) {
                      return x.name == y.name && x.dtype == y.dtype;
                    });
}

class PipelineProgram final : public Program {
 public:
  PipelineProgram(std::shared_ptr<const WiredPipeline> wired,
                  const std::vector<CalledModel>& models, ServingPlan plan, ModelCalls& calls)
      : Program("pipeline", ShownSignature(wired->config, wired->wiring.signature),
                std::move(plan)),
        config_(wired->config),
        calls_(calls),
        wired_(std::move(wired)),
        wired_models_(models.begin(), models.end()) {}

  StatusOr<ProgramView> View() override {
    ProgramView view;
    for (size_t i = 0; i < config_.steps.size(); ++i) {
      view.notes.push_back(StepName(config_, i));
    }
    return view;
  }
  TaskLanes lanes() const override { return {.tasks = kAtOnce, .at_work = kAtOnce}; }
  std::string_view platform() const override { return "pipeline_chairlift"; }

  Status Ready() const override {
    CHAIRLIFT_ASSIGN_OR_RETURN(const Now now, Find());
    for (size_t i = 0; i < now.models.size(); ++i) {
      const Status ready = now.models[i].program->Ready();
      if (!ready.ok()) return Annotate(ready, StepName(config_, i));
    }
    return absl::OkStatus();
  }
  int steps() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return wired_->num_steps;
  }
  bool Calls(const std::string& name) const override {
    return std::any_of(config_.steps.begin(), config_.steps.end(), [&](const StepConfig& step) {
      if (step.model == name) return true;
      const StatusOr<CalledModel> model = calls_.Find(step.model);
      return model.ok() && model->program->Calls(name);
    });
  }

  bool CallsOthers() const override { return true; }
  bool Draws() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return wired_->draws;
  }
  std::vector<ExpectedCalls> CallsOf(int64_t rows) const override {
    const StatusOr<Now> now = Find();
    if (!now.ok()) return {};  // it is refused when it is unfolded
    std::vector<ExpectedCalls> calls;
    const int64_t times = now->wired->by_rows ? rows : 1;
    for (const CalledModel& model : now->models) {
      calls.push_back({model, times});
      for (ExpectedCalls& inner : model.program->CallsOf(rows / times)) {
        inner.times *= times;
        calls.push_back(std::move(inner));
      }
    }
    return calls;
  }

  StatusOr<ValidatedRequest> Validate(const InferRequest& request) override {
    CHAIRLIFT_ASSIGN_OR_RETURN(ValidatedRequest validated, Program::Validate(request));
    // Token vectors are large: only requests that name this output get it.
    if (request.outputs.empty()) std::erase(validated.outputs, TokensOutput());
    validated.seed = validated.draw = request.seed;
    if (!request.seed && Draws()) validated.draw = AnySeed();
    // For the model as it was loaded: rows are for statistics only.
    if (!validated.inputs.empty() && validated.inputs[0].shape().rank() > 0 && CountsRows()) {
      validated.rows =
          static_cast<int32_t>(std::min<int64_t>(validated.inputs[0].shape()[0], kMaxBatchRows));
    }
    if (ByRows()) {
      CHAIRLIFT_RETURN_IF_ERROR(CheckRows(validated));
      validated.rows = static_cast<int32_t>(validated.inputs[0].shape()[0]);
    }
    return validated;
  }

  StatusOr<std::unique_ptr<RequestGraph>> Unfold(ValidatedRequest request,
                                                 bool /*parts*/) override {
    CHAIRLIFT_ASSIGN_OR_RETURN(Now now, Find());
    const uint64_t turn = NextTurn();
    for (CalledModel& model : now.models) model.turn = turn;
    if (now.wired->by_rows) {
      return std::make_unique<PipelineRowsGraph>(std::move(request), std::move(now.wired),
                                                 std::move(now.models), TokensOutput());
    }
    auto run = std::make_shared<PipelineRun>(std::move(now.wired), std::move(now.models), calls_,
                                             request.inputs, request.outputs);
    return std::make_unique<PipelineGraph>(std::move(request), std::move(run));
  }

  void Run(TaskRun& run, TaskDone done) override {
    TaskNode& node = run.nodes[0];
    if (auto* const rows = dynamic_cast<PipelineRowsGraph*>(node.graph)) {
      return RunRow(*rows, run, std::move(done));
    }
    auto& graph = static_cast<PipelineGraph&>(*node.graph);
    node.units = graph.request().load();
    const TimePoint start = Clock::Steady().Now();
    graph.run().Begin(
        {node.deadline, run.memory.partial_answers, node.admission, graph.request().seed},
        [&node, &graph, start, done = std::move(done)](const Status& status) mutable {
          TaskResult result{.rows = graph.request().rows};
          result.compute_infer = Clock::Steady().Now() - start;
          node.status = Status(status.code(), status.message());
          if (status.ok()) graph.Complete();
          done(result);
        });
  }

 private:
  struct Now {
    std::shared_ptr<const WiredPipeline> wired;
    std::vector<CalledModel> models;
  };

  // Index among the client outputs; -1: there are none.
  int TokensOutput() const {
    if (!config_.embedding) return -1;
    const std::vector<SymbolicSpec>& outputs = signature_.outputs;
    const auto found = std::find_if(outputs.begin(), outputs.end(), [](const SymbolicSpec& spec) {
      return spec.name == kTokenEmbeddings;
    });
    return found == outputs.end() ? -1 : static_cast<int>(found - outputs.begin());
  }

  // For a request of which each row is a run.
  Status CheckRows(const ValidatedRequest& request) const {
    for (size_t i = 0; i < request.inputs.size(); ++i) {
      const Shape& shape = request.inputs[i].shape();
      const int64_t rows = request.inputs[0].shape().rank() > 0 ? request.inputs[0].shape()[0] : 0;
      if (rows < 1 || rows > kMaxBatchRows) {
        return InvalidArgument("the request has {} rows; it must have 1 to {}", rows,
                               kMaxBatchRows);
      }
      if (shape.rank() > 0 && shape[0] == rows) continue;
      return InvalidArgument(
          "input '{}' has shape {}, and input '{}' has {} rows; they must have the same number",
          signature_.inputs[i].name, shape.ToString(), signature_.inputs[0].name, rows);
    }
    const int64_t all = request.inputs[0].shape()[0];
    if (signature_.own_lengths && all > 1) {
      return InvalidArgument(
          "the request has {} rows whose results differ in length, which one tensor cannot hold: "
          "send requests of one row each",
          all);
    }
    return absl::OkStatus();
  }

  void RunRow(PipelineRowsGraph& graph, TaskRun& run, TaskDone done) {
    TaskNode& node = run.nodes[0];
    node.units = 1;
    const TimePoint start = Clock::Steady().Now();
    const std::shared_ptr<PipelineRun> row = graph.BeginRow(
        node.node, calls_,
        WiredOutputs(graph.wired().config, graph.wired().wiring, graph.request().outputs));
    std::optional<int64_t> seed = graph.request().seed;
    if (seed) seed = SeedOfPart(*seed, static_cast<uint64_t>(node.node));
    row->Begin(
        {node.deadline, run.memory.partial_answers, node.admission, seed},
        [this, &run, &node, &graph, start, row = row.get(),
         done = std::move(done)](const Status& status) mutable {
          const RowParts::Limits limits{run.memory.compute.limit(), run.memory.partial_answers};
          const auto outputs = [&]() -> StatusOr<std::vector<NamedTensor>> {
            CHAIRLIFT_RETURN_IF_ERROR(status);
            return ShownOutputs(graph.wired().config, row->TakeOutputs(), signature_,
                                graph.request().outputs);
          };
          node.status =
              CatchOutOfMemory([&] { return graph.EndRow(node.node, outputs(), limits); });
          TaskResult result{.rows = 1};
          result.compute_infer = Clock::Steady().Now() - start;
          done(result);
        });
  }

  bool ByRows() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return wired_->by_rows;
  }

  bool CountsRows() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return wired_->wiring.counts_rows;
  }

  // The current models of the steps; the wiring is repeated if one has been replaced.
  StatusOr<Now> Find() const {
    Now now;
    CHAIRLIFT_ASSIGN_OR_RETURN(now.models, FindSteps(config_, calls_));
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      now.wired = wired_;
      if (AreWired(now.models)) return now;
    }
    StatusOr<std::shared_ptr<const WiredPipeline>> again = WireSteps(config_, now.models);
    if (!again.ok()) {
      return Unavailable("a model of its steps has changed: {}", Message(again.status()));
    }
    const Signature signature = ShownSignature(config_, (*again)->wiring.signature);
    if (!TakesAndGivesTheSame(signature.inputs, signature_.inputs) ||
        !TakesAndGivesTheSame(signature.outputs, signature_.outputs)) {
      return Unavailable(
          "a model of its steps was replaced, and its inputs or outputs differ from those at load: "
          "load the pipeline again");
    }
    now.wired = *std::move(again);
    const std::lock_guard<std::mutex> lock(mutex_);
    wired_ = now.wired;
    wired_models_.assign(now.models.begin(), now.models.end());
    return now;
  }

  bool AreWired(const std::vector<CalledModel>& models) const {
    return std::equal(models.begin(), models.end(), wired_models_.begin(), wired_models_.end(),
                      [](const CalledModel& a, const WiredModel& b) {
                        return !a.model.owner_before(b.model) && !b.model.owner_before(a.model);
                      });
  }

  // Does not keep the model alive: it may be unloaded.
  struct WiredModel {
    WiredModel(const CalledModel& called)  // NOLINT(google-explicit-constructor): in ranges
        : model(called.model) {}
    std::weak_ptr<Model> model;
  };

  const PipelineConfig config_;
  ModelCalls& calls_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const WiredPipeline> wired_;
  mutable std::vector<WiredModel> wired_models_;
};

}  // namespace

StatusOr<std::unique_ptr<Program>> MakePipeline(LoadingModel& model, std::string& /*refused*/) {
  const PipelineConfig& config = *model.source.pipeline;
  if (model.load.calls == nullptr) {
    return InvalidArgument(
        "a pipeline needs an engine that has the models of its steps, and this one has no engine");
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<CalledModel> models,
                             FindSteps(config, *model.load.calls));
  CHAIRLIFT_ASSIGN_OR_RETURN(std::shared_ptr<const WiredPipeline> wired, WireSteps(config, models));
  std::vector<std::string> names;
  for (const StepConfig& step : config.steps) names.push_back(step.model);
  BatchAxisReport rows;
  rows.why = fmt::format("a pipeline ({}), each step of which is batched on its own",
                         fmt::join(names, ", "));
  CHAIRLIFT_ASSIGN_OR_RETURN(ServingPlan plan, PlanServing(model.config, rows, 1));
  plan.diagnosis = rows.why;
  return std::make_unique<PipelineProgram>(std::move(wired), models, std::move(plan),
                                           *model.load.calls);
}

}  // namespace chairlift
