// The table of contributed operators: the supported forms of each, and its rule.
#include "graph/onnx/contrib/contrib.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/closest.h"
#include "graph/onnx/contrib/rules.h"

namespace chairlift {
namespace {

enum class Kind : uint8_t { kInt, kFlag, kFloat, kString, kInts, kFloats, kStrings, kTensor };

struct AttributeSpec {
  std::string_view name;
  Kind kind;
};

struct ContribOperator {
  std::string_view op_type;
  int min_inputs, max_inputs;
  std::span<const AttributeSpec> attributes;
  contrib::Rule* rule;
};

constexpr int kAnyNumber = 1 << 20;

constexpr AttributeSpec kNone[] = {{"", Kind::kInt}};
constexpr AttributeSpec kAxis[] = {{"axis", Kind::kInt}};
constexpr AttributeSpec kEpsilon[] = {{"epsilon", Kind::kFloat}};
constexpr AttributeSpec kAlpha[] = {{"alpha", Kind::kFloat}};
constexpr AttributeSpec kChannelsLast[] = {{"channels_last", Kind::kFlag}};
constexpr AttributeSpec kAttention[] = {
    {"do_rotary", Kind::kFlag},        {"mask_filter_value", Kind::kFloat},
    {"num_heads", Kind::kInt},         {"past_present_share_buffer", Kind::kFlag},
    {"qkv_hidden_sizes", Kind::kInts}, {"rotary_embedding_dim", Kind::kInt},
    {"scale", Kind::kFloat},           {"unidirectional", Kind::kInt}};
constexpr AttributeSpec kMultiHeadAttention[] = {{"mask_filter_value", Kind::kFloat},
                                                 {"num_heads", Kind::kInt},
                                                 {"scale", Kind::kFloat},
                                                 {"unidirectional", Kind::kInt}};
constexpr AttributeSpec kEmbedding[] = {{"epsilon", Kind::kFloat}, {"mask_index_type", Kind::kInt}};
constexpr AttributeSpec kFusedConv[] = {
    {"activation", Kind::kString}, {"activation_params", Kind::kFloats},
    {"auto_pad", Kind::kString},   {"dilations", Kind::kInts},
    {"group", Kind::kInt},         {"kernel_shape", Kind::kInts},
    {"pads", Kind::kInts},         {"strides", Kind::kInts}};
constexpr AttributeSpec kFusedGemm[] = {
    {"activation", Kind::kString},     {"activation_alpha", Kind::kFloat},
    {"activation_beta", Kind::kFloat}, {"activation_gamma", Kind::kFloat},
    {"alpha", Kind::kFloat},           {"beta", Kind::kFloat},
    {"transA", Kind::kFlag},           {"transB", Kind::kFlag}};
constexpr AttributeSpec kFusedMatMul[] = {{"alpha", Kind::kFloat},
                                          {"transA", Kind::kFlag},
                                          {"transB", Kind::kFlag},
                                          {"transBatchA", Kind::kFlag},
                                          {"transBatchB", Kind::kFlag}};
constexpr AttributeSpec kMatMulNBits[] = {
    {"K", Kind::kInt},    {"N", Kind::kInt},          {"accuracy_level", Kind::kInt},
    {"bits", Kind::kInt}, {"block_size", Kind::kInt}, {"weight_prepacked", Kind::kInt}};
constexpr AttributeSpec kGatherBlocks[] = {{"bits", Kind::kInt},
                                           {"block_size", Kind::kInt},
                                           {"gather_axis", Kind::kInt},
                                           {"quantize_axis", Kind::kInt}};
constexpr AttributeSpec kFusedMatMulActivation[] = {{"activation", Kind::kString},
                                                    {"activation_alpha", Kind::kFloat},
                                                    {"activation_axis", Kind::kInt},
                                                    {"activation_beta", Kind::kFloat},
                                                    {"activation_gamma", Kind::kFloat},
                                                    {"alpha", Kind::kFloat},
                                                    {"transA", Kind::kFlag},
                                                    {"transB", Kind::kFlag},
                                                    {"transBatchA", Kind::kFlag},
                                                    {"transBatchB", Kind::kFlag}};
constexpr AttributeSpec kLstm[] = {
    {"activation_alpha", Kind::kFloats}, {"activation_beta", Kind::kFloats},
    {"activations", Kind::kStrings},     {"clip", Kind::kFloat},
    {"direction", Kind::kString},        {"hidden_size", Kind::kInt},
    {"input_forget", Kind::kFlag}};
constexpr AttributeSpec kLayerNorm[] = {
    {"axis", Kind::kInt}, {"epsilon", Kind::kFloat}, {"stash_type", Kind::kInt}};
constexpr AttributeSpec kGroupQueryAttention[] = {
    {"do_rotary", Kind::kFlag}, {"kv_num_heads", Kind::kInt},   {"local_window_size", Kind::kInt},
    {"num_heads", Kind::kInt},  {"qk_output", Kind::kInt},      {"rotary_interleaved", Kind::kFlag},
    {"scale", Kind::kFloat},    {"smooth_softmax", Kind::kInt}, {"softcap", Kind::kFloat}};
constexpr AttributeSpec kRotaryEmbedding[] = {{"interleaved", Kind::kFlag},
                                              {"is_packed_batching", Kind::kFlag},
                                              {"num_heads", Kind::kInt},
                                              {"rotary_embedding_dim", Kind::kInt},
                                              {"scale", Kind::kFloat}};
constexpr AttributeSpec kPool[] = {
    {"auto_pad", Kind::kString},    {"ceil_mode", Kind::kFlag},
    {"channels_last", Kind::kFlag}, {"count_include_pad", Kind::kFlag},
    {"kernel_shape", Kind::kInts},  {"pads", Kind::kInts},
    {"strides", Kind::kInts}};
constexpr AttributeSpec kConv[] = {{"auto_pad", Kind::kString}, {"dilations", Kind::kInts},
                                   {"group", Kind::kInt},       {"kernel_shape", Kind::kInts},
                                   {"pads", Kind::kInts},       {"strides", Kind::kInts}};
constexpr AttributeSpec kGroupNorm[] = {{"activation", Kind::kInt},
                                        {"channels_last", Kind::kFlag},
                                        {"epsilon", Kind::kFloat},
                                        {"groups", Kind::kInt}};
constexpr AttributeSpec kMaxPool[] = {{"auto_pad", Kind::kString}, {"ceil_mode", Kind::kFlag},
                                      {"dilations", Kind::kInts},  {"kernel_shape", Kind::kInts},
                                      {"pads", Kind::kInts},       {"strides", Kind::kInts}};
constexpr AttributeSpec kQConv[] = {{"auto_pad", Kind::kString},   {"channels_last", Kind::kFlag},
                                    {"dilations", Kind::kInts},    {"group", Kind::kInt},
                                    {"kernel_shape", Kind::kInts}, {"pads", Kind::kInts},
                                    {"strides", Kind::kInts}};
constexpr AttributeSpec kMoE[] = {{"activation_alpha", Kind::kFloat},
                                  {"activation_beta", Kind::kFloat},
                                  {"activation_type", Kind::kString},
                                  {"k", Kind::kInt},
                                  {"normalize_routing_weights", Kind::kFlag},
                                  {"swiglu_fusion", Kind::kInt},
                                  {"swiglu_limit", Kind::kFloat},
                                  {"use_sparse_mixer", Kind::kFlag}};
constexpr AttributeSpec kQMoE[] = {{"accuracy_level", Kind::kInt},
                                   {"activation_alpha", Kind::kFloat},
                                   {"activation_beta", Kind::kFloat},
                                   {"activation_type", Kind::kString},
                                   {"block_size", Kind::kInt},
                                   {"expert_weight_bits", Kind::kInt},
                                   {"fc1_expert_weight_bits", Kind::kInt},
                                   {"fc2_expert_weight_bits", Kind::kInt},
                                   {"fc3_expert_weight_bits", Kind::kInt},
                                   {"k", Kind::kInt},
                                   {"normalize_routing_weights", Kind::kFlag},
                                   {"quant_type", Kind::kString},
                                   {"swiglu_fusion", Kind::kInt},
                                   {"swiglu_limit", Kind::kFloat},
                                   {"use_sparse_mixer", Kind::kFlag},
                                   {"weights_prepacked", Kind::kInt}};
constexpr AttributeSpec kTokenizer[] = {{"mark", Kind::kFlag},
                                        {"mincharnum", Kind::kInt},
                                        {"pad_value", Kind::kString},
                                        {"separators", Kind::kStrings},
                                        {"tokenexp", Kind::kString}};
constexpr AttributeSpec kReduce[] = {{"axes", Kind::kInts}, {"keepdims", Kind::kFlag}};
constexpr AttributeSpec kQGemm[] = {
    {"alpha", Kind::kFloat}, {"transA", Kind::kFlag}, {"transB", Kind::kFlag}};
constexpr AttributeSpec kQSoftmax[] = {{"axis", Kind::kInt}, {"opset", Kind::kInt}};

constexpr AttributeSpec kFeatures[] = {{"inputdimensions", Kind::kInts}};
constexpr AttributeSpec kImputer[] = {{"imputed_value_floats", Kind::kFloats},
                                      {"imputed_value_int64s", Kind::kInts},
                                      {"replaced_value_float", Kind::kFloat},
                                      {"replaced_value_int64", Kind::kInt}};
constexpr AttributeSpec kLinearClassifier[] = {
    {"classlabels_ints", Kind::kInts}, {"classlabels_strings", Kind::kStrings},
    {"coefficients", Kind::kFloats},   {"intercepts", Kind::kFloats},
    {"multi_class", Kind::kInt},       {"post_transform", Kind::kString}};
constexpr AttributeSpec kLinearRegressor[] = {{"coefficients", Kind::kFloats},
                                              {"intercepts", Kind::kFloats},
                                              {"post_transform", Kind::kString},
                                              {"targets", Kind::kInt}};
constexpr AttributeSpec kNorm[] = {{"norm", Kind::kString}};
constexpr AttributeSpec kScaler[] = {{"offset", Kind::kFloats}, {"scale", Kind::kFloats}};
constexpr AttributeSpec kTreeClassifier[] = {{"base_values", Kind::kFloats},
                                             {"base_values_as_tensor", Kind::kTensor},
                                             {"class_ids", Kind::kInts},
                                             {"class_nodeids", Kind::kInts},
                                             {"class_treeids", Kind::kInts},
                                             {"class_weights", Kind::kFloats},
                                             {"class_weights_as_tensor", Kind::kTensor},
                                             {"classlabels_int64s", Kind::kInts},
                                             {"classlabels_strings", Kind::kStrings},
                                             {"nodes_falsenodeids", Kind::kInts},
                                             {"nodes_featureids", Kind::kInts},
                                             {"nodes_hitrates", Kind::kFloats},
                                             {"nodes_hitrates_as_tensor", Kind::kTensor},
                                             {"nodes_missing_value_tracks_true", Kind::kInts},
                                             {"nodes_modes", Kind::kStrings},
                                             {"nodes_nodeids", Kind::kInts},
                                             {"nodes_treeids", Kind::kInts},
                                             {"nodes_truenodeids", Kind::kInts},
                                             {"nodes_values", Kind::kFloats},
                                             {"nodes_values_as_tensor", Kind::kTensor},
                                             {"post_transform", Kind::kString}};
constexpr AttributeSpec kTreeRegressor[] = {{"aggregate_function", Kind::kString},
                                            {"base_values", Kind::kFloats},
                                            {"base_values_as_tensor", Kind::kTensor},
                                            {"n_targets", Kind::kInt},
                                            {"nodes_falsenodeids", Kind::kInts},
                                            {"nodes_featureids", Kind::kInts},
                                            {"nodes_hitrates", Kind::kFloats},
                                            {"nodes_hitrates_as_tensor", Kind::kTensor},
                                            {"nodes_missing_value_tracks_true", Kind::kInts},
                                            {"nodes_modes", Kind::kStrings},
                                            {"nodes_nodeids", Kind::kInts},
                                            {"nodes_treeids", Kind::kInts},
                                            {"nodes_truenodeids", Kind::kInts},
                                            {"nodes_values", Kind::kFloats},
                                            {"nodes_values_as_tensor", Kind::kTensor},
                                            {"post_transform", Kind::kString},
                                            {"target_ids", Kind::kInts},
                                            {"target_nodeids", Kind::kInts},
                                            {"target_treeids", Kind::kInts},
                                            {"target_weights", Kind::kFloats},
                                            {"target_weights_as_tensor", Kind::kTensor}};
constexpr AttributeSpec kTreeEnsemble[] = {
    {"aggregate_function", Kind::kInt},  {"leaf_targetids", Kind::kInts},
    {"leaf_weights", Kind::kTensor},     {"membership_values", Kind::kTensor},
    {"n_targets", Kind::kInt},           {"nodes_falseleafs", Kind::kInts},
    {"nodes_falsenodeids", Kind::kInts}, {"nodes_featureids", Kind::kInts},
    {"nodes_hitrates", Kind::kTensor},   {"nodes_missing_value_tracks_true", Kind::kInts},
    {"nodes_modes", Kind::kTensor},      {"nodes_splits", Kind::kTensor},
    {"nodes_trueleafs", Kind::kInts},    {"nodes_truenodeids", Kind::kInts},
    {"post_transform", Kind::kInt},      {"tree_roots", Kind::kInts}};
constexpr AttributeSpec kSvmClassifier[] = {{"classlabels_ints", Kind::kInts},
                                            {"classlabels_strings", Kind::kStrings},
                                            {"coefficients", Kind::kFloats},
                                            {"kernel_params", Kind::kFloats},
                                            {"kernel_type", Kind::kString},
                                            {"post_transform", Kind::kString},
                                            {"prob_a", Kind::kFloats},
                                            {"prob_b", Kind::kFloats},
                                            {"rho", Kind::kFloats},
                                            {"support_vectors", Kind::kFloats},
                                            {"vectors_per_class", Kind::kInts}};
constexpr AttributeSpec kSvmRegressor[] = {
    {"coefficients", Kind::kFloats}, {"kernel_params", Kind::kFloats},
    {"kernel_type", Kind::kString},  {"n_supports", Kind::kInt},
    {"one_class", Kind::kFlag},      {"post_transform", Kind::kString},
    {"rho", Kind::kFloats},          {"support_vectors", Kind::kFloats}};
constexpr AttributeSpec kLabelEncoder[] = {
    {"classes_strings", Kind::kStrings}, {"default_float", Kind::kFloat},
    {"default_int64", Kind::kInt},       {"default_string", Kind::kString},
    {"default_tensor", Kind::kTensor},   {"keys_floats", Kind::kFloats},
    {"keys_int64s", Kind::kInts},        {"keys_strings", Kind::kStrings},
    {"keys_tensor", Kind::kTensor},      {"values_floats", Kind::kFloats},
    {"values_int64s", Kind::kInts},      {"values_strings", Kind::kStrings},
    {"values_tensor", Kind::kTensor}};
constexpr AttributeSpec kCategoryMapper[] = {{"cats_int64s", Kind::kInts},
                                             {"cats_strings", Kind::kStrings},
                                             {"default_int64", Kind::kInt},
                                             {"default_string", Kind::kString}};
constexpr AttributeSpec kOneHotEncoder[] = {
    {"cats_int64s", Kind::kInts}, {"cats_strings", Kind::kStrings}, {"zeros", Kind::kFlag}};
constexpr AttributeSpec kDictVectorizer[] = {{"int64_vocabulary", Kind::kInts},
                                             {"string_vocabulary", Kind::kStrings}};
constexpr AttributeSpec kZipMap[] = {{"classlabels_int64s", Kind::kInts},
                                     {"classlabels_strings", Kind::kStrings}};
constexpr AttributeSpec kThreshold[] = {{"threshold", Kind::kFloat}};

constexpr ContribOperator kMlOperators[] = {
    {"ArrayFeatureExtractor", 2, 2, kNone, contrib::ArrayFeatureExtractor},
    {"Binarizer", 1, 1, kThreshold, contrib::Binarizer},
    {"CategoryMapper", 1, 1, kCategoryMapper, contrib::CategoryMapper},
    {"DictVectorizer", 1, 1, kDictVectorizer, contrib::DictVectorizer},
    {"FeatureVectorizer", 1, kAnyNumber, kFeatures, contrib::FeatureVectorizer},
    {"Imputer", 1, 1, kImputer, contrib::Imputer},
    {"LabelEncoder", 1, 1, kLabelEncoder, contrib::LabelEncoder},
    {"LinearClassifier", 1, 1, kLinearClassifier, contrib::LinearClassifier},
    {"LinearRegressor", 1, 1, kLinearRegressor, contrib::LinearRegressor},
    {"Normalizer", 1, 1, kNorm, contrib::Normalizer},
    {"OneHotEncoder", 1, 1, kOneHotEncoder, contrib::OneHotEncoder},
    {"SVMClassifier", 1, 1, kSvmClassifier, contrib::SvmClassifier},
    {"SVMRegressor", 1, 1, kSvmRegressor, contrib::SvmRegressor},
    {"Scaler", 1, 1, kScaler, contrib::Scaler},
    {"TreeEnsemble", 1, 1, kTreeEnsemble, contrib::TreeEnsemble},
    {"TreeEnsembleClassifier", 1, 1, kTreeClassifier, contrib::TreeEnsembleClassifier},
    {"TreeEnsembleRegressor", 1, 1, kTreeRegressor, contrib::TreeEnsembleRegressor},
    {"ZipMap", 1, 1, kZipMap, contrib::ZipMap},
};

constexpr ContribOperator kOperators[] = {
    {"Attention", 2, 7, kAttention, contrib::Attention},
    {"BiasAdd", 3, 3, kNone, contrib::BiasAdd},
    {"BiasGelu", 2, 2, kNone, contrib::BiasGelu},
    {"BiasSplitGelu", 2, 2, kNone, contrib::BiasSplitGelu},
    {"DequantizeLinear", 2, 3, kAxis, contrib::Quantization},
    {"DynamicQuantizeLSTM", 12, 12, kLstm, contrib::DynamicQuantizeLstm},
    {"DynamicQuantizeMatMul", 3, 5, kNone, contrib::DynamicQuantizeMatMul},
    {"EmbedLayerNormalization", 7, 9, kEmbedding, contrib::EmbedLayerNormalization},
    {"FastGelu", 1, 2, kNone, contrib::FastGelu},
    {"FusedConv", 2, 4, kFusedConv, contrib::FusedConv},
    {"FusedGemm", 2, 3, kFusedGemm, contrib::FusedGemm},
    {"FusedMatMul", 2, 2, kFusedMatMul, contrib::FusedMatMul},
    {"FusedMatMulActivation", 2, 2, kFusedMatMulActivation, contrib::FusedMatMulActivation},
    {"Gelu", 1, 1, kNone, contrib::Gelu},
    {"GatherBlockQuantized", 3, 4, kGatherBlocks, contrib::GatherBlockQuantized},
    {"GroupNorm", 3, 3, kGroupNorm, contrib::GroupNorm},
    {"GroupQueryAttention", 7, 12, kGroupQueryAttention, contrib::GroupQueryAttention},
    {"MatMulIntegerToFloat", 4, 7, kNone, contrib::MatMulIntegerToFloat},
    {"MatMulNBits", 3, 6, kMatMulNBits, contrib::MatMulNBits},
    {"MoE", 5, 8, kMoE, contrib::MoE},
    {"MultiHeadAttention", 1, 10, kMultiHeadAttention, contrib::MultiHeadAttention},
    {"NhwcConv", 2, 3, kConv, contrib::NhwcConv},
    {"NhwcFusedConv", 2, 4, kFusedConv, contrib::NhwcFusedConv},
    {"NhwcMaxPool", 1, 1, kMaxPool, contrib::NhwcMaxPool},
    {"QAttention", 5, 9, kAttention, contrib::QAttention},
    {"QEmbedLayerNormalization", 13, 18, kEmbedding, contrib::QEmbedLayerNormalization},
    {"QGemm", 6, 9, kQGemm, contrib::QGemm},
    {"QLinearAdd", 7, 8, kNone, contrib::QLinearAdd},
    {"QLinearAveragePool", 4, 5, kPool, contrib::QLinearAveragePool},
    {"QLinearConcat", 3, kAnyNumber, kAxis, contrib::QLinearConcat},
    {"QLinearConv", 8, 9, kQConv, contrib::QLinearConv},
    {"QLinearGlobalAveragePool", 5, 5, kChannelsLast, contrib::QLinearGlobalAveragePool},
    {"QLinearLeakyRelu", 4, 5, kAlpha, contrib::QLinearLeakyRelu},
    {"QLinearMul", 7, 8, kNone, contrib::QLinearMul},
    {"QLinearReduceMean", 4, 5, kReduce, contrib::QLinearReduceMean},
    {"QLinearSigmoid", 4, 5, kNone, contrib::QLinearSigmoid},
    {"QLinearSoftmax", 5, 5, kQSoftmax, contrib::QLinearSoftmax},
    {"QLinearWhere", 8, 9, kNone, contrib::QLinearWhere},
    {"QMoE", 7, 17, kQMoE, contrib::QMoE},
    {"QuantizeLinear", 2, 3, kAxis, contrib::Quantization},
    {"QuickGelu", 1, 1, kAlpha, contrib::QuickGelu},
    {"RotaryEmbedding", 4, 4, kRotaryEmbedding, contrib::RotaryEmbedding},
    {"SimplifiedLayerNormalization", 2, 2, kLayerNorm, contrib::SimplifiedLayerNormalization},
    {"SkipGroupNorm", 4, 5, kGroupNorm, contrib::SkipGroupNorm},
    {"SkipLayerNormalization", 3, 5, kEpsilon, contrib::SkipLayerNormalization},
    {"SkipSimplifiedLayerNormalization", 3, 4, kEpsilon, contrib::SkipSimplifiedLayerNormalization},
    {"Tokenizer", 1, 1, kTokenizer, contrib::Tokenizer},
};

std::span<const ContribOperator> OperatorsOf(std::string_view domain) {
  return domain == kMlDomain ? std::span<const ContribOperator>(kMlOperators) : kOperators;
}

bool Has(const Attributes& attributes, const AttributeSpec& spec) {
  switch (spec.kind) {
    case Kind::kInt:
    case Kind::kFlag:
      return attributes.Find<int64_t>(spec.name) != nullptr;
    case Kind::kFloat:
      return attributes.Find<float>(spec.name) != nullptr;
    case Kind::kString:
      return attributes.Find<std::string>(spec.name) != nullptr;
    case Kind::kInts:
      return attributes.Find<std::vector<int64_t>>(spec.name) != nullptr;
    case Kind::kFloats:
      return attributes.Find<std::vector<float>>(spec.name) != nullptr;
    case Kind::kStrings:
      return attributes.Find<std::vector<std::string>>(spec.name) != nullptr;
    case Kind::kTensor:
      return attributes.Find<Tensor>(spec.name) != nullptr;
  }
  return false;
}

Status CheckAttributes(const OnnxNode& node, std::span<const AttributeSpec> specs) {
  for (const auto& attribute : node.attributes.values()) {
    const std::string& name = attribute.first;
    const auto spec = std::find_if(specs.begin(), specs.end(),
                                   [&](const AttributeSpec& s) { return s.name == name; });
    if (spec == specs.end()) return Unimplemented("its attribute '{}' is not supported", name);
    if (!Has(node.attributes, *spec)) {
      return InvalidArgument("its attribute '{}' is of another type than the operator gives it",
                             name);
    }
    if (const int64_t flag = node.attributes.Int(name, 0);
        spec->kind == Kind::kFlag && flag != 0 && flag != 1) {
      return InvalidArgument("its attribute '{}' is {}; it must be 0 or 1", name, flag);
    }
  }
  return absl::OkStatus();
}

// The advice for an operator that is not supported.
std::string InsteadOfContrib(const OnnxNode& node) {
  if (const auto meant = Closest(node.op_type, ContribOperators(node.domain))) {
    return fmt::format("; did you mean '{}'?", *meant);
  }
  return "; export the model without this operator, or serve it as a Python model "
         "(docs/reference/operators.md, docs/guides/python-models.md)";
}

}  // namespace

bool IsContrib(const OnnxNode& node) {
  return node.domain == kContribDomain || node.domain == kMlDomain ||
         (node.domain.empty() && node.op_type == "SimplifiedLayerNormalization");
}

std::vector<std::string> ContribOperators(std::string_view domain) {
  std::vector<std::string> names;
  for (const ContribOperator& one : OperatorsOf(domain)) names.emplace_back(one.op_type);
  return names;
}

Status NormaliseContrib(OnnxNode& node, Rewriter& rewriter) {
  const std::span<const ContribOperator> operators = OperatorsOf(node.domain);
  const auto found =
      std::find_if(operators.begin(), operators.end(),
                   [&](const ContribOperator& o) { return o.op_type == node.op_type; });
  if (found == operators.end()) {
    return Unimplemented("operator {} of domain '{}' is not supported{}", node.op_type, node.domain,
                         InsteadOfContrib(node));
  }
  const auto inputs = static_cast<int>(node.inputs.size());
  if (inputs < found->min_inputs || inputs > found->max_inputs) {
    return InvalidArgument("it has {} inputs; it takes {} to {}", inputs, found->min_inputs,
                           found->max_inputs);
  }
  if (node.outputs.empty()) return InvalidArgument("it has no output");
  CHAIRLIFT_RETURN_IF_ERROR(CheckAttributes(node, found->attributes));
  contrib::Maker make(node, rewriter);
  return found->rule(make);
}

}  // namespace chairlift
