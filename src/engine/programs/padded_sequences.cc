#include "engine/programs/padded_sequences.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <utility>

#include "base/closest.h"
#include "base/status.h"
#include "engine/programs/padding.h"
#include "engine/programs/sequence_signature.h"
#include "runtime/run_deadline.h"

namespace chairlift {
namespace {

// Relative to the range of an output: sums in another order differ slightly.
constexpr float kPaddedTolerance = 1e-3f;
constexpr int64_t kShort = 5;
constexpr int64_t kLong = 9;

bool Varies(const SymbolicShape& shape, int axis) {
  return shape.has_rank() && shape.rank() > axis && !shape[axis].known();
}

// Inputs of one request with small numbers and a mask of ones.
StatusOr<std::vector<Tensor>> Draw(const Executable& executable, const SequenceSignature& sequences,
                                   int64_t length, std::mt19937& random) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < executable.inputs().size(); ++i) {
    const SymbolicSpec& spec = executable.inputs()[i];
    Shape shape = {1};
    for (int axis = 1; axis < spec.shape.rank(); ++axis) {
      const Dim& dim = spec.shape[axis];
      if (!dim.known() && (axis > 1 || !sequences.token_inputs[i])) {
        return InvalidArgument("dimension {} of input '{}' varies too", axis, spec.name);
      }
      shape.Append(dim.known() ? dim.value() : length);
    }
    Tensor t = Tensor::Allocate(spec.dtype, shape);
    const bool mask = static_cast<int>(i) == sequences.mask;
    for (int64_t at = 0; at < t.size(); ++at) {
      const auto drawn = static_cast<int64_t>(mask ? 1 : random() % 2);
      if (spec.dtype == DType::kInt64) {
        t.data<int64_t>()[at] = drawn;
      } else if (spec.dtype == DType::kInt32) {
        t.data<int32_t>()[at] = static_cast<int32_t>(drawn);
      } else if (spec.dtype == DType::kFloat) {
        t.data<float>()[at] = static_cast<float>(drawn);
      } else if (spec.dtype == DType::kBool) {
        t.data<bool>()[at] = drawn != 0;
      } else {
        return InvalidArgument("inputs of type {} ('{}') cannot be tried", DTypeName(spec.dtype),
                               spec.name);
      }
    }
    inputs.push_back(std::move(t));
  }
  return inputs;
}

Status ExpectSame(const std::string& name, const Tensor& alone, const Tensor& padded) {
  if (alone.dtype() != DType::kFloat) {
    return InvalidArgument("outputs of type {} ('{}') cannot be tried", DTypeName(alone.dtype()),
                           name);
  }
  if (alone.shape() != padded.shape()) return Internal("shapes of output '{}' differ", name);
  float range = 0, difference = 0;
  for (int64_t i = 0; i < alone.size(); ++i) {
    const float want = alone.data<float>()[i];
    if (std::isnan(want)) return InvalidArgument("output '{}' contains NaN when tried", name);
    range = std::max(range, std::abs(want));
    difference = std::max(difference, std::abs(want - padded.data<float>()[i]));
  }
  if (difference <= kPaddedTolerance * range) return absl::OkStatus();
  return InvalidArgument("it does not hide padding: output '{}' differs by {:.1e} of its range",
                         name, difference / range);
}

class Trial {
 public:
  explicit Trial(Executable& executable) : executable_(executable) {}

  StatusOr<SequenceSignature> Run(int mask) {
    SequenceSignature sequences;
    sequences.padded = true;
    sequences.mask = mask;
    for (const SymbolicSpec& input : executable_.inputs()) {
      sequences.token_inputs.push_back(Varies(input.shape, 1));
    }
    std::mt19937 random(1);
    std::vector<std::vector<Tensor>> inputs, outputs;
    for (const int64_t length : {kShort, kLong}) {
      CHAIRLIFT_ASSIGN_OR_RETURN(auto drawn, Draw(executable_, sequences, length, random));
      CHAIRLIFT_ASSIGN_OR_RETURN(auto alone, Compute(drawn));
      inputs.push_back(std::move(drawn));
      outputs.push_back(std::move(alone));
    }
    for (size_t i = 0; i < outputs[0].size(); ++i) {
      const Shape &a = outputs[0][i].shape(), &b = outputs[1][i].shape();
      sequences.token_outputs.push_back(a.rank() > 1 && b.rank() > 1 && a[1] == kShort &&
                                        b[1] == kLong);
    }
    CHAIRLIFT_RETURN_IF_ERROR(Together(sequences, inputs, outputs));
    return sequences;
  }

