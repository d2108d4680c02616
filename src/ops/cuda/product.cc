// MatMul, Gemm, chairlift::FusedMatMul and chairlift::ParallelMatMul on a GPU.
//
// A product runs in one of three ways, chosen at compile time:
//   - cuBLASLt alone, with bias, dense residual and Relu applied when it writes its results;
//   - cuBLASLt, then one kernel for bias, residual and activation, in place;
//   - a plain kernel, for integers, empty sums, and cases without a cuBLASLt algorithm.
#include "ops/cuda/product.cuh"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "ops/cuda/cublas.h"
#include "ops/cuda/kernels.h"
#include "ops/linear/product.h"

namespace chairlift::cuda {
namespace {

// Up to this many elements, a 16-bit result is kept in float32 until its activation, and so rounded
// once. Larger results are rounded before their activation too, which halves the memory traffic.
constexpr int64_t kMostUnrounded = int64_t{1} << 20;

// The batches of a product as runs of evenly spaced matrices: matrix j of run i is at runs[i] + j ·
// stride, in elements.
struct Runs {
  struct Run {
    int64_t a = 0, b = 0, c = 0;
  };
  int64_t count = 1;  // matrices per run
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  std::vector<Run> runs;
};

// Whether offsets[first + j · step] for j in [0, count) are evenly spaced by `stride`.
bool Even(const std::vector<int64_t>& offsets, size_t first, size_t step, size_t count,
          int64_t stride) {
  for (size_t j = 1; j < count; ++j) {
    const size_t at = first + j * step;
    if (offsets[at] - offsets[at - step] != stride) return false;
  }
  return true;
}
// The same for every run of `count` in `offsets`, all with one stride.
bool EvenRuns(const std::vector<int64_t>& offsets, size_t count) {
  if (count == 1) return true;
  const int64_t stride = offsets[1] - offsets[0];
  for (size_t first = 0; first < offsets.size(); first += count) {
    if (!Even(offsets, first, 1, count, stride)) return false;
  }
  return true;
}

// With the smallest number of runs.
Runs RunsOf(const Product& p) {
  const size_t batches = p.a_offsets.size();
  const int64_t matrix = p.m * p.n;
  size_t count = batches;
  while (batches % count != 0 || !EvenRuns(p.a_offsets, count) || !EvenRuns(p.b_offsets, count)) {
    --count;
  }
  const size_t rest = batches / count;
  Runs out;
  // If the first matrices of the runs are evenly spaced too, runs can also go across.
  const bool across = rest > count &&
                      Even(p.a_offsets, 0, count, rest, p.a_offsets[count] - p.a_offsets[0]) &&
                      Even(p.b_offsets, 0, count, rest, p.b_offsets[count] - p.b_offsets[0]);
  const size_t step = across ? count : 1;
  const size_t runs = across ? count : rest;
  const size_t run_step = across ? 1 : count;
  out.count = static_cast<int64_t>(across ? rest : count);
  if (out.count > 1) {
    out.a_stride = p.a_offsets[step] - p.a_offsets[0];
    out.b_stride = p.b_offsets[step] - p.b_offsets[0];
  }
  out.c_stride = static_cast<int64_t>(step) * matrix;
  for (size_t i = 0; i < runs; ++i) {
    const size_t at = i * run_step;
    out.runs.push_back({p.a_offsets[at], p.b_offsets[at], static_cast<int64_t>(at) * matrix});
  }
  return out;
}

const std::byte* Offset(const void* p, int64_t elements, DType dtype) {
  return static_cast<const std::byte*>(p) + elements * static_cast<int64_t>(DTypeSize(dtype));
}
std::byte* Offset(void* p, int64_t elements, DType dtype) {
  return static_cast<std::byte*>(p) + elements * static_cast<int64_t>(DTypeSize(dtype));
}

bool HasTwoBytes(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

struct ProductOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;      // null if absent
  const void* residual = nullptr;  // null if absent
  void* c = nullptr;
};

// A chairlift::Product with elements.
class DeviceProduct {
 public:
  static StatusOr<DeviceProduct> Create(Product product, const CompileContext& context) {
    DeviceProduct made;
    MergeBatches(product);
    made.p_ = std::move(product);
    made.runs_ = RunsOf(made.p_);
    const Status status = made.Plan(static_cast<const CudaDevice&>(context.device));
    if (!status.ok() && status.code() != absl::StatusCode::kUnimplemented) return status;
    return made;
  }

  size_t scratch_bytes() const { return product_bytes_ + cublas_bytes_; }

  Status Run(cudaStream_t stream, const ProductOperands& operands, void* scratch) const {
    if (!cublas_.has_value()) {
      RunPlain(stream, operands);
      return Launched("product");
    }
    const DType result = cublas_->product().result;
    void* product = product_bytes_ > 0 ? scratch : operands.c;
    const bool has_bias = cublas_->product().has_bias;
    const bool has_residual = cublas_->product().beta != 0;
    for (const Runs::Run& run : runs_.runs) {
      const void* residual = has_residual ? Offset(operands.residual, run.c, p_.dtype) : nullptr;
      CHAIRLIFT_RETURN_IF_ERROR(cublas_->Run(
          stream, Offset(operands.a, run.a, p_.dtype), Offset(operands.b, run.b, p_.dtype),
          has_bias ? operands.bias : nullptr, residual, Offset(product, run.c, result),
          static_cast<std::byte*>(scratch) + product_bytes_));
    }
    if (!finishes_) return {};
    FinishProduct(stream, result, p_.dtype, product, operands.c, p_.batches() * p_.m, p_.n,
                  End(operands));
    return Launched("product");
  }

