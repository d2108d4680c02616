#include "ops/attention/attention_shapes.h"

#include <algorithm>

namespace chairlift {
namespace {

// An operand as [batch, heads, rows, columns], from either of its two forms.
struct Operand {
  int64_t batch = 0, heads = 0, rows = 0, columns = 0;
  HeadStrides strides;

  static StatusOr<Operand> Of(const Shape& shape, int64_t heads) {
    Operand o;
    o.batch = shape[0];
    if (shape.rank() == 4) {
      o.heads = shape[1];
      o.rows = shape[2];
      o.columns = shape[3];
      o.strides = {o.heads * o.rows * o.columns, o.rows * o.columns, o.columns};
      return o;
    }
    if (heads < 1 || shape[2] % heads != 0) {
      return InvalidArgument("{} heads do not divide {} columns", heads, shape[2]);
    }
    o.heads = heads;
    o.rows = shape[1];
    o.columns = shape[2] / heads;
    o.strides = {o.rows * shape[2], o.columns, shape[2]};
    return o;
  }
};

Status Mismatch(const char* what, const TensorDesc& given, const Shape& wanted) {
  return InvalidArgument("{} is {} where {} is needed", what, given.shape.ToString(),
                         wanted.ToString());
}

Status SetMask(const Shape& mask, AttentionSizes& s) {
  const Shape scores{s.batch, s.heads, s.queries, s.total};
  if (mask.rank() == 0 || mask.rank() > 4) {
    return InvalidArgument("the mask has rank {}", mask.rank());
  }
  const int64_t columns = mask[mask.rank() - 1];
  bool fits = columns <= s.total;
  int64_t* const strides[] = {&s.mask.batch, &s.mask.head, &s.mask.row};
  for (int i = 0; fits && i + 1 < mask.rank(); ++i) {
    const int at = 4 - mask.rank() + i;
    fits = mask[i] == 1 || mask[i] == scores[at];
    if (mask[i] != 1) *strides[at] = mask.NumElements(i + 1, mask.rank());
  }
  if (!fits) {
    return InvalidArgument("a mask {} does not broadcast to {}", mask.ToString(),
                           scores.ToString());
  }
  s.mask_columns = columns;
  return absl::OkStatus();
}

}  // namespace

StatusOr<AttentionSizes> AttentionSizes::Of(const CompileContext& context) {
  const int64_t q_heads = context.attributes.Int("q_num_heads", 0);
  const int64_t kv_heads = context.attributes.Int("kv_num_heads", 0);
  CHAIRLIFT_ASSIGN_OR_RETURN(const Operand q, Operand::Of(context.inputs[0].shape, q_heads));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Operand k, Operand::Of(context.inputs[1].shape, kv_heads));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Operand v, Operand::Of(context.inputs[2].shape, kv_heads));
  if (k.batch != q.batch || v.batch != q.batch || k.columns != q.columns || v.rows != k.rows ||
      v.heads != k.heads) {
    return InvalidArgument("q {}, k {} and v {} do not fit each other",
                           context.inputs[0].shape.ToString(), context.inputs[1].shape.ToString(),
                           context.inputs[2].shape.ToString());
  }
  if (k.heads == 0 ? q.heads != 0 : q.heads % k.heads != 0) {
    return InvalidArgument("the number of key heads, {}, does not divide that of query heads, {}",
                           k.heads, q.heads);
  }
  AttentionSizes s;
  s.batch = q.batch;
  s.heads = q.heads;
  s.kv_heads = std::max<int64_t>(k.heads, 1);
  s.queries = q.rows;
  s.head_size = q.columns;
  s.value_size = v.columns;
  s.q = q.strides;
  s.k = k.strides;
  s.v = v.strides;
  if (context.inputs[0].shape.rank() == 4) {
    s.y = {q.heads * q.rows * v.columns, q.rows * v.columns, v.columns};
  } else {
    s.y = {q.rows * q.heads * v.columns, v.columns, q.heads * v.columns};
  }
  if (context.has_input(4)) {
    const Shape& past = context.inputs[4].shape;
    s.past = past.rank() == 4 ? past[2] : 0;
    const Shape keys{q.batch, k.heads, s.past, q.columns};
    const Shape values{q.batch, k.heads, s.past, v.columns};
    if (!(past == keys)) return Mismatch("past_key", context.inputs[4], keys);
    if (!(context.inputs[5].shape == values)) {
      return Mismatch("past_value", context.inputs[5], values);
    }
  }
  s.total = s.past + k.rows;
  s.mask_columns = s.total;
  if (context.has_input(3)) CHAIRLIFT_RETURN_IF_ERROR(SetMask(context.inputs[3].shape, s));
  if (context.has_input(6) && !(context.inputs[6].shape == Shape{q.batch})) {
    return Mismatch("nonpad_kv_seqlen", context.inputs[6], Shape{q.batch});
  }
  return s;
}

}  // namespace chairlift
