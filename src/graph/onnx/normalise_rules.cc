// The table of normalisation rules. Optional attributes that were added with a default that keeps
// the old meaning need no rule.
#include "graph/onnx/normalise_rules.h"

namespace chairlift {

std::span<const NormaliseRule> NormaliseRules() {
  using namespace normalise;  // NOLINT(google-build-using-namespace): a table of its functions
  // For operators that are replaced by others, or take another form, in every opset.
  constexpr int kNewForms = 29;
  static constexpr NormaliseRule kRules[] = {
      {"Add", 7, BinaryBroadcast},
      {"And", 7, BinaryBroadcast},
      {"Div", 7, BinaryBroadcast},
      {"Equal", 7, BinaryBroadcast},
      {"Greater", 7, BinaryBroadcast},
      {"Less", 7, BinaryBroadcast},
      {"Mul", 7, BinaryBroadcast},
      {"Or", 7, BinaryBroadcast},
      {"Pow", 7, BinaryBroadcast},
      {"Sub", 7, BinaryBroadcast},
      {"Xor", 7, BinaryBroadcast},
      {"BatchNormalization", 7, BatchNormalizationIsTest},
      {"BatchNormalization", 14, BatchNormalizationMode},
      {"BatchNormalization", kNewForms, BatchNormalizationTraining},
      {"Cast", 6, CastTypeName},
      {"CausalConvWithState", kNewForms, CausalConv},
      {"Clip", 11, ClipBounds, {"min", "max"}},
      {"Concat", 4, ConcatAxis},
      {"DFT", 20, DftAxis},
      {"Dropout", 7, DropoutIsTest},
      {"Dropout", 12, DropoutRatio},
      {"GRU", 7, RecurrentOutputSequence},
      {"Gemm", 7, GemmBroadcast},
      {"GlobalLpPool", 2, LpPoolOrder},
      {"GridSample", 20, GridSampleModes},
      {"GroupNormalization", 21, GroupNormalizationScales},
      {"Hardmax", 13, SoftmaxTwoDimensional},
      {"LSTM", 7, RecurrentOutputSequence},
      {"LogSoftmax", 13, SoftmaxTwoDimensional},
      {"LpPool", 2, LpPoolOrder},
      {"NegativeLogLikelihoodLoss", kNewForms, NegativeLogLikelihoodLoss},
      {"PRelu", 7, PReluChannels},
      {"Pad", 2, PadPaddings},
      {"Pad", 11, PadAmounts, {"pads", "value"}},
      {"RNN", 7, RecurrentOutputSequence},
      {"ReduceL1", 18, InputAxes, {"axes"}},
      {"ReduceL2", 18, InputAxes, {"axes"}},
      {"ReduceLogSum", 18, InputAxes, {"axes"}},
      {"ReduceLogSumExp", 18, InputAxes, {"axes"}},
      {"ReduceMax", 18, InputAxes, {"axes"}},
      {"ReduceMean", 18, InputAxes, {"axes"}},
      {"ReduceMin", 18, InputAxes, {"axes"}},
      {"ReduceProd", 18, InputAxes, {"axes"}},
      {"ReduceSum", 13, InputAxes, {"axes"}},
      {"ReduceSumSquare", 18, InputAxes, {"axes"}},
      {"Reshape", 5, ReshapeShape},
      {"Resize", 11, ResizeAsymmetric},
      {"Resize", 19, ResizeEmptyInputs},
      {"RoiAlign", 16, RoiAlignHalfPixel},
      {"RotaryEmbedding", kNewForms, RotaryPositions},
      {"Scan", 9, ScanBatch},
      {"Scatter", 11, ScatterToElements},
      {"Selu", 6, SeluDefaults},
      {"Slice", 10, SliceRanges, {"starts", "ends", "axes"}},
      {"Softmax", 13, SoftmaxTwoDimensional},
      {"SoftmaxCrossEntropyLoss", kNewForms, SoftmaxCrossEntropyLoss},
      {"Split", 2, SplitInput},
      {"Split", 13, SplitSizes, {"split"}},
      {"Split", 18, SplitCount},
      {"Squeeze", 13, InputAxes, {"axes"}},
      {"SwiGLU", kNewForms, SwiGluGate},
      {"Swish", kNewForms, SwishGate},
      {"Tile", 6, TileAxis},
      {"TopK", 10, TopKCount, {"k"}},
      {"Unsqueeze", 13, InputAxes, {"axes"}},
      {"Upsample", 7, UpsampleFactors},
      {"Upsample", 9, UpsampleScales},
      {"Upsample", 10, UpsampleToResize},
  };
  return kRules;
}

}  // namespace chairlift
