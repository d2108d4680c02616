// Parts of one request's answer, in order, as its cells complete them.
#ifndef CHAIRLIFT_ENGINE_REQUESTS_ANSWER_PARTS_H_
#define CHAIRLIFT_ENGINE_REQUESTS_ANSWER_PARTS_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "chairlift/unfold.h"

namespace chairlift {

// A completed part: separate entries, or a range of an answer that is still being written
// elsewhere.
struct ReadyPart {
  AnswerPart part;
  Tensor entries;  // [count, …], or the whole answer if it has axes
  AnswerAxes axes;

  // [count, …]. Reads only the part of an answer that no node writes any more.
  Tensor Entries() const;
};

// Not thread-safe.
class AnswerParts {
 public:
  // By the model's outputs: whether parts are requested.
  explicit AnswerParts(std::vector<bool> wanted) : wanted_(std::move(wanted)) {}

  bool wants(int output) const {
    return output >= 0 && output < static_cast<int>(wanted_.size()) && wanted_[output];
  }
  // Entries of an answer are complete. They become ready when all earlier ones in their row are.
  void Complete(const AnswerPart& part, const Tensor& answer, const AnswerAxes& axes);
  // Ready immediately: the caller keeps the order.
  void Emit(const AnswerPart& part, Tensor entries);

  std::vector<ReadyPart> Take() { return std::exchange(ready_, {}); }

 private:
  struct Row {
    int64_t next = 0;                 // earlier entries are ready
    std::map<int64_t, int64_t> late;  // first → end, of those after a gap
  };

  const std::vector<bool> wanted_;
  absl::flat_hash_map<std::pair<int, int64_t>, Row> rows_;  // by output and row
  std::vector<ReadyPart> ready_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REQUESTS_ANSWER_PARTS_H_
