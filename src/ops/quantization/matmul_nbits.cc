// chairlift::MatMulNBits(A, B, bias?, residual?, scales, zero_points?): Y = f(A·B + bias +
// residual). B [k, n] has codes of `bits` bits. Each column has one scale and one zero point for
// every `block_size` entries (blockwise.h). This is ONNX Runtime's MatMulNBits, with the operands
// that passes fuse into it, as in FusedMatMul.
//
// With accuracy_level 4 the model allows A to be rounded to 8 bits, block by block. This is done if
// the processor multiplies bytes and zero points are not floats, as in ONNX Runtime. Otherwise
// everything is computed in float32, whatever accuracy_level says.
//
// A [..., k], bias [n] and residual [..., n] are float32; B uint8 [n, blocks, block_size·bits/8];
// scales float32, n·blocks; zero_points uint8, n·ceil(blocks·bits/8), or float32, n·blocks.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "ops/axis_map.h"
#include "ops/linear/huge_tensor.h"
#include "ops/linear/team_cut.h"
#include "ops/multiply_adds.h"
#include "ops/quantization/blockwise.h"
#include "ops/quantization/quantization.h"

namespace chairlift {
namespace {

struct NBits {  // its inputs
  static constexpr int kA = 0, kCodes = 1, kBias = 2, kResidual = 3, kScales = 4, kZeros = 5;
};

StatusOr<BlockwiseShape> BlockwiseShapeOf(const Attributes& attributes) {
  BlockwiseShape s;
  const int64_t bits = attributes.Int("bits", 4);
  s.block = attributes.Int("block_size", 0);
  s.k = attributes.Int("K", 0);
  s.n = attributes.Int("N", 0);
  if (bits != 4 && bits != 8) {
    return Unimplemented("weights of {} bits are not supported (4 and 8 are)", bits);
  }
  if (s.block < 16 || s.block > kLongestBlock || (s.block & (s.block - 1)) != 0) {
    return InvalidArgument("block_size is {}; it must be a power of two from 16 to {}", s.block,
                           kLongestBlock);
  }
  constexpr int64_t kMostEntries = int64_t{1} << 31;  // per row or column
  if (s.k < 1 || s.n < 1 || s.k > kMostEntries || s.n > kMostEntries) {
    return InvalidArgument("attributes K and N are {} and {}; they must be from 1 to {}", s.k, s.n,
                           kMostEntries);
  }
  s.bits = static_cast<int>(bits);
  return s;
}

// Checks that an operand has this many elements, in any shape.
Status CheckElements(const InferContext& context, int input, const char* name, int64_t wanted) {
  if (!context.has_input(input) || !context.shape(input).concrete()) return absl::OkStatus();
  const Shape shape = context.shape(input).ToShape();
  if (shape.NumElements() == wanted) return absl::OkStatus();
  return InvalidArgument("{} {} must have {} elements", name, shape.ToString(), wanted);
}

Status InferMatMulNBits(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const BlockwiseShape s, BlockwiseShapeOf(context.attributes()));
  CHAIRLIFT_RETURN_IF_ERROR(Activation::Parse(context.attributes()).status());
  const SymbolicShape& a = context.shape(NBits::kA);
  if (!context.has_input(NBits::kScales)) return InvalidArgument("its scales are missing");
  if (a.has_rank() && a.rank() == 0) return InvalidArgument("A is a scalar");
  if (a.has_rank() && a[a.rank() - 1].known() && a[a.rank() - 1].value() != s.k) {
    return InvalidArgument("A is {}, but K is {}", a.ToString(), s.k);
  }
  if (context.shape(NBits::kCodes).concrete()) {
    const Shape codes = context.shape(NBits::kCodes).ToShape();
    const Shape wanted{s.n, s.blocks(), s.block * s.bits / 8};
    if (!(codes == wanted)) {
      return InvalidArgument("B is {}; with these attributes it must be {}", codes.ToString(),
                             wanted.ToString());
    }
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckElements(context, NBits::kScales, "scales", s.n * s.blocks()));
  const bool packed =
      context.has_input(NBits::kZeros) && context.dtype(NBits::kZeros) == DType::kUInt8;
  const int64_t zeros = packed ? (s.blocks() * s.bits + 7) / 8 : s.blocks();
  CHAIRLIFT_RETURN_IF_ERROR(CheckElements(context, NBits::kZeros, "zero_points", s.n * zeros));
  CHAIRLIFT_RETURN_IF_ERROR(CheckElements(context, NBits::kBias, "the bias", s.n));
  SymbolicShape out = a;
  if (out.has_rank()) out[out.rank() - 1] = Dim(s.n);
  if (context.has_input(NBits::kResidual) && context.shape(NBits::kResidual).concrete() &&
      out.concrete() && !(context.shape(NBits::kResidual).ToShape() == out.ToShape())) {
    return InvalidArgument("the residual {} must have the product's shape {}",
                           context.shape(NBits::kResidual).ToString(), out.ToString());
  }
  context.set_output(0, context.dtype(NBits::kA), std::move(out));
  return absl::OkStatus();
}

class MatMulNBits final : public Kernel {
 public:
  static StatusOr<std::unique_ptr<Kernel>> Compile(const CompileContext& context) {
    auto made = std::make_unique<MatMulNBits>();
    CHAIRLIFT_ASSIGN_OR_RETURN(made->like_.shape, BlockwiseShapeOf(context.attributes));
    CHAIRLIFT_ASSIGN_OR_RETURN(made->activation_, Activation::Parse(context.attributes));
    const BlockwiseShape& s = made->like_.shape;
    const Shape& a = context.inputs[NBits::kA].shape;
    made->m_ = a.NumElements(0, a.rank() - 1);
    made->has_zeros_ = context.has_input(NBits::kZeros);
    made->packed_zeros_ = made->has_zeros_ && context.inputs[NBits::kZeros].dtype == DType::kUInt8;
    made->like_.shifted = made->has_zeros_;
    CHAIRLIFT_RETURN_IF_ERROR(made->PackConstant(context));
    made->bytes_ = context.attributes.Int("accuracy_level", 0) == 4 && CanMultiplyBytes() &&
                   made->has_zeros_ == made->packed_zeros_;
    made->few_ = !made->bytes_ && made->m_ <= BlockwiseFewRows();
    made->copies_ = made->few_ && (s.k != s.filled_k() || PacksRows(made->m_, s.k, 1));
    made->cut_ = CutForTeam(made->m_, s.n, s.k, context.width, PacksRows(made->m_, s.k, 1));
    if (made->few_) made->cut_ = {1, made->cut_.parts()};
    if (context.choice != nullptr) {
      const char* const rows = made->bytes_ ? "rows of bytes" : made->few_ ? "few rows" : "widened";
      context.choice->taken = fmt::format("{} bits, {}", s.bits, rows);
    }
    return std::unique_ptr<Kernel>(std::move(made));
  }

