#include "ops/linear/product.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/stop_poll.h"
#include "ops/linear/bfloat16_gemm.h"
#include "ops/linear/huge_tensor.h"
#include "ops/linear/int8_gemm.h"
#include "ops/linear/packed_gemm.h"
#include "ops/linear/team_cut.h"

namespace chairlift {
namespace {

// With a narrow kernel, B must be constant.
class FloatProduct final : public Kernel {
 public:
  FloatProduct(Product product, int width, std::optional<BFloat16Kernel> narrow,
               std::optional<Int8Kernel> bytes)
      : p_(std::move(product)), width_(width), narrow_(narrow), bytes_(bytes) {
    cut_ = narrow || bytes ? CutForTiles(p_.m, p_.n, p_.k, width)
                           : CutForTeam(p_.m, p_.n, p_.k, width,
                                        PacksRows(p_.m, p_.a_row_stride, p_.a_k_stride));
    expand_residual_ =
        p_.residual_input >= 0 && (p_.residual_scale != 1.0f || p_.residual_column_stride != 1);
  }

  Status PackConstant(const Tensor& b, WeightCache& cache) {
    std::map<int64_t, int64_t> index;
    for (int64_t offset : p_.b_offsets) index.emplace(offset, 0);
    int64_t next = 0;
    for (auto& [offset, at] : index) at = next++;
    const int64_t size = bytes_    ? PackedInt8Bytes(p_.k, p_.n)
                         : narrow_ ? BFloat16GemmSize(*narrow_, p_.k, p_.n)
                                   : PackedGemmSize(p_.k, p_.n);
    const std::string key =
        fmt::format("{} {}x{} of {} strides {} {} scale {}",
                    bytes_    ? "int8"
                    : narrow_ ? "bfloat16"
                              : "gemm",
                    p_.k, p_.n, index.size(), p_.b_k_stride, p_.b_n_stride, p_.alpha);
    CHAIRLIFT_ASSIGN_OR_RETURN(packed_, cache.Get(b, key, [&]() -> StatusOr<Tensor> {
      if (bytes_) {
        Tensor all = HugeTensor(DType::kUInt8, Shape{static_cast<int64_t>(index.size()) * size});
        for (const auto& [offset, at] : index) {
          PackRoundedWeights(b.data<float>() + offset, p_.b_k_stride, p_.b_n_stride, p_.k, p_.n,
                             p_.alpha, all.data<uint8_t>() + at * size);
        }
        return all;
      }
      if (narrow_) {
        Tensor all = HugeTensor(BFloat16GemmType(*narrow_),
                                Shape{static_cast<int64_t>(index.size()) * size});
        const auto bytes = static_cast<int64_t>(DTypeSize(all.dtype()));
        for (const auto& [offset, at] : index) {
          PackBFloat16Weights(*narrow_, b.data<float>() + offset, p_.b_k_stride, p_.b_n_stride,
                              p_.k, p_.n, p_.alpha,
                              static_cast<std::byte*>(all.raw()) + at * size * bytes);
        }
        return all;
      }
      if (index.size() == 1) {
        return PackGemmWeights(b.data<float>() + index.begin()->first, p_.b_k_stride, p_.b_n_stride,
                               p_.k, p_.n, p_.alpha);
      }
      Tensor all = Tensor::Allocate(DType::kFloat, Shape{static_cast<int64_t>(index.size()), size});
      for (const auto& [offset, at] : index) {
        PackGemmPanels(b.data<float>() + offset, p_.b_k_stride, p_.b_n_stride, p_.k, p_.n, 0,
                       GemmPanels(p_.n), p_.alpha, all.data<float>() + at * size);
      }
      return all;
    }));
    for (int64_t offset : p_.b_offsets) packed_offsets_.push_back(index[offset] * size);
    return absl::OkStatus();
  }

  size_t scratch_bytes() const override {
    return static_cast<size_t>(ResidualFloats() + Slots() * SlotFloats()) * sizeof(float);
  }

