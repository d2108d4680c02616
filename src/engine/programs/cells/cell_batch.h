// One task of a cellular model on one worker: rows of many requests through one cell, in one step
// or in several.
//
// Between steps nothing is gathered: each step reads the states where the one before left them, in
// one of two buffers that take turns. A row that has had its last step stays where it is; those
// that go on come before it.
//
// Nor is much looked up from task to task. Of rows that go on, a batch remembers where their next
// step reads, as long as that is a fixed way further on: only of those that join, or whose step is
// an unlike one, is the request asked.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_BATCH_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_BATCH_H_

#include <span>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/team.h"
#include "device/device.h"
#include "engine/programs/cells/cell_request.h"
#include "runtime/worker_memory.h"

namespace chairlift {

// Not thread-safe; the requests must outlive it. Kept from task to task for its memory.
class CellBatch {
 public:
  // What became of one node, and of those that follow it.
  struct Item {
    CellRequest* request = nullptr;
    NodeId node = 0;
    int32_t steps = 1;
    Status status;                                // what failed it
    absl::InlinedVector<TaskOutputs, 1> outputs;  // of each step, or of the last alone
    int64_t first_row = 0;
    int64_t rows = 0;      // as the request has it, whether or not they ran
    uint64_t number = 0;   // of the request
    NodeId alike_end = 0;  // CellRequest::AlikeFrom(); strides_ has the way

    // Null where nobody else reads them.
    TaskOutputs OutputsOf(int32_t step) const {
      const auto after = static_cast<size_t>(steps - 1 - step);
      return after < outputs.size() ? outputs[outputs.size() - 1 - after] : nullptr;
    }
  };

  // `feeds`: as CellProgram has them. `lasting`: how many nodes have more than one step, of which
  // the first, which has the most, has `steps`. `stream`: on which it is to run.
  void Begin(Cell& cell, std::span<const int> feeds, int32_t lasting, int32_t steps,
             Stream& stream = CpuStream());
  // Finds a node's rows, and those of the ones that follow it, `steps` in all. The requests of the
  // other nodes may change after this, not the places. Nodes come in order of their steps, the most
  // first. `number` tells requests apart; 0: none of it is remembered. Where the stream is another
  // device's, the request has its places there (CellPlaces).
  void Add(CellRequest& request, uint64_t number, NodeId node, int32_t steps);
  // As Add(), without asking the request, nor its mutex. False, and nothing is added, where the
  // last batch of the cell did not have the node before, or this one is unlike that.
  bool AddNext(CellRequest& request, uint64_t number, NodeId node, int32_t steps);
  // Rows that nobody asked for, so that the batch has a size that a padding policy wants. None
  // where all that were asked for have been cancelled: then nothing runs. `all_steps`: each step
  // has as many rows as the first (`lasting` has been all), those of nodes that have ended among
  // them.
  void Pad(int32_t rows, bool all_steps = false);

  // Runs the cell, and copies what is to be delivered after each step. Where nodes fail together
  // each is run again alone, so that none fails for another's data. Returns once the device has
  // done all of it. `memory` is of the stream.
  void Run(Team& team, int worker, WorkerMemory& memory);

  std::span<Item> items() { return items_; }

 private:
  // Where it runs.
  struct Machine {
    Team& team;
    int worker;
    WorkerMemory& memory;
  };
  // What a cell's last batch leaves of a row that goes on.
  struct Rider {
    uint64_t number = 0;
    NodeId next = 0;       // node
    NodeId alike_end = 0;  // CellRequest::AlikeFrom()
    size_t copies_end = 0;
  };
  struct Cohort {
    const Cell* cell = nullptr;
    std::vector<Rider> riders;
    std::vector<const std::byte*> places;   // by rider and input: of its next node
    std::vector<int64_t> strides;           // likewise: bytes from node to node
    std::vector<CellRequest::Copy> copies;  // by rider: of its next node
    size_t cursor = 0;                      // where the next to be found is, mostly
  };

  Status Locate(const CellRequest& request, const Item& item);
  Cohort& CohortOf(const Cell& cell);
  // Remembers the rows that go on.
  void KeepRiders();
  // Makes the copies of a step, of rows that begin at `first_row`.
  Status Deliver(std::span<const Item> items, int32_t step, const std::vector<Tensor>& outputs,
                 int64_t first_row);
  // Waits for what was enqueued, `enqueued` or not, with the parts of answers that it delivers.
  Status Finish(const Status& enqueued, std::span<const Item> items);
  // All steps of these items, which have all rows from `first_row` on.
  Status RunSteps(std::span<Item> items, int64_t first_row, int64_t rows, const Machine& machine);
  StatusOr<TaskOutputs> RunStep(int32_t step, int64_t first_row, int64_t rows,
                                const TaskOutputs& before, const TaskOutputs& reuse,
                                const Machine& machine);

  Stream* stream_ = nullptr;
  Cell* cell_ = nullptr;
  std::span<const int> feeds_;
  std::vector<Shape> shapes_;  // by input: of every row
  std::vector<Item> items_;
  std::vector<std::vector<const std::byte*>> places_;  // by input: of every row
  // By input that no step feeds: of rows in the steps after the first, `lasting_` a step.
  std::vector<std::vector<const std::byte*>> later_;
  int64_t lasting_ = 0;
  std::vector<std::vector<const std::byte*>> states_;  // by input that is fed: of one step
  bool all_steps_ = false;                             // have as many rows as the first
  bool all_are_read_ = false;  // what steps leave, by others than the next step
  std::vector<CellRequest::Copy> copies_;
  std::vector<size_t> copies_end_;  // by item
  int64_t rows_ = 0;
  std::vector<std::byte> padding_;  // one row of zeros of the widest input
  Tensor padding_there_;            // the same on the stream's device, where it is another
  Status no_padding_;               // why there is none
  std::vector<std::pair<int64_t, std::vector<Stream::RowCopy>>> row_copies_;  // by bytes
  std::vector<int64_t> strides_;                                              // by item and input
  std::vector<Cohort> cohorts_;  // one for each cell that feeds itself
  Cohort* cohort_ = nullptr;     // of cell_; null: it does not
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_BATCH_H_
