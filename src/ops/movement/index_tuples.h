// The index tuples of GatherND and ScatterND: checked and converted to offsets.
#ifndef CHAIRLIFT_OPS_MOVEMENT_INDEX_TUPLES_H_
#define CHAIRLIFT_OPS_MOVEMENT_INDEX_TUPLES_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "base/status.h"
#include "ops/movement/indices.h"

namespace chairlift {

// Tuples of `width` indices into the axes of data after its first `batch_dims`. Each refers to a
// run of elements.
class IndexTuples {
 public:
  IndexTuples(const Shape& data, int batch_dims, int64_t width) {
    for (int64_t k = 0; k < width; ++k) {
      const int d = batch_dims + static_cast<int>(k);
      bounds_.push_back(data[d]);
      strides_.push_back(data.NumElements(d + 1, data.rank()));
    }
    run_ = data.NumElements(batch_dims + static_cast<int>(width), data.rank());
    batch_stride_ = data.NumElements(batch_dims, data.rank());
  }

  int64_t width() const { return static_cast<int64_t>(bounds_.size()); }
  int64_t run() const { return run_; }                    // elements per tuple
  int64_t batch_stride() const { return batch_stride_; }  // elements

  Status Check(const int64_t* indices, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) {
      for (size_t k = 0; k < bounds_.size(); ++k, ++indices) {
        if (*indices < -bounds_[k] || *indices >= bounds_[k]) {
          return InvalidArgument("index {} at position [{},{}] is outside [{}, {})", *indices, i, k,
                                 -bounds_[k], bounds_[k]);
        }
      }
    }
    return absl::OkStatus();
  }

  // In elements, from the start of the batch.
  int64_t Offset(const int64_t* tuple) const {
    int64_t offset = 0;
    for (size_t k = 0; k < bounds_.size(); ++k) {
      offset += WrapIndex(tuple[k], bounds_[k]) * strides_[k];
    }
    return offset;
  }

 private:
  absl::InlinedVector<int64_t, 4> bounds_;
  absl::InlinedVector<int64_t, 4> strides_;
  int64_t run_ = 1;
  int64_t batch_stride_ = 1;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_MOVEMENT_INDEX_TUPLES_H_