  Status Run(const KernelArgs& args) const override {
    const float* residual = ExpandedResidual(args);
    const StopPoll poll;
    auto* scratch = static_cast<float*>(args.scratch) + ResidualFloats();
    if (p_.batches() >= width_ && p_.batches() > 1) {
      // Whole products per worker.
      const int parts =
          WorthSharing(p_.m * p_.batches(), p_.n, p_.k) ? static_cast<int>(Slots()) : 1;
      args.team.For(parts, [&](int part, int) {
        float* slot = scratch + part * SlotFloats();
        const int64_t begin = p_.batches() * part / parts;
        const int64_t end = p_.batches() * (part + 1) / parts;
        for (int64_t i = begin; i < end; ++i) {
          const void* b = PackedB(args, i, i > begin, slot);
          Compute(args, residual, i, b, 0, p_.m, 0, GemmPanels(p_.n), poll);
        }
      });
      return poll.Result();
    }
    for (int64_t i = 0; i < p_.batches(); ++i) {
      const void* b = packed_.present() ? ConstantB(i) : scratch;
      const int64_t panels = GemmPanels(p_.n);
      if (!packed_.present()) {
        const int parts = cut_.parts() == 1 ? 1 : width_;
        args.team.For(parts, [&](int part, int) {
          PackGemmPanels(B(args, i), p_.b_k_stride, p_.b_n_stride, p_.k, p_.n,
                         panels * part / parts, panels * (part + 1) / parts, p_.alpha, scratch);
        });
      }
      args.team.For(cut_.parts(), [&](int part, int) {
        const int64_t row = part / cut_.column_parts;
        const int64_t column = part % cut_.column_parts;
        Compute(args, residual, i, b, p_.m * row / cut_.row_parts,
                p_.m * (row + 1) / cut_.row_parts, panels * column / cut_.column_parts,
                panels * (column + 1) / cut_.column_parts, poll);
      });
      if (poll.Stopped()) break;
    }
    return poll.Result();
  }

 private:
  int64_t ResidualFloats() const { return expand_residual_ ? (p_.m * p_.n + 15) / 16 * 16 : 0; }
  int64_t SlotFloats() const { return packed_.present() ? 0 : PackedGemmSize(p_.k, p_.n); }
  int64_t Slots() const { return std::clamp<int64_t>(p_.batches(), 1, width_); }

  const float* B(const KernelArgs& args, int64_t i) const {
    return static_cast<const float*>(args.inputs[1]) + p_.b_offsets[i];
  }

  const void* ConstantB(int64_t i) const {
    return static_cast<const std::byte*>(packed_.raw()) +
           packed_offsets_[i] * static_cast<int64_t>(DTypeSize(packed_.dtype()));
  }

  const void* PackedB(const KernelArgs& args, int64_t i, bool has_previous, float* slot) const {
    if (packed_.present()) return ConstantB(i);
    if (!has_previous || p_.b_offsets[i] != p_.b_offsets[i - 1]) {
      PackGemmPanels(B(args, i), p_.b_k_stride, p_.b_n_stride, p_.k, p_.n, 0, GemmPanels(p_.n),
                     p_.alpha, slot);
    }
    return slot;
  }

  // The residual scaled and expanded to [m, n] if the epilogue cannot read it directly.
  const float* ExpandedResidual(const KernelArgs& args) const {
    if (p_.residual_input < 0) return nullptr;
    const auto* from = static_cast<const float*>(args.inputs[p_.residual_input]);
    if (!expand_residual_) return from;
    auto* to = static_cast<float*>(args.scratch);
    for (int64_t r = 0; r < p_.m; ++r) {
      for (int64_t c = 0; c < p_.n; ++c) {
        to[r * p_.n + c] =
            p_.residual_scale * from[r * p_.residual_row_stride + c * p_.residual_column_stride];
      }
    }
    return to;
  }

  // Large products are computed some rows at a time, so that they can be stopped between.
  void Compute(const KernelArgs& args, const float* residual, int64_t batch, const void* packed_b,
               int64_t row_begin, int64_t row_end, int64_t first, int64_t last,
               const StopPoll& poll) const {
    constexpr double kMultiplyAdds = 1e9;
    const double each =
        std::max(1.0, static_cast<double>((last - first) * kGemmPanel) * static_cast<double>(p_.k));
    const int64_t blocks =
        std::max<int64_t>(1, static_cast<int64_t>(kMultiplyAdds / each) / kGemmRowBlock);
    for (int64_t row = row_begin; row < row_end && !poll.Stopped();) {
      const int64_t end = std::min(row_end, row + blocks * kGemmRowBlock);
      ComputeRows(args, residual, batch, packed_b, row, end, first, last);
      row = end;
    }
  }

