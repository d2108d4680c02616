// chairlift::FusedElementwise: the steps run one after the other on a few elements that stay in
// registers, so that memory is passed over once.
#include "ops/elementwise/fused_elementwise.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/float_simd.h"
#include "ops/elementwise/fused_row.h"

namespace chairlift {
namespace {

struct Fusable {
  FusableOperator op;
  FloatUnary unary = {};    // where it has one operand
  FloatBinary binary = {};  // where it has two
};

constexpr float kSeluAlpha = 1.67326319217681884765625f, kSeluGamma = 1.05070102214813232421875f;

constexpr Fusable kFusable[] = {
    {{"Abs", 1}, FloatUnary::kAbs},
    {{"Neg", 1}, FloatUnary::kNeg},
    {{"Sqrt", 1}, FloatUnary::kSqrt},
    {{"Reciprocal", 1}, FloatUnary::kReciprocal},
    {{"Exp", 1}, FloatUnary::kExp},
    {{"Log", 1}, FloatUnary::kLog},
    {{"Sin", 1}, FloatUnary::kSin},
    {{"Cos", 1}, FloatUnary::kCos},
    {{"Tanh", 1}, FloatUnary::kTanh},
    {{"Erf", 1}, FloatUnary::kErf},
    {{"Floor", 1}, FloatUnary::kFloor},
    {{"Ceil", 1}, FloatUnary::kCeil},
    {{"Round", 1}, FloatUnary::kRound},
    {{"Sigmoid", 1}, FloatUnary::kSigmoid},
    {{"HardSigmoid", 1, "alpha", 0.2f, "beta", 0.5f}, FloatUnary::kHardSigmoid},
    {{"HardSwish", 1}, FloatUnary::kHardSwish},
    {{"Relu", 1}, FloatUnary::kRelu},
    {{"LeakyRelu", 1, "alpha", 0.01f}, FloatUnary::kLeakyRelu},
    {{"ThresholdedRelu", 1, "alpha", 1.0f}, FloatUnary::kThresholdedRelu},
    {{"Elu", 1, "alpha", 1.0f}, FloatUnary::kElu},
    {{"Selu", 1, "alpha", kSeluAlpha, "gamma", kSeluGamma}, FloatUnary::kSelu},
    {{"Celu", 1, "alpha", 1.0f}, FloatUnary::kCelu},
    {{"Softplus", 1}, FloatUnary::kSoftplus},
    {{"Softsign", 1}, FloatUnary::kSoftsign},
    {{"Mish", 1}, FloatUnary::kMish},
    {{"Gelu", 1}, FloatUnary::kGelu},
    {{"GeluTanh", 1}, FloatUnary::kGeluTanh},
    {{"Silu", 1}, FloatUnary::kSilu},
    {{"Clip", 1}, FloatUnary::kClip},
    {{"Add", 2}, {}, FloatBinary::kAdd},
    {{"Sub", 2}, {}, FloatBinary::kSub},
    {{"Mul", 2}, {}, FloatBinary::kMul},
    {{"Div", 2}, {}, FloatBinary::kDiv},
    {{"Max", 2}, {}, FloatBinary::kMax},
    {{"Min", 2}, {}, FloatBinary::kMin},
    {{"PRelu", 2}, {}, FloatBinary::kPRelu},
    {{"Where", 3}},  // the first operand is an input of truth values
};

const Fusable* Find(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFusable), std::end(kFusable),
                                   [&](const Fusable& f) { return f.op.name == name; });
  return found == std::end(kFusable) ? nullptr : found;
}

bool IsCondition(const FusedProgram& program, int64_t input) {
  return std::any_of(program.steps.begin(), program.steps.end(), [&](const FusedStep& step) {
    return step.name == "Where" && step.operands[0] == input;
  });
}

// --- The kernel ---

// Where an operation's operand comes from: an input of the node, or, from kFirstResult on, the kept
// result of a step; −1 for none.
constexpr int64_t kFirstResult = FusedProgram::kMaxInputs;

struct Operation {
  FusedRowOp op;  // without addresses
  int64_t operand = -1;
  int64_t condition = -1;
};

using Code = std::vector<Operation>;

// The steps as operations on the value at hand, which is the result of the step before. Results
// that are read later, or twice, are kept.
class Translator {
 public:
  Translator(const FusedProgram& program, int64_t num_inputs)
      : program_(program), num_inputs_(num_inputs), kept_(program.steps.size(), false) {}

  Code Run() {
    for (int64_t s = 0; s < count(); ++s) Translate(s);  // finds out what is kept
    code_.clear();
    for (int64_t s = 0; s < count(); ++s) {
      Translate(s);
      if (kept_[s]) code_.push_back({{.kind = FusedRowOp::kStore}, kFirstResult + s});
    }
    return std::move(code_);
  }

