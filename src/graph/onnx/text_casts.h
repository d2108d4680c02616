// Cast and CastLike from and to strings, which are operators of our own.
#ifndef CHAIRLIFT_GRAPH_ONNX_TEXT_CASTS_H_
#define CHAIRLIFT_GRAPH_ONNX_TEXT_CASTS_H_

#include "graph/onnx/normalise.h"

namespace chairlift {

// Whether the node casts from or to strings. Its form is the newest.
bool IsTextCast(const OnnxNode& node, const Rewriter& rewriter);

// Rewrites such a node. Unimplemented names a type that strings cannot be cast from or to.
Status NormaliseTextCast(OnnxNode& node, Rewriter& rewriter);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_TEXT_CASTS_H_
