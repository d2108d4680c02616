// Rules for layer normalisation after a sum or embeddings.
#include <string>

#include "graph/onnx/contrib/rules.h"

namespace chairlift::contrib {
namespace {

// ONNX Runtime's default for fused normalisations.
constexpr float kDefaultEpsilon = 1e-12f;

Attributes LayerNorm(float epsilon) { return With({{"axis", int64_t{-1}}, {"epsilon", epsilon}}); }

// x / √(mean of x² over the axes from `axis` on + epsilon) · scale, in float32 for any type of x.
// `inverse`: receives 1 / √(...) if requested.
ValueId RootMeanSquareNorm(Maker& make, ValueId x, ValueId scale, int64_t axis, float epsilon,
                           size_t inverse_output) {
  const DType dtype = make.info(x).dtype;
  const bool widened = dtype != DType::kFloat && dtype != DType::kDouble;
  const ValueId wide = widened ? make.CastToFloat(x) : x;
  std::vector<int64_t> axes = {axis};
  if (axis != -1) {
    const int rank = make.Rank(x, "its input");
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank) {
      make.Fail(InvalidArgument("axis {} is not one of {} dimensions", axis, rank));
      return kNoValue;
    }
    axes.clear();
    for (int64_t i = axis; i < rank; ++i) axes.push_back(i);
  }
  const ValueId squares = make.Make("Mul", {wide, wide});
  const ValueId mean = make.Make("ReduceMean", {squares, make.Ints(axes)});
  const ValueId root =
      make.Make("Sqrt", {make.Make("Add", {mean, make.ScalarLike(wide, epsilon)})});
  ValueId normal = make.Make("Div", {wide, root});
  if (make.wants(inverse_output)) make.MakeOutput(inverse_output, "Reciprocal", {root});
  if (widened) normal = make.Make("CastLike", {normal, x});
  return make.Make("Mul", {normal, scale});
}

// input + skip (+ bias), which is also an output if the file names it.
ValueId SkipSum(Maker& make, size_t bias) {
  // The input is the result of the previous product, without its bias, which is given here.
  const ValueId x = make.has(bias) ? make.Make("Add", {make.in(0), make.in(bias)}) : make.in(0);
  return make.MakeOutput(3, "Add", {x, make.in(1)});
}

}  // namespace

Status SimplifiedLayerNormalization(Maker& make) {
  if (make.attributes().Int("stash_type", 1) != 1) {
    return Unimplemented("its attribute 'stash_type' is only supported as 1, float32");
  }
  return make.Become(
      "Identity",
      {RootMeanSquareNorm(make, make.in(0), make.in(1), make.attributes().Int("axis", -1),
                          make.attributes().Float("epsilon", 1e-5f), 1)});
}

Status SkipLayerNormalization(Maker& make) {
  const ValueId sum = SkipSum(make, 4);
  std::vector<ValueId> inputs = {sum, make.in(2)};
  if (make.has(3)) inputs.push_back(make.in(3));
  return make.BecomeWith({0, 1, 2}, "LayerNormalization", std::move(inputs),
                         LayerNorm(make.attributes().Float("epsilon", kDefaultEpsilon)));
}

Status SkipSimplifiedLayerNormalization(Maker& make) {
  const ValueId sum = SkipSum(make, 3);
  return make.Become("Identity",
                     {RootMeanSquareNorm(make, sum, make.in(2), -1,
                                         make.attributes().Float("epsilon", kDefaultEpsilon), 2)});
}

Status NormalisedEmbedding(Maker& make, const Embedding& e) {
  if ((e.segments == kNoValue) != (e.segment_table == kNoValue)) {
    return InvalidArgument("segment_ids and segment_embedding must be given together");
  }
  ValueId places = kNoValue;
  if (e.position_ids != kNoValue) {
    places = make.Make("Gather", {e.positions, e.position_ids});
  } else {
    const ValueId length =
        make.Make("Shape", {e.ids}, With({{"start", int64_t{1}}, {"end", int64_t{2}}}));
    places = make.Make("Slice", {e.positions, make.Ints({0}), length, make.Ints({0})});
  }
  const bool has_segments = e.segments != kNoValue;
  ValueId sum = make.Make("Gather", {e.words, e.ids});
  const auto add = [&](ValueId term, bool last) {
    sum = last ? make.MakeOutput(2, "Add", {sum, term}) : make.Make("Add", {sum, term});
  };
  add(places, !has_segments);
  if (has_segments) add(make.Make("Gather", {e.segment_table, e.segments}), true);
  if (make.wants(1)) {
    if (e.mask != kNoValue) {  // the number of valid tokens
      const ValueId one = make.ScalarLike(e.mask, 1);
      const ValueId ones = make.CastToInt32(make.Make("Equal", {e.mask, one}));
      make.MakeOutput(1, "ReduceSum", {ones, make.Ints({1})}, With({{"keepdims", int64_t{0}}}));
    } else {
      const ValueId batch =
          make.Make("Shape", {e.ids}, With({{"start", int64_t{0}}, {"end", int64_t{1}}}));
      make.MakeOutput(1, "ConstantOfShape", {batch},
                      With({{"value", Tensor::Of<int32_t>(Shape{1}, {0})}}));
    }
  }
  return make.Become("LayerNormalization", {sum, e.gamma, e.beta},
                     LayerNorm(make.attributes().Float("epsilon", kDefaultEpsilon)));
}

Status EmbedLayerNormalization(Maker& make) {
  return NormalisedEmbedding(make, {.ids = make.in(0),
                                    .segments = make.in(1),
                                    .words = make.in(2),
                                    .positions = make.in(3),
                                    .segment_table = make.in(4),
                                    .gamma = make.in(5),
                                    .beta = make.in(6),
                                    .mask = make.in(7),
                                    .position_ids = make.in(8)});
}

// Its five tables are 8-bit: inputs 2 to 6, with scales from input 8 on and zero points from input
// 13 on.
Status QEmbedLayerNormalization(Maker& make) {
  const auto table = [&](size_t i) {
    if (!make.has(2 + i)) return kNoValue;
    std::vector<ValueId> inputs = {make.in(2 + i), make.in(8 + i)};
    if (make.has(13 + i)) inputs.push_back(make.in(13 + i));
    return make.Make("DequantizeLinear", std::move(inputs));
  };
  return NormalisedEmbedding(make, {.ids = make.in(0),
                                    .segments = make.in(1),
                                    .words = table(0),
                                    .positions = table(1),
                                    .segment_table = table(2),
                                    .gamma = table(3),
                                    .beta = table(4),
                                    .mask = make.in(7),
                                    .position_ids = kNoValue});
}

}  // namespace chairlift::contrib
