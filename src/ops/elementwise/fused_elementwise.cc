// chairlift::FusedElementwise: the steps run one after the other on a tile that stays in the
// first-level cache, so that memory is passed over once.
#include "ops/elementwise/fused_elementwise.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/float_simd.h"

namespace chairlift {
namespace {

// Floats of all intermediate tiles together, and of one at most: half a first-level cache, the
// other half being for the operands.
constexpr int64_t kTileFloats = 4096;
constexpr int64_t kMaxTile = 1024;

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

struct Instruction {
  ElementFn fn;
  ElementParams params;
  int num_operands;
  // An input of the node, or, from kMaxInputs on, an intermediate tile.
  std::array<int, FusedStep::kMaxOperands> operands;
  int tile;  // it writes; −1: the output
};

constexpr int kFirstTile = FusedProgram::kMaxInputs;

struct Code {
  std::vector<Instruction> instructions;
  std::array<int64_t, FusedProgram::kMaxInputs> element_bytes = {};
  int64_t tile = 0;  // floats
};

// Which tile each step's result lies in: one is free again once its last reader has run.
void AssignTiles(const FusedProgram& program, int64_t num_inputs, Code& code) {
  const auto count = static_cast<int64_t>(program.steps.size());
  std::vector<int64_t> last_reader(program.steps.size(), -1);
  for (int64_t s = 0; s < count; ++s) {
    for (int64_t operand : program.steps[s].operands) {
      if (operand >= num_inputs) last_reader[operand - num_inputs] = s;
    }
  }
  std::vector<int> tile_of(program.steps.size(), -1);
  std::vector<bool> busy;
  for (int64_t s = 0; s < count; ++s) {
    Instruction& instruction = code.instructions[s];
    instruction.tile = -1;
    if (s + 1 < count) {
      const auto free = std::find(busy.begin(), busy.end(), false);
      instruction.tile = tile_of[s] = static_cast<int>(free - busy.begin());
      if (free == busy.end()) busy.push_back(false);
      busy[instruction.tile] = true;
    }
    for (int k = 0; k < instruction.num_operands; ++k) {
      const int64_t operand = program.steps[s].operands[k];
      if (operand < num_inputs) {
        instruction.operands[k] = static_cast<int>(operand);
        continue;
      }
      const int tile = tile_of[operand - num_inputs];
      instruction.operands[k] = kFirstTile + tile;
      if (last_reader[operand - num_inputs] == s) busy[tile] = false;
    }
  }
  const int64_t tiles = std::max<int64_t>(1, static_cast<int64_t>(busy.size()));
  code.tile = std::min(kMaxTile, kTileFloats / tiles / 16 * 16);
}

// Tile after tile of whole rows, or of pieces of one row.
void RunBlock(const ElementBlock& block) {
  const auto& code = *static_cast<const Code*>(block.program);
  alignas(64) float tiles[kTileFloats + 16];  // and what a vector may read past the end
  const int64_t cols = std::min(block.cols, code.tile);
  const int64_t rows = std::clamp<int64_t>(code.tile / std::max<int64_t>(cols, 1), 1, block.rows);
  for (int64_t r = 0; r < block.rows; r += rows) {
    for (int64_t c = 0; c < block.cols; c += cols) {
      for (const Instruction& instruction : code.instructions) {
        ElementBlock part{{},
                          nullptr,
                          std::min(rows, block.rows - r),
                          std::min(cols, block.cols - c),
                          {},
                          {},
                          instruction.params};
        for (int k = 0; k < instruction.num_operands; ++k) {
          const int from = instruction.operands[k];
          if (from >= kFirstTile) {
            part.in[k] = tiles + (from - kFirstTile) * code.tile;
            part.row_step[k] = part.cols;
            part.col_step[k] = 1;
          } else {
            const int64_t at = r * block.row_step[from] + c * block.col_step[from];
            part.in[k] = static_cast<const char*>(block.in[from]) + at * code.element_bytes[from];
            part.row_step[k] = block.row_step[from];
            part.col_step[k] = block.col_step[from];
          }
        }
        part.out = instruction.tile < 0 ? static_cast<float*>(block.out) + r * block.cols + c
                                        : tiles + instruction.tile * code.tile;
        instruction.fn(part);
      }
    }
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
  auto code = std::make_shared<Code>();
  for (const FusedStep& step : program.steps) {
    const Fusable& fusable = *Find(step.name);
    Instruction instruction{};
    instruction.params = {step.alpha, step.beta};
    instruction.num_operands = fusable.op.operands;
    switch (fusable.op.operands) {
      case 1:
        CHAIRLIFT_RETURN_IF_ERROR(CheckUnary(step, context));
        instruction.fn = FindFloatUnary(fusable.unary);
        break;
      case 2:
        instruction.fn = FindFloatBinary(fusable.binary);
        break;
      default:
        instruction.fn = FindFloatWhere();
    }
    code->instructions.push_back(instruction);
  }
  for (int64_t i = 0; i < num_inputs; ++i) {
    code->element_bytes[i] = static_cast<int64_t>(DTypeSize(context.inputs[i].dtype));
  }
  AssignTiles(program, num_inputs, *code);
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
