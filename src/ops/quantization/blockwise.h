// Products of float matrices with weights that are quantised in blocks: B(k, n) = (q(k, n) − z) ·
// s. Codes q have 4 or 8 bits. Each column has one scale s and one zero point z for every `block`
// entries. This is the format of MatMulNBits; GPTQ, AWQ and llama.cpp's Q4_0 are similar.
//
// The packed form. Half of the code range is subtracted from each code, which gives a signed number
// c. Then B = c · s + t, with the shift t = (half − z) · s. Shifts are omitted if all are 0, as in
// most models. Columns are in panels of 32. A panel has one block after the other. A block has
//   32 scales, 32 shifts if any is not 0, and the codes:
//   rows of 32 words, each with as many successive entries of a column as fit, lowest bits first.
// So a product reads memory once, sequentially. The padding of the last panel and the last block is
// 0.
//
// Products are computed in float32. If the model allows it, rows of A are first rounded to 8 bits,
// block by block (ByteRows). The sum over each block is then an exact integer. Everything here runs
// on the calling thread.
#ifndef CHAIRLIFT_OPS_QUANTIZATION_BLOCKWISE_H_
#define CHAIRLIFT_OPS_QUANTIZATION_BLOCKWISE_H_

#include <cstdint>

#include "ops/linear/packed_gemm.h"

namespace chairlift {

// Sums over longer blocks of 8-bit rows would not fit in 32 bits.
inline constexpr int64_t kLongestBlock = int64_t{1} << 16;

struct BlockwiseShape {
  int bits = 4;       // 4 or 8
  int64_t block = 0;  // a power of two, from 16 to kLongestBlock
  int64_t k = 0, n = 0;

  int64_t blocks() const { return (k + block - 1) / block; }  // per column
  int64_t filled_k() const { return blocks() * block; }
};

// The format in a model's file: codes [n, blocks, block · bits / 8], scales [n, blocks].
struct BlockwiseSource {
  const uint8_t* codes = nullptr;
  const float* scales = nullptr;
  // Zero points: at most one of these is set. If neither is, zero points are half of the code
  // range. Packed: [n, ceil(blocks · bits / 8)] bytes. Floats: [n, blocks].
  const uint8_t* packed_zeros = nullptr;
  const float* float_zeros = nullptr;
};

// The packed form.
struct BlockwiseWeights {
  BlockwiseShape shape;
  bool shifted = false;
  const uint32_t* words = nullptr;

  int64_t panel_words() const {
    return shape.blocks() * kGemmPanel * ((shifted ? 2 : 1) + shape.block * shape.bits / 32);
  }
  int64_t size() const { return GemmPanels(shape.n) * panel_words(); }  // of `words`
  const uint32_t* panel(int64_t i) const { return words + i * panel_words(); }
};

// Whether any shift is not 0.
bool HasShifts(const BlockwiseShape& shape, const BlockwiseSource& source);
// Packs the weights into `words`, which has like.size() elements. `like` gives the shape, and
// whether shifts are stored.
void PackBlockwise(const BlockwiseSource& source, const BlockwiseWeights& like, uint32_t* words);

// Up to this many rows, BlockwiseProduct() is faster than dequantising the weights first
// (WidenBlockwise()).
int64_t BlockwiseFewRows();

// Writes the sum of each block of each row of A to `sums` [rows, blocks]. For the rows of A, see
// BlockwiseOperands.
void BlockSums(const float* a, int64_t a_stride, int64_t rows, const BlockwiseShape& shape,
               float* sums);

// Operands of BlockwiseProduct(), which computes panels [first, last) of C = f(A·B + bias +
// residual). Each row of A has filled_k() floats; those past k are 0. `sums` is BlockSums() of A,
// and is read only if the weights are shifted.
struct BlockwiseOperands {
  const float* a;
  int64_t a_stride;
  const float* sums;
  float* c;
  int64_t c_stride;
};
void BlockwiseProduct(const BlockwiseWeights& weights, const BlockwiseOperands& operands,
                      int64_t rows, int64_t first, int64_t last, const GemmEpilogue& epilogue);

// Rows of A in 8 bits: a(k) ≈ codes(k) · scale. Each block has one scale, its largest magnitude
// divided by 127, and codes are rounded to nearest, as in ONNX Runtime. A block with an infinity or
// a NaN has the scale NaN. Codes are dense [rows, filled_k()], in the order in which ByteProduct()
// reads them.
struct ByteRows {
  int8_t* codes;
  float* scales;  // [rows, blocks]
  int32_t* sums;  // [rows, blocks]: sums of codes, times −(half of the weights' code range)
};
// Whether this processor can run ByteProduct(). It needs AVX2, and is faster with AVX-512 VNNI.
bool CanMultiplyBytes();
void RoundRows(const float* a, int64_t a_stride, int64_t rows, const BlockwiseShape& shape,
               const ByteRows& to);
// Like BlockwiseProduct(), for any number of rows.
void ByteProduct(const BlockwiseWeights& weights, const ByteRows& a, int64_t rows, float* c,
                 int64_t c_stride, int64_t first, int64_t last, const GemmEpilogue& epilogue);

// Dequantises panels [first, last) to `to`, in the format of PackGemmPanels().
void WidenBlockwise(const BlockwiseWeights& weights, int64_t first, int64_t last, float* to);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_QUANTIZATION_BLOCKWISE_H_
