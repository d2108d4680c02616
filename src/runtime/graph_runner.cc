#include "runtime/graph_runner.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/status.h"
#include "base/stop_poll.h"
#include "chairlift/text.h"
#include "device/device.h"
#include "graph/evaluate.h"
#include "ops/reads_in_part.h"
#include "runtime/control_flow.h"

namespace chairlift {
namespace {

// Kept whatever they hold, and one more for each body.
constexpr int kPlansKept = 4;

int CountBodies(const Graph& graph) {
  int bodies = 0;
  for (const Node& node : graph.nodes) {
    for (const auto& [name, body] : Subgraphs(node)) bodies += 1 + CountBodies(*body);
  }
  return bodies;
}

// Where an operand of no bytes at all may point.
alignas(64) std::byte nothing[64];

Status MoreThanLimit(size_t bytes, size_t limit) {
  constexpr double kMiB = 1 << 20;
  return absl::OutOfRangeError(
      fmt::format("it needs {:.2f} MiB of intermediates and outputs, more than the {:.2f} MiB that "
                  "one task may have (--memory-budget)",
                  static_cast<double>(bytes) / kMiB, static_cast<double>(limit) / kMiB));
}

double UntouchedBytes(const Kernel& kernel, const KernelArgs& args) {
  const auto* const reads = dynamic_cast<const ReadsInPart*>(&kernel);
  return reads == nullptr ? 0 : reads->UntouchedBytes(args);
}

template <typename F>
auto Timed(NodeTimer* timer, const PlannedNode& planned, F run) {
  if (timer == nullptr) return run();
  const TimePoint start = Clock::Steady().Now();
  auto result = run();
  timer->Report(planned, start, Clock::Steady().Now());
  return result;
}

}  // namespace

// The state of one run of the graph, which places refer to.
class GraphRunner::RunState {
 public:
  RunState(std::span<const Tensor> inputs, size_t num_outputs, const RunContext& context)
      : inputs_(inputs),
        outputs_(num_outputs),
        context_(context),
        stream_(context.arena.stream()) {}

  // Allocates everything that `plan` writes to.
  Status Enter(const Plan& plan) {
    plan_ = &plan;
    for (const NewOutput& output : plan.new_outputs) own_bytes_ += output.desc.byte_size();
    CHAIRLIFT_RETURN_IF_ERROR(CheckLimit(plan.arena_bytes));
    base_ = context_.arena.Reserve(plan.arena_bytes);
    if (base_ == nullptr) {
      return ResourceExhausted("no memory for {} bytes of intermediates", plan.arena_bytes);
    }
    for (const NewOutput& output : plan.new_outputs) {
      CHAIRLIFT_ASSIGN_OR_RETURN(outputs_[output.index],
                                 stream_.NewTensor(output.desc.dtype, output.desc.StoredShape()));
    }
    return absl::OkStatus();
  }

  Status CheckLimit(size_t arena_bytes) const {
    const size_t limit = context_.arena.limit();
    if (arena_bytes <= limit && own_bytes_ <= limit - arena_bytes) return absl::OkStatus();
    return MoreThanLimit(arena_bytes + own_bytes_, limit);
  }

  // OK if the outputs are still needed.
  Status Wanted() const {
    if (context_.stop == nullptr || !context_.stop->load(std::memory_order_relaxed)) {
      return absl::OkStatus();
    }
    return StoppedStatus();
  }

  Status RunSteps() {
    std::vector<const void*>& inputs = context_.arena.input_pointers();
    std::vector<void*>& outputs = context_.arena.output_pointers();
    for (const Step& step : plan_->steps) {
      CHAIRLIFT_RETURN_IF_ERROR(Wanted());
      inputs.clear();
      outputs.clear();
      for (const Operand& operand : step.inputs) inputs.push_back(Address(operand.place));
      for (const Operand& operand : step.outputs) outputs.push_back(Address(operand.place));
      void* scratch = step.has_scratch ? base_ + step.scratch_offset : nullptr;
      const KernelArgs args{inputs, outputs, scratch, context_.team, context_.worker, stream_};
      PlannedNode planned{*step.node, step.use, step.inputs, step.outputs};
      if (context_.timer != nullptr) planned.untouched_bytes = UntouchedBytes(*step.kernel, args);
      const Status status = Timed(context_.timer, planned, [&] { return step.kernel->Run(args); });
      if (!status.ok()) return Annotate(status, step.node->Describe());
    }
    return absl::OkStatus();
  }

