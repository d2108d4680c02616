// Attributes and shapes of LSTM, GRU and RNN.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>

#include "ops/axes.h"
#include "ops/recurrent/recurrent.h"

namespace chairlift {
namespace {

// ONNX uses camel case; other spellings occur in files.
std::string Lower(std::string s) {
  std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return std::tolower(c); });
  return s;
}

struct FunctionInfo {
  const char* name;
  GateFunction function;
  bool takes_alpha;
  bool takes_beta;
  float alpha;  // defaults
  float beta;
};
constexpr FunctionInfo kFunctions[] = {
    {"sigmoid", GateFunction::kSigmoid, false, false, 0, 0},
    {"tanh", GateFunction::kTanh, false, false, 0, 0},
    {"relu", GateFunction::kRelu, false, false, 0, 0},
    {"affine", GateFunction::kAffine, true, true, 1, 0},
    {"leakyrelu", GateFunction::kLeakyRelu, true, false, 0.01f, 0},
    {"thresholdedrelu", GateFunction::kThresholdedRelu, true, false, 1, 0},
    {"scaledtanh", GateFunction::kScaledTanh, true, true, 1, 1},
    {"hardsigmoid", GateFunction::kHardSigmoid, true, true, 0.2f, 0.5f},
    {"elu", GateFunction::kElu, true, false, 1, 0},
    {"softsign", GateFunction::kSoftsign, false, false, 0, 0},
    {"softplus", GateFunction::kSoftplus, false, false, 0, 0},
};

int GateCount(CellKind cell) {
  return cell == CellKind::kLstm ? 4 : cell == CellKind::kGru ? 3 : 1;
}

std::vector<std::string> DefaultActivations(CellKind cell) {
  if (cell == CellKind::kLstm) return {"Sigmoid", "Tanh", "Tanh"};
  if (cell == CellKind::kGru) return {"Sigmoid", "Tanh"};
  return {"Tanh"};
}

// Functions with such a parameter take the next entry of the lists of alphas and betas.
StatusOr<std::vector<GateActivation>> ParseActivations(CellKind cell, int directions,
                                                       const Attributes& attributes) {
  const std::vector<std::string> names = attributes.Strings("activations");
  const std::vector<float> alphas = attributes.Floats("activation_alpha");
  const std::vector<float> betas = attributes.Floats("activation_beta");
  const size_t wanted = static_cast<size_t>(ActivationCount(cell)) * directions;
  const std::vector<std::string> defaults = DefaultActivations(cell);
  if (!names.empty() && names.size() != wanted) {
    return InvalidArgument("activations lists {} functions; {} are needed", names.size(), wanted);
  }
  std::vector<GateActivation> out;
  size_t alpha = 0;
  size_t beta = 0;
  for (size_t i = 0; i < wanted; ++i) {
    const std::string& name = names.empty() ? defaults[i % defaults.size()] : names[i];
    const auto* info = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                    [&](const auto& f) { return f.name == Lower(name); });
    if (info == std::end(kFunctions)) return InvalidArgument("unknown activation '{}'", name);
    GateActivation f{info->function, info->alpha, info->beta};
    if (info->takes_alpha && alpha < alphas.size()) f.alpha = alphas[alpha++];
    if (info->takes_beta && beta < betas.size()) f.beta = betas[beta++];
    out.push_back(f);
  }
  return out;
}

// Checks input i against the shape `dims` if it is present, and sets unknown dimensions from it.
Status Unify(InferContext& c, int i, const char* name, std::vector<Dim*> dims) {
  if (!c.has_input(i)) return {};
  const SymbolicShape& shape = c.shape(i);
  if (!shape.has_rank()) return {};
  if (shape.rank() != static_cast<int>(dims.size())) {
    return InvalidArgument("{} has shape {}; rank {} is needed", name, shape.ToString(),
                           dims.size());
  }
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    const Dim& have = shape[static_cast<int>(axis)];
    if (have.known() && dims[axis]->known() && have.value() != dims[axis]->value()) {
      return InvalidArgument("{} has shape {}; dimension {} should be {}", name, shape.ToString(),
                             axis, dims[axis]->value());
    }
    *dims[axis] = MergeDims(*dims[axis], have);
  }
  return {};
}

