#include "ops/pooling/pooling.h"

#include <algorithm>

namespace chairlift {

PoolGeometry PoolGeometry::Make(const Window& window, int64_t planes, const Shape& in,
                                const Shape& out) {
  PoolGeometry g;
  g.planes = planes;
  const int lead = 3 - window.rank();
  for (int axis = 0; axis < 3; ++axis) {
    if (axis < lead) {
      g.in[axis] = g.out[axis] = g.dilation[axis] = 1;
      g.taps[axis] = {{0, 1, 1}};
      continue;
    }
    const int w = axis - lead;
    g.in[axis] = in[w + 2];
    g.out[axis] = out[w + 2];
    const int64_t dilation = g.dilation[axis] = window.dilations[w];
    const int64_t begin = window.PadBegin(w, g.in[axis]);
    const int64_t end = window.auto_pad == AutoPad::kExplicit || window.auto_pad == AutoPad::kValid
                            ? window.pads_end[w]
                            : std::max<int64_t>(0, (g.out[axis] - 1) * window.strides[w] +
                                                       window.Extent(w) - g.in[axis] - begin);
    // Taps t in [0, kernel) with low <= start + t * dilation < high.
    const auto before = [&](int64_t start, int64_t limit) {
      return std::clamp<int64_t>((limit - start + dilation - 1) / dilation, 0, window.kernel[w]);
    };
    for (int64_t o = 0; o < g.out[axis]; ++o) {
      const int64_t start = o * window.strides[w] - begin;
      const int64_t skipped = start >= 0 ? 0 : before(start, 0);
      const int64_t inside = start >= g.in[axis] ? 0 : before(start, g.in[axis]);
      const int64_t padded = start >= g.in[axis] + end ? 0 : before(start, g.in[axis] + end);
      g.taps[axis].push_back(
          {start + skipped * dilation, std::max<int64_t>(0, inside - skipped), padded});
    }
  }
  return g;
}

double PoolGeometry::Work() const {
  double work = static_cast<double>(planes);
  for (const auto& axis : taps) {
    double reads = 0;
    for (const Taps& t : axis) reads += static_cast<double>(t.count);
    work *= reads;
  }
  return work;
}

bool PoolGeometry::FoldsRows() const {
  // Most windows are whole; few are cut off by the edges.
  std::array<double, 3> window{};
  for (int axis = 0; axis < 3; ++axis) {
    for (const Taps& t : taps[axis]) {
      window[axis] = std::max(window[axis], static_cast<double>(t.count));
    }
  }
  const double rows = window[0] * window[1];
  const double columns = window[2] * static_cast<double>(out[2]);
  return rows * static_cast<double>(in[2]) + columns < 0.9 * rows * columns;
}

std::optional<BlockedForm> PoolBlockedForm(const Attributes&, std::span<const ValueInfo> inputs,
                                           std::span<const ValueInfo> outputs) {
  if (inputs[0].dtype != DType::kFloat || !inputs[0].shape.has_rank() ||
      inputs[0].shape.rank() > 5 || (outputs.size() > 1 && outputs[1].dtype != DType::kUndefined)) {
    return std::nullopt;
  }
  // Row-major planes are folded element by element.
  const bool global =
      outputs[0].shape.has_rank() &&
      std::all_of(outputs[0].shape.dims().begin() + 2, outputs[0].shape.dims().end(),
                  [](const Dim& d) { return d.known() && d.value() == 1; });
  return BlockedForm{.inputs = 1, .outputs = 1, .anchor = !global};
}

}  // namespace chairlift
