// One task of a cellular model on one worker: rows of many requests through one cell, in one step
// or several.
//
// Nothing is gathered between steps. Each step reads the states where the previous one left them,
// in one of two alternating buffers. A row that has had its last step stays in place; the remaining
// rows come before it.
//
// Little is looked up between tasks. For rows that continue, a batch remembers where their next
// step reads, as long as that is at a fixed distance. A request is only asked about rows that join,
// or whose step differs.
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

// Not thread-safe; the requests must outlive it. Kept between tasks for its memory.
class CellBatch {
 public:
  // The result of one node and its followers.
  struct Item {
    CellRequest* request = nullptr;
    NodeId node = 0;
    int32_t steps = 1;
    Status status;                                // the error, if it failed
    absl::InlinedVector<TaskOutputs, 1> outputs;  // of each step, or only of the last
    int64_t first_row = 0;
    int64_t rows = 0;      // as the request counts them, whether or not they ran
    uint64_t number = 0;   // of the request
    NodeId alike_end = 0;  // CellRequest::AlikeFrom(); strides_ has the distances

    // Null if nothing else reads them.
    TaskOutputs OutputsOf(int32_t step) const {
      const auto after = static_cast<size_t>(steps - 1 - step);
      return after < outputs.size() ? outputs[outputs.size() - 1 - after] : nullptr;
    }
  };

  // `feeds`: as in CellProgram. `lasting`: the number of nodes with more than one step; the first
  // one has the most, `steps`. `stream`: where it will run.
  void Begin(Cell& cell, std::span<const int> feeds, int32_t lasting, int32_t steps,
             Stream& stream = CpuStream());
  // Finds the rows of a node and its followers, `steps` in total. The requests of the other nodes
  // may change after this, but not these places. Nodes come in descending order of steps. `number`
  // identifies the request; 0: nothing about it is remembered. On another device's stream, the
  // request must have its places there (CellPlaces).
  void Add(CellRequest& request, uint64_t number, NodeId node, int32_t steps);
  // Like Add(), without accessing the request or its mutex. False, with nothing added, if the
  // cell's last batch did not have the previous node, or if this node is not like it.
  bool AddNext(CellRequest& request, uint64_t number, NodeId node, int32_t steps);
  // Adds padding rows, to reach a batch size that a padding policy wants. No rows if all requested
  // ones were cancelled: then nothing runs. `all_steps`: each step has as many rows as the first
  // (`lasting` was all), including those of nodes that have ended.
  void Pad(int32_t rows, bool all_steps = false);

  // Runs the cell, and copies what must be delivered after each step. If nodes fail together, each
  // is run again alone, so that no node fails because of another's data. Returns when the device
  // has finished everything. `memory` belongs to the stream.
  void Run(Team& team, int worker, WorkerMemory& memory);

  std::span<Item> items() { return items_; }

 private:
  // The worker and memory to run on.
  struct Machine {
    Team& team;
    int worker;
    WorkerMemory& memory;
  };
  // What a cell's last batch remembers about a row that continues.
  struct Rider {
    uint64_t number = 0;
    NodeId next = 0;       // node
    NodeId alike_end = 0;  // CellRequest::AlikeFrom()
    size_t copies_end = 0;
  };
  struct Cohort {
    const Cell* cell = nullptr;
    std::vector<Rider> riders;
    std::vector<const std::byte*> places;   // by rider and input: for its next node
    std::vector<int64_t> strides;           // by rider and input: bytes from node to node
    std::vector<CellRequest::Copy> copies;  // by rider: for its next node
    size_t cursor = 0;                      // where the next one to find usually is
  };

  Status Locate(const CellRequest& request, const Item& item);
  Cohort& CohortOf(const Cell& cell);
  // Remembers the rows that continue.
  void KeepRiders();
  // Makes the copies of a step, for rows from `first_row` on.
  Status Deliver(std::span<const Item> items, int32_t step, const std::vector<Tensor>& outputs,
                 int64_t first_row);
  // Waits for the enqueued work, whatever `enqueued` says, and delivers parts of answers.
  Status Finish(const Status& enqueued, std::span<const Item> items);
  // All steps of these items, whose rows start at `first_row`.
  Status RunSteps(std::span<Item> items, int64_t first_row, int64_t rows, const Machine& machine);
  StatusOr<TaskOutputs> RunStep(int32_t step, int64_t first_row, int64_t rows,
                                const TaskOutputs& before, const TaskOutputs& reuse,
                                const Machine& machine);

  Stream* stream_ = nullptr;
  Cell* cell_ = nullptr;
  std::span<const int> feeds_;
  std::vector<Shape> shapes_;  // by input: for every row
  std::vector<Item> items_;
  std::vector<std::vector<const std::byte*>> places_;  // by input: for every row
  // By input that no step feeds: for rows in the steps after the first, `lasting_` per step.
  std::vector<std::vector<const std::byte*>> later_;
  int64_t lasting_ = 0;
  std::vector<std::vector<const std::byte*>> states_;  // by input that is fed: for one step
  bool all_steps_ = false;                             // every step has as many rows as the first
  bool all_are_read_ = false;                          // other nodes read what steps produce
  std::vector<CellRequest::Copy> copies_;
  std::vector<size_t> copies_end_;  // by item
  int64_t rows_ = 0;
  std::vector<std::byte> padding_;  // a row of zeros of the widest input
  Tensor padding_there_;            // the same on the stream's device, if that is not the CPU
  Status no_padding_;               // why there is no padding
  std::vector<std::pair<int64_t, std::vector<Stream::RowCopy>>> row_copies_;  // by row bytes
  std::vector<int64_t> strides_;                                              // by item and input
  std::vector<Cohort> cohorts_;  // one for each cell that feeds itself
  Cohort* cohort_ = nullptr;     // of cell_; null: it does not feed itself
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_BATCH_H_
