// Converts AttributeProto to attribute values, with checks against ONNX's definition of each
// attribute.
#include "graph/onnx/attribute_proto.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "graph/onnx/tensor_proto.h"

namespace chairlift {
namespace {

using onnx::AttributeProto;

enum TypeBit : uint32_t {
  kFloat = 1u << AttributeProto::FLOAT,
  kInt = 1u << AttributeProto::INT,
  kString = 1u << AttributeProto::STRING,
  kTensor = 1u << AttributeProto::TENSOR,
  kGraph = 1u << AttributeProto::GRAPH,
  kFloats = 1u << AttributeProto::FLOATS,
  kInts = 1u << AttributeProto::INTS,
  kStrings = 1u << AttributeProto::STRINGS,
  kSparse = 1u << AttributeProto::SPARSE_TENSOR,
  kType = 1u << AttributeProto::TYPE_PROTO,
  kFlag = kInt | 1u << 31,  // 0 or 1; programs disagree about other numbers
};

struct AttributeRow {
  std::string_view name;
  uint32_t types;  // TypeBit flags
};

// Every attribute of every operator of ai.onnx up to opset 28, by name. A name has the same type in
// all operators and versions, except for the few with two bits.
constexpr AttributeRow kAttributes[] = {{"activation", kString},
                                        {"activation_alpha", kFloats},
                                        {"activation_beta", kFloats},
                                        {"activations", kStrings},
                                        {"align_corners", kFlag},
                                        {"allowzero", kFlag},
                                        {"alpha", kFloat},
                                        {"antialias", kFlag},
                                        {"approximate", kString},
                                        {"auto_pad", kString},
                                        {"axes", kInts},
                                        {"axis", kInt},
                                        {"batch_axis", kInt},
                                        {"batch_dims", kInt},
                                        {"beta", kFloat},
                                        {"bias", kFloat},
                                        {"block_size", kInt},
                                        {"blocksize", kInt},
                                        {"body", kGraph},
                                        {"broadcast", kFlag},
                                        {"case_change_action", kString},
                                        {"ceil_mode", kFlag},
                                        {"center_point_box", kFlag},
                                        {"chunk_size", kInt},
                                        {"clip", kFloat},
                                        {"consumed_inputs", kInts},
                                        {"coordinate_transformation_mode", kString},
                                        {"count_include_pad", kFlag},
                                        {"cubic_coeff_a", kFloat},
                                        {"delimiter", kString},
                                        {"detect_negative", kFlag},
                                        {"detect_positive", kFlag},
                                        {"dilations", kInts},
                                        {"direction", kString},
                                        {"directions", kInts},
                                        {"dtype", kInt},
                                        {"else_branch", kGraph},
                                        {"end", kInt},
                                        {"ends", kInts},
                                        {"epsilon", kFloat},
                                        {"equation", kString},
                                        {"exclude_outside", kFlag},
                                        {"exclusive", kFlag},
                                        {"extrapolation_value", kFloat},
                                        {"fmod", kFlag},
                                        {"gamma", kFloat},
                                        {"group", kInt},
                                        {"height_scale", kFloat},
                                        {"hidden_size", kInt},
                                        {"high", kFloat},
                                        {"ignore_index", kInt},
                                        {"input_forget", kFlag},
                                        {"interleaved", kFlag},
                                        {"inverse", kFlag},
                                        {"is_case_sensitive", kFlag},
                                        {"is_causal", kFlag},
                                        {"is_test", kFlag},
                                        {"k", kInt},
                                        {"keep_aspect_ratio_policy", kString},
                                        {"keepdims", kFlag},
                                        {"kernel_shape", kInts},
                                        {"kv_num_heads", kInt},
                                        {"lambd", kFloat},
                                        {"largest", kFlag},
                                        {"layout", kFlag},
                                        {"left_window_size", kInt},
                                        {"linear_before_reset", kFlag},
                                        {"locale", kString},
                                        {"low", kFloat},
                                        {"max", kFloat},
                                        {"max_gram_length", kInt},
                                        {"max_skip_count", kInt},
                                        {"maxsplit", kInt},
                                        {"mean", kFloat},
                                        {"min", kFloat},
                                        {"min_gram_length", kInt},
                                        {"mode", kString},
                                        {"momentum", kFloat},
                                        {"nearest_mode", kString},
                                        {"new_axis", kFlag},
                                        {"ngram_counts", kInts},
                                        {"ngram_indexes", kInts},
                                        {"noop_with_empty_axes", kFlag},
                                        {"num_groups", kInt},
                                        {"num_heads", kInt},
                                        {"num_outputs", kInt},
                                        {"num_scan_inputs", kInt},
                                        {"offset_group", kInt},
                                        {"onesided", kFlag},
                                        {"output_datatype", kInt},
                                        {"output_dtype", kInt},
                                        {"output_height", kInt},
                                        {"output_padding", kInts},
                                        {"output_sequence", kFlag},
                                        {"output_shape", kInts},
                                        {"output_width", kInt},
                                        {"p", kFloat | kInt},
                                        {"padding_mode", kString},
                                        {"paddings", kInts},
                                        {"pads", kInts},
                                        {"pattern", kString},
                                        {"periodic", kFlag},
                                        {"perm", kInts},
                                        {"pixel_format", kString},
                                        {"pool_int64s", kInts},
                                        {"pool_strings", kStrings},
                                        {"pooled_shape", kInts},
                                        {"precision", kInt},
                                        {"q_num_heads", kInt},
                                        {"qk_matmul_output_mode", kInt},
                                        {"ratio", kFloat},
                                        {"reduction", kString},
                                        {"reverse", kFlag},
                                        {"right_window_size", kInt},
                                        {"rotary_embedding_dim", kInt},
                                        {"round", kInt},
                                        {"round_mode", kString},
                                        {"sample_size", kInt},
                                        {"sampling_ratio", kInt},
                                        {"saturate", kFlag},
                                        {"scale", kFloat},
                                        {"scales", kFloats},
                                        {"scan_input_axes", kInts},
                                        {"scan_input_directions", kInts},
                                        {"scan_output_axes", kInts},
                                        {"scan_output_directions", kInts},
                                        {"seed", kFloat | kInt},
                                        {"select_last_index", kFlag},
                                        {"shape", kInts},
                                        {"size", kInt},
                                        {"softcap", kFloat},
                                        {"softmax_precision", kInt},
                                        {"sorted", kFlag},
                                        {"sparse_value", kSparse},
                                        {"spatial", kFlag},
                                        {"spatial_scale", kFloat},
                                        {"split", kInts},
                                        {"start", kInt},
                                        {"starts", kInts},
                                        {"stash_type", kInt},
                                        {"stopwords", kStrings},
                                        {"storage_order", kFlag},
                                        {"strides", kInts},
                                        {"then_branch", kGraph},
                                        {"time_axis", kInt},
                                        {"to", kInt | kString},
                                        {"training_mode", kFlag},
                                        {"transA", kFlag},
                                        {"transB", kFlag},
                                        {"type", kType},
                                        {"update_rule", kString},
                                        {"upper", kFlag},
                                        {"value", kFloat | kTensor},
                                        {"value_float", kFloat},
                                        {"value_floats", kFloats},
                                        {"value_int", kInt},
                                        {"value_ints", kInts},
                                        {"value_string", kString},
                                        {"value_strings", kStrings},
                                        {"weights", kFloats},
                                        {"width_scale", kFloat}};

bool Before(const AttributeRow& row, std::string_view name) { return row.name < name; }

}  // namespace

AttributeProto::AttributeType AttributeType(const AttributeProto& proto) {
  if (proto.has_type() && proto.type() != AttributeProto::UNDEFINED) return proto.type();
  AttributeProto::AttributeType type = AttributeProto::UNDEFINED;
  int set = 0;
  const auto note = [&](bool present, AttributeProto::AttributeType t) {
    if (!present) return;
    type = t;
    ++set;
  };
  note(proto.has_f(), AttributeProto::FLOAT);
  note(proto.has_i(), AttributeProto::INT);
  note(proto.has_s(), AttributeProto::STRING);
  note(proto.has_t(), AttributeProto::TENSOR);
  note(proto.has_g(), AttributeProto::GRAPH);
  note(proto.floats_size() > 0, AttributeProto::FLOATS);
  note(proto.ints_size() > 0, AttributeProto::INTS);
  note(proto.strings_size() > 0, AttributeProto::STRINGS);
  return set == 1 ? type : AttributeProto::UNDEFINED;
}

Status CheckAttribute(std::string_view name, const AttributeProto& value) {
  const auto* row = std::lower_bound(std::begin(kAttributes), std::end(kAttributes), name, Before);
  if (row == std::end(kAttributes) || row->name != name) {
    return InvalidArgument("attribute '{}' is not one that ONNX has", name);
  }
  const AttributeProto::AttributeType type = AttributeType(value);
  if ((row->types & (1u << type)) == 0) {
    return InvalidArgument("attribute '{}' is of type {}, which ONNX does not give it", name,
                           AttributeProto::AttributeType_Name(type));
  }
  if (row->types == kFlag && value.i() != 0 && value.i() != 1) {
    return InvalidArgument("attribute '{}' is {}; it must be 0 or 1", name, value.i());
  }
  return absl::OkStatus();
}

StatusOr<AttributeValue> DecodeAttribute(const AttributeProto& proto,
                                         const DataFolder& data_folder) {
  const AttributeProto::AttributeType type = AttributeType(proto);
  switch (type) {
    case AttributeProto::FLOAT:
      return AttributeValue(proto.f());
    case AttributeProto::INT:
      return AttributeValue(static_cast<int64_t>(proto.i()));
    case AttributeProto::STRING:
      return AttributeValue(proto.s());
    case AttributeProto::FLOATS:
      return AttributeValue(std::vector<float>(proto.floats().begin(), proto.floats().end()));
    case AttributeProto::INTS:
      return AttributeValue(std::vector<int64_t>(proto.ints().begin(), proto.ints().end()));
    case AttributeProto::STRINGS:
      return AttributeValue(
          std::vector<std::string>(proto.strings().begin(), proto.strings().end()));
    case AttributeProto::TENSOR: {
      auto tensor = DecodeTensor(proto.t(), data_folder);
      if (!tensor.ok()) {
        return Annotate(tensor.status(), fmt::format("attribute '{}'", proto.name()));
      }
      return AttributeValue(*std::move(tensor));
    }
    default:
      return Unimplemented("attribute '{}' of type {} is not supported", proto.name(),
                           AttributeProto::AttributeType_Name(type));
  }
}

}  // namespace chairlift
