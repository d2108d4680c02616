// RotaryEmbedding(x, cos, sin): rotates pairs of each head's columns by an angle that depends on
// the token.
//
// x is [batch, heads, length, head] or [batch, length, heads·head] (attribute num_heads). cos and
// sin are [batch, length, rotated/2] or broadcast to it; the table entries for position_ids are
// gathered before. The first `rotary_embedding_dim` columns of a head are rotated (0: all): column
// i with column i + rotated/2, or, with `interleaved`, 2i with 2i + 1.
#include <algorithm>
#include <array>

#include "ops/attention/attention_operators.h"
#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/ranges.h"

namespace chairlift {
namespace {

Status Mismatch(const char* what, const Shape& given, const Shape& wanted) {
  return InvalidArgument("{} is {} where {} is needed", what, given.ToString(), wanted.ToString());
}

Status InferRotaryEmbedding(InferContext& context) {
  const SymbolicShape& x = context.shape(0);
  if (x.has_rank() && x.rank() != 3 && x.rank() != 4) {
    return InvalidArgument("input 0 has rank {}, not 3 or 4", x.rank());
  }
  if (x.has_rank() && x.rank() == 3 && context.attributes().Int("num_heads", 0) < 1) {
    return InvalidArgument("attribute num_heads is needed where input 0 has rank 3");
  }
  for (int i = 1; i < 3; ++i) {
    if (context.shape(i).has_rank() && context.shape(i).rank() != 3) {
      return InvalidArgument("input {} has rank {}, not 3", i, context.shape(i).rank());
    }
  }
  context.set_output(0, context.dtype(0), x);
  return absl::OkStatus();
}

class RotaryEmbedding final : public Kernel {
 public:
  static StatusOr<std::unique_ptr<Kernel>> Compile(const CompileContext& context) {
    auto made = std::make_unique<RotaryEmbedding>();
    const Shape& x = context.inputs[0].shape;
    const bool packed = x.rank() == 3;
    made->batch_ = x[0];
    made->length_ = packed ? x[1] : x[2];
    made->heads_ = packed ? context.attributes.Int("num_heads", 0) : x[1];
    if (packed && x[2] % made->heads_ != 0) {
      return InvalidArgument("num_heads = {} does not divide {} columns", made->heads_, x[2]);
    }
    made->head_size_ = packed ? x[2] / made->heads_ : x[3];
    made->head_stride_ = packed ? made->head_size_ : made->length_ * made->head_size_;
    made->row_stride_ = packed ? x[2] : made->head_size_;
    const int64_t dim = context.attributes.Int("rotary_embedding_dim", 0);
    const int64_t turned = dim == 0 ? made->head_size_ : dim;
    if (turned < 0 || turned > made->head_size_ || turned % 2 != 0) {
      return InvalidArgument(
          "{} columns of a head of {} cannot be rotated in pairs; the number must be even, and at "
          "most that of the head",
          turned, made->head_size_);
    }
    made->half_ = turned / 2;
    made->interleaved_ = context.attributes.Int("interleaved", 0) != 0;
    const Shape table{made->batch_, made->length_, made->half_};
    for (const size_t i : {0, 1}) {
      const Shape& own = context.inputs[i + 1].shape;
      const bool fits = own.rank() == 3 && (own[0] == table[0] || own[0] == 1) &&
                        (own[1] == table[1] || own[1] == 1) && own[2] == table[2];
      if (!fits) return Mismatch(i == 0 ? "cos_cache" : "sin_cache", own, table);
      made->tables_[i] = {own[0] == 1 ? 0 : own[1] * own[2], own[1] == 1 ? 0 : own[2]};
    }
    return std::unique_ptr<Kernel>(std::move(made));
  }

  Status Run(const KernelArgs& args) const override {
    const int64_t tokens = batch_ * length_;
    constexpr int64_t kWorthSharing = int64_t{1} << 15;
    ForRanges(args.team, tokens, tokens * heads_ * head_size_, kWorthSharing,
              [&](int64_t first, int64_t last) {
                for (int64_t token = first; token < last; ++token) {
                  Turn(args, token);
                }
              });
    return absl::OkStatus();
  }

 private:
  struct Table {
    int64_t batch = 0, row = 0;  // strides, elements
  };
  void Turn(const KernelArgs& args, int64_t token) const {
    const auto table = [&](size_t i) {
      const Table& strides = tables_[i - 1];
      return static_cast<const float*>(args.inputs[i]) + token / length_ * strides.batch +
             token % length_ * strides.row;
    };
    const float* cos = table(1);
    const float* sin = table(2);
    const int64_t step = interleaved_ ? 2 : 1;
    const int64_t other = interleaved_ ? 1 : half_;
    const int64_t start =
        token / length_ * heads_ * length_ * head_size_ + token % length_ * row_stride_;
    for (int64_t h = 0; h < heads_; ++h) {
      const float* x = static_cast<const float*>(args.inputs[0]) + start + h * head_stride_;
      float* y = static_cast<float*>(args.outputs[0]) + start + h * head_stride_;
      for (int64_t i = 0; i < half_; ++i) {
        const float a = x[i * step], b = x[i * step + other];
        y[i * step] = cos[i] * a - sin[i] * b;
        y[i * step + other] = sin[i] * a + cos[i] * b;
      }
      if (x != y) std::copy(x + 2 * half_, x + head_size_, y + 2 * half_);
    }
  }

  int64_t batch_ = 0, length_ = 0, heads_ = 0, head_size_ = 0;
  int64_t head_stride_ = 0, row_stride_ = 0;  // elements
  int64_t half_ = 0;                          // rotated pairs
  std::array<Table, 2> tables_;               // cos, sin
  bool interleaved_ = false;
};

// Tokens are independent: x is [batch, length, columns] or [batch, heads, length, columns].
StatusOr<AxisMap> AxesOfRotaryEmbedding(const InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, KnownRank(context, 0));
  AxisMap map = MakeAxisMap(context);
  map.inputs[0].labels =
      rank == 4 ? std::vector<int>{0, AxisMap::kNone, 1} : std::vector<int>{0, 1};
  map.inputs[1].labels = map.inputs[2].labels = {0, 1};
  map.inputs[1].broadcasts = map.inputs[2].broadcasts = true;
  map.outputs[0] = map.inputs[0];
  return map;
}

}  // namespace

void RegisterRotaryEmbedding(OperatorRegistry& registry) {
  constexpr TypeSet kTypes = kHalfTypes | TypeSet{DType::kFloat};
  registry.Add({.name = "RotaryEmbedding",
                .min_opset = 23,
                .min_inputs = 3,
                .max_inputs = 3,
                .input_types = {kTypes},
                .infer = InferRotaryEmbedding,
                .axes = AxesOfRotaryEmbedding,
                .compile = RotaryEmbedding::Compile,
                .in_place = true});
}

}  // namespace chairlift
