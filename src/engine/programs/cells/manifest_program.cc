// Loads the cells of a model.yaml: imports, checks and compiles each file, and sets up unfolding as
// in the manifest.
#include <utility>

#include "base/status.h"
#include "engine/programs/cells/cell_program.h"
#include "engine/programs/cells/unfolders/unfolders.h"
#include "engine/programs/user_plugin.h"
#include "graph/batch_axis.h"
#include "graph/onnx/import.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;

StatusOr<std::unique_ptr<Cell>> LoadCell(const CellFile& cell, const fs::path& folder,
                                         const ExecutableOptions& options) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const fs::path file, PathInside(folder, cell.file));
  CHAIRLIFT_ASSIGN_OR_RETURN(ImportedModel imported, ImportOnnxFile(file));
  const BatchAxisReport batching = AnalyseBatchAxis(imported.graph);
  if (!batching.batches) {
    return InvalidArgument("rows of different requests cannot share a batch: {}", batching.why);
  }
  return Cell::Create(cell.name, std::move(imported.graph), options);
}

struct MakeUnfolding {
  StatusOr<Unfolding> operator()(const ChainUnfold& manifest) {
    return Annotated(MakeChain(manifest, cells), "unfold.chain");
  }
  StatusOr<Unfolding> operator()(const Seq2SeqUnfold& manifest) {
    return Annotated(MakeSeq2Seq(manifest, cells), "unfold.seq2seq");
  }
  StatusOr<Unfolding> operator()(const TreeUnfold& manifest) {
    return Annotated(MakeTree(manifest, cells), "unfold.tree");
  }
  StatusOr<Unfolding> operator()(const PluginUnfold& manifest) {
    return Annotated(LoadPlugin(manifest, model_folder, all, own), "unfold.plugin");
  }
  static StatusOr<Unfolding> Annotated(StatusOr<Unfolding> made, const char* where) {
    if (!made.ok()) return Annotate(made.status(), where);
    return made;
  }

  NamedCells& cells;
  const std::vector<std::unique_ptr<Cell>>& all;
  const fs::path model_folder;
  const MakeUnfolders& own;
};

}  // namespace

StatusOr<ManifestProgram> MakeCellProgram(const CellManifest& manifest, const fs::path& folder,
                                          const ExecutableOptions& options, bool allow_plugins,
                                          const MakeUnfolders& own) {
  const auto* plugin = std::get_if<PluginUnfold>(&manifest.unfold);
  if (plugin != nullptr && own == nullptr && !allow_plugins) {
    return InvalidArgument(
        "the model's plugin '{}' is code that would run in this process, and plugins are not "
        "allowed; --allow-plugins allows them",
        plugin->library);
  }
  ManifestProgram made;
  for (const CellFile& cell : manifest.cells) {
    StatusOr<std::unique_ptr<Cell>> loaded = LoadCell(cell, folder, options);
    if (!loaded.ok()) {
      return Annotate(loaded.status(), fmt::format("cell '{}' ({})", cell.name, cell.file));
    }
    made.program.cells.push_back(*std::move(loaded));
  }
  NamedCells cells(made.program.cells);
  CHAIRLIFT_ASSIGN_OR_RETURN(
      Unfolding unfolding,
      std::visit(MakeUnfolding{cells, made.program.cells, FolderOfModel(folder), own},
                 manifest.unfold));
  made.program.unfolder = std::move(unfolding.unfolder);
  made.program.feeds = std::move(unfolding.feeds);
  made.program.users_unfolder = std::holds_alternative<PluginUnfold>(manifest.unfold);
  for (const SymbolicSpec& output : unfolding.outputs) {
    made.program.outputs.push_back(output.name);
  }
  made.inputs = std::move(unfolding.inputs);
  made.outputs = std::move(unfolding.outputs);
  for (size_t i = 0; i < manifest.cells.size(); ++i) {
    CellTypeOptions type;
    type.max_batch_size = manifest.cells[i].max_batch_size;
    type.priority = manifest.cells[i].priority;
    if (!type.priority && !unfolding.phases.empty()) type.priority = unfolding.phases[i];
    made.types.push_back(type);
  }
  return made;
}

}  // namespace chairlift
