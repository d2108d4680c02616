// Functions that a model defines.
#include "graph/onnx/functions.h"

#include <utility>

namespace chairlift {
namespace {

// Fields that may be newer than the protobuf classes: there they are unknown fields.
constexpr int kOverloadOfNode = 8, kOverloadOfFunction = 13, kDefaultsOfFunction = 11;

template <typename Proto>
std::string OverloadOf(const Proto& proto, int field) {
  if constexpr (requires { proto.overload(); }) {
    return proto.overload();
  } else {
    std::string overload;
    const auto& unknown = proto.unknown_fields();
    for (int i = 0; i < unknown.field_count(); ++i) {
      const auto& each = unknown.field(i);
      if (each.number() != field ||
          each.type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED) {
        continue;
      }
      overload = each.length_delimited();  // the last one counts
    }
    return overload;
  }
}

template <typename Proto>
StatusOr<std::vector<onnx::AttributeProto>> DefaultsOf(const Proto& proto) {
  std::vector<onnx::AttributeProto> defaults;
  if constexpr (requires { proto.attribute_proto(); }) {
    defaults.assign(proto.attribute_proto().begin(), proto.attribute_proto().end());
  } else {
    const auto& unknown = proto.unknown_fields();
    for (int i = 0; i < unknown.field_count(); ++i) {
      const auto& each = unknown.field(i);
      if (each.number() != kDefaultsOfFunction) continue;
      if (each.type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED ||
          !defaults.emplace_back().ParseFromString(each.length_delimited())) {
        return InvalidArgument("function {}: the default of an attribute is malformed",
                               proto.name());
      }
    }
  }
  for (const onnx::AttributeProto& attribute : defaults) {
    if (attribute.ref_attr_name().empty()) continue;
    return InvalidArgument("function {}: the default of attribute '{}' refers to another attribute",
                           proto.name(), attribute.name());
  }
  return defaults;
}

}  // namespace

StatusOr<Functions> Functions::Of(const onnx::ModelProto& model) {
  Functions out;
  for (const onnx::FunctionProto& proto : model.functions()) {
    Function function{&proto};
    CHAIRLIFT_ASSIGN_OR_RETURN(function.defaults, DefaultsOf(proto));
    const std::string overload = OverloadOf(proto, kOverloadOfFunction);
    if (!out.functions_
             .emplace(Key(CanonicalDomain(proto.domain()), proto.name(), overload),
                      std::move(function))
             .second) {
      return InvalidArgument("function {} of domain '{}'{} is defined a second time", proto.name(),
                             proto.domain(),
                             overload.empty() ? "" : fmt::format(", overload '{}',", overload));
    }
  }
  return out;
}

const Function* Functions::Find(const onnx::NodeProto& node) const {
  if (functions_.empty()) return nullptr;
  const auto it = functions_.find(
      Key(CanonicalDomain(node.domain()), node.op_type(), OverloadOf(node, kOverloadOfNode)));
  return it == functions_.end() ? nullptr : &it->second;
}

}  // namespace chairlift
