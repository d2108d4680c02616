#include "ops/cuda/cublas.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/status.h"
#include "device/cuda/cuda_stream.h"

namespace chairlift::cuda {
namespace {

constexpr uint64_t kMostWorkspace = uint64_t{32} << 20;  // bytes
constexpr size_t kWorkspaceAlignment = 256;              // bytes
// Bytes, of the scratch memory from the caller.
constexpr size_t kScratchAlignment = 64;
constexpr uint32_t kVectorAlignment = 16;  // bytes

Status Blas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return Internal("cuBLASLt: {}: {}", what, cublasLtGetStatusString(status));
}

// One per device, never destroyed: when the program ends, CUDA may already be gone. Thread-safe.
StatusOr<cublasLtHandle_t> HandleOf(int device) {
  static std::mutex& mutex = *new std::mutex();
  static auto& handles = *new std::map<int, cublasLtHandle_t>();
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles[device];
  if (handle == nullptr) CHAIRLIFT_RETURN_IF_ERROR(Blas(cublasLtCreate(&handle), "create"));
  return handle;
}

StatusOr<cudaDataType_t> TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return CUDA_R_32F;
    case DType::kDouble:
      return CUDA_R_64F;
    case DType::kFloat16:
      return CUDA_R_16F;
    case DType::kBFloat16:
      return CUDA_R_16BF;
    default:
      return Unimplemented("cuBLASLt has no products of {}", DTypeName(dtype));
  }
}

template <typename T>
Status Set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, T value) {
  return Blas(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof(value)),
              "an attribute of a product");
}
template <typename T>
Status Set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, T value) {
  return Blas(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof(value)),
              "an attribute of a matrix");
}

// A row-major matrix [rows, columns] is a column-major matrix of columns × rows.
Status Lay(cublasLtMatrixLayout_t layout, cudaDataType_t type, int64_t rows, int64_t columns,
           int64_t row_stride, int64_t batches, int64_t batch_stride) {
  CHAIRLIFT_RETURN_IF_ERROR(
      Blas(cublasLtMatrixLayoutInit(layout, type, static_cast<uint64_t>(columns),
                                    static_cast<uint64_t>(rows), row_stride),
           "the layout of a matrix"));
  CHAIRLIFT_RETURN_IF_ERROR(
      Set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batches)));
  return Set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, batch_stride);
}

bool Aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % kVectorAlignment == 0; }

}  // namespace

Status CublasProduct::Describe(const MatrixProduct& product, cublasComputeType_t compute,
                               cudaDataType_t scale, const void* bias,
                               cublasLtMatmulDesc_t description) {
  CHAIRLIFT_RETURN_IF_ERROR(
      Blas(cublasLtMatmulDescInit(description, compute, scale), "the description of a product"));
  const auto operation = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
  CHAIRLIFT_RETURN_IF_ERROR(Set(description, CUBLASLT_MATMUL_DESC_TRANSA,
                                static_cast<int32_t>(operation(product.transpose_b))));
  CHAIRLIFT_RETURN_IF_ERROR(Set(description, CUBLASLT_MATMUL_DESC_TRANSB,
                                static_cast<int32_t>(operation(product.transpose_a))));
  if (!product.has_bias && !product.relu) return {};
  const cublasLtEpilogue_t epilogue = !product.relu      ? CUBLASLT_EPILOGUE_BIAS
                                      : product.has_bias ? CUBLASLT_EPILOGUE_RELU_BIAS
                                                         : CUBLASLT_EPILOGUE_RELU;
  CHAIRLIFT_RETURN_IF_ERROR(
      Set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(epilogue)));
  if (!product.has_bias) return {};
  return Set(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
}

Status CublasProduct::Choose(Plan& plan, uint32_t alignment, cublasLtMatmulAlgo_t& algorithm,
                             size_t& workspace) {
  // No address is known yet: a pointer with exactly this alignment stands for the bias.
  const void* const bias = reinterpret_cast<const void*>(  // NOLINT(performance-no-int-to-ptr)
      uintptr_t{0x10000} + alignment);
  cublasLtMatmulDescOpaque_t description;
  CHAIRLIFT_RETURN_IF_ERROR(Describe(plan.product, plan.compute, plan.scale, bias, &description));
  cublasLtMatmulPreferenceOpaque_t preference;
  CHAIRLIFT_RETURN_IF_ERROR(Blas(cublasLtMatmulPreferenceInit(&preference), "preferences"));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    return Blas(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
                "a preference");
  };
  CHAIRLIFT_RETURN_IF_ERROR(prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace));
  // Parts of a split sum are added before they are rounded.
  CHAIRLIFT_RETURN_IF_ERROR(prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                   static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    CHAIRLIFT_RETURN_IF_ERROR(prefer(attribute, alignment));
  }
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(plan.handle, &description, &plan.first, &plan.second,
                                     &plan.result, &plan.result, &preference, 1, &found, &count);
  if (status != CUBLAS_STATUS_SUCCESS || count < 1 || found.state != CUBLAS_STATUS_SUCCESS) {
    const MatrixProduct& p = plan.product;
    return Unimplemented("cuBLASLt has no algorithm for {} products of {}x{} by {}x{} {} ({})",
                         p.batches, p.m, p.k, p.k, p.n, DTypeName(p.dtype),
                         cublasLtGetStatusString(status));
  }
  algorithm = found.algo;
  workspace = found.workspaceSize;
  return {};
}