  Status RunLate(GraphRunner& runner) {
    for (const LateNode& node : plan_->late) {
      CHAIRLIFT_RETURN_IF_ERROR(Wanted());
      std::vector<Tensor> inputs;
      inputs.reserve(node.inputs.size());
      for (const Operand& operand : node.inputs) inputs.push_back(TensorAt(operand));
      int64_t body_runs = 0;
      const auto compute = [&] {
        return runner.ComputeLate(*node.node, inputs, context_, BytesLeft(), body_runs);
      };
      const PlannedNode planned{
          *node.node, nullptr, node.inputs, {}, node.node->def->runs_bodies ? &body_runs : nullptr};
      CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> results,
                                 Timed(context_.timer, planned, compute));
      for (size_t i = 0; i < node.node->outputs.size(); ++i) {
        // A result that a node passes through from the arena must outlive its place there.
        late_.push_back(context_.arena.Contains(results[i].raw()) ? results[i].Clone()
                                                                  : std::move(results[i]));
        own_bytes_ += ContentBytes(late_.back());
        if (node.node->outputs[i] != kNoValue && !late_.back().present()) {
          return Internal("{}: output {} was not computed", node.node->Describe(), i);
        }
      }
    }
    return absl::OkStatus();
  }

  Status ShareOutputs() {
    for (const SharedOutput& output : plan_->shared_outputs) {
      Tensor t = TensorAt(output.source);
      if (context_.arena.Contains(t.raw())) {
        CHAIRLIFT_ASSIGN_OR_RETURN(t, stream_.Clone(t));
      }
      outputs_[output.index] = std::move(t);
    }
    return absl::OkStatus();
  }

  // What the arena's limit leaves beside the plan's own memory.
  int64_t BytesLeft() const {
    const size_t used = plan_->arena_bytes + own_bytes_;
    const size_t limit = context_.arena.limit();
    return used < limit ? static_cast<int64_t>(std::min<size_t>(limit - used, INT64_MAX)) : 0;
  }

  std::span<const Tensor> late() const { return late_; }
  // The outputs own their strings: those of the run belong to its inputs, constants and late
  // values.
  StatusOr<std::vector<Tensor>> TakeOutputs() {
    for (Tensor& output : outputs_) {
      if (output.dtype() != DType::kBytes) continue;
      own_bytes_ += ContentBytes(output);  // of the copy
      CHAIRLIFT_RETURN_IF_ERROR(CheckLimit(plan_->arena_bytes));
      output = output.Clone();
    }
    return std::move(outputs_);
  }

 private:
  void* Address(Place place) {
    switch (place.kind) {
      case Place::kAbsent:
        return nullptr;
      case Place::kInput: {
        void* data = const_cast<void*>(inputs_[place.at].raw());
        return data != nullptr ? data : nothing;
      }
      case Place::kKnown:
        return const_cast<void*>(plan_->known[place.at].raw());
      case Place::kArena:
        return base_ + place.at;
      case Place::kOutput:
        return outputs_[place.at].raw();
      case Place::kLate:
        return late_[place.at].raw();
    }
    return nullptr;
  }

  // Shares the bytes; bytes in the arena are valid only for now.
  Tensor TensorAt(const Operand& operand) {
    const Shape shape = operand.desc.StoredShape();
    const auto as = [&](const Tensor& t) { return t.shape() == shape ? t : t.Reshaped(shape); };
    switch (operand.place.kind) {
      case Place::kAbsent:
        return {};
      case Place::kInput:
        return as(inputs_[operand.place.at]);
      case Place::kKnown:
        return as(plan_->known[operand.place.at]);
      case Place::kArena:
        return Tensor::Wrap(operand.desc.dtype, shape, base_ + operand.place.at, nullptr,
                            stream_.device().memory());
      case Place::kOutput:
        return as(outputs_[operand.place.at]);
      case Place::kLate:
        return as(late_[operand.place.at]);
    }
    return {};
  }

  std::span<const Tensor> inputs_;
  std::vector<Tensor> outputs_;
  std::vector<Tensor> late_;
  const RunContext& context_;
  Stream& stream_;
  const Plan* plan_ = nullptr;
  std::byte* base_ = nullptr;
  size_t own_bytes_ = 0;  // outputs and late values
};

GraphRunner::GraphRunner(const Graph& graph, int64_t max_plan_bytes, WeightCache& weights,
                         Device& device)
    : graph_(graph),
      weights_(weights),
      device_(device),
      own_plans_(new Plans{{max_plan_bytes, kPlansKept + CountBodies(graph)}}),
      plans_(*own_plans_),
      number_(plans_.graphs++) {
  MakeBodies();
}

GraphRunner::GraphRunner(const Graph& graph, Plans& plans, WeightCache& weights, Device& device)
    : graph_(graph), weights_(weights), device_(device), plans_(plans), number_(plans_.graphs++) {
  MakeBodies();
}

GraphRunner::~GraphRunner() = default;

void GraphRunner::MakeBodies() {
  for (const Node& node : graph_.nodes) {
    for (const auto& [name, body] : Subgraphs(node)) {
      bodies_[body.get()].reset(new GraphRunner(*body, plans_, weights_, device_));
    }
  }
}

