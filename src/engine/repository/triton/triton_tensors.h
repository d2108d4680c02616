// The tensors in a config.pbtxt: inputs and outputs as clients see them, computed or filled inputs,
// initial states of sequences, labels.
#ifndef CHAIRLIFT_ENGINE_REPOSITORY_TRITON_TRITON_TENSORS_H_
#define CHAIRLIFT_ENGINE_REPOSITORY_TRITON_TRITON_TENSORS_H_

#include <filesystem>
#include <string>

#include "engine/repository/model_folder.h"
#include "engine/repository/triton/model_config.pb.h"

namespace chairlift {

// kUndefined for TYPE_INVALID.
DType TypeOf(triton::DataType type);

// Fills `tensor` with the bytes of a file in <folder>, whose size must match.
Status FillFrom(const std::filesystem::path& folder, const std::string& name, Tensor& tensor);
// Limit for the tensors of one configuration.
inline constexpr int64_t kMaxTensorsBytes = int64_t{256} << 20;
// A tensor of zeros; its size is subtracted from `bytes_left`. InvalidArgument: an unsupported type
// or shape, or more than `bytes_left`.
StatusOr<Tensor> ZeroTensor(triton::DataType type, const Shape& shape, int64_t& bytes_left);

// Sets the ports and rules of `read`. `folder` is the model's, with the files that are referred to.
// InvalidArgument has the wrong field, Unimplemented what is not supported.
Status ReadTensors(const triton::ModelConfig& from, const std::filesystem::path& folder,
                   FolderConfig& read);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REPOSITORY_TRITON_TRITON_TENSORS_H_
