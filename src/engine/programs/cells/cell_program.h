// A model as cells: what can run, and how a request unfolds.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_PROGRAM_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_PROGRAM_H_

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "batching/policy.h"
#include "chairlift/unfold.h"
#include "engine/programs/cells/cell_manifest.h"
#include "graph/cells/sliced_model.h"
#include "runtime/cell.h"

namespace chairlift {

// Thread-safe once made.
struct CellProgram {
  std::vector<std::unique_ptr<Cell>> cells;  // in the numbering of AddNode()
  UnfolderFactory unfolder;
  // By cell, for cells whose steps may run one after the other in one task. For each input: the
  // output of the previous step that it reads; −1: it reads none. Empty or absent for other
  // cells.
  std::vector<std::vector<int>> feeds;
  std::span<const int> FeedsOf(int cell) const {
    const auto at = static_cast<size_t>(cell);
    return at < feeds.size() ? std::span<const int>(feeds[at]) : std::span<const int>();
  }
  // How it was cut, without graphs; null: it was not cut.
  std::shared_ptr<const SlicedModel> sliced;
  std::vector<std::string> outputs;  // names of the model's outputs
  bool users_unfolder = false;       // from a plugin: may take any time
};

// The cells of a model that was cut automatically.
StatusOr<CellProgram> MakeCellProgram(SlicedModel model, const ExecutableOptions& options);

// The cells that the user names, and what follows from their manifest.
struct ManifestProgram {
  CellProgram program;
  std::vector<SymbolicSpec> inputs;  // the model's
  std::vector<SymbolicSpec> outputs;
  std::vector<CellTypeOptions> types;  // by cell
};
// `folder` is a version's: the cells' files are there, a plugin in the model's folder above it. If
// `allow_plugins` is false, a manifest with a plugin is refused (kInvalidArgument) without opening
// the library. `own`: ModelConfig::unfold.
StatusOr<ManifestProgram> MakeCellProgram(const CellManifest& manifest,
                                          const std::filesystem::path& folder,
                                          const ExecutableOptions& options, bool allow_plugins,
                                          const MakeUnfolders& own = nullptr);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_PROGRAM_H_
