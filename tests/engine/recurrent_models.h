// Recurrent models of all kinds, small, as exporters write them.
#ifndef CHAIRLIFT_TESTS_ENGINE_RECURRENT_MODELS_H_
#define CHAIRLIFT_TESTS_ENGINE_RECURRENT_MODELS_H_

#include "engine/test_models.h"

namespace chairlift::testing {

inline constexpr int64_t kRecurrentFeatures = 6;

inline void RecurrentWeights(GraphProtoBuilder& m, const std::string& prefix, int64_t directions,
                             int64_t gates, int64_t features, int64_t hidden, unsigned seed) {
  RandomWeights(m, prefix + "w", {directions, gates * hidden, features}, seed);
  RandomWeights(m, prefix + "r", {directions, gates * hidden, hidden}, seed + 1);
  RandomWeights(m, prefix + "b", {directions, 2 * gates * hidden}, seed + 2);
}

// tokens [batch, time] → embedding → two LSTM layers → logits of the last step.
inline ModelBuilder TokenClassifier() {
  ModelBuilder m(17);
  m.Input("x", kInt64, {"batch", "time"}).Output("y", kFloat);
  RandomWeights(m, "table", {11, kRecurrentFeatures}, 1);
  RecurrentWeights(m, "a", 1, 4, kRecurrentFeatures, 8, 2);
  RecurrentWeights(m, "c", 1, 4, 8, 7, 5);
  RandomWeights(m, "v", {7, 3}, 9);
  m.Ints("one", {1}).Ints("zero", {0});
  m.Node("Transpose", {"x"}, {"xt"}).Ints("perm", {1, 0});
  m.Node("Gather", {"table", "xt"}, {"e"});
  m.Node("LSTM", {"e", "aw", "ar", "ab"}, {"y1", "", ""}).Int("hidden_size", 8);
  m.Node("Squeeze", {"y1", "one"}, {"s1"});
  m.Node("LSTM", {"s1", "cw", "cr", "cb"}, {"", "h2", ""}).Int("hidden_size", 7);
  m.Node("Squeeze", {"h2", "zero"}, {"s2"});
  m.Node("MatMul", {"s2", "v"}, {"y"});
  return m;
}

// x [batch, time, 6] → bidirectional GRU → a linear layer of every step, and both final states.
inline ModelBuilder Tagger() {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", "time", kRecurrentFeatures})
      .Output("y", kFloat)
      .Output("states", kFloat);
  RecurrentWeights(m, "a", 2, 3, kRecurrentFeatures, 5, 1);
  RandomWeights(m, "v", {10, 4}, 7);
  m.Ints("shape", {0, 0, -1});
  m.Node("Transpose", {"x"}, {"xt"}).Ints("perm", {1, 0, 2});
  m.Node("GRU", {"xt", "aw", "ar", "ab"}, {"y1", "states"})
      .Int("hidden_size", 5)
      .String("direction", "bidirectional")
      .Int("linear_before_reset", 1);
  m.Node("Transpose", {"y1"}, {"yt"}).Ints("perm", {2, 0, 1, 3});
  m.Node("Reshape", {"yt", "shape"}, {"flat"});
  m.Node("MatMul", {"flat", "v"}, {"y"});
  return m;
}

// x [time, batch, 6] with an initial state → RNN → all states and their mean over time.
inline ModelBuilder MeanOverTime() {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"time", "batch", kRecurrentFeatures})
      .Input("h0", kFloat, {1, "batch", 9})
      .Output("all", kFloat)
      .Output("y", kFloat)
      .Output("last", kFloat);
  RecurrentWeights(m, "a", 1, 1, kRecurrentFeatures, 9, 1);
  m.Node("RNN", {"x", "aw", "ar", "ab", "", "h0"}, {"all", "last"}).Int("hidden_size", 9);
  m.Node("ReduceMean", {"all"}, {"y"}).Ints("axes", {0}).Int("keepdims", 0);
  return m;
}

// x [batch, 6, time] → convolution that halves the length → LSTM in reverse → every step.
inline ModelBuilder ConvolutionInFront() {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", kRecurrentFeatures, "time"})
      .Output("y", kFloat)
      .Output("c", kFloat);
  RandomWeights(m, "k", {8, kRecurrentFeatures, 3}, 1);
  RecurrentWeights(m, "a", 1, 4, 8, 5, 2);
  m.Ints("one", {1});
  m.Node("Conv", {"x", "k"}, {"conv"}).Ints("strides", {2}).Ints("pads", {1, 1});
  m.Node("Relu", {"conv"}, {"act"});
  m.Node("Transpose", {"act"}, {"xt"}).Ints("perm", {2, 0, 1});
  m.Node("LSTM", {"xt", "aw", "ar", "ab"}, {"y1", "", "c"})
      .Int("hidden_size", 5)
      .String("direction", "reverse");
  m.Node("Squeeze", {"y1", "one"}, {"y"});
  return m;
}

