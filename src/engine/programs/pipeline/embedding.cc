#include "engine/programs/pipeline/embedding.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"
#include "engine/programs/pipeline/classes.h"
#include "ops/half_simd.h"
#include "tensor/datatype.h"

namespace chairlift {
namespace {

constexpr const char* kEmbedding = "embedding";
constexpr const char* kPooled = "pooled";
constexpr const char* kScores = "scores";  // for classes

// The internal output that a client's output is made from.
const std::string& MadeFrom(const PipelineConfig& config, const std::string& shown) {
  if (config.classes && shown == kScores) return config.classes->from;
  const bool vectors = shown == kEmbedding || shown == kPooled || shown == kTokenEmbeddings;
  return config.embedding && vectors ? config.embedding->from : shown;
}

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

// Pools the vectors of a text's tokens, `size` each.
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
      // NaN counts as the largest.
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

// Returns [1, size], a copy.
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

// For one text: [tokens, size].
StatusOr<Tensor> TokenVectors(const Tensor& given) {
  const Tensor from = InFloat32(given);
  const Shape& shape = from.shape();
  if (from.dtype() != DType::kFloat || shape.rank() != 3 || shape[0] != 1) {
    return Internal("a text's {} of shape {} has no vector for each token",
                    DatatypeName(from.dtype()), shape.ToString());
  }
  return from.Reshaped({shape[1], shape[2]});
}

// Normalises to length 1; zero vectors are unchanged.
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
  return InvalidArgument("output '{}' is {} {}, but embeddings are made from FP32 [batch, {}size]",
                         config.from, DatatypeName(from->dtype), from->shape.ToString(),
                         rank == 3 ? "tokens, " : "");
}

Signature ShownSignature(const PipelineConfig& config, const Signature& wired) {
  if (!config.embedding && !config.classes) return wired;
  Signature shown = wired;
  if (config.classes) {
    shown.outputs.push_back(
        {kScores, DType::kFloat, FindOutput(wired, config.classes->from)->shape});
    return shown;
  }
  shown.outputs.clear();
  const std::vector<Pooling>& pooling = config.embedding->pooling;
  const SymbolicSpec& from = *FindOutput(wired, config.embedding->from);
  const Dim size = from.shape[from.shape.rank() - 1];
  Dim joined = size;
  if (pooling.size() > 1) {
    joined = size.known() ? Dim(size.value() * std::ssize(pooling)) : Dim();
  }
  for (const char* name : {kEmbedding, kPooled}) {
    shown.outputs.push_back({name, DType::kFloat, SymbolicShape({from.shape[0], joined})});
  }
  if (!pooling.empty()) {
    shown.outputs.push_back(
        {kTokenEmbeddings, DType::kFloat, SymbolicShape({Dim::Symbol("all_tokens"), size})});
  }
  for (const SymbolicSpec& output : wired.outputs) {
    if (output.name != config.embedding->from) shown.outputs.push_back(output);
  }
  return shown;
}

std::vector<int> WiredOutputs(const PipelineConfig& config, const PipelineWiring& wiring,
                              const std::vector<int>& wanted) {
  if (!config.embedding && !config.classes) return wanted;
  const Signature shown = ShownSignature(config, wiring.signature);
  std::vector<int> wired;
  for (const int index : wanted) {
    const std::string& from = MadeFrom(config, shown.outputs[static_cast<size_t>(index)].name);
    const auto number =
        static_cast<int>(FindOutput(wiring.signature, from) - wiring.signature.outputs.data());
    if (std::count(wired.begin(), wired.end(), number) == 0) wired.push_back(number);
  }
  return wired;
}

StatusOr<std::vector<NamedTensor>> ShownOutputs(const PipelineConfig& config,
                                                std::vector<NamedTensor> wired,
                                                const Signature& shown,
                                                const std::vector<int>& wanted) {
  if (!config.embedding && !config.classes) return wired;
  std::vector<NamedTensor> outputs;
  for (const int index : wanted) {
    const std::string& name = shown.outputs[static_cast<size_t>(index)].name;
    const std::string& from = MadeFrom(config, name);
    const auto found = std::find_if(wired.begin(), wired.end(),
                                    [&](const NamedTensor& output) { return output.name == from; });
    if (found == wired.end()) return Internal("its steps returned no '{}'", name);
    NamedTensor& made = outputs.emplace_back(*found);
    made.name = name;
    if (config.classes) {
      if (name != kScores) continue;
      CHAIRLIFT_ASSIGN_OR_RETURN(made.tensor, ClassScores(*config.classes, found->tensor));
    } else if (name == kTokenEmbeddings) {
      CHAIRLIFT_ASSIGN_OR_RETURN(made.tensor, TokenVectors(found->tensor));
    } else if (from == config.embedding->from) {
      CHAIRLIFT_ASSIGN_OR_RETURN(made.tensor, Pool(found->tensor, config.embedding->pooling));
      if (name == kEmbedding && config.embedding->normalize) {
        Normalize({made.tensor.data<float>(), static_cast<size_t>(made.tensor.size())});
      }
    }
  }
  return outputs;
}

}  // namespace chairlift