  size_t scratch_bytes() const override {
    const int64_t many = bytes_ ? ByteFloats() : few_ ? 0 : cut_.parts() * WideFloats();
    return static_cast<size_t>(PackedWords() + RowFloats() + SumFloats() + many) * sizeof(float);
  }

  Status Run(const KernelArgs& args) const override {
    if (m_ == 0) return absl::OkStatus();
    auto* scratch = static_cast<float*>(args.scratch);
    BlockwiseWeights weights = like_;
    if (packed_.present()) {
      weights.words = packed_.data<uint32_t>();
    } else {
      auto* words = reinterpret_cast<uint32_t*>(scratch);
      PackBlockwise(Source(args.inputs), like_, words);
      weights.words = words;
    }
    scratch += PackedWords();
    if (bytes_) {
      RunBytes(args, weights, scratch);
    } else if (few_) {
      RunFewRows(args, weights, scratch);
    } else {
      RunManyRows(args, weights, scratch);
    }
    return absl::OkStatus();
  }

 private:
  // Padding in floats after a copied row of A, so that rows do not share a cache set.
  static constexpr int64_t kRowPad = 16;
  // Panels are widened together up to this size.
  static constexpr int64_t kMostWideFloats = int64_t{96} << 10;

  int64_t PackedWords() const { return packed_.present() ? 0 : like_.size(); }
  int64_t RowStride() const { return copies_ ? like_.shape.filled_k() + kRowPad : like_.shape.k; }
  int64_t RowFloats() const { return copies_ ? m_ * RowStride() : 0; }
  int64_t SumFloats() const {
    return few_ && like_.shifted ? (m_ * like_.shape.blocks() + 15) / 16 * 16 : 0;
  }
  int64_t WidePanels() const {
    return std::clamp<int64_t>(kMostWideFloats / (like_.shape.k * kGemmPanel), 1, 8);
  }
  int64_t WideFloats() const { return WidePanels() * like_.shape.k * kGemmPanel; }

