// Element by element, with one loop per type.
#include "server/http/json_array.h"

#include "absl/strings/numbers.h"
#include "base/excerpt.h"
#include "base/status.h"
#include "chairlift/text.h"
#include "tensor/datatype.h"
#include "tensor/dispatch_all.h"

namespace chairlift::http {
namespace {

namespace dom = simdjson::dom;

bool Convert(dom::element value, double* out) { return value.get_double().get(*out) == 0; }

bool Convert(dom::element value, float* out) {
  double wide;
  if (!Convert(value, &wide)) return false;
  *out = static_cast<float>(wide);
  return std::isfinite(*out);
}

template <typename Half>
bool ConvertHalf(dom::element value, Half* out) {
  float wide;
  if (!Convert(value, &wide)) return false;
  *out = Half(wide);
  return std::isfinite(static_cast<float>(*out));
}
bool Convert(dom::element value, Float16* out) { return ConvertHalf(value, out); }
bool Convert(dom::element value, BFloat16* out) { return ConvertHalf(value, out); }

bool Convert(dom::element value, bool* out) {
  if (value.get_bool().get(*out) == 0) return true;
  int64_t number;
  if (value.get_int64().get(number) != 0 || (number != 0 && number != 1)) return false;
  *out = number == 1;
  return true;
}

bool Convert(dom::element value, std::string_view* out) {
  return value.get_string().get(*out) == 0;
}

template <std::integral T>
bool Convert(dom::element value, T* out) {
  return ConvertInteger(value, out);
}

// "; send numbers without quotes": what would be a value of the type.
std::string Instead(dom::element value, DType dtype) {
  if (dtype == DType::kBytes) return "; send a string, in double quotes";
  const bool is_text = value.is_string();
  double number = 0;
  if (is_text && absl::SimpleAtod(std::string(std::string_view(value)), &number)) {
    return "; send numbers without quotes";
  }
  if (is_text)
    return "; send numbers, or the tensor's bytes as binary data (docs/reference/http.md)";
  if (dtype == DType::kBool) return "; send true or false";
  if (value.is_null() || value.is_bool()) return "; send a number";
  if (value.is_number()) return "; send a number that the type can hold";
  return "; send numbers, flat or nested as the shape is";
}

// Copies a JSON array into a tensor: flat, or nested exactly as the shape.
template <typename T>
class ArrayReader {
 public:
  explicit ArrayReader(Tensor* tensor)
      : tensor_(tensor), out_(tensor->data<T>()), begin_(out_), end_(out_ + tensor->size()) {}

  Status Read(dom::array data) {
    const bool nested = data.begin() != data.end() && (*data.begin()).is_array();
    if (nested) return ReadNested(data, 0);
    CHAIRLIFT_RETURN_IF_ERROR(ReadRow(data, end_));
    if (out_ != end_) return CountMismatch(tensor_->shape(), fmt::to_string(out_ - begin_));
    return absl::OkStatus();
  }

 private:
  Status ReadRow(dom::array data, const T* end) {
    for (const dom::element value : data) {
      if (out_ == end) {
        return CountMismatch(tensor_->shape(), fmt::format("more than {}", end - begin_));
      }
      if (!Convert(value, out_)) {
        return InvalidArgument("element {} is {}, which is not a value of {}{}", out_ - begin_,
                               Excerpt(value), DatatypeName(tensor_->dtype()),
                               Instead(value, tensor_->dtype()));
      }
      ++out_;
    }
    return absl::OkStatus();
  }

  Status ReadNested(dom::array data, int axis) {
    const Shape& shape = tensor_->shape();
    if (axis == shape.rank() - 1) {
      const T* end = out_ + shape[axis];
      CHAIRLIFT_RETURN_IF_ERROR(ReadRow(data, end));
      if (out_ != end) return NestingMismatch(axis);
      return absl::OkStatus();
    }
    int64_t count = 0;
    for (const dom::element row : data) {
      dom::array inner;
      if (axis >= shape.rank() || count == shape[axis] || row.get_array().get(inner) != 0) {
        return NestingMismatch(axis);
      }
      CHAIRLIFT_RETURN_IF_ERROR(ReadNested(inner, axis + 1));
      ++count;
    }
    if (count != shape[axis]) return NestingMismatch(axis);
    return absl::OkStatus();
  }

  Status NestingMismatch(int axis) const {
    return InvalidArgument("its nesting does not match shape {} in dimension {} at element {}",
                           tensor_->shape().ToString(), axis, out_ - begin_);
  }

  Tensor* tensor_;
  T* out_;
  const T* begin_;
  const T* end_;
};

}  // namespace

std::string Excerpt(dom::element value) {
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  return Shortened(std::string(simdjson::minify(value)), 40);
}

std::string CountOf(dom::array data) {
  const auto count = [](dom::array in, auto& self) -> int64_t {
    int64_t elements = 0;
    for (const dom::element element : in) {
      dom::array inner;
      elements += element.get_array().get(inner) == 0 ? self(inner, self) : 1;
    }
    return elements;
  };
  return fmt::to_string(count(data, count));
}

Status CountMismatch(const Shape& shape, std::string_view found) {
  return InvalidArgument("\"data\" has {} element{}, but shape {} needs {}", found,
                         found == "1" ? "" : "s", shape.ToString(), shape.NumElements());
}

Status ReadScalar(dom::element value, Tensor* tensor) {
  return DispatchAll(tensor->dtype(), [&]<typename T>() -> Status {
    if (Convert(value, tensor->data<T>())) return absl::OkStatus();
    return InvalidArgument("{} is not a value of {}{}", Excerpt(value),
                           DatatypeName(tensor->dtype()), Instead(value, tensor->dtype()));
  });
}

StatusOr<Tensor> ReadTexts(dom::array data, const Shape& shape) {
  std::vector<std::string_view> in_json(static_cast<size_t>(shape.NumElements()));
  Tensor texts = Tensor::Wrap(DType::kBytes, shape, in_json.data());
  CHAIRLIFT_RETURN_IF_ERROR(ArrayReader<std::string_view>(&texts).Read(data));
  return texts.Clone();
}

Status ReadArray(dom::array data, Tensor* tensor) {
  return DispatchAll(tensor->dtype(),
                     [&]<typename T>() { return ArrayReader<T>(tensor).Read(data); });
}

}  // namespace chairlift::http
