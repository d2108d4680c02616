// chairlift::ParallelMatMul(A, B0, bias0?, B1, bias1?, …) -> A·B0 + bias0, A·B1 + bias1, …: several
// products of one A, for example for queries, keys and values, in one kernel. A [..., K], Bi [K,
// Ni] and biasi [Ni] are float32. Constant Bi are packed once.
//
// The workers divide all columns together: they synchronise once, not after every product.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "ops/linear/bfloat16_gemm.h"
#include "ops/linear/huge_tensor.h"
#include "ops/linear/int8_gemm.h"
#include "ops/linear/linear.h"
#include "ops/linear/packed_gemm.h"
#include "ops/linear/product.h"
#include "ops/linear/team_cut.h"
#include "ops/multiply_adds.h"

namespace chairlift {
namespace {

Status InferParallelMatmul(InferContext& context) {
  const int products = context.num_inputs() / 2;
  if (context.num_inputs() % 2 != 1 || context.num_outputs() != products) {
    return InvalidArgument("{} inputs make no products for {} outputs", context.num_inputs(),
                           context.num_outputs());
  }
  const SymbolicShape& a = context.shape(0);
  if (a.has_rank() && a.rank() < 1) return InvalidArgument("A is a scalar");
  for (int i = 0; i < products; ++i) {
    const SymbolicShape& b = context.shape(1 + 2 * i);
    if (!b.has_rank() || b.rank() != 2) {
      return InvalidArgument("B{} is {}, not a matrix", i, b.ToString());
    }
    if (a.has_rank() && a[a.rank() - 1].known() && b[0].known() &&
        a[a.rank() - 1].value() != b[0].value()) {
      return InvalidArgument("inner dimensions differ: {} by {}", a.ToString(), b.ToString());
    }
    if (context.has_input(2 + 2 * i)) {
      const SymbolicShape& bias = context.shape(2 + 2 * i);
      if (!bias.has_rank() || bias.rank() != 1 ||
          (bias[0].known() && b[1].known() && bias[0].value() != b[1].value())) {
        return InvalidArgument("bias{} {} must be one value a column of {}", i, bias.ToString(),
                               b.ToString());
      }
    }
    SymbolicShape out = a;
    if (out.has_rank()) out[out.rank() - 1] = b[1];
    context.set_output(i, context.dtype(0), std::move(out));
  }
  return absl::OkStatus();
}

class ParallelMatMul final : public Kernel {
 public:
  static StatusOr<std::unique_ptr<Kernel>> Compile(const CompileContext& context) {
    auto made = std::make_unique<ParallelMatMul>();
    const Shape& a = context.inputs[0].shape;
    made->k_ = a[a.rank() - 1];
    made->m_ = a.NumElements(0, a.rank() - 1);
    bool constant = true;
    for (size_t i = 1; i < context.inputs.size(); i += 2) {
      const Tensor* b = context.constant(static_cast<int>(i));
      constant = constant && b != nullptr && b->size() > 0;
    }
    if (constant && RoundsToBFloat16(context.attributes)) made->narrow_ = MachineBFloat16Kernel();
    if (constant && RoundsToInt8(context.attributes)) made->bytes_ = MachineInt8Kernel();
    for (size_t i = 1; i < context.inputs.size(); i += 2) {
      Part part{.n = context.inputs[i].shape[1], .first = made->panels_};
      if (const Tensor* b = context.constant(static_cast<int>(i)); b != nullptr && b->size() > 0) {
        CHAIRLIFT_ASSIGN_OR_RETURN(part.packed, made->Pack(*b, part.n, context.weights));
      } else {
        part.scratch = made->scratch_floats_;
        made->scratch_floats_ += PackedGemmSize(made->k_, part.n);
      }
      made->panels_ += GemmPanels(part.n);
      made->parts_.push_back(std::move(part));
    }
    made->cut_ = made->narrow_ || made->bytes_
                     ? CutForTiles(made->m_, made->panels_ * kGemmPanel, made->k_, context.width)
                     : CutForTeam(made->m_, made->panels_ * kGemmPanel, made->k_, context.width,
                                  PacksRows(made->m_, made->k_, 1));
    return std::unique_ptr<Kernel>(std::move(made));
  }

  size_t scratch_bytes() const override {
    return static_cast<size_t>(scratch_floats_) * sizeof(float);
  }

