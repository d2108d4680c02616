// Rules for products with fused scaling, transposition, sum or activation.
#include <numeric>
#include <string>
#include <utility>

#include "graph/onnx/contrib/rules.h"

namespace chairlift::contrib {
namespace {

// An operand of FusedMatMul: the batch dimensions first, then the matrix.
ValueId Operand(Maker& make, ValueId id, bool transposes_batch, bool transposes, const char* what) {
  if (!transposes_batch && !transposes) return id;
  const int rank = make.Rank(id, what);
  if (!make.ok() || rank < 2) {
    return id;  // a vector cannot be transposed
  }
  std::vector<int64_t> perm(static_cast<size_t>(rank));
  std::iota(perm.begin(), perm.end(), 0);
  // [m, batch..., k] to [batch..., m, k]
  if (transposes_batch) std::rotate(perm.begin(), perm.begin() + 1, perm.end() - 1);
  if (transposes) std::swap(perm[perm.size() - 2], perm[perm.size() - 1]);
  return make.Transpose(id, std::move(perm));
}

std::vector<float> ActivationParameters(const Attributes& attributes) {
  std::vector<float> parameters;
  for (const char* name : {"activation_alpha", "activation_beta", "activation_gamma"}) {
    if (const float* value = attributes.Find<float>(name)) parameters.push_back(*value);
  }
  return parameters;
}

ValueId ScaledMatMul(Maker& make) {
  const Attributes& attributes = make.attributes();
  const auto flag = [&](const char* name) { return attributes.Int(name, 0) != 0; };
  const ValueId a = Operand(make, make.in(0), flag("transBatchA"), flag("transA"), "input A");
  const ValueId b = Operand(make, make.in(1), flag("transBatchB"), flag("transB"), "input B");
  const ValueId product = make.Make("MatMul", {a, b});
  const float alpha = attributes.Float("alpha", 1.0f);
  return alpha == 1.0f ? product : make.Make("Mul", {product, make.ScalarLike(product, alpha)});
}

}  // namespace

Status FusedConv(Maker& make) {
  Attributes attributes = make.attributes();
  attributes.Erase("activation");
  attributes.Erase("activation_params");
  std::vector<ValueId> inputs = {make.in(0), make.in(1)};
  if (make.has(2)) inputs.push_back(make.in(2));
  ValueId y = make.Make("Conv", std::move(inputs), std::move(attributes));
  if (make.has(3)) y = make.Make("Add", {y, make.in(3)});
  y = Activate(make, y, make.attributes().String("activation", ""),
               make.attributes().Floats("activation_params"));
  return make.Become("Identity", {y});
}

Status FusedGemm(Maker& make) {
  Attributes attributes;
  for (const char* name : {"alpha", "beta"}) {
    if (const float* value = make.attributes().Find<float>(name)) attributes.Set(name, *value);
  }
  for (const char* name : {"transA", "transB"}) {
    if (const auto* value = make.attributes().Find<int64_t>(name)) attributes.Set(name, *value);
  }
  std::vector<ValueId> inputs = {make.in(0), make.in(1)};
  if (make.has(2)) inputs.push_back(make.in(2));
  const ValueId y = make.Make("Gemm", std::move(inputs), std::move(attributes));
  return make.Become("Identity", {Activate(make, y, make.attributes().String("activation", ""),
                                           ActivationParameters(make.attributes()))});
}

Status FusedMatMul(Maker& make) { return make.Become("Identity", {ScaledMatMul(make)}); }

Status FusedMatMulActivation(Maker& make) {
  if (make.attributes().Has("activation_axis")) {
    return Unimplemented("its attribute 'activation_axis' is not supported");
  }
  return make.Become("Identity",
                     {Activate(make, ScaledMatMul(make), make.attributes().String("activation", ""),
                               ActivationParameters(make.attributes()))});
}

}  // namespace chairlift::contrib
