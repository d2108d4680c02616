#include <random>

#include "device/cpu/isa.h"
#include "ops/linear/reference.h"
#include "ops/operator_harness.h"
#include "ops/thread_team.h"

namespace chairlift::testing {
namespace {

struct ConvCase {
  int64_t batch = 1, channels = 1, out_channels = 1, groups = 1;
  std::vector<int64_t> in, kernel, strides, dilations, pads, output_padding;
  bool transposed = false;

  int rank() const { return static_cast<int>(in.size()); }
  Shape WeightShape() const {
    Shape s = transposed ? Shape{channels, out_channels / groups}
                         : Shape{out_channels, channels / groups};
    for (int64_t k : kernel) s.Append(k);
    return s;
  }
  Shape InShape() const {
    Shape s{batch, channels};
    for (int64_t d : in) s.Append(d);
    return s;
  }
  Shape OutShape() const {
    Shape s{batch, out_channels};
    for (int i = 0; i < rank(); ++i) {
      const int64_t extent = (kernel[i] - 1) * dilations[i] + 1;
      s.Append(transposed ? (in[i] - 1) * strides[i] + extent + output_padding[i] - pads[i] -
                                pads[i + rank()]
                          : (in[i] + pads[i] + pads[i + rank()] - extent) / strides[i] + 1);
    }
    return s;
  }
  Attributes ToAttributes() const {
    Attributes a;
    a.Set("kernel_shape", kernel);
    a.Set("strides", strides);
    a.Set("dilations", dilations);
    a.Set("pads", pads);
    a.Set("group", groups);
    if (transposed) a.Set("output_padding", output_padding);
    return a;
  }
  std::string ToString() const {
    return fmt::format("X {} W {} Y {} groups {} strides {} dilations {} pads {}{}",
                       InShape().ToString(), WeightShape().ToString(), OutShape().ToString(),
                       groups, strides[0], dilations[0], pads[0], transposed ? " transposed" : "");
  }
};

// Every tap of every window, by the definition: scattered from the input where transposed.
std::vector<double> ReferenceConv(const ConvCase& c, const std::vector<double>& x,
                                  const std::vector<double>& w) {
  const Shape out = c.OutShape();
  const int64_t in_size = c.InShape().NumElements(2, c.rank() + 2);
  const int64_t out_size = out.NumElements(2, c.rank() + 2);
  const int64_t taps = c.WeightShape().NumElements(2, c.rank() + 2);
  std::vector<double> y(out.NumElements(), 0.0);
  const int64_t ig = c.channels / c.groups, og = c.out_channels / c.groups;
  const int64_t near_size = c.transposed ? in_size : out_size;
  for (int64_t n = 0; n < c.batch; ++n) {
    for (int64_t o = 0; o < c.out_channels; ++o) {
      for (int64_t i = 0; i < ig; ++i) {
        const int64_t channel = o / og * ig + i;
        for (int64_t p = 0; p < near_size; ++p) {
          for (int64_t t = 0; t < taps; ++t) {
            int64_t pr = p, tr = t, far = 0, scale = 1;
            bool inside = true;
            for (int a = c.rank() - 1; a >= 0; --a) {
              const int64_t near_dim = c.transposed ? c.in[a] : out[a + 2];
              const int64_t far_dim = c.transposed ? out[a + 2] : c.in[a];
              const int64_t at =
                  pr % near_dim * c.strides[a] + tr % c.kernel[a] * c.dilations[a] - c.pads[a];
              pr /= near_dim;
              tr /= c.kernel[a];
              inside = inside && at >= 0 && at < far_dim;
              far += at * scale;
              scale *= far_dim;
            }
            if (!inside) continue;
            const int64_t wi =
                c.transposed ? (channel * og + o % og) * taps + t : (o * ig + i) * taps + t;
            const int64_t xi = (n * c.channels + channel) * in_size + (c.transposed ? p : far);
            const int64_t yi = (n * c.out_channels + o) * out_size + (c.transposed ? far : p);
            y[yi] += x[xi] * w[wi];
          }
        }
      }
    }
  }
  return y;
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int64_t Pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  Tensor Values(DType dtype, const Shape& shape) {
    return RandomTensor(dtype, shape, -1, 1, static_cast<uint32_t>(engine_()));
  }

 private:
  std::mt19937 engine_;
};

ConvCase RandomCase(Random& random, bool transposed) {
  ConvCase c;
  c.transposed = transposed;
  c.batch = random.Pick(0, 9) == 0 ? 0 : random.Pick(1, 3);
  const int64_t kind = random.Pick(0, 4);
  const int64_t channel_choices[] = {1, 3, 5, 16, 17, 32};
  c.channels = channel_choices[random.Pick(0, 5)];
  c.out_channels = channel_choices[random.Pick(0, 5)];
  if (kind == 1) {  // depthwise
    c.groups = c.channels;
    c.out_channels = c.channels * random.Pick(1, 2);
  } else if (kind == 2) {
    c.groups = random.Pick(2, 4);
    c.channels = c.groups * random.Pick(1, 17);
    c.out_channels = c.groups * random.Pick(1, 17);
  }
  const int64_t rank = random.Pick(1, 3);
  for (int64_t i = 0; i < rank; ++i) {
    c.kernel.push_back(random.Pick(1, rank == 3 ? 2 : 4));
    c.strides.push_back(random.Pick(1, 3));
    c.dilations.push_back(random.Pick(1, 2));
    const int64_t extent = (c.kernel[i] - 1) * c.dilations[i] + 1;
    c.in.push_back(extent + random.Pick(0, rank == 3 ? 5 : 11));
    c.output_padding.push_back(transposed ? random.Pick(0, c.strides[i] - 1) : 0);
  }
  for (int64_t i = 0; i < 2 * rank; ++i) c.pads.push_back(random.Pick(0, c.kernel[i % rank] - 1));
  return c;
}

void Check(const ConvCase& c, Random& random, DType dtype) {
  const Tensor x = random.Values(dtype, c.InShape());
  const Tensor w = random.Values(dtype, c.WeightShape());
  OperatorCall call{.name = c.transposed ? "ConvTranspose" : "Conv",
                    .attributes = c.ToAttributes(),
                    .inputs = {x, w}};
  const bool bias = random.Pick(0, 1) != 0;
  if (bias) call.inputs.push_back(random.Values(dtype, {c.out_channels}));
  if (random.Pick(0, 3) != 0) call.constants = {1, 2};
  call.constants.resize(std::min(call.constants.size(), call.inputs.size() - 1));
  ThreadTeam team(static_cast<int>(random.Pick(1, 2)));
  const auto out = RunOperator(call, &team);
  ASSERT_TRUE(out.ok()) << out.status() << c.ToString();
  ASSERT_EQ((*out)[0].shape(), c.OutShape()) << c.ToString();
  std::vector<double> want = ReferenceConv(c, AsDoubles(x), AsDoubles(w));
  if (bias) {
    const std::vector<double> b = AsDoubles(call.inputs[2]);
    const int64_t plane = c.OutShape().NumElements(2, c.rank() + 2);
    for (size_t i = 0; i < want.size(); ++i) want[i] += b[i / plane % c.out_channels];
  }
  ExpectNear((*out)[0], want, 3e-6, c.ToString());
}

TEST(ConvTest, EqualsReferenceForRandomShapesGroupsAndWindows) {
  Random random(11);
  for (int i = 0; i < 250; ++i) {
    Check(RandomCase(random, false), random, i % 6 == 0 ? DType::kDouble : DType::kFloat);
  }
}

TEST(ConvTransposeTest, EqualsReferenceForRandomShapesGroupsAndWindows) {
  Random random(12);
  int checked = 0;
  while (checked < 200) {
    const ConvCase c = RandomCase(random, true);
    const Shape out = c.OutShape();
    if (std::any_of(out.begin() + 2, out.end(), [](int64_t d) { return d < 1; })) continue;
    Check(c, random, checked % 6 == 0 ? DType::kDouble : DType::kFloat);
    ++checked;
  }
}

// oneDNN takes none such.
TEST(ConvTransposeTest, OutputsAStrideBeyondWhatInputsReachAreZero) {
  Random random(14);
  for (size_t rank = 1; rank <= 3; ++rank) {
    ConvCase c;
    c.transposed = true;
    c.batch = 2;
    c.channels = 3;
    c.out_channels = 5;
    c.in.assign(rank, 5);
    c.kernel.assign(rank, 2);
    c.strides.assign(rank, 2);
    c.dilations.assign(rank, 3);
    c.output_padding.assign(rank, 2);
    c.pads.assign(2 * rank, 0);
    Check(c, random, DType::kFloat);
  }
}

TEST(ConvTest, LargeEnoughToBeSharedEqualsReference) {
  Random random(13);
  for (int64_t batch : {1, 2, 3}) {
    for (int64_t groups : {1, 2, 48}) {
      ConvCase c;
      c.batch = batch;
      c.channels = 48;
      c.out_channels = 96;
      c.groups = groups;
      c.in = {17, 16};
      c.kernel = {3, 3};
      c.strides = {1, 1};
      c.dilations = {1, 1};
      c.pads = {1, 1, 1, 1};
      const Tensor x = random.Values(DType::kFloat, c.InShape());
      const Tensor w = random.Values(DType::kFloat, c.WeightShape());
      const std::vector<double> want = ReferenceConv(c, AsDoubles(x), AsDoubles(w));
      for (int width : {1, 2, 3}) {
        ThreadTeam team(width);
        const auto out = RunOperator(
            {.name = "Conv", .attributes = c.ToAttributes(), .inputs = {x, w}, .constants = {1}},
            &team);
        ASSERT_TRUE(out.ok()) << out.status();
        ExpectNear((*out)[0], want, 3e-6, fmt::format("{} width {}", c.ToString(), width));
      }
    }
  }
}

// Workers share the rows of an image with a single block of outputs.
TEST(FusedConvTest, SharedByRowsEqualsReference) {
  Random random(19);
  const int64_t channel_choices[] = {1, 3, 8, 16};
  int checked = 0;
  while (checked < 40) {
    ConvCase c;
    c.batch = random.Pick(1, 2);
    c.channels = channel_choices[random.Pick(0, 3)];
    c.out_channels = channel_choices[random.Pick(0, 3)];
    if (random.Pick(0, 3) == 0) c.groups = c.out_channels = c.channels;
    const int64_t rank = random.Pick(1, 3);
    for (int64_t i = 0; i < rank; ++i) {
      c.kernel.push_back(random.Pick(1, rank == 1 ? 11 : 4));
      c.strides.push_back(random.Pick(1, 2));
      c.dilations.push_back(random.Pick(1, 2));
      const int64_t extent = (c.kernel[i] - 1) * c.dilations[i] + 1;
      c.in.push_back(extent + (rank == 1 ? random.Pick(500, 3000) : random.Pick(0, 60 / rank)));
    }
    for (int64_t i = 0; i < 2 * rank; ++i) c.pads.push_back(random.Pick(0, 2 * c.kernel[i % rank]));
    const double work = static_cast<double>(c.OutShape().NumElements()) *
                        static_cast<double>(c.WeightShape().NumElements(1, c.rank() + 2));
    if (work < 6e5 || work > 2e6) continue;  // too little to be shared, too much for the reference
    ++checked;
    const Tensor x = random.Values(DType::kFloat, c.InShape());
    const Tensor w = random.Values(DType::kFloat, c.WeightShape());
    const Tensor bias = random.Values(DType::kFloat, {c.out_channels});
    OperatorCall call{.name = "FusedConv",
                      .attributes = c.ToAttributes(),
                      .inputs = {x, w, bias, Tensor()},
                      .domain = "chairlift",
                      .constants = {1, 2}};
    const bool residual = random.Pick(0, 1) != 0;
    if (residual) call.inputs[3] = random.Values(DType::kFloat, c.OutShape());
    // Half a block and more of channels are blocked in a graph.
    call.blocked = {
        .inputs = (c.channels >= 8 ? 1u : 0u) | (residual && c.out_channels >= 8 ? 1u << 3 : 0u),
        .outputs = c.out_channels >= 8 ? 1u : 0u};
    call.attributes.Set("activation", std::string("Relu"));
    std::vector<double> want = ReferenceConv(c, AsDoubles(x), AsDoubles(w));
    const std::vector<double> r = residual ? AsDoubles(call.inputs[3]) : std::vector<double>();
    const int64_t plane = c.OutShape().NumElements(2, c.rank() + 2);
    for (size_t i = 0; i < want.size(); ++i) {
      const auto o = static_cast<size_t>(static_cast<int64_t>(i) / plane % c.out_channels);
      want[i] = std::max(0.0, want[i] + bias.data<float>()[o] + (residual ? r[i] : 0));
    }
    for (int width : {2, 3, 5}) {
      ThreadTeam team(width);
      const auto out = RunOperator(call, &team);
      ASSERT_TRUE(out.ok()) << out.status() << c.ToString();
      ExpectNear((*out)[0], want, 3e-6, fmt::format("{} width {}", c.ToString(), width));
    }
  }
}

TEST(ConvTest, PadsAutomatically) {
  // One axis of 5, kernel 2 of ones: SAME pads one element, at the end (UPPER) or start (LOWER).
  const Tensor x = Tensor::Of<float>({1, 1, 5}, {1, 2, 3, 4, 5});
  const Tensor w = Tensor::Of<float>({1, 1, 2}, {1, 1});
  const std::pair<const char*, std::vector<double>> cases[] = {
      {"SAME_UPPER", {3, 5, 7, 9, 5}}, {"SAME_LOWER", {1, 3, 5, 7, 9}}, {"VALID", {3, 5, 7, 9}}};
  for (const auto& [auto_pad, want] : cases) {
    Attributes attributes;
    attributes.Set("auto_pad", std::string(auto_pad));
    const auto out = RunOperator({.name = "Conv", .attributes = attributes, .inputs = {x, w}});
    ASSERT_TRUE(out.ok()) << out.status();
    ExpectNear((*out)[0], want, 1e-6, auto_pad);
  }
}

TEST(ConvTest, RefusesWhatDoesNotFit) {
  const auto status = [](const Shape& x, const Shape& w, int64_t groups, std::vector<int64_t> pads,
                         std::vector<int64_t> strides) {
    Attributes attributes;
    attributes.Set("group", groups);
    attributes.Set("pads", std::move(pads));
    attributes.Set("strides", std::move(strides));
    const Tensor xt = RandomTensor(DType::kFloat, x, 0, 1, 1);
    const Tensor wt = RandomTensor(DType::kFloat, w, 0, 1, 1);
    return RunOperator({.name = "Conv", .attributes = attributes, .inputs = {xt, wt}})
        .status()
        .code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(status({1, 4, 5, 5}, {4, 4, 3, 3}, 1, {0, 0, 0, 0}, {1, 1}), absl::StatusCode::kOk);
  EXPECT_EQ(status({1, 4, 5, 5}, {4, 3, 3, 3}, 1, {0, 0, 0, 0}, {1, 1}), kInvalid);
  EXPECT_EQ(status({1, 4, 5, 5}, {4, 4, 3, 3}, 0, {0, 0, 0, 0}, {1, 1}), kInvalid);
  EXPECT_EQ(status({1, 4, 5, 5}, {3, 2, 3, 3}, 2, {0, 0, 0, 0}, {1, 1}), kInvalid);
  EXPECT_EQ(status({1, 4, 5, 5}, {4, 4, 3, 3}, 1, {0, 0, 0}, {1, 1}), kInvalid);
  EXPECT_EQ(status({1, 4, 5, 5}, {4, 4, 3, 3}, 1, {0, -1, 0, 0}, {1, 1}), kInvalid);
  EXPECT_EQ(status({1, 4, 5, 5}, {4, 4, 3, 3}, 1, {0, 0, 0, 0}, {0, 1}), kInvalid);
  EXPECT_EQ(status({1, 4, 5, 5}, {4, 4, 7, 3}, 1, {0, 0, 0, 0}, {1, 1}), kInvalid);
  EXPECT_EQ(status({1, 4, 5}, {4, 4, 3, 3}, 1, {0, 0, 0, 0}, {1, 1}), kInvalid);
  EXPECT_EQ(status({1, 4}, {4, 4}, 1, {}, {}), kInvalid);
}

// The operator's own blocked form for these shapes.
BlockedForm FormOf(const OperatorCall& call, const Shape& out) {
  std::vector<ValueInfo> inputs;
  for (const Tensor& t : call.inputs) {
    inputs.push_back({t.dtype(), SymbolicShape(t.shape()), nullptr, std::nullopt});
  }
  const std::vector<ValueInfo> outputs = {
      {call.inputs[0].dtype(), SymbolicShape(out), nullptr, std::nullopt}};
  const OperatorDef* def = OperatorRegistry::Builtin().Find(call.domain, call.name);
  return def->blocked_form(call.attributes, inputs, outputs).value_or(BlockedForm{});
}

TEST(FusedConvTest, BlockedLayoutsGiveWhatRowMajorOnesGive) {
  Random random(15);
  int blocked = 0;
  for (int round = 0; round < 200; ++round) {
    ConvCase c;
    c.transposed = round % 4 == 3;
    c.batch = random.Pick(1, 3);
    const int64_t channel_choices[] = {3, 16, 32, 48, 64, 8, 9, 24, 40, 31};
    c.channels = channel_choices[random.Pick(0, 9)];
    c.out_channels = channel_choices[random.Pick(0, 9)];
    if (round % 5 == 1) {
      c.groups = c.out_channels = c.channels =
          random.Pick(0, 1) == 0 ? 16 * random.Pick(1, 4) : random.Pick(8, 50);
    } else if (round % 5 == 2) {
      c.groups = int64_t{1} << random.Pick(1, 3);
      c.channels = c.groups * 4 * random.Pick(1, 8);
      c.out_channels = c.groups * 4 * random.Pick(1, 8);
    }
    const int64_t rank = random.Pick(1, 3);
    for (int64_t i = 0; i < rank; ++i) {
      c.kernel.push_back(random.Pick(1, 3));
      c.strides.push_back(random.Pick(1, 2));
      c.dilations.push_back(random.Pick(1, 4) == 4 ? 2 : 1);
      c.in.push_back((c.kernel[i] - 1) * c.dilations[i] + random.Pick(1, rank == 3 ? 5 : 20));
      c.output_padding.push_back(0);
    }
    for (int64_t i = 0; i < 2 * rank; ++i)
      c.pads.push_back(c.transposed ? 0 : c.kernel[i % rank] / 2);
    const Tensor x = random.Values(DType::kFloat, c.InShape());
    const Tensor w = random.Values(DType::kFloat, c.WeightShape());
    OperatorCall call{.name = c.transposed ? "ConvTranspose" : "FusedConv",
                      .attributes = c.ToAttributes(),
                      .inputs = {x, w, random.Values(DType::kFloat, {c.out_channels})},
                      .domain = c.transposed ? "" : "chairlift",
                      .constants = {1, 2}};
    const bool residual = !c.transposed && random.Pick(0, 1) != 0;
    if (residual) call.inputs.push_back(random.Values(DType::kFloat, c.OutShape()));
    // The second makes other than zero of zeros.
    const std::string activation = c.transposed ? "" : round % 3 == 0 ? "Sigmoid" : "Relu";
    if (!c.transposed) call.attributes.Set("activation", activation);
    call.blocked = FormOf(call, c.OutShape());
    blocked += call.blocked.inputs != 0 && call.blocked.outputs != 0;
    ThreadTeam team(static_cast<int>(random.Pick(1, 2)));
    const auto out = RunOperator(call, &team);
    ASSERT_TRUE(out.ok()) << out.status() << c.ToString();
    std::vector<double> want = ReferenceConv(c, AsDoubles(x), AsDoubles(w));
    const std::vector<double> bias = AsDoubles(call.inputs[2]);
    const std::vector<double> r = residual ? AsDoubles(call.inputs[3]) : std::vector<double>();
    const int64_t plane = c.OutShape().NumElements(2, c.rank() + 2);
    for (size_t i = 0; i < want.size(); ++i) {
      want[i] += bias[i / plane % c.out_channels] + (residual ? r[i] : 0);
      want[i] = ReferenceActivation(activation, 0, 0, want[i]);
    }
    ExpectNear((*out)[0], want, 5e-6, c.ToString());
  }
  EXPECT_GT(blocked, 60);
}

// What a fused convolution of blocked channels adds and ends with.
struct Epilogue {
  std::string activation;
  bool bias = true;
  bool residual = false;
  int64_t scales = 0;  // for that many images, of one tap
};

// The fused convolution of random values by constants, with blocked inputs and, where they fill
// blocks, outputs, equals the reference. Returns whether `implementation` computed it: the first
// that accepts or, `by_name`, that one wherever it accepts.
bool CheckFused(const ConvCase& c, Random& random, const Epilogue& epilogue, double bound,
                const std::string& implementation, bool by_name = false) {
  const bool blocked_out = FillsBlocks(c.out_channels);
  OperatorCall call{
      .name = "FusedConv",
      .attributes = c.ToAttributes(),
      .inputs = {random.Values(DType::kFloat, c.InShape()),
                 random.Values(DType::kFloat, c.WeightShape())},
      .domain = "chairlift",
      .constants = {1},
      .blocked = {.inputs = FillsBlocks(c.channels) ? 1u : 0u, .outputs = blocked_out ? 1u : 0u}};
  call.attributes.Set("activation", epilogue.activation);
  call.attributes.Set("activation_alpha", -0.5f);
  call.attributes.Set("activation_beta", 0.7f);
  std::vector<double> x = AsDoubles(call.inputs[0]);
  Tensor scale;
  if (epilogue.scales > 0) {
    std::vector<int64_t> dims(c.in.size() + 2, 1);
    dims[0] = epilogue.scales;
    dims[1] = c.channels;
    scale = random.Values(DType::kFloat, Shape(dims));
    const int64_t plane = call.inputs[0].shape().NumElements(2, c.rank() + 2);
    for (size_t i = 0; i < x.size(); ++i) x[i] *= scale.data<float>()[i / plane % scale.size()];
  }
  std::vector<double> want = ReferenceConv(c, x, AsDoubles(call.inputs[1]));
  const bool bias = epilogue.bias || epilogue.residual || epilogue.scales > 0;
  if (bias) call.inputs.push_back(random.Values(DType::kFloat, {c.out_channels}));
  if (epilogue.residual) {
    call.inputs.push_back(random.Values(DType::kFloat, c.OutShape()));
    if (blocked_out) call.blocked.inputs |= 1u << 3;
  }
  if (epilogue.scales > 0) {
    call.inputs.resize(4);
    call.inputs.push_back(scale);
    call.blocked.inputs |= 1u << 4;
  }
  const int64_t plane = c.OutShape().NumElements(2, c.rank() + 2);
  for (size_t i = 0; i < want.size(); ++i) {
    if (bias) want[i] += call.inputs[2].data<float>()[i / plane % c.out_channels];
    if (epilogue.residual) want[i] += call.inputs[3].data<float>()[i];
    want[i] = ReferenceActivation(epilogue.activation, -0.5, 0.7, want[i]);
  }
  bool taken = true;
  for (int width : {1, 3}) {
    ThreadTeam team(width);
    KernelChoice choice{.only = by_name ? implementation : ""};
    auto compiled = CompiledCall::Make(call, width, &choice);
    if (by_name && !compiled.ok() && !choice.refused.empty()) {
      choice = {};
      compiled = CompiledCall::Make(call, width, &choice);
    }
    EXPECT_TRUE(compiled.ok()) << compiled.status() << c.ToString();
    if (!compiled.ok()) return false;
    taken = taken && choice.taken == implementation;
    EXPECT_TRUE((*compiled)->Run(team).ok());
    ExpectNear((*compiled)->Results()[0], want, bound, c.ToString());
  }
  return taken;
}

// The most of what is drawn for an axis; `more`: elements beyond those of one output.
struct Windows {
  int64_t rank = 1;
  int64_t least_taps = 1, taps = 1;
  int64_t dilation = 1, more = 0;
};

// Draws taps, strides, dilations, padding up to all of a filter, and sizes.
void DrawWindows(ConvCase& c, Random& random, const Windows& most) {
  for (int64_t i = 0; i < most.rank; ++i) {
    c.kernel.push_back(random.Pick(most.least_taps, most.taps));
    c.strides.push_back(random.Pick(1, 3));
    c.dilations.push_back(random.Pick(1, most.dilation));
    c.output_padding.push_back(0);
  }
  for (int64_t i = 0; i < 2 * most.rank; ++i) {
    c.pads.push_back(random.Pick(0, c.kernel[i % most.rank] * c.dilations[i % most.rank]));
  }
  for (int64_t i = 0; i < most.rank; ++i) {
    const int64_t reach = (c.kernel[i] - 1) * c.dilations[i] + 1;
    const int64_t least = std::max<int64_t>(1, reach - c.pads[i] - c.pads[i + most.rank]);
    c.in.push_back(least + random.Pick(0, most.more));
  }
}

TEST(FusedConvTest, LongFiltersOfOneChannelEqualReference) {
  Random random(19);
  int ours = 0;
  for (int round = 0; round < 60; ++round) {
    ConvCase c;
    c.batch = random.Pick(1, 2);
    const int64_t channel_choices[] = {16, 24, 9, 40};
    c.channels = c.out_channels = c.groups = channel_choices[random.Pick(0, 3)];
    if (round % 3 == 2) {
      DrawWindows(c, random, {.rank = 2, .taps = 15, .dilation = 3, .more = 12});
    } else {
      DrawWindows(c, random, {.rank = 1, .least_taps = 2, .taps = 60, .dilation = 3, .more = 70});
    }
    const std::string activation = round % 4 == 0 ? "Silu" : round % 4 == 1 ? "" : "Relu";
    const Epilogue epilogue{activation, round % 2 == 0, round % 5 != 0};
    ours += CheckFused(c, random, epilogue, 5e-6, "depthwise");
  }
  EXPECT_GT(ours, 15);
}

TEST(FusedConvTest, GroupsOfPartsOfBlocksEqualReference) {
  Random random(31);
  int ours = 0;
  for (int round = 0; round < 120; ++round) {
    ConvCase c;
    c.batch = random.Pick(1, 2);
    // Few channels, about a block of them, or some outputs of each channel.
    const int64_t in_group = round % 3 == 2 ? 1 : random.Pick(1, round % 3 == 0 ? 8 : 40);
    const int64_t out_group = random.Pick(1, 3) == 1 ? random.Pick(1, 20) : in_group + round % 2;
    c.groups = std::max<int64_t>(2, random.Pick(8, 60) / std::min(in_group, out_group));
    c.channels = c.groups * in_group;
    c.out_channels = c.groups * out_group;
    const int64_t rank = random.Pick(1, 2);
    DrawWindows(c, random, {.rank = rank, .taps = 4, .dilation = 2, .more = rank == 2 ? 12 : 40});
    // The first makes other than zero of what fills up the last block.
    const std::string activation = round % 4 == 0 ? "Sigmoid" : round % 4 == 1 ? "" : "Relu";
    const Epilogue epilogue{activation, round % 2 == 0, round % 5 != 0};
    ours += CheckFused(c, random, epilogue, 5e-6, "grouped");
  }
  EXPECT_GT(ours, 60);
}

TEST(FusedConvTest, FewOutputsOfBlockedChannelsEqualReference) {
  Random random(22);
  for (int round = 0; round < 60; ++round) {
    ConvCase c;
    c.batch = random.Pick(1, 2);
    c.channels = random.Pick(8, 70);
    c.out_channels = random.Pick(1, ChannelBlock() / 2 - 1);
    const int64_t rank = random.Pick(1, 2);
    for (int64_t i = 0; i < rank; ++i) {
      c.kernel.push_back(random.Pick(1, 9));
      c.strides.push_back(random.Pick(1, 2));
      c.dilations.push_back(random.Pick(1, 2));
      c.output_padding.push_back(0);
      c.in.push_back((c.kernel[i] - 1) * c.dilations[i] + random.Pick(1, 30));
    }
    for (int64_t i = 0; i < 2 * rank; ++i) c.pads.push_back(random.Pick(0, c.kernel[i % rank]));
    const std::string activation = round % 3 == 0 ? "Sigmoid" : round % 3 == 1 ? "" : "Clip";
    // Sums of up to 5,700 products are some 25 on the way and clipped at the end: with 2^-24 of
    // that lost in each of up to 700 additions in a row, errors of 4e-5 are to be expected.
    EXPECT_TRUE(CheckFused(c, random, {activation, true, round % 2 == 0}, 1e-4, "few outputs"));
  }
}

TEST(FusedConvTest, OneInputEqualsReference) {
  Random random(26);
  for (const char* activation : {"", "Relu", "Sigmoid"}) {
    for (int64_t out_channels : {8, 16, 20}) {
      ConvCase c;
      c.channels = 1;
      c.out_channels = out_channels;
      c.in = c.kernel = c.strides = c.dilations = {1, 1};
      c.pads = {0, 0, 0, 0};
      c.output_padding = {0, 0};
      EXPECT_TRUE(CheckFused(c, random, {activation}, 5e-6, "onednn")) << activation;
    }
  }
}

TEST(FusedConvTest, OneTapEqualsReference) {
  Random random(24);
  int ours = 0;
  for (int round = 0; round < 80; ++round) {
    ConvCase c;
    c.batch = random.Pick(1, 3);
    c.channels = random.Pick(8, 120);
    c.out_channels = round % 10 == 0 ? 16 * ChannelBlock() : random.Pick(8, 120);
    const int64_t rank = random.Pick(1, 2);
    for (int64_t i = 0; i < rank; ++i) {
      c.kernel.push_back(1);
      c.strides.push_back(random.Pick(1, 2));
      c.dilations.push_back(1);
      c.output_padding.push_back(0);
      c.in.push_back(random.Pick(1, rank == 1 ? 400 : 30));
    }
    c.pads.assign(2 * rank, 0);
    if (round % 7 == 0) {
      c.groups = random.Pick(2, 3);
      c.channels = c.groups * 32;
      c.out_channels = c.groups * 16 * random.Pick(1, 3);
    }
    const char* const activations[] = {"", "Relu", "Clip", "Silu", "Gelu", "HardSwish"};
    const Epilogue epilogue{.activation = activations[round % 6],
                            .bias = round % 4 != 0,
                            .residual = round % 3 == 0,
                            .scales = round % 2 == 0 || c.groups > 1 ? 0
                                      : random.Pick(0, 1) != 0       ? c.batch
                                                                     : 1};
    // With vectors of eight, oneDNN's comes first where no input is scaled.
    const bool by_name = ActiveCpuIsa() == CpuIsa::kAvx2;
    ours += CheckFused(c, random, epilogue, 5e-6, "pointwise", by_name);
  }
  EXPECT_GT(ours, 70);
}

TEST(FusedConvTest, WideDilationsEqualReference) {
  Random random(23);
  int ours = 0;
  for (int round = 0; round < 40; ++round) {
    ConvCase c;
    c.batch = random.Pick(1, 2);
    c.channels = round % 8 == 0 ? 400 : random.Pick(8, 70);
    c.out_channels = random.Pick(8, 70);
    const int64_t rank = random.Pick(1, 2);
    for (int64_t i = 0; i < rank; ++i) {
      c.kernel.push_back(random.Pick(2, 4));
      c.strides.push_back(1);
      c.dilations.push_back(random.Pick(2, 9));
      c.output_padding.push_back(0);
    }
    for (int64_t i = 0; i < 2 * rank; ++i) {
      c.pads.push_back((c.kernel[i % rank] - 1) * c.dilations[i % rank] / 2);
    }
    for (int64_t i = 0; i < rank; ++i) c.in.push_back(random.Pick(rank == 1 ? 9 : 5, 20));
    const Epilogue epilogue{round % 2 == 0 ? "Relu" : "", true, round % 3 == 0};
    ours += CheckFused(c, random, epilogue, 5e-6, "dilated");
  }
  EXPECT_GT(ours, 15);
}

TEST(FusedConvTest, WhereTheInputIsEmptyThePaddingIsConvolved) {
  Random random(37);
  for (const int64_t channels : {32, 7}) {
    for (const auto& [height, width] : {std::pair(4, 0), {0, 4}, {0, 0}}) {
      ConvCase c;
      c.groups = c.channels = c.out_channels = channels;
      c.kernel = {3, 3};
      c.strides = c.dilations = {1, 1};
      c.output_padding = {0, 0};
      c.pads = {2, 2, 2, 2};
      c.in = {height, width};
      EXPECT_FALSE(CheckFused(c, random, {"Relu", true, false}, 5e-6, "depthwise"));
    }
  }
}

TEST(ConvTest, TapsThatMeetNoInputChangeNothing) {
  Random random(20);
  for (int round = 0; round < 150; ++round) {
    ConvCase c;
    c.channels = c.out_channels = round % 3 == 0 ? 16 : random.Pick(1, 5);
    if (round % 4 == 0) c.groups = c.channels;
    const int64_t rank = random.Pick(1, 2);
    for (int64_t i = 0; i < rank; ++i) {
      c.kernel.push_back(random.Pick(1, 5));
      c.strides.push_back(random.Pick(1, 3));
      c.dilations.push_back(random.Pick(1, 9));
      c.output_padding.push_back(0);
    }
    for (int64_t i = 0; i < 2 * rank; ++i) {
      c.pads.push_back(random.Pick(0, c.kernel[i % rank] * c.dilations[i % rank]));
    }
    for (int64_t i = 0; i < rank; ++i) {
      const int64_t reach = (c.kernel[i] - 1) * c.dilations[i] + 1;
      c.in.push_back(std::max<int64_t>(1, reach - c.pads[i] - c.pads[i + rank]) +
                     random.Pick(0, 4));
    }
    Check(c, random, round % 5 == 0 ? DType::kDouble : DType::kFloat);
  }
}

TEST(ConvTest, AxesOfOneElementChangeNothing) {
  Random random(21);
  for (const bool transposed : {false, true}) {
    for (const int unit : {0, 1}) {
      ConvCase c;
      c.transposed = transposed;
      c.batch = 2;
      c.channels = 24;
      c.out_channels = 40;
      c.in = {37, 37};
      c.kernel = {5, 5};
      c.strides = {2, 2};
      c.dilations = {2, 2};
      c.pads = {3, 3, 1, 1};
      c.output_padding = {0, 0};
      c.in[unit] = c.kernel[unit] = 1;
      c.pads[unit] = c.pads[unit + 2] = 0;
      Check(c, random, DType::kFloat);
      Check(c, random, DType::kDouble);
    }
  }
}

TEST(ConvTransposeTest, UpsamplingOfBlockedChannelsEqualsReference) {
  Random random(17);
  for (const auto& [batch, height, factor] : std::vector<std::array<int64_t, 3>>{
           {1, 5, 2}, {2, 17, 2}, {3, 3, 3}, {1, 1, 1}, {1, 13, 4}}) {
    for (int64_t out_channels : {16, 48, 1, 3, 30}) {
      ConvCase c;
      c.transposed = true;
      c.batch = batch;
      c.channels = 32;
      c.out_channels = out_channels;
      c.in = {height, height + 2};
      c.kernel = c.strides = {factor, 2};
      c.dilations = {1, 1};
      c.pads = {0, 0, 0, 0};
      c.output_padding = {0, 0};
      const Tensor x = random.Values(DType::kFloat, c.InShape());
      const Tensor w = random.Values(DType::kFloat, c.WeightShape());
      OperatorCall call{.name = "FusedConvTranspose",
                        .attributes = c.ToAttributes(),
                        .inputs = {x, w},
                        .domain = "chairlift",
                        .constants = {1},
                        .blocked = {.inputs = 1, .outputs = out_channels % 16 == 0 ? 1u : 0u}};
      const std::string activation = factor == 2 ? "Elu" : factor == 3 ? "Sigmoid" : "";
      call.attributes.Set("activation", activation);
      call.attributes.Set("activation_alpha", 0.3f);
      std::vector<double> want = ReferenceConv(c, AsDoubles(x), AsDoubles(w));
      if (batch > 1) {
        call.inputs.push_back(random.Values(DType::kFloat, {out_channels}));
        const std::vector<double> bias = AsDoubles(call.inputs[2]);
        const int64_t plane = c.OutShape().NumElements(2, 4);
        for (size_t i = 0; i < want.size(); ++i) want[i] += bias[i / plane % out_channels];
      }
      for (double& v : want) v = ReferenceActivation(activation, 0.3, 0, v);
      for (int width : {1, 2, 5}) {
        ThreadTeam team(width);
        const auto out = RunOperator(call, &team);
        ASSERT_TRUE(out.ok()) << out.status();
        ExpectNear((*out)[0], want, 3e-6, c.ToString());
      }
    }
  }
}

TEST(FusedConvTest, SmallImagesOfManyChannelsEqualReference) {
  Random random(18);
  for (const int64_t size : {6, 7, 8, 11}) {
    for (const std::string activation : {"", "Relu", "Silu"}) {
      ConvCase c;
      c.channels = c.out_channels = 64;
      c.in = {size, size};
      c.kernel = {3, 3};
      c.strides = c.dilations = {1, 1};
      c.pads = {1, 1, 1, 1};
      const Tensor x = random.Values(DType::kFloat, c.InShape());
      const Tensor w = random.Values(DType::kFloat, c.WeightShape());
      std::vector<double> want = ReferenceConv(c, AsDoubles(x), AsDoubles(w));
      for (double& v : want) v = ReferenceActivation(activation, 0, 0, v);
      OperatorCall call{.name = "FusedConv",
                        .attributes = c.ToAttributes(),
                        .inputs = {x, w},
                        .domain = "chairlift",
                        .constants = {1},
                        .blocked = {.inputs = 1, .outputs = 1}};
      call.attributes.Set("activation", activation);
      for (int width : {1, 2}) {
        ThreadTeam team(width);
        const auto out = RunOperator(call, &team);
        ASSERT_TRUE(out.ok()) << out.status();
        ExpectNear((*out)[0], want, 1e-5, activation + " " + c.ToString());
      }
    }
  }
}

TEST(FusedConvTest, AddsTheResidualAndAppliesEveryActivation) {
  Random random(14);
  const std::vector<std::string> activations = {"",        "Relu", "LeakyRelu",   "Clip",
                                                "Sigmoid", "Tanh", "HardSigmoid", "HardSwish",
                                                "Silu",    "Elu",  "Gelu",        "GeluTanh"};
  int checked = 0;
  while (checked < 168) {
    ConvCase c = RandomCase(random, checked % 7 < 2);
    if (c.batch == 0) continue;
    const std::string& activation = activations[checked++ % activations.size()];
    const DType dtype = checked % 5 == 0 ? DType::kDouble : DType::kFloat;
    const Tensor x = random.Values(dtype, c.InShape());
    const Tensor w = random.Values(dtype, c.WeightShape());
    const bool residual = !c.transposed && random.Pick(0, 1) != 0;
    OperatorCall call{.name = c.transposed ? "FusedConvTranspose" : "FusedConv",
                      .attributes = c.ToAttributes(),
                      .inputs = {x, w, Tensor()},
                      .domain = "chairlift",
                      .constants = {1}};
    if (!c.transposed) call.inputs.push_back(Tensor());
    if (residual) call.inputs[3] = random.Values(dtype, c.OutShape());
    const float alpha = activation == "Clip" ? -0.5f : 0.2f, beta = 0.6f;
    call.attributes.Set("activation", activation);
    call.attributes.Set("activation_alpha", alpha);
    call.attributes.Set("activation_beta", beta);
    ThreadTeam team(static_cast<int>(random.Pick(1, 2)));
    const auto out = RunOperator(call, &team);
    ASSERT_TRUE(out.ok()) << out.status() << c.ToString();
    std::vector<double> want = ReferenceConv(c, AsDoubles(x), AsDoubles(w));
    const std::vector<double> r = residual ? AsDoubles(call.inputs[3]) : std::vector<double>();
    for (size_t i = 0; i < want.size(); ++i) {
      want[i] = ReferenceActivation(activation, alpha, beta, want[i] + (residual ? r[i] : 0));
    }
    ExpectNear((*out)[0], want, 5e-6, activation + " " + c.ToString());
  }
}

}  // namespace
}  // namespace chairlift::testing