  void ComputeRows(const KernelArgs& args, const float* residual, int64_t batch,
                   const void* packed_b, int64_t row_begin, int64_t row_end, int64_t first,
                   int64_t last) const {
    GemmEpilogue epilogue;
    epilogue.activation = p_.activation;
    if (p_.bias_input >= 0) epilogue.bias = static_cast<const float*>(args.inputs[p_.bias_input]);
    if (residual != nullptr) {
      epilogue.residual_stride = expand_residual_ ? p_.n : p_.residual_row_stride;
      epilogue.residual = residual + (batch * p_.m + row_begin) * epilogue.residual_stride;
    }
    const auto* a = static_cast<const float*>(args.inputs[0]) + p_.a_offsets[batch] +
                    row_begin * p_.a_row_stride;
    auto* c = static_cast<float*>(args.outputs[0]) + (batch * p_.m + row_begin) * p_.n;
    if (bytes_) {
      const Int8Product product{packed_b, p_.n, first, last, c, p_.n, epilogue};
      RoundedInt8Gemm(*bytes_, a, p_.a_row_stride, p_.a_k_stride, row_end - row_begin, p_.k,
                      {&product, 1});
      return;
    }
    if (narrow_) {
      const BFloat16Product product{packed_b, p_.n, first, last, c, p_.n, epilogue};
      BFloat16Gemm(*narrow_, {a, p_.a_row_stride, p_.a_k_stride, row_end - row_begin, p_.k},
                   {&product, 1});
      return;
    }
    PackedGemm({a, p_.a_row_stride, p_.a_k_stride, static_cast<const float*>(packed_b), c, p_.n},
               row_end - row_begin, p_.k, p_.n, first, last, epilogue);
  }

  Product p_;
  int width_;
  std::optional<BFloat16Kernel> narrow_;
  std::optional<Int8Kernel> bytes_;
  TeamCut cut_;
  bool expand_residual_ = false;
  Tensor packed_;  // constant B
  std::vector<int64_t> packed_offsets_;
};

// Wraps instead of overflowing, like two's complement hardware.
template <typename T>
T MultiplyAdd(T a, T b, T c) {
  if constexpr (std::is_floating_point_v<T>) {
    return a * b + c;
  } else {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b) + static_cast<U>(c));
  }
}

template <typename T>
T Finished(const Product& p, T sum, T bias, T residual) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(
        Activate(p.activation, p.alpha * sum + bias + static_cast<T>(p.residual_scale) * residual));
  } else {
    if (p.alpha != 1.0f) sum = static_cast<T>(static_cast<double>(p.alpha) * sum);
    if (p.residual_scale != 1.0f) {
      residual = static_cast<T>(static_cast<double>(p.residual_scale) * residual);
    }
    return MultiplyAdd<T>(1, MultiplyAdd<T>(1, sum, bias), residual);
  }
}

// Row by row, with K as the outer loop within a row so that the inner loop runs along both B and C.
template <typename T>
void GenericRows(const Product& p, const KernelArgs& args, int64_t batch, int64_t begin,
                 int64_t end, StopPoll& poll) {
  const T* bias = p.bias_input < 0 ? nullptr : static_cast<const T*>(args.inputs[p.bias_input]);
  const T* residual =
      p.residual_input < 0 ? nullptr : static_cast<const T*>(args.inputs[p.residual_input]);
  const T* a = static_cast<const T*>(args.inputs[0]) + p.a_offsets[batch];
  const T* b = static_cast<const T*>(args.inputs[1]) + p.b_offsets[batch];
  for (int64_t r = begin; r < end; ++r) {
    T* row = static_cast<T*>(args.outputs[0]) + (batch * p.m + r) * p.n;
    std::fill_n(row, p.n, T{0});
    for (int64_t k = 0; k < p.k; ++k) {
      if (poll.Stopped(p.n)) return;
      const T value = a[r * p.a_row_stride + k * p.a_k_stride];
      const T* from = b + k * p.b_k_stride;
      if (p.b_n_stride == 1) {
        for (int64_t c = 0; c < p.n; ++c) row[c] = MultiplyAdd(value, from[c], row[c]);
      } else {
        for (int64_t c = 0; c < p.n; ++c) {
          row[c] = MultiplyAdd(value, from[c * p.b_n_stride], row[c]);
        }
      }
    }
    for (int64_t c = 0; c < p.n; ++c) {
      const int64_t residual_at =
          (batch * p.m + r) * p.residual_row_stride + c * p.residual_column_stride;
      row[c] = Finished<T>(p, row[c], bias == nullptr ? T{0} : bias[c],
                           residual == nullptr ? T{0} : residual[residual_at]);
    }
  }
}

