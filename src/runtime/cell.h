// A cell that can run: a graph over rows that lie anywhere in its device's memory.
#ifndef CHAIRLIFT_RUNTIME_CELL_H_
#define CHAIRLIFT_RUNTIME_CELL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/cpu/team.h"
#include "graph/ir.h"
#include "runtime/executable.h"

namespace chairlift {

// Thread-safe once created.
class Cell {
 public:
  // An input or output: what one row of it is.
  struct Port {
    std::string name;
    DType dtype = DType::kUndefined;
    SymbolicShape row;
    int64_t row_bytes = -1;  // −1 where the row has dimensions that vary
  };
  // Rows to run on: rows[r] is the address of row r in the device's memory, each of shape `row`.
  struct Rows {
    Shape row;
    const std::byte* const* rows = nullptr;
  };

  // Every input and output of the graph has its rows along dimension 0.
  static StatusOr<std::unique_ptr<Cell>> Create(std::string name, Graph graph,
                                                const ExecutableOptions& options);

  ~Cell();

  const std::string& name() const { return name_; }
  const std::vector<Port>& inputs() const { return inputs_; }
  const std::vector<Port>& outputs() const { return outputs_; }
  // Whether rows of some input have dimensions that vary.
  bool open() const { return open_; }
  Executable& executable() { return *executable_; }

  // Outputs are new tensors [rows, row…]. Rows that lie one after the other are read in place,
  // others are gathered into `staging` first, on the CPU side by side where the graph joins them;
  // there a recurrent step reads its rows wherever they lie. Both arenas are of one stream; it,
  // `stop` and `timer` as for Executable::Run().
  StatusOr<std::vector<Tensor>> Run(int64_t rows, std::span<const Rows> inputs, Team& team,
                                    int worker, Arena& arena, Arena& staging,
                                    const StopFlag* stop = nullptr, NodeTimer* timer = nullptr);

  // Whether RunInto() does what Run() does, but writes the rows of its outputs to the first rows of
  // tensors that are there.
  bool runs_into() const { return step_ != nullptr; }
  // `outputs`: as Run() returns them, of at least as many rows, and read by nobody meanwhile.
  Status RunInto(int64_t rows, std::span<const Rows> inputs, std::span<const Tensor> outputs,
                 Team& team, int worker, Arena& arena, NodeTimer* timer = nullptr) const;
  // Outputs of so many rows, not initialised, where runs_into().
  std::vector<Tensor> NewOutputs(int64_t rows) const;

 private:
  // A float32 chairlift::RecurrentStep as the whole graph, on the CPU.
  struct Step;

  Cell(std::string name, std::vector<Port> inputs, std::vector<std::vector<int>> sources,
       std::unique_ptr<Executable> executable, std::unique_ptr<Step> step);
  Status RunStep(int64_t rows, std::span<const Rows> inputs, std::span<const Tensor> outputs,
                 Team& team, int worker, Arena& arena) const;
  Status TimeStep(int64_t rows, std::span<const Rows> inputs, std::span<const Tensor> outputs,
                  Team& team, int worker, Arena& arena, NodeTimer& timer) const;

  std::string name_;
  std::unique_ptr<Executable> executable_;
  std::vector<Port> inputs_;
  // By input of the executable: those of the cell that it has side by side (JoinRows).
  std::vector<std::vector<int>> sources_;
  std::vector<Port> outputs_;
  bool open_ = false;
  std::unique_ptr<Step> step_;  // null for other graphs
};

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_CELL_H_