// tokens [batch, time] → embedding → convolution → GRU → every step.
inline ModelBuilder ConvolutionBehindAnEmbedding() {
  ModelBuilder m(17);
  m.Input("x", kInt64, {"batch", "time"}).Output("y", kFloat);
  RandomWeights(m, "table", {11, kRecurrentFeatures}, 1);
  RandomWeights(m, "k", {8, kRecurrentFeatures, 3}, 2);
  RecurrentWeights(m, "a", 1, 3, 8, 5, 3);
  m.Node("Gather", {"table", "x"}, {"e"});
  m.Node("Transpose", {"e"}, {"et"}).Ints("perm", {0, 2, 1});
  m.Node("Conv", {"et", "k"}, {"conv"}).Ints("pads", {1, 1});
  m.Node("Transpose", {"conv"}, {"xt"}).Ints("perm", {2, 0, 1});
  m.Node("GRU", {"xt", "aw", "ar", "ab"}, {"y", ""}).Int("hidden_size", 5);
  return m;
}

// x [time, batch, 6] → GRU → a linear layer of every step, its mean over time → another GRU, and
// what it makes of the linear layer's steps added to them.
inline ModelBuilder ResidualAndMean() {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"time", "batch", kRecurrentFeatures})
      .Output("y", kFloat)
      .Output("mean", kFloat);
  RecurrentWeights(m, "a", 1, 3, kRecurrentFeatures, 5, 1);
  RandomWeights(m, "v", {5, 4}, 4);
  RecurrentWeights(m, "c", 1, 3, 4, 4, 5);
  m.Ints("one", {1});
  m.Node("GRU", {"x", "aw", "ar", "ab"}, {"y1", ""}).Int("hidden_size", 5);
  m.Node("Squeeze", {"y1", "one"}, {"s1"});
  m.Node("MatMul", {"s1", "v"}, {"z"});
  m.Node("ReduceMean", {"z"}, {"mean"}).Ints("axes", {0}).Int("keepdims", 0);
  m.Node("GRU", {"z", "cw", "cr", "cb"}, {"y2", ""}).Int("hidden_size", 4);
  m.Node("Squeeze", {"y2", "one"}, {"s2"});
  m.Node("Add", {"z", "s2"}, {"y"});
  return m;
}

// x [batch, 6, time], lengths [batch] → convolution that halves the length → LSTM of each row's
// own.
inline ModelBuilder OwnLengthsBehindAConvolution() {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", kRecurrentFeatures, "time"})
      .Input("lengths", onnx::TensorProto::INT32, {"batch"})
      .Output("y", kFloat)
      .Output("h", kFloat);
  RandomWeights(m, "k", {8, kRecurrentFeatures, 3}, 1);
  RecurrentWeights(m, "a", 1, 4, 8, 5, 2);
  m.Node("Conv", {"x", "k"}, {"conv"}).Ints("strides", {2}).Ints("pads", {1, 1});
  m.Node("Transpose", {"conv"}, {"xt"}).Ints("perm", {2, 0, 1});
  m.Node("LSTM", {"xt", "aw", "ar", "ab", "lengths"}, {"y", "h", ""}).Int("hidden_size", 5);
  return m;
}

// x [batch, 12, 6], lengths [batch] → LSTM of each row's own length.
inline ModelBuilder OwnLengthsOfFixedSteps() {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", 12, kRecurrentFeatures})
      .Input("lengths", onnx::TensorProto::INT32, {"batch"})
      .Output("y", kFloat)
      .Output("h", kFloat);
  RecurrentWeights(m, "a", 1, 4, kRecurrentFeatures, 5, 1);
  m.Node("Transpose", {"x"}, {"xt"}).Ints("perm", {1, 0, 2});
  m.Node("LSTM", {"xt", "aw", "ar", "ab", "lengths"}, {"y", "h", ""}).Int("hidden_size", 5);
  return m;
}

