// Rules for 4-bit or 8-bit weights that are quantised block by block.
#include <utility>
#include <vector>

#include "graph/onnx/contrib/rules.h"

namespace chairlift::contrib {
namespace {

// Scales, or zero points that are floats, as float32. Other types are left to the operator, which
// supports or refuses them.
ValueId InFloat32(Maker& make, size_t input) {
  if (!make.has(input)) return kNoValue;
  const ValueId id = make.in(input);
  return kHalfTypes.Contains(make.info(id).dtype) ? make.CastToFloat(id) : id;
}

// Fails if an input is not a matrix with this number of columns and as many rows as the data, input
// 0.
void CheckBesideData(Maker& make, size_t input, const char* what, int64_t columns) {
  const int rank = make.Rank(make.in(input), what);
  const int64_t width = make.Size(make.in(input), -1, what);
  if (!make.ok()) return;
  const SymbolicShape shape = make.shape(make.in(input));
  const Dim& rows = shape[0];
  const Dim data_rows = make.shape(make.in(0))[0];
  const bool as_many = !rows.known() || !data_rows.known() || rows.value() == data_rows.value();
  if (rank == 2 && width == columns && as_many) return;
  make.Fail(InvalidArgument("{} {} must be [{},{}]", what, shape.ToString(), data_rows.ToString(),
                            columns));
}

// [..., bytes] of 4-bit codes as float32 [..., 2 · bytes], lowest bits first.
ValueId Unpacked(Maker& make, ValueId bytes, int rank) {
  const ValueId low = make.Make("BitwiseAnd", {bytes, make.ScalarLike(bytes, 15)});
  const ValueId high = make.Make("BitShift", {bytes, make.ScalarLike(bytes, 4)},
                                 With({{"direction", std::string("RIGHT")}}));
  const int64_t last = rank;
  const ValueId pairs =
      make.Make("Concat", {make.Unsqueeze(low, {last}), make.Unsqueeze(high, {last})},
                With({{"axis", last}}));
  std::vector<int64_t> dims(static_cast<size_t>(rank), 0);
  dims.back() = -1;
  return make.CastToFloat(make.Reshape(pairs, dims));
}

}  // namespace

Status MatMulNBits(Maker& make) {
  if (make.has(4)) {
    return Unimplemented(
        "its input g_idx, an order of rows of its own, is not supported; weights quantised without "
        "it (GPTQ's desc_act or act_order) are");
  }
  if (make.attributes().Int("weight_prepacked", 0) != 0) {
    return Unimplemented("weights that are laid out for GPUs (weight_prepacked) are not supported");
  }
  for (const char* name : {"K", "N", "block_size"}) {
    if (!make.attributes().Has(name)) return InvalidArgument("its attribute '{}' is missing", name);
  }
  Attributes attributes;
  for (const char* name : {"K", "N", "accuracy_level", "bits", "block_size"}) {
    if (const auto* value = make.attributes().Find<int64_t>(name)) attributes.Set(name, *value);
  }
  const ValueId y = make.MakeOwn(
      "MatMulNBits",
      {make.in(0), make.in(1), make.in(5), kNoValue, InFloat32(make, 2), InFloat32(make, 3)},
      std::move(attributes));
  return make.Become("Identity", {y});
}

Status GatherBlockQuantized(Maker& make) {
  const Attributes& attributes = make.attributes();
  const int64_t bits = attributes.Int("bits", 4);
  int64_t block = attributes.Int("block_size", 128);
  // 4-bit data are read as int8, and have no zero point by default.
  const DType dtype = make.info(make.in(0)).dtype;
  const bool unpacked = dtype == DType::kInt8;
  if (!unpacked && dtype != DType::kUInt8) {
    return Unimplemented("its data are only supported as int4, uint4 and uint8");
  }
  if (bits != 4 && bits != 8) return Unimplemented("{} bits are not supported (4 and 8 are)", bits);
  if (unpacked && bits != 4) return InvalidArgument("its data have 4 bits, but bits is {}", bits);
  if (block < 16 || (block & (block - 1)) != 0) {
    return InvalidArgument("block_size is {}; it must be a power of two, 16 at least", block);
  }
  const int rank = make.Rank(make.in(0), "its data");
  const int index_rank = make.Rank(make.in(1), "its indices");
  const int64_t width = make.Size(make.in(0), -1, "its data");
  CHAIRLIFT_RETURN_IF_ERROR(make.status());
  const int64_t quantize_axis = attributes.Int("quantize_axis", 1);
  if (rank != 2 || attributes.Int("gather_axis", 0) != 0 ||
      (quantize_axis != 1 && quantize_axis != -1)) {
    return Unimplemented("it is only supported for rows of a matrix, quantised along them");
  }
  const bool two_a_byte = bits == 4 && !unpacked;
  const int64_t columns = two_a_byte ? 2 * width : width;
  const int64_t blocks = (columns + block - 1) / block;
  CheckBesideData(make, 2, "its scales", blocks);
  if (make.has(3)) {
    if (make.info(make.in(3)).dtype != dtype) {
      return InvalidArgument("its zero points are {}, but its data are {}",
                             DTypeName(make.info(make.in(3)).dtype), DTypeName(dtype));
    }
    CheckBesideData(make, 3, "its zero points", two_a_byte ? (blocks + 1) / 2 : blocks);
  }
  CHAIRLIFT_RETURN_IF_ERROR(make.status());
  if (blocks == 1) block = columns;  // no padding needed
  // The codes of the rows, and the parameters of each of their blocks.
  const auto rows = [&](size_t input) {
    return make.Make("Gather", {make.in(input), make.in(1)}, With({{"axis", int64_t{0}}}));
  };
  const int out_rank = index_rank + 1;
  const auto numbers = [&](size_t input) {
    const ValueId bytes = rows(input);
    return two_a_byte ? Unpacked(make, bytes, out_rank) : make.CastToFloat(bytes);
  };
  ValueId codes = numbers(0);
  if (columns != blocks * block) {
    std::vector<int64_t> pads(2 * static_cast<size_t>(out_rank), 0);
    pads.back() = blocks * block - columns;
    codes = make.Make("Pad", {codes, make.Ints(pads)});
  }
  std::vector<int64_t> by_block(static_cast<size_t>(out_rank) + 1, 0);
  by_block[by_block.size() - 2] = blocks;
  by_block.back() = block;
  codes = make.Reshape(codes, by_block);
  const ValueId scales = rows(2);
  ValueId zeros = make.ScalarLike(codes, unpacked ? 0 : bits == 8 ? 128 : 8);
  const auto cut = [&](ValueId id, int64_t size) {
    return make.Make("Slice", {id, make.Ints({0}), make.Ints({size}), make.Ints({out_rank - 1})});
  };
  if (make.has(3)) {
    zeros = numbers(3);
    if (two_a_byte && blocks % 2 != 0) zeros = cut(zeros, blocks);
    zeros = make.Unsqueeze(zeros, {out_rank});
  }
  const ValueId distance = make.Make("Sub", {codes, zeros});
  const ValueId by_scale = make.Unsqueeze(
      make.info(make.in(2)).dtype == DType::kFloat ? scales : make.CastToFloat(scales), {out_rank});
  std::vector<int64_t> whole(static_cast<size_t>(out_rank), 0);
  whole.back() = -1;
  ValueId y = make.Reshape(make.Make("Mul", {distance, by_scale}), whole);
  if (columns != blocks * block) y = cut(y, columns);
  // Has the type of the scales.
  return make.Become("CastLike", {y, make.in(2)});
}

}  // namespace chairlift::contrib
