// One function per operator of ONNX Runtime; the table in contrib.cc lists the forms that each
// supports.
#ifndef CHAIRLIFT_GRAPH_ONNX_CONTRIB_RULES_H_
#define CHAIRLIFT_GRAPH_ONNX_CONTRIB_RULES_H_

#include "graph/onnx/contrib/maker.h"

namespace chairlift::contrib {

using Rule = Status(Maker& make);

// Attention: attention.cc.
Rule Attention;
Rule GroupQueryAttention;
Rule MultiHeadAttention;
Rule QAttention;
Rule RotaryEmbedding;

// Fused products: linear.cc.
Rule FusedConv;
Rule FusedGemm;
Rule FusedMatMul;
Rule FusedMatMulActivation;

// Weights quantised block by block: blockwise.cc.
Rule GatherBlockQuantized;
Rule MatMulNBits;

// Mixtures of experts: experts.cc.
Rule MoE;
Rule QMoE;

// Channels come last: channels_last.cc.
Rule GroupNorm;
Rule NhwcConv;
Rule NhwcFusedConv;
Rule NhwcMaxPool;
Rule QLinearConv;
Rule SkipGroupNorm;

// Embeddings, normalisation, activations: normalization.cc, activations.cc.
Rule BiasAdd;
Rule BiasGelu;
Rule BiasSplitGelu;
Rule EmbedLayerNormalization;
Rule FastGelu;
Rule Gelu;
Rule QEmbedLayerNormalization;
Rule QuickGelu;
Rule SimplifiedLayerNormalization;
Rule SkipLayerNormalization;
Rule SkipSimplifiedLayerNormalization;

// Quantised operators, computed on the values that the integers represent: quantized.cc.
Rule QLinearAdd;
Rule QLinearAveragePool;
Rule QLinearConcat;
Rule QLinearGlobalAveragePool;
Rule QLinearLeakyRelu;
Rule QLinearMul;
Rule QLinearReduceMean;
Rule QLinearSigmoid;
Rule QLinearSoftmax;
Rule QLinearWhere;
Rule Quantization;  // QuantizeLinear, DequantizeLinear

// Products of integers: integer_products.cc.
Rule DynamicQuantizeLstm;
Rule DynamicQuantizeMatMul;
Rule MatMulIntegerToFloat;
Rule QGemm;

// Strings: text.cc.
Rule Tokenizer;

// Domain ai.onnx.ml: ml.cc.
Rule ArrayFeatureExtractor;
Rule Binarizer;
Rule FeatureVectorizer;
Rule Imputer;
Rule LinearClassifier;
Rule LinearRegressor;
Rule Normalizer;
Rule Scaler;
// tree_operators.cc:
Rule TreeEnsemble;
Rule TreeEnsembleClassifier;
Rule TreeEnsembleRegressor;
// svm.cc:
Rule SvmClassifier;
Rule SvmRegressor;
// encoders.cc:
Rule DictVectorizer;
Rule CategoryMapper;
Rule LabelEncoder;
Rule OneHotEncoder;
Rule ZipMap;

// Applies the activation `name`, as fused operators have it, to `id`, with its parameters in the
// order of ONNX's attributes. Returns `id` itself if the name is empty.
ValueId Activate(Maker& make, ValueId id, const std::string& name,
                 const std::vector<float>& parameters);

// [N, spatial..., C] to [N, C, spatial...], and the node's result back, which has `rank`
// dimensions.
ValueId ChannelsFirst(Maker& make, ValueId x);
Status BecomeChannelsLast(Maker& make, ValueId y, int rank);

// Common part of DynamicQuantizeMatMul and similar operators: a scaled product of integers as
// float32. Zero points and bias may be kNoValue.
struct IntegerProduct {
  ValueId a, b, a_scale, b_scale, a_zero_point, b_zero_point;
};
ValueId ScaledProduct(Maker& make, const IntegerProduct& product);

// The sum of rows of three tables, and its layer normalisation: EmbedLayerNormalization with its
// tables in float.
struct Embedding {
  ValueId ids, segments, words, positions, segment_table, gamma, beta, mask, position_ids;
};
Status NormalisedEmbedding(Maker& make, const Embedding& e);

}  // namespace chairlift::contrib

#endif  // CHAIRLIFT_GRAPH_ONNX_CONTRIB_RULES_H_