  // For 8-bit rows: scales and sums, then codes.
  int64_t ByteFloats() const {
    return m_ * (2 * like_.shape.blocks() + like_.shape.filled_k() / 4);
  }

  BlockwiseSource Source(std::span<const void* const> inputs) const {
    BlockwiseSource source{.codes = static_cast<const uint8_t*>(inputs[NBits::kCodes]),
                           .scales = static_cast<const float*>(inputs[NBits::kScales])};
    if (packed_zeros_) {
      source.packed_zeros = static_cast<const uint8_t*>(inputs[NBits::kZeros]);
    } else if (has_zeros_) {
      source.float_zeros = static_cast<const float*>(inputs[NBits::kZeros]);
    }
    return source;
  }

  // Weights of the model are packed once. Others, such as those that a sub-graph captures, are
  // packed in every run.
  Status PackConstant(const CompileContext& context) {
    std::array<const void*, NBits::kZeros + 1> data = {};
    for (const int i : {NBits::kCodes, NBits::kScales, NBits::kZeros}) {
      if (i == NBits::kZeros && !has_zeros_) continue;
      const Tensor* const constant = context.constant(i);
      if (constant == nullptr) return absl::OkStatus();
      data[static_cast<size_t>(i)] = constant->raw();
    }
    const BlockwiseSource source = Source(data);
    const BlockwiseShape& s = like_.shape;
    like_.shifted = has_zeros_ && HasShifts(s, source);
    // The same codes with other scales or zero points are different weights.
    std::string key = fmt::format("nbits {} {} {}x{} ", s.bits, s.block, s.k, s.n);
    for (const int i : {NBits::kScales, NBits::kZeros})
      key += fmt::format("{} ", data[static_cast<size_t>(i)]);
    CHAIRLIFT_ASSIGN_OR_RETURN(
        packed_,
        context.weights.Get(*context.constant(NBits::kCodes), key, [&]() -> StatusOr<Tensor> {
          Tensor packed = HugeTensor(DType::kUInt32, Shape{like_.size()});
          PackBlockwise(source, like_, packed.data<uint32_t>());
          return packed;
        }));
    return absl::OkStatus();
  }

  GemmEpilogue Epilogue(const KernelArgs& args, int64_t row, int64_t column) const {
    GemmEpilogue epilogue;
    epilogue.activation = activation_;
    const auto has = [&](size_t i) { return i < args.inputs.size() && args.inputs[i] != nullptr; };
    if (has(NBits::kBias))
      epilogue.bias = static_cast<const float*>(args.inputs[NBits::kBias]) + column;
    if (has(NBits::kResidual)) {
      epilogue.residual =
          static_cast<const float*>(args.inputs[NBits::kResidual]) + row * like_.shape.n + column;
      epilogue.residual_stride = like_.shape.n;
    }
    return epilogue;
  }

  void RunFewRows(const KernelArgs& args, const BlockwiseWeights& weights, float* scratch) const {
    const BlockwiseShape& s = weights.shape;
    const auto* a = static_cast<const float*>(args.inputs[NBits::kA]);
    if (copies_) {
      for (int64_t r = 0; r < m_; ++r) {
        float* row = scratch + r * RowStride();
        std::memcpy(row, a + r * s.k, static_cast<size_t>(s.k) * sizeof(float));
        std::fill(row + s.k, row + s.filled_k(), 0.0f);
      }
      a = scratch;
    }
    float* sums = scratch + RowFloats();
    if (weights.shifted) BlockSums(a, RowStride(), m_, s, sums);
    const int64_t panels = GemmPanels(s.n);
    args.team.For(cut_.parts(), [&](int part, int) {
      BlockwiseProduct(weights, {a, RowStride(), sums, static_cast<float*>(args.outputs[0]), s.n},
                       m_, panels * part / cut_.parts(), panels * (part + 1) / cut_.parts(),
                       Epilogue(args, 0, 0));
    });
  }

