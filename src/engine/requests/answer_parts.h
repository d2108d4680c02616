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

// A part that is complete: entries of their own, or those of an answer that is being written
// elsewhere.
struct ReadyPart {
  AnswerPart part;
  Tensor entries;  // [count, …], or the whole answer where it has axes
  AnswerAxes axes;

  // [count, …]. Reads an answer where no node writes any more, so that others may go on.
  Tensor Entries() const;
};

// Not thread-safe.
class AnswerParts {
 public:
  // By the model's outputs: whether anybody wants to hear of it.
  explicit AnswerParts(std::vector<bool> wanted) : wanted_(std::move(wanted)) {}

  bool wants(int output) const {
    return output >= 0 && output < static_cast<int>(wanted_.size()) && wanted_[output];
  }
  // Entries of an answer are there. They are ready when all before them in their row are.
  void Complete(const AnswerPart& part, const Tensor& answer, const AnswerAxes& axes);
  // Ready at once: the caller keeps the order.
  void Emit(const AnswerPart& part, Tensor entries);

  std::vector<ReadyPart> Take() { return std::exchange(ready_, {}); }

 private:
  struct Row {
    int64_t next = 0;                 // entries before it are ready
    std::map<int64_t, int64_t> late;  // first → end, of those behind a gap
  };

  const std::vector<bool> wanted_;
  absl::flat_hash_map<std::pair<int, int64_t>, Row> rows_;  // by output and row
  std::vector<ReadyPart> ready_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REQUESTS_ANSWER_PARTS_H_
