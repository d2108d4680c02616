// Rules for the encoders of categories of ai.onnx.ml: LabelEncoder, CategoryMapper, OneHotEncoder;
// and ZipMap, which only names columns.
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "chairlift/text.h"
#include "graph/onnx/contrib/rules.h"

namespace chairlift::contrib {
namespace {

// The tensor that the attribute `name` gives: floats, int64s, strings or a tensor [n]; absent if
// the attribute is.
Tensor ListOf(const Attributes& attributes, const std::string& name) {
  if (const auto* floats = attributes.Find<std::vector<float>>(name)) {
    return Tensor::Of<float>(Shape{std::ssize(*floats)}, *floats);
  }
  if (const auto* ints = attributes.Find<std::vector<int64_t>>(name)) {
    return Tensor::Of<int64_t>(Shape{std::ssize(*ints)}, *ints);
  }
  if (const auto* texts = attributes.Find<std::vector<std::string>>(name)) {
    return TextTensor(Shape{std::ssize(*texts)}, *texts);
  }
  if (const auto* tensor = attributes.Find<Tensor>(name)) return *tensor;
  return {};
}

// The only one of `prefix`floats, `prefix`int64s, `prefix`strings and `prefix`tensor.
StatusOr<Tensor> OnlyList(const Maker& make, const std::string& prefix) {
  Tensor found;
  for (const char* kind : {"floats", "int64s", "strings", "tensor"}) {
    Tensor list = ListOf(make.attributes(), prefix + kind);
    if (!list.present() || list.size() == 0) continue;
    if (found.present()) {
      return InvalidArgument("more than one of its attributes '{}*' is given", prefix);
    }
    if (list.shape().rank() != 1) {
      return InvalidArgument("its attribute '{}{}' has shape {}, not [n]", prefix, kind,
                             list.shape().ToString());
    }
    found = std::move(list);
  }
  if (!found.present()) return InvalidArgument("its attributes '{}*' are missing", prefix);
  return found;
}

// The default: given for keys that are not listed, of the type of `values`.
StatusOr<Tensor> DefaultFor(const Maker& make, DType dtype) {
  const Attributes& attributes = make.attributes();
  if (const auto* given = attributes.Find<Tensor>("default_tensor")) {
    if (given->dtype() != dtype || given->size() != 1) {
      return InvalidArgument("its attribute 'default_tensor' is {} {}, not one element of {}",
                             DTypeName(given->dtype()), given->shape().ToString(),
                             DTypeName(dtype));
    }
    return given->Reshaped({1});
  }
  if (dtype == DType::kBytes) {
    return TextTensor({1}, {attributes.String("default_string", "_Unused")});
  }
  if (dtype == DType::kInt64) {
    return Tensor::Of<int64_t>({1}, {attributes.Int("default_int64", -1)});
  }
  if (dtype == DType::kFloat) {
    return Tensor::Of<float>({1}, {attributes.Float("default_float", -0.0f)});
  }
  if (dtype == DType::kDouble) return Tensor::Of<double>({1}, {-0.0});
  if (dtype == DType::kInt32) return Tensor::Of<int32_t>({1}, {-1});
  if (dtype == DType::kInt16) return Tensor::Of<int16_t>({1}, {int16_t{-1}});
  return Unimplemented("values of type {} are not supported", DTypeName(dtype));
}

// values[i] for keys[i], `other` for other inputs.
Status BecomeLookup(Maker& make, const Tensor& keys, const Tensor& values, const Tensor& other) {
  const ValueId x = make.in(0);
  if (keys.size() != values.size()) {
    return InvalidArgument("{} keys for {} values", keys.size(), values.size());
  }
  if (make.info(x).dtype != keys.dtype()) {
    return InvalidArgument("its input is {}, but its keys are {}", DTypeName(make.info(x).dtype),
                           DTypeName(keys.dtype()));
  }
  const ValueId found =
      make.MakeOwn("Lookup", {x}, With({{"keys", keys}, {"values", values}, {"default", other}}));
  return make.Become("Identity", {found});
}

// The entries from the last to the first, for operators that use the last of several equal keys.
Tensor Reversed(const Tensor& list) {
  if (list.dtype() == DType::kBytes) {
    const auto texts = TextsOf(list);
    return TextTensor(list.shape(), std::vector<std::string>(texts.rbegin(), texts.rend()));
  }
  if (!list.present()) return list;
  Tensor reversed = list.Clone();
  const size_t width = DTypeSize(list.dtype());
  const auto* from = static_cast<const std::byte*>(list.raw()) + list.byte_size();
  auto* to = static_cast<std::byte*>(reversed.raw());
  for (int64_t i = 0; i < list.size(); ++i, to += width) std::memcpy(to, from -= width, width);
  return reversed;
}

Tensor Numbered(int64_t count) {
  Tensor numbers = Tensor::Allocate(DType::kInt64, {count});
  for (int64_t i = 0; i < count; ++i) numbers.data<int64_t>()[i] = i;
  return numbers;
}

// Maps strings to numbers or numbers to strings, depending on the type of the input.
Status BecomeMapper(Maker& make, const Tensor& texts, const Tensor& numbers) {
  const bool to_number = make.info(make.in(0)).dtype == DType::kBytes;
  const Tensor& values = to_number ? numbers : texts;
  CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor other, DefaultFor(make, values.dtype()));
  return BecomeLookup(make, Reversed(to_number ? texts : numbers), Reversed(values), other);
}

}  // namespace

