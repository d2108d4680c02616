#include "engine/batch.h"

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

// The requests' inputs, one after the other along dimension 0, in the worker's staging memory.
StatusOr<std::vector<Tensor>> Gather(std::span<const Request* const> requests, Arena& staging) {
  const std::vector<Tensor>& first = requests[0]->fitting.inputs;
  std::vector<Shape> shapes;
  size_t bytes = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    Shape shape = first[i].shape();
    shape[0] = 0;
    for (const Request* request : requests) shape[0] += request->fitting.rows;
    const size_t element = DTypeSize(first[i].dtype());
    CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t size, shape.Checked(element));
    bytes += Padded(static_cast<size_t>(size) * element);
    shapes.push_back(shape);
  }
  std::byte* place = staging.Reserve(bytes);
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < first.size(); ++i) {
    inputs.push_back(Tensor::Wrap(first[i].dtype(), shapes[i], place));
    std::byte* row = place;
    for (const Request* request : requests) {
      const Tensor& part = request->fitting.inputs[i];
      if (part.byte_size() > 0) std::memcpy(row, part.raw(), part.byte_size());
      row += part.byte_size();
    }
    place += Padded(inputs.back().byte_size());
  }
  return inputs;
}

// Rows [first, first + rows) of every output the request wants; all of it where it rode alone.
StatusOr<std::vector<NamedTensor>> Pick(const Signature& signature, const Request& request,
                                        const std::vector<Tensor>& outputs, bool alone,
                                        int64_t first, int64_t total_rows) {
  std::vector<NamedTensor> picked;
  for (int index : request.fitting.outputs) {
    const Tensor& output = outputs[index];
    const std::string& name = signature.outputs[index].name;
    if (alone) {
      picked.push_back({name, output});
      continue;
    }
    if (output.shape().rank() == 0 || output.shape()[0] != total_rows) {
      return Internal("output '{}' of a batch of {} rows has shape {}", name, total_rows,
                      output.shape().ToString());
    }
    picked.push_back({name, output.Rows(first, request.fitting.rows)});
  }
  return picked;
}

}  // namespace

BatchResult RunBatch(Model& model, std::span<const Request* const> requests, Team& team, int worker,
                     WorkerMemory& memory) {
  const Clock& clock = Clock::Steady();
  BatchResult result;
  const bool alone = requests.size() == 1;
  const TimePoint start = clock.Now();
  std::optional<Packing> packing;
  std::optional<Padding> padding;
  if (model.ragged() == nullptr && model.signature().sequences && !alone) {
    padding.emplace(model.signature(), requests);
  }
  if (model.ragged() != nullptr)
    packing.emplace(model.signature(), model.ragged()->inputs, requests);
  StatusOr<std::vector<Tensor>> inputs = packing   ? packing->Inputs(memory.staging)
                                         : padding ? padding->Inputs(memory.staging)
                                         : alone   ? requests[0]->fitting.inputs
                                                   : Gather(requests, memory.staging);
  const TimePoint gathered = clock.Now();
  StatusOr<std::vector<Tensor>> outputs =
      inputs.ok() ? model.executable()->Run(*inputs, team, worker, memory.compute)
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
          Pick(model.signature(), *requests[i], *outputs, alone, first, total_rows));
    }
    first += requests[i]->fitting.rows;
  }
  result.compute_output = clock.Now() - ran;
  return result;
}

}  // namespace chairlift
