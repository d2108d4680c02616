#include "engine/programs/single_node.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/clock.h"
#include "base/out_of_memory.h"
#include "base/status.h"
#include "engine/programs/rows_graph.h"
#include "engine/requests/row_parts.h"

namespace chairlift {
namespace {

using Requests = absl::InlinedVector<const ValidatedRequest*, 8>;

bool RunsAlone(const ValidatedRequest* request) { return request->runs_alone; }

void Add(TaskResult& sum, const TaskResult& times) {
  sum.compute_input += times.compute_input;
  sum.compute_infer += times.compute_infer;
  sum.compute_output += times.compute_output;
}

}  // namespace

SingleNodeProgram::SingleNodeProgram(std::string_view kind, Signature signature, ServingPlan plan,
                                     int32_t largest_load, int cell,
                                     std::unique_ptr<DeviceLanes> lanes)
    : Program(kind, std::move(signature), std::move(plan)),
      largest_load_(largest_load),
      cell_(cell),
      lanes_(std::move(lanes)) {}

StatusOr<ProgramView> SingleNodeProgram::View() {
  CHAIRLIFT_ASSIGN_OR_RETURN(Executable* const original, Original());
  return ProgramView{.executable = original};
}

StatusOr<std::unique_ptr<RequestGraph>> SingleNodeProgram::Unfold(ValidatedRequest request,
                                                                  bool /*parts*/) {
  const bool in_parts = request.load() > largest_load_ && MayRunInParts(request);
  return MakeRowsGraph(std::move(request), {.cell = cell_,
                                            .padded = pads(),
                                            .max_load = in_parts ? largest_load_ : 0,
                                            .at_once = plan_.scheduling.workers});
}

bool SingleNodeProgram::RowsAreApart(const ValidatedRequest& /*request*/) const {
  return signature_.batches;
}

bool SingleNodeProgram::MayRunInParts(const ValidatedRequest& request) const {
  return request.rows > 1 && !request.runs_alone && RowsAreApart(request);
}

void SingleNodeProgram::Run(TaskRun& run, TaskDone done) {
  if (lanes_ == nullptr) return RunHere(run, std::move(done));
  lanes_->Run(run, std::move(done),
              [this](TaskRun& there, TaskDone ran) { RunHere(there, std::move(ran)); });
}

void SingleNodeProgram::RunHere(TaskRun& run, TaskDone done) {
  if (run.nodes.empty()) return done({});  // a task of padding only
  const auto graph = [](const TaskNode& node) { return static_cast<RowsGraph*>(node.graph); };
  Requests requests;
  int32_t rows = 0;
  for (const TaskNode& node : run.nodes) {
    requests.push_back(&graph(node)->rows(node.node));
    rows += requests.back()->rows;
  }
  Computed computed = Compute(requests, run);
  for (size_t i = 0; i < run.nodes.size(); ++i) {
    TaskNode& node = run.nodes[i];
    node.units = int64_t{requests[i]->load()} * std::max(node.graph->length(), 1);
    node.status = CatchOutOfMemory([&]() -> Status {
      CHAIRLIFT_RETURN_IF_ERROR(computed.outputs[i].status());
      return graph(node)->Complete(node.node, *std::move(computed.outputs[i]),
                                   {run.memory.compute.limit(), run.memory.partial_answers});
    });
  }
  computed.times.rows = rows;
  done(computed.times);
}

SingleNodeProgram::Computed SingleNodeProgram::ComputeApart(RequestSpan requests, TaskRun& run) {
  Computed computed;
  computed.outputs.assign(requests.size(), Internal("not computed"));
  const auto compute = [&](RequestSpan some, std::span<const size_t> places) {
    Computed own = Compute(some, run);
    for (size_t i = 0; i < places.size(); ++i) {
      computed.outputs[places[i]] = std::move(own.outputs[i]);
    }
    Add(computed.times, own.times);
  };
  Requests together;
  absl::InlinedVector<size_t, 8> places;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i]->runs_alone) {
      compute(requests.subspan(i, 1), {&i, 1});
    } else {
      together.push_back(requests[i]);
      places.push_back(i);
    }
  }
  if (!together.empty()) compute(together, places);
  return computed;
}

