#include "runtime/cell.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "device/device.h"
#include "ops/recurrent/recurrent.h"
#include "runtime/joined_rows.h"
#include "runtime/node_timer.h"

namespace chairlift {
namespace {

constexpr size_t kAlign = 64;  // of every tensor; also the readable bytes past its end

std::vector<Cell::Port> Ports(const std::vector<SymbolicSpec>& specs) {
  std::vector<Cell::Port> ports;
  for (const SymbolicSpec& spec : specs) {
    SymbolicShape row;
    if (spec.shape.has_rank() && spec.shape.rank() > 0) {
      std::vector<Dim> dims(spec.shape.dims().begin() + 1, spec.shape.dims().end());
      row = SymbolicShape(std::move(dims));
    }
    int64_t bytes = static_cast<int64_t>(DTypeSize(spec.dtype));
    for (const Dim& dim : row.dims()) {
      bytes = dim.known() && bytes >= 0 ? bytes * dim.value() : -1;
    }
    ports.push_back({spec.name, spec.dtype, std::move(row), bytes});
  }
  return ports;
}

bool Adjacent(const std::byte* const* rows, int64_t count, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(rows[0]) % kAlign != 0) return false;
  for (int64_t r = 1; r < count; ++r) {
    if (rows[r] != rows[r - 1] + bytes) return false;
  }
  return true;
}

}  // namespace

struct Cell::Step {
  // Absent if the graph is not a single such step.
  static StatusOr<std::unique_ptr<Step>> Of(const Graph& graph);

  RecurrentStep kernel;
  WeightCache weights;
  int64_t hidden = 0;
  // Indices of the cell's inputs and outputs; −1 if the step does not have it.
  int x = -1, h = -1, c = -1, h_next = -1, c_next = -1;
  // By worker, accessed only by that worker: from which end of the weights its next step reads.
  std::array<bool, Team::kMaxWorkers> backward = {};
};

StatusOr<std::unique_ptr<Cell::Step>> Cell::Step::Of(const Graph& graph) {
  if (graph.nodes.size() != 1) return nullptr;
  const Node& node = graph.nodes[0];
  if (node.def->domain != "chairlift" || node.def->name != "RecurrentStep") return nullptr;
  const auto place = [](const std::vector<ValueId>& side, const std::vector<ValueId>& operands,
                        size_t i) {
    if (i >= operands.size() || operands[i] == kNoValue) return -1;
    const auto at = std::find(side.begin(), side.end(), operands[i]);
    return at == side.end() ? -1 : static_cast<int>(at - side.begin());
  };
  const auto constant = [&](size_t i) {
    return i < node.inputs.size() && node.inputs[i] != kNoValue
               ? &graph.values[node.inputs[i]].constant
               : nullptr;
  };
  static const Tensor kAbsent;
  const Tensor* const r = constant(kStepR);
  const Tensor* const bias = constant(kStepBias);
  const Tensor* const peepholes = constant(kStepPeepholes);
  for (const Tensor* t : {r, bias, peepholes}) {
    if (t != nullptr && t->dtype() != DType::kFloat) return nullptr;
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const RecurrentSpec spec, ParseStep(node.attributes));
  auto step = std::make_unique<Step>();
  const bool lstm = spec.cell == CellKind::kLstm;
  step->x = place(graph.inputs, node.inputs, kStepX);
  step->h = place(graph.inputs, node.inputs, kStepH);
  step->c = place(graph.inputs, node.inputs, kStepC);
  step->h_next = place(graph.outputs, node.outputs, 0);
  step->c_next = place(graph.outputs, node.outputs, 1);
  // Each of its inputs and outputs is an operand once.
  const size_t operands = lstm ? 3 : 2;
  if (step->x < 0 || step->h < 0 || step->h_next < 0 ||
      (lstm && (step->c < 0 || step->c_next < 0)) || graph.inputs.size() != operands ||
      graph.outputs.size() != operands - 1) {
    return nullptr;
  }
  step->hidden = r->shape()[1];
  CHAIRLIFT_ASSIGN_OR_RETURN(
      step->kernel,
      RecurrentStep::Create(spec.Step(0, step->hidden), *r, bias != nullptr ? *bias : kAbsent,
                            peepholes != nullptr ? *peepholes : kAbsent, step->weights));
  return step;
}

