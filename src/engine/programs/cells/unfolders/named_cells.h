// Resolves the names in a manifest: cells, their inputs and outputs, and the model's.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_CELLS_UNFOLDERS_NAMED_CELLS_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_CELLS_UNFOLDERS_NAMED_CELLS_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "chairlift/unfold.h"
#include "runtime/cell.h"
#include "runtime/executable.h"

namespace chairlift {

// A model's cells while its unfolder is being made. Every error names the cell and what is missing.
class NamedCells {
 public:
  explicit NamedCells(std::span<const std::unique_ptr<Cell>> cells);

  int size() const { return static_cast<int>(cells_.size()); }
  // A cell that is used. A cell may be used only once, because it is one type.
  StatusOr<int> Take(const std::string& name);
  // Each input can be fed once.
  StatusOr<int> Feed(int cell, const std::string& input);
  StatusOr<int> Output(int cell, const std::string& output) const;

  const Cell& cell(int cell) const { return *cells_[cell]; }
  const Cell::Port& input(int cell, int input) const { return cells_[cell]->inputs()[input]; }
  const Cell::Port& output(int cell, int output) const { return cells_[cell]->outputs()[output]; }
  // The shape of a row, which must be all numbers.
  StatusOr<Shape> Row(int cell, const Cell::Port& port) const;
  // Checks that rows of an output can be read as an input.
  Status CheckFits(int from, const Cell::Port& output, int to, const Cell::Port& input) const;

  // Checks that every cell is used and every input is fed.
  Status CheckComplete() const;

 private:
  std::span<const std::unique_ptr<Cell>> cells_;
  std::vector<bool> taken_;
  std::vector<std::vector<bool>> fed_;  // by cell and input
};

// The inputs or the outputs of the model, as an unfolder declares them: each name once.
class ModelSide {
 public:
  explicit ModelSide(const char* what) : what_(what) {}
  // Returns its index.
  StatusOr<int> Add(const std::string& name, DType dtype, SymbolicShape shape);
  std::vector<SymbolicSpec> TakeSpecs() { return std::move(specs_); }
  int size() const { return static_cast<int>(specs_.size()); }

 private:
  const char* what_;
  std::vector<SymbolicSpec> specs_;
};

// [dims…, row…].
SymbolicShape ShapeOf(std::vector<Dim> dims, const Shape& row);

// A tensor for an output whose shape depends on the request; ResourceExhausted if it is too large.
StatusOr<int> AddAnswer(int output, DType dtype, Shape rows, const Shape& row,
                        const AnswerAxes& axes, CellGraphBuilder& graph);

// Bytes of one row.
int64_t RowBytes(DType dtype, const Shape& row);

Tensor ZeroRow(DType dtype, const Shape& row);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_CELLS_UNFOLDERS_NAMED_CELLS_H_