  void RunManyRows(const KernelArgs& args, const BlockwiseWeights& weights, float* scratch) const {
    const BlockwiseShape& s = weights.shape;
    const int64_t panels = GemmPanels(s.n);
    args.team.For(cut_.parts(), [&](int part, int) {
      float* const wide = scratch + part * WideFloats();
      const int64_t row = m_ * (part / cut_.column_parts) / cut_.row_parts;
      const int64_t end_row = m_ * (part / cut_.column_parts + 1) / cut_.row_parts;
      const int64_t column_part = part % cut_.column_parts;
      const int64_t last = panels * (column_part + 1) / cut_.column_parts;
      const auto* a = static_cast<const float*>(args.inputs[NBits::kA]) + row * s.k;
      for (int64_t first = panels * column_part / cut_.column_parts; first < last;) {
        const int64_t count = std::min(WidePanels(), last - first);
        WidenBlockwise(weights, first, first + count, wide);
        const int64_t column = first * kGemmPanel;
        auto* c = static_cast<float*>(args.outputs[0]) + row * s.n + column;
        PackedGemm({a, s.k, 1, wide, c, s.n}, end_row - row, s.k,
                   std::min(s.n - column, count * kGemmPanel), 0, count,
                   Epilogue(args, row, column));
        first += count;
      }
    });
  }

  void RunBytes(const KernelArgs& args, const BlockwiseWeights& weights, float* scratch) const {
    const BlockwiseShape& s = weights.shape;
    const int64_t count = m_ * s.blocks();
    const ByteRows rows{.codes = reinterpret_cast<int8_t*>(scratch + 2 * count),
                        .scales = scratch,
                        .sums = reinterpret_cast<int32_t*>(scratch + count)};
    // Each worker first rounds some rows, if there are enough for all.
    const int64_t shares = std::min<int64_t>(cut_.parts(), m_);
    args.team.For(static_cast<int>(shares), [&](int part, int) {
      const int64_t row = m_ * part / shares, at = row * s.blocks();
      RoundRows(static_cast<const float*>(args.inputs[NBits::kA]) + row * s.k, s.k,
                m_ * (part + 1) / shares - row, s,
                {rows.codes + row * s.filled_k(), rows.scales + at, rows.sums + at});
    });
    const int64_t panels = GemmPanels(s.n);
    args.team.For(cut_.parts(), [&](int part, int) {
      const int64_t row_part = part / cut_.column_parts, column_part = part % cut_.column_parts;
      const int64_t row = m_ * row_part / cut_.row_parts, at = row * s.blocks();
      ByteProduct(weights, {rows.codes + row * s.filled_k(), rows.scales + at, rows.sums + at},
                  m_ * (row_part + 1) / cut_.row_parts - row,
                  static_cast<float*>(args.outputs[0]) + row * s.n, s.n,
                  panels * column_part / cut_.column_parts,
                  panels * (column_part + 1) / cut_.column_parts, Epilogue(args, row, 0));
    });
  }

  BlockwiseWeights like_;
  int64_t m_ = 0;
  Activation activation_;
  bool has_zeros_ = false, packed_zeros_ = false;
  bool bytes_ = false;   // rows are rounded to 8 bits
  bool few_ = false;     // no more rows than BlockwiseFewRows()
  bool copies_ = false;  // rows of A, to pad them or to change their distance
  TeamCut cut_;
  Tensor packed_;  // if all weights are constant
};

// Rows of A are independent; a residual has the same rows.
StatusOr<AxisMap> AxesOfMatMulNBits(const InferContext& context) {
  constexpr int64_t kLast = -1;
  CHAIRLIFT_ASSIGN_OR_RETURN(AxisMap map, AxesWithout(context, {&kLast, 1}));
  if (context.has_input(NBits::kResidual))
    map.inputs[NBits::kResidual].labels = map.inputs[NBits::kA].labels;
  return map;
}

}  // namespace

void RegisterMatMulNBits(OperatorRegistry& registry) {
  OperatorDef def;
  def.domain = "chairlift";
  def.name = "MatMulNBits";
  def.min_inputs = 2;
  def.max_inputs = 6;
  const TypeSet floats = kHalfTypes | TypeSet{DType::kFloat};
  const TypeSet single{DType::kFloat};
  def.input_types = {floats, TypeSet{DType::kUInt8},
                     floats, floats,
                     single, TypeSet{DType::kUInt8, DType::kFloat}};
  def.infer = InferMatMulNBits;
  def.axes = AxesOfMatMulNBits;
  def.compile = MatMulNBits::Compile;
  def.multiply_adds = [](const Attributes&, std::span<const TensorDesc> in,
                         std::span<const TensorDesc> out) {
    return ProductMultiplyAdds(out[0], in[NBits::kA].shape.dims().back());
  };
  registry.Add(std::move(def));
}

}  // namespace chairlift
