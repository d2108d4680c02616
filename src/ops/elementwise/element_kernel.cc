// Runs over a broadcast loop nest in blocks of its last two dimensions.
#include "ops/elementwise/element_kernel.h"

#include <algorithm>
#include <utility>

namespace chairlift {

StatusOr<ElementLoop> ElementLoop::Make(std::span<const TensorDesc> operands,
                                        const TensorDesc& output, ElementFn fn,
                                        const ElementParams& params, const void* program) {
  if (fn == nullptr) {
    return Unimplemented("element type {}",
                         DTypeName(operands.empty() ? output.dtype : operands[0].dtype));
  }
  ElementLoop loop;
  CHAIRLIFT_ASSIGN_OR_RETURN(loop.loop_, MakeBroadcastLoop(operands, output));
  loop.fn_ = fn;
  loop.params_ = params;
  loop.program_ = program;
  for (size_t k = 0; k < operands.size(); ++k) {
    loop.element_bytes_[k] = static_cast<int64_t>(DTypeSize(operands[k].dtype));
  }
  loop.output_bytes_ = static_cast<int64_t>(DTypeSize(output.dtype));
  loop.rows_ = 1;
  for (size_t i = 0; i + 1 < loop.loop_.dims.size(); ++i) loop.rows_ *= loop.loop_.dims[i];
  if (output.filled_up() && loop.loop_.size > 0) {
    const int64_t blocks = ChannelBlocks(output.shape[1]);
    loop.images_ = output.shape[0];
    loop.image_elements_ = loop.loop_.size / loop.images_;
    loop.last_block_at_ = loop.image_elements_ / blocks * (blocks - 1);
    loop.block_ = ChannelBlock();
    loop.used_ = static_cast<int>(output.shape[1] % ChannelBlock());
    loop.keeps_zeros_ = loop.KeepsZeros(operands);
  }
  return loop;
}

bool ElementLoop::KeepsZeros(std::span<const TensorDesc> operands) const {
  constexpr int64_t kSome = 16;
  alignas(64) std::array<std::byte, kSome * sizeof(double)> zeros{}, made{};
  ElementBlock block{{}, made.data(), 1, kSome, {}, {}, params_, program_};
  for (size_t k = 0; k < operands.size(); ++k) {
    if (!operands[k].filled_up()) return false;  // padding elements may have any value
    block.in[k] = zeros.data();
    block.col_step[k] = 1;
  }
  made.fill(std::byte{1});
  fn_(block);
  // −0 is a zero too.
  const auto* floats = reinterpret_cast<const float*>(made.data());
  return output_bytes_ == sizeof(float) &&
         std::all_of(floats, floats + kSome, [](float x) { return x == 0; });
}

void ElementLoop::ClearFilling(void* output) const {
  for (int64_t image = 0; image < images_; ++image) {
    float* at = static_cast<float*>(output) + image * image_elements_ + last_block_at_;
    float* const end = at + image_elements_ - last_block_at_;
    for (; at < end; at += block_) std::fill(at + used_, at + block_, 0.0f);
  }
}

void ElementLoop::RunRows(std::span<const void* const> inputs, void* output, int64_t first,
                          int64_t last, int64_t col_first, int64_t col_last,
                          const ElementParams& params) const {
  const auto& dims = loop_.dims;
  const int count = static_cast<int>(inputs.size());
  const int rank = static_cast<int>(dims.size());
  const int64_t block_rows = dims[rank - 2];
  ElementBlock block{{}, nullptr, 0, col_last - col_first, {}, {}, params, program_};
  for (int k = 0; k < count; ++k) {
    block.row_step[k] = loop_.strides[k][rank - 2];
    block.col_step[k] = loop_.strides[k][rank - 1];
  }
  while (first < last) {
    const int64_t row = first % block_rows;
    block.rows = std::min(last - first, block_rows - row);
    std::array<int64_t, kMaxElementOperands> offset = {};
    for (int k = 0; k < count; ++k) {
      offset[k] = row * block.row_step[k] + col_first * block.col_step[k];
    }
    int64_t outer = first / block_rows;
    for (int axis = rank - 3; axis >= 0 && outer > 0; --axis) {
      const int64_t index = outer % dims[axis];
      outer /= dims[axis];
      for (int k = 0; k < count; ++k) offset[k] += index * loop_.strides[k][axis];
    }
    for (int k = 0; k < count; ++k) {
      block.in[k] = static_cast<const char*>(inputs[k]) + offset[k] * element_bytes_[k];
    }
    block.out = static_cast<char*>(output) + (first * dims[rank - 1] + col_first) * output_bytes_;
    fn_(block);
    first += block.rows;
  }
}

void ElementLoop::RunAll(std::span<const void* const> inputs, void* output, Team& team,
                         const ElementParams& params) const {
  if (loop_.size == 0) return;
  const int64_t cols = loop_.dims.back();
  if (loop_.size < kMinElementsToShare || team.width() == 1) {
    RunRows(inputs, output, 0, rows_, 0, cols, params);
    return;
  }
  const int64_t parts = std::min<int64_t>(4 * team.width(), loop_.size / (kMinElementsToShare / 4));
  if (rows_ >= parts) {
    team.For(static_cast<int>(parts), [&](int part, int) {
      RunRows(inputs, output, rows_ * part / parts, rows_ * (part + 1) / parts, 0, cols, params);
    });
    return;
  }
  // For few long rows: each is divided into pieces of whole cache lines.
  const int64_t pieces = (parts + rows_ - 1) / rows_;
  const int64_t piece = (cols / pieces + 63) / 64 * 64;
  team.For(static_cast<int>(rows_ * pieces), [&](int part, int) {
    const int64_t row = part / pieces;
    const int64_t col = std::min(cols, part % pieces * piece);
    const int64_t end = part % pieces == pieces - 1 ? cols : std::min(cols, col + piece);
    if (col < end) RunRows(inputs, output, row, row + 1, col, end, params);
  });
}

StatusOr<std::unique_ptr<Kernel>> MakeElementKernel(const CompileContext& context, ElementFn fn,
                                                    const ElementParams& params) {
  CHAIRLIFT_ASSIGN_OR_RETURN(ElementLoop loop,
                             ElementLoop::Make(context.inputs, context.outputs[0], fn, params));
  return MakeKernel([loop = std::move(loop)](const KernelArgs& args) {
    loop.Run(args.inputs, args.outputs[0], args.team);
    return absl::OkStatus();
  });
}

}  // namespace chairlift
