// The built-in unfolders of models whose cells the user names: each from its part of the manifest.
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
  // What the model takes and gives.
  std::vector<SymbolicSpec> inputs;
  std::vector<SymbolicSpec> outputs;
  // By cell: later ones go first.
  std::vector<int> phases;
  // As CellProgram has them; those of cells beyond are empty.
  std::vector<std::vector<int>> feeds;
};

// InvalidArgument where the manifest names what the cells do not have, leaves an input without a
// source, or has one read what does not fit it.
StatusOr<Unfolding> MakeChain(const ChainUnfold& manifest, NamedCells& cells);
StatusOr<Unfolding> MakeSeq2Seq(const Seq2SeqUnfold& manifest, NamedCells& cells);
StatusOr<Unfolding> MakeTree(const TreeUnfold& manifest, NamedCells& cells);

// `folder` is the model's; the library must lie in it. `own`: in place of the library; may be null.
StatusOr<Unfolding> LoadPlugin(const PluginUnfold& manifest, const std::filesystem::path& folder,
                               std::span<const std::unique_ptr<Cell>> cells,
                               const MakeUnfolders& own);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_CELLS_UNFOLDERS_UNFOLDERS_H_
