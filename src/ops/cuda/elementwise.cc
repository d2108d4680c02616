// Elementwise operators. float32 and 16-bit floats are programs of steps computed in float32, as
// fused on the CPU. Everything else is a single operation on any types.
#include "ops/cuda/elementwise.cuh"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "ops/broadcast.h"
#include "ops/cuda/kernels.h"
#include "ops/elementwise/fused_elementwise.h"

namespace chairlift::cuda {
namespace {

const std::map<std::string, ElementOp, std::less<>>& OpsByName() {
  static const auto* const kOps = new std::map<std::string, ElementOp, std::less<>>{
      {"Abs", ElementOp::kAbs},
      {"Neg", ElementOp::kNeg},
      {"Sqrt", ElementOp::kSqrt},
      {"Reciprocal", ElementOp::kReciprocal},
      {"Exp", ElementOp::kExp},
      {"Log", ElementOp::kLog},
      {"Sin", ElementOp::kSin},
      {"Cos", ElementOp::kCos},
      {"Tan", ElementOp::kTan},
      {"Sinh", ElementOp::kSinh},
      {"Cosh", ElementOp::kCosh},
      {"Asin", ElementOp::kAsin},
      {"Acos", ElementOp::kAcos},
      {"Atan", ElementOp::kAtan},
      {"Asinh", ElementOp::kAsinh},
      {"Acosh", ElementOp::kAcosh},
      {"Atanh", ElementOp::kAtanh},
      {"Tanh", ElementOp::kTanh},
      {"Erf", ElementOp::kErf},
      {"Floor", ElementOp::kFloor},
      {"Ceil", ElementOp::kCeil},
      {"Round", ElementOp::kRound},
      {"Sign", ElementOp::kSign},
      {"Sigmoid", ElementOp::kSigmoid},
      {"HardSigmoid", ElementOp::kHardSigmoid},
      {"HardSwish", ElementOp::kHardSwish},
      {"Relu", ElementOp::kRelu},
      {"LeakyRelu", ElementOp::kLeakyRelu},
      {"ThresholdedRelu", ElementOp::kThresholdedRelu},
      {"Elu", ElementOp::kElu},
      {"Selu", ElementOp::kSelu},
      {"Celu", ElementOp::kCelu},
      {"Softplus", ElementOp::kSoftplus},
      {"Softsign", ElementOp::kSoftsign},
      {"Mish", ElementOp::kMish},
      {"Gelu", ElementOp::kGelu},
      {"GeluTanh", ElementOp::kGeluTanh},
      {"Silu", ElementOp::kSilu},
      {"Clip", ElementOp::kClip},
      {"Scale", ElementOp::kScale},
      {"Add", ElementOp::kAdd},
      {"Sub", ElementOp::kSub},
      {"Mul", ElementOp::kMul},
      {"Div", ElementOp::kDiv},
      {"Max", ElementOp::kMax},
      {"Min", ElementOp::kMin},
      {"PRelu", ElementOp::kPRelu},
      {"Where", ElementOp::kWhere},
      {"Pow", ElementOp::kPow},
      {"Not", ElementOp::kNot},
      {"BitwiseNot", ElementOp::kBitwiseNot},
      {"IsNaN", ElementOp::kIsNan},
      {"Equal", ElementOp::kEqual},
      {"Less", ElementOp::kLess},
      {"LessOrEqual", ElementOp::kLessOrEqual},
      {"Greater", ElementOp::kGreater},
      {"GreaterOrEqual", ElementOp::kGreaterOrEqual},
      {"And", ElementOp::kAnd},
      {"Or", ElementOp::kOr},
      {"Xor", ElementOp::kXor},
      {"BitwiseAnd", ElementOp::kBitwiseAnd},
      {"BitwiseOr", ElementOp::kBitwiseOr},
      {"BitwiseXor", ElementOp::kBitwiseXor},
  };
  return *kOps;
}

bool IsFused(DType dtype) { return dtype == DType::kFloat || kHalfTypes.Contains(dtype); }

StatusOr<ElementLoops> LoopsOf(std::span<const TensorDesc> inputs, const Shape& output) {
  std::vector<Shape> shapes;
  for (const TensorDesc& input : inputs) shapes.push_back(input.shape);
  CHAIRLIFT_ASSIGN_OR_RETURN(const BroadcastLoop loop, MakeBroadcastLoop(shapes, output));
  ElementLoops loops = {};
  if (loop.dims.size() > kMaxElementDims || inputs.size() > kMaxElementInputs) {
    return Unimplemented("broadcasting over more than {} dimensions or {} inputs", kMaxElementDims,
                         kMaxElementInputs);
  }
  loops.num_dims = static_cast<int>(loop.dims.size());
  loops.size = loop.size;
  std::copy(loop.dims.begin(), loop.dims.end(), loops.dims);
  for (size_t k = 0; k < inputs.size(); ++k) {
    std::copy(loop.strides[k].begin(), loop.strides[k].end(), loops.strides[k]);
  }
  return loops;
}

ElementInputs InputsOf(std::span<const void* const> inputs) {
  ElementInputs all = {};
  std::copy_n(inputs.begin(), std::min<size_t>(inputs.size(), kMaxElementInputs), all.data);
  return all;
}

// Steps on inputs of one float type, computed in float32.
StatusOr<std::unique_ptr<Kernel>> RunSteps(const CompileContext& context,
                                           std::span<const FusedStep> steps, size_t num_inputs) {
  const std::span<const TensorDesc> inputs = context.inputs.first(num_inputs);
  const TensorDesc& output = context.outputs[0];
  CHAIRLIFT_ASSIGN_OR_RETURN(const ElementLoops loops, LoopsOf(inputs, output.shape));
  if (steps.size() > kMaxElementSteps) return Unimplemented("more than {} steps", kMaxElementSteps);
  ElementProgram program = {};
  program.num_inputs = static_cast<int>(num_inputs);
  program.num_steps = static_cast<int>(steps.size());
  for (size_t i = 0; i < num_inputs; ++i) {
    program.condition[i] = inputs[i].dtype == DType::kBool;
    if (!program.condition[i] && inputs[i].dtype != output.dtype) {
      return Unimplemented("{} beside {}", DTypeName(inputs[i].dtype), DTypeName(output.dtype));
    }
  }
  for (size_t s = 0; s < steps.size(); ++s) {
    const auto op = OpsByName().find(steps[s].name);
    if (op == OpsByName().end()) return Unimplemented("step {}", steps[s].name);
    program.steps[s].op = op->second;
    for (int k = 0; k < 3; ++k) {
      program.steps[s].operands[k] =
          static_cast<int8_t>(std::max<int64_t>(steps[s].operands[k], 0));
    }
    program.steps[s].alpha = steps[s].alpha;
    program.steps[s].beta = steps[s].beta;
  }
  return MakeKernel([program, loops, dtype = output.dtype](const KernelArgs& args) {
    LaunchElementProgram(program, loops, InputsOf(args.inputs), dtype, args.outputs[0],
                         StreamOf(args).handle());
    return Launched("element-wise steps");
  });
}

// One operation on the first inputs.
StatusOr<std::unique_ptr<Kernel>> RunOperation(const CompileContext& context, ElementStep step,
                                               size_t num_inputs) {
  const std::span<const TensorDesc> inputs = context.inputs.first(num_inputs);
  CHAIRLIFT_ASSIGN_OR_RETURN(const ElementLoops loops, LoopsOf(inputs, context.outputs[0].shape));
  std::vector<DType> types;
  for (const TensorDesc& input : inputs) types.push_back(input.dtype);
  return MakeKernel([step, loops, types = std::move(types),
                     out = context.outputs[0].dtype](const KernelArgs& args) {
    LaunchElementOp(step, static_cast<int>(types.size()), loops, InputsOf(args.inputs),
                    types.data(), out, args.outputs[0], StreamOf(args).handle());
    return Launched("an element-wise operation");
  });
}

StatusOr<std::unique_ptr<Kernel>> CompileFused(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(
      const FusedProgram program,
      FusedProgram::Load(context.attributes, static_cast<int>(context.inputs.size())));
  return RunSteps(context, program.steps, context.inputs.size());
}

// As a step on floats if the operator's own rule provides one; else as an operation.
StatusOr<std::unique_ptr<Kernel>> CompileStep(const CompileContext& context, const char* name) {
  const OperatorDef* const def = OperatorRegistry::Builtin().Find("", name);
  const DType dtype = context.outputs[0].dtype;
  std::vector<ValueInfo> infos;
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    const TensorDesc& input = context.inputs[i];
    ValueInfo info;
    info.dtype =
        IsFused(input.dtype) || input.dtype == DType::kDouble ? DType::kFloat : input.dtype;
    info.shape = SymbolicShape(input.shape);
    infos.push_back(std::move(info));
  }
  std::optional<FusedStep> step;
  const bool absent = std::any_of(context.inputs.begin(), context.inputs.end(),
                                  [](const TensorDesc& desc) { return !desc.present(); });
  if (!absent && kFloatTypes.Contains(dtype)) step = StepOf(*def, context.attributes, infos);
  if (step && IsFused(dtype)) return RunSteps(context, {&*step, 1}, context.inputs.size());
  const auto op = OpsByName().find(step ? step->name : std::string(name));
  if (absent || op == OpsByName().end()) {
    return Unimplemented("{} of {}", name, DTypeName(context.inputs[0].dtype));
  }
  // Operations with a special meaning for integers.
  static constexpr ElementOp kOfIntegers[] = {ElementOp::kAbs,
                                              ElementOp::kNeg,
                                              ElementOp::kSign,
                                              ElementOp::kRelu,
                                              ElementOp::kNot,
                                              ElementOp::kBitwiseNot,
                                              ElementOp::kAdd,
                                              ElementOp::kSub,
                                              ElementOp::kMul,
                                              ElementOp::kDiv,
                                              ElementOp::kMax,
                                              ElementOp::kMin,
                                              ElementOp::kEqual,
                                              ElementOp::kLess,
                                              ElementOp::kLessOrEqual,
                                              ElementOp::kGreater,
                                              ElementOp::kGreaterOrEqual,
                                              ElementOp::kAnd,
                                              ElementOp::kOr,
                                              ElementOp::kXor,
                                              ElementOp::kBitwiseAnd,
                                              ElementOp::kBitwiseOr,
                                              ElementOp::kBitwiseXor,
                                              ElementOp::kWhere};
  const bool floats = kFloatTypes.Contains(context.inputs[0].dtype);
  if (!floats && std::find(std::begin(kOfIntegers), std::end(kOfIntegers), op->second) ==
                     std::end(kOfIntegers)) {
    return Unimplemented("{} of {}", name, DTypeName(context.inputs[0].dtype));
  }
  ElementStep own = {op->second, {0, 1, 2}, 0, 0};
  if (step) {
    own.alpha = step->alpha;
    own.beta = step->beta;
  } else {
    const bool has_attributes = FindFusable(name) != nullptr && !FindFusable(name)->alpha.empty();
    if (has_attributes) return Unimplemented("{} of {}", name, DTypeName(dtype));
  }
  return RunOperation(context, own, context.inputs.size());
}

template <const char* const& kName>
StatusOr<std::unique_ptr<Kernel>> Compile(const CompileContext& context) {
  return CompileStep(context, kName);
}

// The name of each operator, as a template argument of its compile function.
constexpr const char* kAbs = "Abs";
constexpr const char* kNeg = "Neg";
constexpr const char* kSqrt = "Sqrt";
constexpr const char* kReciprocal = "Reciprocal";
constexpr const char* kExp = "Exp";
constexpr const char* kLog = "Log";
constexpr const char* kSin = "Sin";
constexpr const char* kCos = "Cos";
constexpr const char* kTan = "Tan";
constexpr const char* kSinh = "Sinh";
constexpr const char* kCosh = "Cosh";
constexpr const char* kAsin = "Asin";
constexpr const char* kAcos = "Acos";
constexpr const char* kAtan = "Atan";
constexpr const char* kAsinh = "Asinh";
constexpr const char* kAcosh = "Acosh";
constexpr const char* kAtanh = "Atanh";
constexpr const char* kTanh = "Tanh";
constexpr const char* kErf = "Erf";
constexpr const char* kFloor = "Floor";
constexpr const char* kCeil = "Ceil";
constexpr const char* kRound = "Round";
constexpr const char* kSign = "Sign";
constexpr const char* kSigmoid = "Sigmoid";
constexpr const char* kHardSigmoid = "HardSigmoid";
constexpr const char* kHardSwish = "HardSwish";
constexpr const char* kRelu = "Relu";
constexpr const char* kLeakyRelu = "LeakyRelu";
constexpr const char* kThresholdedRelu = "ThresholdedRelu";
constexpr const char* kElu = "Elu";
constexpr const char* kSelu = "Selu";
constexpr const char* kCelu = "Celu";
constexpr const char* kSoftplus = "Softplus";
constexpr const char* kSoftsign = "Softsign";
constexpr const char* kMish = "Mish";
constexpr const char* kSilu = "Silu";
constexpr const char* kSwish = "Swish";
constexpr const char* kAdd = "Add";
constexpr const char* kSub = "Sub";
constexpr const char* kMul = "Mul";
constexpr const char* kDiv = "Div";
constexpr const char* kPRelu = "PRelu";
constexpr const char* kPow = "Pow";
constexpr const char* kWhere = "Where";
constexpr const char* kNot = "Not";
constexpr const char* kBitwiseNot = "BitwiseNot";
constexpr const char* kIsNaN = "IsNaN";
constexpr const char* kEqual = "Equal";
constexpr const char* kLess = "Less";
constexpr const char* kLessOrEqual = "LessOrEqual";
constexpr const char* kGreater = "Greater";
constexpr const char* kGreaterOrEqual = "GreaterOrEqual";
constexpr const char* kAnd = "And";
constexpr const char* kOr = "Or";
constexpr const char* kXor = "Xor";
constexpr const char* kBitwiseAnd = "BitwiseAnd";
constexpr const char* kBitwiseOr = "BitwiseOr";
constexpr const char* kBitwiseXor = "BitwiseXor";

// Its bounds, if they are scalar constants; absent: none.
StatusOr<std::unique_ptr<Kernel>> CompileClip(const CompileContext& context) {
  const DType dtype = context.inputs[0].dtype;
  if (!IsFused(dtype)) return Unimplemented("Clip of {}", DTypeName(dtype));
  FusedStep step{.name = "Clip",
                 .operands = {0, -1, -1},
                 .alpha = -std::numeric_limits<float>::infinity(),
                 .beta = std::numeric_limits<float>::infinity()};
  for (int i = 1; i < 3; ++i) {
    if (!context.has_input(i)) continue;
    const Tensor* const end = context.constant(i);
    if (end == nullptr) return Unimplemented("an end that is not a constant");
    float& to = i == 1 ? step.alpha : step.beta;
    if (dtype == DType::kFloat) to = end->data<float>()[0];
    if (dtype == DType::kFloat16) to = static_cast<float>(end->data<Float16>()[0]);
    if (dtype == DType::kBFloat16) to = static_cast<float>(end->data<BFloat16>()[0]);
  }
  return RunSteps(context, {&step, 1}, 1);
}

StatusOr<std::unique_ptr<Kernel>> CompileGelu(const CompileContext& context) {
  if (!IsFused(context.inputs[0].dtype)) return Unimplemented("Gelu of float64");
  const bool tanh = context.attributes.String("approximate", "none") == "tanh";
  const FusedStep step{.name = tanh ? "GeluTanh" : "Gelu", .operands = {0, -1, -1}};
  return RunSteps(context, {&step, 1}, 1);
}

StatusOr<std::unique_ptr<Kernel>> CompileCast(const CompileContext& context) {
  return RunOperation(context, {ElementOp::kIdentity, {0, 0, 0}, 0, 0}, 1);
}

StatusOr<std::unique_ptr<Kernel>> CompileMod(const CompileContext& context) {
  const bool fmod = context.attributes.Int("fmod", 0) != 0;
  if (!fmod || !kFloatTypes.Contains(context.inputs[0].dtype)) {
    return Unimplemented("remainders with the divisor's sign, or of integers");
  }
  return RunOperation(context, {ElementOp::kFmod, {0, 1, 2}, 0, 0}, 2);
}

// For any number of floats, from left to right.
StatusOr<std::unique_ptr<Kernel>> CompileVariadic(const CompileContext& context, const char* step,
                                                  bool mean) {
  const auto count = static_cast<int64_t>(context.inputs.size());
  if (!IsFused(context.inputs[0].dtype) || count > kMaxElementInputs) {
    if (count == 2 && !mean) return CompileStep(context, step);
    return Unimplemented("{} inputs of {}", count, DTypeName(context.inputs[0].dtype));
  }
  std::vector<FusedStep> steps;
  int64_t at = 0;
  for (int64_t i = 1; i < count; ++i) {
    steps.push_back({.name = step, .operands = {at, i, -1}});
    at = count + i - 1;
  }
  if (mean && count > 1) {
    steps.push_back(
        {.name = "Scale", .operands = {at, -1, -1}, .alpha = 1.0f / static_cast<float>(count)});
  }
  if (steps.empty()) return RunOperation(context, {ElementOp::kIdentity, {0, 0, 0}, 0, 0}, 1);
  return RunSteps(context, steps, context.inputs.size());
}

StatusOr<std::unique_ptr<Kernel>> CompileMax(const CompileContext& context) {
  return CompileVariadic(context, "Max", false);
}
StatusOr<std::unique_ptr<Kernel>> CompileMin(const CompileContext& context) {
  return CompileVariadic(context, "Min", false);
}
StatusOr<std::unique_ptr<Kernel>> CompileSum(const CompileContext& context) {
  return CompileVariadic(context, "Add", false);
}

StatusOr<std::unique_ptr<Kernel>> CompileMean(const CompileContext& context) {
  return CompileVariadic(context, "Add", true);
}

}  // namespace

