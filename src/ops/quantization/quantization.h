// The operators of this folder, one function each; register.cc calls them all.
#ifndef CHAIRLIFT_OPS_QUANTIZATION_QUANTIZATION_H_
#define CHAIRLIFT_OPS_QUANTIZATION_QUANTIZATION_H_

namespace chairlift {

class OperatorRegistry;

void RegisterQuantizeLinear(OperatorRegistry& registry);
void RegisterDequantizeLinear(OperatorRegistry& registry);
void RegisterDynamicQuantizeLinear(OperatorRegistry& registry);
void RegisterIntegerMatMul(OperatorRegistry& registry);  // MatMulInteger, QLinearMatMul
void RegisterIntegerConv(OperatorRegistry& registry);    // ConvInteger, QLinearConv
void RegisterByteMaxPool(OperatorRegistry& registry);
void RegisterQuantizedBinary(OperatorRegistry& registry);  // QLinearAdd, QLinearMul
void RegisterRequantize(OperatorRegistry& registry);
void RegisterScaledIntegerProduct(OperatorRegistry& registry);
void RegisterMatMulNBits(OperatorRegistry& registry);
void RegisterMixtureOfExperts(OperatorRegistry& registry);
void RegisterRoundToFloat8(OperatorRegistry& registry);  // float8.cc

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_QUANTIZATION_QUANTIZATION_H_