// x [time, batch, 6], lengths [batch] → bidirectional LSTM of each row's own length. Lengths in
// int64 are converted for it, as exporters of packed sequences do.
inline ModelBuilder OwnLengths(onnx::TensorProto::DataType type = onnx::TensorProto::INT32) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"time", "batch", kRecurrentFeatures})
      .Input("lengths", type, {"batch"})
      .Output("y", kFloat)
      .Output("h", kFloat);
  RecurrentWeights(m, "a", 2, 4, kRecurrentFeatures, 5, 1);
  const bool convert = type != onnx::TensorProto::INT32;
  if (convert) m.Node("Cast", {"lengths"}, {"steps"}).Int("to", onnx::TensorProto::INT32);
  m.Node("LSTM", {"x", "aw", "ar", "ab", convert ? "steps" : "lengths"}, {"y", "h", ""})
      .Int("hidden_size", 5)
      .String("direction", "bidirectional");
  return m;
}

// The same from states h0, c0 [2, batch, 5] to the last ones.
inline ModelBuilder OwnLengthsFromStates() {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"time", "batch", kRecurrentFeatures})
      .Input("lengths", onnx::TensorProto::INT32, {"batch"})
      .Input("h0", kFloat, {2, "batch", 5})
      .Input("c0", kFloat, {2, "batch", 5})
      .Output("y", kFloat)
      .Output("h", kFloat)
      .Output("c", kFloat);
  RecurrentWeights(m, "a", 2, 4, kRecurrentFeatures, 5, 1);
  m.Node("LSTM", {"x", "aw", "ar", "ab", "lengths", "h0", "c0"}, {"y", "h", "c"})
      .Int("hidden_size", 5)
      .String("direction", "bidirectional");
  return m;
}

// x [batch, time, 6], style [batch, 7] → Scan of a cell h' = tanh(x·W + h·R + style) with a
// counter beside it → every step and the last.
inline ModelBuilder ScanOfACell() {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", "time", kRecurrentFeatures})
      .Input("style", kFloat, {"batch", 7})
      .Output("steps", kFloat)
      .Output("y", kFloat);
  RandomWeights(m, "w", {kRecurrentFeatures, 7}, 1);
  RandomWeights(m, "r", {7, 7}, 2);
  m.Node("Sub", {"style", "style"}, {"zeros"});
  NodeBuilder scan = m.Node("Scan", {"zeros", "x"}, {"y", "steps"});
  scan.Int("num_scan_inputs", 1).Ints("scan_input_axes", {1}).Ints("scan_output_axes", {1});
  GraphProtoBuilder body(scan.Body("body"));
  body.Input("h", kFloat, {"batch", 7})
      .Input("x_t", kFloat, {"batch", kRecurrentFeatures})
      .Output("next")
      .Output("out");
  body.Node("MatMul", {"x_t", "w"}, {"xw"});
  body.Node("MatMul", {"h", "r"}, {"hr"});
  body.Node("Sum", {"xw", "hr", "style"}, {"sum"});
  body.Node("Tanh", {"sum"}, {"next"});
  body.Node("Neg", {"next"}, {"out"});
  return m;
}

// x [time, batch, 6], h0 [batch, 6] → a Loop over time: h' = tanh(x[i] + h·R).
inline ModelBuilder LoopOverTime() {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"time", "batch", kRecurrentFeatures})
      .Input("h0", kFloat, {"batch", kRecurrentFeatures})
      .Output("y", kFloat)
      .Output("steps", kFloat);
  RandomWeights(m, "r", {kRecurrentFeatures, kRecurrentFeatures}, 2);
  m.Ints("zero", {0});
  m.Node("Shape", {"x"}, {"shape"});
  m.Node("Gather", {"shape", "zero"}, {"count"});
  NodeBuilder loop = m.Node("Loop", {"count", "", "h0"}, {"y", "steps"});
  GraphProtoBuilder body(loop.Body("body"));
  body.Input("i", kInt64, {})
      .Input("going_on", kBool, {})
      .Input("h", kFloat, {"batch", kRecurrentFeatures})
      .Output("on")
      .Output("next")
      .Output("out");
  body.Node("Identity", {"going_on"}, {"on"});
  body.Node("Gather", {"x", "i"}, {"x_t"});
  body.Node("MatMul", {"h", "r"}, {"hr"});
  body.Node("Add", {"x_t", "hr"}, {"sum"});
  body.Node("Tanh", {"sum"}, {"next"});
  body.Node("Identity", {"next"}, {"out"});
  return m;
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_ENGINE_RECURRENT_MODELS_H_
