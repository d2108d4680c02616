// A model as cells: what can run, and how a request unfolds into it.
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
  std::vector<std::unique_ptr<Cell>> cells;  // what AddNode() numbers
  UnfolderFactory unfolder;
  // By cell, for those whose steps may run one after the other in one task: for each input the
  // output of the step before that it reads, or −1 where it reads none. Empty, or absent, for
  // others.
  std::vector<std::vector<int>> feeds;
  std::span<const int> FeedsOf(int cell) const {
    const auto at = static_cast<size_t>(cell);
    return at < feeds.size() ? std::span<const int>(feeds[at]) : std::span<const int>();
  }
  std::shared_ptr<const SlicedModel> sliced;  // how it was cut, without graphs; null: it was not
  std::vector<std::string> outputs;           // the model's, by name
  bool users_unfolder = false;                // a plugin's: may take any time
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
// `folder` is a version's: the cells' files lie there, a plugin in the model's folder above it.
// A manifest with a plugin is refused (kInvalidArgument) where `allow_plugins` is false: nothing
// of the library is opened. `own`: ModelConfig::unfold.
StatusOr<ManifestProgram> MakeCellProgram(const CellManifest& manifest,
                                          const std::filesystem::path& folder,
                                          const ExecutableOptions& options, bool allow_plugins,
                                          const MakeUnfolders& own = nullptr);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_PROGRAM_H_
