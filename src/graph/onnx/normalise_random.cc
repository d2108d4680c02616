// Rules for random operators. All numbers come from chairlift::Random, which computes them from the
// request's seeds (ImportedModel::seeds); the rest is arithmetic.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "graph/onnx/normalise_rules.h"
#include "ops/element_type.h"

namespace chairlift::normalise {
namespace {

bool HasOperand(const OnnxNode& node, size_t i) {
  return i < node.inputs.size() && node.inputs[i] != kNoValue;
}

Attributes TypeOf(const char* name, DType dtype) {
  Attributes attributes;
  attributes.Set(name, OnnxOfElementType(dtype));
  return attributes;
}

// The type of attribute `dtype`, or `otherwise`.
StatusOr<DType> TypeFrom(const OnnxNode& node, DType otherwise) {
  if (!node.attributes.Has("dtype")) return otherwise;
  const int64_t number = node.attributes.Int("dtype", 0);
  const DType dtype = ElementTypeOfOnnx(number);
  if (dtype != DType::kUndefined) return dtype;
  return Unimplemented("its attribute 'dtype' is {}, an element type that is not supported",
                       number);
}

StatusOr<DType> FloatFrom(const OnnxNode& node, DType otherwise) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const DType dtype, TypeFrom(node, otherwise));
  if (kFloatTypes.Contains(dtype)) return dtype;
  return InvalidArgument("it gives {}; it must be one of the float types: set 'dtype'",
                         DTypeName(dtype));
}

struct Numbers {
  const char* distribution;
  DType dtype;
  float offset = 0, scale = 1;
};

// `node` becomes its source of random numbers, of the shape of `like`, or of attribute `shape`.
void BecomeRandom(OnnxNode& node, const Numbers& numbers, ValueId like) {
  Attributes attributes = TypeOf("dtype", numbers.dtype);
  attributes.Set("distribution", std::string(numbers.distribution));
  attributes.Set("stream", node.stream);
  attributes.Set("offset", numbers.offset);
  attributes.Set("scale", numbers.scale);
  if (const float* seed = node.attributes.Find<float>("seed")) attributes.Set("seed", *seed);
  if (const auto* seed = node.attributes.Find<int64_t>("seed")) {
    attributes.Set("seed", static_cast<float>(*seed));
  }
  if (like == kNoValue) attributes.Set("shape", node.attributes.Ints("shape"));
  node.domain = "chairlift";
  node.op_type = "Random";
  node.attributes = std::move(attributes);
  node.inputs = {node.seeds};
  if (like != kNoValue) node.inputs.push_back(like);
}

StatusOr<ValueId> Draw(const OnnxNode& node, Rewriter& rewriter, const Numbers& numbers,
                       ValueId like) {
  OnnxNode random = node;
  random.name = node.name + "/Random";
  BecomeRandom(random, numbers, like);
  const ValueId drawn = rewriter.NewValue();
  random.outputs = {drawn};
  CHAIRLIFT_RETURN_IF_ERROR(rewriter.AddBefore(std::move(random)));
  return drawn;
}

Status CheckOperands(const OnnxNode& node, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (node.inputs.size() != count || !HasOperand(node, i)) {
      return InvalidArgument("it takes {} inputs, not {}", count, node.inputs.size());
    }
  }
  if (node.outputs.size() == 1) return absl::OkStatus();
  return InvalidArgument("it gives 1 output, not {}", node.outputs.size());
}

Numbers NormalNumbers(const OnnxNode& node, DType dtype) {
  return {"normal", dtype, node.attributes.Float("mean", 0), node.attributes.Float("scale", 1)};
}

StatusOr<Numbers> UniformNumbers(const OnnxNode& node, DType dtype) {
  const float low = node.attributes.Float("low", 0), high = node.attributes.Float("high", 1);
  if (low <= high) return Numbers{"uniform", dtype, low, high - low};
  return InvalidArgument(
      "its attributes 'low' and 'high' are {} and {}; 'high' must be at least 'low'", low, high);
}

Status CheckShape(const OnnxNode& node) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckOperands(node, 0));
  if (node.attributes.Has("shape")) return absl::OkStatus();
  return InvalidArgument("its attribute 'shape' is missing");
}

