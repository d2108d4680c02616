// ONNX's four 8-bit floats. No DType has them: their values are held as float32.
#ifndef CHAIRLIFT_OPS_QUANTIZATION_FLOAT8_H_
#define CHAIRLIFT_OPS_QUANTIZATION_FLOAT8_H_

#include <cstdint>
#include <optional>

namespace chairlift {

enum class Float8 : uint8_t { kE4M3FN, kE4M3FNUZ, kE5M2, kE5M2FNUZ };

// The format with this TensorProto.DataType number; nullopt if the number is of another type.
std::optional<Float8> Float8OfOnnx(int64_t number);
int64_t OnnxOfFloat8(Float8 format);
// As in ONNX's text format: "float8e4m3fn".
const char* Float8Name(Float8 format);

// The value that the byte encodes, exactly.
float Float8Value(Float8 format, uint8_t code);

// The nearest value of the format, ties to the even code; NaN stays NaN. Beyond the largest value,
// the result is that value if `saturate`, else infinity if the format has one, else NaN.
float RoundToFloat8(Float8 format, double x, bool saturate);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_QUANTIZATION_FLOAT8_H_
