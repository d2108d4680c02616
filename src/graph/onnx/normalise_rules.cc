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
      {"CausalConvWithState", kNewForms, CausalConv},
      {"Clip", 11, ClipBounds},
      {"DFT", 20, DftAxis},
      {"Dropout", 7, DropoutIsTest},
      {"Dropout", 12, DropoutRatio},
      {"GRU", 7, RecurrentOutputSequence},
      {"Gemm", 7, GemmBroadcast},
      {"GridSample", 20, GridSampleModes},
      {"GroupNormalization", 21, GroupNormalizationScales},
      {"Hardmax", 13, SoftmaxTwoDimensional},
      {"LSTM", 7, RecurrentOutputSequence},
      {"LogSoftmax", 13, SoftmaxTwoDimensional},
      {"PRelu", 7, PReluChannels},
      {"Pad", 11, PadAmounts},
      {"RNN", 7, RecurrentOutputSequence},
      {"ReduceL1", 18, InputAxes},
      {"ReduceL2", 18, InputAxes},
      {"ReduceLogSum", 18, InputAxes},
      {"ReduceLogSumExp", 18, InputAxes},
      {"ReduceMax", 18, InputAxes},
      {"ReduceMean", 18, InputAxes},
      {"ReduceMin", 18, InputAxes},
      {"ReduceProd", 18, InputAxes},
      {"ReduceSum", 13, InputAxes},
      {"ReduceSumSquare", 18, InputAxes},
      {"Resize", 11, ResizeAsymmetric},
      {"Resize", 19, ResizeEmptyInputs},
      {"RoiAlign", 16, RoiAlignHalfPixel},
      {"RotaryEmbedding", kNewForms, RotaryPositions},
      {"Scan", 9, ScanBatch},
      {"Scatter", 11, ScatterToElements},
      {"Slice", 10, SliceRanges},
      {"Softmax", 13, SoftmaxTwoDimensional},
      {"Split", 13, SplitSizes},
      {"Split", 18, SplitCount},
      {"Squeeze", 13, InputAxes},
      {"SwiGLU", kNewForms, SwiGluGate},
      {"Swish", kNewForms, SwishGate},
      {"TopK", 10, TopKCount},
      {"Unsqueeze", 13, InputAxes},
      {"Upsample", 7, UpsampleFactors},
      {"Upsample", 9, UpsampleScales},
      {"Upsample", 10, UpsampleToResize},
  };
  return kRules;
}

}  // namespace chairlift
