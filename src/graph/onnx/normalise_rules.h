// One function per normalisation rule; the table in normalise_rules.cc lists the operators.
#ifndef CHAIRLIFT_GRAPH_ONNX_NORMALISE_RULES_H_
#define CHAIRLIFT_GRAPH_ONNX_NORMALISE_RULES_H_

#include "graph/onnx/normalise.h"

namespace chairlift::normalise {

// For nodes added by rules.
inline constexpr int kNewestOpset = 21;

using Rule = Status(OnnxNode& node, Rewriter& rewriter);

// Attributes that became inputs: normalise_attributes.cc.
Rule ClipBounds;        // min, max
Rule DftAxis;           // axis, whose default changed
Rule DropoutRatio;      // ratio: has an effect only in training
Rule InputAxes;         // axes
Rule PadAmounts;        // pads, value
Rule SliceRanges;       // starts, ends, axes
Rule SplitSizes;        // split
Rule SplitCount;        // num_outputs gives equal parts
Rule TopKCount;         // k
Rule UpsampleFactors;   // height_scale, width_scale
Rule UpsampleScales;    // scales
Rule UpsampleToResize;  // the form of Resize 10

// Broadcasting before opset 7, set by attributes: normalise_broadcast.cc.
Rule BinaryBroadcast;  // broadcast, axis
Rule GemmBroadcast;    // broadcast
Rule PReluChannels;    // one slope per channel

// Attributes and inputs whose meaning changed: normalise_semantics.cc.
Rule BatchNormalizationMode;      // is_test, spatial, training by number of outputs
Rule BatchNormalizationIsTest;    // is_test, which opset 7 dropped
Rule BatchNormalizationTraining;  // training_mode: statistics of the input itself
Rule DropoutIsTest;
Rule GridSampleModes;           // bilinear, bicubic
Rule GroupNormalizationScales;  // one scale per group
Rule RecurrentOutputSequence;
Rule ResizeAsymmetric;       // Resize 10
Rule ResizeEmptyInputs;      // empty tensors for absent inputs
Rule RoiAlignHalfPixel;      // coordinates
Rule ScatterToElements;      // Scatter becomes ScatterElements
Rule SoftmaxTwoDimensional;  // over all axes from `axis` on

// Newer operators that are compositions of others: normalise_gates.cc.
Rule SwiGluGate;
Rule SwishGate;

// A convolution with a state: normalise_causal_conv.cc.
Rule CausalConv;

// Random numbers, from the request's seeds: normalise_random.cc.
Rule Bernoulli;
Rule DropoutTraining;
Rule Multinomial;
Rule RandomNormal;
Rule RandomNormalLike;
Rule RandomUniform;
Rule RandomUniformLike;

// Forms of opsets 1 to 5: normalise_first_opsets.cc.
Rule CastTypeName;
Rule ConcatAxis;
Rule LpPoolOrder;
Rule PadPaddings;
Rule ReshapeShape;
Rule SeluDefaults;
Rule SplitInput;
Rule TileAxis;

// Losses: normalise_losses.cc.
Rule NegativeLogLikelihoodLoss;
Rule SoftmaxCrossEntropyLoss;

// Positions that become tables: normalise_rotary.cc.
Rule RotaryPositions;

// A batch axis around the scan: normalise_scan.cc.
Rule ScanBatch;

// A scalar of `like`'s element type.
StatusOr<ValueId> ScalarLike(Rewriter& rewriter, ValueId like, float value);
// Makes `input` input number `index`, with absent inputs before it if needed.
void SetInput(OnnxNode& node, size_t index, ValueId input);

}  // namespace chairlift::normalise

#endif  // CHAIRLIFT_GRAPH_ONNX_NORMALISE_RULES_H_
