// How all ragged operators handle offsets.
#include <algorithm>
#include <string>

#include "ops/ragged/ragged.h"

namespace chairlift {

StatusOr<Dim> SequencesOf(const InferContext& context, int offsets) {
  const SymbolicShape& shape = context.shape(offsets);
  if (!shape.has_rank()) return Dim::Unknown();
  if (shape.rank() != 1) return InvalidArgument("the offsets have rank {}, not 1", shape.rank());
  const Dim& dim = shape[0];
  if (dim.known()) {
    if (dim.value() < 1) return InvalidArgument("there are no offsets");
    return Dim(dim.value() - 1);
  }
  const std::string& symbol = dim.symbol();
  if (symbol.size() > 2 && symbol.ends_with("+1")) {
    return Dim::Symbol(symbol.substr(0, symbol.size() - 2));
  }
  return Dim::Unknown();
}

StatusOr<SymbolicShape> WithFirst(const InferContext& context, int i, const Dim& first) {
  SymbolicShape shape = context.shape(i);
  if (!shape.has_rank()) return shape;
  if (shape.rank() < 1) return InvalidArgument("input {} is a scalar", i);
  shape[0] = first;
  return shape;
}

StatusOr<std::span<const int64_t>> CheckedOffsets(const KernelArgs& args, size_t i,
                                                  const TensorDesc& desc, int64_t tokens) {
  const std::span offsets(static_cast<const int64_t*>(args.inputs[i]),
                          static_cast<size_t>(desc.shape[0]));
  if (offsets.front() != 0) {
    return InvalidArgument("the first offset is {}, not 0", offsets.front());
  }
  for (size_t s = 1; s < offsets.size(); ++s) {
    if (offsets[s] < offsets[s - 1]) {
      return InvalidArgument("offset {} is {}, below the one before, {}", s, offsets[s],
                             offsets[s - 1]);
    }
  }
  if (offsets.back() > tokens) {
    return InvalidArgument("the last offset is {}, but there are {} tokens", offsets.back(),
                           tokens);
  }
  return offsets;
}

double UntouchedCache(int64_t tokens, int64_t heads, int64_t columns) {
  return static_cast<double>(std::max<int64_t>(tokens, 0)) * static_cast<double>(heads * columns) *
         sizeof(float);
}

}  // namespace chairlift