PlanKey GraphRunner::KeyOf(int width) const {
  PlanKey key;
  key.Add(number_);
  key.Add(width);
  return key;
}

TensorDesc GraphRunner::DescOfInput(size_t i, DType dtype, const Shape& stored) const {
  const Value& value = graph_.values[graph_.inputs[i]];
  TensorDesc desc{dtype, stored, value.layout};
  if (desc.layout == Layout::kRowMajor) return desc;
  desc.shape = {};
  for (int axis = 0; axis + 1 < stored.rank(); ++axis) {
    desc.shape.Append(axis == 1 ? value.shape[1].value() : stored[axis]);
  }
  return desc;
}

StatusOr<PlanPtr> GraphRunner::Prepare(std::span<const TensorDesc> inputs, int width) {
  PlanKey key = KeyOf(width);
  for (const TensorDesc& input : inputs) key.Add(input.dtype, input.shape);
  return plans_.kept.Get(key, [&] {
    std::vector<TensorDesc> descs;
    descs.reserve(inputs.size());
    for (const TensorDesc& input : inputs) {
      descs.push_back(DescOfInput(descs.size(), input.dtype, input.shape));
    }
    return BuildPlan(graph_, InitialState(graph_, descs), width, weights_, device_);
  });
}

StatusOr<PlanPtr> GraphRunner::PlanFor(std::span<const Tensor> inputs, int width) {
  PlanKey key = KeyOf(width);
  for (const Tensor& input : inputs) key.Add(input.dtype(), input.shape());
  return plans_.kept.Get(key, [&] {
    std::vector<TensorDesc> descs;
    descs.reserve(inputs.size());
    for (const Tensor& input : inputs) {
      descs.push_back(DescOfInput(descs.size(), input.dtype(), input.shape()));
    }
    return BuildPlan(graph_, InitialState(graph_, descs), width, weights_, device_);
  });
}

StatusOr<PlanPtr> GraphRunner::Continue(const Plan& plan, std::span<const Tensor> late, int width) {
  PlanKey key;
  key.Add(-plan.number);  // numbers of graphs are not negative, those of plans positive
  for (const Tensor& t : late.last(plan.rest->fresh_late)) key.Add(t.dtype(), t.shape());
  return plans_.kept.Get(key, [&] {
    return BuildPlan(graph_, StateAfter(graph_, plan, late), width, weights_, device_);
  });
}

StatusOr<std::vector<Tensor>> GraphRunner::ComputeLate(const Node& node,
                                                       std::span<const Tensor> inputs,
                                                       const RunContext& context, int64_t max_bytes,
                                                       int64_t& body_runs) {
  if (!node.def->runs_bodies) {
    return EvaluateNode(node, inputs, weights_, context.team, context.worker,
                        std::min(Shape::kMaxTensorBytes, max_bytes), graph_.values);
  }
  const RunContext nested{context.team, context.worker, context.arena.Nested(), context.stop,
                          context.timer};
  const auto run = [&](const Graph& body,
                       std::span<const Tensor> arguments) -> StatusOr<std::vector<Tensor>> {
    // Checked here too, because a body may have no operator.
    if (context.stop != nullptr && context.stop->load(std::memory_order_relaxed))
      return StoppedStatus();
    ++body_runs;
    return bodies_.at(&body)->Run(arguments, nested);
  };
  return RunControlFlow(node, inputs, max_bytes, run);
}

StatusOr<std::vector<Tensor>> GraphRunner::Run(std::span<const Tensor> inputs,
                                               const RunContext& context) {
  const StopScope scope(context.stop);
  CHAIRLIFT_ASSIGN_OR_RETURN(PlanPtr plan, PlanFor(inputs, context.team.width()));
  StatusOr<std::vector<Tensor>> outputs = RunPlans(plan, inputs, context);
  context.arena.stream().Keep(std::move(plan));  // even if only a part was enqueued
  return outputs;
}

StatusOr<std::vector<Tensor>> GraphRunner::RunPlans(PlanPtr& plan, std::span<const Tensor> inputs,
                                                    const RunContext& context) {
  const int width = context.team.width();
  RunState state(inputs, graph_.outputs.size(), context);
  while (true) {
    CHAIRLIFT_RETURN_IF_ERROR(state.Wanted());  // a loop's body may have no steps
    CHAIRLIFT_RETURN_IF_ERROR(state.Enter(*plan));
    CHAIRLIFT_RETURN_IF_ERROR(state.RunSteps());
    CHAIRLIFT_RETURN_IF_ERROR(state.RunLate(*this));
    CHAIRLIFT_RETURN_IF_ERROR(state.ShareOutputs());
    if (plan->rest == nullptr) return state.TakeOutputs();
    CHAIRLIFT_ASSIGN_OR_RETURN(plan, Continue(*plan, state.late(), width));  // only on the CPU
  }
}

}  // namespace chairlift
