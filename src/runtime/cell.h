// A runnable cell: a graph over rows at arbitrary addresses of its device's memory.
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
  // An input or output: the type and shape of one row.
  struct Port {
    std::string name;
    DType dtype = DType::kUndefined;
    SymbolicShape row;
    int64_t row_bytes = -1;  // −1 if the row has dimensions that vary
  };
  // Rows to run on: rows[r] is the address of row r in the device's memory, each of shape `row`.
  struct Rows {
    Shape row;
    const std::byte* const* rows = nullptr;
  };

  // Every input and output of the graph must have its rows along dimension 0.
  static StatusOr<std::unique_ptr<Cell>> Create(std::string name, Graph graph,
                                                const ExecutableOptions& options);

  ~Cell();

  const std::string& name() const { return name_; }
  const std::vector<Port>& inputs() const { return inputs_; }
  const std::vector<Port>& outputs() const { return outputs_; }
  // Whether an input has rows with varying dimensions.
  bool open() const { return open_; }
  Executable& executable() { return *executable_; }

  // Returns outputs as new tensors [rows, row…]. Rows at consecutive addresses are read in place.
  // Others are gathered into `staging` first; on the CPU, directly side by side if the graph joins
  // them. A recurrent step on the CPU reads its rows at any address. Both arenas belong to one
  // stream; it, `stop` and `timer` are as in Executable::Run().
  StatusOr<std::vector<Tensor>> Run(int64_t rows, std::span<const Rows> inputs, Team& team,
                                    int worker, Arena& arena, Arena& staging,
                                    const StopFlag* stop = nullptr, NodeTimer* timer = nullptr);

  // Whether RunInto() is available: it computes what Run() does, but writes to the first rows of
  // existing tensors.
  bool runs_into() const { return step_ != nullptr; }
  // `outputs`: as Run() returns them, with at least as many rows. Nothing else may read them
  // meanwhile.
  Status RunInto(int64_t rows, std::span<const Rows> inputs, std::span<const Tensor> outputs,
                 Team& team, int worker, Arena& arena, NodeTimer* timer = nullptr) const;
  // Uninitialised outputs of `rows` rows. Requires runs_into().
  std::vector<Tensor> NewOutputs(int64_t rows) const;

 private:
  // The graph is a single float32 chairlift::RecurrentStep, on the CPU.
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
  // By input of the executable: the inputs of the cell that it holds side by side (JoinRows).
  std::vector<std::vector<int>> sources_;
  std::vector<Port> outputs_;
  bool open_ = false;
  std::unique_ptr<Step> step_;  // null for other graphs
};

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_CELL_H_
