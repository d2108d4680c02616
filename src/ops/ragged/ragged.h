// Operators over packed sequences, one function each. The tokens of all sequences are concatenated,
// T in total. The int64 offsets [R+1] hold the first token of each of R sequences, then the end of
// the last. Offsets ascend from 0 to at most T (checked in every run: InvalidArgument). Sequences
// may be empty; the outputs for those, and for tokens after the last sequence, are zeros.
#ifndef CHAIRLIFT_OPS_RAGGED_RAGGED_H_
#define CHAIRLIFT_OPS_RAGGED_RAGGED_H_

#include <cstdint>
#include <span>

#include "ops/operator.h"

namespace chairlift {

void RegisterPagedAttention(OperatorRegistry& registry);
void RegisterRaggedAttention(OperatorRegistry& registry);
void RegisterRaggedCumSum(OperatorRegistry& registry);
void RegisterRaggedQuantize(OperatorRegistry& registry);
void RegisterRaggedReduce(OperatorRegistry& registry);
void RegisterRaggedSpread(OperatorRegistry& registry);
void RegisterRaggedToken(OperatorRegistry& registry);
void RegisterSourceAttention(OperatorRegistry& registry);

// R, from the dimension R+1 of input `offsets`: for example "sequences" from "sequences+1".
StatusOr<Dim> SequencesOf(const InferContext& context, int offsets);
// The shape of input i with dimension 0 replaced by `first`; unknown if the shape of i is.
StatusOr<SymbolicShape> WithFirst(const InferContext& context, int i, const Dim& first);

// The offsets in args.inputs[i] for compiled shapes, checked against `tokens`.
StatusOr<std::span<const int64_t>> CheckedOffsets(const KernelArgs& args, size_t i,
                                                  const TensorDesc& desc, int64_t tokens);

// Bytes of `tokens` tokens in a cache of keys and values. 0 if the number is negative, which
// happens if sequences share blocks.
double UntouchedCache(int64_t tokens, int64_t heads, int64_t columns);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_RAGGED_RAGGED_H_
