// Pad: a border of a constant, of the nearest element, mirrored or wrapped; negative pads crop.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/hands_on.h"
#include "ops/movement/indices.h"
#include "ops/movement/movement.h"
#include "ops/movement/strided_copy.h"
#include "ops/ranges.h"

namespace chairlift {
namespace {

enum class Mode { kConstant, kEdge, kReflect, kWrap };

StatusOr<Mode> ParseMode(const Attributes& attributes) {
  const std::string mode = attributes.String("mode", "constant");
  if (mode == "constant") return Mode::kConstant;
  if (mode == "edge") return Mode::kEdge;
  if (mode == "reflect") return Mode::kReflect;
  if (mode == "wrap") return Mode::kWrap;
  return InvalidArgument("mode '{}' is not constant, edge, reflect or wrap", mode);
}

struct AxisPad {
  int64_t before = 0;
  int64_t after = 0;
};
using Pads = std::vector<AxisPad>;

// pads = [before each axis, after each axis]; without axes: all of them. Refuses numbers larger
// than any tensor, so that sums below cannot overflow.
StatusOr<Pads> Collect(std::span<const int64_t> pads, std::optional<std::span<const int64_t>> axes,
                       int rank) {
  const size_t n = axes ? axes->size() : static_cast<size_t>(rank);
  if (pads.size() != 2 * n) {
    return InvalidArgument("{} pads for {} axes: two for each are needed", pads.size(), n);
  }
  Pads out(static_cast<size_t>(rank));
  std::vector<bool> seen(static_cast<size_t>(rank), false);
  for (size_t i = 0; i < n; ++i) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                               NormalizeAxis(axes ? (*axes)[i] : static_cast<int64_t>(i), rank));
    if (seen[axis]) return InvalidArgument("axis {} is named twice", axis);
    seen[axis] = true;
    for (int64_t p : {pads[i], pads[i + n]}) {
      if (p > Shape::kMaxTensorBytes || p < -Shape::kMaxTensorBytes) {
        return InvalidArgument("pad {} is too large", p);
      }
    }
    out[axis] = {pads[i], pads[i + n]};
  }
  return out;
}

Status InferPad(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Mode mode, ParseMode(context.attributes()));
  for (int i : {1, 3}) {
    if (context.has_input(i) && context.shape(i).has_rank() && context.shape(i).rank() != 1) {
      return InvalidArgument("input {} must have rank 1, not {}", i, context.shape(i).ToString());
    }
  }
  if (context.has_input(2)) {
    if (context.dtype(2) != context.dtype(0)) {
      return InvalidArgument("constant_value is {}, but data is {}; both must have one type",
                             DTypeName(context.dtype(2)), DTypeName(context.dtype(0)));
    }
    const SymbolicShape& s = context.shape(2);
    if (s.concrete() && s.ToShape().NumElements() != 1) {
      return InvalidArgument("constant_value must be one element, not {}", s.ToString());
    }
  }
  const SymbolicShape& in = context.shape(0);
  if (!in.has_rank()) return SetOutput(context, 0, context.dtype(0), SymbolicShape());
  const auto pads = context.known_elements(1);
  const auto axes = context.has_input(3) ? context.known_elements(3) : std::nullopt;
  const SymbolicShape& count = context.shape(1);
  if (!context.has_input(3) && count.has_rank() && count[0].known() &&
      count[0].value() != 2 * in.rank()) {
    return InvalidArgument("{} pads for {} axes: two for each are needed", count[0].value(),
                           in.rank());
  }
  SymbolicShape out = SymbolicShape::OfRank(in.rank());
  if (pads && (axes || !context.has_input(3))) {
    std::optional<std::span<const int64_t>> named;
    if (axes) named = *axes;
    CHAIRLIFT_ASSIGN_OR_RETURN(const Pads all, Collect(*pads, named, in.rank()));
    for (int d = 0; d < in.rank(); ++d) {
      const auto [before, after] = all[d];
      if (before == 0 && after == 0) {
        out[d] = in[d];
      } else if (in[d].known()) {
        if (in[d].value() > Shape::kMaxTensorBytes) {
          return InvalidArgument("dimension {} is too large", in[d].value());
        }
        const int64_t dim = in[d].value() + before + after;
        if (dim < 0) {
          return InvalidArgument("pads {} and {} leave nothing of axis {} of {}", before, after, d,
                                 in[d].value());
        }
        if (mode != Mode::kConstant && in[d].value() == 0 && dim > 0) {
          return InvalidArgument("axis {} is empty: only constants can pad it", d);
        }
        out[d] = dim;
      }
    }
  }
  return SetOutput(context, 0, context.dtype(0), std::move(out));
}

