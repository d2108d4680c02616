#include "engine/padded_sequences.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <utility>

#include "base/status.h"
#include "engine/padding.h"
#include "engine/ragged_program.h"

namespace chairlift {
namespace {

// Of the range of an output: sums in another order come out a little different.
constexpr float kTolerance = 1e-3f;
constexpr int64_t kShort = 5;
constexpr int64_t kLong = 9;

bool Varies(const SymbolicShape& shape, int axis) {
  return shape.has_rank() && shape.rank() > axis && !shape[axis].known();
}

// Inputs of one request, of small numbers, the mask all ones.
StatusOr<std::vector<Tensor>> Draw(const Executable& executable, const SequenceSignature& sequences,
                                   int64_t length, std::mt19937& random) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < executable.inputs().size(); ++i) {
    const SymbolicSpec& spec = executable.inputs()[i];
    Shape shape = {1};
    for (int axis = 1; axis < spec.shape.rank(); ++axis) {
      const Dim& dim = spec.shape[axis];
      if (!dim.known() && (axis > 1 || !sequences.token_inputs[i])) {
        return Unimplemented("dimension {} of input '{}' varies", axis, spec.name);
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
        return Unimplemented("input '{}' is {}", spec.name, DTypeName(spec.dtype));
      }
    }
    inputs.push_back(std::move(t));
  }
  return inputs;
}

Status ExpectSame(const std::string& name, const Tensor& alone, const Tensor& padded) {
  if (alone.dtype() != DType::kFloat) return Unimplemented("output '{}' is no float32", name);
  if (alone.shape() != padded.shape()) return Internal("shapes of output '{}' differ", name);
  float range = 0, difference = 0;
  for (int64_t i = 0; i < alone.size(); ++i) {
    const float want = alone.data<float>()[i];
    if (std::isnan(want)) return Unimplemented("output '{}' has numbers that are none", name);
    range = std::max(range, std::abs(want));
    difference = std::max(difference, std::abs(want - padded.data<float>()[i]));
  }
  if (difference <= kTolerance * range) return absl::OkStatus();
  return Unimplemented("the mask does not hide padding: output '{}' differs by {:.1e} of its range",
                       name, difference / range);
}

class Trial {
 public:
  explicit Trial(Executable& executable) : executable_(executable) {}

  StatusOr<SequenceSignature> Run() {
    SequenceSignature sequences;
    sequences.padded = true;
    for (const SymbolicSpec& input : executable_.inputs()) {
      sequences.token_inputs.push_back(Varies(input.shape, 1));
      if (sequences.mask < 0 && sequences.token_inputs.back() && input.shape.rank() == 2 &&
          input.name.find("mask") != std::string::npos) {
        sequences.mask = static_cast<int>(sequences.token_inputs.size()) - 1;
      }
    }
    if (sequences.mask < 0) return Unimplemented("it has no mask");
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
    return executable_.Run(inputs, team, 0, arena_);
  }

  // Both requests in one batch.
  Status Together(const SequenceSignature& sequences,
                  const std::vector<std::vector<Tensor>>& inputs,
                  const std::vector<std::vector<Tensor>>& alone) {
    Signature signature{.inputs = executable_.inputs(), .outputs = executable_.outputs()};
    signature.sequences = sequences;
    std::vector<std::unique_ptr<Request>> owned;
    std::vector<const Request*> requests;
    for (const std::vector<Tensor>& own : inputs) {
      owned.push_back(std::make_unique<Request>());
      owned.back()->fitting.inputs = own;
      owned.back()->fitting.length = requests.empty() ? kShort : kLong;
      for (size_t i = 0; i < signature.outputs.size(); ++i) {
        owned.back()->fitting.outputs.push_back(static_cast<int>(i));
      }
      requests.push_back(owned.back().get());
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

  Executable& executable_;
  Arena arena_;
};

}  // namespace

StatusOr<SequenceSignature> FindPadding(const StatusOr<RaggedModel>& ragged, bool batches,
                                        Executable& executable) {
  if (!ragged.ok()) {
    if (!batches) return Unimplemented("its requests cannot share batches");
    return Trial(executable).Run();
  }
  SequenceSignature sequences = SequencesOf(*ragged, executable.inputs().size());
  if (sequences.mask < 0) return Unimplemented("it has no mask");
  const std::vector<bool>& tokens = sequences.token_outputs;
  const bool ignored = sequences.sequences_ignore_masked || sequences.sequences_ignore_trailing;
  if (!ignored && std::find(tokens.begin(), tokens.end(), false) != tokens.end()) {
    return Unimplemented("padding would change its outputs, whatever the mask says");
  }
  // Inputs that the packed model does not read are padded like the others.
  for (size_t i = 0; i < sequences.token_inputs.size(); ++i) {
    if (Varies(executable.inputs()[i].shape, 1)) sequences.token_inputs[i] = true;
  }
  sequences.padded = true;
  return sequences;
}

}  // namespace chairlift
