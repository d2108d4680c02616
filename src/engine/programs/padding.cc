#include "engine/programs/padding.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "engine/programs/staging.h"

namespace chairlift {
namespace {

// Copies `rows` rows of `from_bytes` each to rows of `to_bytes` each, as much as fits; the rest of
// each row becomes zeros.
void CopyRows(const void* from, size_t from_bytes, void* to, size_t to_bytes, int64_t rows) {
  const size_t bytes = std::min(from_bytes, to_bytes);
  for (int64_t row = 0; row < rows; ++row) {
    auto* at = static_cast<std::byte*>(to) + static_cast<size_t>(row) * to_bytes;
    std::memcpy(at, static_cast<const std::byte*>(from) + static_cast<size_t>(row) * from_bytes,
                bytes);
    std::memset(at + bytes, 0, to_bytes - bytes);
  }
}

}  // namespace

Padding::Padding(const Signature& signature, RequestSpan requests)
    : signature_(signature), requests_(requests) {
  int64_t rows = 0;
  for (const ValidatedRequest* request : requests) {
    first_row_.push_back(rows);
    rows += request->rows;
    length_ = std::max(length_, request->length);
  }
  first_row_.push_back(rows);
}

StatusOr<std::vector<Tensor>> Padding::Inputs(Arena& staging) const {
  std::vector<TensorDesc> descs;
  for (size_t i = 0; i < signature_.inputs.size(); ++i) {
    Shape shape = requests_[0]->inputs[i].shape();
    shape[0] = first_row_.back();
    if (signature_.sequences->token_inputs[i]) shape[1] = length_;
    descs.push_back({signature_.inputs[i].dtype, shape});
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> inputs, Stage(descs, staging));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const size_t row_bytes = inputs[i].byte_size() / static_cast<size_t>(first_row_.back());
    for (size_t r = 0; r < requests_.size(); ++r) {
      const ValidatedRequest& validated = *requests_[r];
      const Tensor& from = validated.inputs[i];
      CopyRows(
          from.raw(), from.byte_size() / static_cast<size_t>(validated.rows),
          static_cast<std::byte*>(inputs[i].raw()) + static_cast<size_t>(first_row_[r]) * row_bytes,
          row_bytes, validated.rows);
    }
  }
  return inputs;
}

StatusOr<std::vector<NamedTensor>> Padding::Outputs(size_t i,
                                                    std::span<const Tensor> outputs) const {
  const ValidatedRequest& validated = *requests_[i];
  std::vector<NamedTensor> picked;
  for (const int index : validated.outputs) {
    const auto at = static_cast<size_t>(index);
    const std::string& name = signature_.outputs[at].name;
    const bool tokens = signature_.sequences->token_outputs[at];
    const Shape& whole = outputs[at].shape();
    if (whole.rank() < (tokens ? 2 : 1) || whole[0] != first_row_.back() ||
        (tokens && whole[1] != length_)) {
      return Internal("output '{}' of a batch of {} sequences of {} tokens has shape {}", name,
                      first_row_.back(), length_, whole.ToString());
    }
    const Tensor rows = outputs[at].Rows(first_row_[i], validated.rows);
    if (!tokens || validated.length == length_) {
      picked.push_back({name, rows});
      continue;
    }
    Shape shape = rows.shape();
    shape[1] = validated.length;
    Tensor cut = Tensor::Allocate(rows.dtype(), shape);
    const auto count = static_cast<size_t>(validated.rows);
    CopyRows(rows.raw(), rows.byte_size() / count, cut.raw(), cut.byte_size() / count,
             validated.rows);
    picked.push_back({name, std::move(cut)});
  }
  return picked;
}

}  // namespace chairlift