// The source index for output position i (counted from the first source element), or −1.
int64_t Source(Mode mode, int64_t i, int64_t dim) {
  if (i >= 0 && i < dim) return i;
  switch (mode) {
    case Mode::kConstant:
      return -1;
    case Mode::kEdge:
      return i < 0 ? 0 : dim - 1;
    case Mode::kReflect: {
      if (dim == 1) return 0;
      const int64_t period = 2 * (dim - 1);
      i = (i % period + period) % period;
      return i < dim ? i : period - i;
    }
    case Mode::kWrap:
      return (i % dim + dim) % dim;
  }
  return -1;
}

void Fill(char* dst, int64_t elements, size_t bytes, const char* value) {
  const auto fill = [&]<typename T>() {
    T v;
    std::memcpy(&v, value, sizeof(T));
    std::fill_n(reinterpret_cast<T*>(dst), elements, v);
  };
  switch (bytes) {
    case 1:
      return fill.operator()<uint8_t>();
    case 2:
      return fill.operator()<uint16_t>();
    case 4:
      return fill.operator()<uint32_t>();
    default:
      return fill.operator()<uint64_t>();
  }
}

struct Plan {
  Mode mode;
  size_t element_bytes;
  Shape in;
  Shape out;
};

// One axis of the loop; trailing axes without padding are part of the unit.
struct WalkAxis {
  int64_t in;
  int64_t out;
  int64_t before;
};
struct Walk {
  absl::InlinedVector<WalkAxis, 8> outer;
  WalkAxis last{1, 1, 0};
  int64_t unit = 1;  // elements
};

Walk MakeWalk(const Plan& plan, const Pads& pads) {
  Walk walk;
  int d = plan.in.rank() - 1;
  for (; d >= 0 && pads[d].before == 0 && pads[d].after == 0; --d) walk.unit *= plan.in[d];
  if (d >= 0) walk.last = {plan.in[d], plan.out[d], pads[d].before};
  for (int a = 0; a < d; ++a) walk.outer.push_back({plan.in[a], plan.out[a], pads[a].before});
  return walk;
}

// Rows are all indices of the outer axes.
void PadRows(const Plan& plan, const Walk& walk, const char* src, char* dst, const char* value,
             int64_t first, int64_t end) {
  const auto bytes = static_cast<int64_t>(plan.element_bytes);
  const int64_t unit = walk.unit * bytes;
  const WalkAxis& last = walk.last;
  const int64_t middle = std::clamp<int64_t>(last.before, 0, last.out);
  const int64_t skipped = middle - last.before;  // source elements cropped in front
  const int64_t count = std::clamp<int64_t>(last.in - skipped, 0, last.out - middle);
  const auto border = [&](const char* row, char* out, int64_t from, int64_t to) {
    if (plan.mode == Mode::kConstant) {
      Fill(out + from * unit, (to - from) * walk.unit, plan.element_bytes, value);
      return;
    }
    for (int64_t o = from; o < to; ++o) {
      const int64_t s = Source(plan.mode, o - last.before, last.in);
      std::memcpy(out + o * unit, row + s * unit, static_cast<size_t>(unit));
    }
  };
  for (int64_t r = first; r < end; ++r) {
    int64_t left = r;
    int64_t source_row = 0;
    int64_t stride = 1;
    bool constant = false;
    for (size_t a = walk.outer.size(); a-- > 0;) {
      const WalkAxis& axis = walk.outer[a];
      const int64_t s = Source(plan.mode, left % axis.out - axis.before, axis.in);
      left /= axis.out;
      constant |= s < 0;
      source_row += s * stride;
      stride *= axis.in;
    }
    char* out = dst + r * last.out * unit;
    if (constant) {
      Fill(out, last.out * walk.unit, plan.element_bytes, value);
      continue;
    }
    const char* row = src + source_row * last.in * unit;
    border(row, out, 0, middle);
    std::memcpy(out + middle * unit, row + skipped * unit, static_cast<size_t>(count * unit));
    border(row, out, middle + count, last.out);
  }
}