StatusOr<std::vector<NamedTensor>> SingleNodeProgram::ComputeInHalves(
    const ValidatedRequest& request, TaskRun& run, TaskResult& times) {
  RowParts parts(request, (request.load() + 1) / 2);
  for (int part = 0; part < parts.count(); ++part) {
    const ValidatedRequest half = parts.Part(part);
    const ValidatedRequest* const only = &half;
    Computed own = Compute({&only, 1}, run);
    Add(times, own.times);
    CHAIRLIFT_RETURN_IF_ERROR(own.outputs[0].status());
    CHAIRLIFT_RETURN_IF_ERROR(
        parts.Put(part, *own.outputs[0], {run.memory.compute.limit(), nullptr}));
  }
  return parts.Take();
}

Status SingleNodeProgram::TooLarge(const ValidatedRequest& request, const Status& why) const {
  if (request.inputs.empty()) {
    return Status(why.code(), fmt::format("a request: {}", Message(why)));
  }
  const auto largest = static_cast<size_t>(
      std::max_element(request.inputs.begin(), request.inputs.end(),
                       [](const Tensor& a, const Tensor& b) { return a.size() < b.size(); }) -
      request.inputs.begin());
  return Status(why.code(), fmt::format("a request with input '{}' of shape {}: {}",
                                        signature_.inputs[largest].name,
                                        request.inputs[largest].shape().ToString(), Message(why)));
}

StatusOr<SingleNodeProgram::Batch> SingleNodeProgram::BatchOf(RequestSpan requests) {
  if (!requests[0]->runs_alone) return Join(requests);
  CHAIRLIFT_ASSIGN_OR_RETURN(Executable* const original, Original());
  return Batch{original,
               std::make_unique<LoneRequest>(signature_, std::span<const int>(), *requests[0])};
}

SingleNodeProgram::Computed SingleNodeProgram::Compute(RequestSpan requests, TaskRun& run) {
  const bool alone = requests.size() == 1;
  if (!alone && std::any_of(requests.begin(), requests.end(), RunsAlone)) {
    return ComputeApart(requests, run);
  }
  Computed computed;
  WorkerMemory& memory = run.memory;
  const Clock& clock = Clock::Steady();
  const TimePoint start = clock.Now();
  StatusOr<Batch> batch = CatchOutOfMemory([&] { return BatchOf(requests); });
  StatusOr<std::vector<Tensor>> inputs = CatchOutOfMemory([&]() -> StatusOr<std::vector<Tensor>> {
    CHAIRLIFT_RETURN_IF_ERROR(batch.status());
    return batch->requests->Inputs(memory.joined());
  });
  const TimePoint gathered = clock.Now();
  StatusOr<std::vector<Tensor>> outputs = CatchOutOfMemory([&]() -> StatusOr<std::vector<Tensor>> {
    CHAIRLIFT_RETURN_IF_ERROR(inputs.status());
    return RunFromHost(*batch->executable, *inputs, run.team, run.worker, memory);
  });
  const TimePoint ran = clock.Now();
  computed.times.compute_input = gathered - start;
  computed.times.compute_infer = ran - gathered;
  const bool stopped = memory.stop != nullptr && *memory.stop;
  if (!outputs.ok() && !alone && !stopped) {
    for (size_t i = 0; i < requests.size(); ++i) {
      Computed own = Compute(requests.subspan(i, 1), run);
      computed.outputs.push_back(std::move(own.outputs[0]));
      computed.times.compute_infer += own.times.compute_infer;
    }
    return computed;
  }
  if (alone && absl::IsOutOfRange(outputs.status())) {
    if (MayRunInParts(*requests[0])) {
      computed.outputs.push_back(
          CatchOutOfMemory([&] { return ComputeInHalves(*requests[0], run, computed.times); }));
      return computed;
    }
    outputs = TooLarge(*requests[0], outputs.status());
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    computed.outputs.push_back(CatchOutOfMemory([&]() -> StatusOr<std::vector<NamedTensor>> {
      // Each has a separate status: they are read and freed on different threads.
      if (!outputs.ok()) return Status(outputs.status().code(), outputs.status().message());
      return batch->requests->Outputs(i, *outputs);
    }));
  }
  computed.times.compute_output = clock.Now() - ran;
  return computed;
}

}  // namespace chairlift
