// Dynamic quantisation of models that are packed: each request keeps the scale that it has alone.
#ifndef CHAIRLIFT_GRAPH_RAGGED_DYNAMIC_SCALES_H_
#define CHAIRLIFT_GRAPH_RAGGED_DYNAMIC_SCALES_H_

#include <optional>
#include <string_view>

#include "graph/ir.h"
#include "graph/ragged/packer.h"

namespace chairlift::ragged {

// Replaces each DynamicQuantizeLinear of [..., k] by the operator `by`, RaggedQuantize or
// RowQuantize. This is done only if no other value changes when all rows have one scale. Scale and
// zero point are then [..., 1], and so are their products with constants. Returns the number of
// replaced nodes.
//
// A node is kept if its scale or zero point is read by anything but arithmetic that ends in the
// quantised value's rows. If `rows` is given, a node is also kept unless dimension 0 of its input
// is `rows`.
int SpreadDynamicScales(Graph& graph, std::string_view by, const std::optional<Dim>& rows = {});

// RaggedQuantize with a segment for each request. A request's scale is computed over all of its
// rows, including hidden tokens, as if the request ran alone.
Status PackDynamicQuantize(Context& context);

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_DYNAMIC_SCALES_H_