// The constant that a scalar is, or null.
const Tensor* KnownOperand(const OnnxNode& node, const Rewriter& rewriter, size_t i) {
  if (!HasOperand(node, i)) return nullptr;
  const Tensor* const value = rewriter.info(node.inputs[i]).value;
  return value != nullptr && value->size() == 1 ? value : nullptr;
}

bool IsKnownZero(const Tensor* ratio) {
  if (ratio == nullptr) return false;
  if (ratio->dtype() == DType::kFloat) return ratio->data<float>()[0] == 0;
  if (ratio->dtype() == DType::kDouble) return ratio->data<double>()[0] == 0;
  return ratio->dtype() == DType::kFloat16 && static_cast<float>(ratio->data<Float16>()[0]) == 0;
}

bool Trains(const OnnxNode& node, const Rewriter& rewriter) {
  if (node.opset < 12 || !HasOperand(node, 2)) return false;
  const Tensor* const training = KnownOperand(node, rewriter, 2);
  const bool off =
      training != nullptr && training->dtype() == DType::kBool && !training->data<bool>()[0];
  return !off && !IsKnownZero(KnownOperand(node, rewriter, 1));
}

}  // namespace

Status RandomNormal(OnnxNode& node, Rewriter&) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckShape(node));
  CHAIRLIFT_ASSIGN_OR_RETURN(const DType dtype, FloatFrom(node, DType::kFloat));
  BecomeRandom(node, NormalNumbers(node, dtype), kNoValue);
  return absl::OkStatus();
}

Status RandomUniform(OnnxNode& node, Rewriter&) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckShape(node));
  CHAIRLIFT_ASSIGN_OR_RETURN(const DType dtype, FloatFrom(node, DType::kFloat));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Numbers numbers, UniformNumbers(node, dtype));
  BecomeRandom(node, numbers, kNoValue);
  return absl::OkStatus();
}

Status RandomNormalLike(OnnxNode& node, Rewriter& rewriter) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckOperands(node, 1));
  const ValueId like = node.inputs[0];
  CHAIRLIFT_ASSIGN_OR_RETURN(const DType dtype, FloatFrom(node, rewriter.info(like).dtype));
  BecomeRandom(node, NormalNumbers(node, dtype), like);
  return absl::OkStatus();
}

Status RandomUniformLike(OnnxNode& node, Rewriter& rewriter) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckOperands(node, 1));
  const ValueId like = node.inputs[0];
  CHAIRLIFT_ASSIGN_OR_RETURN(const DType dtype, FloatFrom(node, rewriter.info(like).dtype));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Numbers numbers, UniformNumbers(node, dtype));
  BecomeRandom(node, numbers, like);
  return absl::OkStatus();
}

// 1 with the probability in the input, else 0.
Status Bernoulli(OnnxNode& node, Rewriter& rewriter) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckOperands(node, 1));
  ValueId p = node.inputs[0];
  const DType given = rewriter.info(p).dtype;
  CHAIRLIFT_ASSIGN_OR_RETURN(const DType dtype, TypeFrom(node, given));
  const DType drawn = given == DType::kDouble ? given : DType::kFloat;
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId u, Draw(node, rewriter, {"uniform", drawn}, p));
  if (given != drawn) {
    CHAIRLIFT_ASSIGN_OR_RETURN(p, rewriter.Add("Cast", kNewestOpset, TypeOf("to", drawn), {p}));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId below, rewriter.Add("Less", kNewestOpset, {}, {u, p}));
  node.op_type = "Cast";
  node.attributes = TypeOf("to", dtype);
  node.inputs = {below};
  return absl::OkStatus();
}

