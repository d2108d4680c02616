// Col2Im: sums sliding blocks (columns) back into the image that they were taken from.
#include <algorithm>
#include <cstring>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/image/image.h"

namespace chairlift {
namespace {

constexpr int64_t kLongest = int64_t{1} << 31;

// Per spatial axis.
struct BlockWindow {
  std::vector<int64_t> dilations;
  std::vector<int64_t> strides;
  std::vector<int64_t> before;
  std::vector<int64_t> after;
};

StatusOr<BlockWindow> ParseWindow(const Attributes& attributes, size_t axes) {
  BlockWindow w;
  w.dilations = attributes.Ints("dilations", std::vector<int64_t>(axes, 1));
  w.strides = attributes.Ints("strides", std::vector<int64_t>(axes, 1));
  const std::vector<int64_t> pads = attributes.Ints("pads", std::vector<int64_t>(2 * axes, 0));
  if (w.dilations.size() != axes || w.strides.size() != axes || pads.size() != 2 * axes) {
    return InvalidArgument("{} dilations, {} strides and {} pads for {} axes", w.dilations.size(),
                           w.strides.size(), pads.size(), axes);
  }
  for (size_t d = 0; d < axes; ++d) {
    if (w.dilations[d] < 1 || w.strides[d] < 1 || pads[d] < 0 || pads[d + axes] < 0 ||
        std::max({w.dilations[d], w.strides[d], pads[d], pads[d + axes]}) > kLongest) {
      return InvalidArgument("dilation {}, stride {} and pads {}, {} are not possible",
                             w.dilations[d], w.strides[d], pads[d], pads[d + axes]);
    }
  }
  w.before.assign(pads.begin(), pads.begin() + static_cast<int64_t>(axes));
  w.after.assign(pads.begin() + static_cast<int64_t>(axes), pads.end());
  return w;
}

// The number of blocks along each axis.
StatusOr<std::vector<int64_t>> BlockCounts(const BlockWindow& w, std::span<const int64_t> image,
                                           std::span<const int64_t> block) {
  std::vector<int64_t> counts;
  for (size_t d = 0; d < image.size(); ++d) {
    if (image[d] < 1 || block[d] < 1 || std::max(image[d], block[d]) > kLongest) {
      return InvalidArgument("image dimension {} and block dimension {} are not possible", image[d],
                             block[d]);
    }
    int64_t reach;
    if (__builtin_mul_overflow(w.dilations[d], block[d] - 1, &reach)) reach = kLongest * 4;
    const int64_t room = image[d] + w.before[d] + w.after[d] - reach - 1;
    if (room < 0) return InvalidArgument("a block of {} does not fit axis {}", block[d], d);
    counts.push_back(room / w.strides[d] + 1);
  }
  return counts;
}

Status InferCol2im(InferContext& context) {
  const SymbolicShape& in = context.shape(0);
  if (in.has_rank() && in.rank() != 3) {
    return InvalidArgument("input must have rank 3, not {}", in.ToString());
  }
  const auto image = context.known_elements(1);
  const auto block = context.known_elements(2);
  const SymbolicShape& count = context.shape(1);
  if (!image || !block) {
    if (!count.has_rank() || count.rank() != 1 || !count[0].known() ||
        count[0].value() > kMaxRank) {
      return SetOutput(context, 0, context.dtype(0), SymbolicShape());
    }
    SymbolicShape out = SymbolicShape::OfRank(static_cast<int>(count[0].value()) + 2);
    return SetOutput(context, 0, context.dtype(0), std::move(out));
  }
  if (image->empty() || image->size() != block->size() ||
      image->size() > static_cast<size_t>(kMaxRank)) {
    return InvalidArgument("image_shape of {} and block_shape of {} axes", image->size(),
                           block->size());
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const BlockWindow w, ParseWindow(context.attributes(), image->size()));
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> counts, BlockCounts(w, *image, *block));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t blocks, Shape(counts).Checked(1));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t taps, Shape(*block).Checked(1));
  std::vector<Dim> out(2);
  if (in.has_rank()) {
    if (in[2].known() && in[2].value() != blocks) {
      return InvalidArgument("input has {} columns, the image has {} blocks", in[2].value(),
                             blocks);
    }
    if (in[1].known() && in[1].value() % taps != 0) {
      return InvalidArgument("{} rows are not a multiple of the {} elements of a block",
                             in[1].value(), taps);
    }
    out[0] = in[0];
    const Dim divisor(taps);
    if (const auto channels = Quotient({&in[1], 1}, {&divisor, 1})) out[1] = *channels;
  }
  out.insert(out.end(), image->begin(), image->end());
  return SetOutput(context, 0, context.dtype(0), SymbolicShape(std::move(out)));
}

