// What a config.pbtxt says of tensors: inputs and outputs as clients see them, inputs that are
// computed or filled, what sequences begin with, labels.
#ifndef CHAIRLIFT_ENGINE_REPOSITORY_TRITON_TRITON_TENSORS_H_
#define CHAIRLIFT_ENGINE_REPOSITORY_TRITON_TRITON_TENSORS_H_

#include <filesystem>
#include <string>

#include "engine/repository/model_folder.h"
#include "engine/repository/triton/model_config.pb.h"

namespace chairlift {

// kUndefined of TYPE_INVALID.
DType TypeOf(triton::DataType type);

// Fills `tensor` with the bytes of a file in <folder>, which must be as many.
Status FillFrom(const std::filesystem::path& folder, const std::string& name, Tensor& tensor);
// What the tensors of one configuration may take.
inline constexpr int64_t kMaxTensorsBytes = int64_t{256} << 20;
// Of zeros. InvalidArgument: a type or shape that no model takes, or more than `bytes_left`, of
// which it takes its own.
StatusOr<Tensor> ZeroTensor(triton::DataType type, const Shape& shape, int64_t& bytes_left);

// Sets the ports and rules of `read`. `folder` is the model's, with the files that are named.
// InvalidArgument names the field that is wrong, Unimplemented what is not supported.
Status ReadTensors(const triton::ModelConfig& from, const std::filesystem::path& folder,
                   FolderConfig& read);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REPOSITORY_TRITON_TRITON_TENSORS_H_
