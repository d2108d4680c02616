#include "ops/window.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>

namespace chairlift {
namespace {

Status CheckEach(const char* name, std::span<const int64_t> values, size_t count, int64_t low) {
  if (values.size() != count) {
    return InvalidArgument("{} [{}] must have {} entries", name, fmt::join(values, ","), count);
  }
  for (int64_t v : values) {
    if (v < low || v > Window::kLimit) {
      return InvalidArgument("{} [{}] must be between {} and {}", name, fmt::join(values, ","), low,
                             Window::kLimit);
    }
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<Window> Window::Parse(const Attributes& attributes, int spatial_rank,
                               std::span<const int64_t> kernel) {
  if (spatial_rank < 1) return InvalidArgument("the input needs at least one spatial axis");
  const size_t rank = static_cast<size_t>(spatial_rank);
  Window w;
  w.kernel = attributes.Ints("kernel_shape", {kernel.begin(), kernel.end()});
  CHAIRLIFT_RETURN_IF_ERROR(CheckEach("kernel_shape", w.kernel, rank, 1));
  if (!kernel.empty() &&
      !std::equal(kernel.begin(), kernel.end(), w.kernel.begin(), w.kernel.end())) {
    return InvalidArgument("kernel_shape [{}] is not the weights' [{}]", fmt::join(w.kernel, ","),
                           fmt::join(kernel, ","));
  }
  const std::vector<int64_t> ones(rank, 1);
  w.strides = attributes.Ints("strides", ones);
  CHAIRLIFT_RETURN_IF_ERROR(CheckEach("strides", w.strides, rank, 1));
  w.dilations = attributes.Ints("dilations", ones);
  CHAIRLIFT_RETURN_IF_ERROR(CheckEach("dilations", w.dilations, rank, 1));
  const std::vector<int64_t> pads = attributes.Ints("pads", std::vector<int64_t>(2 * rank, 0));
  const std::string auto_pad = attributes.String("auto_pad", "NOTSET");
  w.pads_begin.assign(rank, 0);
  w.pads_end.assign(rank, 0);
  if (auto_pad == "NOTSET" || auto_pad.empty()) {
    CHAIRLIFT_RETURN_IF_ERROR(CheckEach("pads", pads, 2 * rank, 0));
    w.pads_begin.assign(pads.begin(), pads.begin() + spatial_rank);
    w.pads_end.assign(pads.begin() + spatial_rank, pads.end());
  } else if (auto_pad == "VALID") {
    w.auto_pad = AutoPad::kValid;
  } else if (auto_pad == "SAME_UPPER") {
    w.auto_pad = AutoPad::kSameUpper;
  } else if (auto_pad == "SAME_LOWER") {
    w.auto_pad = AutoPad::kSameLower;
  } else {
    return InvalidArgument("auto_pad '{}' is not NOTSET, VALID, SAME_UPPER or SAME_LOWER",
                           auto_pad);
  }
  w.ceil_mode = attributes.Int("ceil_mode", 0) != 0;
  return w;
}

StatusOr<int64_t> Window::OutputSize(int axis, int64_t in) const {
  const int64_t stride = strides[axis];
  if (auto_pad == AutoPad::kSameUpper || auto_pad == AutoPad::kSameLower) {
    return (in + stride - 1) / stride;
  }
  const int64_t room = in + pads_begin[axis] + pads_end[axis] - Extent(axis);
  if (room < 0) {
    return InvalidArgument("a window of {} positions does not fit spatial axis {}: {} + {} + {}",
                           Extent(axis), axis, in, pads_begin[axis], pads_end[axis]);
  }
  if (!ceil_mode) return room / stride + 1;
  const int64_t out = (room + stride - 1) / stride + 1;
  // The last window must start inside the input or the padding before it.
  return (out - 1) * stride >= in + pads_begin[axis] ? out - 1 : out;
}

StatusOr<Dim> Window::OutputDim(int axis, const Dim& in) const {
  if (in.known()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t out, OutputSize(axis, in.value()));
    return Dim(out);
  }
  const bool same = auto_pad == AutoPad::kSameUpper || auto_pad == AutoPad::kSameLower;
  if (strides[axis] == 1 && (same || pads_begin[axis] + pads_end[axis] == Extent(axis) - 1)) {
    return in;
  }
  return Dim::Unknown();
}

int64_t Window::PadBegin(int axis, int64_t in) const {
  if (auto_pad != AutoPad::kSameUpper && auto_pad != AutoPad::kSameLower) return pads_begin[axis];
  const int64_t out = (in + strides[axis] - 1) / strides[axis];
  const int64_t total = std::max<int64_t>(0, (out - 1) * strides[axis] + Extent(axis) - in);
  return auto_pad == AutoPad::kSameUpper ? total / 2 : total - total / 2;
}

}  // namespace chairlift
