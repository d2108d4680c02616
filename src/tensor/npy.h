// NumPy's .npy files, the command line's format for tensors.
#ifndef CHAIRLIFT_TENSOR_NPY_H_
#define CHAIRLIFT_TENSOR_NPY_H_

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "base/status.h"
#include "chairlift/tensor.h"

namespace chairlift {

// Reads format versions 1 to 3, C order, little-endian, of the 13 element types except bfloat16,
// which NumPy lacks, and of strings (U and S). The input is untrusted: any error is InvalidArgument
// and names the file.
StatusOr<Tensor> ReadNpy(const std::filesystem::path& path);
StatusOr<Tensor> ParseNpy(std::span<const std::byte> bytes);

// Version 1.0. bfloat16 is written as its float32 values, strings as U if they are UTF-8, else as
// S.
Status WriteNpy(const std::filesystem::path& path, const Tensor& tensor);
std::string FormatNpyHeader(DType dtype, const Shape& shape);

}  // namespace chairlift

#endif  // CHAIRLIFT_TENSOR_NPY_H_
