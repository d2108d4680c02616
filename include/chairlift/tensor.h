// Tensors of the public API: an element type, a shape, and row-major bytes.
#ifndef CHAIRLIFT_TENSOR_H_
#define CHAIRLIFT_TENSOR_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "chairlift/status.h"

namespace chairlift {

// Element types. kUndefined marks an absent tensor. kBytes: strings of any bytes (text.h), which
// requests, Python models, and models that run as a whole may have.
enum class DType : uint8_t {
  kUndefined = 0,
  kFloat,
  kDouble,
  kFloat16,
  kBFloat16,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kBool,
  kBytes,
};

// Bytes of one element; 0 for kUndefined.
size_t DTypeSize(DType dtype);
// "float32", "int64", "bool", ...
std::string_view DTypeName(DType dtype);

// 16-bit storage types; arithmetic happens in float. Conversions round to nearest even.
struct Float16 {
  uint16_t bits = 0;
  Float16() = default;
  explicit Float16(float value);
  explicit operator float() const;
};
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value);
  explicit operator float() const;
};

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType kValue = DType::kFloat;
};
template <>
struct DTypeOf<double> {
  static constexpr DType kValue = DType::kDouble;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType kValue = DType::kFloat16;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType kValue = DType::kBFloat16;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType kValue = DType::kInt8;
};
template <>
struct DTypeOf<int16_t> {
  static constexpr DType kValue = DType::kInt16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType kValue = DType::kInt32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType kValue = DType::kInt64;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType kValue = DType::kUInt8;
};
template <>
struct DTypeOf<uint16_t> {
  static constexpr DType kValue = DType::kUInt16;
};
template <>
struct DTypeOf<uint32_t> {
  static constexpr DType kValue = DType::kUInt32;
};
template <>
struct DTypeOf<uint64_t> {
  static constexpr DType kValue = DType::kUInt64;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType kValue = DType::kBool;
};

// Dimensions, outermost first. Rank 0 is a scalar. Copies are cheap up to rank 6.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(std::span<const int64_t> dims) : dims_(dims.begin(), dims.end()) {}

  int rank() const { return static_cast<int>(dims_.size()); }
  int64_t operator[](int axis) const { return dims_[axis]; }
  int64_t& operator[](int axis) { return dims_[axis]; }
  auto begin() const { return dims_.begin(); }
  auto end() const { return dims_.end(); }
  std::span<const int64_t> dims() const { return {dims_.data(), dims_.size()}; }
  void Append(int64_t dim) { dims_.push_back(dim); }
  void Insert(int axis, int64_t dim) { dims_.insert(dims_.begin() + axis, dim); }
  void Erase(int axis) { dims_.erase(dims_.begin() + axis); }

  // Product of all dimensions; 1 for a scalar. Call it only on a shape that Checked() accepted or
  // that is known not to overflow.
  int64_t NumElements() const;
  // Product of dimensions [first, last).
  int64_t NumElements(int first, int last) const;
  // The number of elements of an untrusted shape. An error if a dimension is negative, or if
  // elements × element_bytes exceeds max_bytes.
  StatusOr<int64_t> Checked(size_t element_bytes, int64_t max_bytes = kMaxTensorBytes) const;

  std::string ToString() const;  // "[2,3,4]"
  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }

  static constexpr int64_t kMaxTensorBytes = int64_t{1} << 36;

 private:
  absl::InlinedVector<int64_t, 6> dims_;
};

class Device;

// A dense row-major array, or nothing (dtype kUndefined). Copies share the bytes; the last copy
// frees them. Thread safety is that of shared_ptr: concurrent reads of the bytes are fine, a write
// must not overlap other accesses.
class Tensor {
 public:
  Tensor() = default;

  // Uninitialised bytes, 64-byte aligned, readable 64 bytes past the end. The shape must be valid
  // (Shape::Checked).
  static Tensor Allocate(DType dtype, const Shape& shape);
  // Borrowed bytes. `owner` keeps `data` alive; it may be null if the caller does. `device` as in
  // device().
  static Tensor Wrap(DType dtype, const Shape& shape, void* data,
                     std::shared_ptr<const void> owner = nullptr, const Device* device = nullptr);
  // A copy of `values`, whose count must equal shape.NumElements().
  template <typename T>
  static Tensor Of(const Shape& shape, std::span<const T> values) {
    Tensor t = Allocate(DTypeOf<T>::kValue, shape);
    assert(static_cast<int64_t>(values.size()) == t.size());
    std::copy(values.begin(), values.end(), t.data<T>());
    return t;
  }
  template <typename T>
  static Tensor Of(const Shape& shape, std::initializer_list<T> values) {
    return Of<T>(shape, std::span<const T>(values.begin(), values.size()));
  }
  template <typename T>
  static Tensor Scalar(T value) {
    return Of<T>(Shape{}, {value});
  }

  bool present() const { return dtype_ != DType::kUndefined; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t size() const { return size_; }  // elements
  size_t byte_size() const { return static_cast<size_t>(size_) * DTypeSize(dtype_); }

  // The device whose memory holds the bytes. Null: host memory, the only one that data() may be
  // read from.
  const Device* device() const { return device_; }
  void* raw() { return data_; }
  const void* raw() const { return data_; }
  template <typename T>
  T* data() {
    assert(dtype_ == DTypeOf<T>::kValue && device_ == nullptr);
    return static_cast<T*>(data_);
  }
  template <typename T>
  const T* data() const {
    assert(dtype_ == DTypeOf<T>::kValue && device_ == nullptr);
    return static_cast<const T*>(data_);
  }
  template <typename T>
  std::span<const T> values() const {
    return {data<T>(), static_cast<size_t>(size_)};
  }

  // The same bytes with another shape of the same number of elements.
  Tensor Reshaped(const Shape& shape) const;
  // Rows [first, first + count) along dimension 0, sharing the bytes.
  Tensor Rows(int64_t first, int64_t count) const;
  // A deep copy in host memory.
  Tensor Clone() const;
  const std::shared_ptr<const void>& owner() const { return owner_; }

 private:
  DType dtype_ = DType::kUndefined;
  Shape shape_;
  int64_t size_ = 0;
  void* data_ = nullptr;
  std::shared_ptr<const void> owner_;
  const Device* device_ = nullptr;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_TENSOR_H_