  Status Run(const KernelArgs& args) const override {
    if (m_ == 0 || panels_ == 0) return absl::OkStatus();
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i].packed.present()) continue;
      PackGemmPanels(static_cast<const float*>(args.inputs[1 + 2 * i]), parts_[i].n, 1, k_,
                     parts_[i].n, 0, GemmPanels(parts_[i].n), 1.0f, Scratch(args, parts_[i]));
    }
    args.team.For(cut_.parts(), [&](int part, int) {
      const int64_t row = part / cut_.column_parts;
      const int64_t column = part % cut_.column_parts;
      Compute(args, m_ * row / cut_.row_parts, m_ * (row + 1) / cut_.row_parts,
              panels_ * column / cut_.column_parts, panels_ * (column + 1) / cut_.column_parts);
    });
    return absl::OkStatus();
  }

 private:
  StatusOr<Tensor> Pack(const Tensor& b, int64_t n, WeightCache& weights) const {
    const auto* from = b.data<float>();
    if (bytes_) {
      return weights.Get(b, fmt::format("int8 {}x{}", k_, n), [&]() -> StatusOr<Tensor> {
        Tensor packed = HugeTensor(DType::kUInt8, Shape{PackedInt8Bytes(k_, n)});
        PackRoundedWeights(from, n, 1, k_, n, 1.0f, packed.raw());
        return packed;
      });
    }
    if (!narrow_) {
      return weights.Get(b, fmt::format("panels {}x{}", k_, n),
                         [&]() -> StatusOr<Tensor> { return PackGemmWeights(from, n, 1, k_, n); });
    }
    return weights.Get(b, fmt::format("bfloat16 {}x{}", k_, n), [&]() -> StatusOr<Tensor> {
      Tensor packed =
          HugeTensor(BFloat16GemmType(*narrow_), Shape{BFloat16GemmSize(*narrow_, k_, n)});
      PackBFloat16Weights(*narrow_, from, n, 1, k_, n, 1.0f, packed.raw());
      return packed;
    });
  }

  struct Part {
    int64_t n = 0;
    int64_t first = 0;    // of its panels among all
    Tensor packed = {};   // for a constant
    int64_t scratch = 0;  // otherwise: where it is packed in every run
  };

  static float* Scratch(const KernelArgs& args, const Part& part) {
    return static_cast<float*>(args.scratch) + part.scratch;
  }

  // Rows [begin, end) of panels [first, last) of all.
  void Compute(const KernelArgs& args, int64_t begin, int64_t end, int64_t first,
               int64_t last) const {
    const auto* a = static_cast<const float*>(args.inputs[0]) + begin * k_;
    // One call, so that A is rounded once.
    absl::InlinedVector<BFloat16Product, 3> narrow;
    absl::InlinedVector<Int8Product, 3> bytes;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Part& part = parts_[i];
      const int64_t from = std::max(first - part.first, int64_t{0});
      const int64_t to = std::min(last - part.first, GemmPanels(part.n));
      if (from >= to || args.outputs[i] == nullptr) continue;
      GemmEpilogue epilogue;
      if (2 + 2 * i < args.inputs.size()) {
        epilogue.bias = static_cast<const float*>(args.inputs[2 + 2 * i]);
      }
      auto* c = static_cast<float*>(args.outputs[i]) + begin * part.n;
      if (bytes_) {
        bytes.push_back({part.packed.raw(), part.n, from, to, c, part.n, epilogue});
        continue;
      }
      if (narrow_) {
        narrow.push_back({part.packed.raw(), part.n, from, to, c, part.n, epilogue});
        continue;
      }
      const float* packed = part.packed.present() ? part.packed.data<float>() : Scratch(args, part);
      PackedGemm({a, k_, 1, packed, c, part.n}, end - begin, k_, part.n, from, to, epilogue);
    }
    if (!bytes.empty()) RoundedInt8Gemm(*bytes_, a, k_, 1, end - begin, k_, bytes);
    if (!narrow.empty()) BFloat16Gemm(*narrow_, {a, k_, 1, end - begin, k_}, narrow);
  }

  int64_t m_ = 0, k_ = 0;
  int64_t panels_ = 0;
  int64_t scratch_floats_ = 0;
  std::vector<Part> parts_;
  std::optional<BFloat16Kernel> narrow_;
  std::optional<Int8Kernel> bytes_;
  TeamCut cut_;
};

}  // namespace

void RegisterParallelMatMul(OperatorRegistry& registry) {
  registry.Add({.domain = "chairlift",
                .name = "ParallelMatMul",
                .min_inputs = 2,  // then an optional one
                .max_inputs = OperatorDef::kVariadic,
                .max_outputs = OperatorDef::kVariadic,
                .input_types = {kHalfTypes | TypeSet{DType::kFloat}},
                .infer = InferParallelMatmul,
                .compile = ParallelMatMul::Compile,
                .multiply_adds = [](const Attributes&, std::span<const TensorDesc> in,
                                    std::span<const TensorDesc> out) {
                  double all = 0;
                  for (const TensorDesc& y : out) {
                    all += ProductMultiplyAdds(y, in[0].shape.dims().back());
                  }
                  return all;
                }});
}

}  // namespace chairlift