Dim Times(const Dim& d, int64_t factor) {
  return d.known() ? Dim(d.value() * factor) : Dim::Unknown();
}

}  // namespace

int ActivationCount(CellKind cell) {
  return cell == CellKind::kLstm ? 3 : cell == CellKind::kGru ? 2 : 1;
}

StatusOr<RecurrentSpec> RecurrentSpec::Parse(CellKind cell, const Attributes& attributes) {
  RecurrentSpec spec;
  spec.cell = cell;
  spec.gates = GateCount(cell);
  const std::string direction = Lower(attributes.String("direction", "forward"));
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional") {
    return InvalidArgument("direction '{}' is not forward, reverse or bidirectional", direction);
  }
  spec.directions = direction == "bidirectional" ? 2 : 1;
  spec.reverse = direction == "reverse";
  const int64_t layout = attributes.Int("layout", 0);
  if (layout != 0 && layout != 1) return InvalidArgument("layout {} is not 0 or 1", layout);
  spec.batch_first = layout == 1;
  spec.input_forget = attributes.Int("input_forget", 0) != 0;
  spec.reset_after = attributes.Int("linear_before_reset", 0) != 0;
  if (attributes.Has("clip")) {
    spec.clip = attributes.Float("clip", 0);
    if (!(spec.clip > 0)) return InvalidArgument("clip {} is not positive", spec.clip);
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(spec.activations, ParseActivations(cell, spec.directions, attributes));
  spec.usual_gates = !spec.input_forget && std::isinf(spec.clip);
  const int count = ActivationCount(cell);
  for (size_t i = 0; i < spec.activations.size(); ++i) {
    const bool gate = cell != CellKind::kRnn && i % count == 0;
    const GateFunction usual = gate ? GateFunction::kSigmoid : GateFunction::kTanh;
    spec.usual_gates = spec.usual_gates && spec.activations[i].function == usual;
  }
  return spec;
}

StepSpec RecurrentSpec::Step(int direction, int64_t hidden) const {
  StepSpec step{cell, gates, hidden, input_forget, reset_after, clip, {}, usual_gates};
  const int count = ActivationCount(cell);
  std::copy_n(activations.begin() + direction * count, count, step.activations.begin());
  return step;
}

Status InferRecurrent(CellKind cell, InferContext& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const RecurrentSpec spec, RecurrentSpec::Parse(cell, c.attributes()));
  Dim time;
  Dim batch;
  Dim features;
  Dim hidden;
  Dim directions(spec.directions);
  if (c.attributes().Has("hidden_size")) {
    const int64_t size = c.attributes().Int("hidden_size", 0);
    if (size <= 0 || size > (int64_t{1} << 24)) {
      return InvalidArgument("hidden_size {} is out of range", size);
    }
    hidden = Dim(size);
  }
  if (spec.batch_first) {
    CHAIRLIFT_RETURN_IF_ERROR(Unify(c, kInputX, "X", {&batch, &time, &features}));
  } else {
    CHAIRLIFT_RETURN_IF_ERROR(Unify(c, kInputX, "X", {&time, &batch, &features}));
  }
  Dim rows = Times(hidden, spec.gates);
  CHAIRLIFT_RETURN_IF_ERROR(Unify(c, kInputR, "R", {&directions, &rows, &hidden}));
  rows = Times(hidden, spec.gates);
  CHAIRLIFT_RETURN_IF_ERROR(Unify(c, kInputR, "R", {&directions, &rows, &hidden}));
  CHAIRLIFT_RETURN_IF_ERROR(Unify(c, kInputW, "W", {&directions, &rows, &features}));
  Dim biases = Times(rows, 2);
  CHAIRLIFT_RETURN_IF_ERROR(Unify(c, kInputBias, "B", {&directions, &biases}));
  CHAIRLIFT_RETURN_IF_ERROR(Unify(c, kInputLengths, "sequence_lens", {&batch}));
  for (const auto& [input, name] : {std::pair{kInputH, "initial_h"}, {kInputC, "initial_c"}}) {
    if (spec.batch_first) {
      CHAIRLIFT_RETURN_IF_ERROR(Unify(c, input, name, {&batch, &directions, &hidden}));
    } else {
      CHAIRLIFT_RETURN_IF_ERROR(Unify(c, input, name, {&directions, &batch, &hidden}));
    }
  }
  Dim peepholes = Times(hidden, 3);
  CHAIRLIFT_RETURN_IF_ERROR(Unify(c, kInputPeepholes, "P", {&directions, &peepholes}));

  const DType dtype = c.dtype(kInputX);
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (i != kInputLengths && c.has_input(i) && c.dtype(i) != dtype) {
      return InvalidArgument("input {} is {} where X is {}", i, DTypeName(c.dtype(i)),
                             DTypeName(dtype));
    }
  }
  using Dims = std::vector<Dim>;
  const SymbolicShape all(spec.batch_first ? Dims{batch, time, directions, hidden}
                                           : Dims{time, directions, batch, hidden});
  const SymbolicShape last(spec.batch_first ? Dims{batch, directions, hidden}
                                            : Dims{directions, batch, hidden});
  for (int i = 0; i < c.num_outputs(); ++i) {
    CHAIRLIFT_RETURN_IF_ERROR(SetOutput(c, i, dtype, i == 0 ? all : last));
  }
  return {};
}

