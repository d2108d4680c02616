// The kernels of the hot path with the shapes that models bring: kernel_cases_test.cc compares each
// with float64, bench/kernels.cc times each against its bound.
#ifndef CHAIRLIFT_TESTS_OPS_KERNEL_CASES_H_
#define CHAIRLIFT_TESTS_OPS_KERNEL_CASES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ops/operator_harness.h"

namespace chairlift::testing {

struct KernelCase {
  std::string name;  // "family/shape"
  // Without inputs, which are made by MakeCall().
  OperatorCall call;
  struct Input {
    Input() = default;  // absent
    Input(DType type, const Shape& of, double from, double to)
        : dtype(type), shape(of), low(from), high(to) {}
    explicit Input(Tensor elements) : argument(std::move(elements)) {}

    DType dtype = DType::kUndefined;
    Shape shape;
    double low = 0, high = 0;
    Tensor argument;  // its elements, where they matter
  };
  std::vector<Input> inputs;
  double flops = 0;            // float32 multiply-adds count as two
  double int8_flops = 0;       // multiply-adds of bytes likewise
  double bfloat16_flops = 0;   // in matrix tiles, if the machine has them
  double tile_int8_flops = 0;  // likewise, of bytes
  // What has to be read and written; 0: all inputs and outputs once.
  double bytes = 0;
  // Bytes of what is read again and again: `bytes` come from the cache that holds as many. 0: all
  // of `bytes`.
  double working_set = 0;
  // The implementation that is used, in a family with several; empty: whichever is.
  std::string implementation = {};

  OperatorCall MakeCall() const;
};

const std::vector<KernelCase>& KernelCases();

// Recurrent cells by hidden size, rows and kind: "recurrent step/<cell> <rows>x<hidden>" and
// "recurrent layer/<cell> <time>x<rows>x<hidden>", from as many features, of the cells "LSTM",
// "GRU", "GRU reset after" (linear_before_reset) and "RNN". The large ones take GBs and seconds.
const std::vector<KernelCase>& RecurrentCases();

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_OPS_KERNEL_CASES_H_
