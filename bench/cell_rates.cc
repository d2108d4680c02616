// Runs each cell alone in a bare loop on every worker, at one batch size: the limit of its kernels.
//
//   cell_rates ROWS WORKERS SECONDS CELL.onnx...
//
// Prints one line of JSON: rows per second of all workers together, by file name.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/cpu/worker_pool.h"
#include "graph/onnx/import.h"
#include "runtime/cell.h"

namespace chairlift {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// Generated rows: small numbers of either sign, and the lowest token ids.
StatusOr<std::vector<Tensor>> MakeRows(const Cell& cell, int64_t rows) {
  std::vector<Tensor> tensors;
  for (const Cell::Port& port : cell.inputs()) {
    if (port.row_bytes < 0) return InvalidArgument("{} has rows that vary", port.name);
    Shape shape{rows};
    for (const Dim& dim : port.row.dims()) shape.Append(dim.value());
    Tensor tensor = Tensor::Allocate(port.dtype, shape);
    for (int64_t i = 0; i < tensor.size(); ++i) {
      if (port.dtype == DType::kFloat) {
        tensor.data<float>()[i] = 0.01f * static_cast<float>(i % 101 - 50);
      } else if (port.dtype == DType::kInt64) {
        tensor.data<int64_t>()[i] = i % 2;
      } else {
        return InvalidArgument("{} is neither float32 nor int64", port.name);
      }
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Status Loop(Cell& cell, int64_t rows, int worker, SteadyClock::time_point end, int64_t& done) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Tensor> tensors, MakeRows(cell, rows));
  std::vector<std::vector<const std::byte*>> places(tensors.size());
  std::vector<Cell::Rows> inputs;
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (int64_t row = 0; row < rows; ++row) {
      places[i].push_back(static_cast<const std::byte*>(tensors[i].raw()) +
                          row * cell.inputs()[i].row_bytes);
    }
    Shape shape = tensors[i].shape();
    shape.Erase(0);
    inputs.push_back({shape, places[i].data()});
  }
  Arena arena, staging;
  SoloTeam team(worker);
  for (; SteadyClock::now() < end; done += rows) {
    CHAIRLIFT_RETURN_IF_ERROR(cell.Run(rows, inputs, team, worker, arena, staging).status());
  }
  return absl::OkStatus();
}

StatusOr<double> RowsPerSecond(Cell& cell, int64_t rows, WorkerPool& pool, double seconds) {
  int64_t warm_up = 0;
  CHAIRLIFT_RETURN_IF_ERROR(
      Loop(cell, rows, 0, SteadyClock::now() + std::chrono::milliseconds(20), warm_up));
  const auto workers = static_cast<size_t>(pool.size());
  std::atomic<size_t> left{workers};
  std::vector<int64_t> done(workers, 0);
  std::vector<Status> statuses(workers);
  const auto start = SteadyClock::now();
  const auto end = start + std::chrono::duration_cast<SteadyClock::duration>(Seconds(seconds));
  for (size_t w = 0; w < workers; ++w) {
    const bool taken = pool.Submit(static_cast<int>(w), [&, w](int worker) {
      statuses[w] = Loop(cell, rows, worker, end, done[w]);
      --left;
      left.notify_all();
    });
    if (!taken) return Internal("a worker took no job");
  }
  for (size_t seen = left; seen > 0; seen = left) left.wait(seen);
  const double spent = Seconds(SteadyClock::now() - start).count();
  int64_t all = 0;
  for (size_t w = 0; w < workers; ++w) {
    CHAIRLIFT_RETURN_IF_ERROR(statuses[w]);
    all += done[w];
  }
  return static_cast<double>(all) / spent;
}

Status Measure(int argc, char** argv) {
  if (argc < 5) {
    return InvalidArgument("usage: {} ROWS WORKERS SECONDS CELL.onnx...", argv[0]);
  }
  WorkerPoolOptions options;
  options.workers = std::atoi(argv[2]);
  CHAIRLIFT_ASSIGN_OR_RETURN(std::unique_ptr<WorkerPool> pool, WorkerPool::Create(options));
  std::string line;
  for (int i = 4; i < argc; ++i) {
    CHAIRLIFT_ASSIGN_OR_RETURN(ImportedModel imported, ImportOnnxFile(argv[i]));
    const std::string name = std::filesystem::path(argv[i]).stem();
    CHAIRLIFT_ASSIGN_OR_RETURN(std::unique_ptr<Cell> cell,
                               Cell::Create(name, std::move(imported.graph), {}));
    CHAIRLIFT_ASSIGN_OR_RETURN(const double rate,
                               RowsPerSecond(*cell, std::atoi(argv[1]), *pool, std::atof(argv[3])));
    line += fmt::format(R"({}"{}": {:.1f})", line.empty() ? "" : ", ", name, rate);
  }
  std::printf("{%s}\n", line.c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace chairlift

int main(int argc, char** argv) {
  const chairlift::Status status = chairlift::Measure(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", chairlift::Message(status).c_str());
  return 1;
}
