// Products of floats with weights that are quantised block by block: B(k, n) = (q(k, n) − z) · s,
// with codes q of 4 or 8 bits, and one scale s and zero point z for each column and each `block`
// entries of it. As MatMulNBits has them; GPTQ, AWQ and llama.cpp's Q4_0 are of this kind.
//
// The packed form. Codes are kept less half of their range, as signed numbers c, so that
// B = c · s + t with the shift t = (half − z) · s, which is 0 for most models, and then left out.
// Columns lie in panels of 32; a panel has one block after the other, and of each block
//   32 scales, 32 shifts where any is not 0, and the codes:
//   rows of 32 words, each of as many successive entries of a column as fit, lowest bits first.
// So a product reads memory once, from one end to the other. What fills up the last panel and the
// last block is 0.
//
// Products are computed in float32, or, where a model allows it, of rows that are rounded to 8 bits
// block by block (ByteRows), exactly but for that. Everything here runs on the calling thread.
#ifndef CHAIRLIFT_OPS_QUANTIZATION_BLOCKWISE_H_
#define CHAIRLIFT_OPS_QUANTIZATION_BLOCKWISE_H_

#include <cstdint>

#include "ops/linear/packed_gemm.h"

namespace chairlift {

// Sums over longer blocks of rows in 8 bits would not fit 32 bits.
inline constexpr int64_t kLongestBlock = int64_t{1} << 16;

struct BlockwiseShape {
  int bits = 4;       // 4 or 8
  int64_t block = 0;  // a power of two, from 16 to kLongestBlock
  int64_t k = 0, n = 0;

  int64_t blocks() const { return (k + block - 1) / block; }  // of a column
  int64_t filled_k() const { return blocks() * block; }
};

// As a model's file has it: codes [n, blocks, block · bits / 8], scales [n, blocks].
struct BlockwiseSource {
  const uint8_t* codes = nullptr;
  const float* scales = nullptr;
  // One of these, or neither: the middle of the codes' range. Packed: [n, ceil(blocks · bits / 8)].
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
// Fills `words` [size()] of weights of that shape.
void PackBlockwise(const BlockwiseSource& source, const BlockwiseWeights& like, uint32_t* words);

// Up to so many rows, BlockwiseProduct() is faster than widening the weights first.
int64_t BlockwiseFewRows();

// Sums over the blocks of each row: sums [rows, blocks]. `a` as below.
void BlockSums(const float* a, int64_t a_stride, int64_t rows, const BlockwiseShape& shape,
               float* sums);

// C = f(A·B + ...) for panels [first, last) of C. Rows of A are filled_k() floats long, those past
// k being 0. `sums`: BlockSums() of A; read where the weights are shifted.
struct BlockwiseOperands {
  const float* a;
  int64_t a_stride;
  const float* sums;
  float* c;
  int64_t c_stride;
};
void BlockwiseProduct(const BlockwiseWeights& weights, const BlockwiseOperands& operands,
                      int64_t rows, int64_t first, int64_t last, const GemmEpilogue& epilogue);

// Rows of A in 8 bits: a(k) is about codes(k) · scale, with one scale for each block, the largest
// magnitude in it over 127, and codes rounded to nearest; as ONNX Runtime rounds them. A block with
// an infinity or a NaN has the scale NaN. Codes are dense [rows, filled_k()], in the order in which
// ByteProduct() reads them.
struct ByteRows {
  int8_t* codes;
  float* scales;  // [rows, blocks]
  int32_t* sums;  // of the codes, likewise, times less half of the range of weights' codes
};
// Whether this processor multiplies bytes (AVX2, better AVX-512 VNNI).
bool CanMultiplyBytes();
void RoundRows(const float* a, int64_t a_stride, int64_t rows, const BlockwiseShape& shape,
               const ByteRows& to);
// As BlockwiseProduct(), of any number of rows.
void ByteProduct(const BlockwiseWeights& weights, const ByteRows& a, int64_t rows, float* c,
                 int64_t c_stride, int64_t first, int64_t last, const GemmEpilogue& epilogue);

// Panels [first, last) as PackGemmPanels() lays out what the codes stand for, the first at `to`.
void WidenBlockwise(const BlockwiseWeights& weights, int64_t first, int64_t last, float* to);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_QUANTIZATION_BLOCKWISE_H_
