#include "engine/batch.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/status.h"
#include "engine/packing.h"
#include "engine/padding.h"

namespace chairlift {
namespace {

constexpr size_t kAlign = 64;  // of every tensor; also what must be readable past its end

size_t Padded(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign + kAlign; }

// The parts of one tensor along `axis`, one after the other, at `place`.
void Join(std::span<const Request* const> requests, size_t input, int axis, std::byte* place) {
  const Shape& any = requests[0]->fitting.inputs[input].shape();
  const int64_t outer = any.NumElements(0, axis);
  for (int64_t o = 0; o < outer; ++o) {
    for (const Request* request : requests) {
      const Tensor& part = request->fitting.inputs[input];
      const size_t bytes = part.byte_size() / static_cast<size_t>(outer);
      if (bytes == 0) continue;
      std::memcpy(place, static_cast<const std::byte*>(part.raw()) + o * bytes, bytes);
      place += bytes;
    }
  }
}

// Rows [first, first + rows) along `axis`.
Tensor Cut(const Tensor& whole, int axis, int64_t first, int64_t rows) {
  if (axis == 0) return whole.Rows(first, rows);
  Shape shape = whole.shape();
  shape[axis] = rows;
  Tensor part = Tensor::Allocate(whole.dtype(), shape);
  const int64_t outer = shape.NumElements(0, axis);
  if (part.byte_size() == 0) return part;
  const size_t bytes = part.byte_size() / static_cast<size_t>(outer);
  const size_t row = bytes / static_cast<size_t>(rows);
  const size_t stride = row * static_cast<size_t>(whole.shape()[axis]);
  for (int64_t o = 0; o < outer; ++o) {
    std::memcpy(static_cast<std::byte*>(part.raw()) + o * bytes,
                static_cast<const std::byte*>(whole.raw()) + o * stride + first * row, bytes);
  }
  return part;
}

// Intermediates of a request that runs alone, at most: a mask of queries by keys may grow with the
// square of its length.
constexpr size_t kMaxBytesAlone = size_t{4} << 30;

// What the requests run through: the model, or the form of their class.
struct Runs {
  explicit Runs(Model& model, const ClassForm* class_form)
      : executable(class_form == nullptr ? model.executable() : class_form->executable.get()),
        form(class_form) {}
  explicit Runs(Executable& original) : executable(&original), form(nullptr) {}
  size_t num_inputs() const { return executable->inputs().size(); }
  int input(size_t i) const { return form == nullptr ? static_cast<int>(i) : form->inputs[i]; }
  int input_axis(size_t i) const { return form == nullptr ? 0 : form->input_axes[i]; }
  int output_axis(int output) const { return form == nullptr ? 0 : form->output_axes[output]; }

  Executable* executable;
  const ClassForm* form;
};

// The requests' inputs, one after the other along the batch, in the worker's staging memory.
StatusOr<std::vector<Tensor>> Gather(const Runs& runs, std::span<const Request* const> requests,
                                     Arena& staging) {
  std::vector<Shape> shapes;
  size_t bytes = 0;
  for (size_t i = 0; i < runs.num_inputs(); ++i) {
    const Tensor& first = requests[0]->fitting.inputs[runs.input(i)];
    Shape shape = first.shape();
    int64_t& rows = shape[runs.input_axis(i)];
    rows = 0;
    for (const Request* request : requests) rows += request->fitting.rows;
    const size_t element = DTypeSize(first.dtype());
    CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t size, shape.Checked(element));
    bytes += Padded(static_cast<size_t>(size) * element);
    shapes.push_back(shape);
  }
  std::byte* place = staging.Reserve(bytes);
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < runs.num_inputs(); ++i) {
    const DType dtype = requests[0]->fitting.inputs[runs.input(i)].dtype();
    inputs.push_back(Tensor::Wrap(dtype, shapes[i], place));
    Join(requests, static_cast<size_t>(runs.input(i)), runs.input_axis(i), place);
    place += Padded(inputs.back().byte_size());
  }
  return inputs;
}

// One request's, as they are.
std::vector<Tensor> Own(const Runs& runs, const Request& request) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < runs.num_inputs(); ++i) {
    inputs.push_back(request.fitting.inputs[runs.input(i)]);
  }
  return inputs;
}

// Rows [first, first + rows) of every output the request wants; all of it where it rode alone.
StatusOr<std::vector<NamedTensor>> Pick(const Signature& signature, const Runs& runs,
                                        const Request& request, const std::vector<Tensor>& outputs,
                                        bool alone, int64_t first, int64_t total_rows) {
  std::vector<NamedTensor> picked;
  for (int index : request.fitting.outputs) {
    const Tensor& output = outputs[index];
    const std::string& name = signature.outputs[index].name;
    if (alone) {
      picked.push_back({name, output});
      continue;
    }
    const int axis = runs.output_axis(index);
    if (output.shape().rank() <= axis || output.shape()[axis] != total_rows) {
      return Internal("output '{}' of a batch of {} rows has shape {}", name, total_rows,
                      output.shape().ToString());
    }
    picked.push_back({name, Cut(output, axis, first, request.fitting.rows)});
  }
  return picked;
}