 private:
  // Sets cublas_. Unimplemented: the plain kernel must be used.
  Status Plan(const CudaDevice& device) {
    MatrixProduct product{.dtype = p_.dtype, .result = p_.dtype};
    product.batches = runs_.count;
    product.m = p_.m;
    product.n = p_.n;
    product.k = p_.k;
    if (p_.k == 0) return Unimplemented("there is nothing to add up");
    if (p_.a_k_stride == 1 && p_.a_row_stride >= p_.k) {
      product.a_row_stride = p_.a_row_stride;
    } else if (p_.a_row_stride == 1 && p_.a_k_stride >= p_.m) {
      product.transpose_a = true;
      product.a_row_stride = p_.a_k_stride;
    } else {
      return Unimplemented("A is not a matrix of dense rows or columns");
    }
    if (p_.b_n_stride == 1 && p_.b_k_stride >= p_.n) {
      product.b_row_stride = p_.b_k_stride;
    } else if (p_.b_k_stride == 1 && p_.b_n_stride >= p_.k) {
      product.transpose_b = true;
      product.b_row_stride = p_.b_n_stride;
    } else {
      return Unimplemented("B is not a matrix of dense rows or columns");
    }
    product.c_row_stride = p_.n;
    product.a_batch_stride = runs_.a_stride;
    product.b_batch_stride = runs_.b_stride;
    product.c_batch_stride = runs_.c_stride;
    product.alpha = p_.alpha;

    const ActivationKind kind = p_.activation.kind;
    const bool has_bias = p_.bias_input >= 0;
    const bool has_residual = p_.residual_input >= 0;
    finishes_ = has_bias || has_residual || kind != ActivationKind::kNone;
    const bool one_row = p_.m == 1 && p_.batches() == 1;
    const bool dense_residual =
        p_.residual_column_stride == 1 && (p_.residual_row_stride == p_.n || one_row);
    if (finishes_ && (!has_residual || dense_residual) && p_.dtype != DType::kDouble &&
        (kind == ActivationKind::kNone || kind == ActivationKind::kRelu)) {
      MatrixProduct whole = product;
      whole.has_bias = has_bias;
      whole.relu = kind == ActivationKind::kRelu;
      whole.beta = has_residual ? p_.residual_scale : 0;
      if (auto made = CublasProduct::Create(device, whole); made.ok()) {
        finishes_ = false;
        return Take(*std::move(made), 0);
      }
    }
    const int64_t elements = p_.batches() * p_.m * p_.n;
    if (finishes_ && HasTwoBytes(p_.dtype) && elements <= kMostUnrounded) {
      MatrixProduct unrounded = product;
      unrounded.result = DType::kFloat;
      if (auto made = CublasProduct::Create(device, unrounded); made.ok()) {
        return Take(*std::move(made), static_cast<size_t>(elements) * sizeof(float));
      }
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(CublasProduct made, CublasProduct::Create(device, product));
    return Take(std::move(made), 0);
  }

  Status Take(CublasProduct made, size_t product_bytes) {
    cublas_bytes_ = made.scratch_bytes();
    product_bytes_ = (product_bytes + 63) / 64 * 64;
    cublas_ = std::move(made);
    return {};
  }

  ProductEnd End(const ProductOperands& operands) const {
    ProductEnd end;
    end.bias = p_.bias_input >= 0 ? operands.bias : nullptr;
    end.residual = p_.residual_input >= 0 ? operands.residual : nullptr;
    end.residual_scale = p_.residual_scale;
    end.residual_row_stride = p_.residual_row_stride;
    end.residual_column_stride = p_.residual_column_stride;
    end.activation = {p_.activation.kind, p_.activation.alpha, p_.activation.beta};
    return end;
  }

  // Runs need not be dense in C here, so this goes batch by batch.
  void RunPlain(cudaStream_t stream, const ProductOperands& operands) const {
    const bool dense = runs_.c_stride == p_.m * p_.n;
    const int64_t launches = dense ? 1 : runs_.count;
    for (const Runs::Run& run : runs_.runs) {
      for (int64_t i = 0; i < launches; ++i) {
        const int64_t c = run.c + i * runs_.c_stride;
        PlainProduct plain;
        plain.a = Offset(operands.a, run.a + i * runs_.a_stride, p_.dtype);
        plain.b = Offset(operands.b, run.b + i * runs_.b_stride, p_.dtype);
        plain.c = Offset(operands.c, c, p_.dtype);
        plain.batches = dense ? runs_.count : 1;
        plain.m = p_.m;
        plain.n = p_.n;
        plain.k = p_.k;
        plain.a_batch_stride = runs_.a_stride;
        plain.a_row_stride = p_.a_row_stride;
        plain.a_k_stride = p_.a_k_stride;
        plain.b_batch_stride = runs_.b_stride;
        plain.b_k_stride = p_.b_k_stride;
        plain.b_n_stride = p_.b_n_stride;
        plain.alpha = p_.alpha;
        plain.end = End(operands);
        if (plain.end.residual != nullptr) {
          plain.end.residual =
              Offset(plain.end.residual, c / p_.n * p_.residual_row_stride, p_.dtype);
        }
        LaunchPlainProduct(stream, p_.dtype, plain);
      }
    }
  }

  Product p_;
  Runs runs_;
  std::optional<CublasProduct> cublas_;  // absent: the plain kernel is used
  bool finishes_ = false;                // bias, residual and activation are applied after cublas_
  size_t product_bytes_ = 0;             // of a float32 product, at the start of the scratch memory
  size_t cublas_bytes_ = 0;
};

std::unique_ptr<Kernel> Nothing() {
  return MakeKernel([](const KernelArgs&) -> Status { return {}; });
}

const void* InputOf(const KernelArgs& args, int i) {
  return i >= 0 && i < static_cast<int>(args.inputs.size()) ? args.inputs[i] : nullptr;
}

StatusOr<std::unique_ptr<Kernel>> CompileDeviceProduct(Product product,
                                                       const CompileContext& context) {
  if (context.outputs[0].size() == 0) return Nothing();
  const int bias = product.bias_input;
  const int residual = product.residual_input;
  CHAIRLIFT_ASSIGN_OR_RETURN(DeviceProduct made,
                             DeviceProduct::Create(std::move(product), context));
  const size_t scratch_bytes = made.scratch_bytes();
  return MakeKernel(
      [made = std::move(made), bias, residual](const KernelArgs& args) -> Status {
        return made.Run(StreamOf(args).handle(),
                        {args.inputs[0], args.inputs[1], InputOf(args, bias),
                         InputOf(args, residual), args.outputs[0]},
                        args.scratch);
      },
      scratch_bytes);
}

StatusOr<std::unique_ptr<Kernel>> CompileMatMul(const CompileContext& context) {
  return CompileDeviceProduct(MatMulProduct(context), context);
}

StatusOr<std::unique_ptr<Kernel>> CompileFusedMatMul(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(Product product, FusedMatMulProduct(context));
  return CompileDeviceProduct(std::move(product), context);
}

StatusOr<std::unique_ptr<Kernel>> CompileGemm(const CompileContext& context) {
  return CompileDeviceProduct(GemmProduct(context), context);
}

// Product i has inputs 1 + 2 · i (B) and 2 + 2 · i (bias, optional), and output i.
class ParallelMatMul final : public Kernel {
 public:
  static StatusOr<std::unique_ptr<Kernel>> Compile(const CompileContext& context) {
    auto kernel = std::make_unique<ParallelMatMul>();
    const Shape& a = context.inputs[0].shape;
    for (int i = 0; 1 + 2 * i < static_cast<int>(context.inputs.size()); ++i) {
      Product product;
      product.dtype = context.inputs[0].dtype;
      product.m = a.NumElements(0, a.rank() - 1);
      product.k = product.a_row_stride = a[a.rank() - 1];
      product.n = product.b_k_stride = context.inputs[1 + 2 * i].shape[1];
      product.a_k_stride = product.b_n_stride = 1;
      product.a_offsets = product.b_offsets = {0};
      if (context.has_input(2 + 2 * i)) product.bias_input = 2 + 2 * i;
      if (product.m == 0 || product.n == 0) continue;
      CHAIRLIFT_ASSIGN_OR_RETURN(DeviceProduct made,
                                 DeviceProduct::Create(std::move(product), context));
      kernel->scratch_bytes_ = std::max(kernel->scratch_bytes_, made.scratch_bytes());
      kernel->parts_.push_back({i, std::move(made)});
    }
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  size_t scratch_bytes() const override { return scratch_bytes_; }

  Status Run(const KernelArgs& args) const override {
    cudaStream_t stream = StreamOf(args).handle();
    for (const Part& part : parts_) {
      if (args.outputs[part.index] == nullptr) continue;
      CHAIRLIFT_RETURN_IF_ERROR(
          part.product.Run(stream,
                           {args.inputs[0], InputOf(args, 1 + 2 * part.index),
                            InputOf(args, 2 + 2 * part.index), nullptr, args.outputs[part.index]},
                           args.scratch));
    }
    return {};
  }

 private:
  struct Part {
    int index;
    DeviceProduct product;
  };
  std::vector<Part> parts_;
  size_t scratch_bytes_ = 0;  // for one product: they run one after the other
};

}  // namespace

std::span<const KernelEntry> ProductKernels() {
  static constexpr KernelEntry kEntries[] = {
      {"", "MatMul", CompileMatMul},
      {"", "Gemm", CompileGemm},
      {"chairlift", "FusedMatMul", CompileFusedMatMul},
      {"chairlift", "ParallelMatMul", ParallelMatMul::Compile},
  };
  return kEntries;
}

}  // namespace chairlift::cuda