 private:
  int64_t count() const { return static_cast<int64_t>(program_.steps.size()); }

  // The value in memory.
  int64_t Place(int64_t value) {
    if (value < num_inputs_) return value;
    kept_[value - num_inputs_] = true;
    return kFirstResult + value - num_inputs_;
  }

  void Translate(int64_t s) {
    const FusedStep& step = program_.steps[s];
    const Fusable& fusable = *Find(step.name);
    const int64_t at_hand = s == 0 ? -1 : num_inputs_ + s - 1;
    const bool where = fusable.op.operands == 3;
    const int first = where ? 1 : 0, last = fusable.op.operands - 1;
    // Of the operands that are numbers, the one taken as the value at hand.
    int x = first;
    if (step.operands[first] != at_hand) {
      if (step.operands[last] == at_hand) {
        x = last;
      } else {
        code_.push_back({{.kind = FusedRowOp::kLoad}, Place(step.operands[first])});
      }
    }
    Operation operation;
    operation.op.unary = fusable.unary;
    operation.op.binary = fusable.binary;
    operation.op.alpha = step.alpha;
    operation.op.beta = step.beta;
    if (fusable.op.operands == 1) {
      operation.op.kind = FusedRowOp::kUnary;
    } else {
      operation.operand = Place(step.operands[x == first ? last : first]);
      operation.op.kind = x == first ? FusedRowOp::kBinary : FusedRowOp::kReversed;
    }
    if (where) {
      operation.condition = step.operands[0];
      operation.op.kind = x == first ? FusedRowOp::kKeepWhere : FusedRowOp::kChangeWhere;
    }
    code_.push_back(operation);
  }

  const FusedProgram& program_;
  const int64_t num_inputs_;
  std::vector<bool> kept_;
  Code code_;
};

// Memory for operands that are not read where they lie: kept results, and inputs that repeat along
// the row.
struct Chunks {
  alignas(64) float results[FusedProgram::kMaxSteps][kFusedRowChunk];
  alignas(64) float repeats[FusedProgram::kMaxInputs][kFusedRowChunk];
};

void RunBlock(const ElementBlock& block) {
  const auto& code = *static_cast<const Code*>(block.program);
  Chunks chunks;
  absl::InlinedVector<FusedRowOp, 3 * FusedProgram::kMaxSteps> ops;
  for (const Operation& operation : code) {
    ops.push_back(operation.op);
    if (operation.operand >= kFirstResult) {
      ops.back().operand = chunks.results[operation.operand - kFirstResult];
    }
  }
  const auto walks = [&](int64_t input) { return block.col_step[input] != 0; };
  for (int64_t r = 0; r < block.rows; ++r) {
    for (size_t i = 0; i < ops.size(); ++i) {
      const int64_t from = code[i].operand, condition = code[i].condition;
      if (condition >= 0) {
        const auto* at =
            static_cast<const uint8_t*>(block.in[condition]) + r * block.row_step[condition];
        ops[i].condition_walks = walks(condition);
        ops[i].condition = at;
        if (!ops[i].condition_walks) {
          void* repeat = chunks.repeats[condition];
          std::memset(repeat, *at, kFusedRowChunk);
          ops[i].condition = static_cast<const uint8_t*>(repeat);
        }
      }
      if (from < 0 || from >= kFirstResult) continue;
      // Only read: kStore goes to results.
      auto* at =
          const_cast<float*>(static_cast<const float*>(block.in[from])) + r * block.row_step[from];
      ops[i].walks = walks(from);
      ops[i].operand = at;
      if (ops[i].walks) continue;
      ops[i].operand = chunks.repeats[from];
      if (r == 0 || block.row_step[from] != 0) std::fill_n(ops[i].operand, kFusedRowChunk, *at);
    }
    RunFusedRow({ops.data(), ops.size()}, static_cast<float*>(block.out) + r * block.cols,
                block.cols);
  }
}

// A function of one operand reads as many elements as it writes.
Status CheckUnary(const FusedStep& step, const CompileContext& context) {
  const int64_t operand = step.operands[0];
  if (operand >= static_cast<int64_t>(context.inputs.size())) return absl::OkStatus();
  const Shape& shape = context.inputs[operand].shape;
  if (shape.NumElements() == context.outputs[0].size()) return absl::OkStatus();
  return InvalidArgument("step {} reads input {} of shape {}, not that of the result, {}",
                         step.name, operand, shape.ToString(), context.outputs[0].shape.ToString());
}