template <typename T>
std::unique_ptr<Kernel> GenericProduct(Product product, int width) {
  return MakeKernel([p = std::move(product), width](const KernelArgs& args) {
    const int64_t rows = p.batches() * p.m;
    const int parts = WorthSharing(rows, p.n, p.k) ? width : 1;
    const StopPoll poll;
    args.team.For(parts, [&](int part, int) {
      StopPoll own = poll;
      int64_t row = rows * part / parts;
      const int64_t end = rows * (part + 1) / parts;
      while (row < end) {
        const int64_t batch = row / p.m;
        const int64_t stop = std::min(end, (batch + 1) * p.m);
        GenericRows<T>(p, args, batch, row - batch * p.m, stop - batch * p.m, own);
        if (own.Stopped()) return;
        row = stop;
      }
    });
    return poll.Result();
  });
}

StatusOr<std::unique_ptr<Kernel>> CompileNarrow(const Product& product,
                                                const CompileContext& context, bool asked,
                                                std::optional<BFloat16Kernel> narrow,
                                                std::optional<Int8Kernel> bytes) {
  if (!asked) return Unimplemented("the precision is another one");
  const Tensor* b = context.constant(1);
  if (product.dtype != DType::kFloat || b == nullptr || b->size() == 0) {
    return Unimplemented("it is for float32 with constant weights");
  }
  auto kernel = std::make_unique<FloatProduct>(product, context.width, narrow, bytes);
  CHAIRLIFT_RETURN_IF_ERROR(kernel->PackConstant(*b, context.weights));
  return kernel;
}

StatusOr<std::unique_ptr<Kernel>> CompileBFloat16(const Product& product,
                                                  const CompileContext& context) {
  return CompileNarrow(product, context, RoundsToBFloat16(context.attributes),
                       MachineBFloat16Kernel(), std::nullopt);
}

StatusOr<std::unique_ptr<Kernel>> CompileInt8(const Product& product,
                                              const CompileContext& context) {
  return CompileNarrow(product, context, RoundsToInt8(context.attributes), std::nullopt,
                       MachineInt8Kernel());
}

StatusOr<std::unique_ptr<Kernel>> CompilePacked(const Product& product,
                                                const CompileContext& context) {
  if (product.dtype != DType::kFloat) return Unimplemented("it computes float32");
  auto kernel = std::make_unique<FloatProduct>(product, context.width, std::nullopt, std::nullopt);
  if (const Tensor* b = context.constant(1); b != nullptr && b->size() > 0) {
    CHAIRLIFT_RETURN_IF_ERROR(kernel->PackConstant(*b, context.weights));
  }
  return kernel;
}

StatusOr<std::unique_ptr<Kernel>> CompileLoops(const Product& product,
                                               const CompileContext& context) {
  return DispatchTypes<float, double, int32_t, int64_t, uint32_t, uint64_t>(
      product.dtype, [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
        return GenericProduct<T>(product, context.width);
      });
}

}  // namespace

bool RoundsToBFloat16(const Attributes& attributes) {
  return attributes.Int(kBFloat16Attribute, 0) != 0;
}

bool RoundsToInt8(const Attributes& attributes) { return attributes.Int(kInt8Attribute, 0) != 0; }

void MergeBatches(Product& p) {
  if (p.batches() < 2 || p.a_row_stride != p.k || p.a_k_stride != 1) return;
  if (p.residual_input >= 0 && p.residual_row_stride != p.n) return;
  for (int64_t i = 0; i < p.batches(); ++i) {
    if (p.b_offsets[i] != p.b_offsets[0] || p.a_offsets[i] != i * p.m * p.k) return;
  }
  p.m *= p.batches();
  p.a_offsets = {0};
  p.b_offsets.resize(1);
}

std::span<const Implementation<Product>> ProductImplementations() {
  static constexpr Implementation<Product> kTable[] = {
      {"bfloat16", CompileBFloat16},
      {"int8", CompileInt8},
      {"packed panels", CompilePacked},
      {"plain loops", CompileLoops},
  };
  return kTable;
}

StatusOr<std::unique_ptr<Kernel>> CompileProduct(Product product, const CompileContext& context) {
  if (context.outputs[0].size() == 0) {
    return MakeKernel([](const KernelArgs&) { return absl::OkStatus(); });
  }
  MergeBatches(product);
  std::span<const Implementation<Product>> table = ProductImplementations();
  // The first two implementations round to narrower types. They are skipped unless the node or the
  // choice asks for them.
  const bool asked = context.choice != nullptr && !context.choice->only.empty();
  if (!asked && !RoundsToBFloat16(context.attributes) && !RoundsToInt8(context.attributes)) {
    table = table.subspan(2);
  }
  return CompileFirst(table, product, context);
}

}  // namespace chairlift
