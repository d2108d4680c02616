#include "python/arrays.h"

#include <nanobind/ndarray.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "chairlift/text.h"
#include "python/errors.h"
#include "python/events.h"
#include "tensor/dtype.h"

namespace chairlift::python {
namespace {

namespace nb = nanobind;

static_assert(std::endian::native == std::endian::little, "'<' in DTypeOf() is the native order");

// A format of the struct module for one element in this machine's byte order; else kUndefined.
DType DTypeOf(const char* format, Py_ssize_t item_bytes) {
  if (format == nullptr) return DType::kUInt8;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (format[0] == '\0' || format[1] != '\0') return DType::kUndefined;
  const auto sized = [&](DType of_1, DType of_2, DType of_4, DType of_8) {
    switch (item_bytes) {
      case 1:
        return of_1;
      case 2:
        return of_2;
      case 4:
        return of_4;
      case 8:
        return of_8;
      default:
        return DType::kUndefined;
    }
  };
  switch (*format) {
    case '?':
      return DType::kBool;
    case 'e':
      return DType::kFloat16;
    case 'f':
      return DType::kFloat;
    case 'd':
      return sized(DType::kUndefined, DType::kUndefined, DType::kFloat, DType::kDouble);
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
      return sized(DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64);
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
      return sized(DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64);
    default:
      return DType::kUndefined;
  }
}

// A buffer that the engine uses.
class HeldBuffer {
 public:
  // Null, without an exception, if the object has no suitable buffer.
  static std::shared_ptr<HeldBuffer> Of(nb::handle object) {
    auto view = std::make_unique<Py_buffer>();
    if (PyObject_GetBuffer(object.ptr(), view.get(), PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
      PyErr_Clear();
      return nullptr;
    }
    return std::make_shared<HeldBuffer>(std::move(view));
  }
  explicit HeldBuffer(std::unique_ptr<Py_buffer> view)
      : view_(std::move(view)), events_(Events::Own()) {}
  HeldBuffer(const HeldBuffer&) = delete;
  HeldBuffer& operator=(const HeldBuffer&) = delete;
  ~HeldBuffer() {
    if (PyGILState_Check() != 0) {
      PyBuffer_Release(view_.get());
      return;
    }
    events_.Push([view = view_.release()] {
      PyBuffer_Release(view);
      delete view;
    });
  }
  const Py_buffer& view() const { return *view_; }

 private:
  std::unique_ptr<Py_buffer> view_;
  Events& events_;
};

bool IsText(nb::handle value) { return PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr()); }

// Nothing if the buffer cannot be borrowed unchanged.
std::optional<Tensor> Borrowed(nb::handle value, DType as) {
  if (PyObject_CheckBuffer(value.ptr()) == 0 || IsText(value)) return std::nullopt;
  std::shared_ptr<HeldBuffer> held = HeldBuffer::Of(value);
  if (held == nullptr) return std::nullopt;
  const Py_buffer& view = held->view();
  DType dtype = DTypeOf(view.format, view.itemsize);
  if (as != DType::kUndefined && DTypeSize(as) == DTypeSize(dtype)) dtype = as;
  if (dtype == DType::kUndefined) return std::nullopt;
  if (static_cast<Py_ssize_t>(DTypeSize(dtype)) != view.itemsize) return std::nullopt;
  if (PyBuffer_IsContiguous(&view, 'C') == 0) return std::nullopt;
  if (reinterpret_cast<uintptr_t>(view.buf) % DTypeSize(dtype) != 0) return std::nullopt;
  Shape shape;
  for (int i = 0; i < view.ndim; ++i) shape.Append(view.shape[i]);
  Check(shape.Checked(DTypeSize(dtype)).status());
  return Tensor::Wrap(dtype, shape, view.buf, std::move(held));
}

nb::dlpack::dtype DlpackType(DType dtype) {
  const auto bits = static_cast<uint8_t>(8 * DTypeSize(dtype));
  const auto of = [&](nb::dlpack::dtype_code code) {
    return nb::dlpack::dtype{static_cast<uint8_t>(code), bits, 1};
  };
  switch (dtype) {
    case DType::kFloat:
    case DType::kDouble:
    case DType::kFloat16:
      return of(nb::dlpack::dtype_code::Float);
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
      return of(nb::dlpack::dtype_code::Int);
    case DType::kBool:
      return of(nb::dlpack::dtype_code::Bool);
    default:  // also bfloat16, which numpy does not have: as its bits
      return of(nb::dlpack::dtype_code::UInt);
  }
}

bool Overlap(const Tensor& a, const Tensor& b) {
  const auto* const a_first = static_cast<const char*>(a.raw());
  const auto* const b_first = static_cast<const char*>(b.raw());
  return a_first < b_first + b.byte_size() && b_first < a_first + a.byte_size();
}

// Strings nested in sequences of equal lengths, or an array of strings: str, as UTF-8, or bytes.
class NestedTexts {
 public:
  explicit NestedTexts(const std::string& name) : name_(name) {}

