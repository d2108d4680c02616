#include "engine/programs/cells/unfolders/sliced_program.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/status.h"
#include "engine/programs/cells/cell_program.h"
#include "engine/programs/cells/unfolders/sliced_layout.h"

namespace chairlift {
namespace {

// Tokens per node of a token cell. Many if all tokens are known at once, up to a limit that keeps
// its outputs small. Few if they come one by one from a recurrence, so that readers need not wait
// for the last.
constexpr int64_t kKnownChunk = 256;
constexpr int64_t kLateChunk = 16;

// The row of a value if all of its dimensions are known.
std::optional<Shape> KnownRow(const SymbolicShape& row) {
  if (!row.has_rank()) return std::nullopt;
  Shape shape;
  for (const Dim& dim : row.dims()) {
    if (!dim.known()) return std::nullopt;
    shape.Append(dim.value());
  }
  return shape;
}

bool DefinesLength(const SlicedModel& model, int id) {
  return std::any_of(model.lengths.begin(), model.lengths.end(),
                     [id](const SequenceLength& length) { return length.value == id; });
}

Status Check(const SlicedModel& model) {
  const auto is_input = [&](int id) {
    return std::find(model.inputs.begin(), model.inputs.end(), id) != model.inputs.end();
  };
  for (const SlicedOutput& output : model.outputs) {
    CHAIRLIFT_RETURN_IF_ERROR(CheckDeliverable(output, model.values[output.value].name));
  }
  for (const SlicedCell& cell : model.cells) {
    if (cell.tokens_that_count >= 0 && !is_input(cell.tokens_that_count)) {
      return Unimplemented("the sequence lengths of '{}' are computed by the model", cell.name);
    }
    if (cell.kind == SlicedCell::Kind::kLanes) {
      for (const SlicedOutput& output : model.outputs) {
        const auto& given = cell.outputs;
        if (std::find(given.begin(), given.end(), output.value) == given.end()) continue;
        CHAIRLIFT_RETURN_IF_ERROR(CheckWholeDeliverable(output, model.values[output.value].name));
      }
      continue;
    }
    for (int id : cell.outputs) {
      if (id >= 0 && !KnownRow(model.values[id].row)) {
        return Unimplemented("'{}', one time step of '{}', has rows of shape {}",
                             model.values[id].name, cell.name, model.values[id].row.ToString());
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<CellProgram> MakeCellProgram(SlicedModel model, const ExecutableOptions& options) {
  CHAIRLIFT_RETURN_IF_ERROR(Check(model));
  auto shared = std::make_shared<SlicedProgram>();
  CellProgram program;
  for (const SlicedOutput& output : model.outputs) {
    program.outputs.push_back(model.values[output.value].name);
  }
  // Values produced step by step by a recurrence.
  std::vector<bool> late(model.values.size());
  std::vector<bool> by_steps(model.values.size());
  shared->buffered.resize(model.values.size());
  shared->whole.resize(model.values.size());
  for (const CellValue& value : model.values) shared->row.push_back(KnownRow(value.row));
  for (SlicedCell& cell : model.cells) {
    CHAIRLIFT_ASSIGN_OR_RETURN(std::unique_ptr<Cell> made,
                               Cell::Create(cell.name, std::move(*cell.graph), options));
    cell.graph = nullptr;
    const bool lanes = cell.kind == SlicedCell::Kind::kLanes;
    bool waits = cell.kind == SlicedCell::Kind::kRecurrent;
    for (int id : cell.inputs) {
      if (id < 0) continue;
      waits |= late[id];
      if (model.values[id].length < 0) continue;
      if (by_steps[id] || (lanes && late[id])) shared->buffered[id] = true;
      if (lanes) shared->whole[id] = true;
    }
    for (size_t o = 0; o < cell.outputs.size(); ++o) {
      const int id = cell.outputs[o];
      if (id < 0 || model.values[id].length < 0) continue;
      late[id] = waits && !lanes;
      by_steps[id] = cell.kind == SlicedCell::Kind::kRecurrent;
    }
    bool computed = false;
    for (int id : cell.outputs) {
      computed |= lanes && (!shared->row[id] || DefinesLength(model, id));
    }
    std::vector<int>& feeds = program.feeds.emplace_back();
    if (cell.kind == SlicedCell::Kind::kRecurrent && !made->open()) {
      feeds.assign(cell.inputs.size(), -1);
      for (const CellState& state : cell.states) {
        feeds[static_cast<size_t>(state.input)] = state.output;
      }
    }
    shared->computed_shapes.push_back(computed);
    shared->open.push_back(made->open());
    shared->chunk.push_back(waits ? kLateChunk : kKnownChunk);
    program.cells.push_back(std::move(made));
  }
  shared->model = std::move(model);
  program.sliced = std::shared_ptr<const SlicedModel>(shared, &shared->model);
  program.unfolder = [shared = std::shared_ptr<const SlicedProgram>(std::move(shared))] {
    return MakeSlicedUnfolder(shared);
  };
  return program;
}

}  // namespace chairlift