Status Run(const Plan& plan, const Pads& pads, const KernelArgs& args) {
  for (int d = 0; d < plan.in.rank(); ++d) {
    if (plan.in[d] + pads[d].before + pads[d].after != plan.out[d]) {
      return InvalidArgument("pads {} and {} of axis {} do not make {} of {}", pads[d].before,
                             pads[d].after, d, plan.out[d], plan.in[d]);
    }
  }
  const int64_t elements = plan.out.NumElements();
  if (elements == 0) return absl::OkStatus();
  static constexpr uint64_t kZero = 0;
  const char* value = reinterpret_cast<const char*>(&kZero);
  if (args.inputs.size() > 2 && args.inputs[2] != nullptr) {
    value = static_cast<const char*>(args.inputs[2]);
  }
  const auto* src = static_cast<const char*>(args.inputs[0]);
  auto* dst = static_cast<char*>(args.outputs[0]);
  const Walk walk = MakeWalk(plan, pads);
  const int64_t rows = elements / (walk.last.out * walk.unit);
  ForRanges(args.team, rows, elements * static_cast<int64_t>(plan.element_bytes),
            StridedCopy::kParallelBytes, [&](int64_t first, int64_t last) {
              PadRows(plan, walk, src, dst, value, first, last);
            });
  return absl::OkStatus();
}

absl::InlinedVector<int64_t, 16> ReadAll(const TensorDesc& desc, const void* data) {
  absl::InlinedVector<int64_t, 16> out;
  for (int64_t i = 0; i < desc.size(); ++i) out.push_back(ReadIndex(desc.dtype, data, i));
  return out;
}

StatusOr<Pads> ReadPads(const Plan& plan, const TensorDesc& pads, const TensorDesc& axes,
                        const void* pads_data, const void* axes_data) {
  const auto values = ReadAll(pads, pads_data);
  absl::InlinedVector<int64_t, 16> named;
  std::optional<std::span<const int64_t>> chosen;
  if (axes.present()) {
    named = ReadAll(axes, axes_data);
    chosen = std::span<const int64_t>(named.data(), named.size());
  }
  return Collect({values.data(), values.size()}, chosen, plan.in.rank());
}

StatusOr<std::unique_ptr<Kernel>> CompilePad(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Mode mode, ParseMode(context.attributes));
  const Plan plan{mode, DTypeSize(context.inputs[0].dtype), context.inputs[0].shape,
                  context.outputs[0].shape};
  const TensorDesc pads = context.inputs[1];
  const TensorDesc axes = context.has_input(3) ? context.inputs[3] : TensorDesc{};
  const Tensor* pads_value = context.constant(1);
  const Tensor* axes_value = context.constant(3);
  if (pads_value != nullptr && (!axes.present() || axes_value != nullptr)) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const Pads all,
                               ReadPads(plan, pads, axes, pads_value->raw(),
                                        axes_value != nullptr ? axes_value->raw() : nullptr));
    return MakeKernel([plan, all](const KernelArgs& args) { return Run(plan, all, args); });
  }
  return MakeKernel([plan, pads, axes](const KernelArgs& args) -> Status {
    CHAIRLIFT_ASSIGN_OR_RETURN(const Pads all,
                               ReadPads(plan, pads, axes, args.inputs[1],
                                        args.inputs.size() > 3 ? args.inputs[3] : nullptr));
    return Run(plan, all, args);
  });
}

// Axes without padding.
StatusOr<AxisMap> AxesOfPad(const InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, KnownRank(context, 0));
  std::vector<int64_t> axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), int64_t{0});
  if (context.has_input(3)) {
    const auto known = context.known_elements(3);
    if (!known) return Unimplemented("its axes are not known");
    axes = *known;
  }
  const auto pads = ShapeElements(context, 1);
  const bool fits = pads && pads->size() == 2 * axes.size();
  const auto is_zero = [&](size_t i) {
    return fits && (*pads)[i].known() && (*pads)[i].value() == 0;
  };
  std::vector<int64_t> padded;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!is_zero(i) || !is_zero(i + axes.size())) padded.push_back(axes[i]);
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(AxisMap map, AxesWithout(context, padded));
  map.does = "pads";
  return map;
}

int PadHandsOn(const Attributes&, std::span<const ValueInfo> inputs, std::span<const ValueInfo>) {
  const bool checked = inputs[0].shape.has_rank() &&
                       (IsAbsent(inputs, 2) || inputs[2].shape.concrete()) &&
                       (IsAbsent(inputs, 3) || inputs[3].value != nullptr);
  return checked && AllEqual(inputs[1], 0) ? 0 : -1;
}

}  // namespace

OperatorDef PadOperator() {
  return {.name = "Pad",
          .min_inputs = 2,
          .max_inputs = 4,
          .input_types = {kAllTypes, {DType::kInt64}, kAllTypes, kIndexTypes},
          .infer = InferPad,
          .axes = AxesOfPad,
          .compile = CompilePad,
          .hands_on = PadHandsOn,
          .native_half = true};
}

}  // namespace chairlift