StatusOr<RecurrentSpec> ParseStep(const Attributes& attributes) {
  const std::string name = attributes.String("cell", "");
  CellKind cell = CellKind::kLstm;
  if (name == "GRU") {
    cell = CellKind::kGru;
  } else if (name == "RNN") {
    cell = CellKind::kRnn;
  } else if (name != "LSTM") {
    return InvalidArgument("cell '{}' is not LSTM, GRU or RNN", name);
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(RecurrentSpec spec, RecurrentSpec::Parse(cell, attributes));
  if (spec.directions != 1) return InvalidArgument("a step has one direction, not two");
  return spec;
}

Status InferStep(InferContext& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const RecurrentSpec spec, ParseStep(c.attributes()));
  const bool lstm = spec.cell == CellKind::kLstm;
  for (const auto& [input, name] : {std::pair{kStepX, "xw"}, {kStepH, "h"}, {kStepR, "R"}}) {
    if (!c.has_input(input)) return InvalidArgument("{} is absent", name);
  }
  if (lstm != c.has_input(kStepC)) {
    return InvalidArgument("c is {}", lstm ? "absent" : "LSTM's alone");
  }
  if (!lstm && c.has_input(kStepPeepholes)) return InvalidArgument("P is LSTM's alone");
  if (!lstm && c.num_outputs() > 1) return InvalidArgument("output 1 is LSTM's alone");
  const DType dtype = c.dtype(kStepX);
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (c.has_input(i) && c.dtype(i) != dtype) {
      return InvalidArgument("input {} is {} where xw is {}", i, DTypeName(c.dtype(i)),
                             DTypeName(dtype));
    }
  }
  Dim rows;
  Dim hidden;
  CHAIRLIFT_RETURN_IF_ERROR(Unify(c, kStepH, "h", {&rows, &hidden}));
  CHAIRLIFT_RETURN_IF_ERROR(Unify(c, kStepC, "c", {&rows, &hidden}));
  Dim columns = Times(hidden, spec.gates);
  CHAIRLIFT_RETURN_IF_ERROR(Unify(c, kStepR, "R", {&columns, &hidden}));
  columns = MergeDims(columns, Times(hidden, spec.gates));
  if (columns.known() && hidden.known() && columns.value() != hidden.value() * spec.gates) {
    return InvalidArgument("R has {} rows and {} columns; an {} has {} gates", columns.value(),
                           hidden.value(), c.attributes().String("cell", ""), spec.gates);
  }
  CHAIRLIFT_RETURN_IF_ERROR(Unify(c, kStepX, "xw", {&rows, &columns}));
  CHAIRLIFT_RETURN_IF_ERROR(Unify(c, kStepBias, "Rb", {&columns}));
  Dim peepholes = Times(hidden, 3);
  CHAIRLIFT_RETURN_IF_ERROR(Unify(c, kStepPeepholes, "P", {&peepholes}));
  for (int i = 0; i < c.num_outputs(); ++i) {
    CHAIRLIFT_RETURN_IF_ERROR(
        SetOutput(c, i, dtype, SymbolicShape(std::vector<Dim>{rows, hidden})));
  }
  return {};
}

}  // namespace chairlift
