// Strings in .npy files: NumPy's types U (code points) and S (bytes), both of a fixed width.
#ifndef CHAIRLIFT_TENSOR_NPY_TEXT_H_
#define CHAIRLIFT_TENSOR_NPY_TEXT_H_

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "chairlift/tensor.h"

namespace chairlift {

struct NpyText {
  bool code_points = true;  // '<U'; otherwise '|S'
  size_t width = 0;         // of one string, in code points or bytes
  size_t bytes() const { return code_points ? 4 * width : width; }
};

// The type in `descr`, which begins with a quote, as in "'<U6'". Nothing if it is another type.
std::optional<NpyText> NpyTextType(std::string_view descr);

// `data` is untrusted. Zeros at the end of a string are not part of it.
StatusOr<Tensor> ParseNpyText(const NpyText& type, const Shape& shape, std::string_view data);

// A kBytes tensor as an array of U if all of it is UTF-8, otherwise of S.
struct NpyTextArray {
  std::string descr;  // "<U6"
  std::string data;
};
NpyTextArray FormatNpyText(const Tensor& tensor);

}  // namespace chairlift

#endif  // CHAIRLIFT_TENSOR_NPY_TEXT_H_
