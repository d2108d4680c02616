// The built-in unfolders for models with user-defined cells, each made from its part of the
// manifest.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_CELLS_UNFOLDERS_UNFOLDERS_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_CELLS_UNFOLDERS_UNFOLDERS_H_

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "chairlift/unfold.h"
#include "engine/programs/cells/cell_manifest.h"
#include "engine/programs/cells/unfolders/named_cells.h"

namespace chairlift {

struct Unfolding {
  UnfolderFactory unfolder;
  // The model's inputs and outputs.
  std::vector<SymbolicSpec> inputs;
  std::vector<SymbolicSpec> outputs;
  // By cell: higher phases have priority.
  std::vector<int> phases;
  // As in CellProgram; empty for further cells.
  std::vector<std::vector<int>> feeds;
};

// InvalidArgument if the manifest names something that the cells do not have, leaves an input
// without a source, or connects values that do not fit.
StatusOr<Unfolding> MakeChain(const ChainUnfold& manifest, NamedCells& cells);
StatusOr<Unfolding> MakeSeq2Seq(const Seq2SeqUnfold& manifest, NamedCells& cells);
StatusOr<Unfolding> MakeTree(const TreeUnfold& manifest, NamedCells& cells);

// `folder` is the model's; the library must be in it. `own`: replaces the library; may be null.
StatusOr<Unfolding> LoadPlugin(const PluginUnfold& manifest, const std::filesystem::path& folder,
                               std::span<const std::unique_ptr<Cell>> cells,
                               const MakeUnfolders& own);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_CELLS_UNFOLDERS_UNFOLDERS_H_
