#include "ops/operator.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "device/cpu/isa.h"
#include "ops/register.h"
#include "ops/simd_targets.h"

namespace chairlift {

int ChannelBlock() { return ActiveCpuIsa() >= CpuIsa::kAvx512 ? 16 : 8; }

Shape TensorDesc::StoredShape() const {
  if (layout == Layout::kRowMajor) return shape;
  Shape stored = shape;
  stored[1] = ChannelBlocks(shape[1]);
  stored.Append(ChannelBlock());
  return stored;
}

std::optional<std::vector<Dim>> InferContext::elements(int i) const {
  if (!has_input(i)) return std::nullopt;
  const ValueInfo& info = inputs_[i];
  if (info.value == nullptr) return info.elements;
  const Tensor& t = *info.value;
  if (t.shape().rank() > 1) return std::nullopt;
  std::vector<Dim> out;
  if (t.dtype() == DType::kInt64) {
    for (int64_t v : t.values<int64_t>()) out.emplace_back(v);
  } else if (t.dtype() == DType::kInt32) {
    for (int32_t v : t.values<int32_t>()) out.emplace_back(v);
  } else {
    return std::nullopt;
  }
  return out;
}

std::optional<std::vector<int64_t>> InferContext::known_elements(int i) const {
  if (!has_input(i)) return std::nullopt;
  const ValueInfo& info = inputs_[i];
  std::vector<int64_t> out;
  if (info.value != nullptr) {
    const Tensor& t = *info.value;
    if (t.dtype() == DType::kInt64) {
      out.assign(t.values<int64_t>().begin(), t.values<int64_t>().end());
    } else if (t.dtype() == DType::kInt32) {
      out.assign(t.values<int32_t>().begin(), t.values<int32_t>().end());
    } else {
      return std::nullopt;
    }
    return out;
  }
  if (!info.elements) return std::nullopt;
  for (const Dim& d : *info.elements) {
    if (!d.known()) return std::nullopt;
    out.push_back(d.value());
  }
  return out;
}

struct WeightCache::Impl {
  using Key = std::pair<const void*, std::string>;
  mutable std::mutex mutex;
  std::map<Key, Tensor> packed;
};

WeightCache::WeightCache() : impl_(std::make_unique<Impl>()) {}
WeightCache::~WeightCache() = default;

StatusOr<Tensor> WeightCache::Get(const Tensor& weight, const std::string& key, Pack pack) {
  const Impl::Key whole(weight.raw(), fmt::format("{}{} {}", DTypeName(weight.dtype()),
                                                  weight.shape().ToString(), key));
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  const auto it = impl_->packed.find(whole);
  if (it != impl_->packed.end()) return it->second;
  CHAIRLIFT_ASSIGN_OR_RETURN(Tensor packed, pack());
  impl_->packed.emplace(whole, packed);
  return packed;
}

size_t WeightCache::byte_size() const {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  size_t bytes = 0;
  for (const auto& [key, tensor] : impl_->packed) bytes += tensor.byte_size();
  return bytes;
}

void OperatorRegistry::Add(OperatorDef def) {
  defs_.push_back(std::make_unique<OperatorDef>(std::move(def)));
}

const OperatorDef* OperatorRegistry::Find(std::string_view domain, std::string_view name) const {
  if (domain == "ai.onnx") domain = "";
  for (const auto& def : defs_) {
    if (def->name == name && def->domain == domain) return def.get();
  }
  return nullptr;
}

std::vector<const OperatorDef*> OperatorRegistry::All() const {
  std::vector<const OperatorDef*> out;
  for (const auto& def : defs_) out.push_back(def.get());
  return out;
}

const OperatorRegistry& OperatorRegistry::Builtin() {
  static const OperatorRegistry* const kRegistry = [] {
    RestrictSimdTargets();
    auto* registry = new OperatorRegistry;
    RegisterElementwise(*registry);
    RegisterMovement(*registry);
    RegisterReduction(*registry);
    RegisterGeneration(*registry);
    RegisterLinear(*registry);
    RegisterPooling(*registry);
    RegisterNormalization(*registry);
    RegisterRecurrent(*registry);
    RegisterQuantization(*registry);
    RegisterImage(*registry);
    RegisterSignal(*registry);
    RegisterTabular(*registry);
    RegisterControl(*registry);
    RegisterAttention(*registry);
    RegisterRagged(*registry);
    return registry;
  }();
  return *kRegistry;
}

}  // namespace chairlift
