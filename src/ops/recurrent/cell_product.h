// The matrix products of recurrent cells: float32 on the packed kernels of ops/linear, double as
// plain loops over the same packed form.
#ifndef CHAIRLIFT_OPS_RECURRENT_CELL_PRODUCT_H_
#define CHAIRLIFT_OPS_RECURRENT_CELL_PRODUCT_H_

#include <cstdint>

#include "chairlift/tensor.h"

namespace chairlift {

// Units per block: a panel of the packed weights.
inline constexpr int64_t kUnitBlock = 32;
// If the last block has at most this many units, two of its gates share a panel.
inline constexpr int64_t kNarrowBlock = 16;

// The panels of W [gates·hidden, k] for a recurrent cell: block by block of 32 units, and within it
// the gates [first_gate, first_gate + num_gates), so that one worker's blocks are contiguous. A
// narrow last block has two gates per panel. Units past `hidden` have zero weights.
struct CellWeights {
  int64_t k = 0;
  int64_t hidden = 0;
  int first_gate = 0;
  int num_gates = 0;

  int64_t blocks() const { return (hidden + kUnitBlock - 1) / kUnitBlock; }
  bool Narrow(int64_t block) const { return hidden - block * kUnitBlock <= kNarrowBlock; }
  // The first panel of a block; all panels end at FirstPanel(blocks()).
  int64_t FirstPanel(int64_t block) const {
    const bool after_narrow = block > 0 && Narrow(block - 1);
    return after_narrow ? (block - 1) * num_gates + (num_gates + 1) / 2 : block * num_gates;
  }
  // Columns from one gate of a block to the next.
  int64_t GateStride(int64_t block) const { return Narrow(block) ? kNarrowBlock : kUnitBlock; }
  int64_t columns() const { return FirstPanel(blocks()) * kUnitBlock; }
  // Whether the very last panel holds one gate, in its first half.
  bool HalfEnd() const { return Narrow(blocks() - 1) && num_gates % 2 != 0; }
  int64_t elements() const { return columns() * k; }
};
template <typename T>
void PackCellWeights(const CellWeights& weights, const T* w, T* packed);
// The same order for a bias [gates·hidden]: added to out [columns()].
template <typename T>
void AddCellBias(const CellWeights& weights, const T* bias, T* out);

// c [rows, columns] = a [rows, k] · packed + bias, for the blocks [first, last); bias [columns] may
// be null.
void CellProduct(const CellWeights& weights, int64_t first, int64_t last, int64_t rows,
                 const float* a, int64_t a_stride, const float* packed, const float* bias, float* c,
                 int64_t c_stride);
void CellProduct(const CellWeights& weights, int64_t first, int64_t last, int64_t rows,
                 const double* a, int64_t a_stride, const double* packed, const double* bias,
                 double* c, int64_t c_stride);

// The same for some adjacent panels, starting at the given one; the float32 version is in
// step_product.h.
void CellProduct(int64_t rows, int64_t k, const double* a, int64_t a_stride, const double* packed,
                 int64_t panels, double* c, int64_t c_stride);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_RECURRENT_CELL_PRODUCT_H_