  void Add(nb::handle value, int depth) {
    if (IsText(value)) return AddText(value, depth);
    if (PySequence_Check(value.ptr()) == 0) {
      Check(InvalidArgument("input '{}' has a {} among its items; text must be str or bytes", name_,
                            Py_TYPE(value.ptr())->tp_name));
    }
    const auto size = static_cast<int64_t>(nb::len(value));
    constexpr int kDeepest = 32;
    if (depth == shape_.rank() && !complete_ && depth < kDeepest) {
      shape_.Append(size);
    } else if (depth >= shape_.rank() || shape_[depth] != size) {
      Refuse();
    }
    for (const nb::handle element : nb::iter(value)) Add(element, depth + 1);
    complete_ = true;  // the first list without lists in it ends the shape
  }

  Tensor Take() { return TextTensor(shape_, std::move(texts_)); }

 private:
  void AddText(nb::handle value, int depth) {
    if (depth != shape_.rank()) Refuse();
    complete_ = true;
    const char* data = nullptr;
    Py_ssize_t size = 0;
    if (PyUnicode_Check(value.ptr())) {
      data = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
      if (data == nullptr) throw nb::python_error();
    } else {
      data = PyBytes_AS_STRING(value.ptr());
      size = PyBytes_GET_SIZE(value.ptr());
    }
    texts_.emplace_back(data, static_cast<size_t>(size));
  }

  void Refuse() const {
    Check(
        InvalidArgument("input '{}' has lists of different lengths or depths; text is nested in "
                        "lists of equal lengths",
                        name_));
  }

  const std::string& name_;
  Shape shape_;
  bool complete_ = false;
  std::vector<std::string> texts_;
};

Tensor TextsFrom(const std::string& name, nb::handle value, const TensorSpec& spec) {
  // An array of no dimensions is the text in it.
  if (nb::hasattr(value, "ndim") && nb::hasattr(value, "item") &&
      nb::isinstance<nb::int_>(value.attr("ndim")) && nb::cast<int>(value.attr("ndim")) == 0) {
    const nb::object text = value.attr("item")();
    if (IsText(text)) return TextsFrom(name, text, spec);
  }
  if (PySequence_Check(value.ptr()) == 0 || (IsText(value) && !spec.shape.empty())) {
    Check(InvalidArgument("input '{}' takes text: a list of str or bytes, one for each row", name));
  }
  NestedTexts texts(name);
  texts.Add(value, 0);
  return texts.Take();
}

}  // namespace

Tensor TensorOf(const std::string& name, nb::handle value, const TensorSpec* spec) {
  if (spec != nullptr && spec->dtype == DType::kBytes) return TextsFrom(name, value, *spec);
  if (std::optional<Tensor> tensor = Borrowed(value, DType::kUndefined)) return *std::move(tensor);
  const DType wanted = spec == nullptr ? DType::kUndefined : spec->dtype;
  const std::string type(DTypeName(wanted));
  const nb::object plain =
      nb::module_::import_("chairlift._arrays")
          .attr("plain")(nb::str(name.c_str()), value,
                         spec == nullptr ? nb::none() : nb::object(nb::str(type.c_str())));
  const bool bits = nb::cast<bool>(plain[1]);  // of bfloat16
  if (std::optional<Tensor> tensor =
          Borrowed(plain[0], bits ? DType::kBFloat16 : DType::kUndefined)) {
    const bool number = PyFloat_Check(value.ptr()) || PyLong_Check(value.ptr());  // includes bool
    if (number && spec != nullptr && spec->shape.size() == 1) return tensor->Reshaped(Shape{1});
    return *std::move(tensor);
  }
  Check(Internal("input '{}': its plain array has no plain buffer", name));
  return {};
}

nb::object ArrayOf(const Tensor& tensor) {
  if (tensor.dtype() == DType::kBytes) {
    nb::list texts, shape;
    for (const std::string_view text : TextsOf(tensor)) {
      texts.append(nb::bytes(text.data(), text.size()));
    }
    for (const int64_t dim : tensor.shape()) shape.append(dim);
    return nb::module_::import_("chairlift._arrays").attr("texts")(texts, shape);
  }
  auto owned = std::make_unique<Tensor>(tensor);
  static uint64_t nothing = 0;  // the address of an array without elements
  void* const data = owned->size() == 0 ? &nothing : owned->raw();
  std::vector<size_t> shape;
  for (const int64_t dim : tensor.shape()) shape.push_back(static_cast<size_t>(dim));
  const nb::capsule owner(owned.get(),
                          [](void* kept) noexcept { delete static_cast<Tensor*>(kept); });
  (void)owned.release();  // now owned by the capsule
  nb::object array = nb::cast(nb::ndarray<nb::numpy>(data, shape.size(), shape.data(), owner,
                                                     nullptr, DlpackType(tensor.dtype())));
  if (tensor.dtype() == DType::kBFloat16) {
    array = nb::module_::import_("chairlift._arrays").attr("bfloat16")(array);
  }
  return array;
}

nb::dict ArraysOf(std::span<const NamedTensor> outputs, std::span<const NamedTensor> inputs) {
  nb::dict arrays;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& tensor = outputs[i].tensor;
    bool shared = false;  // strings are copied anyway
    for (const NamedTensor& input : inputs) shared |= Overlap(tensor, input.tensor);
    for (size_t j = 0; j < i; ++j) shared |= Overlap(tensor, outputs[j].tensor);
    arrays[nb::str(outputs[i].name.c_str())] = ArrayOf(shared ? tensor.Clone() : tensor);
  }
  return arrays;
}

}  // namespace chairlift::python
