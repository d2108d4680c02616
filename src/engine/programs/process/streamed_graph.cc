#include "engine/programs/process/streamed_graph.h"

#include <cstring>

namespace chairlift {

void StreamedGraph::Emit(int output, int64_t first, const Tensor& steps) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!parts_.wants(output)) return;
  const int64_t count = steps.shape()[1];
  Shape of_row = steps.shape();
  of_row.Erase(0);
  for (int64_t row = 0; row < steps.shape()[0]; ++row) {
    parts_.Emit({.output = output, .row = row, .first = first, .count = count},
                steps.Rows(row, 1).Reshaped(of_row));
  }
}

Tensor JoinSteps(const std::vector<Tensor>& parts, const Tensor& none) {
  Shape shape = none.shape();
  for (const Tensor& part : parts) shape[1] += part.shape()[1];
  Tensor joined = Tensor::Allocate(none.dtype(), shape);
  const size_t step =
      static_cast<size_t>(shape.NumElements(2, shape.rank())) * DTypeSize(joined.dtype());
  auto* to = static_cast<std::byte*>(joined.raw());
  for (int64_t row = 0; row < shape[0]; ++row) {
    for (const Tensor& part : parts) {
      const size_t bytes = step * static_cast<size_t>(part.shape()[1]);
      if (bytes == 0) continue;
      std::memcpy(to, static_cast<const std::byte*>(part.raw()) + static_cast<size_t>(row) * bytes,
                  bytes);
      to += bytes;
    }
  }
  return joined;
}

}  // namespace chairlift
