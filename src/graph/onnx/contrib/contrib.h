// The operators of domain com.microsoft, which ONNX Runtime's optimiser and quantiser write, and
// those of ai.onnx.ml that compute with numbers, as operators of ONNX: what batches, packs and
// fuses those then holds for these too.
#ifndef CHAIRLIFT_GRAPH_ONNX_CONTRIB_CONTRIB_H_
#define CHAIRLIFT_GRAPH_ONNX_CONTRIB_CONTRIB_H_

#include "graph/onnx/normalise.h"

namespace chairlift {

inline constexpr char kContribDomain[] = "com.microsoft";
inline constexpr char kMlDomain[] = "ai.onnx.ml";

// Whether NormaliseContrib() is for the node: those of the two domains, and those that ONNX Runtime
// writes into ai.onnx though ONNX does not have them.
bool IsContrib(const OnnxNode& node);

// Makes of the node an operator of ONNX, with others before it. Unimplemented names the operator,
// attribute or input that is not supported.
Status NormaliseContrib(OnnxNode& node, Rewriter& rewriter);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_CONTRIB_CONTRIB_H_