// What runs a request that runs alone, where it fits into memory.
StatusOr<Executable*> RunsAlone(Model& model, const Request& request, int width) {
  Executable* executable = model.executable();
  if (model.ragged() != nullptr) {
    CHAIRLIFT_ASSIGN_OR_RETURN(executable, model.ragged()->original->Get());
  }
  std::vector<Shape> shapes;
  for (const Tensor& input : request.fitting.inputs) shapes.push_back(input.shape());
  const StatusOr<PlanStats> stats = executable->Prepare(shapes, width);
  if (stats.ok() ? stats->arena_bytes > kMaxBytesAlone
                 : absl::IsResourceExhausted(stats.status())) {
    return InvalidArgument(
        "{} sequences of {} tokens in one request need more than {} MiB of intermediates, the most "
        "that one gets; fewer sequences, or up to {} tokens in each, need less",
        request.fitting.rows, request.fitting.length, kMaxBytesAlone >> 20,
        model.signature().sequences->max_shared_length);
  }
  if (!stats.ok()) {
    return Annotate(stats.status(), fmt::format("{} sequences of {} tokens in one request",
                                                request.fitting.rows, request.fitting.length));
  }
  return executable;
}

// Requests that run alone among others: each by itself, the others together.
BatchResult RunApart(Model& model, std::span<const Request* const> requests, Team& team, int worker,
                     WorkerMemory& memory) {
  BatchResult result;
  result.outputs.assign(requests.size(), Internal("not computed"));
  const auto run = [&](const std::vector<const Request*>& some, const std::vector<size_t>& places) {
    BatchResult own = RunBatch(model, some, team, worker, memory);
    for (size_t i = 0; i < places.size(); ++i) {
      result.outputs[places[i]] = std::move(own.outputs[i]);
    }
    result.compute_input += own.compute_input;
    result.compute_infer += own.compute_infer;
    result.compute_output += own.compute_output;
  };
  std::vector<const Request*> together;
  std::vector<size_t> places;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i]->fitting.runs_alone) {
      run({requests[i]}, {i});
    } else {
      together.push_back(requests[i]);
      places.push_back(i);
    }
  }
  if (!together.empty()) run(together, places);
  return result;
}

}  // namespace

BatchResult RunBatch(Model& model, std::span<const Request* const> requests, Team& team, int worker,
                     WorkerMemory& memory) {
  const Clock& clock = Clock::Steady();
  BatchResult result;
  const bool alone = requests.size() == 1;
  if (!alone && std::any_of(requests.begin(), requests.end(),
                            [](const Request* r) { return r->fitting.runs_alone; })) {
    return RunApart(model, requests, team, worker, memory);
  }
  const TimePoint start = clock.Now();
  Runs runs(model, requests[0]->fitting.form.get());
  if (requests[0]->fitting.runs_alone) {
    const StatusOr<Executable*> original = RunsAlone(model, *requests[0], team.width());
    if (!original.ok()) {
      result.outputs.emplace_back(original.status());
      return result;
    }
    runs = Runs(**original);
  }
  std::optional<Packing> packing;
  std::optional<Padding> padding;
  if (model.ragged() == nullptr && model.signature().sequences && !alone) {
    padding.emplace(model.signature(), requests);
  }
  if (model.ragged() != nullptr && !requests[0]->fitting.runs_alone) {
    packing.emplace(model.signature(), model.ragged()->inputs, requests);
  }
  StatusOr<std::vector<Tensor>> inputs = packing   ? packing->Inputs(memory.staging)
                                         : padding ? padding->Inputs(memory.staging)
                                         : alone   ? Own(runs, *requests[0])
                                                   : Gather(runs, requests, memory.staging);
  const TimePoint gathered = clock.Now();
  StatusOr<std::vector<Tensor>> outputs =
      inputs.ok() ? runs.executable->Run(*inputs, team, worker, memory.compute)
                  : StatusOr<std::vector<Tensor>>(inputs.status());
  const TimePoint ran = clock.Now();
  result.compute_input = gathered - start;
  result.compute_infer = ran - gathered;
  if (!outputs.ok() && !alone) {
    for (const Request* request : requests) {
      BatchResult single = RunBatch(model, {&request, 1}, team, worker, memory);
      result.outputs.push_back(std::move(single.outputs[0]));
      result.compute_infer += single.compute_infer;
    }
    return result;
  }
  int64_t total_rows = 0;
  for (const Request* request : requests) total_rows += request->fitting.rows;
  int64_t first = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (!outputs.ok()) {
      result.outputs.emplace_back(outputs.status());
    } else if (packing) {
      result.outputs.push_back(packing->Outputs(i, *outputs));
    } else if (padding) {
      result.outputs.push_back(padding->Outputs(i, *outputs));
    } else {
      result.outputs.push_back(
          Pick(model.signature(), runs, *requests[i], *outputs, alone, first, total_rows));
    }
    first += requests[i]->fitting.rows;
  }
  result.compute_output = clock.Now() - ran;
  return result;
}

}  // namespace chairlift