std::span<const KernelEntry> ElementwiseKernels() {
  static const KernelEntry kKernels[] = {
      {"chairlift", "FusedElementwise", CompileFused},
      {"", "Cast", CompileCast},
      {"", "CastLike", CompileCast},
      {"", "Clip", CompileClip},
      {"", "Gelu", CompileGelu},
      {"", "Mod", CompileMod},
      {"", "Max", CompileMax},
      {"", "Min", CompileMin},
      {"", "Sum", CompileSum},
      {"", "Mean", CompileMean},
      {"", kAbs, Compile<kAbs>},
      {"", kNeg, Compile<kNeg>},
      {"", kSqrt, Compile<kSqrt>},
      {"", kReciprocal, Compile<kReciprocal>},
      {"", kExp, Compile<kExp>},
      {"", kLog, Compile<kLog>},
      {"", kSin, Compile<kSin>},
      {"", kCos, Compile<kCos>},
      {"", kTan, Compile<kTan>},
      {"", kSinh, Compile<kSinh>},
      {"", kCosh, Compile<kCosh>},
      {"", kAsin, Compile<kAsin>},
      {"", kAcos, Compile<kAcos>},
      {"", kAtan, Compile<kAtan>},
      {"", kAsinh, Compile<kAsinh>},
      {"", kAcosh, Compile<kAcosh>},
      {"", kAtanh, Compile<kAtanh>},
      {"", kTanh, Compile<kTanh>},
      {"", kErf, Compile<kErf>},
      {"", kFloor, Compile<kFloor>},
      {"", kCeil, Compile<kCeil>},
      {"", kRound, Compile<kRound>},
      {"", kSign, Compile<kSign>},
      {"", kSigmoid, Compile<kSigmoid>},
      {"", kHardSigmoid, Compile<kHardSigmoid>},
      {"", kHardSwish, Compile<kHardSwish>},
      {"", kRelu, Compile<kRelu>},
      {"", kLeakyRelu, Compile<kLeakyRelu>},
      {"", kThresholdedRelu, Compile<kThresholdedRelu>},
      {"", kElu, Compile<kElu>},
      {"", kSelu, Compile<kSelu>},
      {"", kCelu, Compile<kCelu>},
      {"", kSoftplus, Compile<kSoftplus>},
      {"", kSoftsign, Compile<kSoftsign>},
      {"", kMish, Compile<kMish>},
      {"", kSilu, Compile<kSilu>},
      {"", kSwish, Compile<kSwish>},
      {"", kAdd, Compile<kAdd>},
      {"", kSub, Compile<kSub>},
      {"", kMul, Compile<kMul>},
      {"", kDiv, Compile<kDiv>},
      {"", kPRelu, Compile<kPRelu>},
      {"", kPow, Compile<kPow>},
      {"", kWhere, Compile<kWhere>},
      {"", kNot, Compile<kNot>},
      {"", kBitwiseNot, Compile<kBitwiseNot>},
      {"", kIsNaN, Compile<kIsNaN>},
      {"", kEqual, Compile<kEqual>},
      {"", kLess, Compile<kLess>},
      {"", kLessOrEqual, Compile<kLessOrEqual>},
      {"", kGreater, Compile<kGreater>},
      {"", kGreaterOrEqual, Compile<kGreaterOrEqual>},
      {"", kAnd, Compile<kAnd>},
      {"", kOr, Compile<kOr>},
      {"", kXor, Compile<kXor>},
      {"", kBitwiseAnd, Compile<kBitwiseAnd>},
      {"", kBitwiseOr, Compile<kBitwiseOr>},
      {"", kBitwiseXor, Compile<kBitwiseXor>},
  };
  return kKernels;
}

}  // namespace chairlift::cuda