struct Plan {
  BlockWindow window;
  std::vector<int64_t> image;
  std::vector<int64_t> block;
  std::vector<int64_t> counts;
  int64_t planes = 0;

  static StatusOr<Plan> Of(const BlockWindow& window, const Shape& in, const Shape& out,
                           std::span<const int64_t> block) {
    Plan plan;
    plan.window = window;
    plan.image.assign(out.begin() + 2, out.end());
    plan.block.assign(block.begin(), block.end());
    plan.planes = out[0] * out[1];
    CHAIRLIFT_ASSIGN_OR_RETURN(plan.counts, BlockCounts(window, plan.image, block));
    CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t taps, Shape(plan.block).Checked(1));
    CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t blocks, Shape(plan.counts).Checked(1));
    if (!(in == Shape{out[0], out[1] * taps, blocks})) {
      return InvalidArgument("input {} does not make {}", in.ToString(), out.ToString());
    }
    return plan;
  }
};

// Advances to the next index below `sizes`, last axis first; false after the last.
bool Next(std::span<const int64_t> sizes, std::vector<int64_t>& index) {
  for (size_t d = sizes.size(); d-- > 0;) {
    if (++index[d] < sizes[d]) return true;
    index[d] = 0;
  }
  return false;
}

template <typename T>
void Sum(const Plan& plan, const T* in, T* out) {
  const size_t axes = plan.image.size();
  const int64_t size = Shape(plan.image).NumElements();
  std::fill_n(out, plan.planes * size, T(0));
  for (int64_t p = 0; p < plan.planes; ++p, out += size) {
    std::vector<int64_t> tap(axes, 0);
    do {
      std::vector<int64_t> block(axes, 0);
      do {
        int64_t to = 0;
        bool inside = true;
        for (size_t d = 0; d < axes; ++d) {
          const int64_t at = block[d] * plan.window.strides[d] + tap[d] * plan.window.dilations[d] -
                             plan.window.before[d];
          inside = inside && at >= 0 && at < plan.image[d];
          to = to * plan.image[d] + at;
        }
        if (inside) out[to] += *in;
        ++in;
      } while (Next(plan.counts, block));
    } while (Next(plan.block, tap));
  }
}

StatusOr<std::unique_ptr<Kernel>> CompileCol2imBlocks(const CompileContext& context) {
  const Shape in = context.inputs[0].shape;
  const Shape out = context.outputs[0].shape;
  const size_t axes = static_cast<size_t>(out.rank()) - 2;
  if (context.inputs[2].size() != static_cast<int64_t>(axes)) {
    return InvalidArgument("block_shape of {} for {} axes", context.inputs[2].size(), axes);
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const BlockWindow window, ParseWindow(context.attributes, axes));
  return DispatchNumeric(
      context.inputs[0].dtype, [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelArgs& args) -> Status {
          const std::span block(static_cast<const int64_t*>(args.inputs[2]), axes);
          CHAIRLIFT_ASSIGN_OR_RETURN(const Plan plan, Plan::Of(window, in, out, block));
          Sum(plan, static_cast<const T*>(args.inputs[0]), static_cast<T*>(args.outputs[0]));
          return absl::OkStatus();
        });
      });
}

}  // namespace

OperatorDef Col2ImOperator() {
  return {.name = "Col2Im",
          .min_inputs = 3,
          .max_inputs = 3,
          .input_types = {kFloatTypes, {DType::kInt64}},
          .infer = InferCol2im,
          .axes = FirstAxis<0>,
          .compile = CompileCol2imBlocks};
}

}  // namespace chairlift
