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

// Of the vectors of a text's tokens, `size` each.
void PoolTokens(std::span<const float> tokens, int64_t size, Pooling pooling, float* to) {
  const int64_t count = std::ssize(tokens) / size;
  const auto row = [&](int64_t token) { return tokens.data() + token * size; };
  if (pooling == Pooling::kCls || pooling == Pooling::kLast) {
    const float* const from = row(pooling == Pooling::kCls ? 0 : count - 1);
    std::copy(from, from + size, to);
    return;
  }
  std::copy(row(0), row(0) + size, to);
  for (int64_t token = 1; token < count; ++token) {
    const float* const from = row(token);
    const auto weight = static_cast<float>(pooling == Pooling::kWeightedMean ? token + 1 : 1);
    for (int64_t i = 0; i < size; ++i) {
      // A NaN is the largest.
      to[i] = pooling != Pooling::kMax                 ? to[i] + weight * from[i]
              : from[i] > to[i] || std::isnan(from[i]) ? from[i]
                                                       : to[i];
    }
  }
  const auto n = static_cast<double>(count);
  const double divisor = pooling == Pooling::kMax           ? 1
                         : pooling == Pooling::kMean        ? n
                         : pooling == Pooling::kMeanSqrtLen ? std::sqrt(n)
                                                            : n * (n + 1) / 2;
  const auto scale = static_cast<float>(1 / divisor);
  for (int64_t i = 0; i < size; ++i) to[i] *= scale;
}

// [1, size], a copy.
StatusOr<Tensor> Pool(const Tensor& given, const std::vector<Pooling>& pooling) {
  const Tensor from = InFloat32(given);
  const Shape& shape = from.shape();
  const bool tokens = !pooling.empty();
  if (from.dtype() != DType::kFloat || shape.rank() != (tokens ? 3 : 2) || shape[0] != 1 ||
      (tokens && (shape[1] == 0 || shape[2] == 0))) {
    return Internal("a text's {} of shape {} cannot be made a vector", DatatypeName(from.dtype()),
                    shape.ToString());
  }
  const int64_t size = shape[shape.rank() - 1];
  const auto parts = std::max<int64_t>(std::ssize(pooling), 1);
  Tensor vector = Tensor::Allocate(DType::kFloat, Shape{1, size * parts});
  auto* to = vector.data<float>();
  const std::span<const float> rows = from.values<float>();
  if (!tokens) std::copy(rows.begin(), rows.end(), to);
  for (const Pooling one : pooling) {
    PoolTokens(rows, size, one, to);
    to += size;
  }
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
  const int rank = config.pooling.empty() ? 2 : 3;
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
  Dim size = from.shape[from.shape.rank() - 1];
  if (config->pooling.size() > 1) {
    size = size.known() ? Dim(size.value() * std::ssize(config->pooling)) : Dim();
  }
  for (const char* name : {kEmbedding, kPooled}) {
    shown.outputs.push_back({name, DType::kFloat, SymbolicShape({from.shape[0], size})});
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
