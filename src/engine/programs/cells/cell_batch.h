// One task of a cellular model on one worker: rows of many requests through one cell.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_BATCH_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_BATCH_H_

#include <span>
#include <vector>

#include "device/cpu/team.h"
#include "engine/programs/cells/cell_request.h"
#include "runtime/worker_memory.h"

namespace chairlift {

// Not thread-safe; the requests must outlive it. Kept from task to task for its memory.
class CellBatch {
 public:
  // What became of one node.
  struct Item {
    CellRequest* request = nullptr;
    NodeId node = 0;
    Status status;  // what failed it
    TaskOutputs outputs;
    int64_t first_row = 0;
    int64_t rows = 0;  // as the request has it, whether or not they ran
  };

  // Finds a node's rows. The requests of the other nodes may change after this, not the places.
  void Begin(Cell& cell);
  void Add(CellRequest& request, NodeId node);
  // Rows that nobody asked for, so that the batch has a size that a padding policy wants. None
  // where all that were asked for have been cancelled: then nothing runs.
  void Pad(int32_t rows);

  // Runs the cell, and copies what is to be delivered. Where nodes fail together each is run again
  // alone, so that none fails for another's data.
  void Run(Team& team, int worker, WorkerMemory& memory);

  std::span<Item> items() { return items_; }

 private:
  struct Part {
    int64_t rows = 0;
    size_t first_copy = 0, last_copy = 0;
  };
  StatusOr<TaskOutputs> RunRows(int64_t first, int64_t rows, Team& team, int worker,
                                WorkerMemory& memory);

  Cell* cell_ = nullptr;
  std::vector<Shape> shapes_;  // by input: of every row
  std::vector<Item> items_;
  std::vector<Part> parts_;                            // by item
  std::vector<std::vector<const std::byte*>> places_;  // by input: of every row
  std::vector<CellRequest::Copy> copies_;
  int64_t rows_ = 0;
  std::vector<std::byte> padding_;  // one row of zeros of the widest input
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_BATCH_H_
