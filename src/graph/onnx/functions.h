// Functions that a model defines. Include it only in .cc files, because it includes protobuf.
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
  // Attributes with default values, which apply if a call does not give them.
  std::vector<onnx::AttributeProto> defaults = {};
};

// Refers to the model that it was made from. Immutable.
class Functions {
 public:
  // InvalidArgument if two functions have the same domain, name and overload.
  static StatusOr<Functions> Of(const onnx::ModelProto& model);
  // The function that the node calls; null if it is an operator. A function takes precedence over
  // an operator of the same name, because the file defines the meaning of that name.
  const Function* Find(const onnx::NodeProto& node) const;

 private:
  using Key = std::tuple<std::string, std::string, std::string>;  // domain, name, overload
  std::map<Key, Function> functions_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_FUNCTIONS_H_
