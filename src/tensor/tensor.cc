#include "chairlift/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "base/status.h"
#include "chairlift/text.h"
#include "tensor/buffer_pool.h"
#include "tensor/datatype.h"
#include "tensor/dtype.h"

namespace chairlift {
namespace {

struct TypeRow {
  std::string_view name;
  std::string_view datatype;
  size_t bytes;
};
// Indexed by DType.
constexpr TypeRow kTypes[] = {
    {"undefined", "", 0},    {"float32", "FP32", 4},  {"float64", "FP64", 8},
    {"float16", "FP16", 2},  {"bfloat16", "BF16", 2}, {"int8", "INT8", 1},
    {"int16", "INT16", 2},   {"int32", "INT32", 4},   {"int64", "INT64", 8},
    {"uint8", "UINT8", 1},   {"uint16", "UINT16", 2}, {"uint32", "UINT32", 4},
    {"uint64", "UINT64", 8}, {"bool", "BOOL", 1},     {"bytes", "BYTES", sizeof(std::string_view)}};

constexpr size_t kReadablePastEnd = 64;

}  // namespace

size_t DTypeSize(DType dtype) { return kTypes[static_cast<int>(dtype)].bytes; }
std::string_view DTypeName(DType dtype) { return kTypes[static_cast<int>(dtype)].name; }

Status UnsupportedType(DType dtype) {
  return Unimplemented("element type {} is not supported here", DTypeName(dtype));
}

std::string_view DatatypeName(DType dtype) { return kTypes[static_cast<int>(dtype)].datatype; }

DType DatatypeFromName(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [&](const TypeRow& row) { return row.datatype == name; });
  return found == std::end(kTypes) ? DType::kUndefined : static_cast<DType>(found - kTypes);
}

std::string TypeSet::ToString() const {
  std::string out;
  for (int i = 1; i <= static_cast<int>(DType::kBytes); ++i) {
    if (!Contains(static_cast<DType>(i))) continue;
    if (!out.empty()) out += ", ";
    out += kTypes[i].name;
  }
  return out;
}

Float16::Float16(float value) {
  const uint32_t f = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (f >> 16) & 0x8000u;
  const uint32_t magnitude = f & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;  // NaN
  } else if (magnitude >= 0x477ff000u) {
    half = 0x7c00u;  // above 65504: infinity
  } else if (magnitude >= 0x38800000u) {
    const uint32_t rebased = magnitude - 0x38000000u;
    half = (rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13;
  } else {
    // Subnormal: adding 0.5 aligns the value to the half's last place, rounding as the FPU does.
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  }
  bits = static_cast<uint16_t>(sign | half);
}

Float16::operator float() const {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -value : value;
  }
  const uint32_t wide = exponent == 31 ? 0x7f800000u : (exponent + 112) << 23;
  return std::bit_cast<float>(sign | wide | (mantissa << 13));
}

BFloat16::BFloat16(float value) {
  const uint32_t f = std::bit_cast<uint32_t>(value);
  if ((f & 0x7fffffffu) > 0x7f800000u) {
    bits = static_cast<uint16_t>((f >> 16) | 0x40u);
  } else {
    bits = static_cast<uint16_t>((f + 0x7fffu + ((f >> 16) & 1u)) >> 16);
  }
}

BFloat16::operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

int64_t Shape::NumElements() const { return NumElements(0, rank()); }

int64_t Shape::NumElements(int first, int last) const {
  int64_t n = 1;
  for (int i = first; i < last; ++i) n *= dims_[i];
  return n;
}

StatusOr<int64_t> Shape::Checked(size_t element_bytes, int64_t max_bytes) const {
  int64_t n = 1;
  bool empty = false;
  for (int64_t d : dims_) {
    if (d < 0) return InvalidArgument("shape {} has a negative dimension", ToString());
    if (d == 0) empty = true;
  }
  const int64_t limit = max_bytes / static_cast<int64_t>(element_bytes == 0 ? 1 : element_bytes);
  for (int64_t d : dims_) {
    if (d == 0)
      // The others are still multiplied by loops over the shape, so they must fit too.
      continue;
    if (n > limit / d) {
      return InvalidArgument("shape {} is larger than the limit of {} bytes", ToString(),
                             max_bytes);
    }
    n *= d;
  }
  return empty ? 0 : n;
}

std::string Shape::ToString() const { return fmt::format("[{}]", fmt::join(dims(), ",")); }

Tensor Tensor::Allocate(DType dtype, const Shape& shape) {
  Tensor t;
  t.dtype_ = dtype;
  t.shape_ = shape;
  t.size_ = shape.NumElements();
  const size_t bytes = t.byte_size() + kReadablePastEnd;
  std::shared_ptr<void> buffer = BufferPool::Default().Acquire(bytes);
  t.data_ = buffer.get();
  const size_t first = dtype == DType::kBytes ? 0 : t.byte_size();
  std::memset(static_cast<char*>(t.data_) + first, 0, bytes - first);
  t.owner_ = std::move(buffer);
  return t;
}

Tensor Tensor::Wrap(DType dtype, const Shape& shape, void* data, std::shared_ptr<const void> owner,
                    const Device* device) {
  Tensor t;
  t.dtype_ = dtype;
  t.shape_ = shape;
  t.size_ = shape.NumElements();
  t.data_ = data;
  t.owner_ = std::move(owner);
  t.device_ = device;
  return t;
}

Tensor Tensor::Reshaped(const Shape& shape) const {
  assert(shape.NumElements() == size_);
  Tensor t = *this;
  t.shape_ = shape;
  return t;
}

Tensor Tensor::Rows(int64_t first, int64_t count) const {
  assert(shape_.rank() > 0 && first >= 0 && first + count <= shape_[0]);
  Tensor t = *this;
  const int64_t row = shape_.NumElements(1, shape_.rank());
  t.shape_[0] = count;
  t.size_ = row * count;
  t.data_ = static_cast<char*>(data_) + static_cast<size_t>(first * row) * DTypeSize(dtype_);
  return t;
}

Tensor Tensor::Clone() const {
  assert(device_ == nullptr);
  if (!present()) return {};
  if (dtype_ == DType::kBytes) {
    // One block: the views, then their bytes.
    const std::span<const std::string_view> texts = TextsOf(*this);
    const std::shared_ptr<char[]> block(new char[ContentBytes(*this)]);
    auto* const views = reinterpret_cast<std::string_view*>(block.get());
    char* bytes = block.get() + byte_size();
    for (size_t i = 0; i < texts.size(); ++i) {
      new (views + i) std::string_view(bytes, texts[i].size());
      bytes = std::copy(texts[i].begin(), texts[i].end(), bytes);
    }
    return Wrap(dtype_, shape_, views, block);
  }
  Tensor t = Allocate(dtype_, shape_);
  std::memcpy(t.data_, data_, byte_size());
  return t;
}

}  // namespace chairlift