 private:
  StatusOr<std::vector<Tensor>> Compute(const std::vector<Tensor>& inputs) {
    SoloTeam team(0);
    StatusOr<std::vector<Tensor>> outputs =
        executable_.Run(inputs, team, 0, arena_, deadline_.stop());
    if (absl::IsCancelled(outputs.status())) {
      return InvalidArgument(
          "the trial run was stopped after {} s; the model may contain a loop of many iterations",
          kTrialTime.count());
    }
    return outputs;
  }

  // Both requests in one batch.
  Status Together(const SequenceSignature& sequences,
                  const std::vector<std::vector<Tensor>>& inputs,
                  const std::vector<std::vector<Tensor>>& alone) {
    Signature signature{.inputs = executable_.inputs(), .outputs = executable_.outputs()};
    signature.sequences = sequences;
    std::vector<ValidatedRequest> owned(inputs.size());
    std::vector<const ValidatedRequest*> requests;
    for (size_t r = 0; r < inputs.size(); ++r) {
      owned[r].inputs = inputs[r];
      owned[r].length = r == 0 ? kShort : kLong;
      for (size_t i = 0; i < signature.outputs.size(); ++i) {
        owned[r].outputs.push_back(static_cast<int>(i));
      }
      requests.push_back(&owned[r]);
    }
    const Padding padding(signature, requests);
    Arena staging;
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Tensor> padded, padding.Inputs(staging));
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, Compute(padded));
    for (size_t r = 0; r < requests.size(); ++r) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const auto own, padding.Outputs(r, outputs));
      for (size_t i = 0; i < own.size(); ++i) {
        CHAIRLIFT_RETURN_IF_ERROR(ExpectSame(own[i].name, alone[r][i], own[i].tensor));
      }
    }
    return absl::OkStatus();
  }

  static constexpr std::chrono::seconds kTrialTime{30};

  Executable& executable_;
  Arena arena_;
  const RunDeadline deadline_{kTrialTime};  // for all runs together
};

}  // namespace

StatusOr<SequenceSignature> ProvedPadding(const RaggedModel& ragged, const Executable& executable) {
  SequenceSignature sequences = SequencesOf(ragged, executable.inputs().size());
  if (sequences.mask < 0) return Unimplemented("no input is proved to hide tokens");
  if (!SequencesAreApart(ragged.inputs)) {
    return Unimplemented("its dynamic scales would span all requests of a padded batch");
  }
  if (!ragged.rows_ignore_trailing || !ragged.tokens_ignore_trailing) {
    return Unimplemented("padding would change its outputs, whatever the mask says");
  }
  // Inputs that the packed model does not read are padded like the others.
  for (size_t i = 0; i < sequences.token_inputs.size(); ++i) {
    if (Varies(executable.inputs()[i].shape, 1)) sequences.token_inputs[i] = true;
  }
  sequences.padded = true;
  return sequences;
}

StatusOr<SequenceSignature> TrustedPadding(const std::string& mask, Executable& executable) {
  const std::vector<SymbolicSpec>& inputs = executable.inputs();
  const auto named = std::find_if(inputs.begin(), inputs.end(),
                                  [&](const SymbolicSpec& input) { return input.name == mask; });
  if (named == inputs.end()) {
    return InvalidArgument("padding_mask is '{}': the model has no such input{}", mask,
                           KnownNames(mask, NamesOf(inputs, &SymbolicSpec::name)));
  }
  if (!Varies(named->shape, 1) || named->shape.rank() != 2) {
    return InvalidArgument("padding_mask is '{}', whose shape is {}; a mask is [batch, length]",
                           mask, named->shape.ToString());
  }
  StatusOr<SequenceSignature> padding =
      Trial(executable).Run(static_cast<int>(named - inputs.begin()));
  if (!padding.ok()) {
    return InvalidArgument("padding_mask is '{}': {}", mask, Message(padding.status()));
  }
  return padding;
}

}  // namespace chairlift
