// Kernels that compute every output element from the operands' elements at the same position: the
// loop over blocks, and the table of inner functions.
#ifndef CHAIRLIFT_OPS_ELEMENTWISE_ELEMENT_KERNEL_H_
#define CHAIRLIFT_OPS_ELEMENTWISE_ELEMENT_KERNEL_H_

#include <array>
#include <cstdint>
#include <memory>

#include "ops/broadcast.h"
#include "ops/operator.h"

namespace chairlift {

inline constexpr int kMaxElementOperands = 8;
// Numbers an operator takes from its attributes (alpha, min, max).
using ElementParams = std::array<double, 3>;

// rows × cols elements of output, contiguous. Operand k's element (r, c) is at in[k] + r *
// row_step[k] + c * col_step[k] elements; col_step is 0 or 1. The output may be the memory of an
// operand with the same steps.
struct ElementBlock {
  std::array<const void*, kMaxElementOperands> in;
  void* out;
  int64_t rows;
  int64_t cols;
  std::array<int64_t, kMaxElementOperands> row_step;
  std::array<int64_t, kMaxElementOperands> col_step;
  const ElementParams& params;
  const void* program = nullptr;  // as given to ElementLoop::Make()
};
using ElementFn = void (*)(const ElementBlock&);

// A kernel that runs `fn` over output 0 and all inputs (at most kMaxElementOperands) of `context`,
// distributed over the team if it is large. A null fn gives Unimplemented.
StatusOr<std::unique_ptr<Kernel>> MakeElementKernel(const CompileContext& context, ElementFn fn,
                                                    const ElementParams& params = {});

// One pass of a kernel that folds several operands: output = fn(operands), with everything known
// except addresses.
class ElementLoop {
 public:
  // `program` is passed to fn, and must outlive the loop.
  static StatusOr<ElementLoop> Make(std::span<const TensorDesc> operands, const TensorDesc& output,
                                    ElementFn fn, const ElementParams& params,
                                    const void* program = nullptr);
  void Run(std::span<const void* const> inputs, void* output, Team& team) const {
    RunAll(inputs, output, team, params_);
    if (!keeps_zeros_) ClearFilling(output);
  }
  void Run(std::span<const void* const> inputs, void* output, Team& team,
           const ElementParams& params) const {
    RunAll(inputs, output, team, params);
    ClearFilling(output);
  }

 private:
  // Whether fn maps the zeros that pad blocks to zeros; found by running it.
  bool KeepsZeros(std::span<const TensorDesc> operands) const;
  void ClearFilling(void* output) const;
  void RunAll(std::span<const void* const> inputs, void* output, Team& team,
              const ElementParams& params) const;
  void RunRows(std::span<const void* const> inputs, void* output, int64_t first, int64_t last,
               int64_t col_first, int64_t col_last, const ElementParams& params) const;

  BroadcastLoop loop_;
  ElementFn fn_ = nullptr;
  ElementParams params_ = {};
  const void* program_ = nullptr;
  std::array<int64_t, kMaxElementOperands> element_bytes_ = {};
  int64_t output_bytes_ = 0;  // per element
  int64_t rows_ = 0;          // product of all dimensions but the last

  // For an output whose last block of channels is padded; 0 images: it is not.
  int64_t images_ = 0, image_elements_ = 0, last_block_at_ = 0;  // in stored elements
  int block_ = 0, used_ = 0;                                     // channels of the last block
  bool keeps_zeros_ = true;
};

// Work on fewer elements is not distributed to a second thread.
inline constexpr int64_t kMinElementsToShare = int64_t{1} << 16;

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_ELEMENTWISE_ELEMENT_KERNEL_H_
