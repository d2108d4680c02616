// What `inspect` shows for a model made of user-defined cells: a table, and a diagram.
#ifndef CHAIRLIFT_CLI_MANIFEST_VIEW_H_
#define CHAIRLIFT_CLI_MANIFEST_VIEW_H_

#include <memory>
#include <span>
#include <string>

#include "cli/cells_diagram.h"
#include "engine/programs/cells/cell_manifest.h"
#include "runtime/cell.h"

namespace chairlift {

// "chain", "seq2seq", "tree" or "plugin libmine.so".
std::string UnfolderName(const CellManifest& manifest);

// `cells` are the manifest's, in its order.
std::string ManifestTable(const CellManifest& manifest, std::span<Cell* const> cells);

// The connections. Edges are labelled with the names of the cells' inputs and outputs.
CellsDiagram DiagramOf(const CellManifest& manifest);

// The diagram's edges as text, one per line: "tokens → step: token".
std::string Wiring(const CellsDiagram& diagram);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_MANIFEST_VIEW_H_
