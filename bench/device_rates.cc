// Measures a device in a bare loop, without an engine: an upper bound for batching there. Prints
// one line of JSON.
//
//   device_rates step MODEL.onnx ROWS DEVICE PRECISION SECONDS     its first recurrent cell, step
//                                                                  after step: microseconds per
//                                                                  step
//   device_rates packed MODEL.onnx LENGTHS.txt TOKENS DEVICE PRECISION SECONDS
//                            an encoder on packed tokens: sequences of these lengths, in turn, up
//                            to TOKENS of them: tokens per second
//   device_rates rows OPERATOR ROWS COLUMNS DEVICE PRECISION SECONDS    Softmax or
//                            LayerNormalization of rows: bytes per second, read and written
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/devices.h"
#include "engine/programs/cells/cell_program.h"
#include "engine/programs/packing.h"
#include "engine/programs/sequence_signature.h"
#include "graph/onnx/import.h"
#include "runtime/worker_memory.h"

namespace chairlift {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

StatusOr<ExecutableOptions> OptionsOf(const std::string& device, const std::string& precision) {
  ExecutableOptions options;
  CHAIRLIFT_ASSIGN_OR_RETURN(options.device, FindDevice(device, {.tf32 = precision == "tf32"}));
  if (precision == "float16") options.narrow_to = DType::kFloat16;
  if (precision == "bfloat16") options.narrow_to = DType::kBFloat16;
  return options;
}

// Calls enqueue() repeatedly for the given time, with up to kAhead calls that have not run. Returns
// seconds per call, over the second half.
StatusOr<double> SecondsOf(Stream& stream, double seconds, absl::FunctionRef<Status()> enqueue) {
  constexpr int kAhead = 64;
  std::vector<std::shared_ptr<Event>> ahead(kAhead);
  CHAIRLIFT_RETURN_IF_ERROR(enqueue());
  CHAIRLIFT_RETURN_IF_ERROR(stream.Record()->Wait());
  const auto begin = Clock::now();
  auto half = begin;
  int64_t calls = 0, at_half = 0;
  for (; Seconds(Clock::now() - begin).count() < seconds; ++calls) {
    std::shared_ptr<Event>& event = ahead[static_cast<size_t>(calls) % kAhead];
    if (event != nullptr) CHAIRLIFT_RETURN_IF_ERROR(event->Wait());
    CHAIRLIFT_RETURN_IF_ERROR(enqueue());
    event = stream.Record();
    if (at_half == 0 && Seconds(Clock::now() - begin).count() > seconds / 2) {
      CHAIRLIFT_RETURN_IF_ERROR(stream.Record()->Wait());
      half = Clock::now();
      at_half = calls + 1;
    }
  }
  CHAIRLIFT_RETURN_IF_ERROR(stream.Record()->Wait());
  return Seconds(Clock::now() - half).count() / static_cast<double>(calls - at_half);
}

Status Step(const std::vector<std::string>& words) {
  const int64_t rows = std::atoll(words[2].c_str());
  CHAIRLIFT_ASSIGN_OR_RETURN(const ExecutableOptions options, OptionsOf(words[3], words[4]));
  CHAIRLIFT_ASSIGN_OR_RETURN(ImportedModel imported, ImportOnnxFile(words[1]));
  CHAIRLIFT_ASSIGN_OR_RETURN(SlicedModel sliced, SliceIntoCells(imported.graph));
  CHAIRLIFT_ASSIGN_OR_RETURN(CellProgram program, MakeCellProgram(std::move(sliced), options));
  Cell& step = *program.cells[1];
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto stream, options.device->NewStream());
  WorkerMemory memory(*stream);
  std::vector<Tensor> inputs;
  for (const Cell::Port& port : step.inputs()) {
    Shape shape{rows};
    for (const Dim& dim : port.row.dims()) shape.Append(dim.value());
    Tensor host = Tensor::Allocate(port.dtype, shape);
    for (int64_t i = 0; i < host.size(); ++i) {
      host.data<float>()[i] = static_cast<float>(i * 37 % 101) / 101.0f - 0.5f;
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(inputs.emplace_back(), stream->Upload(host));
  }
  SoloTeam team;
  std::vector<std::vector<const std::byte*>> places(inputs.size());
  const auto enqueue_one = [&]() -> Status {
    std::vector<Cell::Rows> read;
    for (size_t i = 0; i < inputs.size(); ++i) {
      places[i].clear();
      Shape row = inputs[i].shape();
      row.Erase(0);
      const auto* place = static_cast<const std::byte*>(std::as_const(inputs[i]).raw());
      for (int64_t r = 0; r < rows; ++r, place += step.inputs()[i].row_bytes) {
        places[i].push_back(place);
      }
      read.push_back({row, places[i].data()});
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> next,
                               step.Run(rows, read, team, 0, memory.compute, memory.staging));
    for (size_t i = 0; i < next.size(); ++i) inputs[i + 1] = std::move(next[i]);
    return absl::OkStatus();
  };
  // As many as a task has: it waits once.
  constexpr int kSteps = 16;
  const auto enqueue = [&]() -> Status {
    for (int step = 0; step < kSteps; ++step) CHAIRLIFT_RETURN_IF_ERROR(enqueue_one());
    return absl::OkStatus();
  };
  CHAIRLIFT_ASSIGN_OR_RETURN(const double each,
                             SecondsOf(*stream, std::atof(words[5].c_str()), enqueue));
  std::printf("{\"us_per_step\": %.3f}\n", each / kSteps * 1e6);
  return absl::OkStatus();
}

Status Packed(const std::vector<std::string>& words) {
  const int64_t most = std::atoll(words[3].c_str());
  CHAIRLIFT_ASSIGN_OR_RETURN(const ExecutableOptions options, OptionsOf(words[4], words[5]));
  CHAIRLIFT_ASSIGN_OR_RETURN(ImportedModel imported, ImportOnnxFile(words[1]));
  CHAIRLIFT_ASSIGN_OR_RETURN(RaggedModel ragged, MakeRagged(imported.graph));
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto executable,
                             Executable::Create(std::move(ragged.graph), options));
  std::vector<int64_t> offsets = {0}, positions;
  std::ifstream lines(words[2]);
  for (int64_t length = 0; lines >> length && offsets.back() + length <= most;) {
    for (int64_t p = 0; p < length; ++p) positions.push_back(p);
    offsets.push_back(offsets.back() + length);
  }
  const int64_t tokens = offsets.back();
  const int64_t room = TokenRoom(tokens);
  const auto sequences = static_cast<int64_t>(offsets.size()) - 1;
  offsets.resize(static_cast<size_t>(SequenceRoom(sequences)) + 1, tokens);
  positions.resize(static_cast<size_t>(room), 0);
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto stream, options.device->NewStream());
  WorkerMemory memory(*stream);
  std::vector<Tensor> inputs;
  for (const RaggedInput& input : ragged.inputs) {
    Tensor host = Tensor::Of<int64_t>(Shape{room}, std::span<const int64_t>(positions));
    if (input.role == RaggedRole::kOffsets) {
      host = Tensor::Of<int64_t>(Shape{static_cast<int64_t>(offsets.size())},
                                 std::span<const int64_t>(offsets));
    } else if (input.role != RaggedRole::kPositions) {
      const std::string& name = imported.graph.values[imported.graph.inputs[input.source]].name;
      for (int64_t i = 0; i < room; ++i) {
        host.data<int64_t>()[i] = name == "input_ids" ? i * 37 % 997 : name == "attention_mask";
      }
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(inputs.emplace_back(), stream->Upload(host));
  }
  SoloTeam team;
  CHAIRLIFT_ASSIGN_OR_RETURN(const double each,
                             SecondsOf(*stream, std::atof(words[6].c_str()), [&]() -> Status {
                               return executable->Run(inputs, team, 0, memory.compute).status();
                             }));
  std::printf("{\"tokens\": %ld, \"sequences\": %ld, \"ms\": %.4f, \"tokens_per_s\": %.0f}\n",
              static_cast<long>(tokens), static_cast<long>(sequences), each * 1e3,
              static_cast<double>(tokens) / each);
  return absl::OkStatus();
}

