// chairlift::ScaledIntegerProduct: an integer product fused with its scales by
// graph/passes/recognise_integer_products.
#ifndef CHAIRLIFT_OPS_QUANTIZATION_SCALED_INTEGER_PRODUCT_H_
#define CHAIRLIFT_OPS_QUANTIZATION_SCALED_INTEGER_PRODUCT_H_

namespace chairlift {

// W is packed once if it and its scales and zero points are constants.
// y = activation(a_scale · w_scale · Σ (a − a_zero)(w − w_zero) + bias + residual), in float32 with
// an exact sum. Attributes: transpose_w, and the activation's.
struct ScaledProduct {
  enum Input {
    kA,         // [..., K], int8 or uint8
    kW,         // [K, N], or [N, K] if transpose_w; int8 or uint8
    kBias,      // [N], optional
    kResidual,  // [..., N], optional
    kAScale,    // one, or one for each row of A; optional (1)
    kAZero,     // likewise, of A's type; optional (0)
    kWScale,    // one, or [N]
    kWZero,     // likewise, of W's type; optional (0)
    kInputs
  };
};

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_QUANTIZATION_SCALED_INTEGER_PRODUCT_H_
