// chairlift::Reorder: the same tensor in the layout that its consumers need.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "device/cpu/dnnl.h"
#include "ops/dnnl_call.h"
#include "ops/linear/linear.h"
#include "ops/operator.h"

namespace chairlift {
namespace {

using dnnl::memory;

// `images` images of `channels` channels, with their spatial axes as one.
memory::desc Desc(int64_t images, int64_t channels, int64_t size, Layout layout) {
  const auto blocked =
      ChannelBlock() == 16 ? memory::format_tag::nCw16c : memory::format_tag::nCw8c;
  return {{images, channels, size},
          memory::data_type::f32,
          layout == Layout::kChannelBlocked ? blocked : memory::format_tag::ncw};
}

// Each part is some positions of an image, or some images. If there are fewer images than workers,
// images are divided into parts of about equal size, unless padding zeros of the last block must be
// written.
class ReorderKernel final : public Kernel {
 public:
  ReorderKernel(const TensorDesc& from, const TensorDesc& to, int width) {
    const Shape& shape = from.shape;
    const int64_t images = shape[0], size = shape.NumElements(2, shape.rank());
    const bool share = from.size() >= kWorthSharing;
    if (share && images < width && !to.filled_up()) {
      cuts_ = std::min<int64_t>((width + images - 1) / images, size);
    }
    parts_ = static_cast<int>(share ? std::min<int64_t>(images * cuts_, width) : 1);
    const auto floats = [&](const TensorDesc& desc) {
      return static_cast<int64_t>(desc.byte_size() / sizeof(float)) / images;
    };
    from_ = {.image = floats(from), .position = PositionFloats(from)};
    to_ = {.image = floats(to), .position = PositionFloats(to)};
    pieces_ = images * cuts_;
    size_ = size;
    for (int64_t i = 0; i < cuts_; ++i) {
      const MakingDnnlPrimitive making;
      const memory::dims cut{1, shape[1], FirstOf(i + 1) - FirstOf(i)};
      const auto part_of = [&](Layout layout) {
        const memory::desc whole = Desc(1, shape[1], size, layout);
        return cuts_ == 1 ? whole : whole.submemory_desc(cut, {0, 0, 0});
      };
      const memory::desc source = part_of(from.layout), target = part_of(to.layout);
      dnnl::primitive_attr attributes;
      attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
      const dnnl::reorder::primitive_desc pd(DnnlEngine(), source, DnnlEngine(), target,
                                             attributes);
      if (pd.scratchpad_desc().get_size() > 0) {
        throw dnnl::error(dnnl_unimplemented, "a reorder that needs scratch");
      }
      calls_.push_back(std::make_unique<DnnlCall>(
          dnnl::reorder(pd),
          std::vector<DnnlCall::Argument>{{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, target}}));
    }
  }

  Status Run(const KernelArgs& args) const override {
    std::atomic<bool> failed{false};
    args.team.For(parts_, [&](int part, int worker) {
      for (int64_t i = pieces_ * part / parts_; i < pieces_ * (part + 1) / parts_; ++i) {
        const int64_t image = i / cuts_, cut = i % cuts_;
        const void* data[] = {
            static_cast<const float*>(args.inputs[0]) + from_.At(image, FirstOf(cut)),
            static_cast<float*>(args.outputs[0]) + to_.At(image, FirstOf(cut))};
        if (!calls_[static_cast<size_t>(cut)]->Run(worker, data).ok()) failed = true;
      }
    });
    return failed ? Internal("a oneDNN reorder failed") : absl::OkStatus();
  }

 private:
  static constexpr int64_t kWorthSharing = 1 << 15;

  struct Strides {
    int64_t image = 0, position = 0;
    int64_t At(int64_t i, int64_t at) const { return i * image + at * position; }
  };
  static int64_t PositionFloats(const TensorDesc& desc) {
    return desc.layout == Layout::kChannelBlocked ? ChannelBlock() : 1;
  }
  int64_t FirstOf(int64_t cut) const { return size_ * cut / cuts_; }

  std::vector<std::unique_ptr<DnnlCall>> calls_;  // one per part
  Strides from_, to_;
  int64_t pieces_ = 0, cuts_ = 1, size_ = 0;
  int parts_ = 1;
};

// Images with one position per channel, or with equal layouts.
std::unique_ptr<Kernel> CopyImages(const TensorDesc& from, const TensorDesc& to) {
  const auto images = static_cast<size_t>(from.size() == 0 ? 0 : from.shape[0]);
  const size_t from_bytes = images == 0 ? 0 : from.byte_size() / images;
  const size_t to_bytes = images == 0 ? 0 : to.byte_size() / images;
  return MakeKernel([=](const KernelArgs& args) {
    const auto* in = static_cast<const char*>(args.inputs[0]);
    auto* out = static_cast<char*>(args.outputs[0]);
    const size_t both = std::min(from_bytes, to_bytes);
    for (size_t i = 0; i < images; ++i, in += from_bytes, out += to_bytes) {
      std::memcpy(out, in, both);
      std::memset(out + both, 0, to_bytes - both);
    }
    return absl::OkStatus();
  });
}

Status InferReorder(InferContext& context) {
  context.set_output(0, context.dtype(0), context.shape(0));
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileReorder(const CompileContext& context) {
  const TensorDesc &from = context.inputs[0], &to = context.outputs[0];
  const Shape& shape = from.shape;
  if (shape.rank() < 3) {
    return InvalidArgument("{} has no channel-blocked layout", shape.ToString());
  }
  // Equal layouts, and blocks of one position, have the same bytes apart from padding.
  if (from.layout == to.layout || shape.NumElements(2, shape.rank()) <= 1 || from.size() == 0) {
    return CopyImages(from, to);
  }
  return CatchDnnl("oneDNN reorder", [&]() -> StatusOr<std::unique_ptr<Kernel>> {
    return std::make_unique<ReorderKernel>(from, to, context.width);
  });
}

}  // namespace

void RegisterReorder(OperatorRegistry& registry) {
  OperatorDef def;
  def.domain = "chairlift";
  def.name = "Reorder";
  def.input_types = {TypeSet{DType::kFloat}};
  def.infer = InferReorder;
  def.compile = CompileReorder;
  registry.Add(std::move(def));
}

}  // namespace chairlift