Cell::Cell(std::string name, std::vector<Port> inputs, std::vector<std::vector<int>> sources,
           std::unique_ptr<Executable> executable, std::unique_ptr<Step> step)
    : name_(std::move(name)),
      executable_(std::move(executable)),
      inputs_(std::move(inputs)),
      sources_(std::move(sources)),
      outputs_(Ports(executable_->outputs())),
      step_(std::move(step)) {
  for (const Port& port : inputs_) open_ |= port.row_bytes < 0;
}

Cell::~Cell() = default;

StatusOr<std::unique_ptr<Cell>> Cell::Create(std::string name, Graph graph,
                                             const ExecutableOptions& options) {
  for (const Value& value : graph.values) {
    if (value.dtype != DType::kBytes) continue;
    return Unimplemented(
        "cell '{}' has strings ('{}'), which only models that run as a whole may have", name,
        value.name);
  }
  for (const std::vector<ValueId>* side : {&graph.inputs, &graph.outputs}) {
    for (ValueId id : *side) {
      const Value& value = graph.values[id];
      if (!value.shape.has_rank() || value.shape.rank() == 0) {
        return InvalidArgument("cell '{}': '{}' has no rows along dimension 0: its shape is {}",
                               name, value.name, value.shape.ToString());
      }
    }
  }
  StatusOr<std::unique_ptr<Step>> step = nullptr;
  if (options.device->is_host()) step = Step::Of(graph);
  if (!step.ok()) return Annotate(step.status(), fmt::format("cell '{}'", name));
  std::vector<Port> inputs = Ports(Specs(graph, graph.inputs));
  std::vector<std::vector<int>> sources;
  if (options.device->is_host()) {
    sources = JoinRows(graph);
  } else {
    for (size_t i = 0; i < inputs.size(); ++i) sources.push_back({static_cast<int>(i)});
  }
  auto executable = Executable::Create(std::move(graph), options);
  if (!executable.ok()) return Annotate(executable.status(), fmt::format("cell '{}'", name));
  return std::unique_ptr<Cell>(new Cell(std::move(name), std::move(inputs), std::move(sources),
                                        *std::move(executable), *std::move(step)));
}

std::vector<Tensor> Cell::NewOutputs(int64_t rows) const {
  std::vector<Tensor> outputs(outputs_.size());
  for (Tensor& output : outputs) {
    output = Tensor::Allocate(DType::kFloat, Shape{rows, step_->hidden});
  }
  return outputs;
}

Status Cell::RunStep(int64_t rows, std::span<const Rows> inputs, std::span<const Tensor> outputs,
                     Team& team, int worker, Arena& arena) const {
  const bool lstm = step_->c >= 0;
  // Scratch first: it is 64-byte aligned.
  const size_t scratch = (step_->kernel.ScratchBytes(rows, team.width()) + 63) / 64 * 64;
  const auto count = static_cast<size_t>(rows);
  std::byte* const place = arena.Reserve(scratch + 2 * count * sizeof(float*));
  if (place == nullptr) return ResourceExhausted("no memory for {} rows of '{}'", rows, name_);
  const auto read = [&](int input) {
    return input < 0 ? nullptr : reinterpret_cast<const float* const*>(inputs[input].rows);
  };
  const auto written = [&](int output, size_t part) -> float** {
    if (output < 0) return nullptr;
    auto** pointers = reinterpret_cast<float**>(place + scratch) + part * count;
    auto* data = static_cast<float*>(const_cast<void*>(outputs[output].raw()));
    for (size_t r = 0; r < count; ++r) pointers[r] = data + r * step_->hidden;
    return pointers;
  };
  bool& backward = step_->backward[static_cast<size_t>(worker)];
  step_->kernel.Step(rows, read(step_->x), read(step_->h), lstm ? read(step_->c) : nullptr,
                     written(step_->h_next, 0), lstm ? written(step_->c_next, 1) : nullptr,
                     backward, team, place);
  backward = !backward;
  return absl::OkStatus();
}

Status Cell::TimeStep(int64_t rows, std::span<const Rows> inputs, std::span<const Tensor> outputs,
                      Team& team, int worker, Arena& arena, NodeTimer& timer) const {
  const Graph& graph = executable_->graph();
  const auto operands = [&](const std::vector<ValueId>& ids) {
    std::vector<Operand> of_node;
    for (const ValueId id : ids) {
      of_node.emplace_back();
      if (id == kNoValue) continue;
      const Value& value = graph.values[id];
      TensorDesc& desc = of_node.back().desc;
      desc.dtype = value.dtype;
      for (const Dim& dim : value.shape.dims()) desc.shape.Append(dim.known() ? dim.value() : rows);
    }
    return of_node;
  };
  const Node& node = graph.nodes[0];  // there is no other
  const std::vector<Operand> read = operands(node.inputs), written = operands(node.outputs);
  const TimePoint start = Clock::Steady().Now();
  Status ran = RunStep(rows, inputs, outputs, team, worker, arena);
  timer.Report({node, nullptr, read, written}, start, Clock::Steady().Now());
  return ran;
}

