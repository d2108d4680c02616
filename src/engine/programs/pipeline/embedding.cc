#include "engine/programs/pipeline/embedding.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"
#include "ops/half_simd.h"
#include "tensor/datatype.h"

namespace chairlift {
namespace {

constexpr const char* kEmbedding = "embedding";
constexpr const char* kPooled = "pooled";

const SymbolicSpec* FindOutput(const Signature& signature, const std::string& name) {
  const auto found = std::find_if(signature.outputs.begin(), signature.outputs.end(),
                                  [&](const SymbolicSpec& output) { return output.name == name; });
  return found == signature.outputs.end() ? nullptr : &*found;
}

Tensor InFloat32(const Tensor& given) {
  if (given.dtype() != DType::kFloat16) return given;
  Tensor wide = Tensor::Allocate(DType::kFloat, given.shape());
  WidenFloat16(given.data<Float16>(), wide.data<float>(), given.size());
  return wide;
}

// [1, size], a copy.
StatusOr<Tensor> Pool(const Tensor& given, Pooling pooling) {
  const Tensor from = InFloat32(given);
  const Shape& shape = from.shape();
  const bool tokens = pooling != Pooling::kNone;
  if (from.dtype() != DType::kFloat || shape.rank() != (tokens ? 3 : 2) || shape[0] != 1 ||
      (tokens && shape[1] == 0)) {
    return Internal("a text's {} of shape {} cannot be made a vector", DatatypeName(from.dtype()),
                    shape.ToString());
  }
  const int64_t size = shape[shape.rank() - 1];
  Tensor vector = Tensor::Allocate(DType::kFloat, Shape{1, size});
  auto* const to = vector.data<float>();
  const auto* const rows = from.data<float>();
  std::copy(rows, rows + size, to);
  if (pooling != Pooling::kMean) return vector;
  for (int64_t token = 1; token < shape[1]; ++token) {
    const float* const row = rows + token * size;
    for (int64_t i = 0; i < size; ++i) to[i] += row[i];
  }
  const float scale = 1.0F / static_cast<float>(shape[1]);
  for (int64_t i = 0; i < size; ++i) to[i] *= scale;
  return vector;
}

// To length 1; a vector of zeros stays.
void Normalize(std::span<float> vector) {
  double square = 0;
  for (const float x : vector) square += double{x} * x;
  if (square <= 0) return;
  const auto scale = static_cast<float>(1 / std::sqrt(square));
  for (float& x : vector) x *= scale;
}

}  // namespace

Status CheckEmbedding(const EmbeddingConfig& config, const Signature& wired) {
  const SymbolicSpec* const from = FindOutput(wired, config.from);
  if (from == nullptr) return InvalidArgument("the model has no output '{}'", config.from);
  const int rank = config.pooling == Pooling::kNone ? 2 : 3;
  const bool floats = from->dtype == DType::kFloat || from->dtype == DType::kFloat16;
  if (floats && from->shape.has_rank() && from->shape.rank() == rank) return absl::OkStatus();
  return InvalidArgument(
      "output '{}' is {} {}, and vectors of texts are made from FP32 [batch, {}size]", config.from,
      DatatypeName(from->dtype), from->shape.ToString(), rank == 3 ? "tokens, " : "");
}

Signature ShownSignature(const std::optional<EmbeddingConfig>& config, const Signature& wired) {
  if (!config) return wired;
  Signature shown = wired;
  shown.outputs.clear();
  const SymbolicSpec& from = *FindOutput(wired, config->from);
  for (const char* name : {kEmbedding, kPooled}) {
    shown.outputs.push_back(
        {name, DType::kFloat, SymbolicShape({from.shape[0], from.shape[from.shape.rank() - 1]})});
  }
  for (const SymbolicSpec& output : wired.outputs) {
    if (output.name != config->from) shown.outputs.push_back(output);
  }
  return shown;
}

std::vector<int> WiredOutputs(const std::optional<EmbeddingConfig>& config,
                              const PipelineWiring& wiring, const std::vector<int>& wanted) {
  if (!config) return wanted;
  const Signature shown = ShownSignature(config, wiring.signature);
  std::vector<int> wired;
  for (const int index : wanted) {
    const std::string& name = shown.outputs[static_cast<size_t>(index)].name;
    const std::string& from = name == kEmbedding || name == kPooled ? config->from : name;
    const auto number =
        static_cast<int>(FindOutput(wiring.signature, from) - wiring.signature.outputs.data());
    if (std::count(wired.begin(), wired.end(), number) == 0) wired.push_back(number);
  }
  return wired;
}

StatusOr<std::vector<NamedTensor>> ShownOutputs(const std::optional<EmbeddingConfig>& config,
                                                std::vector<NamedTensor> wired,
                                                const Signature& shown,
                                                const std::vector<int>& wanted) {
  if (!config) return wired;
  std::vector<NamedTensor> outputs;
  for (const int index : wanted) {
    const std::string& name = shown.outputs[static_cast<size_t>(index)].name;
    const bool made = name == kEmbedding || name == kPooled;
    const auto found = std::find_if(wired.begin(), wired.end(), [&](const NamedTensor& output) {
      return output.name == (made ? config->from : name);
    });
    if (found == wired.end()) return Internal("its steps gave no '{}'", name);
    if (!made) {
      outputs.push_back(*found);
      continue;
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(Tensor vector, Pool(found->tensor, config->pooling));
    if (name == kEmbedding && config->normalize) {
      Normalize({vector.data<float>(), static_cast<size_t>(vector.size())});
    }
    outputs.push_back({name, std::move(vector)});
  }
  return outputs;
}

}  // namespace chairlift