StatusOr<std::unique_ptr<Kernel>> Compile(const CompileContext& context) {
  const auto num_inputs = static_cast<int64_t>(context.inputs.size());
  CHAIRLIFT_ASSIGN_OR_RETURN(const FusedProgram program,
                             FusedProgram::Load(context.attributes, static_cast<int>(num_inputs)));
  for (const FusedStep& step : program.steps) {
    if (FindFusable(step.name)->operands == 1) {
      CHAIRLIFT_RETURN_IF_ERROR(CheckUnary(step, context));
    }
  }
  auto code = std::make_shared<const Code>(Translator(program, num_inputs).Run());
  CHAIRLIFT_ASSIGN_OR_RETURN(ElementLoop loop, ElementLoop::Make(context.inputs, context.outputs[0],
                                                                 RunBlock, {}, code.get()));
  return MakeKernel([loop = std::move(loop), code = std::move(code)](const KernelArgs& args) {
    loop.Run(args.inputs, args.outputs[0], args.team);
    return absl::OkStatus();
  });
}

Status Infer(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const FusedProgram program,
                             FusedProgram::Load(context.attributes(), context.num_inputs()));
  std::vector<SymbolicShape> shapes;
  for (int i = 0; i < context.num_inputs(); ++i) {
    if (!context.has_input(i)) return InvalidArgument("input {} is missing", i);
    const DType wanted = IsCondition(program, i) ? DType::kBool : DType::kFloat;
    if (context.dtype(i) != wanted) {
      return InvalidArgument("input {} has element type {}, not {}", i, DTypeName(context.dtype(i)),
                             DTypeName(wanted));
    }
    shapes.push_back(context.shape(i));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(SymbolicShape shape, BroadcastShapes(shapes));
  context.set_output(0, DType::kFloat, std::move(shape));
  return absl::OkStatus();
}

// Step s of a program of so many inputs.
Status CheckStep(const FusedProgram& program, int64_t s, int64_t num_inputs) {
  const FusedStep& step = program.steps[s];
  const FusableOperator* op = FindFusable(step.name);
  if (op == nullptr) return InvalidArgument("step {} is '{}', which cannot be one", s, step.name);
  for (int k = 0; k < FusedStep::kMaxOperands; ++k) {
    const int64_t operand = step.operands[k];
    const bool truth = op->operands == 3 && k == 0;
    const bool fits = k >= op->operands ? operand == -1
                                        : operand >= 0 && operand < num_inputs + s &&
                                              IsCondition(program, operand) == truth &&
                                              (!truth || operand < num_inputs);
    if (!fits) {
      return InvalidArgument("step {} ({}) has value {} for operand {}", s, step.name, operand, k);
    }
  }
  return absl::OkStatus();
}

}  // namespace

const FusableOperator* FindFusable(std::string_view name) {
  const Fusable* found = Find(name);
  return found == nullptr ? nullptr : &found->op;
}

void FusedProgram::Store(Attributes& attributes) const {
  std::vector<std::string> names;
  std::vector<int64_t> operands;
  std::vector<float> parameters;
  for (const FusedStep& step : steps) {
    names.push_back(step.name);
    operands.insert(operands.end(), step.operands.begin(), step.operands.end());
    parameters.insert(parameters.end(), {step.alpha, step.beta});
  }
  attributes.Set("operators", std::move(names));
  attributes.Set("operands", std::move(operands));
  attributes.Set("parameters", std::move(parameters));
}

StatusOr<FusedProgram> FusedProgram::Load(const Attributes& attributes, int num_inputs) {
  const std::vector<std::string> names = attributes.Strings("operators");
  const std::vector<int64_t> operands = attributes.Ints("operands");
  const std::vector<float> parameters = attributes.Floats("parameters");
  if (num_inputs > kMaxInputs || names.empty() || names.size() > kMaxSteps ||
      operands.size() != FusedStep::kMaxOperands * names.size() ||
      parameters.size() != 2 * names.size()) {
    return InvalidArgument("{} inputs, {} operators, {} operands and {} parameters are no program",
                           num_inputs, names.size(), operands.size(), parameters.size());
  }
  FusedProgram program;
  for (size_t s = 0; s < names.size(); ++s) {
    FusedStep step{.name = names[s], .alpha = parameters[2 * s], .beta = parameters[2 * s + 1]};
    std::copy_n(operands.begin() + static_cast<ptrdiff_t>(FusedStep::kMaxOperands * s),
                FusedStep::kMaxOperands, step.operands.begin());
    program.steps.push_back(std::move(step));
  }
  for (size_t s = 0; s < names.size(); ++s) {
    CHAIRLIFT_RETURN_IF_ERROR(CheckStep(program, static_cast<int64_t>(s), num_inputs));
  }
  return program;
}

void RegisterFusedElementwise(OperatorRegistry& registry) {
  registry.Add({.domain = "chairlift",
                .name = "FusedElementwise",
                .max_inputs = FusedProgram::kMaxInputs,
                .input_types = {TypeSet{DType::kFloat, DType::kBool}},
                .infer = Infer,
                .compile = Compile,
                .in_place = true,
                .layout_agnostic = true});
}

}  // namespace chairlift
