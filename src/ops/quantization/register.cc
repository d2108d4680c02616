#include "ops/register.h"

#include "ops/operator.h"
#include "ops/quantization/quantization.h"

namespace chairlift {

void RegisterQuantization(OperatorRegistry& registry) {
  RegisterQuantizeLinear(registry);
  RegisterDequantizeLinear(registry);
  RegisterDynamicQuantizeLinear(registry);
  RegisterIntegerMatMul(registry);
  RegisterIntegerConv(registry);
  RegisterByteMaxPool(registry);
  RegisterQuantizedBinary(registry);
  RegisterRequantize(registry);
  RegisterScaledIntegerProduct(registry);
  RegisterMatMulNBits(registry);
  RegisterMixtureOfExperts(registry);
  RegisterRoundToFloat8(registry);
}

}  // namespace chairlift
