// Lookup: replaces each element by its value in a table.
//
// Attributes: "keys" and "values" [entries], "default" [1]. Input 0 has the type of the keys; the
// output has its shape and the type of the values. The first of equal keys counts. NaN is equal
// to NaN. Without "default", an element that is not a key is an error.
#include <cmath>
#include <cstring>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/excerpt.h"
#include "chairlift/text.h"
#include "ops/axis_map.h"
#include "ops/kernel_memory.h"
#include "ops/operator.h"
#include "ops/tabular/tabular.h"
#include "tensor/text_types.h"

namespace chairlift {
namespace {

struct LookupTable {
  Tensor keys, values, fallback;
};

StatusOr<LookupTable> ReadTable(const Attributes& attributes) {
  const auto* const keys = attributes.Find<Tensor>("keys");
  const auto* const values = attributes.Find<Tensor>("values");
  const auto* const fallback = attributes.Find<Tensor>("default");
  if (keys == nullptr || values == nullptr || keys->shape().rank() != 1 ||
      !(keys->shape() == values->shape())) {
    return InvalidArgument("its keys and values are missing or differ in length");
  }
  if (fallback != nullptr && (fallback->dtype() != values->dtype() || fallback->size() != 1)) {
    return InvalidArgument("its default is not one {}", DTypeName(values->dtype()));
  }
  return LookupTable{*keys, *values, fallback == nullptr ? Tensor() : *fallback};
}

Status InferLookup(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const LookupTable table, ReadTable(context.attributes()));
  if (context.dtype(0) != table.keys.dtype()) {
    return InvalidArgument("its input is {}, but its keys are {}", DTypeName(context.dtype(0)),
                           DTypeName(table.keys.dtype()));
  }
  context.set_output(0, table.values.dtype(), context.shape(0));
  return absl::OkStatus();
}

// Equal elements have equal keys.
template <typename T>
auto HashKey(T element) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return element;
  } else if constexpr (std::is_floating_point_v<T>) {
    const double wide = std::isnan(element) ? std::nan("") : static_cast<double>(element);
    uint64_t bits = 0;
    const double sum = wide + 0.0;  // −0 becomes 0
    std::memcpy(&bits, &sum, sizeof(bits));
    return std::isnan(element) ? ~uint64_t{0} : bits;
  } else {
    return static_cast<uint64_t>(element);
  }
}

std::string Quoted(std::string_view text) { return Shortened(text, 64); }
template <typename T>
std::string Quoted(T number) {
  return fmt::format("{}", number);
}

template <typename T>
class LookupKernel final : public Kernel {
 public:
  LookupKernel(LookupTable table, int64_t size) : table_(std::move(table)), size_(size) {
    int64_t place = 0;
    for (const T key : table_.keys.template values<T>()) places_.emplace(HashKey(key), place++);
    constexpr int64_t kEntryBytes = 32;
    KernelMemory::Add(static_cast<int64_t>(places_.capacity()) * kEntryBytes);
  }

  Status Run(const KernelArgs& args) const override {
    const auto* x = static_cast<const T*>(args.inputs[0]);
    auto* out = static_cast<std::byte*>(args.outputs[0]);
    const auto* values = static_cast<const std::byte*>(table_.values.raw());
    const size_t width = DTypeSize(table_.values.dtype());
    for (int64_t i = 0; i < size_; ++i) {
      const auto found = places_.find(HashKey(x[i]));
      const void* from = nullptr;
      if (found != places_.end()) {
        from = values + static_cast<size_t>(found->second) * width;
      } else if (table_.fallback.present()) {
        from = table_.fallback.raw();
      } else {
        return InvalidArgument("'{}' is not one of the {} known categories", Quoted(x[i]),
                               table_.keys.size());
      }
      std::memcpy(out + static_cast<size_t>(i) * width, from, width);
    }
    return absl::OkStatus();
  }

 private:
  LookupTable table_;
  int64_t size_;
  absl::flat_hash_map<decltype(HashKey(T())), int64_t> places_;
};

StatusOr<std::unique_ptr<Kernel>> CompileLookup(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(LookupTable table, ReadTable(context.attributes));
  const DType dtype = table.keys.dtype();
  if (dtype != context.inputs[0].dtype) return UnsupportedType(context.inputs[0].dtype);
  const int64_t size = context.inputs[0].size();
  return DispatchTypes<float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t,
                       uint32_t, uint64_t, std::string_view>(dtype, [&]<typename T>() {
    return StatusOr<std::unique_ptr<Kernel>>(
        std::make_unique<LookupKernel<T>>(std::move(table), size));
  });
}

}  // namespace

void RegisterLookup(OperatorRegistry& registry) {
  registry.Add({.domain = "chairlift",
                .name = "Lookup",
                .input_types = {kFullFloatTypes | kIntegerTypes | kTextType},
                .infer = InferLookup,
                .axes = ElementwiseAxes,
                .compile = CompileLookup});
}

}  // namespace chairlift