Status Cell::RunInto(int64_t rows, std::span<const Rows> inputs, std::span<const Tensor> outputs,
                     Team& team, int worker, Arena& arena, NodeTimer* timer) const {
  if (rows == 0) return absl::OkStatus();
  if (timer == nullptr) return RunStep(rows, inputs, outputs, team, worker, arena);
  return TimeStep(rows, inputs, outputs, team, worker, arena, *timer);
}

StatusOr<std::vector<Tensor>> Cell::Run(int64_t rows, std::span<const Rows> inputs, Team& team,
                                        int worker, Arena& arena, Arena& staging,
                                        const StopFlag* stop, NodeTimer* timer) {
  if (step_ != nullptr && rows > 0) {
    std::vector<Tensor> outputs = NewOutputs(rows);
    CHAIRLIFT_RETURN_IF_ERROR(RunInto(rows, inputs, outputs, team, worker, arena, timer));
    return outputs;
  }
  struct Part {
    DType dtype;
    Shape shape;
    size_t row_bytes = 0;  // of all its sources together
    bool adjacent = false;
  };
  absl::InlinedVector<Part, 6> parts;
  size_t staged = 0;
  for (const std::vector<int>& sources : sources_) {
    const Rows& first = inputs[static_cast<size_t>(sources[0])];
    Part part;
    part.dtype = inputs_[static_cast<size_t>(sources[0])].dtype;
    part.shape = first.row;
    part.shape.Insert(0, rows);
    for (size_t s = 1; s < sources.size(); ++s) {
      part.shape[1] += inputs[static_cast<size_t>(sources[s])].row[0];
    }
    const size_t element = DTypeSize(part.dtype);
    CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t size, part.shape.Checked(element));
    part.row_bytes = rows == 0 ? 0 : static_cast<size_t>(size / rows) * element;
    part.adjacent =
        rows == 0 || (sources.size() == 1 && Adjacent(first.rows, rows, part.row_bytes));
    if (!part.adjacent) {
      staged += (static_cast<size_t>(size) * element + kAlign - 1) / kAlign * kAlign + kAlign;
    }
    parts.push_back(std::move(part));
  }
  std::byte* place = staging.Reserve(staged);
  if (place == nullptr && staged > 0) {
    return ResourceExhausted("no memory for {} bytes of gathered rows", staged);
  }
  Stream& stream = staging.stream();
  const Device* const memory = stream.device().memory();
  std::vector<Tensor> gathered;
  gathered.reserve(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    const std::vector<int>& sources = sources_[i];
    const Rows& first = inputs[static_cast<size_t>(sources[0])];
    if (part.adjacent) {
      void* data = rows == 0 ? nullptr : const_cast<std::byte*>(first.rows[0]);
      gathered.push_back(Tensor::Wrap(part.dtype, part.shape, data, nullptr, memory));
      continue;
    }
    gathered.push_back(Tensor::Wrap(part.dtype, part.shape, place, nullptr, memory));
    if (sources.size() == 1) {
      CHAIRLIFT_RETURN_IF_ERROR(stream.Gather(place, first.rows, rows, part.row_bytes));
    } else {
      std::byte* column = place;
      for (const int source : sources) {
        const auto bytes = static_cast<size_t>(inputs_[static_cast<size_t>(source)].row_bytes);
        const std::byte* const* from = inputs[static_cast<size_t>(source)].rows;
        for (int64_t r = 0; r < rows; ++r) {
          std::memcpy(column + static_cast<size_t>(r) * part.row_bytes, from[r], bytes);
        }
        column += bytes;
      }
    }
    const size_t bytes = gathered.back().byte_size();
    place += (bytes + kAlign - 1) / kAlign * kAlign + kAlign;
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> outputs,
                             executable_->Run(gathered, team, worker, arena, stop, timer));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Shape& shape = outputs[i].shape();
    if (shape.rank() == 0 || shape[0] != rows) {
      return Internal("cell '{}': output '{}' of {} rows has shape {}", name_, outputs_[i].name,
                      rows, shape.ToString());
    }
  }
  return outputs;
}

}  // namespace chairlift