Status LabelEncoder(Maker& make) {
  if (make.attributes().Has("classes_strings")) {  // opset 1
    const Tensor texts = ListOf(make.attributes(), "classes_strings");
    return BecomeMapper(make, texts, Numbered(texts.size()));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor keys, OnlyList(make, "keys_"));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor values, OnlyList(make, "values_"));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor other, DefaultFor(make, values.dtype()));
  return BecomeLookup(make, keys, values, other);
}

Status CategoryMapper(Maker& make) {
  return BecomeMapper(make, ListOf(make.attributes(), "cats_strings"),
                      ListOf(make.attributes(), "cats_int64s"));
}

// A new last dimension: 1 at the place of the category, 0 elsewhere.
Status OneHotEncoder(Maker& make) {
  const ValueId x = make.in(0);
  CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor cats, OnlyList(make, "cats_"));
  const bool given_texts = make.info(x).dtype == DType::kBytes;
  if (given_texts != (cats.dtype() == DType::kBytes)) {
    return InvalidArgument("its input is {}, but its categories are {}",
                           DTypeName(make.info(x).dtype), DTypeName(cats.dtype()));
  }
  const ValueId keyed = given_texts ? x : make.CastToInt64(x);
  const int64_t count = cats.size();
  // OneHot gives no 1 for an index outside of the range.
  Attributes attributes = With({{"keys", Reversed(cats)}, {"values", Reversed(Numbered(count))}});
  if (make.attributes().Int("zeros", 1) != 0) {
    attributes.Set("default", Tensor::Of<int64_t>({1}, {count}));
  }
  const ValueId place = make.MakeOwn("Lookup", {keyed}, std::move(attributes));
  return make.Become("OneHot", {place, make.Ints({count}), make.Floats({2}, {0.0f, 1.0f})},
                     With({{"axis", int64_t{-1}}}));
}

// Maps at the model's outputs are dropped before (zip_maps.h).
Status DictVectorizer(Maker&) {
  return Unimplemented(
      "its map is only supported as an input of the model that nothing else reads, with numbers as "
      "values; give the columns as a tensor");
}

Status ZipMap(Maker&) {
  return Unimplemented(
      "its maps are only supported as outputs of the model, which then are tensors; convert a "
      "scikit-learn classifier with options={{'zipmap': False}}");
}

}  // namespace chairlift::contrib