StatusOr<CublasProduct> CublasProduct::Create(const CudaDevice& device,
                                              const MatrixProduct& product) {
  const MatrixProduct& p = product;
  const auto key = std::make_tuple(
      device.index(), device.tf32(), p.dtype, p.result, p.batches, p.m, p.n, p.k, p.transpose_a,
      p.transpose_b, p.a_row_stride, p.b_row_stride, p.c_row_stride, p.a_batch_stride,
      p.b_batch_stride, p.c_batch_stride, p.alpha, p.beta, p.has_bias, p.relu);
  constexpr size_t kMostKept = 4096;  // beyond this, all are dropped
  static std::mutex mutex;
  static auto& kept = *new std::map<decltype(key), std::shared_ptr<const Plan>>;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (const auto found = kept.find(key); found != kept.end()) {
      return CublasProduct(found->second);
    }
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(std::shared_ptr<const Plan> plan, MakePlan(device, product));
  const std::lock_guard<std::mutex> lock(mutex);
  if (kept.size() >= kMostKept) kept.clear();
  kept.emplace(key, plan);
  return CublasProduct(std::move(plan));
}

StatusOr<std::shared_ptr<const CublasProduct::Plan>> CublasProduct::MakePlan(
    const CudaDevice& device, const MatrixProduct& product) {
  auto plan = std::make_unique<Plan>();
  plan->product = product;
  const MatrixProduct& p = plan->product;
  CHAIRLIFT_ASSIGN_OR_RETURN(const cudaDataType_t type, TypeOf(p.dtype));
  CHAIRLIFT_ASSIGN_OR_RETURN(const cudaDataType_t result, TypeOf(p.result));
  if (p.batches == 0 || p.m == 0 || p.n == 0 || p.k == 0) {
    plan->empty = true;
    const bool dense = p.batches <= 1 || p.c_batch_stride == p.m * p.c_row_stride;
    if (p.k == 0 && (p.has_bias || p.beta != 0 || !dense)) {
      return Unimplemented("a sum of nothing with a bias is not a matrix product");
    }
    return std::shared_ptr<const Plan>(std::move(plan));
  }
  if (p.batches > INT32_MAX) return Unimplemented("cuBLASLt takes at most 2^31 - 1 matrices");
  if (type == CUDA_R_64F) {
    plan->compute = CUBLAS_COMPUTE_64F;
    plan->scale = CUDA_R_64F;
  } else if (type == CUDA_R_32F && device.tf32()) {
    plan->compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(plan->handle, HandleOf(device.index()));
  CHAIRLIFT_RETURN_IF_ERROR(Lay(&plan->first, type, p.transpose_b ? p.n : p.k,
                                p.transpose_b ? p.k : p.n, p.b_row_stride, p.batches,
                                p.b_batch_stride));
  CHAIRLIFT_RETURN_IF_ERROR(Lay(&plan->second, type, p.transpose_a ? p.k : p.m,
                                p.transpose_a ? p.m : p.k, p.a_row_stride, p.batches,
                                p.a_batch_stride));
  CHAIRLIFT_RETURN_IF_ERROR(
      Lay(&plan->result, result, p.m, p.n, p.c_row_stride, p.batches, p.c_batch_stride));
  CHAIRLIFT_RETURN_IF_ERROR(
      Choose(*plan, kVectorAlignment, plan->aligned, plan->aligned_workspace));
  CHAIRLIFT_RETURN_IF_ERROR(
      Choose(*plan, static_cast<uint32_t>(DTypeSize(p.dtype)), plan->any, plan->any_workspace));
  if (const size_t most = std::max(plan->aligned_workspace, plan->any_workspace); most > 0) {
    plan->scratch_bytes = most + kWorkspaceAlignment - kScratchAlignment;
  }
  return std::shared_ptr<const Plan>(std::move(plan));
}

Status CublasProduct::Run(cudaStream_t stream, const void* a, const void* b, const void* bias,
                          const void* residual, void* c, void* scratch) const {
  const Plan& plan = *plan_;
  const MatrixProduct& p = plan.product;
  if (plan.empty) {
    if (p.batches == 0 || p.m == 0 || p.n == 0) return {};
    const size_t element = DTypeSize(p.result);
    return Checked(cudaMemset2DAsync(c, static_cast<size_t>(p.c_row_stride) * element, 0,
                                     static_cast<size_t>(p.n) * element,
                                     static_cast<size_t>(p.batches * p.m), stream),
                   "product");
  }
  cublasLtMatmulDescOpaque_t description;
  CHAIRLIFT_RETURN_IF_ERROR(Describe(p, plan.compute, plan.scale, bias, &description));
  const double doubles[] = {p.alpha, p.beta};
  const float floats[] = {p.alpha, p.beta};
  const bool wide = plan.scale == CUDA_R_64F;
  const void* alpha = wide ? static_cast<const void*>(&doubles[0]) : &floats[0];
  const void* beta = wide ? static_cast<const void*>(&doubles[1]) : &floats[1];
  if (residual == nullptr) residual = c;
  const bool aligned = Aligned(a) && Aligned(b) && Aligned(bias) && Aligned(residual) && Aligned(c);
  const size_t bytes = aligned ? plan.aligned_workspace : plan.any_workspace;
  void* workspace = nullptr;
  if (bytes > 0) {
    const size_t past = reinterpret_cast<uintptr_t>(scratch) % kWorkspaceAlignment;
    workspace = static_cast<std::byte*>(scratch) + (past == 0 ? 0 : kWorkspaceAlignment - past);
  }
  return Blas(cublasLtMatmul(plan.handle, &description, alpha, b, &plan.first, a, &plan.second,
                             beta, residual, &plan.result, c, &plan.result,
                             aligned ? &plan.aligned : &plan.any, workspace, bytes, stream),
              "product");
}

}  // namespace chairlift::cuda
