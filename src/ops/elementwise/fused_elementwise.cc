// chairlift::FusedElementwise: runs the steps one after the other on a few elements in registers,
// so that memory is passed over once.
#include "ops/elementwise/fused_elementwise.h"

#include <algorithm>
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
  FloatUnary unary = {};    // if it has one operand
  FloatBinary binary = {};  // if it has two
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
    {{"Where", 3}},  // the first operand is an input of bools
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

// The source of an operation's operand: an input of the node or, from kFirstResult on, the kept
// result of a step; −1: no operand.
constexpr int64_t kFirstResult = FusedProgram::kMaxInputs;

struct Operation {
  FusedRowOp op;  // without addresses
  int64_t operand = -1;
  int64_t condition = -1;
};

struct Code {
  std::vector<Operation> operations;
  std::vector<int64_t> element_bytes;  // of each input
};

// The steps as operations on the current value, which is the result of the previous step. Results
// that are read later, or twice, are kept.
class Translator {
 public:
  Translator(const FusedProgram& program, int64_t num_inputs)
      : program_(program), num_inputs_(num_inputs), kept_(program.steps.size(), false) {}

  std::vector<Operation> Run() {
    for (int64_t s = 0; s < count(); ++s) Translate(s);  // determines which results are kept
    code_.clear();
    for (int64_t s = 0; s < count(); ++s) {
      Translate(s);
      if (kept_[s]) code_.push_back({{.code = FusedRowOp::kStore}, kFirstResult + s});
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
    // The operand that is taken as the current value, among those that are floats.
    int x = first;
    if (step.operands[first] != at_hand) {
      if (step.operands[last] == at_hand) {
        x = last;
      } else {
        code_.push_back({{.code = FusedRowOp::kLoad}, Place(step.operands[first])});
      }
    }
    Operation operation;
    operation.op.alpha = step.alpha;
    operation.op.beta = step.beta;
    if (fusable.op.operands == 1) {
      operation.op.code = FusedRowOp::Unary(fusable.unary);
    } else {
      operation.operand = Place(step.operands[x == first ? last : first]);
      operation.op.code =
          x == first ? FusedRowOp::Binary(fusable.binary) : FusedRowOp::Reversed(fusable.binary);
    }
    if (where) {
      operation.condition = step.operands[0];
      operation.op.code = x == first ? FusedRowOp::kKeepWhere : FusedRowOp::kChangeWhere;
    }
    code_.push_back(operation);
  }

  const FusedProgram& program_;
  const int64_t num_inputs_;
  std::vector<bool> kept_;
  std::vector<Operation> code_;
};

// Shorter rows are processed together, up to this many elements.
constexpr int64_t kShortRow = 512;

// Memory for operands that are not read in place: kept results, inputs of one element, and inputs
// that repeat in another way.
struct Chunks {
  alignas(64) float results[FusedProgram::kMaxSteps][kFusedRowChunk];
  alignas(64) float repeated[FusedProgram::kMaxInputs][kFusedRowChunk];
  alignas(64) float spread[FusedProgram::kMaxInputs][kShortRow];
};

// The address of an input, in the form of FusedRowOp.
struct OperandPlace {
  void* data = nullptr;  // only read
  int64_t walk = 0;
};

// rows × cols elements, contiguous.
template <typename T>
void Spread(const void* from, int64_t row_step, int64_t col_step, int64_t rows, int64_t cols,
            void* to) {
  auto* out = static_cast<T*>(to);
  for (int64_t r = 0; r < rows; ++r, out += cols) {
    const T* row = static_cast<const T*>(from) + r * row_step;
    if (col_step == 0) {
      std::fill_n(out, cols, *row);
    } else {
      std::copy_n(row, cols, out);
    }
  }
}

// Input k for rows [r, r + count) of the block, `together` rows at the same time.
OperandPlace PlaceInput(const ElementBlock& block, int64_t bytes, int k, int64_t r, int64_t count,
                        int64_t together, Chunks& chunks) {
  const int64_t row_step = block.row_step[k], col_step = block.col_step[k];
  const char* from = static_cast<const char*>(block.in[k]) + r * row_step * bytes;
  const auto spread = bytes == 1 ? Spread<uint8_t> : Spread<float>;
  const bool changes = r == 0 || row_step != 0;
  if (col_step == 1 && (together == 1 || row_step == block.cols)) {
    return {const_cast<char*>(from), -1};
  }
  if (col_step == 0 && (together == 1 || row_step == 0)) {
    if (changes) spread(from, 0, 0, 1, kFusedRowChunk, chunks.repeated[k]);
    return {chunks.repeated[k], 0};
  }
  if (changes) spread(from, row_step, col_step, count, block.cols, chunks.spread[k]);
  return {chunks.spread[k], -1};
}

void RunBlock(const ElementBlock& block) {
  const auto& code = *static_cast<const Code*>(block.program);
  const auto num_inputs = static_cast<int>(code.element_bytes.size());
  Chunks chunks;
  absl::InlinedVector<FusedRowOp, 3 * FusedProgram::kMaxSteps> ops;
  for (const Operation& operation : code.operations) {
    ops.push_back(operation.op);
    if (operation.operand >= kFirstResult) {
      ops.back().operand = chunks.results[operation.operand - kFirstResult];
    }
  }
  const int64_t together =
      std::clamp<int64_t>(kShortRow / std::max<int64_t>(block.cols, 1), 1, block.rows);
  std::array<OperandPlace, FusedProgram::kMaxInputs> places;
  for (int64_t r = 0; r < block.rows; r += together) {
    const int64_t count = std::min(together, block.rows - r);
    for (int k = 0; k < num_inputs; ++k) {
      places[k] = PlaceInput(block, code.element_bytes[k], k, r, count, together, chunks);
    }
    for (size_t i = 0; i < ops.size(); ++i) {
      const int64_t from = code.operations[i].operand, condition = code.operations[i].condition;
      if (condition >= 0) {
        ops[i].condition = static_cast<const uint8_t*>(places[condition].data);
        ops[i].condition_walk = places[condition].walk;
      }
      if (from < 0 || from >= kFirstResult) continue;
      ops[i].operand = static_cast<float*>(places[from].data);
      ops[i].walk = places[from].walk;
    }
    RunFusedRow({ops.data(), ops.size()}, static_cast<float*>(block.out) + r * block.cols,
                count * block.cols);
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

StatusOr<std::unique_ptr<Kernel>> CompileFusedElementwise(const CompileContext& context) {
  const auto num_inputs = static_cast<int64_t>(context.inputs.size());
  CHAIRLIFT_ASSIGN_OR_RETURN(const FusedProgram program,
                             FusedProgram::Load(context.attributes, static_cast<int>(num_inputs)));
  for (const FusedStep& step : program.steps) {
    if (FindFusable(step.name)->operands == 1) {
      CHAIRLIFT_RETURN_IF_ERROR(CheckUnary(step, context));
    }
  }
  auto code = std::make_shared<Code>();
  code->operations = Translator(program, num_inputs).Run();
  for (const TensorDesc& input : context.inputs) {
    code->element_bytes.push_back(static_cast<int64_t>(DTypeSize(input.dtype)));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(ElementLoop loop, ElementLoop::Make(context.inputs, context.outputs[0],
                                                                 RunBlock, {}, code.get()));
  return MakeKernel([loop = std::move(loop), code = std::move(code)](const KernelArgs& args) {
    loop.Run(args.inputs, args.outputs[0], args.team);
    return absl::OkStatus();
  });
}

Status InferFusedElementwise(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const FusedProgram program,
                             FusedProgram::Load(context.attributes(), context.num_inputs()));
  std::vector<SymbolicShape> shapes;
  DType dtype = DType::kUndefined;  // of everything except conditions
  for (int i = 0; i < context.num_inputs(); ++i) {
    if (!context.has_input(i)) return InvalidArgument("input {} is missing", i);
    const bool condition = IsCondition(program, i);
    if (!condition && dtype == DType::kUndefined) dtype = context.dtype(i);
    const DType wanted = condition ? DType::kBool : dtype;
    if (context.dtype(i) != wanted) {
      return InvalidArgument("input {} has element type {}, not {}", i, DTypeName(context.dtype(i)),
                             DTypeName(wanted));
    }
    shapes.push_back(context.shape(i));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(SymbolicShape shape, BroadcastShapes(shapes));
  if (dtype == DType::kUndefined || dtype == DType::kBool) {
    return InvalidArgument("it computes with no input");
  }
  context.set_output(0, dtype, std::move(shape));
  return absl::OkStatus();
}

// Step s of a program with `num_inputs` inputs.
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

std::optional<FusedStep> StepOf(const OperatorDef& def, const Attributes& attributes,
                                std::span<const ValueInfo> inputs) {
  std::optional<FusedStep> step;
  if (def.step != nullptr) {
    step = def.step(attributes, inputs);
  } else if (const FusableOperator* op = FindFusable(def.name);
             op != nullptr && static_cast<int>(inputs.size()) == op->operands) {
    step = FusedStep{.name = def.name};
    for (int i = 0; i < op->operands; ++i) step->operands[i] = i;
    if (!op->alpha.empty()) step->alpha = attributes.Float(op->alpha, op->alpha_default);
    if (!op->beta.empty()) step->beta = attributes.Float(op->beta, op->beta_default);
  }
  if (!step) return std::nullopt;
  for (int k = 0; k < FindFusable(step->name)->operands; ++k) {
    const DType wanted = step->name == "Where" && k == 0 ? DType::kBool : DType::kFloat;
    if (inputs[step->operands[k]].dtype != wanted) return std::nullopt;
  }
  return step;
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
    return InvalidArgument(
        "{} inputs, {} operators, {} operands and {} parameters are not a program", num_inputs,
        names.size(), operands.size(), parameters.size());
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
                .input_types = {kHalfTypes | TypeSet{DType::kFloat, DType::kBool}},
                .infer = InferFusedElementwise,
                .compile = CompileFusedElementwise,
                .in_place = true,
                .layout_agnostic = true});
}

}  // namespace chairlift
