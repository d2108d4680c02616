#include "engine/requests/answer_parts.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/memory_reserve.h"

namespace chairlift {

Tensor ReadyPart::Entries() const {
  if (axes.time < 0) return entries;
  const Shape& from = entries.shape();
  const int outer_axis = std::min(axes.batch, axes.time);
  const int inner_axis = std::max(axes.batch, axes.time);
  Shape shape = from;
  shape.Erase(inner_axis);
  shape.Erase(outer_axis);
  shape.Insert(0, part.count);
  Tensor out = Tensor::Allocate(entries.dtype(), shape);
  if (out.size() == 0) return out;
  const auto bytes = static_cast<int64_t>(DTypeSize(entries.dtype()));
  const int64_t tail = from.NumElements(inner_axis + 1, from.rank()) * bytes;
  const int64_t middle = from.NumElements(outer_axis + 1, inner_axis);
  const int64_t outer_stride = middle * from[inner_axis] * tail;
  const int64_t outer = from.NumElements(0, outer_axis);
  const bool time_first = axes.time == outer_axis;
  const auto* base = static_cast<const std::byte*>(entries.raw());
  auto* to = static_cast<std::byte*>(out.raw());
  for (int64_t step = part.first; step < part.first + part.count; ++step) {
    const int64_t at_outer = time_first ? step : part.row;
    const int64_t at_inner = time_first ? part.row : step;
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t m = 0; m < middle; ++m, to += tail) {
        const int64_t offset = (o * from[outer_axis] + at_outer) * outer_stride +
                               (m * from[inner_axis] + at_inner) * tail;
        std::memcpy(to, base + offset, static_cast<size_t>(tail));
      }
    }
  }
  return out;
}

void AnswerParts::Complete(const AnswerPart& part, const Tensor& answer, const AnswerAxes& axes) {
  const MemoryReserve::Use use;
  Row& row = rows_[{part.output, part.row}];
  const int64_t end = part.first + part.count;
  if (part.first > row.next) {
    row.late.emplace(part.first, end);
    return;
  }
  AnswerPart ready = part;
  row.next = end;
  for (auto at = row.late.begin(); at != row.late.end() && at->first <= row.next;) {
    row.next = std::max(row.next, at->second);
    at = row.late.erase(at);
  }
  ready.count = row.next - ready.first;
  ready_.push_back({ready, answer, axes});
}

void AnswerParts::Emit(const AnswerPart& part, Tensor entries) {
  ready_.push_back({part, std::move(entries), {}});
}

}  // namespace chairlift