Status Rows(const std::vector<std::string>& words) {
  const int64_t rows = std::atoll(words[2].c_str()), columns = std::atoll(words[3].c_str());
  CHAIRLIFT_ASSIGN_OR_RETURN(const ExecutableOptions options, OptionsOf(words[4], words[5]));
  const DType dtype = options.narrow_to == DType::kUndefined ? DType::kFloat : options.narrow_to;
  Graph graph;
  const auto value = [&](const char* name, const Shape& shape) {
    Value made;
    made.name = name;
    made.dtype = dtype;
    made.shape = SymbolicShape(shape);
    return graph.AddValue(std::move(made));
  };
  const ValueId x = value("x", {rows, columns}), y = value("y", {rows, columns});
  graph.inputs = {x};
  Node node;
  node.name = "rows";
  node.def = OperatorRegistry::Builtin().Find("", words[1]);
  node.inputs = {x};
  if (words[1] == "LayerNormalization") {
    graph.inputs.push_back(value("scale", {columns}));
    node.inputs.push_back(graph.inputs.back());
  }
  node.outputs = {y};
  graph.nodes = {node};
  graph.outputs = {y};
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto executable,
                             Executable::Create(std::move(graph), {.device = options.device}));
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto stream, options.device->NewStream());
  WorkerMemory memory(*stream);
  std::vector<Tensor> inputs;
  for (const SymbolicSpec& spec : executable->inputs()) {
    Tensor host = Tensor::Allocate(dtype, spec.shape.ToShape());
    for (int64_t i = 0; i < host.size(); ++i) {
      const float number = static_cast<float>(i * 37 % 1009) / 1009.0f - 0.5f;
      if (dtype == DType::kFloat) host.data<float>()[i] = number;
      if (dtype == DType::kFloat16) host.data<Float16>()[i] = Float16(number);
      if (dtype == DType::kBFloat16) host.data<BFloat16>()[i] = BFloat16(number);
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(inputs.emplace_back(), stream->Upload(host));
  }
  SoloTeam team;
  CHAIRLIFT_ASSIGN_OR_RETURN(const double each,
                             SecondsOf(*stream, std::atof(words[6].c_str()), [&]() -> Status {
                               return executable->Run(inputs, team, 0, memory.compute).status();
                             }));
  const double bytes = 2.0 * static_cast<double>(inputs[0].byte_size());
  std::printf("{\"us\": %.2f, \"gb_per_s\": %.1f}\n", each * 1e6, bytes / each / 1e9);
  return absl::OkStatus();
}

Status Measure(const std::vector<std::string>& words) {
  static const std::map<std::string, std::pair<size_t, Status (*)(const std::vector<std::string>&)>>
      kVerbs = {{"step", {6, Step}}, {"packed", {7, Packed}}, {"rows", {7, Rows}}};
  const auto verb = words.empty() ? kVerbs.end() : kVerbs.find(words[0]);
  if (verb == kVerbs.end() || words.size() != verb->second.first) {
    return InvalidArgument(
        "usage: device_rates step MODEL.onnx ROWS DEVICE PRECISION SECONDS\n"
        "       device_rates packed MODEL.onnx LENGTHS.txt TOKENS DEVICE PRECISION SECONDS\n"
        "       device_rates rows OPERATOR ROWS COLUMNS DEVICE PRECISION SECONDS");
  }
  return verb->second.second(words);
}

}  // namespace
}  // namespace chairlift

int main(int argc, char** argv) {
  const chairlift::Status status = chairlift::Measure({argv + 1, argv + argc});
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", chairlift::Message(status).c_str());
  return 1;
}