// Classes by their unnormalised log-probabilities: the largest after Gumbel noise is added (Gumbel,
// 1954; Maddison et al., "A* Sampling", 2014).
Status Multinomial(OnnxNode& node, Rewriter& rewriter) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckOperands(node, 1));
  CHAIRLIFT_ASSIGN_OR_RETURN(const DType dtype, TypeFrom(node, DType::kInt32));
  if (!kIndexTypes.Contains(dtype)) {
    return InvalidArgument("its attribute 'dtype' is {}; it must be int32 or int64",
                           DTypeName(dtype));
  }
  const int64_t samples = node.attributes.Int("sample_size", 1);
  if (samples < 1)
    return InvalidArgument("its attribute 'sample_size' is {}, not above 0", samples);
  const SymbolicShape shape = rewriter.info(node.inputs[0]).shape;
  if (shape.has_rank() && shape.rank() != 2) {
    return InvalidArgument("its input has shape {}; it must be [batch, classes]", shape.ToString());
  }
  const auto add = [&](const char* op, Attributes attributes, std::vector<ValueId> inputs) {
    return rewriter.Add(op, kNewestOpset, std::move(attributes), std::move(inputs));
  };
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId single,
                             add("Unsqueeze", {}, {node.inputs[0], rewriter.ConstantInts({{1}})}));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId repeated,
                             add("Expand", {}, {single, rewriter.ConstantInts({{1, samples, 1}})}));
  const DType given = rewriter.info(node.inputs[0]).dtype;
  const DType drawn = given == DType::kDouble ? given : DType::kFloat;
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId noise,
                             Draw(node, rewriter, {"gumbel", drawn}, repeated));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId wide, add("Cast", TypeOf("to", drawn), {single}));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId noisy, add("Add", {}, {wide, noise}));
  Attributes last;
  last.Set("axis", int64_t{2});
  last.Set("keepdims", int64_t{0});
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId chosen, add("ArgMax", last, {noisy}));
  node.op_type = "Cast";
  node.attributes = TypeOf("to", dtype);
  node.inputs = {chosen};
  return absl::OkStatus();
}

// Drops elements with probability `ratio`, and scales the others by 1 / (1 - ratio).
Status DropoutTraining(OnnxNode& node, Rewriter& rewriter) {
  if (!Trains(node, rewriter)) {
    if (node.inputs.size() > 2) node.inputs.resize(2);  // its ratio is 0
    return absl::OkStatus();
  }
  if (!HasOperand(node, 0) || node.inputs.size() > 3 || node.outputs.empty() ||
      node.outputs.size() > 2) {
    return InvalidArgument("it takes 1 to 3 inputs and gives 1 or 2 outputs");
  }
  const ValueId x = node.inputs[0];
  const DType drawn = rewriter.info(x).dtype == DType::kDouble ? DType::kDouble : DType::kFloat;
  const auto add = [&](const char* op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return rewriter.Add(op, kNewestOpset, std::move(attributes), std::move(inputs));
  };
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId u, Draw(node, rewriter, {"uniform", drawn}, x));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId zero, ScalarLike(rewriter, u, 0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId one, ScalarLike(rewriter, u, 1));
  CHAIRLIFT_ASSIGN_OR_RETURN(ValueId ratio, ScalarLike(rewriter, u, 0.5f));
  if (HasOperand(node, 1)) {
    CHAIRLIFT_ASSIGN_OR_RETURN(ratio, add("Cast", {node.inputs[1]}, TypeOf("to", drawn)));
  }
  const Tensor* const training = KnownOperand(node, rewriter, 2);
  if (training == nullptr) {  // a request may turn it off
    CHAIRLIFT_ASSIGN_OR_RETURN(ratio, add("Where", {node.inputs[2], ratio, zero}));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId kept, add("Sub", {one, ratio}));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId wide_factor, add("Reciprocal", {kept}));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId factor, add("CastLike", {wide_factor, x}));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId scaled, add("Mul", {x, factor}));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId nothing, ScalarLike(rewriter, x, 0));
  OnnxNode mask;
  mask.name = node.name + "/mask";
  mask.op_type = "GreaterOrEqual";
  mask.opset = kNewestOpset;
  mask.inputs = {u, ratio};
  const bool wanted = node.outputs.size() > 1 && node.outputs[1] != kNoValue;
  const ValueId keeps = wanted ? node.outputs[1] : rewriter.NewValue();
  mask.outputs = {keeps};
  CHAIRLIFT_RETURN_IF_ERROR(rewriter.AddBefore(std::move(mask)));
  node.op_type = "Where";
  node.attributes = {};
  node.inputs = {keeps, scaled, nothing};
  node.outputs.resize(1);
  return absl::OkStatus();
}

}  // namespace chairlift::normalise

namespace chairlift {

bool DrawsRandomNumbers(const OnnxNode& node, const Rewriter& rewriter) {
  if (!node.domain.empty()) return false;
  if (node.op_type == "Dropout") return normalise::Trains(node, rewriter);
  for (const char* random : {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike",
                             "RandomUniform", "RandomUniformLike"}) {
    if (node.op_type == random) return true;
  }
  return false;
}

}  // namespace chairlift
