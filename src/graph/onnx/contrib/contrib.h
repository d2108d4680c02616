// Rewrites operators of domain com.microsoft, which ONNX Runtime's optimizer and quantizer write,
// and numeric operators of ai.onnx.ml as ONNX operators. Everything that batches, packs and fuses
// those then applies here too.
#ifndef CHAIRLIFT_GRAPH_ONNX_CONTRIB_CONTRIB_H_
#define CHAIRLIFT_GRAPH_ONNX_CONTRIB_CONTRIB_H_

#include <string>
#include <string_view>
#include <vector>

#include "graph/onnx/normalise.h"

namespace chairlift {

inline constexpr char kContribDomain[] = "com.microsoft";
inline constexpr char kMlDomain[] = "ai.onnx.ml";

// Whether NormaliseContrib() handles the node: operators of the two domains, and those that ONNX
// Runtime writes into ai.onnx although ONNX does not have them.
bool IsContrib(const OnnxNode& node);

// Rewrites the node as an ONNX operator, with others before it. Unimplemented names the unsupported
// operator, attribute or input.
Status NormaliseContrib(OnnxNode& node, Rewriter& rewriter);

// The operators of a domain that NormaliseContrib() knows, for the reference.
std::vector<std::string> ContribOperators(std::string_view domain);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_CONTRIB_CONTRIB_H_
