// One function a normalisation rule; the table in normalise_rules.cc says for which operators.
#ifndef CHAIRLIFT_GRAPH_ONNX_NORMALISE_RULES_H_
#define CHAIRLIFT_GRAPH_ONNX_NORMALISE_RULES_H_

#include "graph/onnx/normalise.h"

namespace chairlift::normalise {

// Of the nodes that rules add.
inline constexpr int kNewestOpset = 21;

using Rule = Status(OnnxNode& node, Rewriter& rewriter);

// Attributes that became inputs: normalise_attributes.cc.
Rule ClipBounds;        // min, max
Rule DftAxis;           // axis, with another default
Rule DropoutRatio;      // ratio: of no effect but in training
Rule InputAxes;         // axes
Rule PadAmounts;        // pads, value
Rule SliceRanges;       // starts, ends, axes
Rule SplitSizes;        // split
Rule SplitCount;        // equal parts are given by num_outputs
Rule TopKCount;         // k
Rule UpsampleFactors;   // height_scale, width_scale
Rule UpsampleScales;    // scales
Rule UpsampleToResize;  // the form of Resize 10

// Broadcasting as it was before opset 7, which attributes set: normalise_broadcast.cc.
Rule BinaryBroadcast;  // broadcast, axis
Rule GemmBroadcast;    // broadcast
Rule PReluChannels;    // a slope a channel

// Attributes and inputs that changed their meaning: normalise_semantics.cc.
Rule BatchNormalizationMode;      // is_test, spatial, training by count of outputs
Rule BatchNormalizationIsTest;    // is_test, which opset 7 dropped
Rule BatchNormalizationTraining;  // training_mode: the input's own statistics
Rule DropoutIsTest;
Rule GridSampleModes;           // bilinear, bicubic
Rule GroupNormalizationScales;  // a scale a group
Rule RecurrentOutputSequence;
Rule ResizeAsymmetric;       // Resize 10
Rule ResizeEmptyInputs;      // empty tensors for absent inputs
Rule RoiAlignHalfPixel;      // coordinates
Rule ScatterToElements;      // Scatter
Rule SoftmaxTwoDimensional;  // over all axes from `axis` on

// Newer operators that are compositions of others: normalise_gates.cc.
Rule SwiGluGate;
Rule SwishGate;

// A convolution with a state: normalise_causal_conv.cc.
Rule CausalConv;

// Positions that became tables: normalise_rotary.cc.
Rule RotaryPositions;

// A batch axis around the scan: normalise_scan.cc.
Rule ScanBatch;

// A scalar of `like`'s element type.
StatusOr<ValueId> ScalarLike(Rewriter& rewriter, ValueId like, float value);
// Appends `input` as input number `index`, with absent inputs before it.
void SetInput(OnnxNode& node, size_t index, ValueId input);

}  // namespace chairlift::normalise

#endif  // CHAIRLIFT_GRAPH_ONNX_NORMALISE_RULES_H_
