// The functions that a model defines for itself. Only for .cc files: it brings in protobuf.
#ifndef CHAIRLIFT_GRAPH_ONNX_FUNCTIONS_H_
#define CHAIRLIFT_GRAPH_ONNX_FUNCTIONS_H_

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "onnx/onnx_pb.h"

namespace chairlift {

// "ai.onnx" is the long name of the default domain.
inline std::string CanonicalDomain(const std::string& domain) {
  return domain == "ai.onnx" ? "" : domain;
}

struct Function {
  const onnx::FunctionProto* proto = nullptr;
  // The attributes that have a default value, which holds where a call does not give them.
  std::vector<onnx::AttributeProto> defaults = {};
};

// Refers to the model it is made of. Immutable.
class Functions {
 public:
  // InvalidArgument where two functions have one domain, name and overload.
  static StatusOr<Functions> Of(const onnx::ModelProto& model);
  // The function that the node calls; null where it is an operator. A function stands before an
  // operator of the same name: its definition is what the file says that the name means.
  const Function* Find(const onnx::NodeProto& node) const;

 private:
  using Key = std::tuple<std::string, std::string, std::string>;  // domain, name, overload
  std::map<Key, Function> functions_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_FUNCTIONS_H_
