// Runs the cells of a model in a bare loop at a full batch, without an engine: an upper bound for
// batching.
//
//   cell_loop MODEL.onnx ROWS STEPS WORKERS SECONDS
//
// Every worker repeatedly runs ROWS separate sequences of STEPS tokens, each cell on as many rows
// as the engine would give it. Prints one line of JSON: tokens per second.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "base/status.h"
#include "device/cpu/worker_pool.h"
#include "engine/programs/cells/cell_program.h"
#include "graph/onnx/import.h"

namespace chairlift {
namespace {

// One worker's sequences: tokens → projection, all at once; then the step, STEPS times.
class Loop {
 public:
  Loop(Cell& tokens, Cell& step, int64_t rows, int64_t steps)
      : tokens_(tokens), step_(step), rows_(rows), steps_(steps) {
    ids_ = Tensor::Allocate(DType::kInt64, {rows * steps});
    for (int64_t i = 0; i < ids_.size(); ++i) ids_.data<int64_t>()[i] = i * 37 % 997;
    for (const Cell::Port& port : step.inputs()) {
      Shape shape{rows};
      for (const Dim& dim : port.row.dims()) shape.Append(dim.value());
      states_.push_back(Tensor::Allocate(port.dtype, shape));
      std::memset(states_.back().raw(), 0, states_.back().byte_size());
    }
  }

  Status Run(Team& team, int worker) {
    std::vector<Tensor> projected;  // of `rows` tokens each
    for (int64_t first = 0; first < rows_ * steps_; first += rows_) {
      std::vector<const std::byte*> ids;
      for (int64_t i = first; i < first + rows_; ++i) {
        ids.push_back(static_cast<const std::byte*>(ids_.raw()) +
                      i * static_cast<int64_t>(sizeof(int64_t)));
      }
      const std::vector<Cell::Rows> inputs = {{Shape{}, ids.data()}};
      CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> out,
                                 tokens_.Run(rows_, inputs, team, worker, arena_, staging_));
      projected.push_back(std::move(out[0]));
    }
    std::vector<Tensor> states = states_;
    for (int64_t t = 0; t < steps_; ++t) {
      std::vector<std::vector<const std::byte*>> places(step_.inputs().size());
      std::vector<Cell::Rows> inputs;
      for (size_t i = 0; i < places.size(); ++i) {
        const Tensor& from = states[i];
        const int64_t bytes = step_.inputs()[i].row_bytes;
        for (int64_t row = 0; row < rows_; ++row) {
          // For input 0: token t of sequence `row`.
          const int64_t token = row * steps_ + t;
          const Tensor& tensor = i == 0 ? projected[token / rows_] : from;
          places[i].push_back(static_cast<const std::byte*>(tensor.raw()) +
                              (i == 0 ? token % rows_ : row) * bytes);
        }
        Shape shape = from.shape();
        shape.Erase(0);
        inputs.push_back({shape, places[i].data()});
      }
      CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> next,
                                 step_.Run(rows_, inputs, team, worker, arena_, staging_));
      for (size_t i = 0; i < next.size(); ++i) states[i + 1] = std::move(next[i]);
    }
    return absl::OkStatus();
  }

 private:
  Cell& tokens_;
  Cell& step_;
  const int64_t rows_, steps_;
  Tensor ids_;
  std::vector<Tensor> states_;  // what the first step reads, by its inputs
  Arena arena_, staging_;
};

Status Measure(int argc, char** argv) {
  if (argc != 6) {
    return InvalidArgument("usage: {} MODEL.onnx ROWS STEPS WORKERS SECONDS", argv[0]);
  }
  const int64_t rows = std::atoi(argv[2]), steps = std::atoi(argv[3]);
  const int workers = std::atoi(argv[4]);
  CHAIRLIFT_ASSIGN_OR_RETURN(ImportedModel imported, ImportOnnxFile(argv[1]));
  CHAIRLIFT_ASSIGN_OR_RETURN(SlicedModel sliced, SliceIntoCells(imported.graph));
  CHAIRLIFT_ASSIGN_OR_RETURN(CellProgram program, MakeCellProgram(std::move(sliced), {}));
  if (program.cells.size() < 2 || program.cells[1]->inputs().size() < 2) {
    return InvalidArgument("{} is no embedding and one recurrent layer", argv[1]);
  }
  WorkerPoolOptions options;
  options.workers = workers;
  CHAIRLIFT_ASSIGN_OR_RETURN(std::unique_ptr<WorkerPool> pool, WorkerPool::Create(options));
  using Seconds = std::chrono::duration<double>;
  std::atomic<int> left{workers};
  std::atomic<int64_t> runs{0};
  std::atomic<bool> failed{false};
  const auto start = std::chrono::steady_clock::now();
  for (int w = 0; w < workers; ++w) {
    const bool taken = pool->Submit(w, [&](int worker) {
      Loop loop(*program.cells[0], *program.cells[1], rows, steps);
      SoloTeam team(worker);
      while (Seconds(std::chrono::steady_clock::now() - start).count() < std::atof(argv[5])) {
        if (!loop.Run(team, worker).ok()) failed = true;
        ++runs;
      }
      --left;
      left.notify_all();
    });
    if (!taken) return Internal("a worker took no job");
  }
  for (int seen = left; seen > 0; seen = left) left.wait(seen);
  const double seconds = Seconds(std::chrono::steady_clock::now() - start).count();
  if (failed) return Internal("a cell failed");
  std::printf("{\"tokens_per_s\": %.1f}\n", static_cast<double>(runs * rows * steps) / seconds);
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
