// Dynamic quantisation of models that are packed: each request keeps the scale that it has alone.
#ifndef CHAIRLIFT_GRAPH_RAGGED_DYNAMIC_SCALES_H_
#define CHAIRLIFT_GRAPH_RAGGED_DYNAMIC_SCALES_H_

#include <optional>
#include <string_view>

#include "graph/ir.h"
#include "graph/ragged/packer.h"

namespace chairlift::ragged {

// Makes each DynamicQuantizeLinear of [..., k] the operator `by`, RaggedQuantize or RowQuantize,
// where this changes no other value if all rows have one scale. Scale and zero point are then [...,
// 1], and so are their products with constants. Returns how many there are.
//
// Nodes are left if the scale or the zero point is read other than by arithmetic that ends in the
// quantised value's rows. If `rows` is given, they are left too if dimension 0 may be another.
int SpreadDynamicScales(Graph& graph, std::string_view by, const std::optional<Dim>& rows = {});

// RaggedQuantize with a segment for each request. A request's scale spans all of its rows, and
// their hidden tokens too, as it does alone.
Status PackDynamicQuantize(Context& context);

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_DYNAMIC_SCALES_H_
