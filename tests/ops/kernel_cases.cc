#include "ops/kernel_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ops/quantization/blockwise.h"
#include "ops/random_tensor.h"

namespace chairlift::testing {
namespace {

using Input = KernelCase::Input;

Input Floats(const Shape& shape) { return {DType::kFloat, shape, -1, 1}; }
Input Bytes(const Shape& shape) { return {DType::kUInt8, shape, 0, 255}; }
Input SignedBytes(const Shape& shape) { return {DType::kInt8, shape, -127, 127}; }
Input Ints(const std::vector<int64_t>& values) {
  return Input(Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())},
                                   std::span<const int64_t>(values)));
}
Input Absent() { return {}; }
template <typename T>
Input Value(T value) {
  return Input(Tensor::Scalar(value));
}

double Flops(int64_t m, int64_t n, int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

void AddProducts(std::vector<KernelCase>& cases) {
  for (const int64_t m : {1, 8, 128, 512}) {
    for (const auto& [k, n] : {std::pair<int64_t, int64_t>{384, 1536}, {1536, 384}}) {
      cases.push_back({.name = fmt::format("product/{}x{}x{}", m, k, n),
                       .call = {.name = "MatMul", .constants = {1}},
                       .inputs = {Floats({m, k}), Floats({k, n})},
                       .flops = Flops(m, n, k)});
    }
  }
  cases.push_back({.name = "product/128x384x1536+bias+gelu",
                   .call = {.name = "FusedMatMul",
                            .attributes = Attrs({{"activation", std::string("Gelu")}}),
                            .domain = "chairlift",
                            .constants = {1, 2}},
                   .inputs = {Floats({128, 384}), Floats({384, 1536}), Floats({1536})},
                   .flops = Flops(128, 1536, 384)});
  // Operands that are exact in bfloat16, so that the result is exact but for its sums.
  const auto rounded = [](const Shape& shape, uint32_t seed) {
    Tensor values = RandomTensor(DType::kFloat, shape, -1, 1, seed);
    for (int64_t i = 0; i < values.size(); ++i) {
      values.data<float>()[i] = static_cast<float>(BFloat16(values.data<float>()[i]));
    }
    return Input(std::move(values));
  };
  for (const int64_t m : {1, 16, 64, 128, 512}) {
    for (const auto& [k, n] : {std::pair<int64_t, int64_t>{384, 1536}, {1536, 384}}) {
      cases.push_back({.name = fmt::format("product/bfloat16 {}x{}x{}", m, k, n),
                       .call = {.name = "MatMul",
                                .attributes = Attrs({{"bfloat16", int64_t{1}}}),
                                .constants = {1}},
                       .inputs = {rounded({m, k}, 1), rounded({k, n}, 2)},
                       .bfloat16_flops = Flops(m, n, k),
                       .implementation = "bfloat16"});
    }
  }
  // Likewise in 8 bits: every row of A and column of B uses the whole range of codes.
  const auto codes = [](const Shape& shape, int low, int high, bool by_column, uint32_t seed) {
    Tensor values = RandomTensor(DType::kFloat, shape, low, high, seed);
    for (int64_t i = 0; i < values.size(); ++i) {
      values.data<float>()[i] = std::round(values.data<float>()[i]);
    }
    for (int64_t i = 0; i < shape[by_column ? 1 : 0]; ++i) {
      const int64_t step = by_column ? shape[1] : 1;
      float* first = values.data<float>() + (by_column ? i : i * shape[1]);
      first[0] = static_cast<float>(low);
      first[step] = static_cast<float>(high);
    }
    return Input(std::move(values));
  };
  for (const int64_t m : {16, 128}) {
    cases.push_back(
        {.name = fmt::format("product/rounded to int8 {}x384x1536", m),
         .call = {.name = "MatMul", .attributes = Attrs({{"int8", int64_t{1}}}), .constants = {1}},
         .inputs = {codes({m, 384}, -100, 155, false, 1), codes({384, 1536}, -127, 127, true, 2)},
         .tile_int8_flops = Flops(m, 1536, 384),
         .implementation = "int8"});
  }
  for (const int64_t m : {1, 8, 64, 128, 512}) {
    for (const auto& [k, n] : {std::pair<int64_t, int64_t>{384, 1536}, {1536, 384}}) {
      cases.push_back(
          {.name = fmt::format("product/int8 {}x{}x{}", m, k, n),
           .call = {.name = "ScaledIntegerProduct", .domain = "chairlift", .constants = {1, 6}},
           .inputs = {Bytes({m, k}), SignedBytes({k, n}), Floats({n}), Absent(), Value(0.02f),
                      Value(uint8_t{117}), Value(0.01f)},
           .tile_int8_flops = Flops(m, n, k)});
    }
  }
  cases.push_back({.name = "product/bfloat16, 3 of 128x384x384",
                   .call = {.name = "ParallelMatMul",
                            .attributes = Attrs({{"bfloat16", int64_t{1}}}),
                            .num_outputs = 3,
                            .domain = "chairlift",
                            .constants = {1, 3, 5}},
                   .inputs = {rounded({128, 384}, 1), rounded({384, 384}, 2), Absent(),
                              rounded({384, 384}, 3), Absent(), rounded({384, 380}, 4), Absent()},
                   .bfloat16_flops = 3 * Flops(128, 384, 384)});
  cases.push_back({.name = "product/3 of 128x384x384",
                   .call = {.name = "ParallelMatMul",
                            .num_outputs = 3,
                            .domain = "chairlift",
                            .constants = {1, 3, 5}},
                   .inputs = {Floats({128, 384}), Floats({384, 384}), Absent(), Floats({384, 384}),
                              Absent(), Floats({384, 384}), Absent()},
                   .flops = 3 * Flops(128, 384, 384)});
  cases.push_back({.name = "product/12 of 128x32x128, B computed",
                   .call = {.name = "MatMul"},
                   .inputs = {Floats({12, 128, 32}), Floats({12, 32, 128})},
                   .flops = 12 * Flops(128, 128, 32)});
  cases.push_back(
      {.name = "product/float64 32x128x128",
       .call = {.name = "MatMul", .constants = {1}},
       .inputs = {{DType::kDouble, {32, 128}, -1, 1}, {DType::kDouble, {128, 128}, -1, 1}},
       .flops = 2 * Flops(32, 128, 128),  // half as many lanes
       .implementation = "plain loops"});
}

// Weights of 4 and 8 bits: a large one, which comes from memory, and a small one.
void AddBlockwiseProducts(std::vector<KernelCase>& cases) {
  constexpr int64_t kBlock = 32;
  const auto add = [&](int64_t bits, bool of_bytes, int64_t m, int64_t k, int64_t n) {
    if (of_bytes && !CanMultiplyBytes()) return;
    cases.push_back({.name = fmt::format("product of {} bits/{}{}x{}x{}", bits,
                                         of_bytes ? "by bytes " : "", m, k, n),
                     .call = {.name = "MatMulNBits",
                              .attributes = Attrs({{"K", k},
                                                   {"N", n},
                                                   {"bits", bits},
                                                   {"block_size", kBlock},
                                                   {"accuracy_level", int64_t{of_bytes ? 4 : 0}}}),
                              .domain = "chairlift",
                              .constants = {1, 4}},
                     .inputs = {Floats({m, k}),
                                {DType::kUInt8, {n, k / kBlock, kBlock * bits / 8}, 0, 256},
                                Absent(),
                                Absent(),
                                {DType::kFloat, {n, k / kBlock}, 0.01, 0.1}},
                     // Bytes are multiplied by fours where floats are one by one.
                     .flops = Flops(m, n, k) / (of_bytes ? 4 : 1)});
  };
  for (const int64_t bits : {4, 8}) {
    for (const bool of_bytes : {false, true}) {
      for (const int64_t m : {1, 4, 16, 128}) add(bits, of_bytes, m, 384, 1536);
      for (const int64_t m : {1, 4, 16}) add(bits, of_bytes, m, 2048, 8192);
    }
  }
}

// One image; channel-blocked but for the plain loops.
void AddConvolution(std::vector<KernelCase>& cases, const char* implementation, int64_t channels,
                    int64_t out_channels, int64_t size, int64_t kernel, int64_t groups) {
  const int64_t pad = kernel / 2;
  const bool blocked = std::string(implementation) != "plain loops";
  // 36 multiplications for 144, and the transforms not counted.
  const double share = std::string(implementation) == "winograd" ? 0.25 : 1;
  cases.push_back(
      {.name =
           fmt::format("convolution/{}x{} {}to{} of {}x{}{}", kernel, kernel, channels,
                       out_channels, size, size, groups > 1 ? fmt::format(" in {}", groups) : ""),
       .call = {.name = "Conv",
                .attributes = Attrs({{"pads", std::vector<int64_t>(4, pad)}, {"group", groups}}),
                .constants = {1, 2},
                .blocked = {.inputs = blocked ? 1u : 0u,
                            .outputs = blocked && FillsBlocks(out_channels) ? 1u : 0u}},
       .inputs = {Floats({1, channels, size, size}),
                  Floats({out_channels, channels / groups, kernel, kernel}),
                  Floats({out_channels})},
       .flops = share * Flops(out_channels, size * size, channels / groups * kernel * kernel),
       .implementation = implementation});
}

void AddConvolutions(std::vector<KernelCase>& cases) {
  AddConvolution(cases, "winograd", 64, 64, 56, 3, 1);
  AddConvolution(cases, "onednn", 64, 64, 56, 3, 1);
  AddConvolution(cases, "onednn", 64, 256, 56, 1, 1);
  AddConvolution(cases, "pointwise", 64, 256, 56, 1, 1);
  AddConvolution(cases, "pointwise", 24, 144, 56, 1, 1);
  AddConvolution(cases, "onednn", 24, 144, 56, 1, 1);
  AddConvolution(cases, "pointwise", 960, 160, 7, 1, 1);
  AddConvolution(cases, "onednn", 960, 160, 7, 1, 1);
  AddConvolution(cases, "onednn", 96, 96, 56, 3, 96);
  AddConvolution(cases, "depthwise", 96, 96, 56, 3, 96);
  for (const char* implementation : {"grouped", "onednn"}) {
    AddConvolution(cases, implementation, 128, 128, 28, 3, 32);
    AddConvolution(cases, implementation, 104, 104, 28, 3, 13);
    AddConvolution(cases, implementation, 120, 120, 28, 3, 5);
    AddConvolution(cases, implementation, 48, 96, 28, 3, 48);
  }
  AddConvolution(cases, "few outputs", 64, 3, 56, 5, 1);
  // Its taps meet half of the rows and columns: a quarter of the multiplications.
  cases.push_back({.name = "convolution/dilated 3x3 256to128 of 32x32",
                   .call = {.name = "Conv",
                            .attributes = Attrs({{"pads", std::vector<int64_t>(4, 24)},
                                                 {"dilations", std::vector<int64_t>{24, 24}}}),
                            .constants = {1},
                            .blocked = {.inputs = 1, .outputs = 1}},
                   .inputs = {Floats({1, 256, 32, 32}), Floats({128, 256, 3, 3})},
                   .flops = 0.25 * Flops(128, 32 * 32, 256 * 9),
                   .implementation = "dilated"});
  AddConvolution(cases, "plain loops", 8, 8, 28, 3, 1);
  for (const char* implementation : {"upsampling", "onednn"}) {
    cases.push_back({.name = "convolution/transposed 2x2 64to32 of 40x40",
                     .call = {.name = "ConvTranspose",
                              .attributes = Attrs({{"strides", std::vector<int64_t>{2, 2}}}),
                              .constants = {1},
                              .blocked = {.inputs = 1, .outputs = 1}},
                     .inputs = {Floats({1, 64, 40, 40}), Floats({64, 32, 2, 2})},
                     .flops = Flops(40 * 40, 32 * 4, 64),
                     .implementation = implementation});
  }
}

struct Transposed {
  int64_t channels, out_channels, size, kernel, stride;
};

void AddTransposedConvolutions(std::vector<KernelCase>& cases) {
  for (const auto& [channels, out_channels, size, kernel, stride] :
       {Transposed{24, 24, 160, 2, 2}, Transposed{256, 128, 16, 4, 2},
        Transposed{56, 1, 64, 9, 2}}) {
    const int64_t pad = (kernel - stride) / 2;
    for (const char* implementation : {"col2im", "onednn"}) {
      cases.push_back(
          {.name = fmt::format("convolution/transposed {}x{} by {}, {}to{} of {}x{}", kernel,
                               kernel, stride, channels, out_channels, size, size),
           .call = {.name = "ConvTranspose",
                    .attributes = Attrs({{"strides", std::vector<int64_t>{stride, stride}},
                                         {"pads", std::vector<int64_t>(4, pad)}}),
                    .constants = {1}},
           .inputs = {Floats({1, channels, size, size}),
                      Floats({channels, out_channels, kernel, kernel}), Floats({out_channels})},
           .flops = Flops(size * size, out_channels * kernel * kernel, channels),
           .implementation = implementation});
    }
  }
}

void AddAttention(std::vector<KernelCase>& cases) {
  for (const int64_t length : {16, 128, 512}) {
    const Input operand = Floats({1, 12, length, 32});
    cases.push_back({.name = fmt::format("attention/12 heads of {}x32", length),
                     .call = {.name = "Attention",
                              .attributes = Attrs({{"scale", 0.2f}}),
                              .domain = "chairlift"},
                     .inputs = {operand, operand, operand},
                     .flops = 2 * 12 * Flops(length, length, 32)});
  }
  const Input operand = Floats({1, 12, 128, 32});
  for (const char* implementation : {"blocks of keys", "formula"}) {
    cases.push_back({.name = "attention/ONNX's, 12 heads of 128x32",
                     .call = {.name = "Attention"},
                     .inputs = {operand, operand, operand},
                     .flops = 2 * 12 * Flops(128, 128, 32),
                     .implementation = implementation});
  }
  const Input values = Floats({1, 64, 8 * 64});
  cases.push_back({.name = "attention/linear, 8 heads of 64x64",
                   .call = {.name = "LinearAttention",
                            .attributes = Attrs({{"update_rule", std::string("gated_delta")},
                                                 {"q_num_heads", int64_t{8}},
                                                 {"kv_num_heads", int64_t{8}}})},
                   .inputs = {values,
                              {DType::kFloat, values.shape, -0.125, 0.125},
                              values,
                              Absent(),
                              {DType::kFloat, values.shape, -1, 0},
                              {DType::kFloat, {1, 64, 8}, 0, 1}},
                   // Decayed, corrected, updated and read at every token.
                   .flops = 3.5 * 64 * 8 * Flops(1, 64, 64)});
  const Input packed = Floats({512, 12, 32});
  cases.push_back(
      {.name = "attention/ragged, 4 sequences, 512 tokens",
       .call = {.name = "RaggedAttention",
                .attributes = Attrs({{"scale", 0.2f}}),
                .domain = "chairlift"},
       .inputs = {packed, packed, packed, Ints({0, 64, 192, 320, 512})},
       .flops = 2 * 12 * (Flops(64, 64, 32) + 2 * Flops(128, 128, 32) + Flops(192, 192, 32))});
}

void AddRows(std::vector<KernelCase>& cases) {
  const Input x = Floats({512, 384}), scale = Floats({384});
  cases.push_back({.name = "rows/LayerNormalization 512x384",
                   .call = {.name = "LayerNormalization", .constants = {1, 2}},
                   .inputs = {x, scale, scale}});
  cases.push_back({.name = "rows/RMSNormalization 512x384",
                   .call = {.name = "RMSNormalization", .constants = {1}},
                   .inputs = {x, scale}});
  cases.push_back({.name = "rows/SkipLayerNorm 512x384",
                   .call = {.name = "SkipLayerNorm", .domain = "chairlift", .constants = {2, 3}},
                   .inputs = {x, x, scale, scale}});
  cases.push_back({.name = "rows/Softmax 1536x128",
                   .call = {.name = "Softmax"},
                   .inputs = {Floats({1536, 128})}});
  for (const char* op : {"ReduceMean", "ReduceMax", "ReduceSum"}) {
    cases.push_back({.name = fmt::format("reduce/{} of rows 512x384", op),
                     .call = {.name = op, .constants = {1}},
                     .inputs = {x, Ints({-1})}});
  }
  cases.push_back({.name = "reduce/ReduceMean of columns 512x384",
                   .call = {.name = "ReduceMean", .constants = {1}},
                   .inputs = {x, Ints({0})}});
  cases.push_back({.name = "reduce/ArgMax of rows 512x384",
                   .call = {.name = "ArgMax", .attributes = Attrs({{"axis", int64_t{-1}}})},
                   .inputs = {x}});
  cases.push_back({.name = "reduce/MaxPool 3x3 of 64x56x56",
                   .call = {.name = "MaxPool",
                            .attributes = Attrs({{"kernel_shape", std::vector<int64_t>{3, 3}},
                                                 {"strides", std::vector<int64_t>{2, 2}}}),
                            .blocked = {.inputs = 1, .outputs = 1}},
                   .inputs = {Floats({1, 64, 56, 56})}});
}

constexpr const char* kUsualGates = "packed panels, usual gates";
constexpr const char* kAnyGates = "packed panels, any gates";

struct Recurrence {
  const char* cell;
  int64_t gates;
  const char* implementation = kUsualGates;
  DType dtype = DType::kFloat;
  bool reset_after = false;  // GRU's linear_before_reset

  bool lstm() const { return gates == 4; }
  std::string name() const { return std::string(cell) + (reset_after ? " reset after" : ""); }
  Attributes With(Attributes attributes) const {
    if (reset_after) attributes.Set("linear_before_reset", int64_t{1});
    return attributes;
  }
  double flops(int64_t rows, int64_t hidden, int64_t k) const {
    return (dtype == DType::kDouble ? 2 : 1) * Flops(rows, gates * hidden, k);
  }
};
constexpr Recurrence kLstm{.cell = "LSTM", .gates = 4};
constexpr Recurrence kGru{.cell = "GRU", .gates = 3};
constexpr Recurrence kGruResetAfter{.cell = "GRU", .gates = 3, .reset_after = true};
constexpr Recurrence kRnn{.cell = "RNN", .gates = 1};

// Weights for sums about as large as their terms.
Input RecurrentWeights(DType dtype, const Shape& shape) {
  const double most = 1 / std::sqrt(static_cast<double>(shape[shape.rank() - 1]));
  return {dtype, shape, -most, most};
}

KernelCase Step(const Recurrence& r, int64_t rows, int64_t hidden) {
  const auto numbers = [&](int64_t columns) -> Input { return {r.dtype, {rows, columns}, -1, 1}; };
  return {
      .name = fmt::format("recurrent step/{} {}x{}", r.name(), rows, hidden),
      .call = {.name = "RecurrentStep",
               .attributes = r.With(Attrs({{"cell", std::string(r.cell)}})),
               .num_outputs = r.lstm() ? 2 : 1,
               .domain = "chairlift",
               .constants = {3}},
      .inputs = {numbers(r.gates * hidden), numbers(hidden), r.lstm() ? numbers(hidden) : Absent(),
                 RecurrentWeights(r.dtype, {r.gates * hidden, hidden})},
      .flops = r.flops(rows, hidden, hidden),
      .implementation = r.implementation};
}

struct LayerShape {
  int64_t time, rows, hidden;
  int64_t features = 128;
  int64_t directions = 1;
};

KernelCase Layer(const char* family, const Recurrence& r, const LayerShape& s) {
  const int64_t columns = r.gates * s.hidden;
  return {.name = fmt::format("{}/{}{} {}x{}x{}", family, r.name(),
                              s.directions == 2 ? ", both ways," : "", s.time, s.rows, s.hidden),
          .call = {.name = r.cell,
                   .attributes = r.With(Attrs(
                       {{"direction", std::string(s.directions == 2 ? "bidirectional" : "forward")},
                        {"hidden_size", s.hidden}})),
                   .num_outputs = 2,
                   .constants = {1, 2}},
          .inputs = {{r.dtype, {s.time, s.rows, s.features}, -1, 1},
                     RecurrentWeights(r.dtype, {s.directions, columns, s.features}),
                     RecurrentWeights(r.dtype, {s.directions, columns, s.hidden})},
          .flops = r.flops(s.time * s.rows * s.directions, s.hidden, s.features + s.hidden),
          .implementation = r.implementation};
}

void AddRecurrence(std::vector<KernelCase>& cases) {
  const Recurrence any_lstm{"LSTM", 4, kAnyGates}, any_gru{"GRU", 3, kAnyGates},
      any_rnn{"RNN", 1, kAnyGates}, double_lstm{"LSTM", 4, "plain loops", DType::kDouble};
  for (const Recurrence& r : {kLstm, any_lstm, any_gru, any_rnn, double_lstm}) {
    cases.push_back(Step(r, 16, 256));
  }
  for (const Recurrence& r : {kLstm, any_lstm, kGru, kRnn}) {
    cases.push_back(Layer("recurrent", r, {32, 16, 256}));
  }
  cases.push_back(
      Layer("recurrent", kLstm, {.time = 32, .rows = 16, .hidden = 256, .directions = 2}));
  cases.push_back(Layer("recurrent", double_lstm, {8, 4, 256}));
  cases.push_back({.name = "recurrent/gates of an LSTM 64x256",
                   .call = {.name = "LstmGates", .num_outputs = 2, .domain = "chairlift"},
                   .inputs = {Floats({64, 4 * 256}), Floats({64, 256})}});
}

// Enough time steps that a call's fixed cost is small.
int64_t LayerTime(int64_t hidden) { return std::clamp<int64_t>(16384 / hidden, 16, 256); }

void AddRecurrentSizes(std::vector<KernelCase>& cases) {
  for (const Recurrence& r : {kLstm, kGru, kGruResetAfter, kRnn}) {
    for (const int64_t hidden : {16, 32, 64, 128, 256, 512, 1024, 2048}) {
      for (const int64_t rows : {1, 8, 64}) {
        cases.push_back(Step(r, rows, hidden));
        const int64_t time = LayerTime(hidden);
        KernelCase layer = Layer("recurrent layer", r, {time, rows, hidden, hidden});
        // R comes once a time step from wherever it can stay; W, X and Y once.
        const auto floats = [](int64_t n) { return 4.0 * static_cast<double>(n); };
        layer.working_set = floats(r.gates * hidden * hidden);
        layer.bytes =
            (1 + static_cast<double>(time)) * layer.working_set + floats(2 * time * rows * hidden);
        cases.push_back(layer);
      }
    }
  }
}

void AddMovements(std::vector<KernelCase>& cases) {
  const double rows = 512.0 * 384 * 4;
  cases.push_back({.name = "movement/Gather 512 rows of 384",
                   .call = {.name = "Gather", .constants = {0}},
                   .inputs = {Floats({30522, 384}), {DType::kInt64, {512}, 0, 30522}},
                   .bytes = 2 * rows});
  std::vector<int64_t> places(512);
  for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(i * 7 % 2048);
  Input indices = Ints(places);
  indices.argument = indices.argument.Reshaped(Shape{512, 1});
  cases.push_back({.name = "movement/ScatterND 512 rows of 384",
                   .call = {.name = "ScatterND"},
                   .inputs = {Floats({2048, 384}), indices, Floats({512, 384})},
                   .bytes = 2 * 4 * rows + 2 * rows});
  cases.push_back({.name = "movement/Transpose heads 128x12x32",
                   .call = {.name = "Transpose",
                            .attributes = Attrs({{"perm", std::vector<int64_t>{0, 2, 1, 3}}})},
                   .inputs = {Floats({1, 128, 12, 32})}});
  cases.push_back({.name = "movement/Transpose 1024x1024",
                   .call = {.name = "Transpose"},
                   .inputs = {Floats({1024, 1024})}});
  cases.push_back({.name = "movement/Concat 2 of 512x384",
                   .call = {.name = "Concat", .attributes = Attrs({{"axis", int64_t{1}}})},
                   .inputs = {Floats({512, 384}), Floats({512, 384})}});
}

void AddElementwise(std::vector<KernelCase>& cases) {
  const Input x = Floats({512, 1536});
  for (const char* op : {"Add", "Mul"}) {
    cases.push_back({.name = fmt::format("elementwise/{} 512x1536", op),
                     .call = {.name = op},
                     .inputs = {x, x}});
  }
  cases.push_back({.name = "elementwise/Add 512x1536 and 1536",
                   .call = {.name = "Add"},
                   .inputs = {x, Floats({1536})}});
  for (const char* op : {"Exp", "Gelu", "Relu", "Sigmoid", "Tanh"}) {
    cases.push_back(
        {.name = fmt::format("elementwise/{} 512x1536", op), .call = {.name = op}, .inputs = {x}});
  }
}

void AddQuantised(std::vector<KernelCase>& cases) {
  for (const int64_t m : {1, 128}) {
    cases.push_back(
        {.name = fmt::format("quantised/MatMulInteger {}x384x1536", m),
         .call = {.name = "MatMulInteger", .constants = {1}},
         .inputs = {Bytes({m, 384}), SignedBytes({384, 1536}), Input(Tensor::Scalar(uint8_t{3}))},
         .int8_flops = Flops(m, 1536, 384)});
  }
  const Input x_scale = Value(0.02f), w_scale = Value(0.01f), zero = Value(uint8_t{128}),
              w_zero = Value(int8_t{0}), y_scale = Value(0.25f);
  cases.push_back({.name = "quantised/QLinearMatMul 128x384x1536",
                   .call = {.name = "QLinearMatMul", .constants = {3, 5}},
                   .inputs = {Bytes({128, 384}), x_scale, zero, SignedBytes({384, 1536}), w_scale,
                              w_zero, y_scale, zero},
                   .int8_flops = Flops(128, 1536, 384)});
  const Attributes pads = Attrs({{"pads", std::vector<int64_t>(4, 1)}});
  const Input image = Bytes({1, 64, 28, 28}), kernel = SignedBytes({64, 64, 3, 3});
  const double convolution = Flops(64, 28 * 28, 64 * 9);
  cases.push_back({.name = "quantised/ConvInteger 3x3 64to64 of 28x28",
                   .call = {.name = "ConvInteger", .attributes = pads, .constants = {1}},
                   .inputs = {image, kernel, zero},
                   .int8_flops = convolution});
  cases.push_back({.name = "quantised/QLinearConv 3x3 64to64 of 28x28",
                   .call = {.name = "QLinearConv", .attributes = pads, .constants = {3, 5, 8}},
                   .inputs = {image, x_scale, zero, kernel, w_scale, w_zero, y_scale, zero,
                              Input{DType::kInt32, {64}, -999, 999}},
                   .int8_flops = convolution});
  cases.push_back({.name = "quantised/DynamicQuantizeLinear 128x384",
                   .call = {.name = "DynamicQuantizeLinear", .num_outputs = 3},
                   .inputs = {Floats({128, 384})}});
  cases.push_back({.name = "quantised/DequantizeLinear 512x384",
                   .call = {.name = "DequantizeLinear"},
                   .inputs = {Bytes({512, 384}), Input(Tensor::Scalar(0.1f))}});
}

}  // namespace

OperatorCall KernelCase::MakeCall() const {
  OperatorCall made = call;
  uint32_t seed = 1;
  for (const Input& input : inputs) {
    const bool given = input.argument.present() || input.dtype == DType::kUndefined;
    made.inputs.push_back(
        given ? input.argument
              : RandomTensor(input.dtype, input.shape, input.low, input.high, seed++));
  }
  return made;
}

const std::vector<KernelCase>& KernelCases() {
  static const auto* const kCases = [] {
    auto* cases = new std::vector<KernelCase>;
    for (const auto add :
         {AddProducts, AddBlockwiseProducts, AddConvolutions, AddTransposedConvolutions,
          AddAttention, AddRows, AddRecurrence, AddMovements, AddElementwise, AddQuantised}) {
      add(*cases);
    }
    return cases;
  }();
  return *kCases;
}

const std::vector<KernelCase>& RecurrentCases() {
  static const auto* const kCases = [] {
    auto* cases = new std::vector<KernelCase>;
    AddRecurrentSizes(*cases);
    return cases;
  }();
  return *kCases;
}

}  // namespace chairlift::testing
